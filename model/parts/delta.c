/* Gated DeltaNet (Yang et al. 2024), as in Qwen3-Next, Qwen3.5 and OLMo Hybrid, and Kimi Delta Attention (Moonshot AI
 * 2025, KDA):
 *
 *   q, k, v, z, b, a = projections of h;  q, k, v = silu(conv(q)), silu(conv(k)), silu(conv(v))
 *   g, beta from a, b (delta_gates_forward);  o = the gated delta rule of q, k, v, g, beta (kernels/delta_ops.h)
 *   y = (norm(o) ∘ silu(z))·Woutᵀ
 *
 * with value heads in groups that share a key head, and a norm of each value head whose weight is plain. Projections are
 * laid out as enum ax_delta_layout says; grouped, rows are those of a key head after another: [q | k | v | z] and
 * [b | a]. KDA has a decay per channel of the keys, a and z by latents, a = (h·Waᵀ)·Wbᵀ, and sigmoid for silu(z). tp
 * splits key heads; latents, which all heads need, are computed for a rank's own rows. */
#include <math.h>

#include "model/core/builder.h"
#include "model/core/own_columns.h"
#include "model/core/pass.h"
#include "model/parts/convolve.h"
#include "model/parts/recur.h"

enum {
    IN,   /* [q | k | v], with z between if grouped */
    REST, /* the other projections */
    DECAY_LATENT,
    GATE_LATENT,
    RAW_DECAY,
    GATE, /* a and z of a decay per channel, and their latents */
    RAW_Q,
    RAW_K,
    RAW_V, /* inputs of the convolutions, if grouped */
    MIXED_Q,
    MIXED_K,
    MIXED_V,
    DECAY,
    STRENGTH,
    ENTERED,
    OUT,
    NORMED,
    RSTD,
    GATED,
    N_SAVED
};

/* This rank's heads, and their sizes. */
struct sizes {
    int64_t key_heads, value_heads, dk, dv;
    int64_t keys, values; /* elements of k, and of v, of a token */
    int64_t group;        /* rows of a key head in a grouped matrix */
};
static struct sizes sizes_of(const struct ax_delta_config *c, int tp) {
    struct sizes z = {c->key_heads / tp, c->value_heads / tp, c->key_dim, c->value_dim, 0, 0, 0};
    z.keys = z.key_heads * z.dk;
    z.values = z.value_heads * z.dv;
    z.group = 2 * (z.keys + z.values) / z.key_heads;
    return z;
}
static struct sizes own_sizes(const struct ax_pass *p) {
    return sizes_of(&p->model->arch.delta, p->model->rt->mesh.size[AX_ROLE_TP]);
}

/* ---- parameters ---- */

#define NAME(tail) "model.layers.%d.linear_attn." tail
#define SELF(tail) "model.layers.%d.self_attn." tail

/* Parameters of a layout; a list ends with NULL. */
static const struct names {
    const char *in[4], *rest[4], *taps[4], *log, *bias, *norm, *out;
    const char *decay_in[2], *decay[2], *gate_in[2], *gate[2];
} names[] = {
    [AX_DELTA_JOINED] = {.in = {NAME("in_proj_qkv.weight")},
                         .rest = {NAME("in_proj_z.weight"), NAME("in_proj_b.weight"),
                                  NAME("in_proj_a.weight")},
                         .taps = {NAME("conv1d.weight")},
                         .log = NAME("A_log"),
                         .bias = NAME("dt_bias"),
                         .norm = NAME("norm.weight"),
                         .out = NAME("out_proj.weight")},
    [AX_DELTA_GROUPED] = {.in = {NAME("in_proj_qkvz.weight")},
                          .rest = {NAME("in_proj_ba.weight")},
                          .taps = {NAME("conv1d.weight")},
                          .log = NAME("A_log"),
                          .bias = NAME("dt_bias"),
                          .norm = NAME("norm.weight"),
                          .out = NAME("out_proj.weight")},
    [AX_DELTA_APART] = {.in = {NAME("q_proj.weight"), NAME("k_proj.weight"), NAME("v_proj.weight")},
                        .rest = {NAME("g_proj.weight"), NAME("b_proj.weight"),
                                 NAME("a_proj.weight")},
                        .taps = {NAME("q_conv1d.weight"), NAME("k_conv1d.weight"),
                                 NAME("v_conv1d.weight")},
                        .log = NAME("A_log"),
                        .bias = NAME("dt_bias"),
                        .norm = NAME("o_norm.weight"),
                        .out = NAME("o_proj.weight")},
    [AX_DELTA_CHANNELS] = {.in = {SELF("q_proj.weight"), SELF("k_proj.weight"),
                                  SELF("v_proj.weight")},
                           .rest = {SELF("b_proj.weight")},
                           .taps = {SELF("q_conv1d.weight"), SELF("k_conv1d.weight"),
                                    SELF("v_conv1d.weight")},
                           .log = SELF("A_log"),
                           .bias = SELF("dt_bias"),
                           .norm = SELF("o_norm.weight"),
                           .out = SELF("o_proj.weight"),
                           .decay_in = {SELF("f_a_proj.weight")},
                           .decay = {SELF("f_b_proj.weight")},
                           .gate_in = {SELF("g_a_proj.weight")},
                           .gate = {SELF("g_b_proj.weight")}},
};

