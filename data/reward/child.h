/* A child process that is asked one line and answers one line, and may die, hang, flood or talk
 * nonsense: nobody waits longer than the given time, and nothing that it writes fills memory.
 *
 * Questions arrive at its standard input, answers are read from its standard output. What it writes
 * to standard error becomes lines of the log, a few per question. It has no other descriptor of
 * ours, a process group of its own, and blocks SIGINT, SIGTERM and SIGUSR1, which are meant for the
 * run. At the end of the run, however it comes, its standard input ends. Private to data/reward/. */
#ifndef AX_DATA_REWARD_CHILD_H
#define AX_DATA_REWARD_CHILD_H

#include <sys/types.h>

#include "base/mem.h"
#include "data/reward/function.h"

#define AX_REWARD_LOG_LINES 20 /* most lines of the log per question */

struct ax_reward_child {
    pid_t pid;            /* 0: none */
    int to, from, errors; /* its stdin, stdout, stderr; -1: closed */
    struct ax_buf line;   /* the answer, without its newline */
    uint64_t starts;      /* how often it was started */
    char said[512];       /* the beginning of a line of stderr */
    size_t n_said, lines; /* lines of stderr since the question */
};

/* argv[0] is looked up in PATH. AX_ERR_CONFIG if it cannot be run. */
enum ax_status ax_reward_child_start(struct ax_reward_child *c, const char *const *argv);

/* One question, complete with its newline. */
struct ax_reward_question {
    const char *who; /* prefix of its lines in the log */
    const char *text;
    size_t n, max_answer; /* bytes */
    double seconds;
};
/* The answer is in c->line, unless the outcome is a failure: then the child is gone. */
enum ax_status ax_reward_child_ask(struct ax_reward_child *c, const struct ax_reward_question *q,
                                   struct ax_reward_outcome *outcome);

/* Ends it, and frees everything but `starts`: kills it if it is not gone after `seconds`. `who` as
 * above. */
void ax_reward_child_end(struct ax_reward_child *c, const char *who, double seconds);

#endif
