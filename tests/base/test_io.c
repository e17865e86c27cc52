/* Files and paths of io.h, with faults at every call. */
#include "base/io.h"
#include "base/io_path.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/direct_io.h"
#include "base/fault.h"
#include "base/lock.h"
#include "base/mem.h"
#include "base/proc.h"

static char dir[64];

static char *in_dir(const char *name) {
    static char paths[8][128];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", dir, name);
    return path;
}

static int make_dir(void **state) {
    (void)state;
    strcpy(dir, "/tmp/axtrain-io-XXXXXX");
    return mkdtemp(dir) != NULL ? 0 : -1;
}

static int remove_dir(void **state) {
    (void)state;
    return ax_fault_configure(NULL) == AX_OK && ax_remove_tree(dir) == AX_OK ? 0 : -1;
}

static void put(const char *path, const char *text) {
    assert_int_equal(ax_write_file_atomic(path, text, strlen(text)), AX_OK);
}

static void expect_text(const char *path, const char *text) {
    char *data;
    size_t len;
    assert_int_equal(ax_read_file(path, 1 << 20, &data, &len), AX_OK);
    assert_string_equal(data, text);
    assert_int_equal(len, strlen(text));
    ax_free(data);
}

static size_t count_entries(void) {
    size_t n = 0;
    DIR *d = opendir(dir);
    while (readdir(d) != NULL)
        n++;
    closedir(d);
    return n - 2;
}

static unsigned mode_of(const char *name) {
    struct stat info;
    assert_int_equal(stat(in_dir(name), &info), 0);
    return info.st_mode & 07777;
}

/* A server that runs as another user must be able to read a model, and nobody a training state. */
static void modes_follow_the_umask(void **state) {
    (void)state;
    static const struct {
        mode_t mask;
        unsigned file, folder, private;
    } cases[] = {{022, 0644, 0755, 0750}, {077, 0600, 0700, 0700}, {0, 0664, 0775, 0750}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_file f;
        struct ax_folder d;
        const mode_t before = umask(cases[i].mask);
        assert_int_equal(ax_file_create(&f, in_dir("m.file")), AX_OK);
        assert_int_equal(ax_file_close(&f), AX_OK);
        assert_int_equal(ax_write_file_atomic(in_dir("m.atomic"), "x", 1), AX_OK);
        assert_int_equal(ax_mkdir_parents(in_dir("m.folder/in")), AX_OK);
        assert_int_equal(ax_mkdir_private(in_dir("m.folder/in/private")), AX_OK);
        assert_int_equal(ax_mkdir_parents_private(in_dir("m.private/in")), AX_OK);
        assert_int_equal(ax_folder_begin(&d, in_dir("m.whole")), AX_OK);
        assert_int_equal(ax_folder_commit(&d), AX_OK);
        umask(before);
        assert_int_equal(mode_of("m.file"), cases[i].file);
        assert_int_equal(mode_of("m.atomic"), cases[i].file);
        assert_int_equal(mode_of("m.folder"), cases[i].folder);
        assert_int_equal(mode_of("m.folder/in"), cases[i].folder);
        assert_int_equal(mode_of("m.folder/in/private"), cases[i].private);
        assert_int_equal(mode_of("m.private/in"), cases[i].private);
        assert_int_equal(mode_of("m.whole"), cases[i].folder);
        static const char *const made[] = {"m.file", "m.atomic", "m.folder", "m.private",
                                           "m.whole"};
        for (size_t j = 0; j < sizeof made / sizeof *made; j++)
            assert_int_equal(ax_remove_tree(in_dir(made[j])), AX_OK);
    }
}

/* The path that was given, not that of the temporary file. */
static void errors_name_the_file(void **state) {
    (void)state;
    const char *path = in_dir("no such folder/file");
    assert_int_not_equal(ax_write_file_atomic(path, "x", 1), AX_OK);
    if (strncmp(ax_error_text(), path, strlen(path)) != 0 || strstr(ax_error_text(), ".tmp-"))
        fail_msg("%s", ax_error_text());
}

