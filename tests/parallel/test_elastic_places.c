/* Which ranks of an elastic job are lost, where the others go on, and what they have told (parallel/job/elastic.h). */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "parallel/job/elastic.h"

enum { DIED = SIGKILL, NOTICED = 4 << 8, FAILED = 1 << 8, WELL = 0 }; /* as wait4 returns them */

static const struct {
    int status[4];
    bool killed[4]; /* by the launcher */
    int lost, left[5], n_left;
} cases[] = {
    {{NOTICED, NOTICED, DIED, NOTICED}, {0}, 1, {0, 1, 3, 4}, 4},
    {{NOTICED, FAILED, DIED, NOTICED}, {0}, 2, {0, 3, 4}, 3},
    /* slow to notice */
    {{DIED, NOTICED, DIED, NOTICED}, {true}, 1, {0, 1, 3, 4}, 4},
    /* frozen */
    {{DIED, NOTICED, NOTICED, NOTICED}, {true}, 1, {1, 2, 3, 4}, 4},
    /* none: the weights of ranks differ */
    {{NOTICED, NOTICED, NOTICED, NOTICED}, {0}, 0, {0, 1, 2, 3, 4}, 5},
    {{WELL, DIED, WELL, NOTICED}, {0}, 1, {0, 2, 3, 4}, 4},
};

static void lost_ranks_give_up_their_places(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_elastic e = {.lock = -1};
        static struct ax_launch_rank ranks[4];
        assert_int_equal(ax_elastic_open(&e, 4, 1, false), AX_OK);
        for (int k = 0; k < 4; k++) {
            ranks[k].place = k;
            ranks[k].status = cases[i].status[k];
            ranks[k].killed = cases[i].killed[k];
        }
        assert_int_equal(ax_elastic_lose(&e, 4, ranks), cases[i].lost);
        assert_int_equal(e.n_places, cases[i].n_left);
        assert_memory_equal(e.places, cases[i].left, (size_t)e.n_places * sizeof *e.places);
        ax_elastic_close(&e);
    }
}

/* A folder of this user's. */
static void make_folder(char *path) {
    strcpy(path, "/dev/shm/axtrain-elastic-XXXXXX");
    assert_non_null(mkdtemp(path));
}

/* What a launcher that was killed left goes when another starts; what another uses stays. */
static void folders_that_are_left_go(void **state) {
    (void)state;
    char left[64], used[64], file[80];
    struct ax_elastic e = {.lock = -1};
    make_folder(used);
    const int lock = open(used, O_RDONLY | O_DIRECTORY);
    assert_int_equal(flock(lock, LOCK_EX | LOCK_NB), 0);
    make_folder(left);
    snprintf(file, sizeof file, "%s/state", left);
    const int fd = creat(file, 0600);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(ax_elastic_open(&e, 1, 0, true), AX_OK);
    assert_int_equal(access(left, F_OK), -1);
    assert_int_equal(access(used, F_OK), 0);
    assert_non_null(e.dir);
    assert_int_equal(access(e.dir, W_OK), 0);
    snprintf(file, sizeof file, "%s", e.dir);
    ax_elastic_close(&e);
    assert_int_equal(access(file, F_OK), -1);
    assert_int_equal(rmdir(used), 0);
    close(lock);
}

static void the_largest_job_that_fits(void **state) {
    (void)state;
    static struct ax_notes notes = {.meshes = {{6, "six"}, {4, "four"}, {1, "one"}}};
    const int places[] = {8, 6, 5, 1, 0}, ranks[] = {8, 6, 4, 1, 8};
    const char *const words[] = {NULL, "six", "four", "one", NULL};
    for (int i = 0; i < 5; i++) {
        const struct ax_elastic e = {.n_places = places[i]};
        const char *said;
        int n = 8;
        assert_int_equal(ax_elastic_next(&e, &notes, &n, &said), places[i] > 0);
        assert_int_equal(n, ranks[i]);
        assert_int_equal(said != NULL, words[i] != NULL);
        if (said)
            assert_string_equal(said, words[i]);
    }
}

static void notes_reach_the_launcher(void **state) {
    (void)state;
    static struct ax_notes notes;
    const struct ax_notes_mesh mesh = {2, "dp_shard_size=2"};
    char number[16];
    const int fd = ax_notes_create();
    assert_true(fd >= 0);
    ax_note_saved(1); /* nowhere */
    snprintf(number, sizeof number, "%d", fd);
    setenv("AXTRAIN_PROGRESS_FD", number, 1);
    ax_note_saved(7);
    ax_note_done(3, 8);
    ax_note_done(AX_NOTES_RANKS, 9); /* is lost */
    ax_note_writes(2, true);
    ax_note_elastic(1, &mesh);
    ax_notes_read(fd, &notes);
    assert_int_equal(notes.saved, 7);
    assert_int_equal(notes.done[3], 8);
    assert_int_equal(notes.writes[2], 1);
    assert_int_equal(notes.writes[0], 0);
    assert_int_equal(notes.elastic, 1);
    assert_int_equal(notes.meshes[0].ranks, 2);
    assert_string_equal(notes.meshes[0].words, "dp_shard_size=2");
    assert_int_equal(notes.meshes[1].ranks, 0);
    notes.reached = 8;
    ax_notes_write(fd, &notes);
    assert_int_equal(ax_notes_reached(), 8);
    unsetenv("AXTRAIN_PROGRESS_FD");
    assert_int_equal(ax_notes_reached(), 0);
    close(fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lost_ranks_give_up_their_places),
        cmocka_unit_test(folders_that_are_left_go),
        cmocka_unit_test(the_largest_job_that_fits),
        cmocka_unit_test(notes_reach_the_launcher),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