static bool is_grouped(const struct ax_arch *a) {
    return a->delta.layout == AX_DELTA_GROUPED;
}
static bool by_channel(const struct ax_arch *a) {
    return a->delta.layout == AX_DELTA_CHANNELS;
}
static bool is_apart(const struct ax_arch *a) {
    return a->delta.layout == AX_DELTA_APART || by_channel(a);
}

/* Matrices with these rows that are one linear, whose rows tp splits unless they are `whole`. */
static void add_linear(struct ax_builder *b, const struct ax_layer *l, struct ax_linear *lin,
                       const char *const *name, const int64_t *rows, int64_t cols, bool whole) {
    lin->unit = l->unit;
    lin->split = whole ? AX_SPLIT_NONE : AX_SPLIT_OUTPUTS;
    for (lin->n_parts = 0; name[lin->n_parts]; lin->n_parts++)
        lin->weight[lin->n_parts] =
            ax_builder_add(b, l->index,
                           &(struct ax_param_decl){.name = name[lin->n_parts],
                                                   .rows = rows[lin->n_parts],
                                                   .cols = cols,
                                                   .tp_dim = whole ? -1 : 0,
                                                   .grad_partial_over = whole ? AX_TP_PARTIAL : 0,
                                                   .glue = lin->n_parts > 0});
}

static void add_taps(struct ax_builder *b, struct ax_layer *l, const struct sizes *z) {
    const struct ax_arch *a = b->arch;
    const struct names *n = &names[a->delta.layout];
    const int64_t of[] = {z->keys, z->keys, z->values}, all = 2 * z->keys + z->values;
    for (int i = 0; n->taps[i]; i++)
        l->delta.taps[i] = ax_builder_add(
            b, l->index,
            &(struct ax_param_decl){.name = n->taps[i],
                                    .rows = is_apart(a) ? of[i] : all,
                                    .cols = a->conv.taps,
                                    .middle = true,
                                    .tp_dim = is_apart(a) ? 0 : -1,
                                    .grad_partial_over = is_apart(a) ? 0 : AX_TP_PARTIAL});
}

/* The latents of decays and of z have as many elements as a head. */
static void add_latents(struct ax_builder *b, struct ax_layer *l, const struct sizes *z) {
    const struct names *n = &names[AX_DELTA_CHANNELS];
    const int64_t hidden = b->arch->hidden_size;
    struct ax_delta_part *d = &l->delta;
    add_linear(b, l, &d->decay_in, n->decay_in, &z->dk, hidden, true);
    add_linear(b, l, &d->gate_in, n->gate_in, &z->dk, hidden, true);
    add_linear(b, l, &d->decay, n->decay, &z->keys, z->dk, false);
    add_linear(b, l, &d->gate, n->gate, &z->values, z->dk, false);
}

