#include "base/text/lfs_pointer.h"

#include <string.h>
#include <sys/stat.h>

#include "base/io.h"

enum ax_status ax_lfs_refuse(const char *name, const void *data, size_t len) {
    static const char begins[] = "version https://git-lfs.github.com/spec/";
    if (len < sizeof begins - 1 || memcmp(data, begins, sizeof begins - 1) != 0)
        return AX_OK;
    return ax_error(AX_ERR_DATA,
                    "%s: not the file, but Git LFS's pointer to it: run `git lfs pull` in its "
                    "folder, or download it again",
                    name);
}

enum ax_status ax_lfs_refuse_file(const char *path) {
    enum { MAX_POINTER = 1024 }; /* bytes, by the specification */
    struct stat info;
    struct ax_mapping m;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size >= MAX_POINTER)
        return AX_OK;
    AX_TRY(ax_map_file(&m, path));
    const enum ax_status st = ax_lfs_refuse(path, m.data, m.len);
    ax_unmap_file(&m);
    return st;
}
