/* A chunk of the gated delta rule: its updates u, by forward substitution, and the state after it. */
#include "kernels/cpu/vec/delta/delta.h"

#include "kernels/cpu/vec/delta/transpose.h"

struct ax_delta_head AX_VEC(ax_delta_head)(const struct ax_delta_rule *a,
                                           const struct ax_tensor *past, int64_t task) {
    const int64_t values = a->v.shape[1], d = task / values, head = task % values;
    const int32_t *cu = a->cu.data, *enters = a->enters.data, *leaves = a->leaves.data;
    const bool states = a->states.data != NULL;
    struct ax_delta_head s = {.a = a,
                              .dtype = a->q.dtype,
                              .head = head,
                              .key_head = head / (values / a->q.shape[1]),
                              .dk = a->q.shape[2],
                              .dv = a->v.shape[2],
                              .key_columns = round_up(a->q.shape[2], AX_LANES),
                              .value_columns = round_up(a->v.shape[2], AX_LANES),
                              .first = cu[d],
                              .end = cu[d + 1],
                              .enters = states ? enters[d] : -1,
                              .leaves = states ? leaves[d] : -1,
                              .channels = ax_delta_by_channel(a),
                              .ahead = CHUNK};
    if (past != NULL && s.enters >= 0) {
        s.past = ((const int32_t *)past->data)[d];
        s.enters = s.past == 0 ? -1 : s.enters;
    }
    return s;
}

struct ax_delta_memory AX_VEC(ax_delta_carve)(struct ax_attention_work *work,
                                              const struct ax_delta_rule *a) {
    const size_t size = sizeof(float);
    const int64_t dk = a->q.shape[2], keys = CHUNK * round_up(dk, AX_LANES);
    const int64_t columns = round_up(a->v.shape[2], AX_LANES), pairs = CHUNK * CHUNK;
    struct ax_delta_memory m = {0};
    m.k = carve(work, keys, size);
    m.q = carve(work, keys, size);
    m.k_columns = carve(work, dk * CHUNK, size);
    m.scaled = carve(work, keys, size);
    m.y = carve(work, CHUNK * columns, size);
    m.u = carve(work, CHUNK * columns, size);
    m.state = carve(work, dk * columns, size);
    m.decay = carve(work, pairs, size);
    m.similar = carve(work, pairs, size);
    m.system = carve(work, pairs, size);
    m.weight = carve(work, pairs, size);
    m.beta = carve(work, CHUNK, size);
    m.grown = carve(work, CHUNK, size);
    m.rest = carve(work, CHUNK, size);
    m.sum = carve(work, CHUNK, sizeof(double));
    if (ax_delta_by_channel(a)) {
        m.step = carve(work, keys, size);
        m.reach = carve(work, keys, size);
    }
    return m;
}

void AX_VEC(ax_delta_load_state)(const struct ax_delta_head *s, const struct ax_tensor *states,
                                 int32_t slot, float *state) {
    for (int64_t i = 0; i < s->dk; i++) {
        float *row = state + i * s->value_columns;
        if (slot < 0)
            memset(row, 0, (size_t)s->value_columns * sizeof *row);
        else
            load_scaled(AX_F32, element_of(states, slot, (s->head * s->dk + i) * s->dv), s->dv, 1,
                        row);
    }
}

void AX_VEC(ax_delta_store_state)(const struct ax_delta_head *s, const struct ax_tensor *states,
                                  int32_t slot, const float *state) {
    for (int64_t i = 0; i < s->dk && slot >= 0; i++)
        memcpy(element_of(states, slot, (s->head * s->dk + i) * s->dv),
               state + i * s->value_columns, (size_t)s->dv * sizeof *state);
}

void AX_VEC(ax_delta_set_row)(const struct ax_delta_head *s, int64_t r, const void *k,
                              const float *g) {
    const struct ax_delta_memory *m = &s->m;
    float *row = m->k + r * s->key_columns;
    AX_BY_DTYPE(s->dtype, load_head, s, k, 1.0f, row);
    if (s->channels) {
        AX_VEC(ax_delta_set_channels)(s, r, g);
        return;
    }
    m->sum[r] = (r > 0 ? m->sum[r - 1] : 0) + (double)*g;
    m->grown[r] = exp_one((float)m->sum[r]);
}

