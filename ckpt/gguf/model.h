/* The model in a GGUF file, as in a Hugging Face folder: config.json, generation_config.json, and
 * tensors with HF names and row order.
 *
 * A kind (kinds.c) is an architecture of the format: rows of data that say which tensors it has
 * (names.c), which keys, and which members of config.json follow. Features that affect the result but
 * cannot be stated in such a config (windows, unknown scalings, extra tensors) are rejected by name. */
#ifndef AX_CKPT_GGUF_MODEL_H
#define AX_CKPT_GGUF_MODEL_H

#include <jansson.h>

#include "ckpt/gguf/gguf.h"
#include "ckpt/tensors/entry.h"

enum ax_gguf_value { AX_GGUF_COUNT, AX_GGUF_REAL, AX_GGUF_FLAG }; /* int64_t, double, bool */

/* A key of the file, a member of config.json, or both, and where struct ax_gguf_model has it. */
struct ax_gguf_field {
    const char *gguf, *hf; /* "attention.scale", after the architecture; NULL: not there */
    enum ax_gguf_value type;
    size_t at;
    double absent; /* the value if a file lacks the key */
    bool required; /* a file without the key is refused */
    bool optional; /* 0 is left out of the file */
    bool nullable; /* 0 is null in config.json */
};

struct ax_gguf_kind {
    const char *arch;         /* general.architecture */
    const char *model_type;   /* HF's */
    const char *architecture; /* architectures[0] */
    bool permuted;            /* rows of q and k are stored in rotary pairs */
    bool qkv_bias;            /* always present; if false, the file decides */
    bool o_bias;              /* present if the biases of q, k and v are */
    bool qk_norm;
    bool may_qk_norm;   /* the file decides */
    bool mlp_bias;      /* may be present */
    bool moe;           /* has experts */
    bool some_dense;    /* its first layers may have no experts */
    bool shifted;       /* norms are stored as weight + 1 */
    bool rescaled;      /* q includes the factor that the readers' softmax scale lacks */
    bool delta;         /* has the gated delta rule but in every interval-th layer */
    bool sections;      /* readers ask for the sections of a rope over three positions */
    bool copies_head;   /* a tied head is stored, too */
    bool is_tied;       /* the head is the embedding, always */
    bool layer_norm;    /* its norms are no RMSNorms */
    bool keeps_windows; /* readers follow attention.sliding_window */
    bool partial_rope;  /* may rotate a part of each head */
    bool convolves;     /* some layers convolve: head_count_kv is a list, 0 for them */
    bool mamba; /* has Mamba-2; of those that convolve, in these layers, and no layer has rope */
    /* all layers have Mamba-2 beside attention; the file has the factors of its config in weights */
    bool beside;
    /* layers of one part each: Mamba-2; attention without rope; an MLP or experts, without gates. head_count_kv and
     * feed_forward_length are lists, 0 for others */
    bool parts;
    bool
        exact_yarn; /* the range of YaRN is not rounded in published models, and files cannot say it */
    bool grows;     /* queries grow by keys of YaRN, which scales by mscale over mscale_all_dim */
    bool shares;    /* layers may use the choice of an indexer before them, as a list says */
    bool
        kda; /* or these are of the delta rule with a decay per channel, as many heads as attention */
    bool may_moe; /* the file decides */
    /* as Llama 4: readers assume its chunks, its queries' growth, and norms of q and k but with 128 experts; every
     * sparse_step-th layer has experts */
    bool chunked;
    /* layers with a window have sinks, and heads of k and v of their own, so head_count_kv and sliding_window_pattern
     * are lists; the first layers without a router are dense */
    bool slides;
    bool mixed;     /* layers differ in their heads and widths (mixed.h) */
    bool streams;   /* layers have several residual streams (streams.h) */
    int64_t gating; /* expert_gating_func, where the architecture has several; else 0 */
    const struct ax_gguf_field *fields; /* ends with a row without names; NULL: none */
    const char *config; /* further members of config.json, as an object; NULL: none */
};

