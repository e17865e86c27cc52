/* Loading a checkpoint: 8-bit moments on other blocks; parts; and all ranks' parts in one file. Read
 * ax_checkpoint_load first. */
#include "ckpt/state/checkpoint_load.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/free_space.h"
#include "base/io_path.h"
#include "base/mem.h"
#include "ckpt/state/checkpoint.h"
#include "kernels/quant/dynamic_map.h"

/* ---- 8-bit codes on other blocks ----
 *
 * A window of elements is filled from all shards, run by run; then its blocks are finished. */

#define BLOCKS ((int64_t)256) /* of a window */

struct window {
    const struct ax_state_codes *to;
    const struct ax_dynamic_map *map;
    struct ax_block at;
    int64_t first, n; /* elements of the part */
    int64_t lead;     /* elements of the first block before them */
    int64_t filled;
    uint8_t code[BLOCKS * AX_8BIT_BLOCK];
    double value[BLOCKS * AX_8BIT_BLOCK];
    struct {
        const char *source; /* the scale of the block that all elements so far come from */
        bool mixed;
    } block[BLOCKS];
    double scale[BLOCKS];
};

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Elements of the first block that are before the part. */
static int64_t lead_of(const struct ax_state_codes *c) {
    return (c->scales->start[1] + c->codes->first) % AX_8BIT_BLOCK;
}

static int64_t blocks_of(int64_t elements) {
    return (elements + AX_8BIT_BLOCK - 1) / AX_8BIT_BLOCK;
}

enum ax_status ax_state_codes_check(const struct ax_state_codes *c) {
    const struct ax_state_part *scales = c->scales;
    if (scales->ndim == 3 && scales->start[1] < AX_8BIT_BLOCK &&
        scales->n == blocks_of(lead_of(c) + c->codes->n))
        return AX_OK;
    return ax_error(AX_ERR_DATA, "%s of %s does not fit its codes", c->scales->slot,
                    c->scales->name);
}

/* n elements of a shard, from its element k on, are the window's from i on. */
static void fill_run(struct window *w, const struct ax_state_codes *from, int64_t i, int64_t k,
                     int64_t n) {
    const uint8_t *codes = from->code_bytes;
    const char *scales = from->scale_bytes;
    w->filled += n;
    for (int64_t take; n > 0; i += take, k += take, n -= take) {
        const int64_t is = lead_of(from) + k, will = w->lead + i;
        take = least(AX_8BIT_BLOCK - is % AX_8BIT_BLOCK, AX_8BIT_BLOCK - will % AX_8BIT_BLOCK);
        take = least(take, n);
        const char *source =
            scales + (size_t)(is / AX_8BIT_BLOCK) * ax_dtype_size(from->scales->dtype);
        const double scale = ax_load(from->scales->dtype, source, 0);
        const char **one = &w->block[will / AX_8BIT_BLOCK].source;
        w->block[will / AX_8BIT_BLOCK].mixed |= *one && *one != source;
        *one = source;
        w->scale[will / AX_8BIT_BLOCK] = scale;
        for (int64_t e = 0; e < take; e++) {
            w->code[i + e] = codes[k + e];
            w->value[i + e] = (double)w->map->value[codes[k + e]] * scale;
        }
    }
}

/* What the shard has of the window. */
static void fill_from(struct window *w, const struct ax_state_codes *from) {
    const struct ax_block is = ax_state_part_block(from->codes);
    struct ax_block_common c = ax_block_common(&w->at, w->first, w->n, &is);
    for (int64_t i, k, n; ax_block_next(&c, &i, &k, &n);)
        fill_run(w, from, i - w->first, k, n);
}

