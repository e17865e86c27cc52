/* The links of another machine in miniature, for the delay fabric: so that a small step here has compute : bytes :
 * latency as a step there, of the same model or a larger one.
 *
 *   slower    seconds that a rank of the small step computes here / of the other step there, by its plan
 *   smaller   bytes that it sends / of the other step
 *   link      latency · slower, bytes per second · smaller / slower */
#ifndef AX_TESTS_DOUBLES_SCALED_LINK_H
#define AX_TESTS_DOUBLES_SCALED_LINK_H

#include "optim/plan/plan_time.h"
#include "tests/doubles/delay.h"

struct ax_scaled_link {
    /* between GPUs of a node, with the latency of a gather of all ranks */
    struct ax_delay_link link;
    double slower, smaller;
};
struct ax_scaled_step {
    const struct ax_arch *arch;
    const struct ax_step_options *o;
};
/* hardware: a name of hardware.h's table. `seconds`: of the step `here` without waits. Both steps are of ro's
 * mesh. */
enum ax_status ax_scaled_link(struct ax_scaled_link *out, const char *hardware,
                              const struct ax_runtime_options *ro,
                              const struct ax_scaled_step *here, double seconds,
                              const struct ax_scaled_step *there);

#endif
