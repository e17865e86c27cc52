#include "ckpt/state/state.h"

#include <string.h>

#include "base/mem.h"

/* The block of the global tensor that is this rank's tp/ep slice. */
static void set_block(struct ax_state_part *part, const struct ax_param *p,
                      const struct ax_mesh *mesh) {
    part->ndim = p->ndim;
    for (int d = 0; d < p->ndim; d++) {
        part->shape[d] = p->shape[d];
        part->size[d] = p->local_shape[d];
    }
    int64_t run;
    int64_t at = ax_param_global_index(p, mesh, 0, &run); /* the slice's first element */
    for (int d = p->ndim - 1; d >= 0; d--) {
        part->start[d] = at % p->shape[d];
        at /= p->shape[d];
    }
}

static void add(struct ax_state_parts *out, const struct ax_state_part *like, const char *slot,
                enum ax_dtype dtype, void AX_DEVICE *data) {
    struct ax_state_part *p = &out->list[out->n++];
    *p = *like;
    p->slot = slot;
    p->dtype = dtype;
    p->data = data;
}

/* Elements of a flat buffer from `at` on. */
static void add_flat(struct ax_state_parts *out, const struct ax_state_part *like, const char *slot,
                     const struct ax_tensor *flat, int64_t at) {
    add(out, like, slot, flat->dtype,
        (char AX_DEVICE *)flat->data + (size_t)at * ax_dtype_size(flat->dtype));
}

/* The role that splits the parameter into slices, and the index of the local slice. */
static void find_slice(const struct ax_param *p, const struct ax_mesh *mesh, int *n, int *index) {
    *n = 1;
    *index = 0;
    if (p->ep_dim >= 0 && !p->expert) {
        *n = mesh->size[AX_ROLE_EP];
        *index = mesh->coord[AX_ROLE_EP];
    }
    if (p->tp_dim >= 0) {
        *n *= mesh->size[AX_ROLE_TP];
        *index = *index * mesh->size[AX_ROLE_TP] + mesh->coord[AX_ROLE_TP];
    }
}

static void as_blocks(struct ax_state_part *part, const struct ax_param *p,
                      const struct ax_mesh *mesh, int64_t n) {
    const int64_t phase = p->offset % AX_8BIT_BLOCK;
    const int64_t local = ax_param_local_numel(p), first = part->first;
    int slices, index;
    find_slice(p, mesh, &slices, &index);
    part->ndim = 3;
    const int64_t shape[] = {slices, AX_8BIT_BLOCK, ax_param_numel(p) / AX_8BIT_BLOCK + 2};
    const int64_t start[] = {index, phase, 0};
    const int64_t size[] = {1, 1, (phase + local + AX_8BIT_BLOCK - 1) / AX_8BIT_BLOCK};
    memcpy(part->shape, shape, sizeof shape);
    memcpy(part->start, start, sizeof start);
    memcpy(part->size, size, sizeof size);
    part->first = (phase + first) / AX_8BIT_BLOCK; /* shards begin at a block */
    part->n = n;
}

static void as_whole(struct ax_state_part *part, int64_t n) {
    part->ndim = 1;
    part->shape[0] = part->size[0] = part->n = n;
    part->start[0] = part->first = 0;
}

static void add_slot(struct ax_state_parts *out, const struct ax_state_part *like,
                     const struct ax_param *p, const struct ax_mesh *mesh,
                     const struct ax_state_slot *slot) {
    struct ax_state_part part = *like;
    const int64_t n = slot->value.shape[0];
    if (slot->layout == AX_STATE_BLOCKS)
        as_blocks(&part, p, mesh, n);
    else if (slot->layout == AX_STATE_WHOLE)
        as_whole(&part, n);
    add(out, &part, slot->name, slot->value.dtype, slot->value.data);
}

enum ax_status ax_state_parts_create(struct ax_state_parts *out, int n_params, int max_slots) {
    *out = (struct ax_state_parts){0};
    return ax_alloc(&out->list, (size_t)n_params * (size_t)(2 + max_slots), sizeof *out->list);
}

void ax_state_parts_add(struct ax_state_parts *out, const struct ax_mesh *mesh,
                        const struct ax_unit *unit, const struct ax_param *p, int n_slots,
                        const struct ax_state_slot *slots) {
    if (!ax_unit_present(unit))
        return;
    const struct ax_segment *seg = &unit->segments[p->segment];
    struct ax_state_part like = {.name = p->name, .unit = p->unit};
    int64_t at;
    ax_unit_owned(unit, mesh, p, &like.first, &like.n, &at);
    if (like.n == 0 || !seg->trainable)
        return;
    set_block(&like, p, mesh);
    add_flat(out, &like, "master", &seg->master, at);
    if (seg->remainder.data)
        add_flat(out, &like, "master_remainder", &seg->remainder, at);
    for (int k = 0; k < n_slots; k++)
        add_slot(out, &like, p, mesh, &slots[k]);
}

