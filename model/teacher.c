#include "model/teacher.h"

#include "model/parts/head.h"

enum ax_status ax_teacher_check(const struct ax_arch *teacher, const struct ax_arch *student) {
    const int64_t own = teacher->vocab_size, others = student->vocab_size;
    if (teacher->chunk > 0 && teacher->chunk != student->chunk)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "the teacher attends within chunks of %lld tokens and the model does not: "
                        "both read the same batches; use a teacher of the model's family",
                        (long long)teacher->chunk);
    if (own == others)
        return AX_OK;
    return ax_error(AX_ERR_CONFIG,
                    "the teacher has %lld tokens, the model %lld: distillation compares the two "
                    "distributions token by token, so both need the same vocabulary",
                    (long long)own, (long long)others);
}

enum ax_status ax_teacher_create(struct ax_teacher *t, const struct ax_teacher_options *o,
                                 const struct ax_model *student) {
    struct ax_runtime *rt = student->rt;
    struct ax_model_options mo = {
        .dtype = student->dtype, .max_positions = o->max_positions, .adapter = o->adapter};
    if (o->on_base) {
        mo.lender = student;
        mo.base_store = o->base_store;
        mo.store_experts = o->store_experts;
        mo.coded = o->coded;
    }
    const enum ax_status st = ax_model_create(&t->model, o->arch, rt, &mo);
    if (st != AX_OK)
        return ax_error_prefix(st, "the teacher");
    return ax_slot_create(&t->slot, &t->model, &rt->arena.slots[0]);
}

void ax_teacher_free(struct ax_teacher *t) {
    ax_slot_free(&t->slot);
    ax_model_free(&t->model);
}

struct ax_teacher_states ax_teacher_take(struct ax_teacher *t, struct ax_stack *stack, int64_t T) {
    const struct ax_model *m = &t->model;
    struct ax_teacher_states s = {.teacher = t,
                                  .normed = ax_tensor_2d(m->dtype, NULL, T, m->arch.hidden_size)};
    if (ax_model_has_head(m))
        s.normed = ax_stack_take(stack, "states of the teacher", s.normed);
    return s;
}

enum ax_status ax_teacher_read(const struct ax_teacher_states *s, struct ax_batch *batch) {
    struct ax_teacher *t = s->teacher;
    struct ax_pass p = {.model = &t->model,
                        .batch = batch,
                        .slot = &t->slot,
                        .recompute = AX_RECOMPUTE_INFERENCE,
                        .inv_temperature = 1};
    AX_TRY(ax_pass_begin(&p));
    AX_TRY(ax_pass_forward_all(&p));
    if (s->normed.data)
        AX_TRY(
            ax_run_copy(t->model.rt->q, &(struct ax_copy){ax_tensor_rows(&s->normed, 0, batch->T),
                                                          *ax_pass_final_hidden(&p)}));
    ax_pass_end(&p);
    return AX_OK;
}
