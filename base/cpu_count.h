/* Parts of ax_cpu_count that a test can feed. Private to base/. */
#ifndef AX_BASE_CPU_COUNT_H
#define AX_BASE_CPU_COUNT_H

/* CPUs that the cgroup quota allows, rounded up: the smallest on the way from the process's group
 * (lines of /proc/self/cgroup) to the top, under the mount point `root`; version 2 and 1. 0 where
 * there is no quota. */
int ax_cgroup_cpus(const char *root, const char *self_cgroup);

#endif
