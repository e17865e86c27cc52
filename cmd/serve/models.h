/* The models of a server: the base and adapters over it, each with a name. Adapters may come and go while requests
 * are answered (adapters.c): a request keeps the one that it began with. */
#ifndef AX_CMD_SERVE_MODELS_H
#define AX_CMD_SERVE_MODELS_H

#include "base/text/words.h"
#include "cmd/serve/constrain.h"
#include "cmd/serve/tools.h"
#include "data/text_side.h"
#include "model/core/sample.h"

#define AX_SERVE_MODELS (AX_ARG_LIST_MAX + 1)

/* What requests are read for. */
struct ax_serve_model {
    const char *name, *given; /* id, and the word on the command line or NULL: either is accepted */
    const char *parent;       /* an adapter's: the base's id; else NULL */
    int adapter;              /* or AX_ADAPTER_NONE */
    const struct ax_text_side *side;
    int64_t context, vocab_size;
    struct ax_sampling sampling; /* what a request does not say */
    int64_t max_new;             /* likewise; 0: as the protocol has it */
    const struct ax_arg_list *stop;
    /* set by ax_serve_models_add */
    const struct ax_serve_tools *tools;
    struct ax_serve_grammars *grammars; /* changes, under its lock */
    pthread_mutex_t *template_lock;
};

/* What a model has of its own that has come while the server runs. */
struct ax_serve_loaded {
    char *name;
    struct ax_text_side side; /* with tools and grammars; without a folder: another model's */
    struct ax_serve_tools tools;
    struct ax_serve_grammars grammars;
};
/* dir NULL: the text side is that of a model which is served from the start. */
enum ax_status ax_serve_loaded_open(struct ax_serve_loaded **out, const char *name, const char *dir,
                                    const char *base);
void ax_serve_loaded_close(struct ax_serve_loaded *l); /* NULL is fine */

/* The list is constant for who holds a model of it. */
struct ax_serve_models {
    int n;
    struct ax_serve_model list[AX_SERVE_MODELS]; /* requests that name none get the first */
    struct ax_serve_tools tools[AX_SERVE_MODELS];
    struct ax_serve_grammars grammars[AX_SERVE_MODELS];
    pthread_mutex_t template_lock;
    pthread_mutex_t lock;
    /* under the lock, as is what changes of n and the list: */
    bool served[AX_SERVE_MODELS];                    /* requests can find it */
    int users[AX_SERVE_MODELS];                      /* requests that hold it */
    struct ax_serve_loaded *loaded[AX_SERVE_MODELS]; /* NULL: served from the start */
};
enum ax_status ax_serve_models_init(struct ax_serve_models *all);
void ax_serve_models_close(struct ax_serve_models *all);
/* AX_ERR_CONFIG: there is one of that name. Models of the same text side share what they know of it. */
enum ax_status ax_serve_models_add(struct ax_serve_models *all, const struct ax_serve_model *m);
/* The model of that name (NULL: the first), which the caller then holds. AX_ERR_DATA lists their names. */
enum ax_status ax_serve_models_take(struct ax_serve_models *all, const char *name,
                                    const struct ax_serve_model **out);
void ax_serve_models_release(struct ax_serve_models *all, const struct ax_serve_model *m);

/* ---- adapters that come and go; one caller at a time ---- */

/* True if requests neither find the adapter nor hold it. */
bool ax_serve_models_is_free(struct ax_serve_models *all, int adapter);
/* Serves a free adapter under the name of `l`, which is the list's then; another model of that name is served no
 * more. */
void ax_serve_models_serve(struct ax_serve_models *all, int adapter,
                           const struct ax_text_side *side, struct ax_serve_loaded *l);
/* AX_ERR_DATA: no such model; AX_ERR_CONFIG: it is the first. */
enum ax_status ax_serve_models_drop(struct ax_serve_models *all, const char *name);

#endif
