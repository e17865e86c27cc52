/* Saving a checkpoint when calls fail, the disk is full or memory is gone, at every single call:
 * the error says which file and how many bytes, the old checkpoint is whole, nothing is left lying
 * about, and nothing leaks. The same of loading, and of reading a manifest. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>

#include "base/fault.h"
#include "tests/ckpt/store.h"
#include "tests/skip.h"

#define OLD 1
#define NEW 2

static bool is(const char *a, const char *b) {
    return strcmp(a, b) == 0;
}

/* The checkpoint is there and holds what make_store(step) made. */
static bool has_good(int64_t step) {
    struct store back, want;
    char name[64];
    make_store(&back, 99);
    make_store(&want, (float)step);
    snprintf(name, sizeof name, "checkpoint-%lld", (long long)step);
    return load(name, &back) == AX_OK && memcmp(back.matrix, want.matrix, sizeof want.matrix) == 0;
}

static bool is_listed(int64_t step) {
    struct ax_checkpoint_list l;
    bool found = false;
    assert_int_equal(ax_checkpoint_list(&l, dir), AX_OK);
    for (size_t i = 0; i < l.n; i++)
        found = found || l.steps[i] == step;
    ax_checkpoint_list_free(&l);
    return found;
}

static void start_from_old(void) {
    struct store old;
    assert_int_equal(ax_fault_configure(NULL), AX_OK);
    remove_all();
    make_store(&old, OLD);
    save_ok(&old, OLD, 0);
}

/* ---- saving ---- */

static void assert_explained(enum ax_fault_op op, const char *kind) {
    assert_mentions(dir);
    if (is(kind, "eio"))
        assert_mentions("Input/output error");
    if (is(kind, "enospc"))
        assert_mentions("No space left on device");
    if (op == AX_FAULT_WRITE) {
        assert_mentions("cannot write ");
        assert_mentions(" written): "); /* how many bytes */
    }
}

/* One save beside the old one with one fault armed; false where the fault was not reached. */
static bool save_once(enum ax_fault_op op, int k, const char *kind) {
    struct store new;
    char spec[64];
    snprintf(spec, sizeof spec, "%s:%d:%s", ax_fault_op_name(op), k, kind);
    make_store(&new, NEW);
    const uint64_t live = ax_mem_live_blocks();
    const int files = count_open_files();
    assert_int_equal(ax_fault_configure(spec), AX_OK);
    const enum ax_status st = save_step(&new, NEW, 0);
    const bool fired = ax_fault_fired();
    assert_int_equal(ax_fault_configure(NULL), AX_OK);
    assert_int_equal(ax_mem_live_blocks(), live);
    assert_int_equal(count_open_files(), files);
    if (!fired || is(kind, "eintr") || is(kind, "short"))
        assert_int_equal(st, AX_OK); /* tried again, or continued */
    else if (st != AX_OK && op == AX_FAULT_MALLOC)
        assert_int_equal(st, AX_ERR_NOMEM);
    else if (st != AX_OK) {
        if (is(kind, "enospc") && op == AX_FAULT_WRITE)
            assert_int_equal(st, AX_ERR_STORAGE);
        else
            assert_true(st == AX_ERR_IO || (is(kind, "enospc") && st == AX_ERR_STORAGE));
        assert_explained(op, kind);
    }
    assert_true(has_good(OLD));
    if (is_listed(NEW)) /* what could not be read again is whole all the same */
        assert_true(has_good(NEW));
    else
        assert_true(st != AX_OK && count_entries(dir) == 1); /* the temporary one is gone */
    assert_int_equal(ax_remove_tree(in_dir("checkpoint-2")), AX_OK);
    return fired;
}

static int sweep(const char *kind, enum ax_fault_op first, enum ax_fault_op end) {
    int points = 0;
    start_from_old();
    for (enum ax_fault_op op = first; op < end; op++) {
        const bool moves = op == AX_FAULT_READ || op == AX_FAULT_WRITE;
        if (op == AX_FAULT_UNLINK || (is(kind, "short") && !moves))
            continue; /* nothing is removed by a save that goes well */
        for (int k = 1; save_once(op, k, kind); k++)
            points++;
    }
    print_message("%s at %d calls of a save\n", kind, points);
    return points;
}

static void test_every_call_fails(void **state) {
    (void)state;
    assert_true(sweep("eio", AX_FAULT_OPEN, AX_FAULT_SEND) > 30);
    assert_true(sweep("enospc", AX_FAULT_OPEN, AX_FAULT_SEND) > 30);
    assert_true(sweep("eintr", AX_FAULT_OPEN, AX_FAULT_SEND) > 30);
    assert_true(sweep("short", AX_FAULT_OPEN, AX_FAULT_SEND) > 8);
}

static void test_every_allocation_of_a_save_fails(void **state) {
    (void)state;
    assert_true(sweep("enomem", AX_FAULT_MALLOC, AX_FAULT_MALLOC + 1) > 100);
}

/* ---- loading ---- */

