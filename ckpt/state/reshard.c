/* A checkpoint anew, with the layout of one rank: the state file has every tensor whole, piece by piece
 * from the ranks' files; all other files are copied. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/free_space.h"
#include "base/io_path.h"
#include "base/mem.h"
#include "ckpt/state/checkpoint.h"

/* One tensor, and where it is read from. */
struct whole {
    struct ax_checkpoint_reader *reader;
    struct ax_state_part part;         /* all of it */
    const struct ax_state_part *codes; /* of scales: what they belong to; of codes: their own */
    const struct ax_state_part *scales;
    struct ax_st_part output;
    char *key;
};

#define BLOCKS ((int64_t)4096) /* that are read together */

/* Blocks [first, first + n) of 8 bits: codes and scales. */
static enum ax_status read_blocks(const struct whole *w, int64_t first, int64_t n, char *codes,
                                  char *scales) {
    const int64_t phase = w->scales->start[1], end = (first + n) * AX_8BIT_BLOCK - phase;
    struct ax_state_part both[2] = {*w->codes, *w->scales};
    both[0].first = first > 0 ? first * AX_8BIT_BLOCK - phase : 0;
    both[0].n = (end < w->codes->n ? end : w->codes->n) - both[0].first;
    both[0].data = codes;
    both[1].first = first;
    both[1].n = n;
    both[1].data = scales;
    return ax_checkpoint_read(w->reader, &(struct ax_state_parts){.n = 2, .list = both}, 0);
}

/* Elements, or scales, [first, first + n) of those blocks that have any of them. */
static enum ax_status fill_blocks(const struct whole *w, int64_t first, int64_t n, char *codes,
                                  char *scales, char *out) {
    const bool wants_scales = w->part.layout == AX_STATE_BLOCKS;
    const int64_t phase = w->scales->start[1], per = wants_scales ? 1 : AX_8BIT_BLOCK;
    const size_t size = ax_dtype_size(w->part.dtype);
    const int64_t shift = wants_scales ? 0 : phase, last = (shift + first + n - 1) / per;
    for (int64_t block = (shift + first) / per, take; block <= last; block += take) {
        take = last + 1 - block < BLOCKS ? last + 1 - block : BLOCKS;
        AX_TRY(read_blocks(w, block, take, codes, scales));
        const int64_t has = block * per - shift > 0 ? block * per - shift : 0;
        const int64_t begin = has > first ? has : first, end = (block + take) * per - shift;
        const char *from = wants_scales ? scales : codes;
        memcpy(out + (size_t)(begin - first) * size, from + (size_t)(begin - has) * size,
               (size_t)((end < first + n ? end : first + n) - begin) * size);
    }
    return AX_OK;
}

static enum ax_status fill_coded(const struct whole *w, int64_t first, int64_t n, char *out) {
    char *codes = NULL, *scales = NULL;
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&codes, BLOCKS, AX_8BIT_BLOCK), st, done);
    AX_TRY_GOTO(ax_alloc(&scales, BLOCKS, ax_dtype_size(w->scales->dtype)), st, done);
    st = fill_blocks(w, first, n, codes, scales, out);
done:
    ax_free(scales);
    ax_free(codes);
    return st;
}

static enum ax_status fill(void *ctx, int64_t first, int64_t n, void *out) {
    const struct whole *w = ctx;
    if (w->codes)
        return fill_coded(w, first, n, out);
    struct ax_state_part p = w->part;
    p.first = first;
    p.n = n;
    p.data = out;
    return ax_checkpoint_read(w->reader, &(struct ax_state_parts){.n = 1, .list = &p}, 0);
}

/* ---- the tensors ---- */

struct copy {
    struct ax_checkpoint_reader reader;
    int n;
    struct whole *tensors;
    struct ax_state_part *parts;
    struct ax_st_output *outputs;
};

static void free_copy(struct copy *all) {
    for (int i = 0; all->tensors && i < all->n; i++)
        ax_free(all->tensors[i].key);
    ax_checkpoint_reader_close(&all->reader);
    ax_free(all->tensors);
    ax_free(all->parts);
    ax_free(all->outputs);
}

/* The whole tensor that a shard is of. */
static struct ax_state_part whole_of(const struct ax_state_part *shard) {
    struct ax_state_part p = *shard;
    const struct ax_block all = ax_block_whole(p.ndim, p.shape);
    memset(p.start, 0, sizeof p.start);
    memcpy(p.size, all.size, sizeof p.size);
    p.first = 0;
    p.n = all.n;
    return p;
}

/* Scales as of one slice; its blocks begin where those of the checkpoint did, if that had one too. */
static void as_one_slice(struct ax_state_part *p, int64_t codes) {
    const int64_t phase = p->shape[0] == 1 ? p->start[1] : 0;
    p->shape[0] = p->size[0] = p->size[1] = 1;
    p->start[0] = p->start[2] = p->first = 0;
    p->start[1] = phase;
    p->n = p->size[2] = (phase + codes + AX_8BIT_BLOCK - 1) / AX_8BIT_BLOCK;
}

