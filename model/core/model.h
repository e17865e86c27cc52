/* A model, as its parts see it: units (embedding, one per layer, norm + head) and their parameters
 * (model/model.h creates it). */
#ifndef AX_MODEL_CORE_MODEL_H
#define AX_MODEL_CORE_MODEL_H

#include "ckpt/hf/hf.h"
#include "model/arch/arch.h"
#include "model/core/batch.h"
#include "model/parallel/context_parallel.h"
#include "model/core/linear.h"
#include "model/lora/experts.h"
#include "model/core/stash.h"
#include "parallel/schedule/chunks.h"
#include "parallel/units/expert.h"

/* Grouped-query attention: see attention.c. */
struct ax_attention_part {
    struct ax_linear qkv, o;
    struct ax_linear q; /* queries and their gates (gated_attention.c): then qkv is k and v */
    const struct ax_param *q_norm, *k_norm, *sinks; /* NULL if absent */
};
/* Multi-head latent attention: see mla.c. */
struct ax_mla_part {
    struct ax_linear latent, q, kv, o;
    const struct ax_param *q_norm, *kv_norm; /* norms of the latents; q_norm NULL if absent */
};
/* The indexer of sparse attention: see indexer.h. */
struct ax_index_part {
    struct ax_linear q, k;
    const struct ax_param *weights, *norm, *norm_bias;
    int nth; /* which of the indexers it is */
};
/* Gated short convolution: see shortconv.c. */
struct ax_shortconv_part {
    struct ax_linear in, out;
    const struct ax_param *taps, *bias; /* bias NULL if absent */
};
/* The gated delta rule: see delta.c. */
struct ax_delta_part {
    struct ax_linear in, rest, out;
    struct ax_linear decay_in, decay, gate_in,
        gate; /* linears of a decay per channel, and of z; n_parts 0 if absent */
    const struct ax_param *taps[3], *log, *bias, *norm; /* taps of q, k, v; or one for all */
};
/* Mamba-2: see mamba.c. */
struct ax_mamba_part {
    struct ax_linear in, out;
    const struct ax_param *taps, *conv_bias, *log, *bias, *skip, *norm; /* conv_bias NULL: none */
};
/* MLP: see mlp.c. */
struct ax_mlp_part {
    struct ax_linear gate_up, down;
};

/* Called with the rows that this rank's experts read, before the products of gates and ups; or,
 * with `down`, before the product of downs, which is then not computed. */
struct ax_expert_watch {
    enum ax_status (*see)(void *ctx, bool down, const struct ax_expert_rows *rows);
    void *ctx;
};

/* Mixture of experts: see moe.c. Arrays have the parameters of all experts, in expert order; if the
 * checkpoint stacks experts, one parameter each. */
struct ax_moe_part {
    bool out_first; /* stacked as [E][out][in] */
    int ups;        /* matrices of an expert that read its input (ax_arch_ups) */
    const struct ax_param *router;
    const struct ax_param *router_bias; /* bias of the router's linear; NULL if absent */
    /* [n_experts]: added to scores only to choose experts; NULL if absent */
    const struct ax_param *bias;
    const struct ax_param *gate_up_bias, *down_bias; /* NULL if absent */
    const struct ax_param *expert_scale; /* [n_experts]: factors of weights; NULL if absent */
    const struct ax_param
        *gate_up; /* [2·n_experts]: gate and up of expert 0, of 1, …; or ups alone */
    const struct ax_param *down; /* [n_experts] */
    struct ax_expert_adapter gate_up_adapter, down_adapter;
    const struct ax_fake_quant *quant;   /* quantization of the experts; NULL: none */
    const struct ax_expert_watch *watch; /* watches forward passes; NULL: nobody */
    struct ax_linear gate; /* gate of a shared expert (shared_expert.c); n_parts 0 if absent */
    struct ax_linear latent_in, latent_out; /* around experts with a latent; n_parts 0 if absent */
};

/* An MLP and a mixture side by side: see moe_beside.c. The norms of what goes into each, of what comes out, and of
 * the router's rows. */
