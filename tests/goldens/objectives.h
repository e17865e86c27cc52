/* Shared by the checks of objectives/: objectives.c (entropy), cross_entropy.c,
 * documents.c, classifiers.c, policy.c and ppo.c. */
#ifndef TESTS_GOLDENS_OBJECTIVES_H
#define TESTS_GOLDENS_OBJECTIVES_H

#include "tests/goldens/golden.h"
#include "parallel/runtime.h"

#define AX_GOLDEN_OBJECTIVE_TOLERANCE 1e-5 /* relative, or 1e-7 absolute if larger */
/* Of entropies and gradients relative to the largest element: some roundings of float32. Where a sum
 * loses the digits of a row that is almost certain, the error is 6e-6 and more. */
#define AX_GOLDEN_TENSOR_TOLERANCE 2e-6

/* Memory for the duration of the check: [rows][cols], or [n]. */
struct ax_tensor ax_golden_rows(struct ax_runtime *rt, enum ax_dtype dtype, int64_t rows,
                                int64_t cols);
struct ax_tensor ax_golden_row(struct ax_runtime *rt, enum ax_dtype dtype, int64_t n);
/* Records |got − want| relative to the largest element of the golden tensor `name`. */
enum ax_status ax_golden_compare(struct ax_golden_report *r, const struct ax_safetensors *st,
                                 const char *name, struct ax_queue *q, const struct ax_tensor *got);

/* cross_entropy.json and .safetensors in dir; false if missing. */
bool ax_golden_cross_entropy(struct ax_golden_report *r, const char *dir,
                             const struct ax_golden_options *o);

/* Runs the cases of DIR/NAME.json (`root`), whose tensors are in DIR/NAME.safetensors; false if they
 * are not there. A recorded run has files of the same names, but no `cases`. */
typedef enum ax_status ax_golden_cases(struct ax_golden_report *r, const char *tensors,
                                       struct ax_json root, const struct ax_golden_options *o,
                                       const void *ctx);
bool ax_golden_objective(struct ax_golden_report *r, const char *dir, const char *name,
                         const struct ax_golden_options *o, ax_golden_cases *run, const void *ctx);
/* dpo, orpo, cpo .json and .safetensors in dir. */
bool ax_golden_documents(struct ax_golden_report *r, const char *dir,
                         const struct ax_golden_options *o);
/* reward, prm, likewise. */
bool ax_golden_classifiers(struct ax_golden_report *r, const char *dir,
                           const struct ax_golden_options *o);
/* grpo, likewise. */
bool ax_golden_policies(struct ax_golden_report *r, const char *dir,
                        const struct ax_golden_options *o);
/* ppo, likewise. */
bool ax_golden_ppo(struct ax_golden_report *r, const char *dir, const struct ax_golden_options *o);

#endif