static bool load_once(enum ax_fault_op op, int k, const char *kind) {
    struct store back;
    char spec[64];
    snprintf(spec, sizeof spec, "%s:%d:%s", ax_fault_op_name(op), k, kind);
    make_store(&back, 99);
    const uint64_t live = ax_mem_live_blocks();
    const int files = count_open_files();
    assert_int_equal(ax_fault_configure(spec), AX_OK);
    const enum ax_status st = load("checkpoint-1", &back);
    const bool fired = ax_fault_fired();
    assert_int_equal(ax_fault_configure(NULL), AX_OK);
    if (!fired || is(kind, "eintr") || is(kind, "short"))
        assert_int_equal(st, AX_OK);
    else if (op == AX_FAULT_MALLOC)
        assert_int_equal(st, AX_ERR_NOMEM);
    else {
        assert_int_equal(st, AX_ERR_IO);
        assert_mentions(dir);
    }
    assert_int_equal(ax_mem_live_blocks(), live);
    assert_int_equal(count_open_files(), files);
    return fired;
}

static void test_every_call_of_a_load_fails(void **state) {
    (void)state;
    static const char *const kinds[] = {"eio", "eintr", "short", "enomem"};
    static const enum ax_fault_op ops[] = {AX_FAULT_OPEN, AX_FAULT_READ, AX_FAULT_CLOSE,
                                           AX_FAULT_MALLOC};
    int points = 0;
    start_from_old();
    for (int i = 0; i < 4; i++) {
        for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
            const bool memory = ops[o] == AX_FAULT_MALLOC;
            if (memory != is(kinds[i], "enomem") ||
                (is(kinds[i], "short") && ops[o] != AX_FAULT_READ))
                continue;
            for (int k = 1; load_once(ops[o], k, kinds[i]); k++)
                points++;
        }
    }
    print_message("failed at %d calls of a load\n", points);
    assert_true(points > 100);
}

static void test_every_allocation_of_a_manifest_fails(void **state) {
    (void)state;
    char *text;
    size_t len;
    int k = 0;
    start_from_old();
    assert_int_equal(
        ax_read_file(in_dir("checkpoint-1/" AX_CHECKPOINT_MANIFEST), 1 << 20, &text, &len), AX_OK);
    const uint64_t live = ax_mem_live_blocks();
    for (bool fired = true; fired; k += fired) {
        struct ax_checkpoint c = {0};
        char spec[64];
        snprintf(spec, sizeof spec, "malloc:%d:enomem", k + 1);
        assert_int_equal(ax_fault_configure(spec), AX_OK);
        const enum ax_status st = ax_manifest_parse(&c, "m", text, len);
        fired = ax_fault_fired();
        assert_int_equal(ax_fault_configure(NULL), AX_OK);
        assert_int_equal(st, fired ? AX_ERR_NOMEM : AX_OK);
        ax_checkpoint_close(&c);
        assert_int_equal(ax_mem_live_blocks(), live);
    }
    ax_free(text);
    print_message("no memory at %d calls of reading a manifest\n", k);
    assert_true(k > 50);
}

/* ---- a disk that is really full ---- */

/* Room for `pages` pages is left on the disk. */
static void fill_disk(const char *path, int pages) {
    static const char page[4096];
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    off_t size = 0;
    assert_true(fd >= 0);
    for (ssize_t n; (n = write(fd, page, sizeof page)) > 0;)
        size += n;
    assert_int_equal(errno, ENOSPC);
    assert_true(size > pages * 4096L);
    assert_int_equal(ftruncate(fd, size - pages * 4096L), 0);
    close(fd);
}

static void on_full_disk(const char *filler) {
    struct store new;
    int pages = 0;
    make_store(&new, NEW);
    for (bool failed = true; failed; pages++) {
        fill_disk(filler, pages);
        const enum ax_status st = save_step(&new, NEW, 0);
        failed = st != AX_OK;
        assert_true(has_good(OLD));
        assert_int_equal(is_listed(NEW), !failed);
        if (failed) {
            assert_int_equal(st, AX_ERR_STORAGE);
            assert_mentions("No space left on device");
            assert_mentions(dir);
            assert_int_equal(count_entries(dir), 2); /* the old one and the filler */
        }
    }
    assert_true(has_good(NEW));
    print_message("the save needs %d free pages\n", pages - 1);
    assert_true(pages > 4);
}

static void test_full_tmpfs(void **state) {
    (void)state;
    char base[sizeof dir], filler[96];
    remove_all();
    memcpy(base, dir, sizeof base);
    /* a name space of its own: nothing stays mounted, whatever becomes of the test */
    if (unshare(CLONE_NEWNS | (geteuid() == 0 ? 0 : CLONE_NEWUSER)) != 0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", dir, "tmpfs", 0, "size=1m") != 0)
        skip_because("kernel, mount namespaces");
    struct store old;
    make_store(&old, OLD);
    save_ok(&old, OLD, 0);
    snprintf(filler, sizeof filler, "%s/filler", dir);
    on_full_disk(filler);
    assert_int_equal(umount(base), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_call_fails),
        cmocka_unit_test(test_every_allocation_of_a_save_fails),
        cmocka_unit_test(test_every_call_of_a_load_fails),
        cmocka_unit_test(test_every_allocation_of_a_manifest_fails),
        cmocka_unit_test(test_full_tmpfs),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
