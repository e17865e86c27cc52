/* The world of a guest, without an engine: what it can read, write, open and know, what that costs,
 * and that no pointer reaches beyond its memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "data/reward/sandbox/wasi.h"

enum { OK = 0, BADF = 8, FAULT = 21, INVAL = 28, NOENT = 44, NOTCAPABLE = 76 };
enum { SIZE = 1 << 16 };
static unsigned char memory[SIZE];
static char out[16], err[4];

static struct ax_wasi world(void) {
    memset(memory, 0, sizeof memory);
    return (struct ax_wasi){.out = {.data = out, .cap = sizeof out},
                            .err = {.data = err, .cap = sizeof err},
                            .fuel_limit = 100000,
                            .fuel = 100000};
}

static int64_t call(struct ax_wasi *w, const char *name, const int64_t *args, size_t n) {
    union ax_wasm_cell cells[16] = {0};
    int which = 0;
    while (strcmp(ax_wasi_imports[which].name, name) != 0)
        which++;
    assert_int_equal(strlen(ax_wasi_imports[which].params), n);
    for (size_t i = 0; i < n; i++)
        cells[i].i64 = args[i];
    ax_wasi_call(w, which, cells, memory, sizeof memory);
    return cells[0].i32;
}
#define CALL(w, name, ...)                                                                         \
    call(w, name, (const int64_t[]){__VA_ARGS__},                                                  \
         sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

static void put32(size_t at, uint32_t v) {
    memcpy(memory + at, &v, 4);
}
static uint32_t get32(size_t at) {
    uint32_t v;
    memcpy(&v, memory + at, 4);
    return v;
}
static uint64_t get64(size_t at) {
    uint64_t v;
    memcpy(&v, memory + at, 8);
    return v;
}

/* fd_read or fd_write with one buffer of n bytes at 1000; the count, or −errno. */
static int64_t move(struct ax_wasi *w, const char *name, int fd, uint32_t n) {
    put32(0, 1000);
    put32(4, n);
    const int64_t bad = CALL(w, name, fd, 0, 1, 8);
    return bad ? -bad : (int64_t)get32(8);
}

static void input_in_segments(void **state) {
    const struct ax_bytes input[] = {{"source", 6}, {"", 0}, {"in", 2}};
    struct ax_wasi w = world();
    (void)state;
    w.input = input;
    w.n_input = 3;
    assert_int_equal(move(&w, "fd_read", 0, 4), 4);
    assert_memory_equal(memory + 1000, "sour", 4);
    assert_int_equal(move(&w, "fd_read", 0, 100), 2);
    assert_int_equal(move(&w, "fd_read", 0, 100), 0); /* the end of the first */
    assert_int_equal(move(&w, "fd_read", 0, 100), 0); /* of the empty one */
    assert_int_equal(move(&w, "fd_read", 0, 100), 2);
    for (int i = 0; i < 3; i++)
        assert_int_equal(move(&w, "fd_read", 0, 100), 0);
}

static void output_is_bounded(void **state) {
    struct ax_wasi w = world();
    (void)state;
    memset(memory + 1000, 'x', 100);
    assert_int_equal(move(&w, "fd_write", 1, 16), 16);
    assert_int_equal(w.end, AX_WASI_RUNS);
    assert_int_equal(move(&w, "fd_write", 2, 100), 100); /* all but 4 dropped */
    assert_int_equal(w.err.n, 4);
    assert_int_equal(w.end, AX_WASI_RUNS);
    (void)move(&w, "fd_write", 1, 1);
    assert_int_equal(w.end, AX_WASI_OUTPUT);
    assert_int_equal(w.out.n, 16);
    w = world();
    assert_int_equal(CALL(&w, "fd_close", 1), OK);
    assert_int_equal(move(&w, "fd_write", 1, 1), -BADF);
    assert_int_equal(move(&w, "fd_write", 2, 1), 1); /* the other stream is still open */
    assert_int_equal(CALL(&w, "fd_close", 2), OK);
    assert_int_equal(move(&w, "fd_write", 2, 1), -BADF);
}

