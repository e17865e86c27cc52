#include "model/parts/moe_later.h"

#include "model/parts/expert_weights.h"

enum { X_UP, DY_UP, X_DOWN, DY_DOWN, OFFSETS };

bool ax_moe_waits(const struct ax_layer *l, const struct ax_pass *p) {
    const struct ax_expert_matrices up = ax_expert_gate_up(l);
    return p->model->later && p->model->experts.ranks == 1 && !l->moe.quant &&
           ax_expert_has_gradient(l, p, &up);
}

static enum ax_status weights_later(struct ax_pass *p, const struct ax_later_product *a) {
    const struct ax_layer *l = a->of;
    const struct ax_expert_matrices up = ax_expert_gate_up(l), down = ax_expert_down(l);
    struct ax_mirror mirror = a->mirror;
    const struct ax_expert_rows outputs = {a->kept[X_DOWN], a->kept[DY_DOWN], a->kept[OFFSETS],
                                           &mirror, a->part};
    const struct ax_expert_rows inputs = {a->kept[X_UP], a->kept[DY_UP], a->kept[OFFSETS], &mirror,
                                          a->part};
    AX_TRY(ax_expert_weight_gradient(l, p, &down, &outputs, &outputs.x));
    return ax_expert_weight_gradient(l, p, &up, &inputs, &inputs.x);
}

struct ax_later_product ax_moe_put_off(const struct ax_layer *l, const struct ax_pass *p,
                                       const struct ax_expert_rows *inputs,
                                       const struct ax_tensor *act) {
    struct ax_later *later = p->model->later;
    return (struct ax_later_product){.unit = l->unit,
                                     .run = weights_later,
                                     .of = l,
                                     .part = inputs->part,
                                     .kept = {[X_UP] = ax_later_take(later, &inputs->x),
                                              [DY_UP] = ax_later_take(later, &inputs->y),
                                              [X_DOWN] = ax_later_take(later, act),
                                              [DY_DOWN] = ax_later_take(later, &inputs->x),
                                              [OFFSETS] = ax_later_take(later, &inputs->offsets)}};
}

/* Rows that are in use; others are skipped to save memory traffic. */
static enum ax_status copy_rows(const struct ax_pass *p, const struct ax_expert_part *part,
                                const struct ax_tensor *from, const struct ax_tensor *to) {
    return ax_run_copy(p->model->rt->q,
                       &(struct ax_copy){ax_tensor_rows(to, part->row, part->rows),
                                         ax_tensor_rows(from, part->row, part->rows)});
}

enum ax_status ax_moe_keep_outputs(const struct ax_pass *p, const struct ax_later_product *late,
                                   const struct ax_expert_part *part, const struct ax_tensor *d) {
    return copy_rows(p, part, d, &late->kept[DY_DOWN]);
}

/* The host's copy of the offsets stays with the slot until all that is put off is done. */
enum ax_status ax_moe_keep(const struct ax_pass *p, struct ax_later_product *late,
                           const struct ax_expert_rows *inputs, const struct ax_tensor *act) {
    const void *host;
    AX_TRY(ax_queue_mirrored(p->model->rt->q, inputs->mirror, inputs->offsets.data, &host));
    late->mirror =
        (struct ax_mirror){.device = host ? late->kept[OFFSETS].data : NULL, .host = host};
    AX_TRY(copy_rows(p, &late->part, &inputs->x, &late->kept[X_UP]));
    AX_TRY(copy_rows(p, &late->part, &inputs->y, &late->kept[DY_UP]));
    AX_TRY(copy_rows(p, &late->part, act, &late->kept[X_DOWN]));
    AX_TRY(ax_run_copy(p->model->rt->q, &(struct ax_copy){late->kept[OFFSETS], inputs->offsets}));
    return ax_later_add(p->model->later, late);
}
