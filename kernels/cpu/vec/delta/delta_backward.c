/* delta_backward. A task computes the states at the borders of its chunks, then each chunk's gradients, from the
 * last chunk to the first. With P = weight, N = −system (both lower triangles), D = decay, E = grown, F = rest and
 * rows u, and dS' the gradient of the next chunk's state:
 *   du = Pᵀ·dout + (k̂⊙F)·dS';  z = (I + N)⁻ᵀ·du;  dN = −z·uᵀ and dP = dout·uᵀ, of the triangles
 *   dv = beta⊙z;  dbeta = Σ z⊙y + Σ_j dN⊙similar;  A = beta⊙dN⊙D, B = dP⊙D
 *   dq̂ = E⊙(dout·Sᵀ) + B·k̂;  dk̂ = l + r, l = A·k̂ − E⊙(dv·Sᵀ), r = Bᵀ·q̂ + Aᵀ·k̂ + w, w = F⊙(u·dS'ᵀ)
 *   dS = e^G_c·dS' + (q̂⊙E)ᵀ·dout − (k̂⊙E)ᵀ·dv
 *   dG = Σ q̂⊙dq̂ + Σ k̂⊙(l − r);  dG_c += Σ k̂⊙w + e^G_c·Σ S⊙dS';  dg_t = Σ_{s≥t} dG_s
 * dq̂ and dk̂ of each value head go to the workspace; a second pass adds those of a key head in order. If the rule is
 * additive, N, A and l are 0, z is du, dS has no last term, and dv gets skip·dout. With a decay per channel, E, F and D
 * belong to elements of keys, A and B have no D, and dG, which has no sum over them, is of each (channels.c). */
#include "kernels/cpu/vec/delta/delta.h"
#include "kernels/cpu/vec/delta/transpose.h"
#include "kernels/cpu/vec/entries.h"

/* A thread's memory beside the chunk's. */
struct gradients {
    float *dout, *z;            /* [CHUNK][value_columns]; z becomes dv */
    float *u_columns;           /* [dv][CHUNK] */
    float *state_t, *d_state_t; /* [dv][key_columns] */
    float *d_state;             /* [dk][value_columns] */
    float *dq, *left, *right;   /* [CHUNK][key_columns] */
    float *d_system, *d_weight; /* A, B [CHUNK][CHUNK], zeros above */
    double *d_sum; /* dG of each row; of channels: Σ dG of the rows from this one on */
};

/* What all threads share: dq̂ and dk̂ [T][Hv][dk]; the state before token t = first + 64·i, i > 0, of a document is
 * number (t / 64 − 1)·Hv + head. */
struct shared {
    float *dq, *dk, *borders;
};

static struct gradients carve_gradients(struct ax_attention_work *work,
                                        const struct ax_delta_rule *a) {
    const size_t size = sizeof(float);
    const int64_t dk = a->q.shape[2], dv = a->v.shape[2];
    const int64_t keys = round_up(dk, AX_LANES), values = round_up(dv, AX_LANES);
    struct gradients g = {0};
    g.dout = carve(work, CHUNK * values, size);
    g.z = carve(work, CHUNK * values, size);
    g.u_columns = carve(work, dv * CHUNK, size);
    g.state_t = carve(work, dv * keys, size);
    g.d_state_t = carve(work, dv * keys, size);
    g.d_state = carve(work, dk * values, size);
    g.dq = carve(work, CHUNK * keys, size);
    g.left = carve(work, CHUNK * keys, size);
    g.right = carve(work, CHUNK * keys, size);
    g.d_system = carve(work, CHUNK * CHUNK, size);
    g.d_weight = carve(work, CHUNK * CHUNK, size);
    g.d_sum = carve(work, ax_delta_by_channel(a) ? keys : CHUNK, sizeof(double));
    return g;
}

static struct shared carve_shared(struct ax_attention_work *work, const struct ax_delta_rule *a) {
    const size_t size = sizeof(float);
    const int64_t tokens = a->v.shape[0], heads = a->v.shape[1], dk = a->q.shape[2];
    struct shared s = {0};
    s.dq = carve(work, tokens * heads * dk, size);
    s.dk = carve(work, tokens * heads * dk, size);
    s.borders = carve(work, tokens / CHUNK * heads * dk * round_up(a->v.shape[2], AX_LANES), size);
    return s;
}

