/* A model that reads and writes text: weights, adapters, tokenizer, chat template, and its folder's
 * generation settings. */
#ifndef AX_MODEL_TEXT_TEXT_MODEL_H
#define AX_MODEL_TEXT_TEXT_MODEL_H

#include "base/lock.h"
#include "model/adapter/adapters.h"
#include "data/text_side.h"
#include "data/text/text_stream.h"
#include "model/generate/generate.h"
#include "parallel/fabric/team.h"
#include "parallel/runtime.h"

/* Numbers that were not given are negative or NaN: then the model's generation_config.json applies,
 * else the default. */
struct ax_text_options {
    const char *model, *base; /* base: how its matrices are stored; NULL: as they are */
    int64_t max_new_tokens, top_k, seed;
    double temperature, top_p, min_p, repetition_penalty;
    struct ax_arg_list stop, adapters;
    bool dtype_given;
    enum ax_dtype dtype;
    struct ax_runtime_options runtime;
    bool drafts;           /* as in ax_generate_options; the model must have the layer */
    int64_t adapter_slots; /* places for adapters that come later (ax_adapters_add_slots) */
    bool samples;          /* without a word in generation_config.json: at temperature 0.7 */
    struct ax_team *team;  /* several ranks; NULL: one */
};

struct ax_text_model {
    char *named; /* the base that the folder of an adapter names; NULL: another model was given */
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
    bool drafts;
    struct ax_runtime_options runtime;
};
/* A folder, also of an adapter that names its base, a GGUF file (whose weights are read in place), or a
 * hub id in the cache. */
enum ax_status ax_text_model_open(struct ax_text_model *t, const struct ax_text_options *o);
void ax_text_model_close(struct ax_text_model *t); /* safe on a zeroed one */

/* The text side of an adapter, or of the model (AX_ADAPTER_NONE). */
const struct ax_text_side *ax_text_model_side(const struct ax_text_model *t, int adapter);

/* Before anything is loaded: AX_ERR_DATA names an adapter that does not fit. */
enum ax_status ax_text_model_check(const struct ax_text_model *t);

typedef enum ax_status ax_text_body(struct ax_generator *g, void *ctx);
/* Runs `body` once, on this rank's generator with the model's weights, stop tokens and sampling, and no
 * active adapter; `o` has the other options. `logprobs`: whether sequences will request them. */
enum ax_status ax_text_model_run(struct ax_text_model *t, const struct ax_generate_options *o,
                                 bool logprobs, ax_text_body *body, void *ctx);
/* In the body: switches to an adapter, or none. No sequence may be active. */
enum ax_status ax_text_model_use(const struct ax_text_model *t, struct ax_generator *g,
                                 int adapter);

#endif
