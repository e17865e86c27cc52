#include "data/sandbox/pristine.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PAGE = 4096 };
/* An instance with more written pages than this is replaced, so that what one program used does not
 * cost all those after it. */
enum { MAX_WRITTEN = 2048 };

static bool global(const struct ax_guest *g, int i, struct ax_wasm_extern *out) {
    char name[16];
    (void)snprintf(name, sizeof name, "g%d", i);
    return ax_guest_export(g, name, out) && out->kind == AX_WASM_EXTERN_GLOBAL;
}

enum ax_status ax_pristine_take(struct ax_pristine *p, const struct ax_guest *g) {
    const unsigned char *memory = ax_guest_memory(g, &p->len);
    struct ax_wasm_extern found;
    p->pagemap = -1;
    AX_TRY(ax_alloc(&p->memory, p->len, 1));
    memcpy(p->memory, memory, p->len);
    for (int i = 0; i < AX_WASM_MAX_GLOBALS; i++) {
        struct ax_wasm_val value = {0};
        p->has_global[i] = global(g, i, &found);
        if (p->has_global[i])
            g->engine->lib->global_get(g->context, &found.of, &value);
        p->globals[i] = value.of.i32;
    }
    if (sysconf(_SC_PAGESIZE) == PAGE)
        p->pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    return AX_OK;
}

void ax_pristine_free(struct ax_pristine *p) {
    if (p->memory && p->pagemap >= 0)
        (void)close(p->pagemap);
    ax_free(p->memory);
    p->memory = NULL;
}

/* Bits of an entry: in memory; swapped out; of a file or shared. */
#define PRESENT ((uint64_t)1 << 63)
#define SWAPPED ((uint64_t)1 << 62)
#define OF_FILE ((uint64_t)1 << 61)

static bool is_written(uint64_t entry) {
    return (entry & SWAPPED) || ((entry & PRESENT) && !(entry & OF_FILE));
}

static bool restore_memory(const struct ax_pristine *p, unsigned char *memory) {
    enum { BATCH = 1024 };
    uint64_t entries[BATCH];
    const size_t pages = p->len / PAGE;
    size_t written = 0;
    for (size_t i = 0; i < pages; i += BATCH) {
        const size_t n = pages - i < BATCH ? pages - i : BATCH;
        const uint64_t first = (uint64_t)(uintptr_t)memory / PAGE + i;
        const ssize_t got =
            pread(p->pagemap, entries, n * sizeof *entries, (off_t)(first * sizeof *entries));
        if (got != (ssize_t)(n * sizeof *entries))
            return false;
        for (size_t k = 0; k < n; k++)
            if (is_written(entries[k])) {
                memcpy(memory + (i + k) * PAGE, p->memory + (i + k) * PAGE, PAGE);
                written++;
            }
    }
    return written <= MAX_WRITTEN;
}

bool ax_pristine_restore(const struct ax_pristine *p, const struct ax_guest *g) {
    size_t size;
    unsigned char *memory = (unsigned char *)(uintptr_t)ax_guest_memory(g, &size);
    if (p->pagemap < 0 || size != p->len || !restore_memory(p, memory))
        return false;
    for (int i = 0; i < AX_WASM_MAX_GLOBALS; i++) {
        struct ax_wasm_extern found;
        const struct ax_wasm_val value = {.of.i32 = p->globals[i]}; /* kind 0: i32 */
        if (!p->has_global[i] || !global(g, i, &found))
            continue;
        void *error = g->engine->lib->global_set(g->context, &found.of, &value);
        if (error) {
            g->engine->lib->error_delete(error);
            return false;
        }
    }
    return true;
}

enum ax_status ax_pristine_guest(const struct ax_pristine *p, const struct ax_engine *e,
                                 struct ax_guest *g) {
    if (g->store && ax_pristine_restore(p, g))
        return AX_OK;
    ax_guest_close(g);
    return ax_guest_open(g, e, "run");
}