static void encode(struct window *w, int64_t block) {
    const int64_t first = block * AX_8BIT_BLOCK - w->lead, begin = first < 0 ? 0 : first;
    const int64_t end = least(first + AX_8BIT_BLOCK, w->n);
    double largest = 1e-12; /* as after an update */
    for (int64_t i = begin; i < end; i++)
        largest = fmax(largest, fabs(w->value[i]));
    ax_store(w->to->scales->dtype, &w->scale[block], 0, largest);
    w->scale[block] = largest = ax_load(w->to->scales->dtype, &w->scale[block], 0); /* rounded */
    for (int64_t i = begin; i < end; i++)
        w->code[i] = ax_dynamic_encode(w->map, (float)(w->value[i] / largest));
}

/* Finishes the blocks, and writes codes and scales; the first scale is the part's number `at`. */
static enum ax_status write_window(struct window *w, struct ax_queue *q, int64_t at) {
    const struct ax_state_part *codes = w->to->codes, *scales = w->to->scales;
    const size_t size = ax_dtype_size(scales->dtype);
    const int64_t n = blocks_of(w->lead + w->n);
    for (int64_t b = 0; b < n; b++)
        if (w->block[b].mixed)
            encode(w, b);
    char *packed = (char *)w->value; /* no longer needed */
    for (int64_t b = 0; b < n; b++)
        ax_store(scales->dtype, packed, b, w->scale[b]);
    AX_TRY(ax_queue_write(q, (char AX_DEVICE *)codes->data + w->first, w->code, (size_t)w->n));
    return ax_queue_write(q, (char AX_DEVICE *)scales->data + (size_t)at * size, packed,
                          (size_t)n * size);
}

enum ax_status ax_state_codes_copy(struct ax_queue *q, const struct ax_state_codes *to, size_t n,
                                   const struct ax_state_codes *from, int64_t *copied) {
    struct window *w;
    enum ax_status st = AX_OK;
    AX_TRY(ax_alloc(&w, 1, sizeof *w));
    w->to = to;
    w->map = to->codes->layout == AX_STATE_SIGNED_CODES ? &ax_dynamic_signed : &ax_dynamic_unsigned;
    w->at = ax_state_part_block(to->codes);
    w->lead = lead_of(to);
    for (int64_t block = 0; st == AX_OK && w->first < to->codes->n; block += BLOCKS) {
        w->n = least(BLOCKS * AX_8BIT_BLOCK - w->lead, to->codes->n - w->first);
        memset(w->block, 0, sizeof w->block);
        for (size_t i = 0; i < n; i++)
            fill_from(w, &from[i]);
        st = write_window(w, q, block);
        w->first += w->n;
        w->lead = 0;
    }
    *copied = w->filled;
    ax_free(w);
    return st;
}

/* ---- loading parts ---- */

enum ax_status ax_state_part_copy(struct ax_queue *q, const struct ax_state_part *to,
                                  const struct ax_state_part *from, const void *bytes,
                                  int64_t *copied) {
    const struct ax_block all = ax_state_part_block(to), has = ax_state_part_block(from);
    struct ax_block_common c = ax_block_common(&all, 0, all.n, &has);
    const size_t size = ax_dtype_size(to->dtype);
    for (int64_t i, k, n; ax_block_next(&c, &i, &k, &n); *copied += n)
        AX_TRY(ax_queue_write(q, (char AX_DEVICE *)to->data + (size_t)i * size,
                              (const char *)bytes + (size_t)k * size, (size_t)n * size));
    return AX_OK;
}

/* Elements [first, end) of a shard. */
struct span {
    int64_t first, end;
};

/* The elements of a shard from the first to the last that `to` has too; false if there are none. */
static bool common_span(const struct ax_state_part *to, const struct ax_state_part *shard,
                        struct span *out) {
    const struct ax_block all = ax_state_part_block(to), has = ax_state_part_block(shard);
    struct ax_block_common c = ax_block_common(&all, 0, all.n, &has);
    int64_t i, n;
    if (!ax_block_next(&c, &i, &out->first, &n))
        return false;
    out->end = out->first + n;
    for (int64_t k; ax_block_next(&c, &i, &k, &n);)
        out->end = k + n;
    return true;
}