static void writes_and_reads_are_exact(void **state) {
    (void)state;
    struct ax_file f;
    assert_int_equal(ax_file_create(&f, in_dir("a")), AX_OK);
    assert_int_equal(ax_file_write(&f, "0123456789", 10), AX_OK);
    assert_int_equal(ax_file_pwrite(&f, "AB", 2, 4), AX_OK);
    assert_int_equal(ax_file_pwrite(&f, "x", 1, UINT64_MAX), AX_ERR_IO);
    assert_int_equal(ax_file_sync(&f), AX_OK);
    assert_int_equal(ax_file_close(&f), AX_OK);
    assert_int_equal(ax_file_close(&f), AX_OK);

    char buf[16] = {0};
    uint64_t size;
    assert_int_equal(ax_file_open_read(&f, in_dir("a")), AX_OK);
    assert_int_equal(ax_file_size(&f, &size), AX_OK);
    assert_int_equal(size, 10);
    assert_int_equal(ax_file_pread(&f, buf, 7, 3), AX_OK);
    assert_string_equal(buf, "3AB6789");
    assert_int_equal(ax_file_pread(&f, buf, 8, 3), AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "/a: ends at byte 10"));
    assert_int_equal(ax_file_pread(&f, buf, 1, UINT64_MAX), AX_ERR_DATA);
    assert_int_equal(ax_file_pread(&f, buf, 0, 10), AX_OK);
    assert_int_equal(ax_file_close(&f), AX_OK);

    memset(&f, 7, sizeof f);
    assert_int_equal(ax_file_open_read(&f, in_dir("absent")), AX_ERR_IO);
    assert_non_null(strstr(ax_error_text(), "absent: cannot open: No such file"));
    assert_int_equal(ax_file_close(&f), AX_OK);
    struct ax_file zero = {0};
    assert_int_equal(ax_file_close(&zero), AX_OK); /* and descriptor 0 stays open */
    assert_int_not_equal(fcntl(0, F_GETFD), -1);
}

static void short_and_interrupted_calls_go_on(void **state) {
    (void)state;
    static const char *const specs[] = {
        "write:1:short",
        "write:1:short,write:2:short,write:3:short",
        "write:1:eintr",
        "open:1:eintr",
        "fsync:1:eintr,rename:1:eintr",
        "close:1:eintr",
        "read:1:short",
        "read:1:eintr,read:2:short,read:3:eintr",
    };
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        assert_int_equal(ax_fault_configure(specs[i]), AX_OK);
        put(in_dir("a"), "a text of some length");
        expect_text(in_dir("a"), "a text of some length");
        assert_true(ax_fault_fired());
    }
}

static void errors_name_path_and_bytes(void **state) {
    (void)state;
    struct ax_file f;
    assert_int_equal(ax_fault_configure("write:2:enospc,close:1:eio,fsync:1:eio"), AX_OK);
    assert_int_equal(ax_file_create(&f, in_dir("a")), AX_OK);
    assert_int_equal(ax_file_write(&f, "12345", 5), AX_OK);
    assert_int_equal(ax_file_write(&f, "1234567", 7), AX_ERR_STORAGE);
    assert_non_null(strstr(ax_error_text(), "/a: cannot write 7 bytes"));
    assert_non_null(strstr(ax_error_text(), "No space left"));
    assert_int_equal(ax_file_sync(&f), AX_ERR_IO);
    assert_non_null(strstr(ax_error_text(), "/a: cannot sync"));
    assert_int_equal(ax_file_close(&f), AX_ERR_IO);
    assert_non_null(strstr(ax_error_text(), "/a: cannot close: Input/output error"));
}