static void pointers_are_checked(void **state) {
    struct ax_wasi w = world();
    (void)state;
    assert_int_equal(CALL(&w, "fd_write", 1, SIZE - 4, 1, 8), FAULT);
    assert_int_equal(CALL(&w, "fd_write", 1, 0xfffffff8, 1, 8), FAULT);
    put32(0, 0xffffffff);
    put32(4, 0xffffffff);
    assert_int_equal(CALL(&w, "fd_write", 1, 0, 1, 8), FAULT);
    assert_int_equal(CALL(&w, "fd_write", 1, 0, 1025, 8), INVAL);
    assert_int_equal(CALL(&w, "random_get", SIZE - 3, 4), FAULT);
    assert_int_equal(CALL(&w, "random_get", 1, 0xffffffff), FAULT);
    assert_int_equal(CALL(&w, "clock_time_get", 0, 0, SIZE - 7), FAULT);
    assert_int_equal(CALL(&w, "poll_oneoff", SIZE - 47, 0, 1, 0), FAULT);
    assert_int_equal(CALL(&w, "args_sizes_get", 0, SIZE - 3), FAULT);
    assert_int_equal(CALL(&w, "clock_time_get", 0, 0, SIZE - 8), OK);
}

static void host_work_costs_fuel(void **state) {
    struct ax_wasi w = world();
    (void)state;
    (void)call(&w, "sched_yield", NULL, 0);
    assert_int_equal(w.fuel, 100000 - 500);
    (void)CALL(&w, "random_get", 0, 1000);
    assert_int_equal(w.fuel, 100000 - 1000 - 8000);
    memset(memory + 1000, 0, 8);
    (void)move(&w, "fd_write", 2, 10);
    assert_int_equal(w.fuel, 100000 - 1500 - 8010);
    (void)CALL(&w, "random_get", 0, 60000);
    assert_int_equal(w.end, AX_WASI_FUEL);
    assert_int_equal(w.fuel, 0);
}

/* The clock is fuel, and a sleep is a jump. */
static void time_is_fuel(void **state) {
    struct ax_wasi w = world();
    (void)state;
    assert_int_equal(CALL(&w, "clock_time_get", 0, 0, 0), OK);
    const uint64_t first = get64(0);
    w.fuel -= 7000;
    assert_int_equal(CALL(&w, "clock_time_get", 0, 0, 0), OK);
    const uint64_t second = get64(0);
    assert_true(second - first >= 1000 && second - first < 1200);
    const uint64_t wait = 1000000000000000000; /* 10^9 s */
    memset(memory, 0, 200);
    memset(memory, 5, 8);
    memcpy(memory + 24, &wait, 8);
    assert_int_equal(CALL(&w, "poll_oneoff", 0, 100, 1, 96), OK);
    assert_memory_equal(memory + 100, memory, 8); /* what the guest calls it */
    assert_int_equal(get32(96), 1);
    assert_int_equal(CALL(&w, "clock_time_get", 0, 0, 0), OK);
    assert_true(get64(0) - second >= wait && get64(0) - second < wait + 1000);
    w.stop_at_clock = true;
    assert_int_equal(CALL(&w, "clock_time_get", 0, 0, 0), OK);
    assert_int_equal(w.end, AX_WASI_RUNS); /* nothing is written yet */
    assert_int_equal(move(&w, "fd_write", 1, 1), 1);
    assert_int_equal(CALL(&w, "clock_time_get", 0, 0, 0), OK);
    assert_int_equal(w.end, AX_WASI_CLOCK);
}

static void randomness_is_the_seeds(void **state) {
    unsigned char first[40];
    (void)state;
    for (uint64_t seed = 1; seed < 3; seed++) {
        struct ax_wasi a = world();
        a.seed = seed;
        (void)CALL(&a, "random_get", 0, 40);
        if (seed == 1)
            memcpy(first, memory, 40);
        struct ax_wasi b = world();
        b.seed = 1;
        (void)CALL(&b, "random_get", 0, 40);
        assert_memory_equal(memory, first, 40);
    }
    assert_memory_not_equal(first, first + 20, 20);
}

