/* A fabric whose transfers take time: any fabric of the host, whose data arrive when a link of the given
 * latency and speed would have brought them. What ranks compute takes as long as it does.
 *
 *   a transfer begins   when all that take part have started it, and its way is free
 *   it arrives          bytes / bytes_per_second + latency later; its way is free a latency earlier
 *
 * Ways are the collectives of a communicator, and the messages of each pair of its ranks, one direction
 * each. Bytes are the most that a rank sends (ax_comm_ideal_bytes).
 *
 * On the clock, ranks compute at the same time: it needs a core for each. With turns, they compute one
 * after another, and each has a clock of its own (ax_delay_now): what its thread computed, and what it
 * waited for transfers. So any number of ranks is timed on one core, whatever else runs there. */
#ifndef AX_TESTS_DOUBLES_DELAY_H
#define AX_TESTS_DOUBLES_DELAY_H

#include <pthread.h>

#include "parallel/fabric/comm_local.h"

struct ax_delay_link {
    double latency;          /* seconds */
    double bytes_per_second; /* 0 = unlimited */
};

struct ax_delay_options {
    struct ax_delay_link link;
    /* NULL: on the clock, which all ranks share. Else shared by ranks that are threads of one process and
     * whose ops run in that thread (one thread per rank). */
    pthread_mutex_t *turns;
    /* With turns: seconds that the calling thread has computed. NULL: its processor time. */
    double (*computed)(void);
};

/* `inner` and `o` must outlive it; freeing it does not free them. With turns, the calling thread has the
 * turn until it waits for a transfer or frees the fabric, and no communicator may be apart
 * (AX_ERR_UNSUPPORTED). On the clock, those that are apart are not delayed. */
enum ax_status ax_delay_open(struct ax_fabric *f, struct ax_fabric *inner,
                             const struct ax_delay_options *o);
/* Seconds of this rank's clock. */
double ax_delay_now(const struct ax_fabric *f);
/* Seconds of it that the rank waited for transfers of a role. */
double ax_delay_exposed(const struct ax_fabric *f, enum ax_role role);

/* ax_local_run, with a delayed fabric for each body; `turns`: see above. */
enum ax_status ax_delay_run(int world, struct ax_delay_link link, bool turns, ax_local_body body,
                            void *ctx);
/* In the mode of turns, on clocks that `computed` advances (see above). */
enum ax_status ax_delay_run_told(int world, struct ax_delay_link link, double (*computed)(void),
                                 ax_local_body body, void *ctx);

#endif