/* The table; ends with a row without arch. */
extern const struct ax_gguf_kind ax_gguf_kinds[];
/* The kind for an HF model_type; NULL if there is none. */
const struct ax_gguf_kind *ax_gguf_kind_of(const char *model_type);
/* The same of a model that has experts, or not, where architectures differ by it. */
const struct ax_gguf_kind *ax_gguf_kind_for(const char *model_type, bool experts);
/* "llama, mixtral, …" for messages: their model_types. */
const char *ax_gguf_kind_list(char *buf, size_t size);

#define AX_GGUF_MAX_LAYERS 4096

struct ax_gguf_model {
    const struct ax_gguf *file; /* borrowed; NULL when writing a model */
    const struct ax_gguf_kind *kind;
    int64_t layers, hidden, ffn, heads, kv_heads, head_dim, context, vocab;
    int64_t value_dim, rotated; /* elements per head of v; rotated elements per head of q and k */
    int64_t experts, active, expert_ffn; /* 0: none */
    int64_t n_shared, shared_ffn;        /* shared experts, and the width of all together */
    int64_t dense_layers;                /* the first ones, without experts */
    int64_t sparse_step;                 /* the others: every how many-th has experts */
    /* further layers in a file being read, for multi-token prediction */
    int64_t unused_layers;
    int64_t left_out;            /* the same in a folder; they are not written to a file */
    const char *left_out_prefix; /* begins the names of such tensors in no layer; or NULL */
    /* router: groups of experts, groups kept, and its gating function */
    int64_t groups, groups_kept, gating;
    int64_t q_rank, kv_rank, nope;                 /* latent attention; kv_rank 0: none */
    int64_t taps;                                  /* taps of a convolution */
    unsigned char state[AX_GGUF_MAX_LAYERS / 8];   /* a bit per layer: it has no attention */
    unsigned char windows[AX_GGUF_MAX_LAYERS / 8]; /* the same: it has a window */
    unsigned char ffns[AX_GGUF_MAX_LAYERS / 8];   /* the same: its one part is an MLP, or experts */
    unsigned char shares[AX_GGUF_MAX_LAYERS / 8]; /* it uses the choice of an indexer before it */
    int64_t kv_sliding;                           /* heads of k and v in these layers */
    int64_t interval;                             /* every how many-th layer has attention */
    struct {
        int64_t keys, values, key_dim, value_dim, width; /* heads and their sizes; of all values */
    } delta;                                             /* the gated delta rule */
    struct {
        int64_t heads, head_dim, groups, state, width,
            expand; /* width = heads · head_dim = expand · hidden */
        bool norm;
    } ssd; /* Mamba-2 */
    struct {
        int64_t heads, head_dim, top;
    } index;        /* indexers */
    int64_t latent; /* what experts read and write; 0: `hidden` */
    double growth;  /* factor by which queries grow (llama_4_scaling_beta); 0: they do not */
    struct {
        double embedding, head, in, keys, out, mamba_in[5], mamba_out, gate, down;
    } folded; /* factors that a file being written has in its weights */
    struct {
        int64_t head_dim, kv_heads; /* heads of full layers; those above are the sliding ones' */
        int64_t borrow;             /* the last layers, which have no k and v */
        int64_t wide_ffn;           /* width of their MLPs */
        int64_t width, table;       /* elements of a layer's inputs, 0: none; rows of their table */
        double rotary_part;         /* share of the pairs that turn, in full layers */
        bool of_keys, wide,
            sparse; /* no v in full layers; wide_ffn is not ffn; there are experts */
    } mixed;
    struct {
        int64_t n, active; /* streams, and the one that layers compute; n 0: one stream */
        int64_t rank;      /* rank of the path beside attention */
        int64_t sparse;    /* the first layers, few of whose gates stay */
    } streams;
    int64_t window, period;          /* every period-th layer is full */
    int64_t query_scalar;            /* the softmax scale that readers assume is its ^-½ */
    int64_t bos, eos, eot, eom, pad; /* ids, −1 = none */
    double eps, rope_theta, rope_theta_local;
    double rotary_part; /* rotated / head_dim */
    double routed_scale, score_cap, logit_cap;
    double value_scale, attention_scale, embedding_scale, residual_scale, logit_divisor,
        logit_scale;
    double query_scale; /* factor of q when a file is written; 0 = 1 */
    bool tied, qkv_bias, o_bias, mlp_bias, qk_norm, renormalize;
    bool
        rotates; /* rope.scaling.finetuned, by which readers of hybrids tell whether there is rope */
};
static inline bool ax_gguf_has_state(const struct ax_gguf_model *m, int64_t layer) {
    return m->state[layer / 8] >> (layer % 8) & 1;
}
static inline void ax_gguf_set_state(struct ax_gguf_model *m, int64_t layer) {
    m->state[layer / 8] |= (unsigned char)(1 << (layer % 8));
}
static inline bool ax_gguf_slides(const struct ax_gguf_model *m, int64_t layer) {
    return layer >= 0 && (m->windows[layer / 8] >> (layer % 8) & 1);
}
static inline void ax_gguf_set_slides(struct ax_gguf_model *m, int64_t layer) {
    m->windows[layer / 8] |= (unsigned char)(1 << (layer % 8));
}
static inline bool ax_gguf_is_ffn(const struct ax_gguf_model *m, int64_t layer) {
    return layer >= 0 && (m->ffns[layer / 8] >> (layer % 8) & 1);
}
static inline void ax_gguf_set_ffn(struct ax_gguf_model *m, int64_t layer) {
    m->ffns[layer / 8] |= (unsigned char)(1 << (layer % 8));
}
static inline bool ax_gguf_shares_choice(const struct ax_gguf_model *m, int64_t layer) {
    return layer >= 0 && (m->shares[layer / 8] >> (layer % 8) & 1);
}
static inline void ax_gguf_set_shares_choice(struct ax_gguf_model *m, int64_t layer) {
    m->shares[layer / 8] |= (unsigned char)(1 << (layer % 8));
}
static inline bool ax_gguf_is_full(const struct ax_gguf_model *m, int64_t layer) {
    return layer >= 0 && !ax_gguf_slides(m, layer);
}
/* True if the layer uses keys and values of an earlier one; false for layer −1. */
static inline bool ax_gguf_borrows(const struct ax_gguf_model *m, int64_t layer) {
    return layer >= m->layers - m->mixed.borrow;
}
/* Readers have the output's bias of a kind with the others, or of no model. */
static inline bool ax_gguf_biases_fit(const struct ax_gguf_model *m) {
    return m->kind->o_bias ? m->qkv_bias == m->o_bias : !m->o_bias;
}
#define AX_GGUF_INDEXERS "attention.indexer.types" /* a list of bools; true: the layer has one */

