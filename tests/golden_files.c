#include "tests/golden_files.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"
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

void golden_flip(const char *path) {
    char *data;
    size_t len;
    uint64_t header;
    assert_int_equal(ax_read_file(path, 1 << 24, &data, &len), AX_OK);
    memcpy(&header, data, sizeof header);
    assert_true(len > sizeof header + header + 1);
    data[sizeof header + header + 1] ^= 0x10;
    assert_int_equal(ax_write_file_atomic(path, data, len), AX_OK);
    ax_free(data);
}
