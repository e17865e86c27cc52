/* What a long run needs of the machine: a lock, stop requests, free space. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"
#include "base/lock.h"
#include "base/free_space.h"
#include "base/stop.h"

static char dir[64];

static int make_dir(void **state) {
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/axtrain-run-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state) {
    (void)state;
    return ax_remove_tree(dir) == AX_OK ? 0 : -1;
}

static const char *in_dir(const char *name) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void test_lock(void **state) {
    (void)state;
    struct ax_claim a, b;
    char mine[64];
    assert_int_equal(ax_claim_take(&a, in_dir("lock")), AX_OK);
    assert_int_equal(ax_claim_take(&b, in_dir("lock")), AX_ERR_FAILED);
    snprintf(mine, sizeof mine, "in use by process %ld on ", (long)getpid());
    assert_non_null(strstr(ax_error_text(), mine));
    ax_claim_release(&a);
    ax_claim_release(&a);
    assert_int_equal(ax_claim_take(&b, in_dir("lock")), AX_OK);
    ax_claim_release(&b);
    assert_int_equal(ax_claim_take(&b, in_dir("no/such/lock")), AX_ERR_IO);
}

/* A killed holder leaves no lock behind. */
static void test_lock_of_a_dead_process(void **state) {
    (void)state;
    struct ax_claim l;
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
        (void)!write(ready[1], ax_claim_take(&l, in_dir("lock2")) == AX_OK ? "y" : "n", 1);
        pause();
        _exit(0);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 'y');
    assert_int_equal(ax_claim_take(&l, in_dir("lock2")), AX_ERR_FAILED);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_int_equal(ax_claim_take(&l, in_dir("lock2")), AX_OK);
    ax_claim_release(&l);
    close(ready[0]);
    close(ready[1]);
}

static void test_stop_requests(void **state) {
    (void)state;
    ax_stop_watch();
    assert_int_equal(ax_stop_requested(), AX_STOP_NONE);
    raise(SIGUSR1);
    raise(SIGUSR1); /* any number of them is one */
    assert_int_equal(ax_stop_requested(), AX_STOP_REQUEUE);
    raise(SIGTERM);
    raise(SIGTERM); /* so soon after the first it is the same one */
    assert_int_equal(ax_stop_requested(), AX_STOP_REQUEUE);
    raise(SIGINT);
    assert_int_equal(ax_stop_requested(), AX_STOP_INTERRUPT);
    ax_stop_watch();
    assert_int_equal(ax_stop_requested(), AX_STOP_NONE);
    ax_stop_unwatch();
    ax_stop_unwatch();
}

/* The terminal is gone: as SIGTERM, unless it was ignored when the run began. */
static void a_hangup_saves(void **state) {
    (void)state;
    ax_stop_watch();
    raise(SIGHUP);
    raise(SIGHUP);
    assert_int_equal(ax_stop_requested(), AX_STOP_REQUEUE);
    ax_stop_unwatch();
    signal(SIGHUP, SIG_IGN);
    ax_stop_watch();
    raise(SIGHUP);
    assert_int_equal(ax_stop_requested(), AX_STOP_NONE);
    ax_stop_unwatch();
    raise(SIGHUP);
    signal(SIGHUP, SIG_DFL);
}

/* Signals a child that listens: `again` a second time, `pause_us` later; returns wait's status. */
static int signalled_twice(int sig, useconds_t pause_us) {
    int status;
    const pid_t child = fork();
    if (child == 0) {
        ax_stop_watch();
        raise(sig);
        usleep(pause_us);
        raise(sig);
        _exit(7);
    }
    waitpid(child, &status, 0);
    return status;
}

