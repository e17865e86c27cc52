/* What a job's end says of its ranks' ends. The ranks are this program, which ends as its arguments say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "parallel/job/launch.h"

#define MOST_SECONDS 20

/* The exit code of a rank that got, or never got, the signal that asks it to stop. */
enum { STOPPED = 75, UNASKED = 99 };

static void await_usr1(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    const int got = sigtimedwait(&set, NULL, &(struct timespec){.tv_sec = MOST_SECONDS});
    _exit(got == SIGUSR1 ? STOPPED : UNASKED);
}

/* argv: "end", then a word for each rank: its exit code; "killed"; or "asked", which waits to be. */
static void be_rank(char **argv) {
    const char *how = argv[2 + atoi(getenv("RANK"))];
    if (strcmp(how, "killed") == 0)
        raise(SIGKILL);
    if (strcmp(how, "asked") == 0)
        await_usr1();
    _exit(atoi(how));
}

static const struct {
    const char *ranks[3];
    enum ax_status status;
    const char *says;
} ends[] = {
    {{"0", "0", "0"}, AX_OK, ""},
    /* one that was asked to stop asks the others, who may not wait for it */
    {{"75", "asked", "asked"},
     AX_SAVED_REQUEUE,
     "the ranks were asked to stop; run the same command again"},
    {{"asked", "0", "75"}, AX_SAVED_REQUEUE, "the ranks were asked to stop"},
    /* those that only noticed are not the cause */
    {{"4", "4", "2"}, AX_ERR_CONFIG, "rank 2 (process "},
    {{"4", "killed", "4"}, AX_ERR_PEER, "rank 1 (process "},
    {{"4", "75", "4"}, AX_SAVED_REQUEUE, "the ranks were asked to stop"},
    {{"75", "0", "3"}, AX_ERR_DATA, "rank 2 (process "},
    {{"130", "130", "130"}, AX_INTERRUPTED, "the ranks were interrupted"},
    {{"77", "0", "0"}, AX_ERR_FAILED, "rank 0 (process "}, /* a code of nobody's */
};

static void the_cause_is_named(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const char *const *r = ends[i].ranks;
        char *command[] = {(char *)(uintptr_t) "end", (char *)(uintptr_t)r[0],
                           (char *)(uintptr_t)r[1], (char *)(uintptr_t)r[2], NULL};
        const struct ax_launch_options o = {
            .ranks = 3, .hosts = 1, .timeout = MOST_SECONDS, .command = command};
        const enum ax_status st = ax_launch_run(&o);
        const char *text = st == AX_OK ? "" : ax_error_text();
        if (st != ends[i].status || strncmp(text, ends[i].says, strlen(ends[i].says)) != 0)
            fail_msg("%s %s %s: status %d, \"%s\"", r[0], r[1], r[2], (int)st, text);
        ax_error_clear();
    }
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "end") == 0)
        be_rank(argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_cause_is_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
