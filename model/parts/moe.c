/* Mixture of experts, dropless:  y_t = Σ_i w_ti·mlp_{e_ti}(h_t), the MLPs e_t1 … e_tk that
 * the router chose for token t; or, where inputs are weighed, y_t = mlp_{e_t1}(w_t1·h_t). Experts may
 * read and write a latent: y_t = Wout·Σ_i w_ti·mlp_{e_ti}(Win·h_t).
 *
 * Forward: router → rows sorted by expert and sent to the experts' ranks (parallel/units/expert.h) → gate
 * and up, activation, down as grouped products → back → weighted sum. The router's decision is kept in
 * every recompute mode: backward must follow the same routes.
 *
 * Rows travel in rounds, nearly always one. All rounds use the same memory: forward runs the later
 * ones first, so that it leaves round 0's tensors, and backward, when it is done with those, makes
 * the later ones again. RESULTS has all rounds' rows, before they travel and after. Within a round,
 * one part of the rows travels while the other computes (moe.h). */
#include "model/parts/moe.h"

#include <stdio.h>

#include "model/core/builder.h"
#include "model/core/later.h"
#include "model/core/pass.h"
#include "model/parts/activate.h"
#include "model/parts/expert_weights.h"
#include "model/parts/router.h"

static bool in_first(const struct ax_layer *l) {
    return l->moe.gate_up->ndim == 3 && !l->moe.out_first;
}

static struct ax_expert_matrices expert_gate_up(const struct ax_layer *l) {
    return (struct ax_expert_matrices){.first = l->moe.gate_up,
                                       .parts = l->moe.ups,
                                       .bias = l->moe.gate_up_bias,
                                       .in_first = in_first(l)};
}

static struct ax_expert_matrices expert_down(const struct ax_layer *l) {
    return (struct ax_expert_matrices){.first = l->moe.down,
                                       .parts = 1,
                                       .down = true,
                                       .bias = l->moe.down_bias,
                                       .in_first = in_first(l)};
}

/* ---- a backward in halves ---- */

/* The gradients of the experts' matrices, products of rows alone, are left for later (later.h). A round's rows are kept,
 * all experts' of this rank: x and dy of gates and ups, and of downs. */

enum { X_UP, DY_UP, X_DOWN, DY_DOWN, KEPT_OFFSETS };

/* True if a layer's experts leave gradients for later in this pass. Not if rows travel, because
 * these products hide their way back. */
static bool gradients_wait(const struct ax_layer *l, const struct ax_pass *p) {
    const struct ax_expert_matrices up = expert_gate_up(l);
    return p->model->later && p->model->experts.ranks == 1 && !l->moe.quant &&
           ax_expert_has_gradient(l, p, &up);
}

static enum ax_status weights_later(struct ax_pass *p, const struct ax_later_product *a) {
    const struct ax_layer *l = a->of;
    const struct ax_expert_matrices up = expert_gate_up(l), down = expert_down(l);
    struct ax_mirror mirror = a->mirror;
    const struct ax_expert_rows outputs = {a->kept[X_DOWN], a->kept[DY_DOWN], a->kept[KEPT_OFFSETS],
                                           &mirror, a->part};
    const struct ax_expert_rows inputs = {a->kept[X_UP], a->kept[DY_UP], a->kept[KEPT_OFFSETS],
                                          &mirror, a->part};
    AX_TRY(ax_expert_weight_gradient(l, p, &down, &outputs, &outputs.x));
    return ax_expert_weight_gradient(l, p, &up, &inputs, &inputs.x);
}

/* Takes memory for the copies. inputs: rows of gates and ups, for all experts here; act
 * [R][width]. */
static struct ax_later_product put_off_gradients(const struct ax_layer *l, const struct ax_pass *p,
                                                 const struct ax_expert_rows *inputs,
                                                 const struct ax_tensor *act) {
    struct ax_later *later = p->model->later;
    return (struct ax_later_product){
        .unit = l->unit,
        .run = weights_later,
        .of = l,
        .part = inputs->part,
        .kept = {[X_UP] = ax_later_take(later, &inputs->x),
                 [DY_UP] = ax_later_take(later, &inputs->y),
                 [X_DOWN] = ax_later_take(later, act),
                 [DY_DOWN] = ax_later_take(later, &inputs->x),
                 [KEPT_OFFSETS] = ax_later_take(later, &inputs->offsets)}};
}