static void test_second_signal_ends_at_once(void **state) {
    (void)state;
    int status = signalled_twice(SIGINT, 0);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
    status = signalled_twice(SIGTERM, 1100000);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    status = signalled_twice(SIGTERM, 1000);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

/* What a child writes to `fd`, its standard error, when it is signalled; reads it from `from`. */
static void acknowledged(int sig, int fd, int from, char *out, size_t size) {
    int status;
    ssize_t n;
    const pid_t child = fork();
    if (child == 0) {
        dup2(fd, STDERR_FILENO);
        ax_stop_watch();
        raise(sig);
        (void)!write(STDERR_FILENO, ".", 1);
        _exit(7);
    }
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    out[0] = '\0';
    for (size_t at = 0; !strchr(out, '.') && (n = read(from, out + at, size - 1 - at)) > 0;)
        out[at += (size_t)n] = '\0';
}

/* Who pressed Ctrl-C is told that it was heard; a log file is not. */
static void test_a_terminal_gets_an_answer(void **state) {
    (void)state;
    char text[256];
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    acknowledged(SIGINT, ends[1], ends[0], text, sizeof text);
    assert_string_equal(text, ".");
    close(ends[0]);
    close(ends[1]);
    const int master = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    const int terminal = open(ptsname(master), O_RDWR | O_NOCTTY);
    assert_true(terminal >= 0);
    acknowledged(SIGINT, terminal, master, text, sizeof text);
    assert_string_equal(
        text, "\r\nstopping at the next safe point; press Ctrl-C again to quit immediately\r\n.");
    acknowledged(SIGTERM, terminal, master, text, sizeof text);
    assert_string_equal(text, ".");
    close(terminal);
    close(master);
}

static void put(const char *name, const char *text) {
    assert_int_equal(ax_write_file_atomic(in_dir(name), text, strlen(text)), AX_OK);
}

static void test_memory_of_groups(void **state) {
    (void)state;
    assert_int_equal(ax_mkdir_parents(in_dir("a/b")), AX_OK);
    assert_int_equal(ax_mkdir_parents(in_dir("memory/c")), AX_OK);
    put("a/memory.max", "1000000\n");
    put("a/memory.current", "400000\n");
    put("a/memory.stat", "anon 5\ninactive_file 100000\n");
    put("a/b/memory.max", "max\n");
    put("a/b/memory.current", "1\n");
    assert_true(ax_cgroup_memory(dir, "0::/a/b\n") == 700000);
    assert_true(ax_cgroup_memory(dir, "0::/\n") == UINT64_MAX);
    put("memory/c/memory.limit_in_bytes", "5000\n");
    put("memory/c/memory.usage_in_bytes", "6000\n");
    assert_true(ax_cgroup_memory(dir, "3:cpu:/x\n4:memory:/c\n") == 0);
    assert_true(ax_cgroup_memory(dir, "4:memory:/c\n0::/a/b\n") == 0);
    assert_true(ax_cgroup_memory(dir, "4:memory:/no\n0::/a/b\n") == 700000);
    assert_true(ax_mem_available() > 1 << 20);
}

/* Of a path that does not fit, what holds for all groups. */
static void test_groups_with_long_names(void **state) {
    (void)state;
    char group[1200] = "0::/a/", *end = group + strlen(group);
    put("memory.max", "900000\n");
    put("memory.current", "0\n");
    for (size_t n = 1098; n <= 1101; n++) { /* of the path, with the root */
        const size_t rest = n - strlen(dir) - strlen("/a/");
        memset(end, 'x', rest);
        snprintf(end + rest, 2, "\n");
        assert_true(ax_cgroup_memory(dir, group) == (n < 1100 ? 700000 : 900000));
    }
}

static void test_disk_free(void **state) {
    (void)state;
    uint64_t bytes = 0;
    assert_int_equal(ax_disk_free(dir, &bytes), AX_OK);
    assert_true(bytes > 0);
    assert_int_equal(ax_disk_free(in_dir("nowhere"), &bytes), AX_ERR_IO);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lock),
        cmocka_unit_test(test_lock_of_a_dead_process),
        cmocka_unit_test(a_hangup_saves),
        cmocka_unit_test(test_stop_requests),
        cmocka_unit_test(test_second_signal_ends_at_once),
        cmocka_unit_test(test_a_terminal_gets_an_answer),
        cmocka_unit_test(test_memory_of_groups),
        cmocka_unit_test(test_groups_with_long_names),
        cmocka_unit_test(test_disk_free),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
