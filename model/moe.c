/* Mixture of experts, dropless:  y_t = Σ_i w_ti·mlp_{e_ti}(h_t), the SwiGLU MLPs e_t1 … e_tk that
 * the router chose for token t.
 *
 * Forward: router → rows sorted by expert and sent to the experts' ranks (parallel/expert.h) → gate
 * and up, SwiGLU, down as grouped products → back → weighted sum. The router's decision is kept in
 * every recompute mode: backward must follow the same routes.
 *
 * Rows travel in rounds, nearly always one. All rounds use the same memory: forward runs the later
 * ones first, so that it leaves round 0's tensors, and backward, when it is done with those, makes
 * the later ones again. RESULTS has all rounds' rows, before they travel and after. */
#include <stdio.h>

#include "model/builder.h"
#include "model/expert_weights.h"
#include "model/layer.h"
#include "model/router.h"

enum {
    PROBS, /* the router's decision … */
    WEIGHTS,
    EXPERTS,
    PLACES, /* … and the rows' route */
    OFFSETS,
    COUNTS,
    REGROUP,
    ROWS, /* at the experts in the open round, sorted by expert */
    GATE_UP,
    ACT,
    RESULTS, /* back on their rank, as PLACES says */
    N_SAVED
};
_Static_assert(N_SAVED == AX_MOE_SAVED, "of a part that has this one inside it");

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

/* One tensor for all experts' gate and up, one for their down, one for the biases of each. */
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
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        const struct ax_param_decl decl = {.name = tensors[i].name,
                                           .rows = tensors[i].rows,
                                           .cols = tensors[i].cols,
                                           .stack = E,
                                           .tp_dim = -1};
        *tensors[i].to = ax_builder_add(b, l->index, &decl);
    }
}

/* gate | up of every expert, then every expert's down: each with a constant stride. */
static void moe_init(struct ax_builder *b, struct ax_layer *l) {
    const struct ax_moe_config *c = &b->arch->moe;
    const int64_t D = b->arch->hidden_size, F = c->width;
    struct ax_moe_part *moe = &l->moe;
    ax_router_init(b, l);
    if (c->stacked) {
        add_stacked(b, l);
        return;
    }
    for (int e = 0; e < c->n_experts; e++) {
        const struct ax_param *gate = add_expert(b, l, e, c->names->gate, F, D, false);
        add_expert(b, l, e, c->names->up, F, D, true);
        if (e == 0)
            moe->gate_up = gate;
    }
    for (int e = 0; e < c->n_experts; e++) {
        const struct ax_param *down = add_expert(b, l, e, c->names->down, D, F, false);
        if (e == 0)
            moe->down = down;
    }
}

static struct ax_part_size moe_size(const struct ax_arch *a) {
    const struct ax_moe_config *c = &a->moe;
    const int64_t D = a->hidden_size, router = c->n_experts * D, expert = 3 * c->width * D;
    return (struct ax_part_size){.matrices = router + c->n_experts * expert,
                                 .active = router + c->n_active * expert,
                                 .vectors = (c->names->router_bias ? c->n_experts : 0) +
                                            (c->stacked ? c->n_experts * (2 * c->width + D) : 0)};
}

/* None: its matrices are the experts', see adapter/experts.h. */
static int moe_linears(struct ax_layer *l, struct ax_linear **out) {
    (void)l;
    (void)out;
    return 0;
}

/* Tokens on this rank. */
static int64_t tokens(const struct ax_pass *p) {
    return ax_tp_rows(p->model->rt, p->batch->T);
}

static void moe_declare(const struct ax_layer *l, const struct ax_pass *p, struct ax_saved *s) {
    (void)l;
    const struct ax_model *m = p->model;
    const struct ax_moe_config *c = &m->arch.moe;
    const struct ax_expert_group *g = &m->experts;
    const int64_t T = tokens(p), E = c->n_experts, k = c->n_active, D = m->arch.hidden_size;
    const int64_t cap = ax_expert_capacity(g, T, k);
    const bool travels = g->ranks > 1;
    ax_saved_declare(&s[PROBS], "router", AX_KEEP_ALWAYS, ax_tensor_2d(m->accum, NULL, T, E));
    ax_saved_declare(&s[WEIGHTS], "router", AX_KEEP_ALWAYS, ax_tensor_2d(m->accum, NULL, T, k));
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
                     ax_tensor_2d(m->dtype, NULL, cap, 2 * c->width));
    ax_saved_declare(&s[ACT], "expert activation", AX_KEEP_CHEAP,
                     ax_tensor_2d(m->dtype, NULL, cap, c->width));
    ax_saved_declare(&s[RESULTS], "expert output", AX_KEEP_COSTLY,
                     ax_tensor_2d(m->dtype, NULL, T * k, D));
}