struct ax_beside_part {
    const struct ax_param *mlp_in, *mlp_out, *moe_in, *moe_out, *router;
};
/* A layer for multi-token prediction: see model/predict.h. */
struct ax_predict_part {
    const struct ax_param *rows_norm, *state_norm;
    struct ax_linear join;
};
/* A layer's use of its per-layer inputs: see per_layer.c. */
struct ax_per_layer_part {
    struct ax_linear gate, out;
};

/* A low-rank path beside attention, its norm and attention's: see laurel.c. */
struct ax_laurel_part {
    struct ax_linear left, right;
    const struct ax_param *norm, *attention_norm;
};
/* What predicts and corrects a layer's streams: see altup.h. */
struct ax_altup_part {
    struct ax_linear router, predict, correct;
    const struct ax_param *norm, *scale;
};

/* Half a layer, y = x + norm_out(part(norm_in(x))): see layer.c. */
struct ax_branch {
    const struct ax_part_type *type;
    const struct ax_param *norm_in, *norm_out; /* NULL if absent */
};

#define AX_LAYER_MAX_LINEARS 10
struct ax_layer {
    int index;
    int nth_keys,
        nth_state; /* which of the layers that keep keys and values it is; of those with a state */
    struct ax_layer_spec spec;
    struct ax_unit *unit;
    struct ax_branch mixer, ffn, extra; /* extra.type NULL: none */
    const struct ax_param *scale;       /* factor of the output, [1]; NULL: none */
    struct ax_attention_part attention;
    struct ax_mla_part mla;
    struct ax_index_part indexer;
    struct ax_shortconv_part shortconv;
    struct ax_delta_part delta;
    struct ax_mamba_part mamba;
    struct ax_mlp_part mlp; /* or the shared expert */
    struct ax_moe_part moe;
    struct ax_beside_part beside;
    struct ax_per_layer_part per_layer;
    struct ax_predict_part predict; /* only if spec.predicts */
    struct ax_laurel_part laurel;
    struct ax_altup_part altup;
    int n_adapted; /* linears with adapters; not those of a bank, which does not train */
    const struct ax_linear *adapted[AX_LAYER_MAX_LINEARS];
};

/* cos and sin of one of the model's ropes, accumulation [max_positions][dim/2]. */
struct ax_rope_table {
    struct ax_tensor cos, sin;
    int64_t seq_len; /* sequence length of the tables' current contents */
};

/* Parameters of the first unit, where per-layer inputs are made: see per_layer.c. */
struct ax_per_layer_table {
    const struct ax_param *table, *norm; /* NULL: the model has none */
    struct ax_linear projection;
};

/* Matrices of the first and the last unit, where streams begin and end: see streams.h. */
struct ax_stream_ends {
    struct ax_linear begin[AX_MAX_STREAMS - 1], end[AX_MAX_STREAMS - 1];
};

struct ax_adapter_bank; /* adapters.h */
struct ax_drafter;      /* model/drafter.h */

/* What trains of a model with indexers (model/parts/index_training.h): all but these; these alone, while attention is to
 * all keys; or all. */
enum ax_indexer_mode { AX_INDEXERS_FROZEN, AX_INDEXERS_WARM_UP, AX_INDEXERS_SPARSE };

