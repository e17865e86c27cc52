/* Shared by the files of the WASI: memory of the guest, error numbers, fuel. */
#ifndef AX_DATA_REWARD_SANDBOX_WASI_IMPL_H
#define AX_DATA_REWARD_SANDBOX_WASI_IMPL_H

#include <string.h>

#include "data/reward/sandbox/wasi.h"

/* errno of WASI */
enum {
    OK = 0,
    BADF = 8,
    FAULT = 21,
    INVAL = 28,
    NOENT = 44,
    NOMEM = 48,
    SPIPE = 70,
    NOTCAPABLE = 76
};

/* A call in progress. */
struct call {
    struct ax_wasi *w;
    const union ax_wasm_cell *cells;
    unsigned char *memory;
    size_t size;
};

static inline uint32_t u32_arg(const struct call *c, int i) {
    return (uint32_t)c->cells[i].i32;
}

/* n bytes of the guest at `at`; NULL if they are not all there. */
static inline unsigned char *guest(const struct call *c, uint64_t at, uint64_t n) {
    return at + n <= c->size ? c->memory + at : NULL;
}

/* Values of the guest, little-endian as the host. */
static inline uint32_t load32(const unsigned char *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline uint64_t load64(const unsigned char *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline int store32(const struct call *c, uint32_t at, uint64_t value) {
    const uint32_t v = (uint32_t)value;
    unsigned char *p = guest(c, at, sizeof v);
    if (!p)
        return FAULT;
    memcpy(p, &v, sizeof v);
    return OK;
}
static inline int store64(const struct call *c, uint32_t at, uint64_t v) {
    unsigned char *p = guest(c, at, sizeof v);
    if (!p)
        return FAULT;
    memcpy(p, &v, sizeof v);
    return OK;
}

/* Takes fuel for work of the host; false, and the end, if there is not enough. */
static inline bool charge(struct ax_wasi *w, uint64_t fuel) {
    if (w->fuel < fuel) {
        w->fuel = 0;
        w->end = AX_WASI_FUEL;
        return false;
    }
    w->fuel -= fuel;
    return true;
}

int ax_wasi_fd_read(const struct call *c);
int ax_wasi_fd_write(const struct call *c);

/* The library's file: handles are descriptors from FIRST_HANDLE; PREOPENED is the root. */
enum { PREOPENED = 3, FIRST_HANDLE = 4 };
/* Index in handles[]; −1 if the descriptor is not one that is open. */
int ax_wasi_handle(const struct ax_wasi *w, uint32_t fd);
bool ax_wasi_is_root(const struct ax_wasi *w, uint32_t fd);
int ax_wasi_prestat_get(const struct call *c);
int ax_wasi_prestat_name(const struct call *c);
int ax_wasi_path_open(const struct call *c);
int ax_wasi_path_stat(const struct call *c);
int ax_wasi_fd_pread(const struct call *c);
int ax_wasi_fd_seek(const struct call *c);
int ax_wasi_fd_tell(const struct call *c);
int ax_wasi_fd_stat(const struct call *c);
int ax_wasi_fdstat(const struct call *c);
int ax_wasi_fd_close(const struct call *c);

#endif
