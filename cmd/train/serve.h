/* serve: the model in training answers requests between steps. */
#ifndef AX_CMD_TRAIN_SERVE_H
#define AX_CMD_TRAIN_SERVE_H

#include "cmd/serve/serve.h"
#include "cmd/train/data/data.h"
#include "optim/train/train.h"

struct ax_serve_keys {
    const char *name; /* NULL: base_model's last part */
    int64_t lanes, queue;
    int64_t context, cache_tokens; /* 0: unset */
    struct ax_serve_options o;
};

/* Must not move while it is open. */
struct ax_setup_serve {
    bool on; /* the key is set */
    bool open, listens;
    struct ax_serve_keys keys;
    struct ax_text_side side; /* borrows the data's tokenizer */
    struct ax_arg_list stop;  /* none */
    struct ax_serve serve;
    struct ax_generate_options generator;
    bool announced;
};
/* Reads the keys, and unless planning, rank 0 takes the port, before anything is loaded. */
enum ax_status ax_setup_serve_open(struct ax_setup_serve *s, const struct ax_config *cfg,
                                   bool planning, bool leads);
/* Sets o->requests; model, mesh and data must be read. `base` is the base model's folder; NULL while
 * planning. */
enum ax_status ax_setup_serve_read(struct ax_setup_serve *s, const struct ax_config *cfg,
                                   struct ax_setup_data *d, const char *base,
                                   struct ax_train_options *o);
/* From now on requests are answered, at first that the model is loading. */
enum ax_status ax_setup_serve_start(struct ax_setup_serve *s);
void ax_setup_serve_close(struct ax_setup_serve *s);

#endif
