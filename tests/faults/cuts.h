/* The power goes after each recorded call, in many ways: what is left has to be what a look at it
 * allows, and each sync has to be there for a reason. Include after cmocka.h, in one file only. */
#ifndef AX_TESTS_FAULTS_CUTS_H
#define AX_TESTS_FAULTS_CUTS_H

#include "tests/ckpt/folder.h"
#include "tests/faults/disk.h"

#define CUT_SEED 88172645463325252ULL

static char base[sizeof dir];

static inline int make_disks(void **state) {
    if (make_dir(state) != 0)
        return -1;
    memcpy(base, dir, sizeof base);
    return 0;
}

static inline int remove_disks(void **state) {
    memcpy(dir, base, sizeof dir);
    return remove_dir(state);
}

/* `dir` becomes an empty folder of that name. */
static inline void use(const char *name) {
    snprintf(dir, sizeof dir, "%.40s/%s", base, name);
    assert_int_equal(ax_remove_tree(dir), AX_OK);
    assert_int_equal(ax_mkdir(dir), AX_OK);
}

struct cut_case {
    const char *name;
    int first, end; /* recorded calls that it is about; those before are of what was there before */
    int states;     /* to look at, about */
    void *ctx;
    /* What a later run finds in `dir`: NULL, or what is wrong. *is_new: all is there that the calls
     * were to make. */
    const char *(*look)(void *ctx, bool *is_new);
};

struct cut_tally {
    int states, bad, kept, taken;
};

/* The look at what is left after n calls; NULL, or what is wrong. */
static inline const char *cut_after(const struct cut_case *c, struct disk_cut *cut, int n,
                                    struct cut_tally *t) {
    bool is_new = false;
    use("cut");
    disk_put(cut, 0, n, dir);
    const char *wrong = c->look(c->ctx, &is_new);
    ax_error_clear();
    if (!wrong && n == c->end && !is_new)
        wrong = "it was over, and the new one is not there";
    t->states++;
    t->bad += wrong != NULL;
    t->taken += !wrong && is_new;
    t->kept += !wrong && !is_new;
    return wrong;
}

static inline void cut_or_fail(const struct cut_case *c, struct disk_cut *cut, int n,
                               struct cut_tally *t) {
    const char *wrong = cut_after(c, cut, n, t);
    if (wrong && cut->syncs_count)
        fail_msg("%s: power cut after %d of %d calls: %s", c->name, n - c->first, c->end - c->first,
                 wrong);
}

/* All is lost that may be, all is there; each file and folder is the only one to lose, or not to
 * lose; and any part of all. */
static inline struct cut_tally cut_everywhere(const struct cut_case *c, bool syncs_count) {
    static const unsigned keep[] = {50, 90, 10};
    const int each = c->states / (c->end - c->first + 1) + 1;
    struct cut_tally t = {0};
    struct disk_cut cut = {.random = CUT_SEED, .syncs_count = syncs_count, .ignored = -1};
    for (int n = c->first; n <= c->end; n++) {
        for (int i = 0; i < each; i++) {
            cut.odd = -1;
            cut.keep = i == 0 ? 0 : i == 1 ? 100 : keep[i % 3];
            cut_or_fail(c, &cut, n, &t);
        }
        for (int node = 0; node < disk_n_nodes; node++) {
            for (unsigned lost = 0; lost <= 100 && disk_may_lose(&cut, node, n); lost += 100) {
                cut.odd = node;
                cut.odd_keep = lost;
                cut.keep = 100 - lost;
                cut_or_fail(c, &cut, n, &t);
            }
        }
    }
    return t;
}

/* Is there a cut that shows that a sync is not there? */
static inline bool cut_misses(const struct cut_case *c, int sync) {
    static const unsigned keep[] = {0, 50, 50, 50, 50, 80, 20};
    struct cut_tally t = {0};
    struct disk_cut cut = {.random = CUT_SEED,
                           .keep = 100,
                           .odd = disk_events[sync].node,
                           .syncs_count = true,
                           .ignored = sync};
    for (int n = c->end; n > sync; n--) { /* most are needed in the end */
        for (size_t i = 0; i < sizeof keep / sizeof *keep; i++) {
            cut.odd_keep = keep[i];
            if (cut_after(c, &cut, n, &t))
                return true;
        }
    }
    return false;
}

/* Of each sync, that it is needed: returns how many are not. */
static inline int cut_spare_syncs(const struct cut_case *c) {
    int spare = 0;
    for (int i = c->first; i < c->end; i++) {
        if (disk_events[i].kind != DISK_SYNC || cut_misses(c, i))
            continue;
        print_message("%s: nobody misses the sync of %s (call %d)\n", c->name,
                      disk_now[disk_events[i].node].name, i - c->first);
        spare++;
    }
    return spare;
}

#endif