/* The scales of codes [first, end). */
static struct span scales_span(const struct ax_state_codes *c, struct span codes) {
    const int64_t lead = lead_of(c);
    return (struct span){(lead + codes.first) / AX_8BIT_BLOCK, blocks_of(lead + codes.end)};
}

static void drop_span(const struct ax_state_part *shard, const void *bytes, struct span s) {
    const size_t size = ax_dtype_size(shard->dtype);
    ax_map_drop((const char *)bytes + (size_t)s.first * size, (size_t)(s.end - s.first) * size);
}

/* Training would go on with infinities and NaNs, so they are refused. Elements that are not wanted
 * are not looked at: a large shard is read in many spans. */
static enum ax_status check_span(const struct ax_st_entry *e, struct span s) {
    const struct ax_elements values = ax_st_elements(e);
    return ax_elements_check(&values, s.first, s.end - s.first,
                             (const char *)e->data + (size_t)s.first * ax_dtype_size(e->dtype));
}

/* Fills one part at a time. */
struct reader {
    const struct ax_checkpoint *c;
    struct ax_safetensors *files; /* [c->files.n]: files of ranks, opened when first needed */
    /* [c->files.n]: a shard in each file; may belong to another tensor than the one being read */
    size_t *of_file;
};

/* The elements of a shard, of which those of the span are checked. */
static enum ax_status shard_data(struct reader *o, const struct ax_checkpoint_shard *s,
                                 struct span wanted, const void **data) {
    const char *name = o->c->files.files[s->file].name;
    struct ax_safetensors *f = &o->files[s->file];
    char *path = NULL, *key = NULL;
    enum ax_status st = AX_OK;
    if (!f->path) {
        AX_TRY_GOTO(ax_path_join(&path, o->c->dir, name), st, done);
        AX_TRY_GOTO(ax_safetensors_open(f, path), st, done);
    }
    AX_TRY_GOTO(ax_checkpoint_key(&key, &s->part), st, done);
    const struct ax_st_entry *e = ax_safetensors_find(f, key);
    if (!e || e->dtype != s->part.dtype || e->numel != s->part.n)
        st = ax_error(AX_ERR_DATA, "%s: tensor %s is %s", f->path, key,
                      e ? "different from the manifest" : "missing");
    if (st == AX_OK)
        st = check_span(e, wanted);
    if (st == AX_OK)
        *data = e->data;
done:
    ax_free(key);
    ax_free(path);
    return st;
}

