/* Strangers: processes that know nothing of a job, and connect to every port that it listens on. */
#ifndef AX_TESTS_STRANGERS_H
#define AX_TESTS_STRANGERS_H

#include <sys/types.h>

/* Starts a process that looks for ports on which the `n` processes or their children listen, and
 * connects to each of them: it says nothing, sends megabytes of garbage, closes immediately, and does all of it many times.
 * It adds a line for each connection to the file at `path`, and ends by SIGKILL. Linux only. */
pid_t strangers_start(const pid_t *pids, int n, const char *path);

#endif
