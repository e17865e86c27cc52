/* `axtrain check self`: what docs/determinism.md promises, on this machine and with this build.
 *
 * Needs no files: a small model with random weights, made-up documents. Each line compares two ways
 * to compute the same numbers; the promise is the same bits, or a tolerance.
 *
 * Reading order: cmd/check/self.c (the command and its table), self_lines.c (training steps, forward passes,
 * generation, a run and its checkpoint), self_ops.c (every op, and meshes of ranks). */
#ifndef AX_OPTIM_CHECK_SELF_H
#define AX_OPTIM_CHECK_SELF_H

#include <jansson.h>

#include "model/arch/arch.h"
#include "parallel/runtime.h"

struct ax_self {
    /* backend and dtype to check */
    const char *backend;
    enum ax_dtype dtype;
    int threads; /* ≥ 2, to be compared with one */
    /* the backend promises that a row's bits depend on no other row, and not on threads */
    bool by_row;
    struct ax_arch dense, experts;
    json_t *config; /* config.json of `dense` */

    /* A line: `figure` is compared with `tolerance`; NaN counts as infinite. `where` ("" = nowhere in
     * particular) is where it failed. */
    void (*note)(struct ax_self *s, const char *name, const char *compared, double figure,
                 double tolerance, const char *where);
    void (*skip)(struct ax_self *s, const char *name, const char *why);

    int passed, failed, skipped;
    double since; /* when the last line was printed */
};

/* ---- lines ---- */

enum ax_status ax_self_threads(struct ax_self *s);
enum ax_status ax_self_recompute(struct ax_self *s);
enum ax_status ax_self_accumulation(struct ax_self *s);
enum ax_status ax_self_packed(struct ax_self *s);
enum ax_status ax_self_generation(struct ax_self *s);
enum ax_status ax_self_resume(struct ax_self *s);
enum ax_status ax_self_meshes(struct ax_self *s);
enum ax_status ax_self_ops(struct ax_self *s);

#endif
