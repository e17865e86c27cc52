/* Private to the local fabric: where threads meet.
 *
 * A collective is a meeting of a group's n ranks, a message one of two. Each rank puts down its
 * description and goes on; the last to come does the work for all, so that buffers may be shared
 * and sums have one order; attending waits until that is done. One lock guards a world; the work
 * itself is done outside it. */
#ifndef AX_PARALLEL_LOCAL_MEET_H
#define AX_PARALLEL_LOCAL_MEET_H

#include <pthread.h>

#include "parallel/comm_local.h"

struct ax_local_part {
    bool here;
    struct ax_collective what; /* its count arrays point into counts */
    int64_t *counts;           /* [2][n] */
};

struct ax_local_key {
    uint64_t number; /* of the group's collectives, or of the messages between two; from 1 */
    int from, to;    /* coords in the group; −1 for a collective */
};

struct ax_local_meeting {
    struct ax_local_meeting *next;
    struct ax_local_key key;
    int n, arrived, left; /* parts; those that came; those that have not taken the result */
    bool moving, done;
    double due;                  /* the delay mode lets it end then */
    struct ax_local_part *parts; /* [n of the group]; a message has [0] its sender, [1] receiver */
    const void **inputs;         /* [n of the group] for the sums */
};

struct ax_local_group {
    struct ax_local_group *next;
    enum ax_role role;
    int n;
    int *ranks;            /* [n] world ranks by coord */
    bool *opened, *closed; /* [n] */
    double *free_at;       /* [n·n] when the link of a message is free; [0] for collectives */
    struct ax_local_meeting *open, *spare;
};

struct ax_local_world {
    struct ax_local_options options;
    int n;
    pthread_mutex_t lock;  /* of everything below */
    pthread_cond_t *woken; /* [n] each rank sleeps on its own */
    bool *ended;           /* [n] */
    bool failed;
    char failure[2048]; /* what every wait reports from then on */
    struct ax_local_group *groups;
};

enum ax_status ax_local_world_create(struct ax_local_world **w, int n,
                                     const struct ax_local_options *o);
void ax_local_world_free(struct ax_local_world *w);
/* The first failure stays; everybody wakes. */
void ax_local_world_fail(struct ax_local_world *w, const char *text);
/* The body of a rank has returned. */
void ax_local_world_end(struct ax_local_world *w, int rank);

/* The group that member `me` has not opened yet, made by whoever comes first. */
enum ax_status ax_local_group_open(struct ax_local_world *w, enum ax_role role, const int *ranks,
                                   int n, int me, struct ax_local_group **out);
void ax_local_group_close(struct ax_local_world *w, struct ax_local_group *g, int me);

/* Puts part i of a meeting down; the last part does the work before it returns. */
enum ax_status ax_local_join(struct ax_local_world *w, struct ax_local_group *g,
                             struct ax_local_key key, int i, const struct ax_collective *what,
                             struct ax_local_meeting **out);
/* Waits until the work is done, and takes part i back. AX_ERR_PEER: it will never be. */
enum ax_status ax_local_attend(struct ax_local_world *w, struct ax_local_group *g,
                               struct ax_local_meeting *m, int i);
/* Takes part i back, done or not: its buffers may go afterwards. */
void ax_local_withdraw(struct ax_local_world *w, struct ax_local_group *g,
                       struct ax_local_meeting *m, int i);

/* The work: all parts of a meeting are there (local_move.c). */
void ax_local_move(const struct ax_local_meeting *m);

#endif