/* Index of the first shard of the part's tensor, or n_shards. */
static size_t first_shard(const struct ax_checkpoint *c, const struct ax_state_part *p) {
    size_t lo = 0, hi = c->n_shards;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if (ax_state_part_compare(&c->shards[mid].part, p) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < c->n_shards && ax_state_part_compare(&c->shards[lo].part, p) == 0 ? lo
                                                                                  : c->n_shards;
}

static enum ax_status check_like(const struct ax_checkpoint *c, const struct ax_state_part *is,
                                 const struct ax_state_part *want) {
    bool same = is->ndim == want->ndim;
    for (int d = 0; same && want->layout != AX_STATE_BLOCKS && d < want->ndim; d++)
        same = is->shape[d] == want->shape[d];
    if (!same)
        return ax_error(AX_ERR_DATA,
                        "%s: %s of %s has a different shape in this run; the checkpoint belongs to "
                        "another model",
                        c->dir, want->slot, want->name);
    if (is->dtype != want->dtype)
        return ax_error(AX_ERR_CONFIG,
                        "%s: %s of %s was %s and is now %s; resume with the precision and "
                        "optimizer settings of the checkpoint",
                        c->dir, want->slot, want->name, ax_dtype_info(is->dtype)->name,
                        ax_dtype_info(want->dtype)->name);
    return AX_OK;
}

/* The shards of the part's tensor are [*first, *end). */
static enum ax_status find_all(const struct ax_checkpoint *c, const struct ax_state_part *p,
                               size_t *first, size_t *end) {
    *first = first_shard(c, p);
    if (*first == c->n_shards)
        return ax_error(
            AX_ERR_DATA,
            "%s: contains no %s of %s; was it written with another optimizer or for another model?",
            c->dir, p->slot, p->name);
    for (*end = *first; *end < c->n_shards && ax_state_part_compare(&c->shards[*end].part, p) == 0;
         (*end)++)
        AX_TRY(check_like(c, &c->shards[*end].part, p));
    return AX_OK;
}

static enum ax_status check_complete(const struct ax_checkpoint *c, const struct ax_state_part *p,
                                     int64_t copied) {
    if (copied == p->n)
        return AX_OK;
    return ax_error(AX_ERR_DATA, "%s: %s of %s: only %lld of %lld elements are present", c->dir,
                    p->slot, p->name, (long long)copied, (long long)p->n);
}

static enum ax_status load_part(struct reader *o, struct ax_queue *q,
                                const struct ax_state_part *p) {
    const struct ax_checkpoint *c = o->c;
    size_t i, end;
    int64_t copied = 0;
    AX_TRY(find_all(c, p, &i, &end));
    for (; i < end; i++) {
        const struct ax_checkpoint_shard *s = &c->shards[i];
        const void *data;
        struct span wanted;
        if (!common_span(p, &s->part, &wanted))
            continue;
        AX_TRY(shard_data(o, s, wanted, &data));
        AX_TRY(ax_state_part_copy(q, p, &s->part, data, &copied));
        drop_span(&s->part, data, wanted);
    }
    return check_complete(c, p, copied);
}

/* ---- 8-bit moments: codes and scales together ---- */

/* Pairs the codes of a file with its scales, which are among shards [first, end). */
static enum ax_status pair_up(struct reader *o, size_t codes, struct span wanted, size_t first,
                              size_t end, struct ax_state_codes *out) {
    const struct ax_checkpoint *c = o->c;
    const struct ax_checkpoint_shard *s = &c->shards[codes];
    const size_t k = o->of_file[s->file];
    if (k < first || k >= end || c->shards[k].file != s->file)
        return ax_error(AX_ERR_DATA, "%s: %s has codes, but no scales, of %s of %s", c->dir,
                        c->files.files[s->file].name, s->part.slot, s->part.name);
    *out = (struct ax_state_codes){.codes = &s->part, .scales = &c->shards[k].part};
    const enum ax_status st = ax_state_codes_check(out);
    if (st != AX_OK)
        return ax_error_prefix(st, "%s", c->dir);
    AX_TRY(shard_data(o, s, wanted, &out->code_bytes));
    return shard_data(o, &c->shards[k], scales_span(out, wanted), &out->scale_bytes);
}

static void drop_codes(const struct ax_state_codes *from, const struct ax_state_part *to) {
    struct span copied;
    if (!common_span(to, from->codes, &copied))
        return;
    drop_span(from->codes, from->code_bytes, copied);
    drop_span(from->scales, from->scale_bytes, scales_span(from, copied));
}

static enum ax_status load_codes(struct reader *o, struct ax_queue *q,
                                 const struct ax_state_codes *to) {
    const struct ax_checkpoint *c = o->c;
    size_t codes, end_codes, scales, end_scales, n = 0;
    struct ax_state_codes *from;
    int64_t copied = 0;
    AX_TRY(find_all(c, to->codes, &codes, &end_codes));
    AX_TRY(find_all(c, to->scales, &scales, &end_scales));
    AX_TRY(ax_alloc(&from, end_codes - codes, sizeof *from));
    for (size_t i = scales; i < end_scales; i++)
        o->of_file[c->shards[i].file] = i;
    enum ax_status st = AX_OK;
    struct span wanted;
    for (size_t i = codes; st == AX_OK && i < end_codes; i++)
        if (common_span(to->codes, &c->shards[i].part, &wanted))
            st = pair_up(o, i, wanted, scales, end_scales, &from[n++]);
    if (st == AX_OK)
        st = ax_state_codes_copy(q, to, n, from, &copied);
    for (size_t i = 0; i < n && st == AX_OK; i++)
        drop_codes(&from[i], to->codes);
    ax_free(from);
    return st == AX_OK ? check_complete(c, to->codes, copied) : st;
}

/* The scales of the codes at `i`, which follow in the list. */
static enum ax_status scales_of(const struct ax_state_parts *to, int i,
                                const struct ax_state_part **out) {
    const struct ax_state_part *codes = &to->list[i];
    char slot[AX_SLOT_NAME];
    snprintf(slot, sizeof slot, "%s_scale", codes->slot);
    for (i++; i < to->n && strcmp(to->list[i].name, codes->name) == 0; i++)
        if (strcmp(to->list[i].slot, slot) == 0) {
            *out = &to->list[i];
            return AX_OK;
        }
    return ax_error(
        AX_ERR_FAILED,
        "%s of %s: this run lists codes without %s; this is a mistake of axtrain, please "
        "report it",
        codes->slot, codes->name, slot);
}

/* Fills to->list[i], 8-bit codes together with their scales. */
static enum ax_status read_part(struct reader *o, const struct ax_state_parts *to, int i) {
    const struct ax_state_part *p = &to->list[i];
    if (p->layout == AX_STATE_BLOCKS) /* come with their codes */
        return AX_OK;
    if (p->layout != AX_STATE_SIGNED_CODES && p->layout != AX_STATE_UNSIGNED_CODES)
        return load_part(o, to->q, p);
    struct ax_state_codes codes = {.codes = p};
    AX_TRY(scales_of(to, i, &codes.scales));
    return load_codes(o, to->q, &codes);
}

static enum ax_status open_reader(struct reader *o, const struct ax_checkpoint *c) {
    *o = (struct reader){.c = c};
    if (c->n_shards == 0)
        return ax_error(
            AX_ERR_DATA,
            "%s: contains only weights (save_only_model), so training cannot resume from it",
            c->dir);
    AX_TRY(ax_alloc(&o->files, c->files.n, sizeof *o->files));
    return ax_alloc(&o->of_file, c->files.n, sizeof *o->of_file);
}

static void close_reader(struct reader *o) {
    for (size_t i = 0; o->files && i < o->c->files.n; i++)
        if (o->files[i].path)
            ax_safetensors_close(&o->files[i]);
    ax_free(o->of_file);
    ax_free(o->files);
}

enum ax_status ax_checkpoint_load(const struct ax_checkpoint *c, const struct ax_state_parts *to) {
    struct reader o;
    enum ax_status st = open_reader(&o, c);
    for (int i = 0; st == AX_OK && i < to->n; i++)
        st = read_part(&o, to, i);
    close_reader(&o);
    return st;
}

/* ---- a checkpoint anew, with the layout of one rank ----
 *
 * The state file has every tensor unsharded, piece by piece from the ranks' files; all other files are
 * copied. */

/* One tensor, and where it is read from. */
struct whole {
    struct reader *reader;
    struct ax_state_part part;         /* all of it */
    const struct ax_state_part *codes; /* of scales: what they belong to; of codes: their own */
    const struct ax_state_part *scales;
    struct ax_st_part output;
    char *key;
};

#define BLOCKS_COPIED ((int64_t)1024) /* blocks that are read together */

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
    return read_part(w->reader, &(struct ax_state_parts){.n = 2, .list = both}, 0);
}

