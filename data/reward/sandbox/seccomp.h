/* The system calls that a worker may make once it runs programs: memory without new code, the
 * sockets that it has, waiting, and its own end. */
#ifndef AX_DATA_REWARD_SANDBOX_SECCOMP_H
#define AX_DATA_REWARD_SANDBOX_SECCOMP_H

#include "base/status.h"

/* The request of an ioctl that searches /proc/self/pagemap: the only one that is allowed. */
#define AX_PAGEMAP_SCAN 0xc0606610U

/* For all threads of the process, for ever. Any other system call kills it. */
enum ax_status ax_seccomp_enter(void);

#endif
