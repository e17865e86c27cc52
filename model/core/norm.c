#include "model/core/norm.h"

enum ax_status ax_norm_forward(struct ax_pass *p, const struct ax_unit *unit,
                               const struct ax_param *w, const struct ax_tensor *x,
                               const struct ax_tensor *y, const struct ax_tensor *rstd) {
    const struct ax_arch *a = &p->model->arch;
    return ax_run_rmsnorm_forward(p->model->rt->q,
                                  &(struct ax_rmsnorm_forward){.x = *x,
                                                               .weight = ax_unit_weight(unit, w),
                                                               .y = *y,
                                                               .rstd = *rstd,
                                                               .eps = a->norm_eps,
                                                               .offset = a->norm.offset,
                                                               .once = a->norm.once});
}

enum ax_status ax_norm_backward(struct ax_pass *p, const struct ax_unit *unit,
                                const struct ax_param *w, const struct ax_tensor *dy,
                                const struct ax_tensor *x, const struct ax_tensor *rstd,
                                const struct ax_tensor *dx, bool accumulate) {
    return ax_run_rmsnorm_backward(
        p->model->rt->q, &(struct ax_rmsnorm_backward){.dy = *dy,
                                                       .x = *x,
                                                       .weight = ax_unit_weight(unit, w),
                                                       .rstd = *rstd,
                                                       .dx = *dx,
                                                       .dweight = ax_unit_grad(unit, w),
                                                       .accumulate = accumulate,
                                                       .offset = p->model->arch.norm.offset});
}

enum ax_status ax_residual_narrow(const struct ax_pass *p, const struct ax_tensor *dx,
                                  struct ax_tensor *dy) {
    const struct ax_model *m = p->model;
    *dy = *dx;
    if (m->dtype == dx->dtype)
        return AX_OK;
    *dy = ax_tensor_2d(m->dtype, NULL, dx->shape[0], dx->shape[1]);
    dy->data =
        ax_stack_push(&m->rt->arena.scratch, "gradient of branch output", ax_tensor_bytes(dy));
    return ax_run_copy(m->rt->q, &(struct ax_copy){*dy, *dx});
}
