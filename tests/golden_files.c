#include "tests/golden_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "tests/goldens/mirror.h"

bool golden_find(const char *name, char *path, size_t size) {
    return golden_mirrored(name, path, size) == AX_OK;
}

const char *golden_path(const char *name) {
    static struct kept {
        struct kept *next;
        char path[];
    } *all;
    char path[PATH_MAX];
    if (!golden_find(name, path, sizeof path))
        fail_msg("%s", ax_error_text());
    for (const struct kept *k = all; k; k = k->next)
        if (strcmp(k->path, path) == 0)
            return k->path;
    struct kept *k = malloc(sizeof *k + strlen(path) + 1);
    assert_non_null(k);
    strcpy(k->path, path); // NOLINT(clang-analyzer-security.insecureAPI.strcpy): it is as long
    k->next = all;
    all = k;
    return k->path;
}
