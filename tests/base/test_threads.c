/* Workers, and the CPU count from made-up cgroup trees. */
#include "base/threads.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/cpu_count.h"
#include "base/io.h"
#include "base/proc.h"

static enum ax_status add_one(void *arg) {
    ++*(int *)arg;
    return AX_OK;
}

static void workers_run_and_join(void **state) {
    (void)state;
    int value = 0;
    for (int i = 0; i < 10; i++) {
        struct ax_worker w;
        assert_int_equal(ax_worker_start(&w, add_one, &value), AX_OK);
        (void)ax_error(AX_ERR_IO, "an error of the joining thread");
        assert_int_equal(ax_worker_join(&w), AX_OK);
        assert_string_equal(ax_error_text(), "an error of the joining thread");
        assert_int_equal(value, i + 1);
        assert_int_equal(ax_worker_join(&w), AX_OK); /* again: nothing to do */
    }
    struct ax_worker never = {0};
    assert_int_equal(ax_worker_join(&never), AX_OK);
}

static void put(const char *dir, const char *sub, const char *name, const char *text) {
    char *folder;
    char *path;
    assert_int_equal(ax_sprintf(&folder, "%s%s", dir, sub), AX_OK);
    assert_int_equal(ax_mkdir_parents(folder), AX_OK);
    assert_int_equal(ax_path_join(&path, folder, name), AX_OK);
    assert_int_equal(ax_write_file_atomic(path, text, strlen(text)), AX_OK);
    ax_free(folder);
    ax_free(path);
}

static void cgroup_quotas(void **state) {
    (void)state;
    char dir[] = "/tmp/axtrain-cgroup-XXXXXX";
    assert_non_null(mkdtemp(dir));
    /* version 2: the group's own quota, a smaller one above it, none */
    put(dir, "/pod/task", "cpu.max", "250000 100000\n");
    put(dir, "/tight", "cpu.max", "100000 100000\n");
    put(dir, "/tight/task", "cpu.max", "800000 100000\n");
    put(dir, "/free", "cpu.max", "max 100000\n");
    assert_int_equal(ax_cgroup_cpus(dir, "0::/pod/task\n"), 3);
    assert_int_equal(ax_cgroup_cpus(dir, "0::/tight/task\n"), 1);
    assert_int_equal(ax_cgroup_cpus(dir, "0::/free\n"), 0);
    assert_int_equal(ax_cgroup_cpus(dir, "0::/\n"), 0);
    assert_int_equal(ax_cgroup_cpus(dir, ""), 0);
    assert_int_equal(ax_cgroup_cpus(dir, "garbage\n::\n0:"), 0);
    /* inside a container the own group is the top */
    put(dir, "", "cpu.max", "50000 100000\n");
    assert_int_equal(ax_cgroup_cpus(dir, "0::/elsewhere/not/seen\n"), 1);
    assert_int_equal(ax_cgroup_cpus(dir, "0::\n"), 1);
    assert_int_equal(ax_cgroup_cpus(dir, "0::"), 1);
    /* version 1 */
    put(dir, "/cpu,cpuacct/job", "cpu.cfs_quota_us", "400000\n");
    put(dir, "/cpu,cpuacct/job", "cpu.cfs_period_us", "100000\n");
    put(dir, "/cpu,cpuacct", "cpu.cfs_quota_us", "-1\n");
    put(dir, "/cpu,cpuacct", "cpu.cfs_period_us", "100000\n");
    assert_int_equal(ax_cgroup_cpus(dir, "5:memory:/job\n4:cpu,cpuacct:/job\n"), 4);
    assert_int_equal(ax_cgroup_cpus(dir, "3:cpuset:/job\n"), 0);
    put(dir, "/cpuset,cpuacct,cpu/job", "cpu.cfs_quota_us", "5\n");
    put(dir, "/cpuset,cpuacct,cpu/job", "cpu.cfs_period_us", "1\n");
    assert_int_equal(ax_cgroup_cpus(dir, "3:cpuset,cpuacct,cpu:/job\n"), 5);
    /* Red Hat 7: "cpuacct,cpu" is mounted as cpu,cpuacct, to which cpu is a link */
    char link[64];
    snprintf(link, sizeof link, "%s/cpu", dir);
    assert_int_equal(symlink("cpu,cpuacct", link), 0);
    assert_int_equal(ax_cgroup_cpus(dir, "4:cpuacct,cpu:/job\n"), 4);
    assert_int_equal(ax_remove_tree(dir), AX_OK);
}

static int cores_of(const char *root, unsigned mask) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (size_t cpu = 0; cpu < 32; cpu++)
        if (mask >> cpu & 1)
            CPU_SET(cpu, &set);
    return ax_core_count(root, &set, sizeof set);
}

