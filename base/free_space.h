/* Free space: on the disk that holds a path, and in memory for this process. */
#ifndef AX_BASE_FREE_SPACE_H
#define AX_BASE_FREE_SPACE_H

#include <stdint.h>

#include "base/status.h"

/* Bytes an unprivileged user can still write on the file system that holds `path`; UINT64_MAX if it
 * does not report them. */
enum ax_status ax_disk_free(const char *path, uint64_t *bytes);

/* Bytes this process can still allocate without anything being killed: what the kernel reports as
 * available, limited by the control groups (caches that were not used lately count as free). 0 =
 * unknown; 1 = none. */
uint64_t ax_mem_available(void);
/* The same for the groups of a /proc/self/cgroup text under `root`; 0 = none, UINT64_MAX = no limit. */
uint64_t ax_cgroup_memory(const char *root, const char *self_cgroup);

#endif
