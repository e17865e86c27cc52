/* Parts of the optimizer check: optim.c runs the cases of optim.json; optim_parts.c
 * checks clipping, Newton–Schulz and the 8-bit moments. */
#ifndef TESTS_GOLDENS_OPTIM_H
#define TESTS_GOLDENS_OPTIM_H

#include "tests/goldens/golden.h"
#include "parallel/runtime.h"

#define AX_GOLDEN_OPTIM_TOLERANCE 1e-6

/* n elements for the duration of the check; filled from doubles, except while planning. */
struct ax_tensor ax_golden_take(struct ax_runtime *rt, enum ax_dtype dtype, int64_t n);
enum ax_status ax_golden_put(struct ax_runtime *rt, const struct ax_tensor *dst, const double *v);

struct ax_golden_clip {
    struct ax_golden_report *report;
    const struct ax_safetensors *st;
    enum ax_dtype dtype;
    const char *name;
    double max_norm, norm; /* norm: the expected one */
};
enum ax_status ax_golden_clip_run(struct ax_golden_clip *c, struct ax_json v,
                                  const struct ax_runtime_options *ro);
enum ax_status ax_golden_newton_schulz(struct ax_golden_report *r, const struct ax_safetensors *st,
                                       const struct ax_runtime_options *ro, enum ax_dtype dtype);
/* adamw8bit.safetensors in dir; `settings` is its entry in optim.json. Reported if missing. */
enum ax_status ax_golden_adamw_8bit(struct ax_golden_report *r, const char *dir,
                                    struct ax_json settings, const struct ax_runtime_options *ro,
                                    enum ax_dtype dtype);

#endif
