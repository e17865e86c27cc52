/* How many CPUs this process may use. A container or a Slurm job often has fewer than the machine;
 * more threads than that only wait for each other. */
#include "base/cpu_count.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/proc.h"
#include "base/threads.h"

/* The first of the set in a list such as "0,4" or "0-1"; −1 if there is none. */
static int first_listed(const char *list, const cpu_set_t *set, size_t set_size) {
    for (const char *s = list; *s >= '0' && *s <= '9';) {
        char *end;
        const long from = strtol(s, &end, 10);
        const long to = *end == '-' ? strtol(end + 1, &end, 10) : from;
        for (long cpu = from; cpu <= to && cpu < (long)set_size * 8; cpu++)
            if (CPU_ISSET_S((size_t)cpu, set_size, set))
                return (int)cpu;
        s = end + (*end == ',');
    }
    return -1;
}

int ax_core_count(const char *root, const cpu_set_t *set, size_t set_size) {
    int cores = 0;
    for (int cpu = 0; cpu < (int)set_size * 8; cpu++) {
        char path[1200], list[1024];
        if (!CPU_ISSET_S((size_t)cpu, set_size, set))
            continue;
        snprintf(path, sizeof path, "%s/cpu%d/topology/thread_siblings_list", root, cpu);
        const int first =
            ax_proc_read(path, list, sizeof list) ? first_listed(list, set, set_size) : -1;
        cores += first < 0 || first == cpu;
    }
    return cores;
}

/* CPUs of the affinity mask, or their cores. */
static int affinity_cpus(bool cores) {
    /* The kernel rejects a mask smaller than its own, so sizes double until one fits. */
    for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)cpus);
        size_t size = CPU_ALLOC_SIZE((size_t)cpus);
        if (set == NULL)
            return 0;
        int n = sched_getaffinity(0, size, set) == 0 ? CPU_COUNT_S(size, set) : 0;
        if (n > 1 && cores)
            n = ax_core_count("/sys/devices/system/cpu", set, size);
        CPU_FREE(set);
        if (n > 0)
            return n;
    }
    return 0;
}

static int env_cpus(const char *name) {
    const char *s = getenv(name);
    long n = s != NULL ? strtol(s, NULL, 10) : 0; /* OMP_NUM_THREADS may be a list: the first */
    return n > 0 && n < 1 << 20 ? (int)n : 0;
}

/* The smaller of two counts where 0 means "not known". */
static int smaller(int a, int b) {
    if (a == 0 || b == 0)
        return a + b;
    return a < b ? a : b;
}

static int quota_cpus(double quota, double period) {
    if (!(quota > 0.0) || !(period > 0.0) || quota / period > 1 << 20)
        return 0;
    int whole = (int)(quota / period);
    return whole + (whole * period < quota);
}

/* "200000 100000" or "max 100000". */
static int quota_v2(const char *dir) {
    char path[1200];
    char text[128];
    double quota = 0.0;
    double period = 0.0;
    snprintf(path, sizeof path, "%s/cpu.max", dir);
    if (!ax_proc_read(path, text, sizeof text))
        return 0;
    char *end = text;
    quota = strtod(text, &end);
    if (end == text)
        return 0;
    period = strtod(end, NULL);
    return quota_cpus(quota, period);
}

static int quota_v1(const char *dir) {
    char path[1200];
    char text[64];
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", dir);
    if (!ax_proc_read(path, text, sizeof text))
        return 0;
    double quota = strtod(text, NULL); /* -1 = none */
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", dir);
    if (!ax_proc_read(path, text, sizeof text))
        return 0;
    return quota_cpus(quota, strtod(text, NULL));
}

/* Reads the group's folder and every one above it, up to `root`. */
static int quota_upwards(const char *root, const char *group, size_t len,
                         int (*quota)(const char *)) {
    char dir[1100];
    int n = snprintf(dir, sizeof dir, "%s%.*s", root, (int)len, group);
    size_t top = strlen(root);
    if ((size_t)n >= sizeof dir)
        return quota(root);
    int best = quota(dir);
    char *slash;
    while ((slash = strrchr(dir, '/')) != NULL && (size_t)(slash - dir) >= top) {
        *slash = '\0';
        best = smaller(best, quota(dir));
    }
    return best;
}

/* Whether "name" appears in the comma-separated list of `len` bytes. */
static bool in_list(const char *list, size_t len, const char *name) {
    size_t n = strlen(name);
    for (const char *p = list, *end = list + len; p < end;) {
        const char *comma = memchr(p, ',', (size_t)(end - p));
        size_t item = (size_t)((comma != NULL ? comma : end) - p);
        if (item == n && memcmp(p, name, n) == 0)
            return true;
        p += item + 1;
    }
    return false;
}

/* Lines are "id:controllers:path"; version 2 has the one line "0::path". */
int ax_cgroup_cpus(const char *root, const char *self_cgroup) {
    int best = 0;
    for (const char *line = self_cgroup; *line != '\0';) {
        size_t len = strcspn(line, "\n");
        const char *c1 = memchr(line, ':', len);
        const char *c2 = c1 != NULL ? memchr(c1 + 1, ':', len - (size_t)(c1 + 1 - line)) : NULL;
        if (c2 != NULL) {
            const char *group = c2 + 1;
            size_t group_len = len - (size_t)(group - line);
            size_t list_len = (size_t)(c2 - c1 - 1);
            if (list_len == 0) {
                best = smaller(best, quota_upwards(root, group, group_len, quota_v2));
            } else if (in_list(c1 + 1, list_len, "cpu")) {
                char mount[1024];
                snprintf(mount, sizeof mount, "%s/%.*s", root, (int)list_len, c1 + 1);
                if (access(mount, F_OK) != 0) /* mounted under a name in another order */
                    snprintf(mount, sizeof mount, "%s/cpu", root);
                best = smaller(best, quota_upwards(mount, group, group_len, quota_v1));
            }
        }
        line += len + (line[len] == '\n');
    }
    return best;
}

int ax_cpu_count(void) {
    char groups[4096];
    const int set = env_cpus("OMP_NUM_THREADS");
    int n = smaller(affinity_cpus(set == 0), set);
    if (ax_proc_read("/proc/self/cgroup", groups, sizeof groups))
        n = smaller(n, ax_cgroup_cpus("/sys/fs/cgroup", groups));
    n = smaller(n, env_cpus("SLURM_CPUS_PER_TASK"));
    return n > 0 ? n : 1;
}