/* Rows that are in use; others are skipped to save memory traffic. */
static enum ax_status copy_rows(const struct ax_pass *p, const struct ax_expert_part *part,
                                const struct ax_tensor *from, const struct ax_tensor *to) {
    return ax_run_copy(p->model->rt->q,
                       &(struct ax_copy){ax_tensor_rows(to, part->row, part->rows),
                                         ax_tensor_rows(from, part->row, part->rows)});
}

/* Copies a part's rows of d [R][D], the gradient of the outputs. */
static enum ax_status keep_outputs(const struct ax_pass *p, const struct ax_later_product *late,
                                   const struct ax_expert_part *part, const struct ax_tensor *d) {
    return copy_rows(p, part, d, &late->kept[DY_DOWN]);
}

/* The host's copy of the offsets stays with the slot until all that is put off is done. */
static enum ax_status keep_rows(const struct ax_pass *p, struct ax_later_product *late,
                                const struct ax_expert_rows *inputs, const struct ax_tensor *act) {
    late->mirror = *inputs->mirror;
    late->mirror.device = late->kept[KEPT_OFFSETS].data;
    AX_TRY(copy_rows(p, &late->part, &inputs->x, &late->kept[X_UP]));
    AX_TRY(copy_rows(p, &late->part, &inputs->y, &late->kept[DY_UP]));
    AX_TRY(copy_rows(p, &late->part, act, &late->kept[X_DOWN]));
    AX_TRY(
        ax_run_copy(p->model->rt->q, &(struct ax_copy){late->kept[KEPT_OFFSETS], inputs->offsets}));
    return ax_later_add(p->model->later, late);
}

/* ---- parameters ---- */

static const struct ax_param *add_expert(struct ax_builder *b, struct ax_layer *l, int expert,
                                         const char *part, int64_t rows, int64_t cols, bool glue) {
    char name[AX_NAME_MAX];
    snprintf(name, sizeof name, "%s.%d.%s.weight", b->arch->moe.names->experts, expert, part);
    const struct ax_param_decl decl = {.name = name,
                                       .rows = rows,
                                       .cols = cols,
                                       .tp_dim = -1,
                                       .glue = glue,
                                       .expert = true,
                                       .ep_owner = (int)(expert / b->model->experts.n_local)};
    return ax_builder_add(b, l->index, &decl);
}

/* One tensor for all experts' gate and up, one for their down, one for the biases of each, if they have some. */
static void add_stacked(struct ax_builder *b, struct ax_layer *l) {
    const struct ax_moe_stacked *names = b->arch->moe.stacked;
    const int64_t D = b->arch->hidden_size, F = b->arch->moe.width, E = b->arch->moe.n_experts;
    const struct {
        const struct ax_param **to;
        const char *name;
        int64_t rows, cols;
    } tensors[] = {{&l->moe.gate_up, names->gate_up, D, 2 * F},
                   {&l->moe.gate_up_bias, names->gate_up_bias, 2 * F, 0},
                   {&l->moe.down, names->down, F, D},
                   {&l->moe.down_bias, names->down_bias, D, 0}};
    l->moe.out_first = names->out_first;
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        const bool turned = names->out_first && tensors[i].cols > 0;
        const struct ax_param_decl decl = {.name = tensors[i].name,
                                           .rows = turned ? tensors[i].cols : tensors[i].rows,
                                           .cols = turned ? tensors[i].rows : tensors[i].cols,
                                           .stack = E,
                                           .tp_dim = -1};
        if (decl.name)
            *tensors[i].to = ax_builder_add(b, l->index, &decl);
    }
}

/* A projection to the latent of experts, or from it. */
static void add_latent(struct ax_builder *b, struct ax_layer *l, struct ax_linear *lin,
                       const char *module, int64_t rows, int64_t cols) {
    char name[AX_NAME_MAX];
    snprintf(name, sizeof name, "%s.weight", module);
    const struct ax_param_decl decl = {
        .name = name, .rows = rows, .cols = cols, .tp_dim = -1, .grad_partial_over = AX_TP_PARTIAL};
    *lin = (struct ax_linear){.unit = l->unit, .split = AX_SPLIT_NONE, .n_parts = 1};
    lin->weight[0] = ax_builder_add(b, l->index, &decl);
}

static bool has_latent(const struct ax_layer *l) {
    return l->moe.latent_in.n_parts > 0;
}