enum ax_status ax_gguf_model_read(struct ax_gguf_model *m, const struct ax_gguf *file);
/* True if readers of a chunked kind norm q and k, which no tensor tells. */
bool ax_gguf_norms_by_experts(const struct ax_gguf_model *m);
/* The partial_rotary_factor of which transformers, which rounds down, makes `rotated`. */
double ax_gguf_rotary_part(int64_t rotated, int64_t head_dim);
/* The key of eps, after the architecture. */
const char *ax_gguf_eps_key(const struct ax_gguf_kind *kind);

/* The softmax scale that readers of gemma2 and gemma3 assume is its ^-½. */
int64_t ax_gguf_query_scalar(const struct ax_gguf_model *m);

/* config.json of the model. Without m->file, it has no rope_scaling. Uses the keys of transformers
 * 4 (rope_theta, rope_scaling), which 5 also reads; without dtype, which ax_hf_write adds. Free
 * with json_decref. */
enum ax_status ax_gguf_model_config(const struct ax_gguf_model *m, json_t **out);
enum ax_status ax_gguf_model_generation_config(const struct ax_gguf_model *m, json_t **out);

/* The smallest dtype that represents every matrix exactly: bfloat16 or float16 if all are stored
 * so, else float32. */
enum ax_dtype ax_gguf_model_dtype(const struct ax_gguf_model *m);

/* All tensors of the model's folder form, for ax_hf_write; `m` is borrowed. Their fill accepts any
 * range and returns AX_ERR_DATA for a weight that is not finite, before or after conversion to
 * `dtype`. */
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
