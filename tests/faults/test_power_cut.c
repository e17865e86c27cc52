/* The power fails at any moment of a save: data that was not synced may be lost, truncated or
 * zeros (tests/faults/disk.h says what a disk may do). Then every checkpoint that is listed
 * loads bit for bit, and is the old or the new one, without cleaning up by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>

#include "tests/ckpt/store.h"
#include "tests/faults/cuts.h"

/* A save, and what was there before it. */
struct scene {
    const char *name;
    int64_t old_step, new_step; /* old 0: the folder is empty */
    int64_t limit;
    struct store old, new;
    int looks;
};

/* Folders called checkpoint-N, whatever is in them. */
static size_t count_named(void) {
    size_t n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d)) != NULL;)
        n += strncmp(e->d_name, "checkpoint-", 11) == 0 && !strchr(e->d_name, '.');
    closedir(d);
    return n;
}

static bool holds(int64_t step, const struct store *want) {
    struct store back;
    char name[64];
    make_store(&back, 99);
    snprintf(name, sizeof name, "checkpoint-%lld", (long long)step);
    return load(name, &back) == AX_OK &&
           memcmp(back.matrix, want->matrix, sizeof back.matrix) == 0 &&
           memcmp(back.moment, want->moment, sizeof back.moment) == 0 &&
           memcmp(back.vector, want->vector, sizeof back.vector) == 0;
}

/* The next save clears up. */
static void save_next(void) {
    struct store next;
    make_store(&next, 3);
    save_ok(&next, 9, 1);
    assert_true(holds(9, &next));
    assert_int_equal(count_entries(dir), 1);
}

static const char *look(void *ctx, bool *is_new) {
    struct scene *sc = ctx;
    struct ax_checkpoint_list l;
    const char *wrong = NULL;
    if (ax_checkpoint_sweep(dir) != AX_OK || ax_checkpoint_list(&l, dir) != AX_OK)
        return "the folder cannot be read";
    if (l.n != count_named())
        wrong = "a folder is called checkpoint-N and is not listed";
    if (sc->old_step > 0 && l.n == 0)
        wrong = "neither the old one nor the new one is there";
    *is_new = false;
    for (size_t i = 0; !wrong && i < l.n; i++) {
        const bool good_new = l.steps[i] == sc->new_step && holds(l.steps[i], &sc->new);
        if (!good_new && !(l.steps[i] == sc->old_step && holds(l.steps[i], &sc->old)))
            wrong = "one that is listed is neither the old one nor the new one";
        *is_new = good_new;
    }
    ax_checkpoint_list_free(&l);
    if (!wrong && sc->looks++ % 50 == 0)
        save_next();
    return wrong;
}

static void test_power_cut(void **state) {
    (void)state;
    struct scene scenes[] = {
        {.name = "a first save", .new_step = 2},
        {.name = "a second save, which removes the first",
         .old_step = 1,
         .new_step = 2,
         .limit = 1},
        {.name = "a save over one of the same step", .old_step = 2, .new_step = 2},
    };
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
        struct scene *sc = &scenes[i];
        make_store(&sc->old, 1);
        make_store(&sc->new, 2);
        use("disk");
        disk_start(dir);
        if (sc->old_step > 0)
            save_ok(&sc->old, sc->old_step, 0);
        const int first = disk_n_events;
        save_ok(&sc->new, sc->new_step, sc->limit);
        disk_recording = false;
        const struct cut_case c = {sc->name, first, disk_n_events, 1200, sc, look};
        const struct cut_tally t = cut_everywhere(&c, true);
        print_message("%s: %d calls, %d states, %d old, %d new\n", sc->name, c.end - first,
                      t.states, t.kept, t.taken);
        assert_true(t.states >= 1000 && t.kept > 50 && t.taken > 50);
        assert_int_equal(cut_spare_syncs(&c), 0);
        /* were the syncs not there, it would be seen */
        assert_true(cut_everywhere(&c, false).bad > 20);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_power_cut)};
    return cmocka_run_group_tests(tests, make_disks, remove_disks);
}