/* gate | up of every expert, then every expert's down: each with a constant stride. */
static void moe_init(struct ax_builder *b, struct ax_layer *l) {
    const struct ax_moe_config *c = &b->arch->moe;
    const int64_t D = ax_arch_expert_size(b->arch), F = c->width;
    struct ax_moe_part *moe = &l->moe;
    moe->ups = ax_arch_ups(b->arch);
    ax_router_init(b, l);
    if (c->latent > 0) {
        add_latent(b, l, &moe->latent_in, c->names->latent_in, D, b->arch->hidden_size);
        add_latent(b, l, &moe->latent_out, c->names->latent_out, b->arch->hidden_size, D);
    }
    if (c->stacked) {
        add_stacked(b, l);
        return;
    }
    for (int e = 0; e < c->n_experts; e++) {
        const bool gated = moe->ups == 2;
        const struct ax_param *first =
            add_expert(b, l, e, gated ? c->names->gate : c->names->up, F, D, false);
        if (gated)
            add_expert(b, l, e, c->names->up, F, D, true);
        if (e == 0)
            moe->gate_up = first;
    }
    for (int e = 0; e < c->n_experts; e++) {
        const struct ax_param *down = add_expert(b, l, e, c->names->down, D, F, false);
        if (e == 0)
            moe->down = down;
    }
}

static struct ax_part_size moe_size(const struct ax_arch *a, const struct ax_layer_spec *spec) {
    (void)spec;
    const struct ax_moe_config *c = &a->moe;
    const int64_t D = ax_arch_expert_size(a), expert = (ax_arch_ups(a) + 1) * c->width * D;
    const int64_t router = a->hidden_size * (c->n_experts + 2 * c->latent); /* and projections */
    const bool biased = c->stacked && c->stacked->down_bias;
    const int64_t factors = c->names->router_bias || c->names->expert_scale ? c->n_experts : 0;
    return (struct ax_part_size){.matrices = router + c->n_experts * expert,
                                 .active = router + c->n_active * expert,
                                 .vectors =
                                     factors + (biased ? c->n_experts * (2 * c->width + D) : 0)};
}

/* Not its experts': see adapter/experts.h. */
static int moe_linears(struct ax_layer *l, struct ax_linear **out) {
    if (!has_latent(l))
        return 0;
    out[0] = &l->moe.latent_in;
    out[1] = &l->moe.latent_out;
    return 2;
}

/* ---- forward ---- */

enum {
    PROBS, /* the router's decision … */
    WEIGHTS,
    UNSCALED, /* weights without the factors of their experts, if these have some */
    EXPERTS,
    PLACES, /* … and the rows' route */
    OFFSETS,
    COUNTS,
    REGROUP,
    LATENT, /* what experts read, where it is not the input */
    ROWS,   /* at the experts in the open round, sorted by expert */
    GATE_UP,
    ACT,
    RESULTS, /* back on their rank, as PLACES says */
    SUM,     /* of a token's, where it is not the output */
    N_SAVED
};
_Static_assert(N_SAVED == AX_MOE_SAVED, "of a part that has this one inside it");

/* Tokens on this rank. */
static int64_t tokens(const struct ax_pass *p) {
    return ax_tp_rows(p->model->rt, p->batch->T);
}

static void moe_declare(const struct ax_layer *l, const struct ax_pass *p, struct ax_saved *s) {
    const struct ax_model *m = p->model;
    const struct ax_moe_config *c = &m->arch.moe;
    const struct ax_expert_group *g = &m->experts;
    const int64_t T = tokens(p), E = c->n_experts, k = c->n_active;
    const int64_t D = ax_arch_expert_size(&m->arch), ups = l->moe.ups;
    const int64_t cap = ax_expert_capacity(g, T, k);
    const bool travels = g->ranks > 1;
    ax_saved_declare(&s[PROBS], "router", AX_KEEP_ALWAYS, ax_tensor_2d(m->accum, NULL, T, E));
    ax_saved_declare(&s[WEIGHTS], "router", AX_KEEP_ALWAYS, ax_tensor_2d(m->accum, NULL, T, k));
    if (l->moe.expert_scale)
        ax_saved_declare(&s[UNSCALED], "router", AX_KEEP_ALWAYS,
                         ax_tensor_2d(m->accum, NULL, T, k));
    ax_saved_declare(&s[EXPERTS], "router", AX_KEEP_ALWAYS, ax_tensor_2d(AX_I32, NULL, T, k));
    ax_saved_declare(&s[PLACES], "router", AX_KEEP_ALWAYS, ax_tensor_2d(AX_I32, NULL, T, k));
    ax_saved_declare(&s[OFFSETS], "router", AX_KEEP_ALWAYS,
                     ax_tensor_1d(AX_I32, NULL, g->n_local + 1));
    if (travels) {
        ax_saved_declare(&s[COUNTS], "router", AX_KEEP_ALWAYS,
                         ax_tensor_2d(AX_I32, NULL, g->ranks, E));
        ax_saved_declare(&s[REGROUP], "router", AX_KEEP_ALWAYS, ax_tensor_1d(AX_I32, NULL, cap));
    }
    ax_saved_declare(&s[ROWS], "expert input", travels ? AX_KEEP_COSTLY : AX_KEEP_CHEAP,
                     ax_tensor_2d(m->dtype, NULL, cap, D));
    ax_saved_declare(&s[GATE_UP], "expert gate and up", AX_KEEP_COSTLY,
                     ax_tensor_2d(m->dtype, NULL, cap, ups * c->width));
    ax_saved_declare(&s[ACT], "expert activation", AX_KEEP_CHEAP,
                     ax_tensor_2d(m->dtype, NULL, cap, c->width));
    ax_saved_declare(&s[RESULTS], "expert output", AX_KEEP_COSTLY,
                     ax_tensor_2d(m->dtype, NULL, T * k, D));
    if (!has_latent(l))
        return;
    ax_saved_declare(&s[LATENT], "expert latent", AX_KEEP_COSTLY,
                     ax_tensor_2d(m->dtype, NULL, T, D));
    ax_saved_declare(&s[SUM], "expert sum", AX_KEEP_CHEAP, ax_tensor_2d(m->dtype, NULL, T, D));
}

