/* The world as a guest sees it: WASI preview 1, of our own making and with almost nothing in it.
 *
 * Knows no engine: a call is its number in a table, its arguments, and the guest's memory. There are
 * bounded input and output, a clock made of fuel, randomness from a seed, one read-only file if the
 * interpreter needs its library, and, for tests of a candidate, a channel to another instance.
 * Everything else is a bad descriptor. Every pointer is checked. Work of the host costs fuel. */
#ifndef AX_DATA_REWARD_SANDBOX_WASI_H
#define AX_DATA_REWARD_SANDBOX_WASI_H

#include <stdbool.h>

#include "base/mem.h"
#include "data/reward/sandbox/wasmtime.h"

struct ax_bytes {
    const char *data;
    size_t n;
};

/* The output of a guest: at most `cap` bytes. */
struct ax_wasi_output {
    char *data; /* [cap], of the caller */
    size_t n, cap;
    bool closed;
};

enum ax_wasi_end {
    AX_WASI_RUNS,
    AX_WASI_EXIT,   /* it exited with exit_code */
    AX_WASI_FUEL,   /* the host's work used up the fuel */
    AX_WASI_OUTPUT, /* more output than allowed */
    AX_WASI_PEER,   /* the other side of the channel is gone */
    AX_WASI_CLOCK   /* it asked for the time, and stop_at_clock was set */
};

#define AX_WASI_MAX_HANDLES 8
#define AX_WASI_MAX_VECTORS 1024
#define AX_WASI_MAX_MESSAGE ((size_t)1 << 20)

struct ax_wasi {
    /* ---- set by the caller ---- */
    const char *const *args;      /* NULL-terminated */
    const struct ax_bytes *input; /* descriptor 0: segments, each ended by one empty read */
    size_t n_input;
    struct ax_wasi_output out, err; /* descriptors 1 and 2; the rest of err is dropped */
    struct ax_bytes library;        /* the only file; data = NULL: none */
    const char *library_path;       /* its path from the root, without a leading slash */
    uint64_t seed;
    uint64_t fuel_limit; /* the clock's start */
    bool stop_at_clock;  /* end as soon as it has written something and asks for the time */
    /* Answers a message: what was written to descriptor 1, when 0 is read; which then has *reply,
     * valid until the next call, as a segment, which must not be empty. False: there will be none. NULL: the two are output
     * and input, as usual. (Descriptors of its own are not for a channel: npm's interpreter takes
     * them for files that it contains.) */
    bool (*ask)(void *ctx, struct ax_bytes message, struct ax_bytes *reply);
    void *ask_ctx;

    /* ---- the state of a run ---- */
    uint64_t fuel; /* set before each call to what is left; lower after it */
    enum ax_wasi_end end;
    int exit_code;
    size_t segment, at; /* position in the input */
    uint64_t slept;     /* nanoseconds */
    uint64_t drawn;     /* random blocks */
    struct {
        bool open;
        uint64_t at;
    } handles[AX_WASI_MAX_HANDLES];
    struct ax_buf message;
    struct ax_bytes reply;
    bool asked; /* the message is complete */
    size_t reply_at;
};

struct ax_wasi_import {
    const char *name;
    const char *params; /* 'i' = i32, 'l' = i64; every function but proc_exit returns an i32 */
};
#define AX_WASI_MODULE  "wasi_snapshot_preview1"
#define AX_WASI_IMPORTS 43
extern const struct ax_wasi_import ax_wasi_imports[AX_WASI_IMPORTS];

/* Calls import `which` with its cells, and writes the result into the first. The memory is the
 * guest's now. After it, end != AX_WASI_RUNS means that the guest must be stopped. */
void ax_wasi_call(struct ax_wasi *w, int which, union ax_wasm_cell *cells, unsigned char *memory,
                  size_t size);
/* Other input, and a channel without a message or an answer: nothing of what was read and asked before is left. */
void ax_wasi_restart(struct ax_wasi *w, const struct ax_bytes *input, size_t n);
/* Frees what the calls allocated. */
void ax_wasi_free(struct ax_wasi *w);

#endif