struct ax_model_options {
    enum ax_dtype dtype; /* compute */
    bool train;          /* gradients, masters */
    enum ax_masters masters;
    struct ax_offload offload;
    struct ax_sharding sharding;
    /* how attention on ranks of cp meets the keys of other ranks */
    enum ax_cp_method cp_method;
    /* rows of linears travel over tp while others are multiplied */
    bool tp_overlap;
    int64_t max_positions;                /* longest sequence: the size of the rope tables */
    const struct ax_peft_config *adapter; /* NULL: none; else only it trains. Borrowed */
    struct ax_adapter_bank *bank; /* several to choose from, instead of `adapter`; NULL: none */
    enum ax_storage base_store;   /* storage of frozen matrices of linears */
    bool store_experts;           /* base_store applies to experts, too */
    /* base_store is only of matrices whose codes this folder has; NULL: of all. Borrowed by create */
    const struct ax_hf *coded;
    const struct ax_scheme *qat; /* the linears of layers train for it; NULL: none. Borrowed */
    /* Linears whose weights this folder has quantized quantize their inputs, too, as it says; NULL: none do. Borrowed by
     * create; excludes `train` */
    const struct ax_hf *folder;
    /* layers at each end whose linears are not quantized */
    int64_t unquantized_first, unquantized_last;
    const struct ax_peft_names *unfrozen; /* only these train (builder.h); NULL = all. Borrowed */
    enum ax_indexer_mode indexers;
    /* count the loads of experts in training passes (expert_loads) */
    bool count_loads;
    double expert_room; /* as in struct ax_expert_group; 0 = AX_EXPERT_ROOM */
    /* rows of experts travel in two parts, one while the other is multiplied */
    bool expert_overlap;
    int chunks; /* chunks of units per pipeline stage (parallel/schedule/chunks.h); 0 = 1 */
    /* times by which stages are balanced (split.h), or NULL. Borrowed by create */
    const double *unit_times;
    /* all layers share the memory of one: the caller loads each (ax_model_load_unit) before it
     * runs. Excludes `train`; one rank only */
    bool one_layer;
    /* only the layer for multi-token prediction is there, with shared_head.norm, and only on the stage with the
     * head (model/drafter.h); the model must have it. Excludes `train` */
    bool only_predicts;
    /* A created model on the same mesh, or NULL. Where both have frozen weights of the same names
     * and layout, this model reads the other's weights and does not load its own. */
    const struct ax_model *lender;
};

struct ax_model {
    struct ax_arch arch; /* borrowed from create's caller; an adapter may have untied it */
    struct ax_runtime *rt;
    enum ax_dtype dtype, accum;
    bool train;
    enum ax_cp_method cp_method;
    enum ax_indexer_mode indexers;
    int n_params;
    struct ax_param *params;
    int n_units; /* n_layers + 2: embedding first, norm + head last */
    struct ax_unit *units;
    struct ax_chunks chunks;  /* units of this pipeline stage; the others are absent */
    struct ax_unit_pool pool; /* pool of the layers' units */
    struct ax_layer *layers;
    struct ax_expert_group experts; /* for a model with a mixture of experts */
    struct ax_tensor expert_loads; /* F64 [n_layers][n_experts]: rows on this rank that were sent to
                                       each since it was zeroed; data NULL: not counted */
    /* lm_head: == embed if tied; a classifier's is score.weight, which tp does not split */
    const struct ax_param *embed, *final_norm, *lm_head;
    const struct ax_param
        *ahead_norm;       /* norm of what the layer for multi-token prediction makes; or NULL */
    struct ax_linear head; /* lm_head with its bias, if any, and its adapter */
    /* adapter of embed; a is lora_embedding_A, b is lora_embedding_B */
    struct ax_adapter embed_adapter;
    const struct ax_peft_config *adapter;
    struct ax_adapter_bank *bank;
    struct ax_drafter *drafter; /* what drafts tokens where it generates; NULL: nothing */
    struct ax_adapter_run adapter_run;
    /* products left for later by the running backward, if it is halved; else NULL */
    struct ax_later *later;
    struct ax_fake_quant quant; /* for a model with `qat`; starts with on = true */
    /* [n_params] accumulation: what PiSSA subtracted from the base, B negated; else NULL */
    struct ax_tensor *starts;
    int lowest_unit; /* the first unit with trainable parameters; 0 if none has */
    struct ax_rope_table ropes[AX_ROPE_NONE];
    struct ax_per_layer_table per_layer;
    struct ax_stream_ends streams;
    struct ax_tensor ones; /* compute: weight of norms without one; [0] if no layer has them */
};

/* ---- parameter values: load.c, panels.c ---- */

/* Reads every parameter of this rank from the folder, and draws a classifier's new head; errors name
 * a tensor that is missing, unexpected or of the wrong shape. Does nothing while planning. */
enum ax_status ax_model_load(struct ax_model *m, const struct ax_hf *hf);
/* The same for buffers only, which are in no optimizer state. */
enum ax_status ax_model_load_buffers(struct ax_model *m, const struct ax_hf *hf);
/* The same for one parameter of the base. */
enum ax_status ax_model_load_param(struct ax_model *m, const struct ax_hf *hf,
                                   const struct ax_param *p);