/* What experts read, of the layer's input. */
static const struct ax_tensor *read_by_experts(const struct ax_layer *l, const struct ax_saved *s,
                                               const struct ax_tensor *h) {
    return has_latent(l) ? &s[LATENT].t : h;
}

static struct ax_expert_route route_of(const struct ax_layer *l, const struct ax_pass *p,
                                       const struct ax_saved *s) {
    return (struct ax_expert_route){.places = s[PLACES].t,
                                    .offsets = s[OFFSETS].t,
                                    .counts = s[COUNTS].t,
                                    .regroup = s[REGROUP].t,
                                    .rounds = p->slot->expert_rounds + l->index};
}

/* Rows sorted by expert that have yet to travel: ROWS where they are the experts' already. */
static const struct ax_tensor *sorted_rows(const struct ax_pass *p, const struct ax_saved *s) {
    return &s[p->model->experts.ranks > 1 ? RESULTS : ROWS].t;
}

static struct ax_router_choice choice_of(const struct ax_saved *s) {
    return (struct ax_router_choice){s[PROBS].t, s[WEIGHTS].t, s[EXPERTS].t, s[UNSCALED].t};
}

static enum ax_status choose(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                             const struct ax_tensor *h) {
    struct ax_model *m = p->model;
    const struct ax_router_choice choice = choice_of(s);
    const struct ax_expert_route route = route_of(l, p, s);
    AX_TRY(ax_router_choose(l, p, h, &choice));
    return ax_expert_assign(&m->experts, m->rt, &choice.experts, &route);
}

/* to[PLACES[t]] = weight·from[t], and dots[t] = from[t]·of[PLACES[t]]: the backward of the weighted sum, where a
 * token has one expert. */
static enum ax_status spread(struct ax_pass *p, const struct ax_saved *s,
                             const struct ax_tensor *from, const struct ax_tensor *of,
                             const struct ax_tensor *to, const struct ax_tensor *dots) {
    const int64_t T = from->shape[0];
    return ax_run_combine_backward(p->model->rt->q,
                                   &(struct ax_combine_backward){.dout = *from,
                                                                 .src = ax_tensor_rows(of, 0, T),
                                                                 .rows = s[PLACES].t,
                                                                 .weights = s[WEIGHTS].t,
                                                                 .dsrc = ax_tensor_rows(to, 0, T),
                                                                 .dweights = *dots});
}

enum ax_status ax_moe_choose(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                             const struct ax_tensor *h) {
    return ax_saved_make(&s[EXPERTS]) ? choose(l, p, s, h) : AX_OK;
}

