/* Finds a rank that delays the others: one whose steps took longer than 4/3 of the median of its
 * peers' over the last AX_SLOW_STEPS steps, by half a second in total. Peers are the ranks of one
 * pipeline stage, which compute the same layers. */
#ifndef AX_OPTIM_METRICS_SLOW_RANKS_H
#define AX_OPTIM_METRICS_SLOW_RANKS_H

#include <stdint.h>

#include "base/status.h"

enum { AX_SLOW_STEPS = 20 };

struct ax_slow_ranks {
    int world, peers; /* peers: ranks per stage, which are contiguous */
    double *seconds;  /* [AX_SLOW_STEPS][world], by step modulo AX_SLOW_STEPS */
    double *sorted;   /* [peers − 1] */
    int64_t steps;
    int told; /* the rank found last, until it is as fast as its peers again; −1: none */
};

/* Safe to free when zeroed. */
enum ax_status ax_slow_ranks_create(struct ax_slow_ranks *s, int world, int stages);
void ax_slow_ranks_free(struct ax_slow_ranks *s);
/* Call after a step with the seconds that each rank computed, waits excluded. Returns a rank that
 * has become slow, with the mean seconds of its steps and its peers' median, or −1. */
int ax_slow_ranks_note(struct ax_slow_ranks *s, const double *seconds, double *its, double *median);

#endif
