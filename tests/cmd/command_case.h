/* A command of cmd/, run in the test's own process. Include after cmocka.h. */
#ifndef AX_TESTS_CMD_COMMAND_CASE_H
#define AX_TESTS_CMD_COMMAND_CASE_H

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/mem.h"

/* Opens the file for the descriptor; returns a copy of what it was. */
static inline int redirect(int fd, const char *path, int flags) {
    const int saved = dup(fd), file = open(path, flags, 0600);
    assert_true(saved >= 0 && file >= 0 && dup2(file, fd) == fd);
    close(file);
    return saved;
}

static inline void restore(int fd, int saved) {
    assert_int_equal(dup2(saved, fd), fd);
    close(saved);
}

/* Runs it with the file `in` (NULL: nothing) as standard input; what it prints goes through the
 * file `out` to output[size]. It must give back all memory. */
static inline enum ax_status run_command(enum ax_status (*command)(int, char **), int argc,
                                         char **argv, const char *in, const char *out, char *output,
                                         size_t size) {
    const uint64_t live = ax_mem_live_blocks();
    struct ax_error_record error;
    char *text;
    size_t len;
    fflush(stdout);
    const int saved_in = redirect(STDIN_FILENO, in ? in : "/dev/null", O_RDONLY);
    const int saved_out = redirect(STDOUT_FILENO, out, O_WRONLY | O_CREAT | O_TRUNC);
    const enum ax_status st = command(argc, argv);
    fflush(stdout);
    restore(STDIN_FILENO, saved_in);
    restore(STDOUT_FILENO, saved_out);
    assert_int_equal(ax_mem_live_blocks(), live);
    ax_error_save(&error, st);
    assert_int_equal(ax_read_file(out, size - 1, &text, &len), AX_OK);
    memcpy(output, text, len + 1);
    ax_free(text);
    return ax_error_restore(&error);
}

#endif