/* Two threads of one core are one core, if both are ours. */
static void threads_of_a_core_count_once(void **state) {
    (void)state;
    char dir[] = "/tmp/axtrain-cores-XXXXXX";
    assert_non_null(mkdtemp(dir));
    const char *lists[] = {"0,4\n", "1,5\n", "2-3\n", "2-3\n", "0,4\n", "1,5\n", "what\n", ""};
    for (int cpu = 0; cpu < 8; cpu++) { /* 8, 9 …: unknown */
        char sub[64];
        snprintf(sub, sizeof sub, "/cpu%d/topology", cpu);
        put(dir, sub, "thread_siblings_list", lists[cpu]);
    }
    assert_int_equal(cores_of(dir, 0x3f), 3);
    assert_int_equal(cores_of(dir, 0x0f), 3);
    assert_int_equal(cores_of(dir, 0x30), 2); /* second threads, without the first ones */
    assert_int_equal(cores_of(dir, 0x08), 1);
    assert_int_equal(cores_of(dir, 0xc0), 2);
    assert_int_equal(cores_of(dir, 0x311), 3);
    assert_int_equal(cores_of(dir, 0), 0);
    assert_int_equal(ax_remove_tree(dir), AX_OK);
}

/* A longer file is cut where the buffer ends. */
static void files_of_the_kernel_are_read_whole(void **state) {
    (void)state;
    char dir[] = "/tmp/axtrain-proc-XXXXXX", path[64], text[8] = "";
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/file", dir);
    assert_false(ax_proc_read(path, text, sizeof text));
    assert_false(ax_proc_read(dir, text, sizeof text));
    assert_string_equal(text, "");
    put(dir, "", "file", "12345678");
    for (size_t size = 1; size <= sizeof text; size++) {
        assert_true(ax_proc_read(path, text, size));
        assert_int_equal(strlen(text), size - 1);
    }
    put(dir, "", "file", "1234567");
    assert_true(ax_proc_read(path, text, sizeof text));
    assert_string_equal(text, "1234567");
    assert_int_equal(ax_remove_tree(dir), AX_OK);
}

static void environment_lowers_the_count(void **state) {
    (void)state;
    unsetenv("OMP_NUM_THREADS");
    unsetenv("SLURM_CPUS_PER_TASK");
    int all = ax_cpu_count();
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    assert_in_range(all, 1, CPU_COUNT(&set));
    setenv("OMP_NUM_THREADS", "1,4", 1);
    assert_int_equal(ax_cpu_count(), 1);
    setenv("OMP_NUM_THREADS", "100000", 1);
    assert_int_equal(ax_cpu_count(), all);
    setenv("SLURM_CPUS_PER_TASK", "1", 1);
    assert_int_equal(ax_cpu_count(), 1);
    setenv("SLURM_CPUS_PER_TASK", "nonsense", 1);
    assert_int_equal(ax_cpu_count(), all);
}

struct signaled {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is;
};

static enum ax_status signal_it(void *arg) {
    struct signaled *s = arg;
    pthread_mutex_lock(&s->lock);
    s->is = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return AX_OK;
}

/* A limit that has passed ends a wait, a later one does not; and to wait takes no time of a processor. */
static void waits_end_at_their_time(void **state) {
    (void)state;
    struct signaled s = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct ax_worker worker;
    struct timespec used[2];
    ax_cond_init(&s.changed);
    pthread_mutex_lock(&s.lock);
    const double start = ax_clock_now();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used[0]);
    for (int i = 1; i <= 20; i++) { /* with many fractions of a second */
        const double until = start + 0.0105 * i;
        while (ax_cond_wait_until(&s.changed, &s.lock, until))
            continue;
        assert_true(ax_clock_now() > until - 1e-6);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used[1]);
    assert_true(ax_clock_now() - start < 20);
    assert_true((double)(used[1].tv_sec - used[0].tv_sec) +
                    1e-9 * (double)(used[1].tv_nsec - used[0].tv_nsec) <
                0.1);
    assert_false(ax_cond_wait_until(&s.changed, &s.lock, 0));
    assert_int_equal(ax_worker_start(&worker, signal_it, &s), AX_OK);
    while (!s.is)
        assert_true(ax_cond_wait_until(&s.changed, &s.lock, ax_clock_now() + 60));
    pthread_mutex_unlock(&s.lock);
    assert_int_equal(ax_worker_join(&worker), AX_OK);
    pthread_cond_destroy(&s.changed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_run_and_join),
        cmocka_unit_test(waits_end_at_their_time),
        cmocka_unit_test(cgroup_quotas),
        cmocka_unit_test(threads_of_a_core_count_once),
        cmocka_unit_test(files_of_the_kernel_are_read_whole),
        cmocka_unit_test(environment_lowers_the_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