static void whole_files_have_a_limit(void **state) {
    (void)state;
    char *data = NULL;
    size_t len;
    put(in_dir("a"), "12345");
    assert_int_equal(ax_read_file(in_dir("a"), 5, &data, &len), AX_OK);
    assert_string_equal(data, "12345");
    ax_free(data);
    assert_int_equal(ax_read_file(in_dir("a"), 4, &data, &len), AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "limit of 4 bytes"));
    put(in_dir("empty"), "");
    expect_text(in_dir("empty"), "");
    assert_int_equal(ax_read_file(dir, 100, &data, &len), AX_ERR_IO);
    /* a pipe tells no size beforehand */
    int ends[2];
    char path[32];
    static char block[1000];
    memset(block, 'p', sizeof block);
    for (size_t limit = 39999; limit <= 40001; limit++) {
        assert_int_equal(pipe(ends), 0);
        for (int i = 0; i < 40; i++)
            assert_int_equal(write(ends[1], block, sizeof block), sizeof block);
        close(ends[1]);
        snprintf(path, sizeof path, "/proc/self/fd/%d", ends[0]);
        enum ax_status st = ax_read_file(path, limit, &data, &len);
        assert_int_equal(st, limit < 40000 ? AX_ERR_DATA : AX_OK);
        if (st == AX_OK) {
            assert_int_equal(len, 40000);
            assert_int_equal(data[len], 0);
            ax_free(data);
        }
        close(ends[0]);
    }
}

/* Of a file, whose size is known beforehand, and of a pipe: what is longer than the limit is refused,
 * all else is read to the byte. */
static void small_limits_are_exact(void **state) {
    (void)state;
    static const char text[] = "123456";
    for (size_t n = 0; n < sizeof text; n++) {
        char whole[8], pipe_path[32];
        int ends[2];
        snprintf(whole, sizeof whole, "%.*s", (int)n, text);
        put(in_dir("a"), whole);
        for (size_t limit = 0; limit < sizeof text; limit++) {
            assert_int_equal(pipe(ends), 0);
            assert_int_equal(write(ends[1], text, n), n);
            close(ends[1]);
            snprintf(pipe_path, sizeof pipe_path, "/proc/self/fd/%d", ends[0]);
            const char *const paths[] = {in_dir("a"), pipe_path};
            for (int i = 0; i < 2; i++) {
                char *data = NULL;
                size_t len;
                const enum ax_status st = ax_read_file(paths[i], limit, &data, &len);
                assert_int_equal(st, n <= limit ? AX_OK : AX_ERR_DATA);
                if (st != AX_OK)
                    continue;
                assert_int_equal(len, n);
                assert_string_equal(data, whole);
                ax_free(data);
            }
            close(ends[0]);
        }
    }
}

/* Files of the kernel: as much as there is room for, ended with NUL whatever the buffer held. */
static void kernel_files_are_cut_to_the_buffer(void **state) {
    (void)state;
    char buf[16];
    put(in_dir("a"), "one two");
    for (size_t size = 1; size <= 12; size++) {
        const size_t n = size - 1 < 7 ? size - 1 : 7;
        memset(buf, 'x', sizeof buf);
        assert_true(ax_proc_read(in_dir("a"), buf, size));
        assert_memory_equal(buf, "one two", n);
        assert_int_equal(buf[n], '\0');
        for (size_t i = size; i < sizeof buf; i++)
            assert_int_equal(buf[i], 'x');
    }
    assert_false(ax_proc_read(in_dir("none"), buf, sizeof buf));
    assert_false(ax_proc_read(dir, buf, sizeof buf));
}

/* 200 kB through a pipe that is filled while it is read: the buffer has to grow. */
static void pipes_may_be_long(void **state) {
    (void)state;
    int ends[2];
    char path[32]; /* as a shell names "<(command)" */
    assert_int_equal(pipe(ends), 0);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    pid_t child = fork();
    if (child == 0) {
        (void)usleep(50000); /* there is nothing yet */
        for (int i = 0; i < 50000; i++)
            if (write(ends[1], "abc\n", 4) != 4)
                _exit(1);
        _exit(0);
    }
    close(ends[1]);
    char *data;
    size_t len;
    assert_int_equal(ax_read_file(path, 1 << 20, &data, &len), AX_OK);
    close(ends[0]);
    assert_int_equal(len, 200000);
    assert_string_equal(data + 199992, "abc\nabc\n");
    ax_free(data);
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_int_equal(how, 0);
}