/* Elements, or scales, [first, first + n) of those blocks that have any of them. */
static enum ax_status fill_blocks(const struct whole *w, int64_t first, int64_t n, char *codes,
                                  char *scales, char *out) {
    const bool wants_scales = w->part.layout == AX_STATE_BLOCKS;
    const int64_t phase = w->scales->start[1], per = wants_scales ? 1 : AX_8BIT_BLOCK;
    const size_t size = ax_dtype_size(w->part.dtype);
    const int64_t shift = wants_scales ? 0 : phase, last = (shift + first + n - 1) / per;
    for (int64_t block = (shift + first) / per, take; block <= last; block += take) {
        take = last + 1 - block < BLOCKS_COPIED ? last + 1 - block : BLOCKS_COPIED;
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
    AX_TRY_GOTO(ax_alloc(&codes, BLOCKS_COPIED, AX_8BIT_BLOCK), st, done);
    AX_TRY_GOTO(ax_alloc(&scales, BLOCKS_COPIED, ax_dtype_size(w->scales->dtype)), st, done);
    st = fill_blocks(w, first, n, codes, scales, out);
done:
    ax_free(scales);
    ax_free(codes);
    return st;
}

static enum ax_status fill_whole(void *ctx, int64_t first, int64_t n, void *out) {
    const struct whole *w = ctx;
    if (w->codes)
        return fill_coded(w, first, n, out);
    struct ax_state_part p = w->part;
    p.first = first;
    p.n = n;
    p.data = out;
    return read_part(w->reader, &(struct ax_state_parts){.n = 1, .list = &p}, 0);
}

/* ---- the tensors ---- */

struct copy {
    struct reader reader;
    int n;
    struct whole *tensors;
    struct ax_state_part *parts;
    struct ax_st_output *outputs;
};

static void free_copy(struct copy *all) {
    for (int i = 0; all->tensors && i < all->n; i++)
        ax_free(all->tensors[i].key);
    close_reader(&all->reader);
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
static struct whole *whole_scales(const struct copy *all, int i) {
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

static enum ax_status pair_whole(struct copy *all, int i) {
    struct whole *codes = &all->tensors[i], *scales = whole_scales(all, i);
    if (!scales || codes->part.dtype != AX_U8)
        return AX_OK;
    if (scales->part.ndim != 3 || scales->part.shape[1] != AX_8BIT_BLOCK ||
        !ax_dtype_info(scales->part.dtype)->is_float)
        return ax_error(AX_ERR_DATA, "%s: %s of %s are not scales", all->reader.c->dir,
                        scales->part.slot, scales->part.name);
    /* The manifest does not tell signed codes from unsigned ones. Only AdamW has codes, and only its
     * first moments are signed; another optimizer with codes needs its slots here. */
    codes->part.layout =
        strcmp(codes->part.slot, "exp_avg") == 0 ? AX_STATE_SIGNED_CODES : AX_STATE_UNSIGNED_CODES;
    scales->part.layout = AX_STATE_BLOCKS;
    codes->codes = scales->codes = &codes->part;
    codes->scales = scales->scales = &scales->part;
    return AX_OK;
}

/* One of each tensor: shards are sorted by it. */
static void list_tensors(struct copy *all, const struct ax_checkpoint *c) {
    struct whole *const list = all->tensors;
    AX_ASSERT(list);
    for (size_t i = 0; i < c->n_shards; i++) {
        const struct ax_state_part *p = &c->shards[i].part;
        const struct ax_state_part *last = all->n > 0 ? &list[all->n - 1].part : NULL;
        if (last && ax_state_part_compare(last, p) == 0)
            continue;
        list[all->n++] = (struct whole){.reader = &all->reader, .part = *p};
    }
}

static enum ax_status finish_tensor(struct copy *all, int i) {
    struct whole *w = &all->tensors[i];
    if (w->part.layout == AX_STATE_BLOCKS)
        as_one_slice(&w->part, w->codes->n); /* which are before them, and done */
    else
        w->part = whole_of(&w->part);
    AX_TRY(ax_checkpoint_key(&w->key, &w->part));
    w->output = (struct ax_st_part){.fill = fill_whole, .ctx = w};
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
    AX_TRY(open_reader(&all->reader, c));
    AX_TRY(ax_alloc(&all->tensors, c->n_shards, sizeof *all->tensors));
    AX_TRY(ax_alloc(&all->parts, c->n_shards, sizeof *all->parts));
    AX_TRY(ax_alloc(&all->outputs, c->n_shards, sizeof *all->outputs));
    list_tensors(all, c);
    for (int i = 0; i < all->n; i++)
        AX_TRY(pair_whole(all, i));
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
