/* Starts the ranks of a job on this host, each a process, serves their store, and watches them from start to end. */
#ifndef AX_PARALLEL_JOB_LAUNCH_H
#define AX_PARALLEL_JOB_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/log.h"
#include "base/mem.h"

#define AX_LAUNCH_TIMEOUT 600 /* seconds for all ranks to join, if nobody says */

struct ax_launch_options {
    int ranks;               /* on this host */
    int hosts, host;         /* each has a launcher of its own, numbered from 0 */
    const char *master_addr; /* address of host 0; NULL, or all interfaces: loopback, on one host */
    int master_port;         /* port of host 0's store; 0: any, on one host */
    int restarts;            /* how often to start the job again after losing a rank */
    int spares;              /* devices that take the place of those of lost ranks, if elastic */
    bool all_output;         /* every rank's lines, prefixed; else rank 0's as they are */
    double timeout;          /* seconds for all ranks to join */
    char **command;          /* words of the subcommand, NULL-terminated */
    bool trains;             /* the subcommand trains, and may be elastic */
};

/* Runs the job. Returns the status that its first failing rank exited with, and one line that names
 * it. AX_ERR_PEER: killed by a signal. SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are passed on to
 * the ranks, which live no longer than this process. */
enum ax_status ax_launch_run(const struct ax_launch_options *o);

/* ---- private ---- */

/* One of a rank's two output streams. */
struct ax_launch_stream {
    int fd, target; /* −1: closed; target −1: the last lines are held */
    size_t len, n_held;
    char line[AX_LOG_LINE + 1], held[4 * AX_LOG_LINE];
};
/* Reads what there is, and prints complete lines. False when the stream has ended. */
bool ax_launch_stream_read(struct ax_launch_stream *s, int rank);
/* Prints the lines held, if any. */
void ax_launch_stream_tell(struct ax_launch_stream *s, int rank);

struct ax_launch_rank {
    int rank, local_rank;
    int place;          /* number of its device on this host */
    pid_t pid;          /* 0: not running */
    bool in_group;      /* the launcher's: the terminal's signals reach it by themselves */
    bool ended, killed; /* killed: by us */
    int stopped;        /* the signal by which it is stopped; 0: it runs */
    int status;         /* as returned by wait4 */
    uint64_t memory;    /* the ended process's peak resident memory, in bytes */
    double ended_at;
    struct ax_launch_stream streams[2]; /* stdout, stderr */
};
/* What the ranks of one attempt inherit. */
struct ax_launch_attempt {
    int port;    /* port of the store */
    int restart; /* how often the job has been started again */
    int token_fd, progress_fd;
    const char *words;  /* added to the command, after those of the attempt before */
    const char *memory; /* folder for an elastic job's state; NULL: none */
};

/* True in a rank, for which ax_launch_run has blocked what ax_stop_block does. */
bool ax_launch_started_this(void);

#endif
