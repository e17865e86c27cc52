/* Opening, verifying and loading a checkpoint. */
#include <stdio.h>
#include <string.h>

#include "base/direct_io.h"
#include "ckpt/state/checkpoint.h"

#define MAX_MANIFEST ((size_t)1 << 30)

enum ax_status ax_checkpoint_open(struct ax_checkpoint *c, const char *dir) {
    char *path = NULL, *text = NULL;
    size_t len;
    *c = (struct ax_checkpoint){0};
    enum ax_status st;
    AX_TRY_GOTO(ax_strdup(&c->dir, dir), st, done);
    AX_TRY_GOTO(ax_path_join(&path, dir, AX_CHECKPOINT_MANIFEST), st, done);
    AX_TRY_GOTO(ax_read_file(path, MAX_MANIFEST, &text, &len), st, done);
    AX_TRY_GOTO(ax_manifest_parse(c, path, text, len), st, done);
done:
    ax_free(text);
    ax_free(path);
    if (st != AX_OK)
        ax_checkpoint_close(c);
    return st;
}

void ax_checkpoint_close(struct ax_checkpoint *c) {
    for (size_t i = 0; i < c->n_shards; i++) {
        ax_free((void *)(uintptr_t)c->shards[i].part.name);
        ax_free((void *)(uintptr_t)c->shards[i].part.slot);
    }
    ax_free(c->shards);
    ax_sum_list_free(&c->files);
    ax_json_free(&c->manifest);
    ax_free(c->dir);
    *c = (struct ax_checkpoint){0};
}

enum ax_status ax_checkpoint_verify(const struct ax_checkpoint *c) {
    void *heap, *buffer;
    AX_TRY(ax_alloc_direct(&heap, &buffer, AX_SUM_PIECE));
    enum ax_status st = AX_OK;
    for (size_t i = 0; st == AX_OK && i < c->files.n; i++)
        st = ax_file_sums_check(c->dir, &c->files.files[i], buffer);
    ax_free(heap);
    return st;
}

/* The rank files, opened when first needed. */
struct opened {
    const struct ax_checkpoint *c;
    struct ax_safetensors *files; /* [c->files.n]; path NULL: not open */
};

static enum ax_status shard_data(struct opened *o, const struct ax_checkpoint_shard *s,
                                 const void **data) {
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
    for (int d = 0; same && d < want->ndim; d++)
        same = is->shape[d] == want->shape[d];
    if (!same)
        return ax_error(AX_ERR_DATA,
                        "%s: %s of %s has a different shape in this run; the checkpoint belongs to "
                        "another model%s",
                        c->dir, want->slot, want->name,
                        strstr(want->slot, "_scale")
                            ? ", or its 8-bit moments to another tensor- or expert-parallel mesh"
                            : "");
    if (is->dtype != want->dtype)
        return ax_error(AX_ERR_CONFIG,
                        "%s: %s of %s was %s and is now %s; resume with the precision and "
                        "optimizer settings of the checkpoint",
                        c->dir, want->slot, want->name, ax_dtype_info(is->dtype)->name,
                        ax_dtype_info(want->dtype)->name);
    return AX_OK;
}

static enum ax_status load_part(struct opened *o, struct ax_queue *q,
                                const struct ax_state_part *p) {
    const struct ax_checkpoint *c = o->c;
    size_t i = find(c, p);
    if (i == c->n_shards)
        return ax_error(
            AX_ERR_DATA,
            "%s: contains no %s of %s; was it written with another optimizer or for another model?",
            c->dir, p->slot, p->name);
    int64_t copied = 0;
    for (; i < c->n_shards && compare(&c->shards[i], p) == 0; i++) {
        const void *data;
        AX_TRY(check_like(c, &c->shards[i].part, p));
        AX_TRY(shard_data(o, &c->shards[i], &data));
        AX_TRY(ax_state_part_copy(q, p, &c->shards[i].part, data, &copied));
        ax_map_drop(data, (size_t)c->shards[i].part.n * ax_dtype_size(p->dtype));
    }
    if (copied != p->n)
        return ax_error(AX_ERR_DATA, "%s: %s of %s: only %lld of %lld elements are present", c->dir,
                        p->slot, p->name, (long long)copied, (long long)p->n);
    return AX_OK;
}

enum ax_status ax_checkpoint_load(const struct ax_checkpoint *c, const struct ax_state_parts *to) {
    struct opened o = {.c = c};
    if (c->n_shards == 0)
        return ax_error(
            AX_ERR_DATA,
            "%s: contains only weights (save_only_model), so training cannot resume from it",
            c->dir);
    AX_TRY(ax_alloc(&o.files, c->files.n, sizeof *o.files));
    enum ax_status st = AX_OK;
    for (int i = 0; st == AX_OK && i < to->n; i++)
        st = load_part(&o, to->q, &to->list[i]);
    for (size_t i = 0; i < c->files.n; i++)
        if (o.files[i].path)
            ax_safetensors_close(&o.files[i]);
    ax_free(o.files);
    return st;
}
