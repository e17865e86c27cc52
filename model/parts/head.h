/* The head: final norm, chunked logits, and the results computed from them. [T][V] is never
 * materialized. */
#ifndef AX_MODEL_PARTS_HEAD_H
#define AX_MODEL_PARTS_HEAD_H

#include "model/core/pass.h"

/* Rows per chunk: as many as keep the logits (accumulation dtype), and their states, within 64 MiB,
 * a multiple of 32; more if the backend wants larger chunks; at most T. */
int64_t ax_head_chunk_tokens(const struct ax_model *m, int64_t T);

/* The tensors that a pass keeps of the head: the normed state of this rank's rows, and in inference
 * of all rows. */
enum { AX_HEAD_NORMED, AX_HEAD_RSTD, AX_HEAD_ALL_NORMED, AX_HEAD_N_NORMED };

void ax_head_declare(const struct ax_pass *p, struct ax_frame *f);
/* x: the last residual. In training with a linear objective, leaves the gradient of the normed
 * hidden state in slot->grad; with any other objective, keeps logprob, lse and entropy of all rows
 * in the slot. */
enum ax_status ax_head_forward(struct ax_pass *p, struct ax_frame *f, const struct ax_tensor *x);
/* Leaves the gradient of x in slot->grad. */
enum ax_status ax_head_backward(struct ax_pass *p, struct ax_frame *f, const struct ax_tensor *x);

/* ---- logits ---- */

/* This rank's rows of the head's matrix as products read them: themselves, or their quantized
 * values, in scratch, if the model trains for a scheme with a head. The head's unit must be
 * gathered, here and below. */
enum ax_status ax_head_weight(const struct ax_model *m, struct ax_tensor *w);
/* logits = hidden·Wᵀ + bias, with the model's factor and softcap; w from ax_head_weight. rows:
 * index of each row in the sequence, for adapters; data NULL if not needed. */
enum ax_status ax_head_logits(struct ax_pass *p, const struct ax_tensor *w,
                              const struct ax_tensor *rows, const struct ax_tensor *hidden,
                              const struct ax_tensor *logits);
/* The normed state that inference keeps, [T][D]; and of this rank's rows, [T/tp][D]. */
const struct ax_tensor *ax_pass_final_hidden(const struct ax_pass *p);
const struct ax_tensor *ax_pass_own_hidden(const struct ax_pass *p);

/* Logits (accumulation [n][V]) of the given rows of the final hidden state. Gathers the head
 * unit. */
enum ax_status ax_pass_logits(struct ax_pass *p, int64_t first, int64_t n, struct ax_tensor *out);
/* The same for any rows: row i of `out` has the logits of row rows[i], computed as one GEMM. rows
 * i32 [n], device. `work`: compute, at least [n][D]. */
enum ax_status ax_pass_logits_of(struct ax_pass *p, const struct ax_tensor *rows,
                                 const struct ax_tensor *work, const struct ax_tensor *out);

/* The same of other normed states than those of the pass, [T/tp][D]. */
enum ax_status ax_pass_logits_from(struct ax_pass *p, const struct ax_tensor *normed,
                                   const struct ax_tensor *rows, const struct ax_tensor *work,
                                   const struct ax_tensor *out);

/* ---- a teacher ---- */

/* The head's comparison with a teacher, for a chunk of rows at a time: the logits of both models exist
 * for one chunk only. With kd = divergence_weight, ce = nll_weight, T = temperature, the loss of a
 * token is kd·D + ce·(−log p), where D is the divergence of distill_ops.h between the softmaxes of logits/T,
 * and p of the logits as they are.
 *
 * There may be no teacher, but K log-probs of each token stored with the data, taken at a temperature T1.
 * T1 times the log-probs are logits, up to a constant, and those of all other tokens AX_DISTILL_NEVER:
 * their softmax at T is p^(T1/T) of the K tokens, normalized. */

/* A teacher (model/teacher.h). */
struct ax_teacher {
    struct ax_model model;
    struct ax_slot slot; /* slot of its passes */
};
/* The teacher's states for one micro-batch. */
struct ax_teacher_states {
    struct ax_teacher *teacher;
    struct ax_tensor normed; /* compute [T][D of the teacher]; data NULL: not the head's stage */
};

/* Whose likeliest tokens a divergence over part of the vocabulary is over. By the divergence, as in TRL: forward
 * KL the teacher's, reverse KL the student's, a mixture those of either. */