/* Also where a whole block ends there; a read that goes on for ever is stopped. */
static void reads_end_with_the_file(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, AX_DIRECT_IO_ALIGN, AX_DIRECT_IO_ALIGN + 1,
                                   2 * AX_DIRECT_IO_ALIGN};
    static char bytes[2 * AX_DIRECT_IO_ALIGN];
    void *heap, *buffer;
    assert_int_equal(ax_alloc_direct(&heap, &buffer, 4 * AX_DIRECT_IO_ALIGN), AX_OK);
    alarm(10);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct ax_file f;
        size_t got = 1;
        assert_int_equal(ax_write_file_atomic(in_dir("ends"), bytes, sizes[i]), AX_OK);
        assert_int_equal(ax_file_open_direct(&f, in_dir("ends")), AX_OK);
        assert_int_equal(ax_file_pread_some(&f, buffer, 4 * AX_DIRECT_IO_ALIGN, 0, &got), AX_OK);
        assert_int_equal(got, sizes[i]);
        assert_int_equal(ax_file_close(&f), AX_OK);
    }
    alarm(0);
    ax_free(heap);
}

/* A named pipe that somebody has connected to the standard input is read, but no other in its folder. */
static void the_standard_input_is_read(void **state) {
    (void)state;
    struct ax_file f;
    char byte = 0;
    assert_int_equal(mkfifo(in_dir("input"), 0600), 0);
    assert_int_equal(mkfifo(in_dir("another"), 0600), 0);
    const int input = dup(STDIN_FILENO), fifo = open(in_dir("input"), O_RDWR);
    assert_int_equal(dup2(fifo, STDIN_FILENO), STDIN_FILENO);
    assert_int_equal(write(fifo, "x", 1), 1);
    assert_int_equal(ax_file_open_read(&f, in_dir("input")), AX_OK);
    assert_int_equal(read(f.fd, &byte, 1), 1);
    assert_int_equal(byte, 'x');
    assert_int_equal(ax_file_close(&f), AX_OK);
    assert_int_equal(ax_file_open_read(&f, in_dir("another")), AX_ERR_DATA);
    assert_int_equal(dup2(input, STDIN_FILENO), STDIN_FILENO);
    assert_int_equal(ax_file_open_read(&f, in_dir("input")), AX_ERR_DATA);
    assert_int_equal(close(input) | close(fifo), 0);
}

/* Nothing that has no end, or that nobody writes to, is waited for. */
static void other_files_are_refused(void **state) {
    (void)state;
    char *data;
    size_t len;
    struct ax_file f;
    assert_int_equal(mkfifo(in_dir("fifo"), 0600), 0);
    assert_int_equal(ax_read_file(in_dir("fifo"), 1 << 20, &data, &len), AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "fifo: not a regular file, but a named pipe"));
    assert_int_equal(ax_file_open_read(&f, in_dir("fifo")), AX_ERR_DATA);
    assert_int_equal(ax_file_open_direct(&f, in_dir("fifo")), AX_ERR_DATA);
    assert_int_equal(ax_read_file("/dev/zero", 1 << 20, &data, &len), AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "not a regular file, but a device"));
    const int input = dup(STDIN_FILENO), other = open(in_dir("."), O_RDONLY);
    assert_int_equal(dup2(other, STDIN_FILENO),
                     STDIN_FILENO); /* else it may be the standard input */
    assert_int_equal(ax_read_file("/dev/null", 1 << 20, &data, &len), AX_OK);
    assert_int_equal(dup2(input, STDIN_FILENO), STDIN_FILENO);
    assert_int_equal(close(input) | close(other), 0);
    assert_int_equal(len, 0);
    ax_free(data);
    /* nor written to */
    assert_int_equal(ax_write_file_atomic(in_dir("fifo"), "x", 1), AX_ERR_CONFIG);
    assert_int_equal(ax_rename("/dev/null", in_dir("fifo")), AX_ERR_CONFIG);
    assert_non_null(strstr(ax_error_text(), "fifo: not a regular file, and it would be replaced"));
    assert_int_equal(ax_file_create(&f, in_dir("fifo")), AX_ERR_IO);
    assert_non_null(strstr(ax_error_text(), "it is not a regular file; remove it"));
    assert_int_equal(ax_file_open_update(&f, in_dir("fifo")), AX_ERR_IO);
}

