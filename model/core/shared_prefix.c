#include "model/core/shared_prefix.h"

#include "base/mem.h"

static struct ax_tensor take(struct ax_stack *stack, int64_t n) {
    return ax_tensor_1d(AX_I32, ax_stack_push(stack, "batch", (size_t)n * sizeof(int32_t)), n);
}

void ax_shared_prefix_allocate(struct ax_shared_prefix *s, struct ax_stack *stack, int64_t T,
                               int64_t n_cap, int64_t n_keys, int64_t most) {
    *s = (struct ax_shared_prefix){.most = most, .cap = n_keys};
    s->keys = take(stack, n_keys);
    s->cu_k = take(stack, n_cap + 1);
    s->users = ax_tensor_2d(AX_I32, take(stack, T * most).data, T, most);
}

/* ---- which keys ---- */

static void set_size(struct ax_shared_prefix *s, int64_t T, int64_t docs, int64_t n_keys) {
    s->any = true;
    s->keys.shape[0] = n_keys;
    s->users.shape[0] = T;
    s->cu_k.shape[0] = docs + 1;
}

void ax_shared_prefix_plan(struct ax_shared_prefix *s, int64_t T) {
    if (s->most > 0)
        set_size(s, T, s->cu_k.shape[0] - 1, s->cap);
}

/* Host images. */
struct lists {
    int32_t *keys, *users, *cu;
    int64_t n; /* keys */
};

static void add(struct lists *l, int64_t most, int64_t row) {
    int32_t *users = l->users + row * most;
    int64_t k = 0;
    while (k < most && users[k] >= 0)
        k++;
    AX_ASSERT(k < most);
    users[k] = (int32_t)l->n;
    l->keys[l->n++] = (int32_t)row;
}

static void list(const struct ax_shared_prefix *s, struct lists *l, int64_t n,
                 const struct ax_document *docs, const int32_t *first) {
    for (int64_t d = 0; d < n; d++) {
        for (int64_t i = 0; i < docs[d].shared; i++)
            add(l, s->most, first[docs[d].shared_with] + i);
        for (int64_t i = 0; i < docs[d].n; i++)
            add(l, s->most, first[d] + i);
        l->cu[d + 1] = (int32_t)l->n;
    }
}

static enum ax_status count(const struct ax_shared_prefix *s, int64_t n,
                            const struct ax_document *docs, int64_t *n_keys) {
    *n_keys = 0;
    for (int64_t d = 0; d < n; d++) {
        const struct ax_document *with = docs + docs[d].shared_with;
        AX_ASSERT(docs[d].shared == 0 ||
                  (docs[d].shared_with < d && with->shared == 0 && docs[d].shared <= with->n));
        *n_keys += docs[d].shared + docs[d].n;
    }
    if (*n_keys > s->cap)
        return ax_error(AX_ERR_DATA, "batch: documents of %lld tokens in all, but %lld fit",
                        (long long)*n_keys, (long long)s->cap);
    return AX_OK;
}

static bool any(int64_t n, const struct ax_document *docs) {
    for (int64_t d = 0; d < n; d++)
        if (docs[d].shared > 0)
            return true;
    return false;
}

static enum ax_status send(const struct ax_shared_prefix *s, struct ax_queue *q,
                           const struct lists *l) {
    AX_TRY(ax_queue_write(q, s->keys.data, l->keys, ax_tensor_bytes(&s->keys)));
    AX_TRY(ax_queue_write(q, s->users.data, l->users, ax_tensor_bytes(&s->users)));
    return ax_queue_write(q, s->cu_k.data, l->cu, ax_tensor_bytes(&s->cu_k));
}

enum ax_status ax_shared_prefix_fill(struct ax_shared_prefix *s, struct ax_queue *q, int64_t T,
                                     int64_t n_docs, int64_t n, const struct ax_document *docs,
                                     const int32_t *first) {
    int64_t n_keys;
    int32_t *host;
    s->any = false;
    if (!any(n, docs))
        return AX_OK;
    AX_TRY(count(s, n, docs, &n_keys));
    set_size(s, T, n_docs, n_keys);
    const int64_t users = T * s->most;
    AX_TRY(ax_alloc(&host, (size_t)(n_keys + users + n_docs + 1), sizeof *host));
    struct lists l = {.keys = host, .users = host + n_keys, .cu = host + n_keys + users};
    for (int64_t i = 0; i < users; i++)
        l.users[i] = -1;
    list(s, &l, n, docs, first);
    for (int64_t d = n; d < n_docs; d++)
        l.cu[d + 1] = (int32_t)n_keys;
    const enum ax_status st = send(s, q, &l);
    ax_free(host);
    return st;
}

/* ---- keys and values ---- */

/* [T][H][hd] as [T][H·hd]. */
static struct ax_tensor rows_of(const struct ax_tensor *heads) {
    struct ax_tensor rows =
        ax_tensor_2d(heads->dtype, heads->data, heads->shape[0], heads->shape[1] * heads->shape[2]);
    rows.row_stride = heads->row_stride;
    return rows;
}

enum ax_status ax_shared_prefix_gather(const struct ax_shared_prefix *s, struct ax_runtime *rt,
                                       const struct ax_tensor *own, struct ax_tensor *keys) {
    *keys = ax_shared_prefix_gradient(s, rt, own);
    if (!s->any)
        return AX_OK;
    const struct ax_combine_forward gather = {
        .src = rows_of(own), .rows = s->keys, .out = rows_of(keys)};
    return ax_run_combine_forward(rt->q, &gather);
}

struct ax_tensor ax_shared_prefix_gradient(const struct ax_shared_prefix *s, struct ax_runtime *rt,
                                           const struct ax_tensor *own) {
    if (!s->any)
        return *own;
    struct ax_tensor t =
        ax_tensor_3d(own->dtype, NULL, s->keys.shape[0], own->shape[1], own->shape[2]);
    t.data = ax_stack_push(&rt->arena.scratch, "keys and values of documents", ax_tensor_bytes(&t));
    return t;
}

enum ax_status ax_shared_prefix_sum(const struct ax_shared_prefix *s, struct ax_runtime *rt,
                                    const struct ax_tensor *keys, const struct ax_tensor *own) {
    if (!s->any)
        return AX_OK;
    const struct ax_combine_forward sum = {
        .src = rows_of(keys), .rows = s->users, .out = rows_of(own)};
    return ax_run_combine_forward(rt->q, &sum);
}
