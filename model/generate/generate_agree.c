/* What ranks agree on before a pass: how large it is, whether there is one, and for which adapter. */
#include "model/core/adapters.h"
#include "model/generate/generate_pass.h"

/* The ranks that compute one pass: those of tp, or all if ranks gather weights from each other or are stages. */
static enum ax_role together(const struct ax_generator *d) {
    const int *size = d->model->rt->mesh.size;
    return size[AX_ROLE_FSDP] > 1 || size[AX_ROLE_PP] > 1 ? AX_ROLE_WORLD : AX_ROLE_TP;
}

int64_t ax_generate_pad(const struct ax_generator *d, int64_t n) {
    const int tp = d->model->rt->mesh.size[AX_ROLE_TP];
    return (n + tp - 1) / tp * tp;
}

static enum ax_status most_of(struct ax_generator *d, enum ax_role role, double *values,
                              int64_t n) {
    struct ax_runtime *rt = d->model->rt;
    return rt->mesh.size[role] > 1 && !ax_runtime_planning(rt)
               ? ax_runtime_combine(rt, role, AX_MAX, values, n)
               : AX_OK;
}

enum ax_status ax_generate_agree(struct ax_generator *d, struct ax_pass_need *n) {
    double pass[] = {(double)n->tokens, n->stop ? 1 : 0, n->logits ? 1 : 0, (double)n->windows,
                     n->starved ? 1 : 0};
    double told[] = {(double)n->rows, (double)n->best};
    AX_TRY(most_of(d, together(d), pass, sizeof pass / sizeof *pass));
    if (ax_generate_tells(d))
        AX_TRY(most_of(d, AX_ROLE_WORLD, told, sizeof told / sizeof *told));
    *n = (struct ax_pass_need){.tokens = ax_generate_pad(d, (int64_t)pass[0]),
                               .stop = pass[1] > 0,
                               .logits = pass[2] > 0,
                               .windows = (int64_t)pass[3],
                               .starved = pass[4] > 0 && pass[0] == 0 && pass[1] == 0,
                               .rows = (int64_t)told[0],
                               .best = (int64_t)told[1]};
    return AX_OK;
}

/* Ranks of tp, and stages, have the same sequences. */
enum ax_status ax_generate_agree_on_adapters(struct ax_generator *d) {
    const bool alike = d->model->rt->mesh.size[AX_ROLE_LOSS] == 1;
    return alike ? AX_OK : most_of(d, together(d), d->work->busy, d->model->bank->n + 1);
}