/* The tensor NAME:SLOT_scale, among those that follow tensor i; NULL: these are no codes. */
static struct whole *scales_of(const struct copy *all, int i) {
    const struct ax_state_part *codes = &all->tensors[i].part;
    char slot[AX_SLOT_NAME];
    snprintf(slot, sizeof slot, "%s_scale", codes->slot);
    for (int k = i + 1; k < all->n; k++) {
        const struct ax_state_part *p = &all->tensors[k].part;
        if (strcmp(p->name, codes->name) != 0)
            return NULL;
        if (strcmp(p->slot, slot) == 0)
            return &all->tensors[k];
    }
    return NULL;
}

static enum ax_status pair_up(struct copy *all, int i) {
    struct whole *codes = &all->tensors[i], *scales = scales_of(all, i);
    if (!scales || codes->part.dtype != AX_U8)
        return AX_OK;
    if (scales->part.ndim != 3 || scales->part.shape[1] != AX_8BIT_BLOCK ||
        !ax_dtype_info(scales->part.dtype)->is_float)
        return ax_error(AX_ERR_DATA, "%s: %s of %s are not scales", all->reader.c->dir,
                        scales->part.slot, scales->part.name);
    codes->part.layout =
        strcmp(codes->part.slot, "exp_avg") == 0 ? AX_STATE_SIGNED_CODES : AX_STATE_UNSIGNED_CODES;
    scales->part.layout = AX_STATE_BLOCKS;
    codes->codes = scales->codes = &codes->part;
    codes->scales = scales->scales = &scales->part;
    return AX_OK;
}

/* One of each tensor: shards are sorted by it. */
static void list_tensors(struct copy *all, const struct ax_checkpoint *c) {
    AX_ASSERT(all->tensors);
    for (size_t i = 0; i < c->n_shards; i++) {
        const struct ax_state_part *p = &c->shards[i].part;
        const struct ax_state_part *last = all->n > 0 ? &all->tensors[all->n - 1].part : NULL;
        if (last && strcmp(last->name, p->name) == 0 && strcmp(last->slot, p->slot) == 0)
            continue;
        all->tensors[all->n++] = (struct whole){.reader = &all->reader, .part = *p};
    }
}

static enum ax_status finish_tensor(struct copy *all, int i) {
    struct whole *w = &all->tensors[i];
    if (w->part.layout == AX_STATE_BLOCKS)
        as_one_slice(&w->part, w->codes->n); /* which are before them, and done */
    else
        w->part = whole_of(&w->part);
    AX_TRY(ax_checkpoint_key(&w->key, &w->part));
    w->output = (struct ax_st_part){.fill = fill, .ctx = w};
    w->output.block = ax_block_whole(1, &w->part.n);
    all->parts[i] = w->part;
    all->outputs[i] = (struct ax_st_output){.name = w->key,
                                            .dtype = w->part.dtype,
                                            .ndim = 1,
                                            .shape = {w->part.n},
                                            .n_parts = 1,
                                            .parts = &w->output};
    return AX_OK;
}

static enum ax_status open_copy(struct copy *all, const struct ax_checkpoint *c) {
    AX_TRY(ax_checkpoint_reader_open(&all->reader, c));
    AX_TRY(ax_alloc(&all->tensors, c->n_shards, sizeof *all->tensors));
    AX_TRY(ax_alloc(&all->parts, c->n_shards, sizeof *all->parts));
    AX_TRY(ax_alloc(&all->outputs, c->n_shards, sizeof *all->outputs));
    list_tensors(all, c);
    for (int i = 0; i < all->n; i++)
        AX_TRY(pair_up(all, i));
    for (int i = 0; i < all->n; i++)
        AX_TRY(finish_tensor(all, i));
    return AX_OK;
}

/* ---- the folder ---- */

static enum ax_status check_space(const struct ax_checkpoint *c, const char *out) {
    uint64_t bytes = 0, available;
    char *parent, need[32], is[32];
    for (size_t i = 0; i < c->files.n; i++)
        bytes += c->files.files[i].sums.bytes;
    AX_TRY(ax_path_parent(&parent, out));
    const enum ax_status st = ax_disk_free(parent, &available);
    ax_free(parent);
    if (st != AX_OK || available >= bytes)
        return st;
    return ax_error(AX_ERR_STORAGE, "%s: the copy needs %s, but only %s are free", out,
                    ax_format_bytes(need, sizeof need, (double)bytes),
                    ax_format_bytes(is, sizeof is, (double)available));
}

enum ax_status ax_checkpoint_reshard(const struct ax_checkpoint *c, const char *out) {
    struct copy all = {0};
    struct ax_mesh mesh;
    enum ax_status st;
    AX_TRY(ax_mesh_create(&mesh, (struct ax_mesh_sizes){1, 1, 1, 1, 1, 1}, 1, 0));
    AX_TRY(check_space(c, out));
    AX_TRY(ax_checkpoint_verify(c, NULL));
    AX_TRY_GOTO(open_copy(&all, c), st, done);
    const struct ax_checkpoint_save save = {.dir = out,
                                            .step = c->step,
                                            .copy_of = c,
                                            .mesh = &mesh,
                                            .n_parts = all.n,
                                            .parts = all.parts,
                                            .state = all.outputs,
                                            .run = c->run};
    st = ax_checkpoint_write(&save);
done:
    free_copy(&all);
    return st;
}
