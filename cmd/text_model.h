/* A model that reads and writes text: weights, tokenizer, chat template, and what its folder says
 * about generation. What `generate` and `chat` open first. */
#ifndef AX_CMD_TEXT_MODEL_H
#define AX_CMD_TEXT_MODEL_H

#include "cmd/args.h"
#include "cmd/stop_tokens.h"
#include "cmd/text_stream.h"
#include "data/template.h"
#include "model/generate.h"

/* Options that such commands share. Numbers that were not given are negative: then the model's
 * generation_config.json decides, or else the default. */
struct ax_text_args {
    const char *model, *dtype;
    int64_t max_new_tokens, top_k, seed, threads;
    double temperature, top_p, min_p, repetition_penalty;
    struct ax_arg_list stop;
};
#define AX_TEXT_ARGS_COUNT 11
/* Sets the defaults and fills args[0 … AX_TEXT_ARGS_COUNT − 1]. */
void ax_text_args_table(struct ax_text_args *a, struct ax_arg *args);

struct ax_text_model {
    char *folder;
    struct ax_arch arch;
    struct ax_hf hf;
    enum ax_dtype dtype;
    struct ax_tokenizer *tokenizer;
    struct ax_template *template; /* NULL: the model has none */
    json_t *tokens;               /* special tokens for the template */
    struct ax_stop_tokens stop;
    struct ax_arg_list stop_strings;
    struct ax_sampling sampling;
    int64_t max_new; /* 0: nobody said */
    int threads;
};
/* A folder, a GGUF file (converted once, into a cache folder), or a hub id that the cache has. */
enum ax_status ax_text_model_open(struct ax_text_model *t, const struct ax_text_args *a);
void ax_text_model_close(struct ax_text_model *t); /* safe on a zeroed one */

/* Appends the ids of `text` as the model expects a text (BOS where it has one), or of a
 * conversation, rendered with the model's template up to where the answer begins. */
enum ax_status ax_text_model_encode(const struct ax_text_model *t, const char *text, size_t len,
                                    struct ax_encoding *out);
enum ax_status ax_text_model_encode_chat(const struct ax_text_model *t, const json_t *messages,
                                         struct ax_encoding *out);

typedef enum ax_status ax_text_body(struct ax_generator *g, void *ctx);
/* Runs `body` once, on a generator with the model's weights, stop tokens and sampling; `o` has the
 * rest of the options. `logprobs`: whether sequences will ask for them. */
enum ax_status ax_text_model_run(struct ax_text_model *t, const struct ax_generate_options *o,
                                 bool logprobs, ax_text_body *body, void *ctx);

#endif
