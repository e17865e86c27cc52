/* Collectives with known answers, for any fabric: shared by the tests of local and gloo. */
#ifndef AX_TESTS_COMM_CASES_H
#define AX_TESTS_COMM_CASES_H

#include "parallel/fabric.h"

/* Opens a communicator over all ranks of the fabric, runs all of the cases, closes it. What is
 * wrong is told by AX_ERR_FAILED. ctx is not used: it is an ax_local_body. */
enum ax_status comm_cases_run(struct ax_fabric *f, void *ctx);
/* World ranks 0 … n−1 as one group. */
enum ax_status comm_cases_open(struct ax_fabric *f, enum ax_role role, struct ax_comm *c);
/* Sums of values whose order shows, as bytes into out[64]. */
enum ax_status comm_cases_ordered_sum(struct ax_comm *c, unsigned char *out);

/* In functions that return a status. */
#define ENSURE(what)                                                                               \
    do {                                                                                           \
        if (!(what))                                                                               \
            return ax_error(AX_ERR_FAILED, "%s:%d: %s", __FILE__, __LINE__, #what);                \
    } while (0)

#endif