void ax_state_parts_add_frozen(struct ax_state_parts *out, const struct ax_mesh *mesh,
                               const struct ax_unit *unit, const struct ax_param *p,
                               const char *slot, int as_unit) {
    struct ax_state_part like = {.name = p->name, .unit = as_unit};
    int64_t at;
    ax_unit_owned(unit, mesh, p, &like.first, &like.n, &at);
    if (like.n == 0)
        return;
    set_block(&like, p, mesh);
    add_flat(out, &like, slot, &unit->segments[p->segment].shard, at);
}

void ax_state_parts_free(struct ax_state_parts *p) {
    ax_free(p->list);
    *p = (struct ax_state_parts){0};
}

uint64_t ax_state_parts_bytes(const struct ax_state_parts *p) {
    uint64_t bytes = 0;
    for (int i = 0; i < p->n; i++)
        bytes += (uint64_t)p->list[i].n * ax_dtype_size(p->list[i].dtype);
    return bytes;
}

static bool same_block(const struct ax_state_part *a, const struct ax_state_part *b) {
    for (int d = 0; d < a->ndim; d++)
        if (a->start[d] != b->start[d] || a->size[d] != b->size[d])
            return false;
    return true;
}

/* What is copied where. */
struct copying {
    struct ax_queue *q;
    const struct ax_state_part *to, *from;
    const char *bytes;
    int64_t copied;
};

/* Copies those of n elements, from to_at and from_at on in the two blocks, that both parts have. */
static enum ax_status copy_range(struct copying *c, int64_t to_at, int64_t from_at, int64_t n) {
    const struct ax_state_part *to = c->to, *from = c->from;
    const int64_t cut_to = to_at < to->first ? to->first - to_at : 0;
    const int64_t cut_from = from_at < from->first ? from->first - from_at : 0;
    const int64_t cut = cut_to > cut_from ? cut_to : cut_from;
    int64_t end = n;
    end = to->first + to->n - to_at < end ? to->first + to->n - to_at : end;
    end = from->first + from->n - from_at < end ? from->first + from->n - from_at : end;
    if (end <= cut)
        return AX_OK;
    const size_t size = ax_dtype_size(to->dtype);
    c->copied += end - cut;
    return ax_queue_write(
        c->q, (char AX_DEVICE *)to->data + (size_t)(to_at + cut - to->first) * size,
        c->bytes + (size_t)(from_at + cut - from->first) * size, (size_t)(end - cut) * size);
}

/* Row-major index in the block of the element with these global coordinates; −1 if it is
 * outside. */
static int64_t index_in(const struct ax_state_part *p, const int64_t *global) {
    int64_t at = 0;
    for (int d = 0; d < p->ndim; d++) {
        const int64_t c = global[d] - p->start[d];
        if (c < 0 || c >= p->size[d])
            return -1;
        at = at * p->size[d] + c;
    }
    return at;
}

/* Copies the rows (last dimension) that both blocks have. */
static enum ax_status copy_rows(struct copying *c) {
    const struct ax_state_part *to = c->to, *from = c->from;
    int64_t lo[AX_MAX_DIMS] = {0}, hi[AX_MAX_DIMS] = {0}, at[AX_MAX_DIMS] = {0};
    AX_ASSERT(to->ndim > 0);
    for (int d = 0; d < to->ndim; d++) {
        const int64_t to_end = to->start[d] + to->size[d],
                      from_end = from->start[d] + from->size[d];
        lo[d] = to->start[d] > from->start[d] ? to->start[d] : from->start[d];
        hi[d] = to_end < from_end ? to_end : from_end;
        if (lo[d] >= hi[d])
            return AX_OK;
        at[d] = lo[d];
    }
    const int last = to->ndim - 1;
    for (;;) {
        AX_TRY(copy_range(c, index_in(to, at), index_in(from, at), hi[last] - lo[last]));
        int d = last - 1;
        for (; d >= 0 && ++at[d] == hi[d]; d--)
            at[d] = lo[d];
        if (d < 0)
            return AX_OK;
    }
}

enum ax_status ax_state_part_copy(struct ax_queue *q, const struct ax_state_part *to,
                                  const struct ax_state_part *from, const void *bytes,
                                  int64_t *copied) {
    struct copying c = {.q = q, .to = to, .from = from, .bytes = bytes};
    int64_t n = 1;
    for (int d = 0; d < to->ndim; d++)
        n *= to->size[d];
    const enum ax_status st = same_block(to, from) ? copy_range(&c, 0, 0, n) : copy_rows(&c);
    *copied += c.copied;
    return st;
}
