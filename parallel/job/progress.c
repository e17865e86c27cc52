#include "parallel/job/progress.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int ax_progress_create(void) {
    return memfd_create("progress", 0);
}

int64_t ax_progress_read(int fd) {
    int64_t step = 0;
    return pread(fd, &step, sizeof step, 0) == (ssize_t)sizeof step ? step : 0;
}

void ax_progress_note(int64_t step) {
    const char *fd = getenv("AXTRAIN_PROGRESS_FD");
    if (fd) /* a lost note costs a restart, nothing else */
        (void)!pwrite(atoi(fd), &step, sizeof step, 0);
}
