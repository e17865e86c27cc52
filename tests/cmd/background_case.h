/* axtrain in the background, below a test that waits for it, signals it and looks at its end. Include after
 * cmocka.h and grpo_case.h. */
#ifndef AX_TESTS_CMD_BACKGROUND_CASE_H
#define AX_TESTS_CMD_BACKGROUND_CASE_H

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

extern char **environ;

static inline void nap(double seconds) {
    nanosleep(
        &(struct timespec){(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)},
        NULL);
}

/* axtrain with `words` (split at blanks), in the background; its output is in SCRATCH/log. */
static inline pid_t start(const char *words) {
    char text[2000], *argv[40] = {(char *)(uintptr_t)test_program()}, *rest = text;
    posix_spawn_file_actions_t files;
    pid_t pid;
    int n = 1;
    snprintf(text, sizeof text, "%s", words);
    for (char *word; (word = strsep(&rest, " ")) != NULL && n < 39;)
        argv[n++] = word;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 1, in_scratch("log"), O_WRONLY | O_CREAT | O_TRUNC,
                                     0600);
    posix_spawn_file_actions_adddup2(&files, 1, 2);
    assert_int_equal(posix_spawn(&pid, argv[0], &files, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&files);
    return pid;
}

/* Its exit code, or minus the signal that ended it; `said` is what it has printed. */
static inline int end(pid_t pid, double seconds) {
    int status = 0;
    const double until = ax_clock_now() + seconds;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (ax_clock_now() > until) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            fail_msg("it goes on after %g s: %s", seconds, read_text(".", "log"));
        }
        nap(0.01);
    }
    char *text = read_text(".", "log");
    snprintf(said, sizeof said, "%s", text);
    ax_free(text);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static inline void wait_file(const char *name) {
    for (const double until = ax_clock_now() + 60; !ax_path_exists(in_scratch(name)); nap(0.01))
        if (ax_clock_now() > until)
            fail_msg("no %s: %s", name, read_text(".", "log"));
}

#endif
