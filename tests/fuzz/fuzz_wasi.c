/* The world of a sandbox's guest: any calls with any arguments over any memory write within the
 * memory, keep fuel from growing and output within its bounds, and free everything. */
#include <stdint.h>
#include <string.h>

#include "data/reward/sandbox/wasi.h"

enum { MEMORY = 4096, OUT = 100, ERR = 50 };

static bool ask(void *ctx, struct ax_bytes message, struct ax_bytes *reply) {
    (void)ctx;
    *reply = message;
    return message.n == 0 || message.data[0] != 'x';
}

static void check(const struct ax_wasi *w, uint64_t fuel) {
    AX_ASSERT(w->fuel <= fuel);
    AX_ASSERT(w->out.n <= OUT && w->err.n <= ERR);
    AX_ASSERT(w->end != AX_WASI_EXIT || (w->exit_code >= 0 && w->exit_code <= 125));
    AX_ASSERT(w->message.len <= AX_WASI_MAX_MESSAGE);
}

/* An argument from two bytes: small, near the memory's end, or near the ends of the types. */
static int64_t argument(unsigned kind, unsigned value) {
    const int64_t v = (int64_t)value;
    switch (kind % 8) {
    case 0:
        return MEMORY - v % 64;
    case 1:
        return -v;
    case 2:
        return INT64_MAX - v;
    case 3:
        return INT64_MIN + v;
    case 4:
        return v << 24;
    case 5:
        return v << 4;
    default:
        return v;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The input: which world, then calls (a number, 2 bytes for each argument); what is left over is the
 * memory. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const args[] = {"python", "-c", "", NULL};
    static const struct ax_bytes input[] = {{"source", 6}, {"", 0}, {"in", 2}};
    const uint64_t live = ax_mem_live_blocks();
    /* exactly as large as it is, so that sanitizers see what goes beyond */
    unsigned char *memory;
    char *out, *err;
    if (size < 2)
        return 0;
    AX_ASSERT(ax_alloc(&memory, MEMORY, 1) == AX_OK && ax_alloc(&out, OUT, 1) == AX_OK &&
              ax_alloc(&err, ERR, 1) == AX_OK);
    struct ax_wasi w = {.args = args,
                        .input = input,
                        .n_input = 3,
                        .out = {.data = out, .cap = OUT},
                        .err = {.data = err, .cap = ERR},
                        .fuel_limit = 1000000,
                        .fuel = 1000000,
                        .stop_at_clock = data[0] & 1,
                        .ask = data[0] & 2 ? ask : NULL};
    if (data[0] & 4) {
        w.library = (struct ax_bytes){"zip", 3};
        w.library_path = "lib/a.zip";
    }
    memcpy(memory + MEMORY - 9, "lib/a.zip", 9);
    memcpy(memory, data, size < MEMORY - 9 ? size : MEMORY - 9);
    for (size_t at = 1; at < size && w.end == AX_WASI_RUNS;) {
        const int which = data[at++] % AX_WASI_IMPORTS;
        const size_t n = strlen(ax_wasi_imports[which].params);
        union ax_wasm_cell cells[16] = {0};
        const uint64_t fuel = w.fuel;
        for (size_t i = 0; i < n && at + 2 <= size; i++, at += 2)
            cells[i].i64 = argument(data[at], data[at + 1]);
        ax_wasi_call(&w, which, cells, memory, MEMORY);
        check(&w, fuel);
    }
    ax_wasi_free(&w);
    ax_free(memory);
    ax_free(out);
    ax_free(err);
    AX_ASSERT(ax_mem_live_blocks() == live);
    return 0;
}
