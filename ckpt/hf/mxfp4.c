#include "ckpt/hf/mxfp4.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ckpt/hf/hf.h"

#define GROUP 32 /* elements of a block */

static const char BLOCKS[] = "_blocks", SCALES[] = "_scales";

static bool ends_in(const char *name, const char *end) {
    const size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0;
}

/* NAME + `end` for NAME_blocks or NAME_scales; *out is the caller's. */
static enum ax_status renamed(const char *name, const char *end, char **out) {
    const size_t stem = strlen(name) - strlen(BLOCKS);
    AX_TRY(ax_alloc(out, stem + strlen(end) + 1, 1));
    memcpy(*out, name, stem);
    memcpy(*out + stem, end, strlen(end) + 1);
    return AX_OK;
}

static enum ax_status read_values(void *ctx, int64_t first, int64_t n, void *out) {
    static const float values[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    const struct ax_mxfp4_source *s = ctx;
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = first + i, column = at % s->out, k = at / s->out % s->in;
        const int64_t row = at / (s->in * s->out) * s->out + column;
        const int64_t block = (row * s->in + k) / GROUP;
        const unsigned byte = s->blocks[block * (GROUP / 2) + k % GROUP / 2];
        const unsigned code = k % 2 ? byte >> 4 : byte & 15;
        if (s->scales[block] == 255)
            return ax_error(AX_ERR_DATA, "%s: block %lld is not a number", s->name,
                            (long long)block);
        const float v = ldexpf(values[code & 7], s->scales[block] - 127);
        ax_store(AX_BF16, out, i, (double)(code & 8 ? -v : v));
    }
    return AX_OK;
}

static enum ax_status make_entry(const struct ax_hf *hf, const struct ax_st_entry *blocks,
                                 struct ax_st_entry *e, struct ax_mxfp4_source *s) {
    char *scales_name = NULL;
    AX_TRY(renamed(blocks->name, SCALES, &scales_name));
    const struct ax_st_entry *scales = ax_hf_find(hf, scales_name);
    ax_free(scales_name);
    bool fits = scales && scales->ndim == 3 && scales->dtype == AX_U8 && blocks->ndim == 4 &&
                blocks->shape[3] == GROUP / 2;
    for (int d = 0; d < 3 && fits; d++)
        fits = scales->shape[d] == blocks->shape[d];
    if (!fits)
        return ax_error(AX_ERR_DATA,
                        "%s: %s is not the blocks of an MXFP4 tensor [experts, out, in/32, 16] "
                        "with scales",
                        hf->dir, blocks->name);
    *s = (struct ax_mxfp4_source){.name = blocks->name,
                                  .blocks = blocks->data,
                                  .scales = scales->data,
                                  .in = blocks->shape[2] * GROUP,
                                  .out = blocks->shape[1]};
    *e = (struct ax_st_entry){.file = blocks->file,
                              .dtype = AX_BF16,
                              .ndim = 3,
                              .shape = {blocks->shape[0], s->in, s->out},
                              .numel = 2 * blocks->numel,
                              .bytes = 4 * (size_t)blocks->numel,
                              .read = read_values,
                              .ctx = s,
                              .stored = blocks->data,
                              .stored_bytes = blocks->bytes};
    return renamed(blocks->name, "", &e->name);
}

static bool is_blocks(const struct ax_st_entry *e) {
    return e->dtype == AX_U8 && ends_in(e->name, BLOCKS);
}

static int by_name(const void *x, const void *y) {
    return strcmp(((const struct ax_st_entry *)x)->name, ((const struct ax_st_entry *)y)->name);
}

static enum ax_status fill(const struct ax_hf *hf, struct ax_hf_mxfp4 *m) {
    for (int i = 0; i < ax_hf_count(hf); i++) {
        const struct ax_st_entry *e = ax_hf_at(hf, i);
        if (e->dtype == AX_U8 && ends_in(e->name, SCALES))
            continue;
        m->entries[m->n] = *e;
        if (is_blocks(e)) {
            m->entries[m->n].name = NULL;
            AX_TRY(make_entry(hf, e, &m->entries[m->n], &m->sources[m->n]));
        }
        m->n++;
    }
    qsort(m->entries, (size_t)m->n, sizeof *m->entries, by_name);
    return AX_OK;
}

enum ax_status ax_hf_mxfp4_open(struct ax_hf *hf) {
    const size_t n = (size_t)ax_hf_count(hf);
    struct ax_hf_mxfp4 *m = NULL;
    bool any = false;
    enum ax_status st;
    for (size_t i = 0; i < n && !any; i++)
        any = is_blocks(ax_hf_at(hf, (int)i));
    if (!any)
        return AX_OK;
    AX_TRY(ax_alloc(&m, 1, sizeof *m));
    AX_TRY_GOTO(ax_alloc(&m->entries, n, sizeof *m->entries), st, fail);
    AX_TRY_GOTO(ax_alloc(&m->sources, n, sizeof *m->sources), st, fail);
    AX_TRY_GOTO(fill(hf, m), st, fail);
    hf->mxfp4 = m;
    hf->n_entries = m->n;
    hf->entries = m->entries;
    return AX_OK;
fail:
    ax_hf_mxfp4_close(m);
    return st;
}

void ax_hf_mxfp4_close(struct ax_hf_mxfp4 *m) {
    if (!m)
        return;
    for (int i = 0; m->entries && i < m->n; i++)
        if (m->entries[i].read == read_values)
            ax_free(m->entries[i].name);
    ax_free(m->entries);
    ax_free(m->sources);
    ax_free(m);
}