static float *border_of(const struct ax_delta_head *s, const struct shared *all, int64_t token) {
    const int64_t i = (token / CHUNK - 1) * s->a->v.shape[1] + s->head;
    return all->borders + i * s->dk * s->value_columns;
}

static size_t state_bytes(const struct ax_delta_head *s) {
    return (size_t)(s->dk * s->value_columns) * sizeof(float);
}

static void find_borders(const struct ax_delta_head *s, const struct shared *all) {
    AX_VEC(ax_delta_load_state)(s, &s->a->states, s->enters, s->m.state);
    for (int64_t token = s->first; token + CHUNK < s->end; token += CHUNK) {
        AX_VEC(ax_delta_updates)(s, token, 0, CHUNK, false);
        AX_VEC(ax_delta_next_state)(s, CHUNK);
        memcpy(border_of(s, all, token + CHUNK), s->m.state, state_bytes(s));
    }
}

static void transpose_state(const struct ax_delta_head *s, const float *state, float *out) {
    memset(out, 0, (size_t)(s->dv * s->key_columns) * sizeof *out);
    transpose(state, s->value_columns, s->dk, s->dv, out, s->key_columns);
}

/* Zeroes what is above the triangle: of row i, from column first + i on. */
static void clear_above(float *x, int64_t rows, int64_t first) {
    for (int64_t i = 0; i < rows; i++)
        memset(x + i * CHUNK + first + i, 0, (size_t)(CHUNK - first - i) * sizeof *x);
}

/* out[CHUNK][cols] += x·b, or xᵀ·b, of a lower triangle x [rows][CHUNK] with zeros above. */
static void lower_product(const float *x, const float *b, int64_t rows, int64_t cols, float *out) {
    for (int64_t i = 0; i < rows; i += TILE) {
        const int64_t n = least(TILE, rows - i);
        PRODUCT(.accumulate = true, .m = n, .n = cols, .units = i + n, .a = x + i * CHUNK,
                .a_row = CHUNK, .a_unit = 1, .b = b, .b_unit = cols, .c = out + i * cols,
                .c_row = cols);
    }
}
static void upper_product(const float *x, const float *b, int64_t rows, int64_t cols, float *out) {
    for (int64_t i = 0; i < rows; i += TILE)
        PRODUCT(.accumulate = true, .m = least(TILE, rows - i), .n = cols, .units = rows - i,
                .a = x + i * CHUNK + i, .a_row = 1, .a_unit = CHUNK, .b = b + i * cols,
                .b_unit = cols, .c = out + i * cols, .c_row = cols);
}

/* z_j = du_j + Σ_{i>j} system_ij·z_i, from the last tile of rows to the first. */
static void substitute_back(const struct ax_delta_head *s, float *z, int64_t rows) {
    const int64_t cols = s->value_columns;
    for (int64_t j = (rows - 1) / TILE * TILE; j >= 0; j -= TILE) {
        const int64_t n = least(TILE, rows - j), next = j + n;
        PRODUCT(.accumulate = true, .m = n, .n = cols, .units = rows - next,
                .a = s->m.system + next * CHUNK + j, .a_row = 1, .a_unit = CHUNK,
                .b = z + next * cols, .b_unit = cols, .c = z + j * cols, .c_row = cols);
        for (int64_t r = next - 2; r >= j; r--)
            PRODUCT(.accumulate = true, .m = 1, .n = cols, .units = next - 1 - r,
                    .a = s->m.system + (r + 1) * CHUNK + r, .a_unit = CHUNK,
                    .b = z + (r + 1) * cols, .b_unit = cols, .c = z + r * cols);
    }
}

