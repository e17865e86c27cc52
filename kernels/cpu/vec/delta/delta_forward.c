/* delta_forward. A task has at most some rows of a chunk that are computed already (generation): it reads k, u
 * and g of those in the slot and goes on in the same way. */
#include "kernels/cpu/vec/delta/delta.h"
#include "kernels/cpu/vec/entries.h"

/* Columns of row r of a running chunk in a slot. */
struct running {
    int64_t k, u, g;
};
static int64_t decays_of(const struct ax_delta_head *s) {
    return s->channels ? s->dk : 1;
}
static struct running running_at(const struct ax_delta_head *s, int64_t r) {
    const int64_t values = s->a->v.shape[1], keys = s->a->k.shape[1];
    return (struct running){(r * keys + s->key_head) * s->dk, (r * values + s->head) * s->dv,
                            (r * values + s->head) * decays_of(s)};
}

/* The rows that the slot has. */
static void load_running(const struct ax_delta_head *s, const struct ax_delta_forward *f,
                         int64_t rows) {
    for (int64_t r = 0; r < rows; r++) {
        const struct running at = running_at(s, r);
        AX_VEC(ax_delta_set_row)
        (s, r, element_of(&f->keys, s->enters, at.k), element_of(&f->decays, s->enters, at.g));
        load_scaled(AX_F32, element_of(&f->updates, s->enters, at.u), s->dv, 1,
                    s->m.u + r * s->value_columns);
    }
}

/* u and g. The other value heads may still read the slot's k: see append_keys. */
static void append(const struct ax_delta_head *s, const struct ax_delta_forward *f, int64_t token,
                   int64_t from, int64_t to) {
    for (int64_t r = from; r < to && s->leaves >= 0; r++) {
        const struct running at = running_at(s, r);
        memcpy(element_of(&f->updates, s->leaves, at.u), s->m.u + r * s->value_columns,
               (size_t)s->dv * sizeof(float));
        memcpy(element_of(&f->decays, s->leaves, at.g),
               element_of(&s->a->g, token + r - from, s->head * decays_of(s)),
               (size_t)decays_of(s) * sizeof(float));
    }
}

static void append_keys(const struct ax_delta_forward *f, int64_t d) {
    const struct ax_tensor *k = &f->a.k;
    const struct ax_delta_head s = AX_VEC(ax_delta_head)(&f->a, &f->past, d * f->a.v.shape[1]);
    const int64_t len = ax_tensor_row_len(k);
    for (int64_t t = s.first; t < s.end && s.leaves >= 0; t++) {
        const int64_t r = (s.past + t - s.first) % CHUNK;
        memcpy(element_of(&f->keys, s.leaves, r * len), ax_tensor_row(k, t),
               (size_t)len * ax_dtype_size(k->dtype));
    }
}

AX_INLINE void store_row(enum ax_dtype dtype, const float *x, int64_t n, void *out) {
    for (int64_t i = 0; i < n; i += AX_LANES)
        v_store(dtype, out, i, least(AX_LANES, n - i), v_load_f32(x + i, AX_LANES));
}

/* row += skip·v. */
AX_INLINE void add_skipped(enum ax_dtype dtype, const struct ax_delta_head *s, const void *v,
                           float *row) {
    const v_float skip = v_set(skip_of(s));
    for (int64_t i = 0; i < s->dv; i += AX_LANES)
        v_store_f32(row + i, AX_LANES,
                    v_fma(skip, v_load(dtype, v, i, least(AX_LANES, s->dv - i)),
                          v_load_f32(row + i, AX_LANES)));
}

