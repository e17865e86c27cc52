/* What the checkpoint tests share: a scratch folder, tensors whose bytes are made up from their
 * name, and comparing what was read with them. Include after cmocka.h. */
#ifndef AX_TESTS_CKPT_FOLDER_H
#define AX_TESTS_CKPT_FOLDER_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash/hash.h"
#include "base/log.h"
#include "ckpt/hf/hf.h"

static char dir[64];

/* In memory where that is possible: these tests sync often. */
static inline int make_dir(void **state) {
    (void)state;
    ax_log_set_level(AX_LOG_ERROR);
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(dir, sizeof dir, "%s/axtrain-ckpt-XXXXXX", base);
    return mkdtemp(dir) ? 0 : -1;
}

static inline int remove_dir(void **state) {
    (void)state;
    return ax_remove_tree(dir) == AX_OK ? 0 : -1;
}

/* "DIR/name" in one of eight buffers that take turns. */
static inline const char *in_dir(const char *name) {
    static char paths[8][256];
    static unsigned turn;
    char *path = paths[turn++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", dir, name);
    return path;
}

static inline void put_file(const char *name, const void *data, size_t len) {
    assert_int_equal(ax_write_file_atomic(in_dir(name), data, len), AX_OK);
}

static inline void put_text(const char *name, const char *text) {
    put_file(name, text, strlen(text));
}

/* The text of a file; free with ax_free. */
static inline char *get_text(const char *name) {
    char *text;
    size_t len;
    if (ax_read_file(in_dir(name), 1 << 20, &text, &len) != AX_OK)
        fail_msg("%s", ax_error_text());
    return text;
}

static inline int count_entries(const char *path) {
    int n = 0;
    DIR *d = opendir(path);
    assert_non_null(d);
    while (readdir(d) != NULL)
        n++;
    closedir(d);
    return n - 2;
}

static inline int count_open_files(void) {
    return count_entries("/proc/self/fd");
}

/* The byte at `offset` of the tensor called ctx. */
static inline unsigned char made_up(const char *name, int64_t offset) {
    return (unsigned char)(ax_hash32(name) + (uint32_t)offset * 151 + (uint32_t)(offset >> 8));
}

static inline enum ax_status fill_bytes(const char *name, size_t size, int64_t first, int64_t n,
                                        void *out) {
    unsigned char *p = out;
    const int64_t begin = first * (int64_t)size, end = (first + n) * (int64_t)size;
    for (int64_t i = begin; i < end; i++)
        *p++ = made_up(name, i);
    return AX_OK;
}

#define FILL_OF_SIZE(size)                                                                         \
    static inline enum ax_status fill_##size(void *name, int64_t first, int64_t n, void *out) {    \
        return fill_bytes(name, size, first, n, out);                                              \
    }
FILL_OF_SIZE(1)
FILL_OF_SIZE(2)
FILL_OF_SIZE(4)
FILL_OF_SIZE(8)

/* A tensor to write, of made-up bytes; `shape` has ndim sizes. */
static inline struct ax_st_output output(const char *name, enum ax_dtype dtype, int ndim,
                                         const int64_t *shape) {
    struct ax_st_output t = {.name = name, .dtype = dtype, .ndim = ndim, .ctx = (void *)name};
    const size_t size = ax_dtype_size(dtype);
    t.fill = size == 1 ? fill_1 : size == 2 ? fill_2 : size == 4 ? fill_4 : fill_8;
    for (int d = 0; d < ndim; d++)
        t.shape[d] = shape[d];
    return t;
}

/* e is what was written for t. */
static inline void assert_tensor(const struct ax_st_entry *e, const struct ax_st_output *t) {
    int64_t numel = 1;
    assert_non_null(e);
    assert_string_equal(e->name, t->name);
    assert_int_equal(e->dtype, t->dtype);
    assert_int_equal(e->ndim, t->ndim);
    for (int d = 0; d < t->ndim; d++) {
        assert_int_equal(e->shape[d], t->shape[d]);
        numel *= t->shape[d];
    }
    assert_int_equal(e->numel, numel);
    assert_int_equal(e->bytes, (size_t)numel * ax_dtype_size(t->dtype));
    const unsigned char *data = e->data;
    for (size_t i = 0; i < e->bytes; i++)
        if (data[i] != made_up(t->ctx, (int64_t)i))
            fail_msg("%s differs at byte %zu", t->name, i);
}

static inline void assert_mentions(const char *part) {
    if (!strstr(ax_error_text(), part))
        fail_msg("expected \"%s\" in \"%s\"", part, ax_error_text());
}

#endif