static struct ax_expert_route route_of(const struct ax_layer *l, const struct ax_pass *p,
                                       const struct ax_saved *s) {
    struct ax_expert_rounds *rounds = p->slot->expert_rounds;
    return (struct ax_expert_route){.places = s[PLACES].t,
                                    .offsets = s[OFFSETS].t,
                                    .counts = s[COUNTS].t,
                                    .regroup = s[REGROUP].t,
                                    .rounds = rounds ? rounds + l->index : NULL};
}

/* Rows sorted by expert that have yet to travel: to ROWS where they are the experts' already. */
static const struct ax_tensor *sorted_rows(const struct ax_pass *p, const struct ax_saved *s) {
    return &s[p->model->experts.ranks > 1 ? RESULTS : ROWS].t;
}

static struct ax_router_choice choice_of(const struct ax_saved *s) {
    return (struct ax_router_choice){s[PROBS].t, s[WEIGHTS].t, s[EXPERTS].t};
}

static enum ax_status choose(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                             const struct ax_tensor *h) {
    struct ax_model *m = p->model;
    const struct ax_router_choice choice = choice_of(s);
    const struct ax_expert_route route = route_of(l, p, s);
    AX_TRY(ax_router_choose(l, p, h, &choice));
    return ax_expert_assign(&m->experts, m->rt, &choice.experts, &route);
}

static enum ax_status sort_rows(struct ax_pass *p, const struct ax_saved *s,
                                const struct ax_tensor *h) {
    return ax_run_scatter_rows(p->model->rt->q,
                               &(struct ax_scatter_rows){*sorted_rows(p, s), *h, s[PLACES].t});
}

/* Sends the open round's rows to their experts. */
static enum ax_status dispatch(const struct ax_layer *l, struct ax_pass *p,
                               const struct ax_saved *s) {
    struct ax_model *m = p->model;
    const struct ax_expert_route route = route_of(l, p, s);
    return ax_expert_send(&m->experts, m->rt, &route, sorted_rows(p, s), &s[ROWS].t);
}

/* Rows of the experts here, and what they become. */
static struct ax_expert_rows rows_of(const struct ax_layer *l, const struct ax_pass *p,
                                     const struct ax_saved *s, const struct ax_tensor *x,
                                     const struct ax_tensor *y) {
    const struct ax_expert_route route = route_of(l, p, s);
    return (struct ax_expert_rows){*x, *y, s[OFFSETS].t,
                                   ax_expert_even_count(&p->model->experts, &route)};
}

/* The rows received; those after them are skipped to save memory traffic. */
static enum ax_status activate(const struct ax_layer *l, struct ax_pass *p,
                               const struct ax_saved *s) {
    struct ax_model *m = p->model;
    const struct ax_expert_route route = route_of(l, p, s);
    const int64_t n = ax_expert_count(&m->experts, &route);
    return ax_run_swiglu_forward(
        m->rt->q, &(struct ax_swiglu_forward){ax_tensor_rows(&s[GATE_UP].t, 0, n),
                                              ax_tensor_rows(&s[ACT].t, 0, n), m->arch.gating});
}

static enum ax_status gate_up(const struct ax_layer *l, struct ax_pass *p,
                              const struct ax_saved *s) {
    const struct ax_expert_matrices w = ax_expert_gate_up(l);
    const struct ax_expert_rows rows = rows_of(l, p, s, &s[ROWS].t, &s[GATE_UP].t);
    AX_TRY(ax_expert_forward(l, p, &w, &rows));
    return ax_adapter_experts_forward(&l->moe.gate_up_adapter, &rows);
}