static int64_t open_path(struct ax_wasi *w, const char *path, int64_t rights, int oflags) {
    memcpy(memory + 2000, path, strlen(path));
    return CALL(w, "path_open", 3, 0, 2000, (int64_t)strlen(path), oflags, rights, 0, 0, 16);
}

static void one_file_and_no_more(void **state) {
    struct ax_wasi w = world();
    const int64_t may_read = 2, may_write = 64;
    (void)state;
    assert_int_equal(open_path(&w, "lib/a.zip", may_read, 0), BADF); /* none */
    w.library = (struct ax_bytes){"contents", 8};
    w.library_path = "lib/a.zip";
    static const char *const others[] = {"etc/passwd", "../lib/a.zip", "lib/../lib/a.zip",
                                         "lib/a",      "lib/a.zip/",   "/lib/a.zip",
                                         "li",         "a.zip"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_int_equal(open_path(&w, others[i], may_read, 0), NOENT);
    assert_int_equal(open_path(&w, "lib", may_read, 0), NOTCAPABLE);
    assert_int_equal(open_path(&w, "lib/a.zip", may_read | may_write, 0), NOTCAPABLE);
    assert_int_equal(open_path(&w, "lib/a.zip", may_read, 1), NOTCAPABLE); /* create */
    for (int i = 0; i < AX_WASI_MAX_HANDLES; i++)
        assert_int_equal(open_path(&w, "lib/a.zip", may_read, 0), OK);
    assert_int_equal(open_path(&w, "lib/a.zip", may_read, 0), NOTCAPABLE);
    const int fd = (int)get32(16);
    /* kind, rights, rights of what is opened in it: output; the root; the file */
    const uint64_t read_seek_tell_stat = 1 << 1 | 1 << 2 | 1 << 5 | 1 << 21;
    const uint64_t stats[][4] = {{1, 0, 1 << 1 | 1 << 6 | 1 << 21, 0},
                                 {3, 3, 1 << 13 | 1 << 18, read_seek_tell_stat},
                                 {(uint64_t)fd, 4, read_seek_tell_stat, 0}};
    for (size_t i = 0; i < sizeof stats / sizeof *stats; i++) {
        memset(memory + 32, 7, 24);
        assert_int_equal(CALL(&w, "fd_fdstat_get", (int64_t)stats[i][0], 32), OK);
        for (size_t k = 0; k < 3; k++)
            assert_int_equal(get64(32 + 8 * k), stats[i][1 + k]);
    }
    assert_int_equal(CALL(&w, "fd_seek", fd, -3, 2, 24), OK);
    assert_int_equal(get64(24), 5);
    assert_int_equal(move(&w, "fd_read", fd, 100), 3);
    assert_memory_equal(memory + 1000, "nts", 3);
    assert_int_equal(move(&w, "fd_write", fd, 1), -BADF);
    assert_int_equal(CALL(&w, "fd_seek", fd, 1, 0, 24), OK);
    put32(0, 1000);
    put32(4, 4);
    assert_int_equal(CALL(&w, "fd_pread", fd, 0, 1, 3, 8), OK);
    assert_int_equal(get32(8), 4);
    assert_memory_equal(memory + 1000, "tent", 4);
    assert_int_equal(CALL(&w, "fd_tell", fd, 24), OK); /* a read elsewhere moves nothing */
    assert_int_equal(get64(24), 1);
    assert_int_equal(CALL(&w, "fd_pread", fd + 1000, 0, 1, 3, 8), BADF);
    assert_int_equal(CALL(&w, "fd_close", fd), OK);
    assert_int_equal(CALL(&w, "fd_close", fd), BADF);
    assert_int_equal(move(&w, "fd_read", fd, 1), -BADF);
}

/* Of the library: kind, one link, its size; of nothing else is there anything to know. */
static void what_is_known_of_files(void **state) {
    struct ax_wasi w = world();
    unsigned char want[66] = {[0] = 7, [65] = 7, [9] = 1, [17] = 4, [25] = 1, [33] = 8};
    (void)state;
    w.library = (struct ax_bytes){"contents", 8};
    w.library_path = "lib/a.zip";
    memset(memory + 31, 7, 66);
    memcpy(memory + 2000, "lib/a.zip", 9);
    assert_int_equal(CALL(&w, "path_filestat_get", 3, 0, 2000, 9, 32), OK);
    assert_memory_equal(memory + 31, want, 66);
    assert_int_equal(open_path(&w, "lib/a.zip", 2, 0), OK);
    const int fd = (int)get32(16);
    memset(memory + 31, 7, 66);
    assert_int_equal(CALL(&w, "fd_filestat_get", fd, 32), OK);
    assert_memory_equal(memory + 31, want, 66);
    assert_int_equal(CALL(&w, "fd_filestat_get", fd, SIZE - 63), FAULT);
}

static void nothing_else(void **state) {
    static const char *const refused[] = {
        "fd_readdir",  "path_create_directory", "path_link", "path_symlink", "path_unlink_file",
        "path_rename", "sock_accept",           "sock_recv", "sock_send",    "fd_pwrite",
        "fd_allocate"};
    const int64_t zeros[16] = {0};
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct ax_wasi w = world();
        int which = 0;
        while (strcmp(ax_wasi_imports[which].name, refused[i]) != 0)
            which++;
        assert_int_equal(call(&w, refused[i], zeros, strlen(ax_wasi_imports[which].params)), BADF);
    }
    struct ax_wasi w = world();
    memset(memory, 1, 8);
    assert_int_equal(CALL(&w, "environ_sizes_get", 0, 4), OK);
    assert_int_equal(get64(0), 0);
    assert_int_equal(move(&w, "fd_read", 3, 1), -BADF);
    static const int codes[][2] = {{0, 0}, {7, 7}, {125, 125}, {126, 1}, {256, 1}, {-1, 1}};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        struct ax_wasi e = world();
        (void)CALL(&e, "proc_exit", codes[i][0]);
        assert_int_equal(e.end, AX_WASI_EXIT);
        assert_int_equal(e.exit_code, codes[i][1]);
    }
}

