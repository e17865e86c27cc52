#include "base/free_space.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/proc.h"

enum ax_status ax_disk_free(const char *path, uint64_t *bytes) {
    struct statvfs info;
    if (statvfs(path, &info) != 0)
        return ax_error(AX_ERR_IO, "%s: cannot determine free space: %m", path);
    /* a file system that counts no blocks (/proc) does not report its space */
    *bytes = info.f_blocks == 0 && info.f_bavail == 0 ? UINT64_MAX
                                                      : (uint64_t)info.f_bavail * info.f_frsize;
    return AX_OK;
}

static uint64_t smaller(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* The number in DIR/NAME; UINT64_MAX if there is none ("max", or no such file). */
static uint64_t read_number(const char *dir, const char *name) {
    char path[1200], text[64];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (!ax_proc_read(path, text, sizeof text) || text[0] < '0' || text[0] > '9')
        return UINT64_MAX;
    return strtoull(text, NULL, 10);
}

/* "NAME 123" of DIR/memory.stat; 0 if there is none. */
static uint64_t read_stat(const char *dir, const char *name) {
    char path[1200], text[8192];
    snprintf(path, sizeof path, "%s/memory.stat", dir);
    if (!ax_proc_read(path, text, sizeof text))
        return 0;
    const size_t n = strlen(name);
    for (const char *line = text; *line;) {
        if (strncmp(line, name, n) == 0 && line[n] == ' ')
            return strtoull(line + n, NULL, 10);
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
    return 0;
}

/* Bytes that a group's own limit leaves; UINT64_MAX: it has none. Cached files count as used, but are
 * evicted when memory is short. */
static uint64_t left_in_group(const char *dir, bool v2) {
    const uint64_t limit = read_number(dir, v2 ? "memory.max" : "memory.limit_in_bytes");
    const uint64_t used = read_number(dir, v2 ? "memory.current" : "memory.usage_in_bytes");
    if (limit == UINT64_MAX || used == UINT64_MAX || limit >= UINT64_MAX / 4)
        return UINT64_MAX;
    const uint64_t cache = read_stat(dir, v2 ? "inactive_file" : "total_inactive_file");
    const uint64_t held = used > cache ? used - cache : 0;
    return limit > held ? limit - held : 0;
}

/* A group's limit also applies to all groups below it, so this reads the group's folder and
 * every one above it, up to `root`; of a path that is too long, `root` alone. */
static uint64_t left_upwards(const char *root, const char *group, size_t len, bool v2) {
    char dir[1100];
    const size_t top = strlen(root);
    const int n = snprintf(dir, sizeof dir, "%s%.*s", root, (int)len, group);
    if ((size_t)n >= sizeof dir)
        return left_in_group(root, v2);
    uint64_t best = left_in_group(dir, v2);
    char *slash;
    while ((slash = strrchr(dir, '/')) != NULL && (size_t)(slash - dir) >= top) {
        *slash = '\0';
        best = smaller(best, left_in_group(dir, v2));
    }
    return best;
}

/* Lines are "id:controllers:path"; version 2 has the one line "0::path". */
uint64_t ax_cgroup_memory(const char *root, const char *self_cgroup) {
    uint64_t best = UINT64_MAX;
    for (const char *line = self_cgroup; *line;) {
        const size_t len = strcspn(line, "\n");
        const char *c1 = memchr(line, ':', len);
        const char *c2 = c1 ? memchr(c1 + 1, ':', len - (size_t)(c1 + 1 - line)) : NULL;
        if (c2) {
            const size_t list = (size_t)(c2 - c1 - 1), group = len - (size_t)(c2 + 1 - line);
            char mount[1024];
            snprintf(mount, sizeof mount, "%s/memory", root);
            if (list == 0)
                best = smaller(best, left_upwards(root, c2 + 1, group, true));
            else if (list == 6 && strncmp(c1 + 1, "memory", 6) == 0)
                best = smaller(best, left_upwards(mount, c2 + 1, group, false));
        }
        line += len + (line[len] == '\n');
    }
    return best;
}

uint64_t ax_mem_available(void) {
    char text[4096];
    uint64_t available = UINT64_MAX;
    if (ax_proc_read("/proc/meminfo", text, sizeof text)) {
        const char *line = strstr(text, "\nMemAvailable:");
        if (line)
            available = 1024 * strtoull(line + strlen("\nMemAvailable:"), NULL, 10);
    }
    if (ax_proc_read("/proc/self/cgroup", text, sizeof text))
        available = smaller(available, ax_cgroup_memory("/sys/fs/cgroup", text));
    if (available == UINT64_MAX)
        return 0;
    return available > 0 ? available : 1;
}
