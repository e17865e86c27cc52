/* A process that is asked one line and answers one line, and may die, hang, flood or talk nonsense: nobody waits
 * longer than the given time, and nothing that it writes fills memory. For functions of the user: rewards and tools.
 *
 * Questions arrive at its standard input, answers are read from its standard output. What it writes
 * to standard error becomes lines of the log, a few per question. It has no other descriptor of
 * ours, a process group of its own, and blocks SIGINT, SIGTERM and SIGUSR1, which are meant for the
 * run. Its parent is a keeper, which ends as it does. At the end of the run, however it comes, its
 * standard input ends, and the keeper kills it with all that it has started. */
#ifndef AX_DATA_REWARD_CHILD_H
#define AX_DATA_REWARD_CHILD_H

#include <sys/types.h>

#include "base/mem.h"
#include "data/reward/function.h"

#define AX_CHILD_LINES       20  /* most lines of the log per question */
#define AX_CHILD_END_SECONDS 3.0 /* for what Python does at its exit */

struct ax_child {
    const char *what;     /* prefix of its lines in the log: "rewards" */
    char *const *envp;    /* its environment; NULL: ours; borrowed */
    pid_t pid;            /* its keeper's; 0: none */
    int to, from, errors; /* its stdin, stdout, stderr; -1: closed */
    int control;          /* the keeper's */
    struct ax_buf line;   /* the answer, without its newline */
    uint64_t starts;      /* how often it was started */
    char said[512];       /* the beginning of a line of stderr */
    size_t n_said, lines; /* lines of stderr since the question */
};

/* argv[0] is the keeper's, argv[2] is looked up in PATH. `program`: this executable. AX_ERR_CONFIG if it
 * cannot be run. */
enum ax_status ax_child_start(struct ax_child *c, const char *program, const char *const *argv);
/* The user's Python, which expects python.py before its first question. */
enum ax_status ax_child_start_python(struct ax_child *c, const char *program, const char *python);
enum ax_status ax_child_put_script(struct ax_buf *out);
/* Ends its input, at which it ends by itself: for several that are then waited for one after the other. */
void ax_child_end_input(struct ax_child *c);
/* Ends it, and frees everything but what it is started with and `starts`: kills it if it is not gone after
 * `seconds`. */
void ax_child_end(struct ax_child *c, const char *who, double seconds);

/* One question, complete with its newline. */
struct ax_question {
    const char *who; /* in the log, after `what` */
    const char *text;
    size_t n, max_answer; /* bytes */
    double seconds;
    struct ax_watch *watch; /* NULL: none */
};
/* The answer is in c->line, unless the outcome is a failure, or the status an error: then the child is
 * gone. Whoever is asked by the watch may take a while: what has come by then is in time. */
enum ax_status ax_child_ask(struct ax_child *c, const struct ax_question *q,
                            struct ax_reward_outcome *outcome);

#endif
