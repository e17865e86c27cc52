/* Private to the local fabric: rendezvous of threads.
 *
 * A collective is a rendezvous of a group's n ranks, a message one of two. Each rank records its
 * description and continues; the last one to arrive does the work for all, so buffers can be shared
 * and sums have one order; waiting blocks until the work is done. One lock guards a world; the work
 * itself happens outside it. */
#ifndef AX_PARALLEL_FABRIC_LOCAL_RENDEZVOUS_H
#define AX_PARALLEL_FABRIC_LOCAL_RENDEZVOUS_H

#include <pthread.h>

#include "parallel/fabric/comm_local.h"

struct ax_local_part {
    bool here;
    struct ax_collective what; /* its count arrays point into counts */
    int64_t *counts;           /* [2][n] */
};

struct ax_local_key {
    uint64_t number; /* counts the group's collectives, or the messages between two ranks; from 1 */
    int from, to;    /* coords in the group; −1 for a collective */
};

struct ax_local_rendezvous {
    struct ax_local_rendezvous *next;
    struct ax_local_key key;
    /* number of parts; of parts that arrived; of parts that have not yet taken the result */
    int n, arrived, left;
    bool moving, done;
    struct ax_local_part *parts; /* [n of the group]; a message has [0] its sender, [1] receiver */
    const void **inputs;         /* [n of the group] for the sums */
};

struct ax_local_group {
    struct ax_local_group *next;
    enum ax_role role;
    int n;
    int *ranks;            /* [n] world ranks by coord */
    bool *opened, *closed; /* [n] */
    struct ax_local_rendezvous *open, *spare;
};

struct ax_local_world {
    struct ax_local_options options;
    int n;
    pthread_mutex_t lock;  /* guards everything below */
    pthread_cond_t *woken; /* [n] each rank sleeps on its own */
    bool *ended;           /* [n] */
    bool failed;
    char failure[2048]; /* what every later wait reports */
    struct ax_local_group *groups;
};

enum ax_status ax_local_world_create(struct ax_local_world **w, int n,
                                     const struct ax_local_options *o);
void ax_local_world_free(struct ax_local_world *w);
/* Records the failure unless there is one already; wakes all ranks. */
void ax_local_world_fail(struct ax_local_world *w, const char *text);
/* The body of a rank has returned. */
void ax_local_world_end(struct ax_local_world *w, int rank);

/* The group that member `me` has not opened yet; the first member to arrive creates it. */
enum ax_status ax_local_group_open(struct ax_local_world *w, enum ax_role role, const int *ranks,
                                   int n, int me, struct ax_local_group **out);
void ax_local_group_close(struct ax_local_world *w, struct ax_local_group *g, int me);

/* Records part i of a rendezvous; the last part to arrive does the work before it returns. */
enum ax_status ax_local_arrive(struct ax_local_world *w, struct ax_local_group *g,
                               struct ax_local_key key, int i, const struct ax_collective *what,
                               struct ax_local_rendezvous **out);
/* Waits until the work is done and releases part i. AX_ERR_PEER: it will never be done. */
enum ax_status ax_local_wait(struct ax_local_world *w, struct ax_local_group *g,
                             struct ax_local_rendezvous *m, int i);
/* Releases part i, done or not: its buffers can be freed afterwards. */
void ax_local_cancel(struct ax_local_world *w, struct ax_local_group *g,
                     struct ax_local_rendezvous *m, int i);

/* The work, once all parts have arrived (local_move.c). */
void ax_local_move(const struct ax_local_rendezvous *m);

#endif