/* The same for all of a unit. */
enum ax_status ax_model_load_unit(struct ax_model *m, const struct ax_hf *hf, int unit);
/* Normal(0, init_range) matrices, unit norms, zero biases, by counter RNG. Does nothing while
 * planning. */
enum ax_status ax_model_init_random(struct ax_model *m, uint64_t seed);
/* Sets every element of a parameter (not packed) to size·x, where x is a function of the seed,
 * the parameter's name and the element's index, so values are the same on any mesh. Not while
 * planning. */
enum ax_values {
    AX_VALUES_EQUAL,  /* 1 */
    AX_VALUES_NORMAL, /* normal(0, 1) */
    AX_VALUES_UNIFORM /* in [−1, 1) */
};
enum ax_status ax_model_draw(const struct ax_model *m, const struct ax_param *p,
                             enum ax_values kind, double size, uint64_t seed);
/* Converts the matrices that GEMMs read to panels (kernels/panels.h) where possible. After that the
 * model supports only forward passes, and its values can be neither read out nor loaded again.
 * Results stay bit-identical. Call it in the planning run too. */
enum ax_status ax_model_make_panels(struct ax_model *m);

/* ---- the weights that a unit's passes read: view.c ---- */

/* Gather a unit's weights, and a tied head's matrix (parallel/units/unit.h). _gather is
 * _start_gather and _arrive; `codes`: for training passes only. */
enum ax_status ax_model_start_gather(const struct ax_model *m, int unit, bool codes);
enum ax_status ax_model_arrive(const struct ax_model *m, int unit);
enum ax_status ax_model_gather(const struct ax_model *m, int unit);
void ax_model_release(const struct ax_model *m, int unit);

/* ---- queries on a model: view.c ---- */

/* Index of the unit that must also be gathered while unit u runs: the embedding's, for a tied head and a
 * layer for multi-token prediction; or −1. */
int ax_model_unit_needs(const struct ax_model *m, int unit);
int64_t ax_model_parameters(const struct ax_model *m);
int64_t ax_model_trainable(const struct ax_model *m); /* trainable ones */
/* FLOPs that training needs per token. A matrix that the token passes through counts 2 per element
 * in forward, 2 for the gradient of its input from the lowest trainable unit on, and 2 for its own
 * gradient if it is trained. The head counts once, tied or not; look-ups do not count; of experts,
 * only active ones do. Causal attention over seq tokens counts layers·heads·(head_dim +
 * v_head_dim)·seq, three times with its backward. If everything trains, this is
 * ax_arch_flops_per_token. */
double ax_model_flops_per_token(const struct ax_model *m, int64_t seq);

/* This rank's part of a parameter's values (the master if there is one, else the compute copy) or
 * of its gradient. data NULL: packed, frozen, or not on this rank. Elements are in the HF tensor's
 * order: all of them, in its shape; or [n], those that ax_unit_owned names. */
struct ax_tensor ax_model_value(const struct ax_model *m, const struct ax_param *p);
struct ax_tensor ax_model_grad(const struct ax_model *m, const struct ax_param *p);

/* A layer's linears, in model order; returns how many. */
int ax_layer_linears(struct ax_layer *l, struct ax_linear *out[AX_LAYER_MAX_LINEARS]);
/* True for a matrix that the scheme quantizes: of a layer's linear (except the gate of a shared
 * expert), of an expert, and of the embedding and the head if the scheme says so
 * (ax_scheme_of_model). */
bool ax_model_quantizes(struct ax_model *m, const struct ax_scheme *s, const struct ax_param *p);

#define AX_UNIT_MAX_ADAPTERS (AX_LAYER_MAX_LINEARS * AX_LINEAR_MAX_PARTS)
/* The adapters of a unit's linears (in the last unit, of the head) on this rank; returns how
 * many. */
int ax_adapter_of_unit(struct ax_model *m, int unit,
                       const struct ax_adapter *out[AX_UNIT_MAX_ADAPTERS]);

#endif
