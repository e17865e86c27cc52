#include "model/parts/activate.h"

enum ax_status ax_activate_forward(const struct ax_pass *p, const struct ax_tensor *gate_up,
                                   const struct ax_tensor *act, struct ax_range_of range) {
    struct ax_queue *q = p->model->rt->q;
    const struct ax_arch *a = &p->model->arch;
    if (a->ungated)
        return ax_run_relu2_forward(q, &(struct ax_relu2_forward){.y = *act, .x = *gate_up});
    return ax_run_swiglu_forward(
        q, &(struct ax_swiglu_forward){
               .gate_up = *gate_up, .y = *act, .how = a->gating, .range = range});
}

enum ax_status ax_activate_backward(const struct ax_pass *p, const struct ax_tensor *dact,
                                    const struct ax_tensor *gate_up, struct ax_range_of range) {
    struct ax_queue *q = p->model->rt->q;
    const struct ax_arch *a = &p->model->arch;
    if (a->ungated)
        return ax_run_relu2_backward(
            q, &(struct ax_relu2_backward){.dx = *gate_up, .x = *gate_up, .dy = *dact});
    return ax_run_swiglu_backward(q, &(struct ax_swiglu_backward){.dy = *dact,
                                                                  .gate_up = *gate_up,
                                                                  .dgate_up = *gate_up,
                                                                  .how = a->gating,
                                                                  .range = range});
}
