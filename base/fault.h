/* Fault injection: AX_FAULT=<op>:<k>:<kind>[@<rank>][,…] makes the k-th (from 1) call of an operation
 * fail; with a rank, only where the launcher's variable RANK has that number.
 *
 *   ops:   open read write fsync rename close mkdir unlink list (a name in a folder) send recv malloc;
 *          weights (once per parameter after each training step)
 *   kinds: kill (SIGKILL to self), eio, enospc, enomem, short (half of the bytes), eintr,
 *          delay (200 ms); of weights: kill, flip (a bit of an element), nan
 *
 * Called by base/io, base/mem, the gloo fabric (send, recv) and the training loop (weights). Thread safe. */
#ifndef AX_BASE_FAULT_H
#define AX_BASE_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum ax_fault_op {
    AX_FAULT_OPEN,
    AX_FAULT_READ,
    AX_FAULT_WRITE,
    AX_FAULT_FSYNC,
    AX_FAULT_RENAME,
    AX_FAULT_CLOSE,
    AX_FAULT_MKDIR,
    AX_FAULT_UNLINK,
    AX_FAULT_LIST,
    AX_FAULT_SEND,
    AX_FAULT_RECV,
    AX_FAULT_MALLOC,
    AX_FAULT_WEIGHTS,
    AX_FAULT_OP_COUNT
};

enum ax_fault_kind {
    AX_FAULT_NONE,
    AX_FAULT_KILL,
    AX_FAULT_EIO,
    AX_FAULT_ENOSPC,
    AX_FAULT_ENOMEM,
    AX_FAULT_SHORT,
    AX_FAULT_EINTR,
    AX_FAULT_DELAY,
    AX_FAULT_FLIP,
    AX_FAULT_NAN
};

/* Parses a spec and arms it (NULL or "" disarms all and resets the counters). */
enum ax_status ax_fault_configure(const char *spec);
/* Counts this call and returns what to do; performs kill and delay itself. */
enum ax_fault_kind ax_fault_point(enum ax_fault_op op);
uint64_t ax_fault_count(enum ax_fault_op op); /* calls so far */
bool ax_fault_fired(void);                    /* true once an armed fault was reached */
const char *ax_fault_op_name(enum ax_fault_op op);

#endif
