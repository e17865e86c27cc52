/* The pointer that a guest returns: whatever it is, and whatever the memory says there, what is taken
 * for its result is within the memory and the cap. */
#include <stdint.h>
#include <string.h>

#include "data/reward/sandbox/engine.h"

static const uint8_t *memory;
static size_t memory_len;

static unsigned char *memory_data(const void *context, const void *m) {
    (void)context;
    (void)m;
    return (unsigned char *)(uintptr_t)memory;
}

static size_t memory_size(const void *context, const void *m) {
    (void)context;
    (void)m;
    return memory_len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The input: the pointer, the cap, the memory. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const struct ax_wasmtime lib = {.memory_data = memory_data, .memory_size = memory_size};
    const struct ax_engine engine = {.lib = &lib};
    const struct ax_guest guest = {.engine = &engine};
    uint32_t pointer, cap;
    struct ax_bytes result;
    if (size < 8)
        return 0;
    memcpy(&pointer, data, 4);
    memcpy(&cap, data + 4, 4);
    memory = data + 8;
    memory_len = size - 8;
    if (ax_guest_bytes(&guest, pointer, cap, &result)) {
        const char *end = (const char *)memory + memory_len;
        AX_ASSERT(result.n <= cap && result.data >= (const char *)memory && result.data <= end &&
                  result.n <= (size_t)(end - result.data));
    }
    return 0;
}