/* The chunk again, with its state in m.state, and du in z. */
static void prepare(const struct ax_delta_head *s, const struct ax_delta_backward *b,
                    const struct gradients *g, int64_t token, int64_t rows) {
    const struct ax_delta_memory *m = &s->m;
    AX_VEC(ax_delta_updates)(s, token, 0, rows, true);
    for (int64_t r = 0; r < rows; r++) {
        const int64_t t = token + r, value = s->head * s->dv;
        AX_BY_DTYPE(s->dtype, load_scaled, element_of(&b->dout, t, value), s->dv, 1.0f,
                    g->dout + r * s->value_columns);
        fetch_next(s, &b->dout, t, value, s->dv);
    }
    const struct ax_delta_rested k = AX_VEC(ax_delta_rest)(s, rows);
    clear_above(m->weight, rows, 1);
    if (!s->a->additive) {
        clear_above(m->similar, rows, 0);
        clear_above(m->system, rows, 0);
    }
    transpose(m->u, s->value_columns, rows, s->dv, g->u_columns, CHUNK);
    transpose_state(s, m->state, g->state_t);
    transpose_state(s, g->d_state, g->d_state_t);
    PRODUCT(.m = rows, .n = s->value_columns, .units = s->dk, .a = k.data, .a_row = k.row,
            .a_unit = k.channel, .b = g->d_state, .b_unit = s->value_columns, .c = g->z,
            .c_row = s->value_columns);
    upper_product(m->weight, g->dout, rows, s->value_columns, g->z);
}

/* out = x·uᵀ, of the lower triangle. */
static void against_updates(const struct ax_delta_head *s, const struct gradients *g,
                            const float *x, int64_t rows, float *out) {
    for (int64_t i = 0; i < rows; i += TILE) {
        const int64_t n = least(TILE, rows - i);
        PRODUCT(.m = n, .n = round_up(i + n, AX_LANES), .units = s->dv,
                .a = x + i * s->value_columns, .a_row = s->value_columns, .a_unit = 1,
                .b = g->u_columns, .b_unit = CHUNK, .c = out + i * CHUNK, .c_row = CHUNK);
    }
}

/* Row i of z·uᵀ and dP becomes that of A and B; returns Σ_j dN⊙similar. */
static float pair_row(const struct ax_delta_head *s, const struct gradients *g, int64_t i) {
    const struct ax_delta_memory *m = &s->m;
    const int64_t row = i * CHUNK;
    const v_float beta = v_set(-m->beta[i]);
    v_float sum = v_set(0);
    for (int64_t j = 0; j <= i; j += AX_LANES) {
        const int64_t n = least(AX_LANES, i + 1 - j), below = least(AX_LANES, i - j);
        const v_float decay = s->channels ? v_set(1) : v_load_f32(m->decay + row + j, n);
        const v_float d = v_keep(below, v_load_f32(g->d_system + row + j, n), 0);
        sum = v_fma(d, v_load_f32(m->similar + row + j, n), sum);
        v_store_f32(g->d_system + row + j, n, d * decay * beta);
        v_store_f32(g->d_weight + row + j, n, v_load_f32(g->d_weight + row + j, n) * decay);
    }
    return -(float)v_sum(sum);
}

AX_INLINE void store_row(enum ax_dtype dtype, const float *x, int64_t n, void *out) {
    for (int64_t i = 0; i < n; i += AX_LANES)
        v_store(dtype, out, i, least(AX_LANES, n - i), v_load_f32(x + i, AX_LANES));
}

/* B, dbeta, dskip and dv of an additive rule, whose z is du. */
static void without_system(const struct ax_delta_head *s, const struct ax_delta_backward *b,
                           const struct gradients *g, int64_t token, int64_t rows) {
    const struct ax_delta_memory *m = &s->m;
    const int64_t cols = s->value_columns;
    const float skip = skip_of(s);
    against_updates(s, g, g->dout, rows, g->d_weight);
    clear_above(g->d_weight, rows, 1);
    for (int64_t r = 0; r < rows; r++) {
        const int64_t t = token + r;
        float *z = g->z + r * cols, *dout = g->dout + r * cols, *pairs = g->d_weight + r * CHUNK;
        *(float *)element_of(&b->dbeta, t, s->head) = dot_of(z, m->y + r * cols, cols);
        if (b->dskip.data)
            *(float *)element_of(&b->dskip, t, s->head) = dot_of(dout, m->y + r * cols, cols);
        for (int64_t j = 0; j <= r; j += AX_LANES) {
            const int64_t n = least(AX_LANES, r + 1 - j);
            v_store_f32(pairs + j, n,
                        v_load_f32(pairs + j, n) * v_load_f32(m->decay + r * CHUNK + j, n));
        }
        for (int64_t j = 0; j < cols; j += AX_LANES)
            v_store_f32(z + j, AX_LANES,
                        v_fma(v_set(skip), v_load_f32(dout + j, AX_LANES),
                              v_set(m->beta[r]) * v_load_f32(z + j, AX_LANES)));
        AX_BY_DTYPE(s->dtype, store_row, z, s->dv, element_of(&b->dv, t, s->head * s->dv));
    }
}