/* What is written stays where its name is. */
static void links_are_not_written_through(void **state) {
    (void)state;
    struct ax_file f;
    struct ax_claim claim;
    struct ax_direct_io direct;
    put(in_dir("target"), "kept");
    assert_int_equal(symlink("target", in_dir("link")), 0);
    assert_int_equal(ax_file_create(&f, in_dir("link")), AX_ERR_IO);
    assert_non_null(strstr(ax_error_text(), "link: cannot create: it is a symbolic link"));
    assert_int_equal(ax_file_open_update(&f, in_dir("link")), AX_ERR_IO);
    assert_int_equal(ax_direct_io_create(&direct, in_dir("link")), AX_ERR_IO);
    assert_int_equal(ax_claim_take(&claim, in_dir("link")), AX_ERR_IO);
    assert_non_null(strstr(ax_error_text(), "link: cannot create the lock: it is a symbolic link"));
    /* a file of the user's is theirs to link, and replaced as a whole */
    assert_int_equal(ax_file_open_append_private(&f, in_dir("link")), AX_OK);
    assert_int_equal(ax_file_close(&f), AX_OK);
    assert_int_equal(ax_write_file_atomic(in_dir("link"), "new", 3), AX_OK);
    char *text;
    size_t len;
    assert_int_equal(ax_read_file(in_dir("target"), 100, &text, &len), AX_OK);
    assert_string_equal(text, "kept");
    ax_free(text);
}

static void mappings_are_of_regular_files(void **state) {
    (void)state;
    struct ax_mapping m;
    put(in_dir("a"), "mapped");
    assert_int_equal(ax_map_file(&m, in_dir("a")), AX_OK);
    assert_int_equal(m.len, 6);
    assert_memory_equal(m.data, "mapped", 6);
    ax_unmap_file(&m);
    assert_null(m.data);
    ax_unmap_file(&m);
    put(in_dir("a"), "");
    assert_int_equal(ax_map_file(&m, in_dir("a")), AX_OK);
    assert_int_equal(m.len, 0);
    ax_unmap_file(&m);
    assert_int_equal(mkfifo(in_dir("fifo"), 0600), 0);
    assert_int_equal(ax_map_file(&m, in_dir("fifo")), AX_ERR_DATA); /* and does not wait */
    assert_non_null(strstr(ax_error_text(), "not a regular file"));
    assert_int_equal(ax_map_file(&m, "/dev/zero"), AX_ERR_DATA);
    assert_int_equal(ax_map_file(&m, dir), AX_ERR_DATA);
    assert_int_equal(ax_map_file(&m, in_dir("absent")), AX_ERR_IO);
    put(in_dir("a"), "x");
    assert_int_equal(ax_fault_configure("close:1:eio"), AX_OK);
    assert_int_equal(ax_map_file(&m, in_dir("a")), AX_ERR_IO);
    assert_null(m.data);
}