static enum ax_status down(const struct ax_layer *l, struct ax_pass *p, const struct ax_saved *s) {
    struct ax_model *m = p->model;
    struct ax_stack *scratch = &m->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_expert_route route = route_of(l, p, s);
    const struct ax_expert_matrices w = ax_expert_down(l);
    struct ax_tensor here = s[RESULTS].t;
    if (m->experts.ranks > 1) {
        here = s[ROWS].t;
        here.data = ax_stack_push(scratch, "rows in transit", ax_tensor_bytes(&here));
    }
    const struct ax_expert_rows rows = rows_of(l, p, s, &s[ACT].t, &here);
    AX_TRY(ax_expert_forward(l, p, &w, &rows));
    AX_TRY(ax_adapter_experts_forward(&l->moe.down_adapter, &rows));
    AX_TRY(ax_expert_return(&m->experts, m->rt, &route, &here, &s[RESULTS].t));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

/* Makes the experts' inputs and activations of the open round. */
static enum ax_status make_inputs(const struct ax_layer *l, struct ax_pass *p,
                                  const struct ax_saved *s) {
    AX_TRY(dispatch(l, p, s));
    AX_TRY(gate_up(l, p, s));
    return activate(l, p, s);
}

/* Where rows travel, a plan has one later round, without rows: its memory is round 0's. */
static bool has_round(const struct ax_model *m, const struct ax_expert_route *r, int round) {
    const bool planned = round == 1 && ax_runtime_planning(m->rt) &&
                         ax_expert_most_rounds(&m->experts, m->arch.moe.n_active) > 1;
    return r->rounds && (round < r->rounds->n || planned);
}

/* From sorted rows to results, by way of round 0's tensors. */
static enum ax_status later_forward(const struct ax_layer *l, struct ax_pass *p,
                                    const struct ax_saved *s) {
    struct ax_model *m = p->model;
    const struct ax_expert_route route = route_of(l, p, s);
    if (!route.rounds)
        return AX_OK;
    ax_contract_loop(m->rt);
    for (int i = 1; has_round(m, &route, i); i++) {
        AX_TRY(ax_contract_turn(m->rt, 1, 1));
        AX_TRY(ax_expert_open(&m->experts, m->rt, &route, i));
        AX_TRY(make_inputs(l, p, s));
        AX_TRY(down(l, p, s));
    }
    AX_TRY(ax_contract_end(m->rt));
    return ax_expert_open(&m->experts, m->rt, &route, 0);
}

static enum ax_status moe_forward(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                                  const struct ax_tensor *h, const struct ax_tensor *x,
                                  const struct ax_tensor *out) {
    const struct ax_model *m = p->model;
    if (ax_saved_make(&s[EXPERTS]))
        AX_TRY(choose(l, p, s, h));
    if (!s[ROWS].ready)
        AX_TRY(sort_rows(p, s, h));
    if (!s[RESULTS].ready)
        AX_TRY(later_forward(l, p, s));
    if (ax_saved_make(&s[ROWS]))
        AX_TRY(dispatch(l, p, s));
    if (ax_saved_make(&s[GATE_UP]))
        AX_TRY(gate_up(l, p, s));
    if (ax_saved_make(&s[ACT]))
        AX_TRY(activate(l, p, s));
    if (ax_saved_make(&s[RESULTS]))
        AX_TRY(down(l, p, s));
    if (!out)
        return AX_OK;
    struct ax_combine_forward combine = {
        .src = s[RESULTS].t, .rows = s[PLACES].t, .weights = s[WEIGHTS].t, .out = *out};
    if (x)
        combine.addend = *x;
    return ax_run_combine_forward(m->rt->q, &combine);
}

/* d: in, the gradient of the experts' outputs; out, of their inputs. The gradient of gate and up
 * overwrites gate_up, which is not needed afterwards. */
static enum ax_status experts_backward(const struct ax_layer *l, struct ax_pass *p,
                                       const struct ax_saved *s, const struct ax_tensor *d) {
    struct ax_model *m = p->model;
    struct ax_stack *scratch = &m->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_expert_route route = route_of(l, p, s);
    const struct ax_tensor *act = &s[ACT].t, *gate_up = &s[GATE_UP].t;
    const struct ax_expert_matrices up = ax_expert_gate_up(l), down = ax_expert_down(l);
    struct ax_tensor d_act = *act;
    d_act.data = ax_stack_push(scratch, "gradient of expert activation", ax_tensor_bytes(&d_act));
    const int64_t n = ax_expert_count(&m->experts, &route);
    const struct ax_expert_rows outputs = rows_of(l, p, s, act, d);
    const struct ax_expert_rows inputs = rows_of(l, p, s, &s[ROWS].t, gate_up);
    AX_TRY(ax_expert_backward(l, p, &down, &outputs, &d_act));
    AX_TRY(ax_adapter_experts_backward(&l->moe.down_adapter, &outputs, &d_act));
    const struct ax_tensor in_use = ax_tensor_rows(gate_up, 0, n);
    AX_TRY(ax_run_swiglu_backward(m->rt->q,
                                  &(struct ax_swiglu_backward){ax_tensor_rows(&d_act, 0, n), in_use,
                                                               in_use, m->arch.gating}));
    AX_TRY(ax_expert_backward(l, p, &up, &inputs, d));
    AX_TRY(ax_adapter_experts_backward(&l->moe.gate_up_adapter, &inputs, d));
    ax_stack_release(scratch, mark);
    return AX_OK;
}

/* The open round's part of the gradient, from results to sorted rows, in place. */
static enum ax_status round_backward(const struct ax_layer *l, struct ax_pass *p,
                                     const struct ax_saved *s, const struct ax_tensor *sorted,
                                     const struct ax_tensor *d) {
    struct ax_model *m = p->model;
    const struct ax_expert_route route = route_of(l, p, s);
    AX_TRY(ax_expert_send(&m->experts, m->rt, &route, sorted, d));
    AX_TRY(experts_backward(l, p, s, d));
    return ax_expert_return(&m->experts, m->rt, &route, d, sorted);
}

static enum ax_status later_backward(const struct ax_layer *l, struct ax_pass *p,
                                     const struct ax_saved *s, const struct ax_tensor *h,
                                     const struct ax_tensor *sorted, const struct ax_tensor *d) {
    struct ax_model *m = p->model;
    const struct ax_expert_route route = route_of(l, p, s);
    if (!route.rounds)
        return AX_OK;
    if (route.rounds->n > 1)
        AX_TRY(sort_rows(p, s, h));
    ax_contract_loop(m->rt);
    for (int i = 1; has_round(m, &route, i); i++) {
        AX_TRY(ax_contract_turn(m->rt, 1, 1));
        AX_TRY(ax_expert_open(&m->experts, m->rt, &route, i));
        AX_TRY(make_inputs(l, p, s));
        AX_TRY(round_backward(l, p, s, sorted, d));
    }
    return ax_contract_end(m->rt);
}

static enum ax_status moe_backward(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                                   const struct ax_tensor *h, const struct ax_tensor *dy,
                                   const struct ax_tensor *dh) {
    struct ax_model *m = p->model;
    struct ax_stack *scratch = &m->rt->arena.scratch;
    const size_t mark = ax_stack_mark(scratch);
    const struct ax_router_choice choice = choice_of(s);
    struct ax_tensor d = s[ROWS].t, sorted = *sorted_rows(p, s), dweights = s[WEIGHTS].t;
    d.data = ax_stack_push(scratch, "gradient of expert rows", ax_tensor_bytes(&d));
    dweights.data = ax_stack_push(scratch, "gradient of router", ax_tensor_bytes(&dweights));
    sorted.data = m->experts.ranks > 1
                      ? ax_stack_push(scratch, "rows in transit", ax_tensor_bytes(&sorted))
                      : d.data;
    AX_TRY(ax_run_combine_backward(m->rt->q, &(struct ax_combine_backward){.dout = *dy,
                                                                           .src = s[RESULTS].t,
                                                                           .rows = s[PLACES].t,
                                                                           .weights = s[WEIGHTS].t,
                                                                           .dsrc = sorted,
                                                                           .dweights = dweights}));
    AX_TRY(round_backward(l, p, s, &sorted, &d));
    AX_TRY(later_backward(l, p, s, h, &sorted, &d));
    AX_TRY(ax_run_combine_forward(
        m->rt->q, &(struct ax_combine_forward){.src = sorted, .rows = s[PLACES].t, .out = *dh}));
    AX_TRY(ax_router_gradient(l, p, &choice, &dweights, h, dh));
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