/* z, dbeta, dv, A and B. */
static void solve(const struct ax_delta_head *s, const struct ax_delta_backward *b,
                  const struct gradients *g, int64_t token, int64_t rows) {
    const struct ax_delta_memory *m = &s->m;
    const int64_t cols = s->value_columns;
    substitute_back(s, g->z, rows);
    against_updates(s, g, g->z, rows, g->d_system);
    against_updates(s, g, g->dout, rows, g->d_weight);
    clear_above(g->d_system, rows, 1);
    clear_above(g->d_weight, rows, 1);
    for (int64_t r = 0; r < rows; r++) {
        float *z = g->z + r * cols, *dbeta = element_of(&b->dbeta, token + r, s->head);
        *dbeta = dot_of(z, m->y + r * cols, cols) + pair_row(s, g, r);
        scale_row(z, cols, m->beta[r]);
        AX_BY_DTYPE(s->dtype, store_row, z, s->dv, element_of(&b->dv, token + r, s->head * s->dv));
    }
}

/* out = factor_r·(x·state_tᵀ), of each row r. */
static void through_state(const struct ax_delta_head *s, const float *x, const float *state_t,
                          const float *factors, float sign, int64_t rows, float *out) {
    PRODUCT(.m = rows, .n = s->key_columns, .units = s->dv, .a = x, .a_row = s->value_columns,
            .a_unit = 1, .b = state_t, .b_unit = s->key_columns, .c = out, .c_row = s->key_columns);
    for (int64_t r = 0; r < rows; r++)
        scale_row(out + r * s->key_columns, s->key_columns, sign * factors[r]);
}

/* dq̂, dk̂ = left + right, and dG but for the state's share. Returns Σ k̂⊙w. */
static double key_gradients(const struct ax_delta_head *s, const struct gradients *g,
                            int64_t rows) {
    const struct ax_delta_memory *m = &s->m;
    const int64_t cols = s->key_columns;
    double kept = 0;
    through_state(s, g->dout, g->state_t, m->grown, 1, rows, g->dq);
    lower_product(g->d_weight, m->k, rows, cols, g->dq);
    memset(g->left, 0, (size_t)(rows * cols) * sizeof *g->left);
    if (!s->a->additive) {
        through_state(s, g->z, g->state_t, m->grown, -1, rows, g->left);
        lower_product(g->d_system, m->k, rows, cols, g->left);
    }
    through_state(s, m->u, g->d_state_t, m->rest, 1, rows, g->right);
    for (int64_t r = 0; r < rows; r++)
        kept += (double)dot_of(m->k + r * cols, g->right + r * cols, cols);
    upper_product(g->d_weight, m->q, rows, cols, g->right);
    if (!s->a->additive)
        upper_product(g->d_system, m->k, rows, cols, g->right);
    for (int64_t r = 0; r < rows; r++) {
        const float *k = m->k + r * cols;
        g->d_sum[r] = (double)dot_of(m->q + r * cols, g->dq + r * cols, cols) +
                      (double)dot_of(k, g->left + r * cols, cols) -
                      (double)dot_of(k, g->right + r * cols, cols);
    }
    return kept;
}

/* The same of channels, with dg. */
static void channel_gradients(const struct ax_delta_head *s, const struct ax_delta_backward *b,
                              const struct gradients *g, int64_t token, int64_t rows) {
    const struct ax_delta_memory *m = &s->m;
    through_state(s, g->dout, g->state_t, m->grown, 1, rows, g->dq);
    through_state(s, g->z, g->state_t, m->grown, -1, rows, g->left);
    through_state(s, m->u, g->d_state_t, m->grown, 1, rows, g->right);
    AX_VEC(ax_delta_reach_rows)(s, g->dq, 1, 0, rows, g->dq);
    AX_VEC(ax_delta_reach_rows)(s, g->left, 1, 0, rows, g->left);
    AX_VEC(ax_delta_channel_gradients)
    (s,
     &(struct ax_delta_channels){.d_system = g->d_system,
                                 .d_weight = g->d_weight,
                                 .d_state = g->d_state,
                                 .dq = g->dq,
                                 .left = g->left,
                                 .right = g->right,
                                 .d_sum = g->d_sum},
     token, rows, &b->dg);
}