enum ax_distill_support {
    AX_SUPPORT_AUTO,
    AX_SUPPORT_TEACHER,
    AX_SUPPORT_STUDENT,
    AX_SUPPORT_BOTH
};

struct ax_distill_options {
    double divergence_weight, nll_weight;
    double temperature; /* above 0 */
    /* 0: forward KL; 1: reverse KL; between: a mixture of both KLs, each from the mixed
     * distribution */
    double beta;
    /* K, the number of log-probs per token stored with the data, or asked for; 0 = there is a teacher */
    int stored;
    /* a server says the log-probs of the teacher's K likeliest tokens, the support, once a step's data are known */
    bool asked;
    bool entropy; /* entropies are measured */
    /* The divergence is over the likeliest tokens alone: top_k of them (0: all), or those whose mass is top_p
     * (0 or 1: all). With `tail`, all others count as one token more; without, both models' probabilities are
     * normalized over the support, which has no gradient. Of stored log-probs, only with those asked for */
    int64_t top_k;
    double top_p;
    bool tail;
    enum ax_distill_support support;
    /* columns of stored log-probs; set by the objective (optim/losses/distill.h) */
    struct ax_columns columns;
};

#define AX_DISTILL_STORED_MAX 256
/* Columns of stored log-probs, K wide: ids (−1: no token), and log-probs times the temperature at
 * which they were taken. With a tail, for those asked for: a token that is not among them, and the log of what they
 * leave to 1. */
enum { AX_DISTILL_IDS, AX_DISTILL_LOGITS, AX_DISTILL_TAIL_ID, AX_DISTILL_TAIL };
/* The logit of a token without probability: far below all others, and finite at any temperature. */
#define AX_DISTILL_NEVER (-1e30)

/* Gather and release the weights of a teacher's head, and the embedding if they are tied. */
enum ax_status ax_teacher_gather_head(struct ax_teacher *t);
void ax_teacher_release_head(struct ax_teacher *t);

/* Tensors for one chunk of rows. */
struct ax_distill_chunk {
    struct ax_tensor hidden, logits; /* the teacher's: compute [cap][D] (not of stored ones),
                                          accumulation [cap][V] */
    /* accumulation [cap][…]: softmax statistics, used for either model */
    struct ax_tensor stats, parts;
    struct ax_tensor lse, teacher_lse;       /* accumulation [cap], of logits/T */
    struct ax_tensor divergence, student_kl; /* see distill_ops.h */
    /* accumulation [cap]: the student's, at the divergence's temperature; the first is not used */
    struct ax_tensor logprob, entropy;
    /* the support: i32 [cap], accumulation [cap][V] (distill_ops.h), and [cap]; `more` only with tokens
     * of both models, `rest` and the tails only with a tail */
    struct ax_tensor unlabeled, marks, more, rest, tail, teacher_tail;
};
/* teacher NULL: log-probs are stored. */
void ax_distill_take(struct ax_distill_chunk *c, const struct ax_distill_options *o,
                     const struct ax_model *student, const struct ax_teacher_states *teacher,
                     struct ax_stack *stack, int64_t cap);

/* Stored log-probs of rows [first, first + n) of the batch's `rows`; data NULL if none are
 * stored. */
struct ax_distill_stored {
    struct ax_tensor ids, logits;   /* i32, F32 [n][K] */
    struct ax_tensor tail_id, tail; /* i32, F32 [n][1]; data NULL: none */
};
struct ax_distill_stored ax_distill_stored_rows(const struct ax_distill_options *o,
                                                const struct ax_batch *batch, int64_t first,
                                                int64_t n);

/* Rows of a micro-batch, and the student's logits of them. */
struct ax_distill_rows {
    const struct ax_model *student;
    /* its head must be gathered; NULL: log-probs are stored */
    const struct ax_teacher_states *teacher;
    const struct ax_distill_options *o;
    struct ax_tensor rows, labels; /* i32 [n]: rows of the states */
    struct ax_tensor
        logits; /* accumulation [n][V]; those outside a support without tail get lost */
    struct ax_distill_stored stored;
};
/* Computes the first n elements of divergence, student_kl, entropy, lse, teacher_lse and logits. */
enum ax_status ax_distill_compare(struct ax_distill_chunk *c, const struct ax_distill_rows *r);

#endif