static void delta_init(struct ax_builder *b, struct ax_layer *l) {
    const struct ax_arch *a = b->arch;
    const struct sizes z = sizes_of(&a->delta, 1);
    const struct names *n = &names[a->delta.layout];
    const int64_t joined[] = {2 * z.keys + z.values}, grouped[] = {2 * (z.keys + z.values)};
    const int64_t apart[] = {z.keys, z.keys, z.values}, pairs[] = {2 * z.value_heads};
    const int64_t rest[] = {z.values, z.value_heads, z.value_heads};
    const bool channels = by_channel(a);
    struct ax_delta_part *d = &l->delta;
    add_linear(b, l, &d->in, n->in,
               is_grouped(a) ? grouped
               : is_apart(a) ? apart
                             : joined,
               a->hidden_size, a->delta.layout == AX_DELTA_JOINED);
    add_linear(b, l, &d->rest, n->rest,
               is_grouped(a) ? pairs
               : channels    ? &z.value_heads
                             : rest,
               a->hidden_size, false);
    if (channels)
        add_latents(b, l, &z);
    add_taps(b, l, &z);
    d->log = ax_builder_add(
        b, l->index,
        &(struct ax_param_decl){
            .name = n->log, .rows = z.value_heads, .lifted = channels, .tp_dim = channels ? 2 : 0});
    d->bias =
        ax_builder_add(b, l->index,
                       &(struct ax_param_decl){
                           .name = n->bias, .rows = channels ? z.keys : z.value_heads, .start = 1});
    d->norm = ax_builder_add(b, l->index,
                             &(struct ax_param_decl){.name = n->norm,
                                                     .rows = z.dv,
                                                     .tp_dim = -1,
                                                     .grad_partial_over = AX_TP_PARTIAL,
                                                     .start = 1});
    d->out.unit = l->unit;
    d->out.n_parts = 1;
    d->out.split = AX_SPLIT_INPUTS;
    d->out.weight[0] =
        ax_builder_add(b, l->index,
                       &(struct ax_param_decl){
                           .name = n->out, .rows = a->hidden_size, .cols = z.values, .tp_dim = 1});
}

static int delta_linears(struct ax_layer *l, struct ax_linear **out) {
    struct ax_delta_part *d = &l->delta;
    out[0] = &d->in;
    out[1] = &d->rest;
    out[2] = &d->out;
    if (d->decay.n_parts == 0)
        return 3;
    out[3] = &d->decay_in;
    out[4] = &d->decay;
    out[5] = &d->gate_in;
    out[6] = &d->gate;
    return 7;
}

static struct ax_part_size delta_size(const struct ax_arch *a, const struct ax_layer_spec *spec) {
    (void)spec;
    const struct sizes z = sizes_of(&a->delta, 1);
    const int64_t taps = (2 * z.keys + z.values) * a->conv.taps;
    int64_t rest = a->hidden_size * (z.values + z.value_heads), biases = z.value_heads; /* z, a */
    if (by_channel(a)) {
        rest = z.dk * (2 * a->hidden_size + z.keys + z.values);
        biases = z.keys;
    }
    const int64_t matrices =
        a->hidden_size * (2 * (z.keys + z.values) + z.value_heads) + rest + taps;
    return (struct ax_part_size){matrices, matrices, z.value_heads + biases + z.dv};
}

/* Of forward: a token's pairs with half of its chunk, and its products with states. */
static double delta_mixing(const struct ax_arch *a, const struct ax_layer_spec *spec, int64_t seq) {
    (void)spec;
    (void)seq;
    const struct sizes z = sizes_of(&a->delta, 1);
    return (double)z.value_heads *
           (double)((AX_DELTA_CHUNK + 1) * 2 * (z.dk + z.dv) + 6 * z.dk * z.dv);
}

static struct ax_state_size delta_state(const struct ax_arch *a, const struct ax_mesh *mesh) {
    const struct sizes z = sizes_of(&a->delta, mesh->size[AX_ROLE_TP]);
    return (struct ax_state_size){.rows = a->conv.taps - 1,
                                  .channels = 2 * z.keys + z.values,
                                  .key_heads = z.key_heads,
                                  .value_heads = z.value_heads,
                                  .key_dim = z.dk,
                                  .value_dim = z.dv,
                                  .channel_decays = by_channel(a)};
}

/* ---- tensors ---- */

