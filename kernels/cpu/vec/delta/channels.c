/* The delta rule with a decay per channel. e^(G_i − G_j) is then a vector, the product of the rows' e^g from j + 1 to i.
 * It is never computed as such: k_columns has every earlier key as row i sees it, k̂_j⊙e^(G_i − G_j), and each new row
 * multiplies them all by its e^g, in place. So a row's products with keys are those of a matrix, whatever the decays:
 * nothing overflows, and a channel that a token clears stays cleared. */
#include "kernels/cpu/vec/delta/delta.h"

void AX_VEC(ax_delta_set_channels)(const struct ax_delta_head *s, int64_t r, const float *g) {
    const struct ax_delta_memory *m = &s->m;
    const int64_t columns = s->key_columns, keys = round_up(r + 1, AX_LANES);
    const float *k = m->k + r * columns;
    float *step = m->step + r * columns, *reach = m->reach + r * columns;
    for (int64_t i = 0; i < columns; i += AX_LANES) {
        const v_float e = v_exp(v_load_f32(g + i, least(AX_LANES, s->dk - i)));
        v_store_f32(step + i, AX_LANES, e);
        const v_float before = r > 0 ? v_load_f32(reach + i - columns, AX_LANES) : v_set(1);
        v_store_f32(reach + i, AX_LANES, before * e);
    }
    for (int64_t i = 0; i < s->dk; i++) {
        float *row = m->k_columns + i * CHUNK;
        if (r % AX_LANES == 0)
            v_store_f32(row + r, AX_LANES, v_set(0));
        scale_row(row, keys, step[i]);
        row[r] = k[i];
    }
    m->grown[r] = 1;
}

/* Columns 0 … r of row r: products of x and the keys as this row sees them. */
static void pair_products(const struct ax_delta_head *s, const float *x, int64_t r, float *out) {
    PRODUCT(.m = 1, .n = round_up(r + 1, AX_LANES), .units = s->dk, .a = x + r * s->key_columns,
            .a_unit = 1, .b = s->m.k_columns, .b_unit = CHUNK, .c = out + r * CHUNK);
}

void AX_VEC(ax_delta_channel_pairs)(const struct ax_delta_head *s, int64_t r, bool weights) {
    pair_products(s, s->m.k, r, s->m.similar);
    if (weights)
        pair_products(s, s->m.q, r, s->m.weight);
}

/* out = sign·x⊙e^G of rows from … to − 1. */
void AX_VEC(ax_delta_reach_rows)(const struct ax_delta_head *s, const float *x, float sign,
                                 int64_t from, int64_t to, float *out) {
    const v_float factor = v_set(sign);
    for (int64_t i = from * s->key_columns; i < to * s->key_columns; i += AX_LANES)
        v_store_f32(out + i, AX_LANES,
                    v_load_f32(x + i, AX_LANES) * v_load_f32(s->m.reach + i, AX_LANES) * factor);
}

void AX_VEC(ax_delta_decay_state)(const struct ax_delta_head *s, int64_t rows, float *state) {
    const float *reach = s->m.reach + (rows - 1) * s->key_columns;
    for (int64_t i = 0; i < s->dk; i++)
        scale_row(state + i * s->value_columns, s->value_columns, reach[i]);
}

/* ---- backward ---- */

/* dq̂ += B·k̂ and l += A·k̂, of keys as each row sees them: rows of m.scaled, which get e^g like k_columns. */
static void sweep_keys(const struct ax_delta_head *s, const struct ax_delta_channels *c,
                       int64_t i) {
    const struct ax_delta_memory *m = &s->m;
    const int64_t columns = s->key_columns, row = i * columns;
    const float *a = c->d_system + i * CHUNK, *b = c->d_weight + i * CHUNK;
    for (int64_t at = 0; at < columns; at += AX_LANES) {
        const v_float step = v_load_f32(m->step + row + at, AX_LANES);
        const v_float own = v_load_f32(m->k + row + at, AX_LANES);
        v_float dq = v_load_f32(c->dq + row + at, AX_LANES);
        v_float left = v_load_f32(c->left + row + at, AX_LANES);
        for (int64_t j = 0; j < i; j++) {
            float *key = m->scaled + j * columns + at;
            const v_float k = v_load_f32(key, AX_LANES) * step;
            v_store_f32(key, AX_LANES, k);
            dq = v_fma(v_set(b[j]), k, dq);
            left = v_fma(v_set(a[j]), k, left);
        }
        v_store_f32(m->scaled + row + at, AX_LANES, own);
        v_store_f32(c->dq + row + at, AX_LANES, v_fma(v_set(b[i]), own, dq));
        v_store_f32(c->left + row + at, AX_LANES, left);
    }
}

/* r_j = e^g⊙r_j + B_ij·q̂_i + A_ij·k̂_i for j ≤ i, with e^g of row i + 1. */
static void sweep_queries(const struct ax_delta_head *s, const struct ax_delta_channels *c,
                          int64_t i, int64_t rows) {
    const struct ax_delta_memory *m = &s->m;
    const int64_t columns = s->key_columns, row = i * columns;
    const float *a = c->d_system + i * CHUNK, *b = c->d_weight + i * CHUNK;
    for (int64_t at = 0; at < columns; at += AX_LANES) {
        const v_float step =
            i + 1 < rows ? v_load_f32(m->step + row + columns + at, AX_LANES) : v_set(1);
        const v_float q = v_load_f32(m->q + row + at, AX_LANES);
        const v_float k = v_load_f32(m->k + row + at, AX_LANES);
        for (int64_t j = 0; j <= i; j++) {
            float *right = c->right + j * columns + at;
            const v_float r = v_load_f32(right, AX_LANES) * step;
            v_store_f32(right, AX_LANES, v_fma(v_set(b[j]), q, v_fma(v_set(a[j]), k, r)));
        }
    }
}

/* Σ_j k̂⊙w + e^G_c⊙Σ S⊙dS' of a channel, with w before its decay in `right`. */
static double chunk_share(const struct ax_delta_head *s, const struct ax_delta_channels *c,
                          int64_t channel, int64_t rows) {
    const struct ax_delta_memory *m = &s->m;
    const int64_t state = channel * s->value_columns;
    double kept = 0;
    for (int64_t r = 0; r < rows; r++)
        kept += (double)m->k_columns[channel * CHUNK + r] *
                (double)c->right[r * s->key_columns + channel];
    return kept + (double)m->reach[(rows - 1) * s->key_columns + channel] *
                      (double)dot_of(m->state + state, c->d_state + state, s->value_columns);
}

void AX_VEC(ax_delta_channel_gradients)(const struct ax_delta_head *s,
                                        const struct ax_delta_channels *c, int64_t token,
                                        int64_t rows, const struct ax_tensor *dg) {
    const struct ax_delta_memory *m = &s->m;
    for (int64_t i = 0; i < s->dk; i++)
        c->d_sum[i] = chunk_share(s, c, i, rows);
    for (int64_t i = 0; i < rows; i++)
        sweep_keys(s, c, i);
    for (int64_t i = rows - 1; i >= 0; i--)
        sweep_queries(s, c, i, rows);
    for (int64_t r = rows - 1; r >= 0; r--) {
        const int64_t row = r * s->key_columns;
        float *out = element_of(dg, token + r, s->head * s->dk);
        for (int64_t i = 0, at = row; i < s->dk; i++, at++) {
            c->d_sum[i] += (double)(m->q[at] * c->dq[at] + m->k[at] * (c->left[at] - c->right[at]));
            out[i] = (float)c->d_sum[i];
        }
    }
}
