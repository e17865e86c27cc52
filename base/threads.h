/* Threads: a joinable worker, conditions, and how many CPUs this process may use.
 *
 * pthreads carry long-lived work (ranks in one process, loaders, writers); OpenMP is for loops
 * inside kernels, not here. */
#ifndef AX_BASE_THREADS_H
#define AX_BASE_THREADS_H

#include <pthread.h>
#include <stdbool.h>

#include "base/status.h"

/* The smallest of those present, ≥ 1: cores by affinity mask (two threads of one core share its
 * arithmetic; OMP_NUM_THREADS may ask for both), cgroup quota (rounded up), SLURM_CPUS_PER_TASK and
 * OMP_NUM_THREADS. */
int ax_cpu_count(void);

struct ax_worker {
    pthread_t thread;
    enum ax_status (*run)(void *arg);
    void *arg;
    struct ax_error_record error;
    int started;
};
enum ax_status ax_worker_start(struct ax_worker *w, enum ax_status (*run)(void *), void *arg);
/* Joins and returns the worker's status, its error text becoming this thread's. */
enum ax_status ax_worker_join(struct ax_worker *w);

/* A condition for ax_cond_wait_until. */
void ax_cond_init(pthread_cond_t *c);
/* False if `until`, on ax_clock_now's clock, passes before the condition is signaled. May wake up early, as
 * pthread_cond_wait does. */
bool ax_cond_wait_until(pthread_cond_t *c, pthread_mutex_t *lock, double until);

#endif
