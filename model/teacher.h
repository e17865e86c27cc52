/* The teacher of a distillation: a frozen model beside the student, in the same runtime, mesh and
 * plan, with the same compute dtype. It reads a micro-batch in one forward pass, which leaves its
 * normed final states; the head computes their logits chunk by chunk (parts/head.h). Its layers and
 * width are free; where it reads the student's batches, it must have the student's vocabulary. It may
 * have an adapter, and a base that is the student's, which then has its weights once. */
#ifndef AX_MODEL_TEACHER_H
#define AX_MODEL_TEACHER_H

#include "model/parts/head.h"
#include "model/pass.h"

struct ax_teacher_options {
    const struct ax_arch *arch;
    int64_t max_positions;
    const struct ax_peft_config *adapter; /* NULL: none */
    /* the student stays on this base: frozen weights are read from it, in its storage */
    bool on_base;
    enum ax_storage base_store; /* the student's */
    bool store_experts;
    const struct ax_hf *coded;
};

/* For a teacher that reads the student's batches: AX_ERR_CONFIG if its vocabulary has another size than the student's,
 * AX_ERR_UNSUPPORTED if it attends within other chunks. */
enum ax_status ax_teacher_check(const struct ax_arch *teacher, const struct ax_arch *student);
enum ax_status ax_teacher_create(struct ax_teacher *t, const struct ax_teacher_options *o,
                                 const struct ax_model *student);
void ax_teacher_free(struct ax_teacher *t);

/* Memory for the states of up to T tokens of this rank. */
struct ax_teacher_states ax_teacher_take(struct ax_teacher *t, struct ax_stack *stack, int64_t T);
/* A forward pass of all ranks together, on the arena's first slot, in its eval phase. */
enum ax_status ax_teacher_read(const struct ax_teacher_states *s, struct ax_batch *batch);

#endif
