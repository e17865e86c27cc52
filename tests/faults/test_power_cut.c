/* The power goes at any moment of a save: of what was not synced anything may be lost, cut short or
 * zeros (tests/faults/disk.h says what a disk may do). Whatever is left, every checkpoint that is
 * listed loads to the bit, and is the old or the new one, with nothing cleaned by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>

#include "tests/ckpt/store.h"
#include "tests/faults/disk.h"

#define STATES 1200 /* of each save */

static char base[64];

static int make_disks(void **state) {
    if (make_dir(state) != 0)
        return -1;
    memcpy(base, dir, sizeof base);
    return 0;
}

static int remove_disks(void **state) {
    memcpy(dir, base, sizeof dir);
    return remove_dir(state);
}

static void use(const char *name) {
    snprintf(dir, sizeof dir, "%.40s/%s", base, name);
    remove_all();
}

/* A save, and what was there before it. */
struct scene {
    const char *name;
    int64_t old_step, new_step; /* old 0: the folder is empty */
    int64_t limit;
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

/* What a later run finds: NULL, or what is wrong with it. *is_new: the newest is the new one. */
static const char *look(const struct scene *sc, const struct store *old, const struct store *new,
                        bool *is_new) {
    struct ax_checkpoint_list l;
    const char *wrong = NULL;
    if (ax_checkpoint_sweep(dir) != AX_OK || ax_checkpoint_list(&l, dir) != AX_OK)
        return ax_error_text();
    if (l.n != count_named())
        wrong = "a folder is called checkpoint-N and is not listed";
    if (sc->old_step > 0 && l.n == 0)
        wrong = "neither the old one nor the new one is there";
    *is_new = false;
    for (size_t i = 0; !wrong && i < l.n; i++) {
        const bool good_new = l.steps[i] == sc->new_step && holds(l.steps[i], new);
        if (!good_new && !(l.steps[i] == sc->old_step && holds(l.steps[i], old)))
            wrong = "one that is listed is neither the old one nor the new one";
        *is_new = good_new;
    }
    ax_checkpoint_list_free(&l);
    return wrong;
}

struct tally {
    int states, bad, kept, taken;
};

static void cut_after(const struct scene *sc, struct disk_cut *cut, int n, bool last,
                      const struct store *old, const struct store *new, struct tally *t) {
    bool is_new = false;
    use("cut");
    disk_put(cut, 0, n, dir);
    const char *wrong = look(sc, old, new, &is_new);
    if (!wrong && last && !is_new)
        wrong = "the save was over, and the new one is not there";
    if (wrong && cut->syncs_count)
        fail_msg("%s: power cut after %d of %d calls: %s", sc->name, n, disk_n_events, wrong);
    if (!wrong && t->states % 50 == 0) { /* the next save clears up */
        struct store next;
        make_store(&next, 3);
        save_ok(&next, 9, 1);
        assert_true(holds(9, &next));
        assert_int_equal(count_entries(dir), 1);
    }
    t->states++;
    t->bad += wrong != NULL;
    t->taken += !wrong && is_new;
    t->kept += !wrong && !is_new;
}

/* Every call of the save from `first` on, many cuts after each. */
static struct tally cut_everywhere(const struct scene *sc, int first, bool syncs_count,
                                   const struct store *old, const struct store *new) {
    const int calls = disk_n_events - first + 1, each = STATES / calls + 1;
    struct disk_cut cut = {.random = 88172645463325252ULL, .syncs_count = syncs_count};
    struct tally t = {0};
    for (int n = first; n <= disk_n_events; n++) {
        for (int i = 0; i < each; i++) {
            static const unsigned keep[] = {50, 90, 10};
            cut.keep = i == 0 ? 0 : i == 1 ? 100 : keep[i % 3];
            cut_after(sc, &cut, n, n == disk_n_events, old, new, &t);
        }
    }
    return t;
}

static void test_power_cut(void **state) {
    (void)state;
    static const struct scene scenes[] = {
        {"a first save", 0, 2, 0},
        {"a second save, which removes the first", 1, 2, 1},
        {"a save over one of the same step", 2, 2, 0},
    };
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
        const struct scene *sc = &scenes[i];
        struct store old, new;
        make_store(&old, 1);
        make_store(&new, 2);
        use("disk");
        disk_start(dir);
        if (sc->old_step > 0)
            save_ok(&old, sc->old_step, 0);
        const int first = disk_n_events;
        save_ok(&new, sc->new_step, sc->limit);
        disk_recording = false;
        const struct tally t = cut_everywhere(sc, first, true, &old, &new);
        print_message("%s: %d calls, %d states, %d old, %d new\n", sc->name, disk_n_events - first,
                      t.states, t.kept, t.taken);
        assert_true(t.states >= 1000 && t.kept > 50 && t.taken > 50);
        /* were the syncs not there, it would be seen */
        assert_true(cut_everywhere(sc, first, false, &old, &new).bad > 20);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_power_cut)};
    return cmocka_run_group_tests(tests, make_disks, remove_disks);
}
