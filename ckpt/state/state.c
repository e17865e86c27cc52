#include "ckpt/state/state.h"

#include <string.h>

#include "base/mem.h"

int ax_state_part_compare(const struct ax_state_part *x, const struct ax_state_part *y) {
    const int names = strcmp(x->name, y->name);
    return names ? names : strcmp(x->slot, y->slot);
}

struct ax_block ax_state_part_block(const struct ax_state_part *part) {
    struct ax_block b = {.ndim = part->ndim, .first = part->first, .n = part->n};
    memcpy(b.shape, part->shape, sizeof part->shape);
    memcpy(b.start, part->start, sizeof part->start);
    memcpy(b.size, part->size, sizeof part->size);
    return b;
}

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
    part.layout = slot->layout;
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

/* Who saves the part: in this copy of the weights, and in the first. */
static void find_owner(struct ax_state_part *part, const struct ax_mesh *mesh,
                       const struct ax_unit *unit, const struct ax_param *p) {
    struct ax_mesh first = *mesh;
    first.coord[AX_ROLE_DP_REPLICATE] = 0;
    part->elsewhere = !ax_unit_owns(unit, mesh, p);
    part->copied = !ax_unit_owns(unit, &first, p);
}

void ax_state_parts_add(struct ax_state_parts *out, const struct ax_mesh *mesh,
                        const struct ax_unit *unit, const struct ax_param *p, int n_slots,
                        const struct ax_state_slot *slots) {
    if (!ax_unit_present(unit))
        return;
    const struct ax_segment *seg = &unit->segments[p->segment];
    struct ax_state_part like = {.name = p->name, .unit = p->unit};
    int64_t at;
    find_owner(&like, mesh, unit, p);
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
    find_owner(&like, mesh, unit, p);
    ax_unit_owned(unit, mesh, p, &like.first, &like.n, &at);
    if (like.n == 0)
        return;
    set_block(&like, p, mesh);
    add_flat(out, &like, slot, &unit->segments[p->segment].shard, at);
}

bool ax_state_value(const struct ax_mesh *mesh, const struct ax_unit *unit,
                    const struct ax_param *p, bool master, struct ax_tensor *value,
                    struct ax_block *block) {
    const struct ax_segment *seg = &unit->segments[p->segment];
    const struct ax_tensor *flat = master && seg->master.data ? &seg->master : &seg->shard;
    struct ax_state_part part = {0};
    int64_t at;
    if (!ax_unit_owns(unit, mesh, p))
        return false;
    ax_unit_owned(unit, mesh, p, &part.first, &part.n, &at);
    if (part.n == 0)
        return false;
    set_block(&part, p, mesh);
    *block = ax_state_part_block(&part);
    char AX_DEVICE *data = flat->data;
    *value = ax_tensor_1d(flat->dtype, data + (size_t)at * ax_dtype_size(flat->dtype), part.n);
    return true;
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
