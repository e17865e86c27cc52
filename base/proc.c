#include "base/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

bool ax_proc_read(const char *path, char *buf, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    size_t n = 0;
    ssize_t r = 0;
    while (n + 1 < size) {
        r = read(fd, buf + n, size - 1 - n);
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0)
            break;
        n += (size_t)r;
    }
    close(fd);
    buf[n] = '\0';
    return r >= 0;
}
