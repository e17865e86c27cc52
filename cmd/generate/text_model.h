/* A model that reads and writes text: weights, adapters, tokenizer, chat template, and its folder's
 * generation settings. What `generate` and `chat` open first.
 *
 * Reading order: text_model.c, adapters.c (several over one base), text_side.c (tokenizer and
 * template of each), text_stream.c (text during generation), prompts.c (input of
 * `generate`). */
#ifndef AX_CMD_GENERATE_TEXT_MODEL_H
#define AX_CMD_GENERATE_TEXT_MODEL_H

#include "base/lock.h"
#include "cmd/generate/adapters.h"
#include "cmd/generate/text_side.h"
#include "cmd/generate/text_stream.h"
#include "cmd/ranks.h"
#include "model/generate/generate.h"

/* Options shared by these commands. Numbers that were not given are negative: then the model's
 * generation_config.json applies, else the default. */
struct ax_text_args {
    const char *model, *dtype, *base, *mesh, *device;
    int64_t max_new_tokens, top_k, seed, threads;
    double temperature, top_p, min_p, repetition_penalty;
    struct ax_arg_list stop, adapters;
    struct ax_ranks *ranks; /* ranks of the command (not an option); NULL: one rank */
};
#define AX_TEXT_ARGS_COUNT 15
/* Sets the defaults and fills args[0 … AX_TEXT_ARGS_COUNT − 1]. */
void ax_text_args_table(struct ax_text_args *a, struct ax_arg *args);

struct ax_text_model {
    char *folder;
    struct ax_lock use; /* lock on the folder, if it is in a cache */
    struct ax_arch arch;
    struct ax_hf hf;
    enum ax_dtype dtype;
    enum ax_storage store; /* storage of the matrices */
    struct ax_adapters adapters;
    struct ax_text_side sides[AX_ARG_LIST_MAX + 1]; /* [0] for the model, [k + 1] for adapter k */
    struct ax_arg_list stop_strings;
    json_t *settings; /* the folder's, which have some of these */
    struct ax_sampling sampling;
    int64_t max_new; /* 0: not specified */
    struct ax_runtime_options runtime;
};
/* text_settings.c: those of the folder's generation_config.json, before options. */
enum ax_status ax_text_settings_read(struct ax_text_model *t, const struct ax_text_args *a);
/* A folder, a GGUF file (whose weights are read in place), or a hub id in the cache. */
enum ax_status ax_text_model_open(struct ax_text_model *t, const struct ax_text_args *a);
void ax_text_model_close(struct ax_text_model *t); /* safe on a zeroed one */

/* The text side of an adapter, or of the model (AX_ADAPTER_NONE). */
const struct ax_text_side *ax_text_model_side(const struct ax_text_model *t, int adapter);

typedef enum ax_status ax_text_body(struct ax_generator *g, void *ctx);
/* Runs `body` once, on this rank's generator with the model's weights, stop tokens and sampling, and no
 * active adapter; `o` has the other options. `logprobs`: whether sequences will request them. */
enum ax_status ax_text_model_run(struct ax_text_model *t, const struct ax_generate_options *o,
                                 bool logprobs, ax_text_body *body, void *ctx);
/* In the body: switches to an adapter, or none. No sequence may be active. */
enum ax_status ax_text_model_use(const struct ax_text_model *t, struct ax_generator *g,
                                 int adapter);

#endif
