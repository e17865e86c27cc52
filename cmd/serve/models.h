/* The models of a server: the base and adapters over it, each with a name. */
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

/* Constant while requests are read, but for what has locks. */
struct ax_serve_models {
    int n;
    struct ax_serve_model list[AX_SERVE_MODELS]; /* requests that name none get the first */
    struct ax_serve_tools tools[AX_SERVE_MODELS];
    struct ax_serve_grammars grammars[AX_SERVE_MODELS];
    pthread_mutex_t template_lock;
};
enum ax_status ax_serve_models_init(struct ax_serve_models *all);
void ax_serve_models_close(struct ax_serve_models *all);
/* AX_ERR_CONFIG: there is one of that name. Models of the same text side share what they know of it. */
enum ax_status ax_serve_models_add(struct ax_serve_models *all, const struct ax_serve_model *m);
/* AX_ERR_DATA lists their names. */
enum ax_status ax_serve_models_find(const struct ax_serve_models *all, const char *name,
                                    const struct ax_serve_model **out);

#endif
