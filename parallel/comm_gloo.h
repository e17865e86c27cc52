/* Ranks as processes of one machine, over Gloo's TCP transport. The sums are made here, in rank
 * order, so that their bits are those of the local fabric. */
#ifndef AX_PARALLEL_COMM_GLOO_H
#define AX_PARALLEL_COMM_GLOO_H

#include "parallel/fabric.h"

/* Connects this process as `rank` of `world`. The processes find each other in `folder`: it exists,
 * and is new for every run. No wait is longer than `timeout` seconds. Free with f->ops->free.
 *
 * AX_ERR_PEER names the ranks that do not come. SIGPIPE is ignored from then on. Waits are taken in
 * the order of starts where all-reduces are under way together. */
enum ax_status ax_gloo_open(struct ax_fabric *f, const char *folder, int rank, int world,
                            double timeout);

#endif