/* Columns 0 … n − 1 of these rows: products of x and k̂, times decay. */
static void decayed_products(const struct ax_delta_head *s, const float *x, int64_t from,
                             int64_t to, float *out) {
    const struct ax_delta_memory *m = &s->m;
    for (int64_t i = from; i < to; i += TILE) {
        const int64_t rows = least(TILE, to - i);
        PRODUCT(.m = rows, .n = round_up(i + rows, AX_LANES), .units = s->dk,
                .a = x + i * s->key_columns, .a_row = s->key_columns, .a_unit = 1,
                .b = m->k_columns, .b_unit = CHUNK, .c = out + i * CHUNK, .c_row = CHUNK);
    }
    for (int64_t i = from; i < to; i++) {
        for (int64_t j = 0; j <= i; j += AX_LANES) {
            const int64_t n = least(AX_LANES, i + 1 - j);
            float *at = out + i * CHUNK + j;
            v_store_f32(at, n, v_load_f32(at, n) * v_load_f32(m->decay + i * CHUNK + j, n));
        }
    }
}

static void decay_row(const struct ax_delta_memory *m, int64_t i) {
    float *row = m->decay + i * CHUNK;
    for (int64_t j = 0; j <= i; j++)
        row[j] = (float)(m->sum[i] - m->sum[j]);
    for (int64_t j = 0; j <= i; j += AX_LANES) {
        const int64_t n = least(AX_LANES, i + 1 - j);
        v_store_f32(row + j, n, v_exp(v_load_f32(row + j, n)));
    }
}

/* Row i of y, which has Sᵀ·k̂, becomes v − e^G·that, or v if the rule is additive, and u = beta·y. */
AX_INLINE void start_row(enum ax_dtype dtype, const struct ax_delta_head *s, const void *v,
                         int64_t i) {
    const struct ax_delta_memory *m = &s->m;
    float *y = m->y + i * s->value_columns, *u = m->u + i * s->value_columns;
    const v_float grown = v_set(m->grown[i]), beta = v_set(m->beta[i]);
    for (int64_t j = 0; j < s->dv; j += AX_LANES) {
        v_float row = v_load(dtype, v, j, least(AX_LANES, s->dv - j));
        if (!s->a->additive)
            row = v_fnma(grown, v_load_f32(y + j, AX_LANES), row);
        v_store_f32(y + j, AX_LANES, row);
        v_store_f32(u + j, AX_LANES, row * beta);
    }
}

/* u_i += Σ_{j<i} system_ij·u_j, for a tile of rows: first the rows before the tile, then those in it. */
static void substitute(const struct ax_delta_head *s, int64_t from, int64_t to) {
    const struct ax_delta_memory *m = &s->m;
    const int64_t columns = s->value_columns;
    for (int64_t i = from; i < to; i += TILE) {
        const int64_t rows = least(TILE, to - i);
        PRODUCT(.accumulate = true, .m = rows, .n = columns, .units = i, .a = m->system + i * CHUNK,
                .a_row = CHUNK, .a_unit = 1, .b = m->u, .b_unit = columns, .c = m->u + i * columns,
                .c_row = columns);
        for (int64_t r = i + 1; r < i + rows; r++)
            PRODUCT(.accumulate = true, .m = 1, .n = columns, .units = r - i,
                    .a = m->system + r * CHUNK + i, .a_unit = 1, .b = m->u + i * columns,
                    .b_unit = columns, .c = m->u + r * columns);
    }
}

/* similar and system of these rows, and Sᵀ·k̂ in y. */
static void start_system(const struct ax_delta_head *s, int64_t from, int64_t to) {
    const struct ax_delta_memory *m = &s->m;
    if (!s->channels)
        decayed_products(s, m->k, from, to, m->similar);
    for (int64_t r = from; r < to; r++)
        for (int64_t j = 0; j < r; j++)
            m->system[r * CHUNK + j] = -m->beta[r] * m->similar[r * CHUNK + j];
    PRODUCT(.m = to - from, .n = s->value_columns, .units = s->dk,
            .a = AX_VEC(ax_delta_meeting)(s, m->k, from, to) + from * s->key_columns,
            .a_row = s->key_columns, .a_unit = 1, .b = m->state, .b_unit = s->value_columns,
            .c = m->y + from * s->value_columns, .c_row = s->value_columns);
}

