/* A process of its own for what may end it. Include after cmocka.h. */
#ifndef AX_TESTS_CUDA_ALONE_H
#define AX_TESTS_CUDA_ALONE_H

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define ALONE_SAID 4096

/* Its status as wait() says; said: what it wrote to stderr, or the beginning of it. */
static inline int run_alone(void (*run)(void *ctx), void *ctx, char said[ALONE_SAID]) {
    FILE *f = tmpfile();
    int status;
    assert_non_null(f);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(fileno(f), STDERR_FILENO);
        run(ctx);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    rewind(f);
    said[fread(said, 1, ALONE_SAID - 1, f)] = '\0';
    fclose(f);
    return status;
}

#endif