/* d_state += sign·(x⊙E)ᵀ·values. */
static void add_to_state(const struct ax_delta_head *s, const struct gradients *g, const float *x,
                         float sign, const float *values, int64_t rows) {
    const struct ax_delta_memory *m = &s->m;
    for (int64_t r = 0; r < rows && !s->channels; r++)
        load_scaled(AX_F32, x + r * s->key_columns, s->key_columns, sign * m->grown[r],
                    m->scaled + r * s->key_columns);
    if (s->channels)
        AX_VEC(ax_delta_reach_rows)(s, x, sign, 0, rows, m->scaled);
    PRODUCT(.accumulate = true, .m = s->dk, .n = s->value_columns, .units = rows, .a = m->scaled,
            .a_row = 1, .a_unit = s->key_columns, .b = values, .b_unit = s->value_columns,
            .c = g->d_state, .c_row = s->value_columns);
}

static void store_gradients(const struct ax_delta_head *s, const struct ax_delta_backward *b,
                            const struct gradients *g, const struct shared *all, int64_t token,
                            int64_t rows) {
    double sum = 0;
    for (int64_t r = rows - 1; r >= 0; r--) {
        const int64_t at = ((token + r) * s->a->v.shape[1] + s->head) * s->dk;
        const float *dq = g->dq + r * s->key_columns;
        const float *left = g->left + r * s->key_columns, *right = g->right + r * s->key_columns;
        for (int64_t i = 0; i < s->dk; i += AX_LANES) {
            const int64_t n = least(AX_LANES, s->dk - i);
            v_store_f32(all->dq + at + i, n, v_load_f32(dq + i, n) * v_set((float)s->a->scale));
            v_store_f32(all->dk + at + i, n, v_load_f32(left + i, n) + v_load_f32(right + i, n));
        }
        if (s->channels)
            continue;
        sum += g->d_sum[r];
        *(float *)element_of(&b->dg, token + r, s->head) = (float)sum;
    }
}

static void backward_chunk(const struct ax_delta_head *s, const struct ax_delta_backward *b,
                           const struct gradients *g, const struct shared *all, int64_t token) {
    const struct ax_delta_memory *m = &s->m;
    const int64_t rows = least(CHUNK, s->end - token);
    prepare(s, b, g, token, rows);
    if (s->a->additive)
        without_system(s, b, g, token, rows);
    else
        solve(s, b, g, token, rows);
    if (s->channels) {
        channel_gradients(s, b, g, token, rows);
        AX_VEC(ax_delta_decay_state)(s, rows, g->d_state);
    } else {
        const double kept = key_gradients(s, g, rows);
        const int64_t size = s->dk * s->value_columns;
        const float grown = m->grown[rows - 1];
        g->d_sum[rows - 1] += kept + (double)grown * (double)dot_of(m->state, g->d_state, size);
        scale_row(g->d_state, size, grown);
    }
    add_to_state(s, g, m->q, 1, g->dout, rows);
    if (!s->a->additive)
        add_to_state(s, g, m->k, -1, g->z, rows);
    store_gradients(s, b, g, all, token, rows);
}

static void backward_head(struct ax_delta_head *s, const struct ax_delta_backward *b,
                          const struct gradients *g, const struct shared *all) {
    const int32_t leaves = b->dstates.data ? s->leaves : -1;
    find_borders(s, all);
    s->ahead = -CHUNK;
    AX_VEC(ax_delta_load_state)(s, &b->dstates, leaves, g->d_state);
    const int64_t chunks = ceil_div(s->end - s->first, CHUNK);
    for (int64_t c = chunks - 1; c >= 0; c--) {
        const int64_t token = s->first + c * CHUNK;
        if (c > 0)
            memcpy(s->m.state, border_of(s, all, token), state_bytes(s));
        else
            AX_VEC(ax_delta_load_state)(s, &s->a->states, s->enters, s->m.state);
        backward_chunk(s, b, g, all, token);
    }
    if (b->dstates.data)
        AX_VEC(ax_delta_store_state)(s, &b->dstates, s->enters, g->d_state);
}

/* ---- the second pass: key heads ---- */

