/* Locks between processes: readers share, a writer waits for everybody, and the kernel frees what a
 * killed process held. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "base/lock.h"
#include "base/log.h"

static char folder[64];
static char path[96];

static int make(void **state) {
    (void)state;
    ax_log_set_level(AX_LOG_ERROR);
    snprintf(folder, sizeof folder, "/tmp/axtrain-lock-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/a.lock", folder);
    return 0;
}

static int clean(void **state) {
    (void)state;
    return ax_remove_tree(folder) == AX_OK ? 0 : -1;
}

/* A child that takes the lock, writes a byte, and keeps it until it is killed. */
static pid_t holder(enum ax_lock_mode mode, int *ready) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        struct ax_lock l = {0};
        ax_lock_take(&l, path, mode);
        (void)!write(ends[1], l.held ? "y" : "n", 1);
        for (;;)
            pause();
    }
    close(ends[1]);
    *ready = ends[0];
    return child;
}

static char answer(int fd) {
    char c = '?';
    assert_int_equal(read(fd, &c, 1), 1);
    return c;
}

static bool answers_within(int fd, int ms) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    struct timeval limit = {.tv_usec = ms * 1000};
    return select(fd + 1, &set, NULL, NULL, &limit) == 1;
}

static void end(pid_t child, int fd) {
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    close(fd);
}

static void readers_share(void **state) {
    (void)state;
    int fd;
    struct ax_lock l = {0};
    const pid_t child = holder(AX_LOCK_SHARED, &fd);
    assert_int_equal(answer(fd), 'y');
    ax_lock_take(&l, path, AX_LOCK_SHARED);
    assert_true(l.held);
    ax_lock_drop(&l);
    ax_lock_drop(&l);
    end(child, fd);
}

static void a_writer_waits(void **state) {
    (void)state;
    int fd;
    struct ax_lock l = {0};
    ax_lock_take(&l, path, AX_LOCK_SHARED);
    const pid_t child = holder(AX_LOCK_EXCLUSIVE, &fd);
    assert_false(answers_within(fd, 100));
    ax_lock_drop(&l);
    assert_int_equal(answer(fd), 'y');
    end(child, fd); /* killed while it holds the lock */
    ax_lock_take(&l, path, AX_LOCK_EXCLUSIVE);
    assert_true(l.held);
    ax_lock_drop(&l);
}

/* Whoever waits for a lock that its holder removes gets the one that others see. */
static void a_removed_lock_is_made_again(void **state) {
    (void)state;
    int fd;
    struct ax_lock l = {0}, other = {0};
    ax_lock_take(&l, path, AX_LOCK_EXCLUSIVE);
    const pid_t child = holder(AX_LOCK_EXCLUSIVE, &fd);
    assert_false(answers_within(fd, 200));
    assert_int_equal(unlink(path), 0);
    ax_lock_drop(&l);
    assert_int_equal(answer(fd), 'y');
    assert_false(ax_lock_try(&other, path));
    end(child, fd);
    assert_true(ax_lock_try(&other, path));
    ax_lock_drop(&other);
}

static void places_without_locks(void **state) {
    (void)state;
    struct ax_lock l = {0};
    ax_lock_take(&l, "/nonexistent/folder/a.lock", AX_LOCK_SHARED);
    assert_false(l.held);
    ax_lock_drop(&l);
}

/* The lock file says who holds it, for whoever is refused: this process, this host, by now. */
static void a_claim_is_signed(void **state) {
    (void)state;
    struct ax_claim claim, other;
    char *text, host[128] = "", name[64], when[64], want[512], old[400];
    size_t len;
    long process;
    struct tm tm = {0};
    memset(old, 'x', sizeof old - 1); /* longer than what replaces it */
    assert_int_equal(ax_write_file_atomic(path, old, sizeof old - 1), AX_OK);
    const time_t before = time(NULL);
    assert_int_equal(ax_claim_take(&claim, path), AX_OK);
    const time_t after = time(NULL);
    assert_int_equal(ax_read_file(path, 1000, &text, &len), AX_OK);
    assert_int_equal(sscanf(text, "process %ld on %63s since %63s", &process, name, when), 3);
    assert_int_equal(process, getpid());
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    assert_int_equal(strncmp(name, host, sizeof name - 1), 0);
    const char *end = strptime(when, "%Y-%m-%dT%H:%M:%SZ", &tm);
    assert_true(end && *end == '\0');
    assert_in_range(timegm(&tm), before, after);
    assert_int_equal(text[len - 1], '\n');
    assert_int_equal(strchr(text, '\n') - text, len - 1);
    text[len - 1] = '\0';
    assert_int_equal(ax_claim_take(&other, path), AX_ERR_FAILED);
    snprintf(want, sizeof want, "%s: in use by %s; wait until it finishes", path, text);
    assert_non_null(strstr(ax_error_text(), want));
    ax_free(text);
    ax_claim_release(&other);
    assert_true(ax_path_exists(path)); /* it was not the other's */
    ax_claim_release(&claim);
    assert_false(ax_path_exists(path));
    assert_int_equal(ax_claim_take(&other, path), AX_OK);
    ax_claim_release(&other);
}

/* A file that says more than anybody signs with is quoted in part: 255 bytes. */
static void a_long_signature_is_cut(void **state) {
    (void)state;
    struct ax_claim claim, other;
    char text[300], want[400];
    assert_int_equal(ax_claim_take(&claim, path), AX_OK);
    memset(text, 'x', sizeof text);
    FILE *f = fopen(path, "w"); /* the same file, which is locked */
    assert_non_null(f);
    assert_int_equal(fwrite(text, sizeof text, 1, f), 1);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(ax_claim_take(&other, path), AX_ERR_FAILED);
    snprintf(want, sizeof want, "in use by %.255s; wait", text);
    assert_non_null(strstr(ax_error_text(), want));
    ax_claim_release(&other);
    ax_claim_release(&claim);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readers_share),
        cmocka_unit_test(a_writer_waits),
        cmocka_unit_test(a_removed_lock_is_made_again),
        cmocka_unit_test(places_without_locks),
        cmocka_unit_test(a_claim_is_signed),
        cmocka_unit_test(a_long_signature_is_cut),
    };
    return cmocka_run_group_tests(tests, make, clean);
}