static void declare_gates(const struct ax_pass *p, struct ax_saved *s, const struct sizes *z) {
    const struct ax_model *m = p->model;
    const int64_t T = p->batch->T;
    const int64_t decays = by_channel(&m->arch) ? z->keys : z->value_heads;
    ax_saved_declare(&s[DECAY], "delta rule's gates", AX_KEEP_CHEAP,
                     ax_tensor_2d(m->accum, NULL, T, decays));
    ax_saved_declare(&s[STRENGTH], "delta rule's gates", AX_KEEP_CHEAP,
                     ax_tensor_2d(m->accum, NULL, T, z->value_heads));
    ax_recur_declare(p, &s[ENTERED], z->value_heads * z->dk * z->dv);
}

static void declare_latents(const struct ax_pass *p, struct ax_saved *s, const struct sizes *z) {
    const struct ax_model *m = p->model;
    const int64_t T = p->batch->T;
    const struct ax_tensor latent = ax_tensor_2d(m->dtype, NULL, ax_tp_rows(m->rt, T), z->dk);
    ax_saved_declare(&s[DECAY_LATENT], "delta rule's latents", AX_KEEP_COSTLY, latent);
    ax_saved_declare(&s[GATE_LATENT], "delta rule's latents", AX_KEEP_COSTLY, latent);
    ax_saved_declare(&s[RAW_DECAY], "delta rule's projections", AX_KEEP_COSTLY,
                     ax_tensor_2d(m->dtype, NULL, T, z->keys));
    ax_saved_declare(&s[GATE], "delta rule's projections", AX_KEEP_COSTLY,
                     ax_tensor_2d(m->dtype, NULL, T, z->values));
}

static void delta_declare(const struct ax_layer *l, const struct ax_pass *p, struct ax_saved *s) {
    const struct ax_model *m = p->model;
    const struct sizes z = own_sizes(p);
    const int64_t T = p->batch->T;
    const bool grouped = is_grouped(&m->arch);
    const struct ax_tensor keys = ax_tensor_2d(m->dtype, NULL, T, z.keys);
    const struct ax_tensor values = ax_tensor_2d(m->dtype, NULL, T, z.values);
    ax_saved_declare(&s[IN], "delta rule's projections", AX_KEEP_COSTLY,
                     ax_tensor_2d(m->dtype, NULL, T, 2 * z.keys + (grouped ? 2 : 1) * z.values));
    ax_saved_declare(&s[REST], "delta rule's projections", AX_KEEP_COSTLY,
                     ax_tensor_2d(m->dtype, NULL, T, ax_linear_out(&l->delta.rest)));
    if (by_channel(&m->arch))
        declare_latents(p, s, &z);
    for (int i = 0; i < 3; i++) {
        const struct ax_tensor like = i < 2 ? keys : values;
        if (grouped)
            ax_saved_declare(&s[RAW_Q + i], "delta rule's raw q, k, v", AX_KEEP_CHEAP, like);
        ax_saved_declare(&s[MIXED_Q + i], "delta rule's q, k, v", AX_KEEP_CHEAP, like);
    }
    declare_gates(p, s, &z);
    ax_saved_declare(&s[OUT], "delta rule's output", AX_KEEP_COSTLY, values);
    ax_saved_declare(&s[NORMED], "delta rule's normed output", AX_KEEP_CHEAP, values);
    ax_saved_declare(&s[RSTD], "norm rstd", AX_KEEP_CHEAP,
                     ax_tensor_1d(m->accum, NULL, T * z.value_heads));
    ax_saved_declare(&s[GATED], "delta rule's gated output", AX_KEEP_CHEAP, values);
}