static void names_and_paths(void **state) {
    (void)state;
    static const char *const plain[] = {"a", "model-00001-of-00002.safetensors", "..a", "ä"};
    static const char *const other[] = {"", ".", "..", "a/b", "/", "a\\b", "a\nb", "\x7F"};
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        assert_true(ax_is_plain_name(plain[i]));
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++)
        assert_false(ax_is_plain_name(other[i]));
    static const char *const joins[][3] = {
        {"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"", "b", "b"}, {"/", "b", "/b"}};
    for (size_t i = 0; i < 4; i++) {
        char *path;
        assert_int_equal(ax_path_join(&path, joins[i][0], joins[i][1]), AX_OK);
        assert_string_equal(path, joins[i][2]);
        ax_free(path);
    }
}

static void folders_come_and_go(void **state) {
    (void)state;
    assert_int_equal(ax_mkdir_parents(in_dir("a/b//c/")), AX_OK);
    assert_true(ax_path_is_dir(in_dir("a/b/c")));
    assert_int_equal(ax_mkdir_parents(in_dir("a/b/c")), AX_OK);
    assert_int_equal(ax_mkdir(in_dir("a")), AX_OK);
    put(in_dir("file"), "x");
    assert_int_equal(ax_mkdir(in_dir("file")), AX_ERR_IO);
    assert_non_null(strstr(ax_error_text(), "a file with this name exists"));
    assert_int_equal(ax_mkdir_parents(in_dir("file/sub")), AX_ERR_IO);
    assert_int_equal(ax_mkdir(in_dir("x/y")), AX_ERR_IO);
    assert_int_equal(ax_mkdir_check(in_dir("a/b/c")), AX_OK);
    assert_int_equal(ax_mkdir_check(in_dir("x/y/")), AX_OK);
    assert_int_equal(ax_mkdir_check("x/y"), AX_OK);
    assert_false(ax_path_exists(in_dir("x")));
    assert_int_equal(ax_mkdir_check(in_dir("file/sub")), AX_ERR_IO);
    assert_non_null(
        strstr(ax_error_text(), "file: cannot create the folder: a file with this name"));
    if (geteuid() != 0) {
        assert_int_equal(ax_mkdir_check("/x/y"), AX_ERR_IO);
        assert_non_null(strstr(ax_error_text(), "/x/y: cannot write to /: Permission denied"));
    }
    assert_int_equal(ax_sync_dir(in_dir("a")), AX_OK);
    assert_int_equal(ax_sync_dir(in_dir("file")), AX_ERR_IO);
    assert_non_null(strstr(ax_error_text(), "file: cannot open the folder: Not a directory"));
    /* a tree with a link to a file outside of it */
    for (int i = 0; i < 300; i++) {
        char name[32];
        snprintf(name, sizeof name, "a/b/%d", i);
        put(in_dir(name), "y");
    }
    assert_int_equal(symlink(in_dir("file"), in_dir("a/b/c/link")), 0);
    assert_int_equal(symlink(dir, in_dir("a/up")), 0);
    assert_int_equal(ax_remove_tree(in_dir("a")), AX_OK);
    assert_false(ax_path_exists(in_dir("a")));
    expect_text(in_dir("file"), "x");
    assert_int_equal(ax_remove_tree(in_dir("a")), AX_OK);
    assert_int_equal(ax_unlink(in_dir("file")), AX_OK);
    assert_int_equal(ax_unlink(in_dir("file")), AX_ERR_IO);
}

/* Every call of an atomic write fails in every way: the old text or the new, never another; no
 * stray file unless removing it was what failed. */
/* Also where standard input is closed, so that a folder that is opened has the number 0. */
static void descriptor_0_is_one_too(void **state) {
    (void)state;
    assert_int_equal(ax_mkdir(in_dir("a")), AX_OK);
    assert_int_equal(ax_mkdir(in_dir("a/b")), AX_OK);
    put(in_dir("a/b/c"), "x");
    const int saved = dup(STDIN_FILENO);
    assert_true(saved > 0);
    close(STDIN_FILENO);
    const enum ax_status read = ax_sync_dir(in_dir("a"));
    const enum ax_status removed = ax_remove_tree(in_dir("a"));
    const bool open = fcntl(STDIN_FILENO, F_GETFD) >= 0;
    assert_int_equal(dup2(saved, STDIN_FILENO), STDIN_FILENO);
    close(saved);
    assert_int_equal(read, AX_OK);
    assert_int_equal(removed, AX_OK);
    assert_false(open);
    assert_int_equal(count_entries(), 0);
}

static void atomic_writes_survive_faults(void **state) {
    (void)state;
    static const char *const kinds[] = {"eio", "enospc", "enomem"};
    uint64_t live = ax_mem_live_blocks();
    int points = 0;
    for (int op = 0; op <= AX_FAULT_MALLOC; op++) {
        for (size_t kind = 0; kind < 3; kind++) {
            for (int k = 1;; k++) {
                char spec[64];
                put(in_dir("a"), "old");
                snprintf(spec, sizeof spec, "%s:%d:%s", ax_fault_op_name((enum ax_fault_op)op), k,
                         kinds[kind]);
                assert_int_equal(ax_fault_configure(spec), AX_OK);
                enum ax_status st = ax_write_file_atomic(in_dir("a"), "new!", 4);
                bool fired = ax_fault_fired();
                assert_int_equal(ax_fault_configure(NULL), AX_OK);
                assert_int_equal(ax_mem_live_blocks(), live);
                assert_int_equal(count_entries(), 1);
                if (!fired) {
                    assert_int_equal(st, AX_OK);
                    expect_text(in_dir("a"), "new!");
                    break;
                }
                points++;
                const bool full = strcmp(kinds[kind], "enospc") == 0;
                const bool writes = op == AX_FAULT_WRITE || op == AX_FAULT_FSYNC;
                assert_int_equal(st, op == AX_FAULT_MALLOC                      ? AX_ERR_NOMEM
                                     : full && (writes || st == AX_ERR_STORAGE) ? AX_ERR_STORAGE
                                                                                : AX_ERR_IO);
                /* after the rename only the folder's sync can fail */
                bool renamed = strstr(ax_error_text(), "the folder") != NULL;
                expect_text(in_dir("a"), renamed ? "new!" : "old");
            }
        }
    }
    print_message("atomic write: %d fault points\n", points);
    assert_true(points >= 30);
}

/* Writes the file 200 times; how many failed. */
static void *keep_writing(void *path) {
    intptr_t failed = 0;
    for (int i = 0; i < 200; i++)
        failed += ax_write_file_atomic(path, "whole", 5) != AX_OK;
    return (void *)failed;
}

static void threads_may_write_the_same_file(void **state) {
    (void)state;
    char *path = in_dir("shared");
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, keep_writing, path), 0);
    for (int i = 0; i < 3; i++) {
        void *failed;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_int_equal((intptr_t)failed, 0);
    }
    expect_text(path, "whole");
}

