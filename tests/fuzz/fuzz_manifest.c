/* A checkpoint's manifest: any text gives files with plain names and shards that lie in their
 * tensors, do not overlap and are in a file of the list, or an error that names the manifest. The
 * input is what follows the checksum, which is made to fit. Nothing stays allocated. */
#include <stdio.h>
#include <string.h>

#include "base/hash/hash.h"
#include "ckpt/state/checkpoint.h"
#include "tests/fuzz/mutate.h"

static void check_file(const struct ax_file_sums *f) {
    const char *name = strncmp(f->name, "state/", 6) == 0 ? f->name + 6 : f->name;
    AX_ASSERT(ax_is_plain_name(name));
    AX_ASSERT(f->sums.n == (f->sums.bytes + AX_SUM_PIECE - 1) / AX_SUM_PIECE);
}

static void check_shard(const struct ax_checkpoint *c, const struct ax_checkpoint_shard *s) {
    const struct ax_state_part *p = &s->part;
    int64_t numel = 1;
    AX_ASSERT(s->file < c->files.n && p->name && p->slot);
    AX_ASSERT(p->ndim >= 1 && p->ndim <= AX_MAX_DIMS);
    for (int d = 0; d < p->ndim; d++) {
        AX_ASSERT(p->start[d] >= 0 && p->size[d] > 0 && p->size[d] <= p->shape[d] - p->start[d]);
        AX_ASSERT(!__builtin_mul_overflow(numel, p->size[d], &numel));
    }
    AX_ASSERT(p->first >= 0 && p->n > 0 && p->n <= numel - p->first);
}

/* Of blocks with one beginning, no two hold the same element. */
static void check_apart(const struct ax_state_part *a, const struct ax_state_part *b) {
    if (strcmp(a->name, b->name) != 0 || strcmp(a->slot, b->slot) != 0 || a->ndim != b->ndim ||
        memcmp(a->start, b->start, (size_t)a->ndim * sizeof *a->start) != 0) {
        return;
    }
    AX_ASSERT(memcmp(a->size, b->size, (size_t)a->ndim * sizeof *a->size) == 0);
    AX_ASSERT(a->first + a->n <= b->first || b->first + b->n <= a->first);
}

static void check(const struct ax_checkpoint *c) {
    AX_ASSERT(c->step >= 0);
    for (size_t i = 0; i < c->files.n; i++)
        check_file(&c->files.files[i]);
    for (size_t i = 0; i < c->n_shards; i++) {
        check_shard(c, &c->shards[i]);
        for (size_t k = 0; k < i; k++)
            check_apart(&c->shards[k].part, &c->shards[i].part);
    }
}

static void parse(const char *text, size_t len) {
    const uint64_t live = ax_mem_live_blocks();
    struct ax_checkpoint c = {0};
    if (ax_manifest_parse(&c, "m.json", text, len) == AX_OK)
        check(&c);
    else
        AX_ASSERT(strncmp(ax_error_text(), "m.json:", 7) == 0);
    ax_checkpoint_close(&c);
    AX_ASSERT(ax_mem_live_blocks() == live);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct ax_buf b = {0};
    parse((const char *)data, size);
    AX_ASSERT(ax_buf_printf(&b, "{\"crc32c\": \"%08x\",", ax_crc32c(0, data, size)) == AX_OK);
    AX_ASSERT(ax_buf_append(&b, data, size) == AX_OK);
    parse(b.data, b.len);
    ax_buf_free(&b);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    return fuzz_text_mutate(data, size, max_size, seed);
}
