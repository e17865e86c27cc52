/* Modules of WebAssembly: any bytes are read within their bounds, and what is accepted is written
 * anew as modules that are accepted, too. */
#include <stdint.h>
#include <string.h>

#include "data/reward/sandbox/snapshot.h"

static void read_again(const struct ax_buf *out, uint32_t exports) {
    struct ax_wasm_module again;
    AX_ASSERT(ax_module_read(&again, out->data, out->len) == AX_OK);
    AX_ASSERT(again.sections[AX_WASM_EXPORTS].n >= exports);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static unsigned char memory[2 * AX_WASM_PAGE];
    const uint64_t live = ax_mem_live_blocks();
    struct ax_wasm_module m;
    struct ax_buf out = {0};
    if (ax_module_read(&m, data, size) == AX_OK) {
        struct ax_wasm_state s = {.memory = memory, .memory_len = sizeof memory};
        memory[data[size / 2] * 512] = 1;
        s.globals[0] = (int32_t)size - 200;
        s.function = (uint32_t)size * 0x01010101U;
        s.argument = ~s.function;
        if (ax_module_write_open(&m, &out) == AX_OK)
            read_again(&out, 2);
        out.len = 0;
        AX_ASSERT(ax_module_write_snapshot(&m, &s, &out) == AX_OK);
        read_again(&out, 2);
        memory[data[size / 2] * 512] = 0;
    }
    ax_buf_free(&out);
    AX_ASSERT(ax_mem_live_blocks() == live);
    return 0;
}