static void the_last_part_of_a_path(void **state) {
    (void)state;
    static const char *const cases[][2] = {{"a/b", "b"},  {"b", "b"}, {"a/b//", "b"}, {"/b", "b"},
                                           {"../", ".."}, {"/", "/"}, {"//", "/"},    {"", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t len;
        const char *last = ax_path_last(cases[i][0], &len);
        assert_int_equal(len, strlen(cases[i][1]));
        assert_memory_equal(last, cases[i][1], len);
    }
}

int main(void) {
#define test_in_dir(f) cmocka_unit_test_setup_teardown(f, make_dir, remove_dir)
    const struct CMUnitTest tests[] = {
        test_in_dir(modes_follow_the_umask),
        test_in_dir(writes_and_reads_are_exact),
        test_in_dir(short_and_interrupted_calls_go_on),
        test_in_dir(errors_name_path_and_bytes),
        test_in_dir(whole_files_have_a_limit),
        test_in_dir(small_limits_are_exact),
        test_in_dir(kernel_files_are_cut_to_the_buffer),
        test_in_dir(pipes_may_be_long),
        test_in_dir(reads_end_with_the_file),
        test_in_dir(the_standard_input_is_read),
        test_in_dir(other_files_are_refused),
        test_in_dir(links_are_not_written_through),
        test_in_dir(mappings_are_of_regular_files),
        test_in_dir(names_and_paths),
        test_in_dir(folders_come_and_go),
        test_in_dir(descriptor_0_is_one_too),
        test_in_dir(atomic_writes_survive_faults),
        test_in_dir(threads_may_write_the_same_file),
        test_in_dir(errors_name_the_file),
        cmocka_unit_test(the_last_part_of_a_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
