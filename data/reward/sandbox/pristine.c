#include "data/reward/sandbox/pristine.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { PAGE = 4096 };
/* An instance with more written pages than this is replaced, so that what one program used does not
 * cost all those after it. */
enum { MAX_WRITTEN = 2048 };

/* ---- which pages were written ---- */

struct written {
    const struct ax_pristine *p;
    unsigned char *memory;
    size_t pages;
};

static void copy_back(struct written *w, size_t at, size_t n) {
    memcpy(w->memory + at * PAGE, w->p->memory + at * PAGE, n * PAGE);
    w->pages += n;
}

/* Since Linux 6.7 (linux/fs.h): ranges of pages with certain properties. */
struct scan {
    uint64_t size, flags, start, end, walk_end, out, out_len, max_pages;
    uint64_t inverted, all_of, any_of, wanted;
};
struct range {
    uint64_t start, end, properties;
};
enum { IS_FILE = 1 << 2, IS_PRESENT = 1 << 3, IS_SWAPPED = 1 << 4, IS_ZERO = 1 << 5 };

/* An empty range. */
static bool has_scan(int pagemap) {
    struct scan scan = {.size = sizeof scan, .any_of = IS_PRESENT, .wanted = IS_PRESENT};
    return ioctl(pagemap, AX_PAGEMAP_SCAN, &scan) == 0;
}

static bool scan_ranges(struct written *w) {
    struct range ranges[128];
    const uint64_t base = (uint64_t)(uintptr_t)w->memory;
    struct scan scan = {.size = sizeof scan,
                        .start = base,
                        .end = base + w->p->len,
                        .out = (uint64_t)(uintptr_t)ranges,
                        .out_len = sizeof ranges / sizeof *ranges,
                        .inverted = IS_FILE | IS_ZERO,
                        .all_of = IS_FILE | IS_ZERO,
                        .any_of = IS_PRESENT | IS_SWAPPED,
                        .wanted = IS_PRESENT};
    while (scan.start < scan.end) {
        const int n = ioctl(w->p->pagemap, AX_PAGEMAP_SCAN, &scan);
        if (n < 0)
            return false;
        for (int i = 0; i < n; i++)
            copy_back(w, (ranges[i].start - base) / PAGE, (ranges[i].end - ranges[i].start) / PAGE);
        scan.start = scan.walk_end;
    }
    return true;
}

/* Before it: an entry for each page. Bits: in memory; swapped out; of a file or shared. */
#define PRESENT ((uint64_t)1 << 63)
#define SWAPPED ((uint64_t)1 << 62)
#define OF_FILE ((uint64_t)1 << 61)

static bool is_written(uint64_t entry) {
    return (entry & SWAPPED) || ((entry & PRESENT) && !(entry & OF_FILE));
}

static bool read_entries(struct written *w) {
    enum { BATCH = 1024 };
    uint64_t entries[BATCH];
    const size_t pages = w->p->len / PAGE;
    for (size_t i = 0; i < pages; i += BATCH) {
        const size_t n = pages - i < BATCH ? pages - i : BATCH;
        const uint64_t first = (uint64_t)(uintptr_t)w->memory / PAGE + i;
        const ssize_t got =
            pread(w->p->pagemap, entries, n * sizeof *entries, (off_t)(first * sizeof *entries));
        if (got != (ssize_t)(n * sizeof *entries))
            return false;
        for (size_t k = 0; k < n; k++)
            if (is_written(entries[k]))
                copy_back(w, i + k, 1);
    }
    return true;
}

static bool restore_memory(const struct ax_pristine *p, unsigned char *memory) {
    struct written w = {p, memory, 0};
    return (p->has_scan ? scan_ranges(&w) : read_entries(&w)) && w.pages <= MAX_WRITTEN;
}

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
    p->has_scan = p->pagemap >= 0 && has_scan(p->pagemap);
    return AX_OK;
}

void ax_pristine_free(struct ax_pristine *p) {
    if (p->memory && p->pagemap >= 0)
        (void)close(p->pagemap);
    ax_free(p->memory);
    p->memory = NULL;
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
