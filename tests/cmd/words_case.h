/* Commands in this process, by a list of words; what they print is in `text`. Include after
 * tests/ckpt/folder.h. */
#ifndef AX_TESTS_CMD_WORDS_CASE_H
#define AX_TESTS_CMD_WORDS_CASE_H

#include "tests/cmd/command_case.h"

static char text[1 << 16];

static inline void ok(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

static inline enum ax_status run(enum ax_status (*command)(int, char **), const char *const *argv) {
    int n = 0;
    while (argv[n])
        n++;
    return run_command(command, n, (char **)(uintptr_t)argv, NULL, in_dir("out"), text,
                       sizeof text);
}
#define RUN(command, ...) run(command, (const char *const[]){"axtrain", __VA_ARGS__, NULL})

#endif