static bool shout(void *ctx, struct ax_bytes message, struct ax_bytes *reply) {
    static char answer[8];
    (void)ctx;
    for (size_t i = 0; i < message.n; i++)
        answer[i] = (char)(message.data[i] - 32);
    *reply = (struct ax_bytes){answer, message.n};
    return message.n < sizeof answer;
}

static void messages_and_answers(void **state) {
    struct ax_wasi w = world();
    (void)state;
    w.ask = shout;
    for (int i = 0; i < 2; i++) {
        memcpy(memory + 1000, "abcd", 4);
        assert_int_equal(move(&w, "fd_write", 1, 4), 4);
        assert_int_equal(move(&w, "fd_read", 0, 3), 3);
        assert_memory_equal(memory + 1000, "ABC", 3);
        assert_int_equal(move(&w, "fd_write", 1, 1), -INVAL); /* not read yet */
        assert_int_equal(move(&w, "fd_read", 0, 3), 1);
        assert_int_equal(move(&w, "fd_read", 0, 3), 0);
    }
    assert_int_equal(move(&w, "fd_write", 1, 8), 8);
    (void)move(&w, "fd_read", 0, 3);
    assert_int_equal(w.end, AX_WASI_PEER);
    ax_wasi_free(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(input_in_segments),    cmocka_unit_test(output_is_bounded),
        cmocka_unit_test(pointers_are_checked), cmocka_unit_test(host_work_costs_fuel),
        cmocka_unit_test(time_is_fuel),         cmocka_unit_test(randomness_is_the_seeds),
        cmocka_unit_test(one_file_and_no_more), cmocka_unit_test(what_is_known_of_files),
        cmocka_unit_test(nothing_else),         cmocka_unit_test(messages_and_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
