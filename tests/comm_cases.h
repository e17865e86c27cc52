/* Collectives with known answers, for any fabric: shared by the tests of local and gloo. */
#ifndef AX_TESTS_COMM_CASES_H
#define AX_TESTS_COMM_CASES_H

#include "parallel/fabric/fabric.h"

/* A queue whose calls are done immediately: collectives need no more of a queue. */
static __attribute__((unused)) struct ax_queue host_queue = {.ops = &ax_ops_ref};

/* The queue of this thread's cases; NULL: host_queue. */
extern _Thread_local struct ax_queue *comm_cases_queue;

/* Opens a communicator over all ranks of the fabric, runs all of the cases, closes it. What is
 * wrong is told by AX_ERR_FAILED. ctx is not used: it is an ax_local_body. */
enum ax_status comm_cases_run(struct ax_fabric *f, void *ctx);
/* World ranks 0 … n−1 as one group. */
enum ax_status comm_cases_open(struct ax_fabric *f, enum ax_role role, struct ax_comm *c);
/* A hash of the bits of sums and maxima of random numbers: this rank's results of reduce-scatters
 * and all-reduces. */
enum ax_status comm_cases_sum_bits(struct ax_comm *c, uint64_t *hash);

/* Rank 2 spoils a broadcast, a gather or a reduction among all ranks; what each error says. */
enum comm_deed {
    DEED_OTHER_COUNT,
    DEED_OTHER_TYPE,
    DEED_OTHER_KIND,
    DEED_OTHER_ROOT,
    DEED_OTHER_REDUCTION,
    DEED_SKIPS,
    DEED_SKIPS_LAST,
    DEED_SLEEPS,
    DEED_FAILS_ITSELF,
    DEED_LEAVES,
    DEED_NEVER_OPENS,
    DEED_DIES,
    DEED_COUNT
};
struct comm_fault {
    enum ax_status st;   /* of the whole run */
    const char *text[2]; /* in the errors of the others */
};
extern const struct comm_fault comm_faults[DEED_COUNT];
/* ctx is the enum comm_deed. DEED_SLEEPS: rank 2 is two seconds late. */
enum ax_status comm_cases_misbehave(struct ax_fabric *f, void *ctx);

/* The calls of parallel/fabric/team.h with known answers, beside collectives in another thread. */
enum ax_status team_cases_run(struct ax_fabric *f, void *ctx);
enum ax_status team_cases_alone(void);

/* In functions that return a status. */
#define ENSURE(what)                                                                               \
    do {                                                                                           \
        if (!(what))                                                                               \
            return ax_error(AX_ERR_FAILED, "%s:%d: %s", __FILE__, __LINE__, #what);                \
    } while (0)

#endif
