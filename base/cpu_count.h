/* Parts of ax_cpu_count that tests call with their own input. Private to base/. */
#ifndef AX_BASE_CPU_COUNT_H
#define AX_BASE_CPU_COUNT_H

#include <sched.h>
#include <stddef.h>

/* CPUs that the cgroup quota allows, rounded up: the smallest quota from the process's group (lines
 * of /proc/self/cgroup) up to the mount point `root`; versions 2 and 1. 0 if there is no quota. */
int ax_cgroup_cpus(const char *root, const char *self_cgroup);

/* Cores of these CPUs: threads of one core (SMT) count once. `root` is /sys/devices/system/cpu; a CPU
 * of which it says nothing is a core. */
int ax_core_count(const char *root, const cpu_set_t *set, size_t set_size);

#endif
