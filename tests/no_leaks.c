/* At the end of every test program: each block of base/mem.h has been given back and each file
 * descriptor closed. Children that a test forks are not looked at. */
#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

#include "base/mem.h"

static pid_t started;
static int open_at_start;

static int open_descriptors(void) {
    DIR *dir = opendir("/proc/self/fd");
    int n = 0;
    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n;
}

__attribute__((constructor)) static void start(void) {
    started = getpid();
    open_at_start = open_descriptors();
}

__attribute__((destructor)) static void finish(void) {
    if (getpid() != started)
        return;
    const unsigned long long blocks = ax_mem_live_blocks();
    const int files = open_descriptors() - open_at_start;
    if (blocks == 0 && files == 0)
        return;
    fprintf(stderr, "leaked at exit: %llu blocks of base/mem.h, %d file descriptors\n", blocks,
            files);
    fflush(NULL);
    _exit(70);
}
