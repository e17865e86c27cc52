/* Loading a checkpoint: its parts, and 8-bit moments with their scales. */
#include <stdio.h>
#include <string.h>

#include "ckpt/state/checkpoint.h"
#include "ckpt/state/codes.h"

static enum ax_status shard_data(struct ax_checkpoint_reader *o,
                                 const struct ax_checkpoint_shard *s, const void **data) {
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
    else
        *data = e->data;
    if (st == AX_OK) { /* unless it is, training would go on with it */
        const struct ax_elements values = ax_st_elements(e);
        st = ax_elements_check(&values, 0, e->numel, e->data);
    }
done:
    ax_free(key);
    ax_free(path);
    return st;
}

static int compare(const struct ax_checkpoint_shard *s, const struct ax_state_part *p) {
    const int names = strcmp(s->part.name, p->name);
    return names ? names : strcmp(s->part.slot, p->slot);
}

/* Index of the first shard of the part's tensor, or n_shards. */
static size_t find(const struct ax_checkpoint *c, const struct ax_state_part *p) {
    size_t lo = 0, hi = c->n_shards;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if (compare(&c->shards[mid], p) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < c->n_shards && compare(&c->shards[lo], p) == 0 ? lo : c->n_shards;
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
    *first = find(c, p);
    if (*first == c->n_shards)
        return ax_error(
            AX_ERR_DATA,
            "%s: contains no %s of %s; was it written with another optimizer or for another model?",
            c->dir, p->slot, p->name);
    for (*end = *first; *end < c->n_shards && compare(&c->shards[*end], p) == 0; (*end)++)
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

static enum ax_status load_part(struct ax_checkpoint_reader *o, struct ax_queue *q,
                                const struct ax_state_part *p) {
    const struct ax_checkpoint *c = o->c;
    size_t i, end;
    int64_t copied = 0;
    AX_TRY(find_all(c, p, &i, &end));
    for (; i < end; i++) {
        const void *data;
        if (!ax_state_parts_meet(p, &c->shards[i].part))
            continue;
        AX_TRY(shard_data(o, &c->shards[i], &data));
        AX_TRY(ax_state_part_copy(q, p, &c->shards[i].part, data, &copied));
        ax_map_drop(data, (size_t)c->shards[i].part.n * ax_dtype_size(p->dtype));
    }
    return check_complete(c, p, copied);
}

/* ---- 8-bit moments: codes and scales together ---- */

/* Pairs the codes of a file with its scales, which are among shards [first, end). */
static enum ax_status pair_up(struct ax_checkpoint_reader *o, size_t codes, size_t first,
                              size_t end, struct ax_state_codes *out) {
    const struct ax_checkpoint *c = o->c;
    const struct ax_checkpoint_shard *s = &c->shards[codes];
    const size_t k = o->of_file[s->file];
    if (k < first || k >= end || c->shards[k].file != s->file)
        return ax_error(AX_ERR_DATA, "%s: %s has codes, but no scales, of %s of %s", c->dir,
                        c->files.files[s->file].name, s->part.slot, s->part.name);
    *out = (struct ax_state_codes){.codes = &s->part, .scales = &c->shards[k].part};
    AX_TRY(shard_data(o, s, &out->code_bytes));
    AX_TRY(shard_data(o, &c->shards[k], &out->scale_bytes));
    const enum ax_status st = ax_state_codes_check(out);
    return st == AX_OK ? AX_OK : ax_error_prefix(st, "%s", c->dir);
}

static enum ax_status load_codes(struct ax_checkpoint_reader *o, struct ax_queue *q,
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
    for (size_t i = codes; st == AX_OK && i < end_codes; i++)
        if (ax_state_parts_meet(to->codes, &c->shards[i].part))
            st = pair_up(o, i, scales, end_scales, &from[n++]);
    if (st == AX_OK)
        st = ax_state_codes_copy(q, to, n, from, &copied);
    for (size_t i = 0; i < n && st == AX_OK; i++)
        ax_map_drop(from[i].code_bytes, (size_t)from[i].codes->n);
    ax_free(from);
    return st == AX_OK ? check_complete(c, to->codes, copied) : st;
}

/* The scales of the codes at `i`, which follow in the list. */
static const struct ax_state_part *scales_of(const struct ax_state_parts *to, int i) {
    char slot[AX_SLOT_NAME];
    snprintf(slot, sizeof slot, "%s_scale", to->list[i].slot);
    do
        i++;
    while (strcmp(to->list[i].slot, slot) != 0);
    return &to->list[i];
}

enum ax_status ax_checkpoint_read(struct ax_checkpoint_reader *o, const struct ax_state_parts *to,
                                  int i) {
    const struct ax_state_part *p = &to->list[i];
    if (p->layout == AX_STATE_BLOCKS) /* come with their codes */
        return AX_OK;
    if (p->layout != AX_STATE_SIGNED_CODES && p->layout != AX_STATE_UNSIGNED_CODES)
        return load_part(o, to->q, p);
    return load_codes(o, to->q, &(struct ax_state_codes){.codes = p, .scales = scales_of(to, i)});
}

enum ax_status ax_checkpoint_reader_open(struct ax_checkpoint_reader *o,
                                         const struct ax_checkpoint *c) {
    *o = (struct ax_checkpoint_reader){.c = c};
    if (c->n_shards == 0)
        return ax_error(
            AX_ERR_DATA,
            "%s: contains only weights (save_only_model), so training cannot resume from it",
            c->dir);
    AX_TRY(ax_alloc(&o->files, c->files.n, sizeof *o->files));
    return ax_alloc(&o->of_file, c->files.n, sizeof *o->of_file);
}

void ax_checkpoint_reader_close(struct ax_checkpoint_reader *o) {
    for (size_t i = 0; o->files && i < o->c->files.n; i++)
        if (o->files[i].path)
            ax_safetensors_close(&o->files[i]);
    ax_free(o->of_file);
    ax_free(o->files);
}

enum ax_status ax_checkpoint_load(const struct ax_checkpoint *c, const struct ax_state_parts *to) {
    struct ax_checkpoint_reader o;
    enum ax_status st = ax_checkpoint_reader_open(&o, c);
    for (int i = 0; st == AX_OK && i < to->n; i++)
        st = ax_checkpoint_read(&o, to, i);
    ax_checkpoint_reader_close(&o);
    return st;
}
