#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "cmd/cache/cache.h"

#define MAX_DEPTH 64

static enum ax_status walk(const char *path, int depth, int64_t *bytes, time_t *written) {
    struct stat info;
    if (lstat(path, &info) != 0)
        return AX_OK; /* removed meanwhile */
    *bytes += (int64_t)info.st_blocks * 512;
    if (!S_ISDIR(info.st_mode) && info.st_mtime > *written)
        *written = info.st_mtime;
    if (!S_ISDIR(info.st_mode) || depth == MAX_DEPTH)
        return AX_OK;
    DIR *dir = opendir(path);
    const struct dirent *e;
    enum ax_status st = AX_OK;
    while (dir && st == AX_OK && (e = readdir(dir)) != NULL) {
        char *below;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        st = ax_path_join(&below, path, e->d_name);
        if (st == AX_OK)
            st = walk(below, depth + 1, bytes, written);
        ax_free(below);
    }
    if (dir)
        closedir(dir);
    return st;
}

enum ax_status ax_cache_usage(const char *path, int64_t *bytes, time_t *written) {
    *bytes = 0;
    *written = 0;
    return walk(path, 0, bytes, written);
}
