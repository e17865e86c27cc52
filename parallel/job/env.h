/* The place of this process among the ranks of a job, from environment variables of the launcher
 * that started it. */
#ifndef AX_PARALLEL_JOB_ENV_H
#define AX_PARALLEL_JOB_ENV_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

#define AX_ENV_MAX_WORLD 65536

struct ax_env {
    const char *launcher;   /* "axtrain launch", "torchrun", "Slurm" …; NULL: none, one rank */
    const char *world_name; /* the variable that `world` comes from; NULL: none */
    int rank, world;
    int local_rank, local_world; /* among the ranks of this host */
    int place; /* which of the host's devices: local_rank, unless devices of lost ranks are left out */
    char host[256];       /* where rank 0 is */
    char other_host[256]; /* another name of that host, if `host` does not resolve here; "": none */
    int port, ports;      /* the store listens on one of `ports` ports from `port` on */
    char job[128];        /* distinguishes jobs that use the same ports */
    bool served;          /* the launcher serves the store; else rank 0 does */
};

/* One rank if no launcher's variables are set. AX_ERR_CONFIG names the variable that is missing or
 * malformed, or the two that contradict each other. If one launcher runs inside another (torchrun
 * or `axtrain launch` in a Slurm job, mpirun in one), the inner one counts. */
enum ax_status ax_env_read(struct ax_env *e);

/* The first host of a Slurm node list: "n[07-09,12],m3" gives n07. */
void ax_env_first_host(const char *list, char *out, size_t size);
/* The number of tasks on the index-th node: "2(x3),1" gives 2, 2, 2, 1; 0 if it does not say. */
int ax_env_tasks_of_node(const char *tasks, int index);

#endif