static enum ax_status sort_rows(struct ax_pass *p, const struct ax_saved *s,
                                const struct ax_tensor *h) {
    struct ax_runtime *rt = p->model->rt;
    if (!p->model->arch.moe.weighs_input)
        return ax_run_scatter_rows(rt->q,
                                   &(struct ax_scatter_rows){*sorted_rows(p, s), *h, s[PLACES].t});
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    struct ax_tensor nothing = s[WEIGHTS].t; /* products of h with itself */
    nothing = ax_stack_take(&rt->arena.scratch, "dot products", nothing);
    AX_TRY(spread(p, s, h, h, sorted_rows(p, s), &nothing));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

/* Rows of a part's experts, and what they become. */
static struct ax_expert_rows rows_of(const struct ax_layer *l, const struct ax_pass *p,
                                     const struct ax_expert_part *part, const struct ax_saved *s,
                                     const struct ax_tensor *x, const struct ax_tensor *y) {
    return (struct ax_expert_rows){*x, *y, ax_tensor_rows(&s[OFFSETS].t, part->first, part->n + 1),
                                   &p->slot->expert_rounds[l->index].offsets, *part};
}

/* The rows received; others are skipped to save memory traffic. */
static enum ax_status activate(struct ax_pass *p, const struct ax_saved *s,
                               const struct ax_expert_part *part) {
    const struct ax_tensor gate_up = ax_tensor_rows(&s[GATE_UP].t, part->row, part->rows),
                           act = ax_tensor_rows(&s[ACT].t, part->row, part->rows);
    return ax_activate_forward(p, &gate_up, &act, (struct ax_range_of){0});
}

static enum ax_status gate_up(const struct ax_layer *l, struct ax_pass *p, const struct ax_saved *s,
                              const struct ax_expert_part *part) {
    const struct ax_expert_matrices w = expert_gate_up(l);
    const struct ax_expert_rows rows = rows_of(l, p, part, s, &s[ROWS].t, &s[GATE_UP].t);
    AX_TRY(ax_expert_forward(l, p, &w, &rows));
    return ax_adapter_experts_forward(&l->moe.gate_up_adapter, &rows);
}

static enum ax_status down(const struct ax_layer *l, struct ax_pass *p, const struct ax_saved *s,
                           const struct ax_expert_part *part, const struct ax_tensor *here) {
    const struct ax_expert_matrices w = expert_down(l);
    const struct ax_expert_rows rows = rows_of(l, p, part, s, &s[ACT].t, here);
    AX_TRY(ax_expert_forward(l, p, &w, &rows));
    return ax_adapter_experts_forward(&l->moe.down_adapter, &rows);
}

/* Where results are before they travel. */
static struct ax_tensor results_here(struct ax_pass *p, const struct ax_saved *s) {
    struct ax_tensor here = s[RESULTS].t;
    if (p->model->experts.ranks == 1)
        return here;
    return ax_stack_take(&p->model->rt->arena.scratch, "expert output", s[ROWS].t);
}

/* Sends the open round's rows to their experts. */
static enum ax_status send(const struct ax_layer *l, struct ax_pass *p, const struct ax_saved *s,
                           struct ax_moe_flight *f) {
    struct ax_model *m = p->model;
    const struct ax_expert_route route = route_of(l, p, s);
    return f->rows ? ax_expert_send(&m->experts, m->rt, &route, sorted_rows(p, s), &f->transfer)
                   : AX_OK;
}

enum ax_status ax_moe_compute(const struct ax_layer *l, struct ax_pass *p, const struct ax_saved *s,
                              struct ax_moe_flight *f) {
    struct ax_model *m = p->model;
    struct ax_expert_group *g = &m->experts;
    const struct ax_expert_route route = route_of(l, p, s);
    for (int i = 0; i < g->parts; i++) {
        const struct ax_expert_part part = ax_expert_part(g, &route, i);
        if (f->rows)
            AX_TRY(ax_expert_receive(g, m->rt, &route, i, &f->transfer, &s[ROWS].t));
        if (f->gate_up)
            AX_TRY(gate_up(l, p, s, &part));
        if (f->act)
            AX_TRY(activate(p, s, &part));
        if (!f->results)
            continue;
        AX_TRY(down(l, p, s, &part, &f->here));
        AX_TRY(ax_expert_give_back(g, m->rt, &route, i, &f->transfer, &f->here, &s[RESULTS].t));
    }
    return AX_OK;
}

/* Where rows travel, a plan has one later round, without rows: its memory is round 0's. */
static bool has_round(const struct ax_model *m, const struct ax_expert_route *r, int round) {
    const bool planned = round == 1 && ax_runtime_planning(m->rt) &&
                         ax_expert_most_rounds(&m->experts, m->arch.moe.n_active) > 1;
    return round < r->rounds->n || planned;
}

/* From sorted rows to results, by way of round 0's tensors. */
static enum ax_status later_forward(const struct ax_layer *l, struct ax_pass *p,
                                    const struct ax_saved *s) {
    struct ax_model *m = p->model;
    struct ax_stack *scratch = &m->rt->arena.scratch;
    const struct ax_expert_route route = route_of(l, p, s);
    if (m->experts.ranks == 1)
        return AX_OK;
    const size_t mark = ax_stack_mark(scratch);
    struct ax_moe_flight f = {.transfer = ax_expert_transfer(&m->experts, m->rt, &s[ROWS].t),
                              .rows = true,
                              .gate_up = true,
                              .act = true,
                              .results = true,
                              .here = results_here(p, s)};
    ax_contract_loop(&m->rt->contracts);
    for (int i = 1; has_round(m, &route, i); i++) {
        AX_TRY(ax_contract_turn(&m->rt->contracts, 1, 1));
        AX_TRY(ax_expert_open(&m->experts, m->rt, &route, i));
        AX_TRY(send(l, p, s, &f));
        AX_TRY(ax_moe_compute(l, p, s, &f));
        AX_TRY(ax_expert_settle(&m->experts, m->rt, &f.transfer));
    }
    AX_TRY(ax_contract_end(&m->rt->contracts));
    ax_stack_release(scratch, mark);
    return ax_expert_open(&m->experts, m->rt, &route, 0);
}

enum ax_status ax_moe_begin(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                            const struct ax_tensor *h, struct ax_moe_flight *f) {
    struct ax_model *m = p->model;
    *f = (struct ax_moe_flight){0};
    AX_TRY(ax_moe_choose(l, p, s, h));
    if (has_latent(l) && ax_saved_make(&s[LATENT]))
        AX_TRY(ax_linear_forward(m->rt, &l->moe.latent_in, h, NULL, &s[LATENT].t));
    if (!s[ROWS].ready)
        AX_TRY(sort_rows(p, s, read_by_experts(l, s, h)));
    if (!s[RESULTS].ready)
        AX_TRY(later_forward(l, p, s));
    f->rows = ax_saved_make(&s[ROWS]);
    f->gate_up = ax_saved_make(&s[GATE_UP]);
    f->act = ax_saved_make(&s[ACT]);
    f->results = ax_saved_make(&s[RESULTS]);
    if (f->rows || f->results)
        f->transfer = ax_expert_transfer(&m->experts, m->rt, &s[ROWS].t);
    if (f->results)
        f->here = results_here(p, s);
    return send(l, p, s, f);
}

enum ax_status ax_moe_end(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                          struct ax_moe_flight *f, const struct ax_tensor *x,
                          const struct ax_tensor *out) {
    struct ax_model *m = p->model;
    struct ax_combine_forward combine = {.src = s[RESULTS].t, .rows = s[PLACES].t};
    if (!m->arch.moe.weighs_input)
        combine.weights = s[WEIGHTS].t;
    AX_TRY(ax_expert_settle(&m->experts, m->rt, &f->transfer));
    if (has_latent(l)) {
        combine.out = s[SUM].t;
        if (ax_saved_make(&s[SUM]))
            AX_TRY(ax_run_combine_forward(m->rt->q, &combine));
        return out ? ax_linear_forward(m->rt, &l->moe.latent_out, &s[SUM].t, x, out) : AX_OK;
    }
    if (!out)
        return AX_OK;
    combine.out = *out;
    if (x)
        combine.addend = *x;
    return ax_run_combine_forward(m->rt->q, &combine);
}

static enum ax_status moe_forward(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                                  const struct ax_tensor *h, const struct ax_tensor *x,
                                  const struct ax_tensor *out) {
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    struct ax_moe_flight f;
    AX_TRY(ax_moe_begin(l, p, s, h, &f));
    AX_TRY(ax_moe_compute(l, p, s, &f));
    AX_TRY(ax_moe_end(l, p, s, &f, x, out));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

/* What a round's backward keeps while its parts come: inputs as products read them, and the gradient
 * of the activation. */
struct kept {
    struct ax_tensor x_up, x_down, d_act;
};

/* d: in, the gradient of a part's outputs; out, of its inputs. The gradient of gate and up
 * overwrites gate_up, not needed afterwards but for that of their matrices. late: matrices wait, or NULL. */
static enum ax_status part_backward(const struct ax_layer *l, struct ax_pass *p,
                                    const struct ax_saved *s, const struct kept *k,
                                    const struct ax_later_product *late,
                                    const struct ax_expert_part *part, const struct ax_tensor *d) {
    const struct ax_tensor *act = &s[ACT].t, *gate_up = &s[GATE_UP].t;
    const struct ax_expert_matrices up = expert_gate_up(l), down = expert_down(l);
    const struct ax_expert_rows outputs = rows_of(l, p, part, s, act, d);
    const struct ax_expert_rows inputs = rows_of(l, p, part, s, &s[ROWS].t, gate_up);
    AX_TRY(ax_expert_input_gradient(l, p, &down, &outputs, &k->d_act));
    AX_TRY(late ? keep_outputs(p, late, part, d)
                : ax_expert_weight_gradient(l, p, &down, &outputs, &k->x_down));
    AX_TRY(ax_adapter_experts_backward(&l->moe.down_adapter, &outputs, &k->d_act));
    const struct ax_tensor in_use = ax_tensor_rows(gate_up, part->row, part->rows),
                           d_act = ax_tensor_rows(&k->d_act, part->row, part->rows);
    AX_TRY(ax_activate_backward(p, &d_act, &in_use, (struct ax_range_of){0}));
    AX_TRY(ax_expert_input_gradient(l, p, &up, &inputs, d));
    return ax_adapter_experts_backward(&l->moe.gate_up_adapter, &inputs, d);
}

/* The open round's part of the gradient, from results to sorted rows, in place. The last part's way
 * back is behind the gradient of gates and ups, or copies. */
static enum ax_status round_backward(const struct ax_layer *l, struct ax_pass *p,
                                     const struct ax_saved *s, struct ax_later_product *late,
                                     struct ax_moe_flight *f) {
    struct ax_model *m = p->model;
    struct ax_expert_group *g = &m->experts;
    struct ax_stack *scratch = &m->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_expert_route route = route_of(l, p, s);
    const struct ax_expert_part all = ax_expert_parts(g, &route);
    const struct ax_expert_matrices up = expert_gate_up(l);
    const struct ax_expert_rows inputs = rows_of(l, p, &all, s, &s[ROWS].t, &s[GATE_UP].t);
    struct kept kept = {.d_act = s[ACT].t};
    kept.d_act = ax_stack_take(scratch, "gradient of expert activation", kept.d_act);
    if (late)
        *late = put_off_gradients(l, p, &inputs, &s[ACT].t);
    AX_TRY(ax_expert_values(l, p, &s[ROWS].t, &kept.x_up));
    AX_TRY(ax_expert_values(l, p, &s[ACT].t, &kept.x_down));
    for (int i = 0; i < g->parts; i++) {
        const struct ax_expert_part part = ax_expert_part(g, &route, i);
        AX_TRY(ax_expert_receive(g, m->rt, &route, i, &f->transfer, &f->d));
        AX_TRY(part_backward(l, p, s, &kept, late, &part, &f->d));
        AX_TRY(ax_expert_give_back(g, m->rt, &route, i, &f->transfer, &f->d, &f->sorted));
    }
    AX_TRY(late ? keep_rows(p, late, &inputs, &s[ACT].t)
                : ax_expert_weight_gradient(l, p, &up, &inputs, &kept.x_up));
    ax_stack_release(scratch, mark);
    return ax_expert_settle(g, m->rt, &f->transfer);
}

/* Makes the open round's inputs and activations in round 0's tensors, and goes back through them. */
static enum ax_status later_backward(const struct ax_layer *l, struct ax_pass *p,
                                     const struct ax_saved *s, const struct ax_tensor *h,
                                     struct ax_moe_flight *f) {
    struct ax_model *m = p->model;
    const struct ax_expert_route route = route_of(l, p, s);
    if (m->experts.ranks == 1)
        return AX_OK;
    if (route.rounds->n > 1)
        AX_TRY(sort_rows(p, s, read_by_experts(l, s, h)));
    f->rows = f->gate_up = f->act = true;
    ax_contract_loop(&m->rt->contracts);
    for (int i = 1; has_round(m, &route, i); i++) {
        AX_TRY(ax_contract_turn(&m->rt->contracts, 1, 1));
        AX_TRY(ax_expert_open(&m->experts, m->rt, &route, i));
        AX_TRY(send(l, p, s, f));
        AX_TRY(ax_moe_compute(l, p, s, f));
        AX_TRY(ax_expert_send(&m->experts, m->rt, &route, &f->sorted, &f->transfer));
        AX_TRY(round_backward(l, p, s, NULL, f));
    }
    return ax_contract_end(&m->rt->contracts);
}

enum ax_status ax_moe_backward_begin(const struct ax_layer *l, struct ax_pass *p,
                                     const struct ax_saved *s, const struct ax_tensor *dy,
                                     struct ax_moe_flight *f) {
    struct ax_model *m = p->model;
    struct ax_stack *scratch = &m->rt->arena.scratch;
    const struct ax_expert_route route = route_of(l, p, s);
    *f = (struct ax_moe_flight){
        .d = s[ROWS].t, .sorted = *sorted_rows(p, s), .dweights = s[WEIGHTS].t};
    f->d = ax_stack_take(scratch, "gradient of expert rows", f->d);
    f->dweights = ax_stack_take(scratch, "gradient of router", f->dweights);
    f->sorted.data = m->experts.ranks > 1
                         ? ax_stack_push(scratch, "rows in transit", ax_tensor_bytes(&f->sorted))
                         : f->d.data;
    f->transfer = ax_expert_transfer(&m->experts, m->rt, &f->d);
    struct ax_tensor dsum = *dy;
    if (has_latent(l)) {
        dsum = ax_stack_take(scratch, "gradient of expert sum", s[SUM].t);
        AX_TRY(ax_linear_backward(m->rt, &l->moe.latent_out, &s[SUM].t, dy, &dsum));
    }
    if (m->arch.moe.weighs_input)
        AX_TRY(
            ax_run_scatter_rows(m->rt->q, &(struct ax_scatter_rows){f->sorted, dsum, s[PLACES].t}));
    else
        AX_TRY(ax_run_combine_backward(m->rt->q,
                                       &(struct ax_combine_backward){.dout = dsum,
                                                                     .src = s[RESULTS].t,
                                                                     .rows = s[PLACES].t,
                                                                     .weights = s[WEIGHTS].t,
                                                                     .dsrc = f->sorted,
                                                                     .dweights = f->dweights}));
    return ax_expert_send(&m->experts, m->rt, &route, &f->sorted, &f->transfer);
}

enum ax_status ax_moe_backward_rows(const struct ax_layer *l, struct ax_pass *p,
                                    const struct ax_saved *s, const struct ax_tensor *h,
                                    const struct ax_tensor *dh, struct ax_moe_flight *f) {
    struct ax_later_product late;
    AX_TRY(round_backward(l, p, s, gradients_wait(l, p) ? &late : NULL, f));
    AX_TRY(later_backward(l, p, s, h, f));
    struct ax_combine_forward sum = {.src = f->sorted, .rows = s[PLACES].t, .out = *dh};
    if (has_latent(l))
        sum.out =
            ax_stack_take(&p->model->rt->arena.scratch, "gradient of expert latent", s[LATENT].t);
    if (p->model->arch.moe.weighs_input) {
        const struct ax_tensor rows =
            ax_stack_take(&p->model->rt->arena.scratch, "expert input",
                          ax_tensor_2d(h->dtype, NULL, h->shape[0], h->shape[1]));
        AX_TRY(spread(p, s, h, &f->sorted, &rows, &f->dweights));
        sum.weights = s[WEIGHTS].t;
    }
    AX_TRY(ax_run_combine_forward(p->model->rt->q, &sum));
    return has_latent(l) ? ax_linear_backward(p->model->rt, &l->moe.latent_in, h, &sum.out, dh)
                         : AX_OK;
}

enum ax_status ax_moe_backward_router(const struct ax_layer *l, struct ax_pass *p,
                                      const struct ax_saved *s, const struct ax_tensor *h,
                                      const struct ax_tensor *dh, const struct ax_moe_flight *f) {
    const struct ax_router_choice choice = choice_of(s);
    return ax_router_gradient(l, p, &choice, &f->dweights, h, dh);
}

enum ax_status ax_moe_backward_end(const struct ax_layer *l, struct ax_pass *p,
                                   const struct ax_saved *s, const struct ax_tensor *h,
                                   const struct ax_tensor *dh, struct ax_moe_flight *f) {
    AX_TRY(ax_moe_backward_rows(l, p, s, h, dh, f));
    return ax_moe_backward_router(l, p, s, h, dh, f);
}

static enum ax_status moe_backward(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                                   const struct ax_tensor *h, const struct ax_tensor *dy,
                                   const struct ax_tensor *dh) {
    struct ax_stack *scratch = &p->model->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    struct ax_moe_flight f;
    AX_TRY(ax_moe_backward_begin(l, p, s, dy, &f));
    AX_TRY(ax_moe_backward_end(l, p, s, h, dh, &f));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

const struct ax_part_type ax_ffn_moe = {
    .name = "moe",
    .n_saved = N_SAVED,
    .init = moe_init,
    .linears = moe_linears,
    .size = moe_size,
    .declare = moe_declare,
    .forward = moe_forward,
    .backward = moe_backward,
};
