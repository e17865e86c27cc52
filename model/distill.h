/* The head's comparison with a teacher, for a chunk of rows at a time: the logits of both models exist
 * for one chunk only. With kd = divergence_weight, ce = nll_weight, T = temperature, the loss of a
 * token is kd·D + ce·(−log p), where D is the divergence of ops.h between the softmaxes of logits/T,
 * and p of the logits as they are. */
#ifndef AX_MODEL_DISTILL_H
#define AX_MODEL_DISTILL_H

#include "model/teacher.h"

struct ax_distill_options {
    double divergence_weight, nll_weight;
    double temperature; /* above 0 */
    double beta;        /* 0: forward KL; 1: reverse KL; between: of both from their mixture */
};

/* Of one chunk. */
struct ax_distill_chunk {
    struct ax_tensor hidden, logits;   /* the teacher's: compute [cap][D], accumulation [cap][V] */
    struct ax_tensor stats, parts;     /* accumulation [cap][…], of either model */
    struct ax_tensor lse, teacher_lse; /* accumulation [cap], of logits/T */
    struct ax_tensor divergence, student_kl; /* see ops.h */
    struct ax_tensor unused[2];              /* what softmax_merge returns besides */
};
void ax_distill_take(struct ax_distill_chunk *c, const struct ax_model *student,
                     const struct ax_teacher_states *teacher, struct ax_stack *stack, int64_t cap);

/* Rows of a micro-batch, and what the student says of them. */
struct ax_distill_rows {
    const struct ax_model *student;
    const struct ax_teacher_states *teacher; /* its head must be gathered */
    const struct ax_distill_options *o;
    struct ax_tensor rows, labels; /* i32 [n]: rows of the states */
    struct ax_tensor logits;       /* accumulation [n][V] */
};
/* The first n elements of divergence, student_kl, lse, teacher_lse and logits. */
enum ax_status ax_distill_compare(struct ax_distill_chunk *c, const struct ax_distill_rows *r);

/* The same for a chunk of the head: sets h->divergence. */
enum ax_status ax_distill_compare_rows(struct ax_pass *p, struct ax_distill_chunk *c,
                                       struct ax_head_chunk *h);
/* dlogits from h->g_logprob and h->g_divergence. */
enum ax_status ax_distill_gradient(struct ax_pass *p, const struct ax_distill_chunk *c,
                                   const struct ax_head_chunk *h, const struct ax_tensor *logits,
                                   const struct ax_tensor *dlogits);

#endif