/* Views of the projections, or of their gradients: q, k, v, z, b, a. Rows are key heads if grouped, else tokens. */
struct views {
    struct ax_tensor raw[3], z, b, a;
};
/* Tensors as s has them, or their gradients; decay and gate of a decay per channel. */
struct projections {
    struct ax_tensor in, rest, decay, gate;
};
static struct views views_of(const struct ax_pass *p, const struct projections *of) {
    const struct sizes z = own_sizes(p);
    const struct ax_tensor *in = &of->in, *rest = &of->rest;
    const int64_t T = in->shape[0], H = z.key_heads;
    struct views v;
    if (is_grouped(&p->model->arch)) {
        const struct ax_tensor i = ax_tensor_2d(in->dtype, in->data, T * H, z.group);
        const struct ax_tensor r = ax_tensor_2d(rest->dtype, rest->data, T * H, rest->shape[1] / H);
        const int64_t values = z.values / H, heads = z.value_heads / H;
        v.raw[0] = ax_tensor_cols(&i, 0, z.dk);
        v.raw[1] = ax_tensor_cols(&i, z.dk, z.dk);
        v.raw[2] = ax_tensor_cols(&i, 2 * z.dk, values);
        v.z = ax_tensor_cols(&i, 2 * z.dk + values, values);
        v.b = ax_tensor_cols(&r, 0, heads);
        v.a = ax_tensor_cols(&r, heads, heads);
        return v;
    }
    v.raw[0] = ax_tensor_cols(in, 0, z.keys);
    v.raw[1] = ax_tensor_cols(in, z.keys, z.keys);
    v.raw[2] = ax_tensor_cols(in, 2 * z.keys, z.values);
    if (by_channel(&p->model->arch)) {
        v.z = of->gate;
        v.b = *rest;
        v.a = of->decay;
        return v;
    }
    v.z = ax_tensor_cols(rest, 0, z.values);
    v.b = ax_tensor_cols(rest, z.values, z.value_heads);
    v.a = ax_tensor_cols(rest, z.values + z.value_heads, z.value_heads);
    return v;
}

static struct views saved_views(const struct ax_pass *p, const struct ax_saved *s) {
    return views_of(p, &(struct projections){s[IN].t, s[REST].t, s[RAW_DECAY].t, s[GATE].t});
}

/* A dense tensor in the rows of a view. */
static struct ax_tensor in_rows(const struct ax_tensor *t, const struct ax_tensor *view) {
    return ax_tensor_2d(t->dtype, t->data, view->shape[0], view->shape[1]);
}

/* Decays, or their gradient, as the rule has them. */
static struct ax_tensor decays_of(const struct ax_pass *p, const struct ax_tensor *t) {
    const struct sizes z = own_sizes(p);
    return by_channel(&p->model->arch) ? ax_tensor_heads(t, z.value_heads, z.dk) : *t;
}

/* The rule's operands. */
static struct ax_delta_rule rule_of(const struct ax_pass *p, const struct ax_saved *s) {
    const struct sizes z = own_sizes(p);
    return (struct ax_delta_rule){.q = ax_tensor_heads(&s[MIXED_Q].t, z.key_heads, z.dk),
                                  .k = ax_tensor_heads(&s[MIXED_K].t, z.key_heads, z.dk),
                                  .v = ax_tensor_heads(&s[MIXED_V].t, z.value_heads, z.dv),
                                  .g = decays_of(p, &s[DECAY].t),
                                  .beta = s[STRENGTH].t,
                                  .out = ax_tensor_heads(&s[OUT].t, z.value_heads, z.dv),
                                  .scale = 1 / sqrt((double)z.dk)};
}

/* Gradients of q, k, v, g and beta, as rows of tensors. */
struct gradients {
    struct ax_tensor dout, mixed[3], decay, strength;
};

static struct ax_delta_backward backward_of(const struct ax_pass *p, const struct ax_saved *s,
                                            const struct gradients *g) {
    const struct sizes z = own_sizes(p);
    return (struct ax_delta_backward){.a = rule_of(p, s),
                                      .dout = ax_tensor_heads(&g->dout, z.value_heads, z.dv),
                                      .dq = ax_tensor_heads(&g->mixed[0], z.key_heads, z.dk),
                                      .dk = ax_tensor_heads(&g->mixed[1], z.key_heads, z.dk),
                                      .dv = ax_tensor_heads(&g->mixed[2], z.value_heads, z.dv),
                                      .dg = decays_of(p, &g->decay),
                                      .dbeta = g->strength};
}

/* ---- forward ---- */

static struct ax_own_columns own_heads(const struct ax_pass *p) {
    const struct sizes all = sizes_of(&p->model->arch.delta, 1), z = own_sizes(p);
    const int64_t rank = p->model->rt->mesh.coord[AX_ROLE_TP];
    return (struct ax_own_columns){3,
                                   {{rank * z.keys, z.keys},
                                    {all.keys + rank * z.keys, z.keys},
                                    {2 * all.keys + rank * z.values, z.values}}};
}

