/* The arguments of distillation's ops; notation: kernels/ops.h. */
#ifndef AX_KERNELS_DISTILL_OPS_H
#define AX_KERNELS_DISTILL_OPS_H

#include "kernels/scalars.h"
#include "kernels/tensor.h"

/* logits[t][ids[t][j] − first_col] = values[t][j], for the ids of this shard's columns; other ids,
 * such as −1, are skipped, and other columns stay. logits accumulation [T][V]; ids i32 [T][k], of
 * which equal ones in a row have equal values; values F32 [T][k]; both dense. */
struct ax_scatter_topk {
    struct ax_tensor logits, ids, values;
    int64_t first_col;
};

/* Distillation over part of the vocabulary, the support: tokens whose element of marks or of more is
 * above AX_TRUNCATED, as `truncate` leaves those that it keeps. more's data NULL: marks alone.
 *
 * support_logits: logits[t][c] = AX_TRUNCATED unless the token's being in the support is `inside`.
 * marks, more, logits accumulation [T][V]. */
struct ax_support_logits {
    struct ax_tensor marks, more, logits;
    bool inside;
};
/* tail_logits: teacher[t][c] of tokens outside the support = logits[t][c] + temperature·(teacher_tail[t]
 * − tail[t]), where the tails are lse of either model's logits / temperature over these tokens. The
 * teacher then divides its mass there among the tokens as the student does, so `divergence` and
 * `distill_backward` yield what they would if the tokens were one. teacher accumulation [T][V], tails
 * accumulation [T], the others as above. */
struct ax_tail_logits {
    struct ax_tensor marks, more, logits, tail, teacher_tail, teacher;
    double temperature;
};

/* Distillation: what a student's distribution s differs by from a teacher's t, per row. With
 * s = exp(logits·inv_temperature − lse), t the same of `teacher` and teacher_lse (which are of
 * logits·inv_temperature, too), and m = (1−β)·s + β·t (β = 0: s, β = 1: t),
 *   KL(t‖m) = Σ t·log(t/m);  KL(s‖m) = Σ s·log(s/m)
 *   D = β·KL(t‖m) + (1−β)·KL(s‖m); for β = 0 KL(t‖s), the forward one, and for β = 1 KL(s‖t)
 * (Agarwal et al. 2023, arXiv 2306.13649, with the ends as in TRL's GKDTrainer). log s and log t
 * count as at least AX_LOG_FLOOR, so that a token of probability 0 leaves everything finite; NaN stays.
 *
 * divergence: parts[t] = { KL(t‖m), KL(s‖m) } over this shard's columns. logits, teacher compute or
 * accumulation [T][V], of one dtype; lse, teacher_lse accumulation [T]; parts accumulation [T][2]. */
#define AX_LOG_FLOOR (-1024.0)
struct ax_divergence {
    struct ax_tensor logits, teacher, lse, teacher_lse, parts;
    double beta, inv_temperature;
};
/* The sums over S shards: parts accumulation [S][T][2] → divergence = D and student_kl = KL(s‖m),
 * accumulation [T]. */
struct ax_divergence_merge {
    struct ax_tensor parts, divergence, student_kl;
    double beta;
};
/* With w = weight·inv_weight, 0 for rows without a label, a = divergence_weight, c = nll_weight:
 *   scalars->loss += Σ w·(a·divergence − c·logprob);  g_logprob = −c·w;  g_divergence = a·w
 *   measures: 0 is the mean of divergence over the weights, 1 that of −logprob; NULL = not requested;
 *   2 that of entropy, unless its data is NULL
 * logprob, divergence, entropy, g_* accumulation [T], weight F32 [T], labels i32 [T]; summed in a fixed order. */
struct ax_distill_loss {
    struct ax_tensor logprob, divergence, labels, weight, g_logprob, g_divergence;
    double divergence_weight, nll_weight;
    struct ax_step_scalars AX_DEVICE *scalars;
    struct ax_step_measures AX_DEVICE *measures;
    struct ax_tensor entropy;
};
/* Gradient of Σ_t (g_logprob·logprob + g_divergence·D) with respect to the student's logits, with
 * p = exp(logits − nll_lse), as logprob has no temperature:
 *   dlogits = g_logprob·(onehot − p) + g_divergence·inv_temperature·dz
 *   dz = s − t (β = 0);  s·(log(s/t) − student_kl) (β = 1);
 *        (1−β)·s·(log(s/m) − student_kl) else
 * dlogits compute or accumulation, may be logits, or over them (ax_tensor_over). labels as in
 * softmax_backward; rows without one: g_logprob counts as 0. */
struct ax_distill_backward {
    struct ax_tensor logits, teacher, labels, nll_lse, lse, teacher_lse, student_kl, g_logprob,
        g_divergence, dlogits;
    int64_t first_col;
    double beta, inv_temperature;
};

#endif
