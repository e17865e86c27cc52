/* Processes that tests see ending. Include after cmocka.h. */
#ifndef AX_TESTS_DATA_PROCESS_CASE_H
#define AX_TESTS_DATA_PROCESS_CASE_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

/* One that has ended, and that nobody waits for, does not run. */
static inline bool is_running(pid_t pid) {
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    const size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = '\0';
    const char *name_end = strrchr(text, ')');
    return name_end && name_end[2] != 'Z';
}

/* The test's time ends if it never does. */
static inline void wait_for_end(pid_t pid) {
    const struct timespec nap = {.tv_nsec = 10000000};
    while (is_running(pid))
        nanosleep(&nap, NULL);
}

#endif