/* The convolution of q, k or v. */
static struct ax_convolution convolution(const struct ax_layer *l, const struct ax_pass *p,
                                         int which) {
    const struct ax_own_columns own = own_heads(p);
    int64_t at = 0;
    for (int i = 0; i < which; i++)
        at += own.of[i].n;
    const bool apart = is_apart(&p->model->arch);
    return (struct ax_convolution){.taps = l->delta.taps[apart ? which : 0],
                                   .first = apart ? 0 : own.of[which].from,
                                   .n = own.of[which].n,
                                   .at = at,
                                   .silu = true};
}

/* The inputs of the convolutions, and what comes out. */
static const struct ax_tensor *raw_of(const struct ax_pass *p, const struct ax_saved *s,
                                      const struct views *v, int i) {
    return is_grouped(&p->model->arch) ? &s[RAW_Q + i].t : &v->raw[i];
}
static enum ax_status convolve(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s) {
    const struct views v = saved_views(p, s);
    for (int i = 0; i < 3; i++) {
        const struct ax_convolution c = convolution(l, p, i);
        if (is_grouped(&p->model->arch) && ax_saved_make(&s[RAW_Q + i]))
            AX_TRY(ax_run_copy(p->model->rt->q,
                               &(struct ax_copy){in_rows(&s[RAW_Q + i].t, &v.raw[i]), v.raw[i]}));
        if (ax_saved_make(&s[MIXED_Q + i]))
            AX_TRY(ax_convolve_forward(p, l, &c, raw_of(p, s, &v, i), &s[MIXED_Q + i].t));
    }
    return AX_OK;
}

/* A vector's elements, whatever its shape in files. */
static struct ax_tensor as_vector(const struct ax_tensor *t) {
    return ax_tensor_1d(t->dtype, t->data, ax_tensor_numel(t));
}
static struct ax_tensor log_of(const struct ax_layer *l) {
    const struct ax_tensor t = ax_unit_weight(l->unit, l->delta.log);
    return as_vector(&t);
}
static struct ax_tensor log_gradient(const struct ax_layer *l) {
    const struct ax_tensor t = ax_unit_grad(l->unit, l->delta.log);
    return t.data ? as_vector(&t) : t;
}

static enum ax_status make_gates(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s) {
    const struct views v = saved_views(p, s);
    if (!ax_saved_make(&s[DECAY]))
        return AX_OK;
    return ax_run_delta_gates_forward(
        p->model->rt->q,
        &(struct ax_delta_gates_forward){.a = v.a,
                                         .b = v.b,
                                         .log = log_of(l),
                                         .bias = ax_unit_weight(l->unit, l->delta.bias),
                                         .g = in_rows(&s[DECAY].t, &v.a),
                                         .beta = in_rows(&s[STRENGTH].t, &v.b),
                                         .scale = p->model->arch.delta.beta_scale});
}

/* [T][Hv·dv] as [T·Hv][dv]. */
static struct ax_tensor by_head(const struct ax_pass *p, const struct ax_tensor *t) {
    const struct sizes z = own_sizes(p);
    return ax_tensor_2d(t->dtype, t->data, t->shape[0] * z.value_heads, z.dv);
}

static struct ax_gating output_gate(const struct ax_pass *p) {
    return (struct ax_gating){.gate = by_channel(&p->model->arch) ? AX_GATE_SIGMOID : AX_GATE_SILU};
}

static enum ax_status finish(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s) {
    struct ax_queue *q = p->model->rt->q;
    const struct views v = saved_views(p, s);
    if (ax_saved_make(&s[NORMED]))
        AX_TRY(ax_run_rmsnorm_forward(
            q, &(struct ax_rmsnorm_forward){.x = by_head(p, &s[OUT].t),
                                            .weight = ax_unit_weight(l->unit, l->delta.norm),
                                            .y = by_head(p, &s[NORMED].t),
                                            .rstd = s[RSTD].t,
                                            .eps = p->model->arch.delta.norm_eps}));
    if (!ax_saved_make(&s[GATED]))
        return AX_OK;
    return ax_run_swiglu_forward(q, &(struct ax_swiglu_forward){.gate_up = v.z,
                                                                .up = in_rows(&s[NORMED].t, &v.z),
                                                                .y = in_rows(&s[GATED].t, &v.z),
                                                                .how = output_gate(p)});
}

