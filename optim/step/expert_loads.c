#include "optim/step/expert_loads.h"

#include <math.h>

enum ax_status ax_expert_loads_begin(struct ax_step *s) {
    const struct ax_tensor *loads = &s->model.expert_loads;
    return loads->data ? ax_run_fill(s->rt->q, &(struct ax_fill){.dst = *loads}) : AX_OK;
}

struct measure {
    int64_t n_layers, n_experts;
};

/* False: no expert of the layer got a token. */
static bool measure_layer(const double *loads, int64_t n, double *violation, double *entropy) {
    double sum = 0, largest = 0, h = 0;
    for (int64_t e = 0; e < n; e++) {
        sum += loads[e];
        largest = loads[e] > largest ? loads[e] : largest;
    }
    if (!(sum > 0))
        return false;
    for (int64_t e = 0; e < n; e++)
        h -= loads[e] > 0 ? loads[e] / sum * log(loads[e] / sum) : 0;
    *violation = largest * (double)n / sum - 1;
    *entropy = n > 1 ? h / log((double)n) : 1;
    return true;
}

static enum ax_status measure(struct ax_queue *q, const void *args, void *const *at) {
    const struct measure *m = args;
    const double *loads = at[0]; /* [n_layers][n_experts] */
    struct ax_expert_balance *b = at[1];
    int layers = 0;
    (void)q;
    *b = (struct ax_expert_balance){.violation = NAN, .entropy = NAN};
    for (int i = 0; i < AX_BALANCE_LAYERS; i++)
        b->layers[i] = NAN;
    for (int64_t i = 0; i < m->n_layers && i < AX_BALANCE_LAYERS; i++) {
        double violation, entropy;
        if (!measure_layer(loads + i * m->n_experts, m->n_experts, &violation, &entropy))
            continue;
        b->layers[i] = (float)violation;
        b->violation = layers == 0 ? violation : fmax(b->violation, violation);
        b->entropy = layers == 0 ? entropy : b->entropy + entropy;
        layers++;
    }
    if (layers > 0)
        b->entropy /= layers;
    return AX_OK;
}

/* Ranks of tp and of the data have other rows, stages other layers. */
enum ax_status ax_expert_loads_sum(struct ax_step *s) {
    const struct ax_tensor *loads = &s->model.expert_loads;
    static const enum ax_role roles[] = {AX_ROLE_LOSS, AX_ROLE_TP, AX_ROLE_PP};
    if (!loads->data)
        return AX_OK;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        AX_TRY(ax_comm_sum(&s->rt->comms[roles[i]], s->rt->q, AX_F64, loads->data,
                           ax_tensor_numel(loads)));
    const struct measure m = {loads->shape[0], loads->shape[1]};
    const struct ax_view views[] = {ax_view_of(loads, AX_VIEW_READ),
                                    {s->balance, sizeof *s->balance, AX_VIEW_WRITE}};
    return ax_queue_call(s->rt->q, measure, &m, sizeof m, views, 2);
}
