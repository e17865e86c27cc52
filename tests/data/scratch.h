/* A scratch folder for the tests of data/: files written by the test, gone afterwards. Include
 * after cmocka.h. */
#ifndef AX_TESTS_DATA_SCRATCH_H
#define AX_TESTS_DATA_SCRATCH_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/log.h"
#include "base/mem.h"
#include "tests/golden_files.h"

static char scratch[64];

static inline int scratch_make(void **state) {
    (void)state;
    ax_log_set_level(AX_LOG_ERROR);
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(scratch, sizeof scratch, "%s/axtrain-data-XXXXXX", base);
    return mkdtemp(scratch) ? 0 : -1;
}

static inline int scratch_remove(void **state) {
    (void)state;
    return ax_remove_tree(scratch) == AX_OK ? 0 : -1;
}

/* "SCRATCH/name" in one of eight buffers that take turns. */
static inline const char *in_scratch(const char *name) {
    static char paths[8][256];
    static unsigned turn;
    char *path = paths[turn++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", scratch, name);
    return path;
}

static inline const char *put_bytes(const char *name, const void *data, size_t len) {
    const char *path = in_scratch(name);
    assert_int_equal(ax_write_file_atomic(path, data, len), AX_OK);
    return path;
}

static inline const char *put_text(const char *name, const char *text) {
    return put_bytes(name, text, strlen(text));
}

static inline void make_folder(const char *name) {
    assert_int_equal(ax_mkdir_parents(in_scratch(name)), AX_OK);
}

/* A file of a folder of the goldens, in a folder of the scratch folder. */
static inline void copy_golden(const char *folder, const char *file, const char *to) {
    char path[600], *data;
    size_t len;
    snprintf(path, sizeof path, "%s/%s", golden_path(folder), file);
    assert_int_equal(ax_read_file(path, 1 << 24, &data, &len), AX_OK);
    snprintf(path, sizeof path, "%s/%s", to, file);
    put_bytes(path, data, len);
    ax_free(data);
}

/* The call fails with this status, and the text has `part` in it. */
#define assert_error(call, status, part)                                                           \
    do {                                                                                           \
        assert_int_equal(call, status);                                                            \
        if (strstr(ax_error_text(), part) == NULL)                                                 \
            fail_msg("\"%s\" is not in: %s", part, ax_error_text());                               \
    } while (0)

#define assert_ok(call)                                                                            \
    do {                                                                                           \
        if ((call) != AX_OK)                                                                       \
            fail_msg("%s (%s)", ax_error_text(), ax_error_trace());                                \
    } while (0)

#endif