static enum ax_status project_latents(const struct ax_layer *l, struct ax_pass *p,
                                      struct ax_saved *s, const struct ax_tensor *h) {
    struct ax_runtime *rt = p->model->rt;
    const struct {
        const struct ax_linear *lin;
        const struct ax_tensor *x;
        int to;
    } all[] = {{&l->delta.decay_in, h, DECAY_LATENT},
               {&l->delta.decay, &s[DECAY_LATENT].t, RAW_DECAY},
               {&l->delta.gate_in, h, GATE_LATENT},
               {&l->delta.gate, &s[GATE_LATENT].t, GATE}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (ax_saved_make(&s[all[i].to]))
            AX_TRY(ax_linear_forward(rt, all[i].lin, all[i].x, NULL, &s[all[i].to].t));
    return AX_OK;
}

static enum ax_status delta_forward(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                                    const struct ax_tensor *h, const struct ax_tensor *x,
                                    const struct ax_tensor *out) {
    struct ax_runtime *rt = p->model->rt;
    const struct ax_own_columns own = own_heads(p);
    if (ax_saved_make(&s[IN]))
        AX_TRY(ax_own_columns_forward(rt, &l->delta.in, &own, h, &s[IN].t));
    if (ax_saved_make(&s[REST]))
        AX_TRY(ax_linear_forward(rt, &l->delta.rest, h, NULL, &s[REST].t));
    if (by_channel(&p->model->arch))
        AX_TRY(project_latents(l, p, s, h));
    AX_TRY(convolve(l, p, s));
    AX_TRY(make_gates(l, p, s));
    if (ax_saved_make(&s[OUT])) {
        const struct ax_delta_rule rule = rule_of(p, s);
        AX_TRY(ax_recur_forward(p, l, &rule, &s[ENTERED]));
    }
    AX_TRY(finish(l, p, s));
    return out ? ax_linear_forward(rt, &l->delta.out, &s[GATED].t, x, out) : AX_OK;
}

/* ---- backward ---- */

static struct ax_tensor take_like(const struct ax_pass *p, const struct ax_tensor *like) {
    return ax_stack_take(&p->model->rt->arena.scratch, "gradient of delta rule",
                         ax_tensor_2d(like->dtype, NULL, like->shape[0], like->shape[1]));
}

/* Gradients of z and of the rule's output, from that of the gated one. */
static enum ax_status finish_backward(const struct ax_layer *l, struct ax_pass *p,
                                      struct ax_saved *s, const struct ax_tensor *d_gated,
                                      const struct ax_tensor *dz, const struct ax_tensor *d_out) {
    struct ax_queue *q = p->model->rt->q;
    const struct views v = saved_views(p, s);
    AX_TRY(ax_run_swiglu_backward(q, &(struct ax_swiglu_backward){.dy = in_rows(d_gated, &v.z),
                                                                  .gate_up = v.z,
                                                                  .up = in_rows(&s[NORMED].t, &v.z),
                                                                  .dgate_up = *dz,
                                                                  .dup = in_rows(d_out, &v.z),
                                                                  .how = output_gate(p)}));
    return ax_run_rmsnorm_backward(
        q, &(struct ax_rmsnorm_backward){.dy = by_head(p, d_out),
                                         .x = by_head(p, &s[OUT].t),
                                         .weight = ax_unit_weight(l->unit, l->delta.norm),
                                         .rstd = s[RSTD].t,
                                         .dx = by_head(p, d_out),
                                         .dweight = ax_unit_grad(l->unit, l->delta.norm)});
}

static enum ax_status gates_backward(const struct ax_layer *l, struct ax_pass *p,
                                     struct ax_saved *s, const struct gradients *g,
                                     const struct views *d) {
    const struct views v = saved_views(p, s);
    return ax_run_delta_gates_backward(
        p->model->rt->q,
        &(struct ax_delta_gates_backward){.dg = in_rows(&g->decay, &v.a),
                                          .dbeta = in_rows(&g->strength, &v.b),
                                          .a = v.a,
                                          .b = v.b,
                                          .log = log_of(l),
                                          .bias = ax_unit_weight(l->unit, l->delta.bias),
                                          .da = d->a,
                                          .db = d->b,
                                          .dlog = log_gradient(l),
                                          .dbias = ax_unit_grad(l->unit, l->delta.bias),
                                          .scale = p->model->arch.delta.beta_scale});
}

static enum ax_status convolve_backward(const struct ax_layer *l, struct ax_pass *p,
                                        struct ax_saved *s, const struct gradients *g,
                                        const struct views *d) {
    const struct views v = saved_views(p, s);
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    const bool grouped = is_grouped(&p->model->arch);
    for (int i = 0; i < 3; i++) {
        const struct ax_convolution c = convolution(l, p, i);
        const struct ax_tensor *raw = raw_of(p, s, &v, i);
        const size_t mark = ax_stack_mark(scratch);
        const struct ax_tensor dx = grouped ? take_like(p, raw) : d->raw[i];
        AX_TRY(ax_convolve_backward(p, l, &c, raw, &g->mixed[i], &dx));
        if (grouped) /* rows are key heads */
            AX_TRY(ax_run_copy(p->model->rt->q,
                               &(struct ax_copy){d->raw[i], in_rows(&dx, &d->raw[i])}));
        ax_stack_release(scratch, mark);
    }
    return AX_OK;
}

/* Adds to dh what comes back through the latents. */
static enum ax_status latents_backward(const struct ax_layer *l, struct ax_pass *p,
                                       struct ax_saved *s, const struct projections *d,
                                       const struct ax_tensor *h, const struct ax_tensor *dh) {
    struct ax_runtime *rt = p->model->rt;
    const struct ax_delta_part *part = &l->delta;
    const struct ax_tensor d_latent = take_like(p, &s[DECAY_LATENT].t);
    AX_TRY(ax_linear_backward(rt, &part->decay, &s[DECAY_LATENT].t, &d->decay, &d_latent));
    AX_TRY(ax_linear_backward_more(rt, &part->decay_in, h, &d_latent, dh));
    AX_TRY(ax_linear_backward(rt, &part->gate, &s[GATE_LATENT].t, &d->gate, &d_latent));
    return ax_linear_backward_more(rt, &part->gate_in, h, &d_latent, dh);
}

static enum ax_status delta_backward(const struct ax_layer *l, struct ax_pass *p,
                                     struct ax_saved *s, const struct ax_tensor *h,
                                     const struct ax_tensor *dy, const struct ax_tensor *dh) {
    struct ax_runtime *rt = p->model->rt;
    const struct ax_delta_part *part = &l->delta;
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const bool channels = by_channel(&p->model->arch);
    struct projections projected = {.in = take_like(p, &s[IN].t), .rest = take_like(p, &s[REST].t)};
    if (channels) {
        projected.decay = take_like(p, &s[RAW_DECAY].t);
        projected.gate = take_like(p, &s[GATE].t);
    }
    const struct ax_tensor d_gated = take_like(p, &s[GATED].t);
    const struct views d = views_of(p, &projected);
    struct gradients g = {.dout = take_like(p, &s[OUT].t),
                          .decay = take_like(p, &s[DECAY].t),
                          .strength = take_like(p, &s[STRENGTH].t)};
    for (int i = 0; i < 3; i++)
        g.mixed[i] = take_like(p, &s[MIXED_Q + i].t);
    AX_TRY(ax_linear_backward(rt, &part->out, &s[GATED].t, dy, &d_gated));
    AX_TRY(finish_backward(l, p, s, &d_gated, &d.z, &g.dout));
    const struct ax_delta_backward back = backward_of(p, s, &g);
    AX_TRY(ax_recur_backward(p, &back, &s[ENTERED]));
    AX_TRY(gates_backward(l, p, s, &g, &d));
    AX_TRY(convolve_backward(l, p, s, &g, &d));
    const struct ax_own_columns own = own_heads(p);
    AX_TRY(ax_own_columns_backward(rt, &part->in, &own, h, &projected.in, dh));
    AX_TRY(ax_linear_backward_more(rt, &part->rest, h, &projected.rest, dh));
    if (channels)
        AX_TRY(latents_backward(l, p, s, &projected, h, dh));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

const struct ax_part_type ax_mixer_delta = {
    .name = "gated delta rule",
    .n_saved = N_SAVED,
    .init = delta_init,
    .linears = delta_linears,
    .size = delta_size,
    .mixing = delta_mixing,
    .state = delta_state,
    .declare = delta_declare,
    .forward = delta_forward,
    .backward = delta_backward,
};