/* out of rows from … to − 1, in the memory of y, then where it belongs. */
static void outputs(const struct ax_delta_head *s, const struct ax_tensor *out, int64_t token,
                    int64_t from, int64_t to) {
    const struct ax_delta_memory *m = &s->m;
    const int64_t columns = s->value_columns;
    PRODUCT(.m = to - from, .n = columns, .units = s->dk,
            .a = AX_VEC(ax_delta_meeting)(s, m->q, from, to) + from * s->key_columns,
            .a_row = s->key_columns, .a_unit = 1, .b = m->state, .b_unit = columns,
            .c = m->y + from * columns, .c_row = columns);
    for (int64_t r = from; r < to; r++)
        scale_row(m->y + r * columns, columns, m->grown[r]);
    for (int64_t i = from; i < to; i += TILE) {
        const int64_t rows = least(TILE, to - i);
        PRODUCT(.accumulate = true, .m = rows, .n = columns, .units = i, .a = m->weight + i * CHUNK,
                .a_row = CHUNK, .a_unit = 1, .b = m->u, .b_unit = columns, .c = m->y + i * columns,
                .c_row = columns);
        for (int64_t r = i; r < i + rows; r++)
            PRODUCT(.accumulate = true, .m = 1, .n = columns, .units = r - i + 1,
                    .a = m->weight + r * CHUNK + i, .a_unit = 1, .b = m->u + i * columns,
                    .b_unit = columns, .c = m->y + r * columns);
    }
    for (int64_t r = from; r < to; r++) {
        const int64_t t = token + r - from, col = s->head * s->dv;
        float *row = m->y + r * columns;
        if (s->a->skip.data)
            AX_BY_DTYPE(s->dtype, add_skipped, s, element_of(&s->a->v, t, col), row);
        AX_BY_DTYPE(s->dtype, store_row, row, s->dv, element_of(out, t, col));
    }
}

static void forward_head(const struct ax_delta_head *s, const struct ax_delta_forward *f) {
    const bool pieces = f->past.data != NULL;
    bool moved = pieces ? s->past == 0 && s->first < s->end : true; /* the slot's state */
    int64_t from = s->past % CHUNK;
    AX_VEC(ax_delta_load_state)(s, &f->a.states, s->enters, s->m.state);
    if (from > 0)
        load_running(s, f, from);
    for (int64_t token = s->first; token < s->end; from = 0) {
        const int64_t to = least(CHUNK, from + s->end - token);
        AX_VEC(ax_delta_updates)(s, token, from, to, true);
        outputs(s, &f->a.out, token, from, to);
        if (pieces)
            append(s, f, token, from, to);
        if (to == CHUNK || (!pieces && s->leaves >= 0))
            AX_VEC(ax_delta_next_state)(s, to);
        moved = moved || to == CHUNK;
        token += to - from;
    }
    if (moved)
        AX_VEC(ax_delta_store_state)(s, &f->a.states, s->leaves, s->m.state);
}

size_t AX_VEC(ax_cpu_delta_forward_workspace)(struct ax_queue *q,
                                              const struct ax_delta_forward *f) {
    struct ax_attention_work work = {0};
    for (int t = 0; t < q->threads; t++)
        (void)AX_VEC(ax_delta_carve)(&work, &f->a);
    return work.used;
}

static void append_all_keys(const struct ax_queue *q, const struct ax_delta_forward *f) {
    AX_PARALLEL_FOR (team(q, ax_tensor_numel(&f->a.k)), d, f->a.cu.shape[0] - 1)
        append_keys(f, d);
}

enum ax_status AX_VEC(ax_cpu_delta_forward)(struct ax_queue *q, const struct ax_delta_forward *f,
                                            void *work) {
    const struct ax_tensor *past = f->past.data ? &f->past : NULL;
    struct ax_attention_work one = {0};
    (void)AX_VEC(ax_delta_carve)(&one, &f->a);
    AX_VEC(ax_delta_clear)(&f->a.out, &f->a.cu);
    AX_PARALLEL_FOR (team(q, ax_tensor_numel(&f->a.v)), task, delta_tasks(&f->a)) {
        struct ax_attention_work own = {.base =
                                            (char *)work + (size_t)omp_get_thread_num() * one.used};
        struct ax_delta_head s = AX_VEC(ax_delta_head)(&f->a, past, task);
        s.m = AX_VEC(ax_delta_carve)(&own, &f->a);
        forward_head(&s, f);
    }
    if (past)
        append_all_keys(q, f);
    return AX_OK;
}
