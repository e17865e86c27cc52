/* Files that are written and read past the page cache: the same bytes where the file system can do so and where it
 * rejects that. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/direct_io.h"
#include "base/mem.h"

enum { MOST = 9 << 20 }; /* bytes: more than two buffers */

static char path[64];
static unsigned char *written;

/* In place of the C library's: a file system may reject O_DIRECT. That of /tmp can do so, or it rejects it itself. */
static bool rejects, can;

int fcntl(int fd, int command, ...) {
    va_list ap;
    va_start(ap, command);
    const long argument = va_arg(ap, long);
    va_end(ap);
    if (rejects && command == F_SETFL && argument & O_DIRECT) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_fcntl, fd, command, argument);
}

/* Most bytes of a call: it may do less than it was asked for. */
static size_t most = SIZE_MAX;

ssize_t write(int fd, const void *data, size_t n) {
    return syscall(SYS_write, fd, data, n < most ? n : most);
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t offset) {
    return syscall(SYS_pwrite64, fd, data, n < most ? n : most, offset);
}

ssize_t pread(int fd, void *data, size_t n, off_t offset) {
    const size_t blocks = most - most % AX_DIRECT_IO_ALIGN; /* less is the end of the file */
    return syscall(SYS_pread64, fd, data, n < blocks ? n : blocks, offset);
}

/* How many calls succeed before one does not; −1: all. */
static int until_failure = -1;

int fstat(int fd, struct stat *info) {
    if (until_failure >= 0 && until_failure-- == 0) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_fstat, fd, info);
}

static bool is_direct(int fd) {
    return (fcntl(fd, F_GETFL, 0) & O_DIRECT) != 0;
}

static int begin(void **state) {
    (void)state;
    void *heap;
    snprintf(path, sizeof path, "/tmp/axtrain-direct-XXXXXX");
    const int fd = mkstemp(path);
    if (fd < 0 || ax_alloc(&heap, MOST, 1) != AX_OK)
        return -1;
    can = fcntl(fd, F_SETFL, O_DIRECT) == 0;
    close(fd);
    written = heap;
    for (size_t i = 0; i < MOST; i++)
        written[i] = (unsigned char)(i * 2654435761U >> 13);
    return 0;
}

static int end(void **state) {
    (void)state;
    ax_free(written);
    return unlink(path);
}

static void expect_bytes(size_t n) {
    struct ax_file f;
    void *heap, *read_back;
    size_t got;
    assert_int_equal(ax_alloc_direct(&heap, &read_back, MOST), AX_OK);
    if (ax_file_open_direct(&f, path) != AX_OK)
        fail_msg("%s", ax_error_text());
    assert_true(is_direct(f.fd) == (can && !rejects));
    assert_int_equal(ax_file_pread_some(&f, read_back, MOST, 0, &got), AX_OK);
    assert_int_equal(got, n);
    assert_memory_equal(read_back, written, n);
    assert_int_equal(ax_file_close(&f), AX_OK);
    ax_free(heap);
}

/* In two pieces, of which neither need be blocks. */
static void write_file(size_t n, size_t first) {
    struct ax_direct_io s;
    assert_int_equal(ax_direct_io_create(&s, path), AX_OK);
    assert_true(s.direct == (can && !rejects) && is_direct(s.f.fd) == s.direct);
    assert_int_equal(ax_direct_io_write(&s, written, first), AX_OK);
    assert_int_equal(ax_direct_io_write(&s, written + first, n - first), AX_OK);
    assert_int_equal(ax_direct_io_finish(&s), AX_OK);
    assert_int_equal(ax_direct_io_end(&s, AX_OK), AX_OK);
}

/* Of n bytes, those from a block on again, then some that are none. */
static void update_file(size_t n) {
    enum { FROM = 2 * AX_DIRECT_IO_ALIGN };
    struct ax_file f;
    void *heap, *blocks;
    assert_int_equal(ax_alloc_direct(&heap, &blocks, n), AX_OK);
    memcpy(blocks, written + FROM, n - FROM);
    assert_int_equal(ax_file_open_direct_update(&f, path), AX_OK);
    assert_int_equal(ftruncate(f.fd, FROM), 0);
    assert_int_equal(ax_file_pwrite_direct(&f, blocks, n - FROM, FROM), AX_OK);
    if ((n - FROM) % AX_DIRECT_IO_ALIGN == 0 && most % AX_DIRECT_IO_ALIGN == 0)
        assert_true(is_direct(f.fd) == (can && !rejects));
    assert_int_equal(ax_file_pwrite_direct(&f, written + 5, 100, 5), AX_OK);
    assert_false(is_direct(f.fd));
    assert_int_equal(ax_file_close(&f), AX_OK);
    ax_free(heap);
}

static void bytes_are_kept(void **state) {
    static const size_t sizes[][2] = {{0, 0},          {1, 0},       {4095, 7},
                                      {4096, 4096},    {4097, 4096}, {12345, 100},
                                      {4 << 20, 4096}, {MOST, 4097}, {MOST - 4095, 4 << 20}};
    static const size_t calls[] = {SIZE_MAX / AX_DIRECT_IO_ALIGN * AX_DIRECT_IO_ALIGN, 1 << 20,
                                   100001};
    (void)state;
    for (size_t i = 0; i < 6 * sizeof sizes / sizeof *sizes; i++) {
        const size_t n = sizes[i / 6][0];
        rejects = i % 2;
        most = calls[i / 2 % 3];
        write_file(n, sizes[i / 6][1]);
        expect_bytes(n);
        if (n > 2 * AX_DIRECT_IO_ALIGN)
            update_file(n);
        expect_bytes(n);
    }
    rejects = false;
    most = SIZE_MAX;
}

/* What the file is cannot be found out: it is closed again, which the end of the program checks. */
static void an_unknown_file_is_closed(void **state) {
    (void)state;
    struct ax_file f;
    until_failure = 0;
    assert_int_equal(ax_file_open_direct(&f, path), AX_ERR_IO);
    assert_non_null(strstr(ax_error_text(), "cannot open: Input/output error"));
    assert_int_equal(until_failure, -1);
    ax_error_clear();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_kept),
        cmocka_unit_test(an_unknown_file_is_closed),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
