/* The program replay compares our results with files from the reference implementations.
 *
 * Reading order: command.c (folders), golden.c (golden tensors) with digest.c, model.c (a model folder) with forward.c,
 * train.c, generate.c, lora.c; files.c (other golden files). */
#ifndef TESTS_GOLDENS_H
#define TESTS_GOLDENS_H

#include "base/text/json.h"
#include "ckpt/hf/safetensors.h"
#include "cmd/args/args.h"
#include "cmd/check/check.h"
#include "kernels/queue.h"

/* Records a missing file: reported, not failed, but a check is left out unless it is optional. */
void ax_golden_absent(struct ax_golden_report *r, const char *file, bool optional);
/* A check that could not run (prints its error text): failed. */
void ax_golden_error(struct ax_golden_report *r, const char *what);
struct ax_golden_options {
    const char *backend; /* see ax_check_backend */
    const char *dtype;   /* NULL: float32, plus bfloat16 if bf16.json exists; on ref float64 */
    int threads;
};

/* Each looks for its files in `dir` and returns whether it found any; figures go to the report. */
bool ax_golden_model(struct ax_golden_report *r, const char *dir,
                     const struct ax_golden_options *o);
bool ax_golden_lora(struct ax_golden_report *r, const char *dir, const struct ax_golden_options *o);
bool ax_golden_optim(struct ax_golden_report *r, const char *dir,
                     const struct ax_golden_options *o);
bool ax_golden_objectives(struct ax_golden_report *r, const char *dir,
                          const struct ax_golden_options *o);
bool ax_golden_sampling(struct ax_golden_report *r, const char *dir,
                        const struct ax_golden_options *o);
bool ax_golden_rope(struct ax_golden_report *r, const char *dir, const struct ax_golden_options *o);
bool ax_golden_packing(struct ax_golden_report *r, const char *dir,
                       const struct ax_golden_options *o);
bool ax_golden_formats(struct ax_golden_report *r, const char *dir,
                       const struct ax_golden_options *o);
bool ax_golden_qat(struct ax_golden_report *r, const char *dir, const struct ax_golden_options *o);
/* True for a folder of recorded training runs. */
bool ax_golden_has_runs(const char *dir);
bool ax_golden_runs(struct ax_golden_report *r, const char *dir, const struct ax_golden_options *o);
bool ax_golden_schedules(struct ax_golden_report *r, const char *dir,
                         const struct ax_golden_options *o);

enum golden_form { GOLDEN_FULL, GOLDEN_DIGESTED, GOLDEN_BY_ROW, GOLDEN_SAMPLED }; /* digest.h */

/* A golden tensor as doubles; owned. */
struct ax_golden_tensor {
    enum golden_form form;
    const char *name; /* borrowed from the file */
    int ndim;
    int64_t shape[AX_ST_MAX_DIMS], numel; /* of what it stands for; see golden_fits */
    double *v;                            /* [numel], or its digest */
};
/* In any form, or in full: AX_ERR_DATA if the file has but a digest. */
enum ax_status golden_read_form(const struct ax_safetensors *st, const char *name,
                                struct ax_golden_tensor *out);
enum ax_status ax_golden_read(const struct ax_safetensors *st, const char *name,
                              struct ax_golden_tensor *out);
/* Whether a tensor of n elements may be compared with it. A file of samples has no shapes: `t` then stands for n. */
bool golden_fits(struct ax_golden_tensor *t, int64_t n);
void ax_golden_tensor_free(struct ax_golden_tensor *t);

/* A tensor of a backend as doubles; owned. */
enum ax_status ax_golden_values(struct ax_queue *q, const struct ax_tensor *t, double **out);

/* The worse of two differences: the larger one, and a NaN rather than any number (fmax drops it). */
double ax_golden_worse(double a, double b);
/* max |a − b| */
double ax_golden_max_abs(const double *a, const double *b, int64_t n);

#endif