/* dx = r·(dx̂ − x̂·(x̂·dx̂)), x̂ = x·r, or dx̂ if the rule is additive, with dx̂ the sum of n elements of the rows of a
 * key head's value heads, the first of which gets it. */
AX_INLINE void backward_norm(enum ax_dtype dtype, const struct ax_delta_rule *a, const void *x,
                             float *rows, void *dx) {
    const int64_t n = a->k.shape[2], group = a->v.shape[1] / a->k.shape[1];
    const float r = inverse_norm(dtype, a, x, n);
    v_float along = v_set(0);
    for (int64_t i = 0; i < n; i += AX_LANES) {
        const int64_t some = least(AX_LANES, n - i);
        v_float sum = v_load_f32(rows + i, some);
        for (int64_t h = 1; h < group; h++)
            sum += v_load_f32(rows + h * n + i, some);
        v_store_f32(rows + i, some, sum);
        along = v_fma(v_load(dtype, x, i, some) * v_set(r), sum, along);
    }
    const v_float back = v_set(a->additive ? 0 : (float)v_sum(along) * r);
    for (int64_t i = 0; i < n; i += AX_LANES) {
        const int64_t some = least(AX_LANES, n - i);
        const v_float rest = v_fnma(v_load(dtype, x, i, some), back, v_load_f32(rows + i, some));
        v_store(dtype, dx, i, some, rest * v_set(r));
    }
}

static void key_heads(const struct ax_queue *q, const struct ax_delta_backward *b,
                      const struct shared *all) {
    const struct ax_delta_rule *a = &b->a;
    const int32_t *cu = a->cu.data;
    const int64_t first = cu[0], tokens = cu[a->cu.shape[0] - 1] - first;
    const int64_t heads = a->k.shape[1], n = a->k.shape[2], group = a->v.shape[1] / heads;
    AX_PARALLEL_FOR (team(q, tokens * a->v.shape[1] * n), t, tokens) {
        for (int64_t h = 0; h < heads; h++) {
            const int64_t row = first + t, at = (row * heads + h) * group * n;
            AX_BY_DTYPE(a->q.dtype, backward_norm, a, element_of(&a->q, row, h * n), all->dq + at,
                        element_of(&b->dq, row, h * n));
            AX_BY_DTYPE(a->q.dtype, backward_norm, a, element_of(&a->k, row, h * n), all->dk + at,
                        element_of(&b->dk, row, h * n));
        }
    }
}

size_t AX_VEC(ax_cpu_delta_backward_workspace)(struct ax_queue *q,
                                               const struct ax_delta_backward *b) {
    struct ax_attention_work work = {0};
    (void)carve_shared(&work, &b->a);
    for (int t = 0; t < q->threads; t++) {
        (void)AX_VEC(ax_delta_carve)(&work, &b->a);
        (void)carve_gradients(&work, &b->a);
    }
    return work.used;
}

static void value_heads(const struct ax_queue *q, const struct ax_delta_backward *b,
                        const struct shared *all, char *work) {
    struct ax_attention_work one = {0};
    (void)AX_VEC(ax_delta_carve)(&one, &b->a);
    (void)carve_gradients(&one, &b->a);
    AX_PARALLEL_FOR (team(q, ax_tensor_numel(&b->a.v)), task, delta_tasks(&b->a)) {
        struct ax_attention_work own = {.base = work + (size_t)omp_get_thread_num() * one.used};
        struct ax_delta_head s = AX_VEC(ax_delta_head)(&b->a, NULL, task);
        s.m = AX_VEC(ax_delta_carve)(&own, &b->a);
        const struct gradients g = carve_gradients(&own, &b->a);
        backward_head(&s, b, &g, all);
    }
}

enum ax_status AX_VEC(ax_cpu_delta_backward)(struct ax_queue *q, const struct ax_delta_backward *b,
                                             void *work) {
    const struct ax_tensor *const results[] = {&b->dq, &b->dk,    &b->dv,
                                               &b->dg, &b->dbeta, &b->dskip};
    struct ax_attention_work all_work = {.base = work};
    const struct shared all = carve_shared(&all_work, &b->a);
    for (int i = 0; i < 6; i++)
        if (results[i]->data)
            AX_VEC(ax_delta_clear)(results[i], &b->a.cu);
    value_heads(q, b, &all, (char *)work + all_work.used);
    key_heads(q, b, &all);
    return AX_OK;
}
