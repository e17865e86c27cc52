/* Where NVIDIA's libraries are. */
#include "kernels/cuda/libraries.h"

#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define MOST 64 /* places that are tried */

struct places {
    int n;
    char *path[MOST + 1]; /* ends with NULL */
};

static enum ax_status add(struct places *p, const char *path) {
    if (p->n == MOST)
        return AX_OK;
    AX_TRY(ax_strdup(&p->path[p->n], path));
    p->n++;
    return AX_OK;
}

/* Files that exist, of a pattern as shells read it. */
static enum ax_status add_matches(struct places *p, const char *pattern) {
    glob_t found;
    enum ax_status st = AX_OK;
    if (glob(pattern, 0, NULL, &found) != 0)
        return AX_OK;
    for (size_t i = 0; i < found.gl_pathc && st == AX_OK; i++)
        st = add(p, found.gl_pathv[i]);
    globfree(&found);
    return st;
}

/* For each folder of a list as PATH is: the matches of folder/below/file. */
static enum ax_status add_below(struct places *p, const char *folders, const char *below,
                                const char *file) {
    char pattern[PATH_MAX];
    for (const char *at = folders; at && *at; at += strcspn(at, ":"), at += *at == ':') {
        const int n =
            snprintf(pattern, sizeof pattern, "%.*s/%s%s", (int)strcspn(at, ":"), at, below, file);
        if (n > 0 && (size_t)n < sizeof pattern)
            AX_TRY(add_matches(p, pattern));
    }
    return AX_OK;
}

static enum ax_status list(struct places *p, const char *file) {
    AX_TRY(add_below(p, getenv("AXTRAIN_CUDA_LIBS"), "", file));
    AX_TRY(add(p, file));
    AX_TRY(add_below(p, getenv("CUDA_HOME"), "lib64/", file));
    AX_TRY(add_below(p, getenv("CUDA_HOME"), "lib/", file));
    AX_TRY(add_below(p, "/usr/local/cuda", "lib64/", file));
    AX_TRY(add_below(p, getenv("PATH"), "../lib/python3*/site-packages/nvidia/*/lib/", file));
    return add_below(p, getenv("PATH"), "../lib/python3*/dist-packages/nvidia/*/lib/", file);
}

enum ax_status ax_cuda_library_open(const char *file, const char *remedy,
                                    const struct ax_symbol *symbols, size_t n) {
    struct places p = {0};
    enum ax_status st = list(&p, file);
    if (st == AX_OK)
        st = ax_library_open((const char *const *)p.path, symbols, n);
    if (st == AX_ERR_UNSUPPORTED)
        st = ax_error_prefix(st,
                             "device cuda: %s cannot be opened, from AXTRAIN_CUDA_LIBS, the "
                             "loader's path, CUDA_HOME, /usr/local/cuda or a Python package "
                             "nvidia/*/lib. %s The loader says",
                             file, remedy);
    for (int i = 0; i < p.n; i++)
        ax_free(p.path[i]);
    return st;
}
