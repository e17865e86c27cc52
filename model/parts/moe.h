/* A mixture of experts in steps, so that something else can compute while rows travel between ranks
 * (shared_expert.c).
 *
 * Rows of a round go to their experts in two parts (parallel/units/expert.h):
 *
 *   part 0  | travels → experts → travels
 *   part 1  | travels ─────────→ experts → travels
 *
 * Work between begin and compute hides the first transfer, work between compute and end the last.
 * In a group of one nothing travels. */
#ifndef AX_MODEL_PARTS_MOE_H
#define AX_MODEL_PARTS_MOE_H

#include "model/core/pass.h"

struct ax_builder;

/* A round on its way through a layer. Its tensors are scratch, which lives until the caller
 * releases its mark. */
struct ax_moe_flight {
    struct ax_expert_transfer transfer;
    bool rows, gate_up, act, results; /* forward: which tensors have to be computed */
    struct ax_tensor here;            /* results on the ranks of the experts */
    /* backward: the rows' gradients, sorted; on the ranks of the experts */
    struct ax_tensor sorted, d;
    struct ax_tensor dweights;
};

/* As ax_part_type's forward: out = Σ of the experts [+ x], or NULL. */
enum ax_status ax_moe_begin(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                            const struct ax_tensor *h, struct ax_moe_flight *f);
/* The router's decision, if it is not made, where it is made on other rows than the experts get. */
enum ax_status ax_moe_choose(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                             const struct ax_tensor *h);
enum ax_status ax_moe_compute(const struct ax_layer *l, struct ax_pass *p, const struct ax_saved *s,
                              struct ax_moe_flight *f);
enum ax_status ax_moe_end(const struct ax_layer *l, struct ax_pass *p, struct ax_saved *s,
                          struct ax_moe_flight *f, const struct ax_tensor *x,
                          const struct ax_tensor *out);

/* As ax_part_type's backward; work between the two hides the first transfer, and gradients of
 * matrices hide the last. */
enum ax_status ax_moe_backward_begin(const struct ax_layer *l, struct ax_pass *p,
                                     const struct ax_saved *s, const struct ax_tensor *dy,
                                     struct ax_moe_flight *f);
enum ax_status ax_moe_backward_end(const struct ax_layer *l, struct ax_pass *p,
                                   const struct ax_saved *s, const struct ax_tensor *h,
                                   const struct ax_tensor *dh, struct ax_moe_flight *f);
/* The two halves of _end: dh = the gradient of the experts' rows; dh += that of the router's, the same or others. */
enum ax_status ax_moe_backward_rows(const struct ax_layer *l, struct ax_pass *p,
                                    const struct ax_saved *s, const struct ax_tensor *h,
                                    const struct ax_tensor *dh, struct ax_moe_flight *f);
enum ax_status ax_moe_backward_router(const struct ax_layer *l, struct ax_pass *p,
                                      const struct ax_saved *s, const struct ax_tensor *h,
                                      const struct ax_tensor *dh, const struct ax_moe_flight *f);

#endif