const float *AX_VEC(ax_delta_meeting)(const struct ax_delta_head *s, const float *x, int64_t from,
                                      int64_t to) {
    if (!s->channels)
        return x;
    AX_VEC(ax_delta_reach_rows)(s, x, 1, from, to, s->m.scaled);
    return s->m.scaled;
}

static void load_query(const struct ax_delta_head *s, int64_t t, int64_t r) {
    const int64_t col = s->key_head * s->dk;
    AX_BY_DTYPE(s->dtype, load_head, s, element_of(&s->a->q, t, col), (float)s->a->scale,
                s->m.q + r * s->key_columns);
    fetch_next(s, &s->a->q, t, col, s->dk);
}

void AX_VEC(ax_delta_updates)(const struct ax_delta_head *s, int64_t token, int64_t from,
                              int64_t to, bool weights) {
    const struct ax_delta_rule *a = s->a;
    const struct ax_delta_memory *m = &s->m;
    const int64_t g = s->head * (s->channels ? s->dk : 1);
    for (int64_t r = from; r < to; r++) {
        const int64_t t = token + r - from;
        AX_VEC(ax_delta_set_row)
        (s, r, element_of(&a->k, t, s->key_head * s->dk), element_of(&a->g, t, g));
        fetch_next(s, &a->k, t, s->key_head * s->dk, s->dk);
        m->beta[r] = float_of(&a->beta, t, s->head);
        if (weights)
            load_query(s, t, r);
        if (s->channels)
            AX_VEC(ax_delta_channel_pairs)(s, r, weights);
        else
            decay_row(m, r);
    }
    if (!s->channels)
        transpose(m->k, s->key_columns, to, s->dk, m->k_columns, CHUNK);
    if (weights && !s->channels)
        decayed_products(s, m->q, from, to, m->weight);
    if (!a->additive)
        start_system(s, from, to);
    for (int64_t r = from; r < to; r++) {
        const int64_t t = token + r - from;
        AX_BY_DTYPE(s->dtype, start_row, s, element_of(&a->v, t, s->head * s->dv), r);
        fetch_next(s, &a->v, t, s->head * s->dv, s->dv);
    }
    if (!a->additive)
        substitute(s, from, to);
}

struct ax_delta_rested AX_VEC(ax_delta_rest)(const struct ax_delta_head *s, int64_t rows) {
    const struct ax_delta_memory *m = &s->m;
    if (s->channels)
        return (struct ax_delta_rested){m->k_columns, 1, CHUNK};
    for (int64_t r = 0; r < rows; r++) {
        m->rest[r] = exp_one((float)(m->sum[rows - 1] - m->sum[r]));
        load_scaled(AX_F32, m->k + r * s->key_columns, s->key_columns, m->rest[r],
                    m->scaled + r * s->key_columns);
    }
    return (struct ax_delta_rested){m->scaled, s->key_columns, 1};
}

void AX_VEC(ax_delta_next_state)(const struct ax_delta_head *s, int64_t rows) {
    const struct ax_delta_memory *m = &s->m;
    const struct ax_delta_rested k = AX_VEC(ax_delta_rest)(s, rows);
    if (s->channels)
        AX_VEC(ax_delta_decay_state)(s, rows, m->state);
    else
        scale_row(m->state, s->dk * s->value_columns, m->grown[rows - 1]);
    PRODUCT(.accumulate = true, .m = s->dk, .n = s->value_columns, .units = rows, .a = k.data,
            .a_row = k.channel, .a_unit = k.row, .b = m->u, .b_unit = s->value_columns,
            .c = m->state, .c_row = s->value_columns);
}

void AX_VEC(ax_delta_clear)(const struct ax_tensor *x, const struct ax_tensor *cu) {
    const int32_t first = ((const int32_t *)cu->data)[0];
    const int32_t end = ((const int32_t *)cu->data)[cu->shape[0] - 1];
    const size_t bytes = (size_t)ax_tensor_row_len(x) * ax_dtype_size(x->dtype);
    for (int64_t t = first > 0 ? 0 : end; t < x->shape[0]; t = t + 1 == first ? end : t + 1)
        memset(ax_tensor_row(x, t), 0, bytes);
}
