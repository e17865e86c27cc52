/* The state in which every run begins, and how an instance gets back to it.
 *
 * A new instance is a mapping of the snapshot, whose pages are copied as they are written: hundreds
 * of page faults a run. So an instance is kept, and after a run, the pages that were written are
 * copied back. The kernel knows them (/proc/self/pagemap): a page of the mapping is of the file until
 * it is written. Beside its memory, the state of an instance is its mutable globals; tables cannot
 * change without WebAssembly's reference types, which are off. Where the kernel does not say, and
 * after a run that made the memory larger, the instance is replaced. */
#ifndef AX_DATA_REWARD_SANDBOX_PRISTINE_H
#define AX_DATA_REWARD_SANDBOX_PRISTINE_H

#include "data/reward/sandbox/engine.h"
#include "data/reward/sandbox/snapshot.h"

/* The request of an ioctl that searches /proc/self/pagemap. A worker may make no other. */
#define AX_PAGEMAP_SCAN 0xc0606610U

/* Read by all threads. */
struct ax_pristine {
    unsigned char *memory;
    size_t len;
    int32_t globals[AX_WASM_MAX_GLOBALS];
    bool has_global[AX_WASM_MAX_GLOBALS];
    int pagemap;   /* −1: none */
    bool has_scan; /* the kernel can search it */
};

/* Takes the state of a new instance. */
enum ax_status ax_pristine_take(struct ax_pristine *p, const struct ax_guest *g);
void ax_pristine_free(struct ax_pristine *p); /* safe on a zeroed one */
/* Makes the instance as it was; false if it must be replaced. */
bool ax_pristine_restore(const struct ax_pristine *p, const struct ax_guest *g);
/* An instance as new: restored or, if there is none or it cannot be, opened. */
enum ax_status ax_pristine_guest(const struct ax_pristine *p, const struct ax_engine *e,
                                 struct ax_guest *g);

#endif
