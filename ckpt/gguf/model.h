/* The model in a GGUF file, as in a Hugging Face folder: config.json, generation_config.json, and
 * tensors with HF names and row order.
 *
 * Kinds: llama (with experts: Mixtral), qwen2, qwen3, qwen3moe. Features that affect the result but
 * cannot be stated in such a config (windows, unknown scalings, extra tensors) are rejected by
 * name. */
#ifndef AX_CKPT_GGUF_MODEL_H
#define AX_CKPT_GGUF_MODEL_H

#include <jansson.h>

#include "ckpt/gguf/gguf.h"
#include "ckpt/tensors/entry.h"

struct ax_gguf_kind {
    const char *arch;         /* general.architecture */
    const char *model_type;   /* HF's */
    const char *architecture; /* architectures[0] */
    bool permuted;            /* rows of q and k are stored in rotary pairs */
    bool qkv_bias;            /* always present; if false, the file decides */
    bool qk_norm;
    bool mlp_bias; /* may be present */
    bool moe;      /* has experts */
};

/* The kind for an HF model_type; NULL if there is none. */
const struct ax_gguf_kind *ax_gguf_kind_of(const char *model_type);

struct ax_gguf_model {
    const struct ax_gguf *file; /* borrowed; NULL when writing a model */
    const struct ax_gguf_kind *kind;
    int64_t layers, hidden, ffn, heads, kv_heads, head_dim, context, vocab;
    int64_t experts, active, expert_ffn; /* 0: none */
    int64_t bos, eos, eot, pad;          /* ids, −1 = none */
    double eps, rope_theta;
    bool tied, qkv_bias, o_bias, mlp_bias;
};
enum ax_status ax_gguf_model_read(struct ax_gguf_model *m, const struct ax_gguf *file);

/* Uses the keys of transformers 4 (rope_theta, rope_scaling), which 5 also reads; without dtype,
 * which ax_hf_write adds. Free with json_decref. */
enum ax_status ax_gguf_model_config(const struct ax_gguf_model *m, json_t **out);
enum ax_status ax_gguf_model_generation_config(const struct ax_gguf_model *m, json_t **out);

/* The smallest dtype that represents every matrix exactly: bfloat16 or float16 if all are stored
 * so, else float32. */
enum ax_dtype ax_gguf_model_dtype(const struct ax_gguf_model *m);

/* All tensors of the folder, for ax_hf_write; `m` is borrowed. Their fill accepts any range and
 * returns AX_ERR_DATA for a weight that is not finite, before or after conversion to `dtype`. */
struct ax_gguf_weights {
    int n;
    struct ax_st_output *outputs; /* [n] */
    struct ax_gguf_source *sources;
    int64_t numel; /* total */
};
enum ax_status ax_gguf_weights_create(struct ax_gguf_weights *w, const struct ax_gguf_model *m,
                                      enum ax_dtype dtype);
/* The same as entries to read, sorted by name; *out [w->n] (ax_free) is valid as long as `w` and
 * its file. */
enum ax_status ax_gguf_weights_entries(const struct ax_gguf_weights *w, struct ax_st_entry **out);
void ax_gguf_weights_free(struct ax_gguf_weights *w);

#endif
