/* The worker as its owner sees it: a process, and a socket to each of its threads. */
#ifndef AX_DATA_REWARD_SANDBOX_PROCESS_H
#define AX_DATA_REWARD_SANDBOX_PROCESS_H

#include <sys/types.h>

#include "data/reward/sandbox/sandbox.h"

struct ax_sandbox_process {
    pid_t pid; /* 0: none */
    int sockets[AX_SANDBOX_MAX_THREADS];
    int n;
    char *module; /* path of the compiled interpreter */
};

/* Sees to it that the compiled interpreter is in the cache. Takes seconds if it is not. */
enum ax_status ax_sandbox_process_prepare(struct ax_sandbox_process *p,
                                          const struct ax_sandbox_options *o);
/* Starts the worker, and waits until it is ready. */
enum ax_status ax_sandbox_process_start(struct ax_sandbox_process *p,
                                        const struct ax_sandbox_options *o);
/* Kills it, if it is there; returns how it ended (waitpid's status). */
int ax_sandbox_process_end(struct ax_sandbox_process *p);
void ax_sandbox_process_free(struct ax_sandbox_process *p);

#endif
