/* delta_forward and delta_backward as their recurrence, token by token.
 *
 * u is rounded to the accumulation dtype, and S at the borders of chunks, as slots have them: so a sequence that
 * comes in pieces has the same bits. */
#include <math.h>

#include "kernels/ref/delta.h"

/* One value head of one document, and its key head. */
struct head {
    const struct ax_delta_rule *a;
    const struct ax_delta_forward *f; /* with a slot that has a running chunk; else NULL */
    int64_t h, key_head, group;       /* group: value heads of a key head */
    int64_t dk, dv;
    int64_t first, end; /* tokens */
    int32_t enters, leaves;
    int64_t past;
    bool channels; /* have decays of their own */
};

static struct head head_of(const struct ax_delta_rule *a, const struct ax_tensor *past, int64_t d,
                           int64_t h) {
    const int64_t group = a->v.shape[1] / a->q.shape[1];
    const bool states = ax_ref_given(&a->states);
    struct head s = {.a = a,
                     .h = h,
                     .key_head = h / group,
                     .group = group,
                     .dk = a->q.shape[2],
                     .dv = a->v.shape[2],
                     .first = ax_ref_i32(&a->cu, d),
                     .end = ax_ref_i32(&a->cu, d + 1),
                     .enters = states ? ax_ref_i32(&a->enters, d) : -1,
                     .leaves = states ? ax_ref_i32(&a->leaves, d) : -1,
                     .channels = ax_delta_by_channel(a)};
    if (past != NULL && s.enters >= 0) {
        s.past = ax_ref_i32(past, d);
        if (s.past == 0)
            s.enters = -1;
    }
    return s;
}

/* out = x/√(Σx² + eps) of a head's dk elements from column col on, or x if the rule is additive; returns the
 * factor. */
static double load_head(const struct head *s, const struct ax_tensor *x, int64_t row, int64_t col,
                        double *out) {
    const int64_t n = s->dk;
    double squares = 0;
    ax_ref_load_row(x, row, col, n, out);
    for (int64_t i = 0; i < n; i++)
        squares += out[i] * out[i];
    const double r = s->a->additive ? 1 : 1 / sqrt(squares + AX_DELTA_EPS);
    for (int64_t i = 0; i < n; i++)
        out[i] *= r;
    return r;
}

static void load_state(const struct ax_tensor *states, const struct head *s, int32_t slot,
                       double *state) {
    const int64_t size = s->dk * s->dv;
    if (slot >= 0)
        ax_ref_load_row(states, slot, s->h * size, size, state);
    else
        memset(state, 0, (size_t)size * sizeof *state);
}

static void store_state(const struct ax_tensor *states, const struct head *s, int32_t slot,
                        const double *state) {
    if (slot >= 0)
        ax_ref_store_row(states, slot, s->h * s->dk * s->dv, s->dk * s->dv, state);
}

static void round_state(const struct head *s, double *state) {
    for (int64_t i = 0; i < s->dk * s->dv; i++)
        state[i] = ax_ref_round(s->a->g.dtype, state[i]);
}

/* out = Sᵀ·x. */
static void read_state(const struct head *s, const double *state, const double *x, double *out) {
    for (int64_t j = 0; j < s->dv; j++) {
        out[j] = 0;
        for (int64_t i = 0; i < s->dk; i++)
            out[j] += state[i * s->dv + j] * x[i];
    }
}

/* What an update corrects: Sᵀ·k̂, or nothing if the rule is additive. */
static void recall(const struct head *s, const double *state, const double *k, double *out) {
    if (s->a->additive)
        memset(out, 0, (size_t)s->dv * sizeof *out);
    else
        read_state(s, state, k, out);
}

static double skip_of(const struct head *s) {
    const struct ax_tensor *skip = &s->a->skip;
    return ax_ref_given(skip) ? ax_load(skip->dtype, skip->data, s->h) : 0;
}

/* S = decay·S + k̂·uᵀ. */
static void write_state(const struct head *s, double decay, const double *k, const double *u,
                        double *state) {
    for (int64_t i = 0; i < s->dk; i++)
        for (int64_t j = 0; j < s->dv; j++)
            state[i * s->dv + j] = decay * state[i * s->dv + j] + k[i] * u[j];
}

/* The head's decay in row `row` of logarithms, whose heads begin at column col. If channels have decays of their own,
 * S has them applied by this, and the decay is 1. */
static double decay_of(const struct head *s, const struct ax_tensor *g, int64_t row, int64_t col,
                       double *state) {
    if (!s->channels)
        return exp(ax_ref_get(g, row, col));
    for (int64_t i = 0; i < s->dk; i++) {
        const double decay = exp(ax_ref_get(g, row, col * s->dk + i));
        for (int64_t j = 0; j < s->dv; j++)
            state[i * s->dv + j] *= decay;
    }
    return 1;
}

/* One token: S becomes the one after it; k̂ and u are left in k and u. */
static void step(const struct head *s, int64_t t, double *k, double *u, double *state) {
    const double decay = decay_of(s, &s->a->g, t, s->h, state);
    const double beta = ax_ref_get(&s->a->beta, t, s->h);
    load_head(s, &s->a->k, t, s->key_head * s->dk, k);
    recall(s, state, k, u);
    for (int64_t j = 0; j < s->dv; j++) {
        const double v = ax_ref_get(&s->a->v, t, s->h * s->dv + j);
        u[j] = ax_ref_round(s->a->g.dtype, beta * (v - decay * u[j]));
    }
    write_state(s, decay, k, u, state);
}

/* ---- forward ---- */

/* Row r of the running chunk in the document's slot. */
struct running {
    int64_t k, u, g; /* columns */
};
static struct running running_at(const struct head *s, int64_t r) {
    const int64_t values = s->a->v.shape[1], keys = s->a->k.shape[1];
    return (struct running){(r * keys + s->key_head) * s->dk, (r * values + s->h) * s->dv,
                            r * values + s->h};
}

/* From the state with which the running chunk began to the one after its last token. */
static void replay(const struct head *s, const struct ax_delta_forward *f, double *k, double *u,
                   double *state) {
    for (int64_t r = 0; r < s->past % AX_DELTA_CHUNK; r++) {
        const struct running at = running_at(s, r);
        load_head(s, &f->keys, s->enters, at.k, k);
        ax_ref_load_row(&f->updates, s->enters, at.u, s->dv, u);
        write_state(s, decay_of(s, &f->decays, s->enters, at.g, state), k, u, state);
    }
}

/* All but k, which the key head's other value heads may still read. */
static void append(const struct head *s, const struct ax_delta_forward *f, int64_t t, int64_t r,
                   const double *u) {
    const struct running at = running_at(s, r);
    ax_ref_store_row(&f->updates, s->leaves, at.u, s->dv, u);
    const int64_t n = s->channels ? s->dk : 1;
    for (int64_t i = 0; i < n; i++)
        ax_ref_set(&f->decays, s->leaves, at.g * n + i, ax_ref_get(&s->a->g, t, s->h * n + i));
}

static void append_keys(const struct head *s, const struct ax_delta_forward *f, double *k) {
    for (int64_t t = s->first; t < s->end && s->leaves >= 0; t++) {
        const struct running at = running_at(s, (s->past + t - s->first) % AX_DELTA_CHUNK);
        ax_ref_load_row(&s->a->k, t, s->key_head * s->dk, s->dk, k);
        ax_ref_store_row(&f->keys, s->leaves, at.k, s->dk, k);
    }
}

static void forward_head(const struct head *s, const struct ax_delta_forward *f, double *work) {
    double *k = work, *x = k + s->dk, *u = x + s->dk, *out = u + s->dv, *state = out + s->dv;
    const bool pieces = ax_ref_given(&f->past);
    load_state(&f->a.states, s, s->enters, state);
    if (pieces && s->past == 0 && s->first < s->end)
        store_state(&f->a.states, s, s->leaves, state);
    if (pieces && s->enters >= 0)
        replay(s, f, k, u, state);
    for (int64_t t = s->first; t < s->end; t++) {
        const int64_t r = (s->past + t - s->first) % AX_DELTA_CHUNK;
        step(s, t, k, u, state);
        load_head(s, &f->a.q, t, s->key_head * s->dk, x);
        read_state(s, state, x, out);
        for (int64_t j = 0, at = s->h * s->dv; j < s->dv; j++)
            ax_ref_set(&f->a.out, t, at + j,
                       f->a.scale * out[j] + skip_of(s) * ax_ref_get(&f->a.v, t, at + j));
        if (pieces && s->leaves >= 0)
            append(s, f, t, r, u);
        if (r == AX_DELTA_CHUNK - 1)
            round_state(s, state);
        if (pieces && r == AX_DELTA_CHUNK - 1)
            store_state(&f->a.states, s, s->leaves, state);
    }
    if (!pieces)
        store_state(&f->a.states, s, s->leaves, state);
}

/* Zeroes the rows that are no document's. */
static void clear(const struct ax_tensor *x, const struct ax_tensor *cu) {
    const int32_t first = ax_ref_i32(cu, 0), end = ax_ref_i32(cu, cu->shape[0] - 1);
    for (int64_t t = 0; t < x->shape[0]; t++)
        for (int64_t i = 0; (t < first || t >= end) && i < ax_tensor_row_len(x); i++)
            ax_ref_set(x, t, i, 0);
}

int64_t ax_ref_delta_forward_doubles(const struct ax_delta_forward *f) {
    const int64_t dk = f->a.q.shape[2], dv = f->a.v.shape[2];
    return 2 * dk + 2 * dv + dk * dv;
}

enum ax_status ax_ref_delta_forward(struct ax_queue *q, const struct ax_delta_forward *f,
                                    void *work) {
    (void)q;
    const struct ax_tensor *past = ax_ref_given(&f->past) ? &f->past : NULL;
    clear(&f->a.out, &f->a.cu);
    for (int64_t d = 0; d + 1 < f->a.cu.shape[0]; d++) {
        for (int64_t h = 0; h < f->a.v.shape[1]; h++) {
            const struct head s = head_of(&f->a, past, d, h);
            forward_head(&s, f, work);
            if (past != NULL && (h + 1) % s.group == 0)
                append_keys(&s, f, work);
        }
    }
    return AX_OK;
}

/* ---- backward: a chunk's states are computed from the one at its start, from the last chunk to the first ---- */

/* Memory for one head of one document; dq̂ and dk̂ are summed over the value heads of a key head. */
struct sums {
    double *k, *q, *u, *dout, *y, *du, *back; /* rows: k, q [dk], the others [dv] */
    double *dk, *dq;                          /* [T][dk] */
    double *d_state;                          /* gradient of the state after the token */
    double *decayed;                          /* the state before the token, with its decays */
    double *borders;                          /* of chunks: [T / CHUNK + 1] states */
    double *states;                           /* of a chunk: [CHUNK + 1] */
};

static struct sums carve(const struct ax_delta_rule *a, double *work, int64_t *doubles) {
    const int64_t tokens = a->q.shape[0], dk = a->q.shape[2], dv = a->v.shape[2], size = dk * dv;
    struct sums m;
    double *at = work;
    double **const parts[] = {&m.k,  &m.q,  &m.u,       &m.dout,    &m.y,       &m.du,    &m.back,
                              &m.dk, &m.dq, &m.d_state, &m.decayed, &m.borders, &m.states};
    const int64_t sizes[] = {dk,
                             dk,
                             dv,
                             dv,
                             dv,
                             dv,
                             dv,
                             tokens * dk,
                             tokens * dk,
                             size,
                             size,
                             (tokens / AX_DELTA_CHUNK + 1) * size,
                             (AX_DELTA_CHUNK + 1) * size};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        *parts[i] = work ? at : NULL;
        at = work ? at + sizes[i] : NULL;
        *doubles += sizes[i];
    }
    return m;
}

int64_t ax_ref_delta_backward_doubles(const struct ax_delta_backward *b) {
    int64_t doubles = 0;
    (void)carve(&b->a, NULL, &doubles);
    return doubles;
}

/* out = S·x. */
static void times_state(const struct head *s, const double *state, const double *x, double factor,
                        double *out) {
    for (int64_t i = 0; i < s->dk; i++)
        for (int64_t j = 0; j < s->dv; j++)
            out[i] += factor * state[i * s->dv + j] * x[j];
}

static double dot(const double *a, const double *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* dg and dS_before = e^g·dS of each channel, with dS the gradient of the decayed state. */
static void decay_gradients(const struct head *s, const struct ax_delta_backward *b,
                            const struct sums *m, int64_t t) {
    for (int64_t i = 0; i < s->dk; i++) {
        const int64_t col = s->h * s->dk + i;
        const double decay = exp(ax_ref_get(&b->a.g, t, col));
        double *row = m->d_state + i * s->dv;
        ax_ref_set(&b->dg, t, col, dot(row, m->decayed + i * s->dv, s->dv));
        for (int64_t j = 0; j < s->dv; j++)
            row[j] *= decay;
    }
}

/* The gradients of token t, with S before and after it. d_state becomes the gradient of the state before. If the rule
 * is additive, y and with it what comes back through it, dv, are 0 in all but dv itself.
 *   dS += q̂·doutᵀ;  dq̂ = S·dout;  du = dSᵀ·k̂;  dk̂ = dS·u − decay·S_before·dv;  dv = beta·du
 *   dbeta = du·(v − decay·y), y = S_beforeᵀ·k̂;  dg = decay·(Σ dS⊙S_before − y·dv)
 *   dS_before = decay·(dS − k̂·dvᵀ)
 * If channels have decays of their own, S_before has them applied, the decay is 1, and decay_gradients follows. */
static void backward_token(const struct head *s, const struct ax_delta_backward *b,
                           const struct sums *m, int64_t t, const double *before,
                           const double *after) {
    if (s->channels)
        memcpy(m->decayed, before, (size_t)(s->dk * s->dv) * sizeof *before);
    const double decay = decay_of(s, &b->a.g, t, s->h, m->decayed);
    before = s->channels ? m->decayed : before;
    const double beta = ax_ref_get(&b->a.beta, t, s->h);
    const int64_t dk = s->dk, dv = s->dv;
    double *dq_row = m->dq + t * dk, *dk_row = m->dk + t * dk;
    load_head(s, &b->a.k, t, s->key_head * dk, m->k);
    load_head(s, &b->a.q, t, s->key_head * dk, m->q);
    ax_ref_load_row(&b->dout, t, s->h * dv, dv, m->dout);
    times_state(s, after, m->dout, b->a.scale, dq_row);
    for (int64_t i = 0; i < dk * dv; i++)
        m->d_state[i] += b->a.scale * m->q[i / dv] * m->dout[i % dv];
    read_state(s, m->d_state, m->k, m->du);
    recall(s, before, m->k, m->y);
    double d_beta = 0, d_skip = 0;
    for (int64_t j = 0; j < dv; j++) {
        const double rest = ax_ref_get(&b->a.v, t, s->h * dv + j) - decay * m->y[j];
        m->u[j] = ax_ref_round(b->a.g.dtype, beta * rest);
        d_beta += m->du[j] * rest;
        m->back[j] = s->a->additive ? 0 : beta * m->du[j];
        d_skip += rest * m->dout[j];
        ax_ref_set(&b->dv, t, s->h * dv + j, beta * m->du[j] + skip_of(s) * m->dout[j]);
    }
    times_state(s, m->d_state, m->u, 1, dk_row);
    times_state(s, before, m->back, -decay, dk_row);
    const double d_decay = dot(m->d_state, before, dk * dv) - dot(m->y, m->back, dv);
    ax_ref_set(&b->dbeta, t, s->h, d_beta);
    if (ax_ref_given(&b->dskip))
        ax_ref_set(&b->dskip, t, s->h, d_skip);
    if (!s->channels)
        ax_ref_set(&b->dg, t, s->h, decay * d_decay);
    for (int64_t i = 0; i < dk * dv; i++)
        m->d_state[i] = decay * (m->d_state[i] - m->k[i / dv] * m->back[i % dv]);
    if (s->channels)
        decay_gradients(s, b, m, t);
}

static void backward_head(const struct head *s, const struct ax_delta_backward *b,
                          const struct sums *m) {
    const int64_t size = s->dk * s->dv, tokens = s->end - s->first;
    const size_t bytes = (size_t)size * sizeof(double);
    load_state(&b->a.states, s, s->enters, m->borders);
    const int64_t last = (tokens - 1) / AX_DELTA_CHUNK;
    for (int64_t i = 0; i < last * AX_DELTA_CHUNK; i++) {
        double *state = m->borders + i / AX_DELTA_CHUNK * size;
        if (i % AX_DELTA_CHUNK == 0)
            memcpy(state + size, state, bytes);
        step(s, s->first + i, m->k, m->u, state + size);
        if (i % AX_DELTA_CHUNK == AX_DELTA_CHUNK - 1)
            round_state(s, state + size);
    }
    load_state(&b->dstates, s, ax_ref_given(&b->dstates) ? s->leaves : -1, m->d_state);
    for (int64_t c = last; c >= 0 && tokens > 0; c--) {
        const int64_t first = s->first + c * AX_DELTA_CHUNK;
        const int64_t n = s->end - first < AX_DELTA_CHUNK ? s->end - first : AX_DELTA_CHUNK;
        memcpy(m->states, m->borders + c * size, bytes);
        for (int64_t i = 0; i < n; i++) {
            memcpy(m->states + (i + 1) * size, m->states + i * size, bytes);
            step(s, first + i, m->k, m->u, m->states + (i + 1) * size);
        }
        for (int64_t i = n - 1; i >= 0; i--)
            backward_token(s, b, m, first + i, m->states + i * size, m->states + (i + 1) * size);
    }
    if (ax_ref_given(&b->dstates))
        store_state(&b->dstates, s, s->enters, m->d_state);
}

/* dx = r·(dx̂ − x̂·(x̂·dx̂)), with the sums dx̂ of a key head, or dx̂ if the rule is additive. */
static void backward_norm(const struct head *s, const struct ax_tensor *x,
                          const struct ax_tensor *dx, int64_t t, int64_t col, const double *sum,
                          double *room) {
    const int64_t n = s->dk;
    const double r = load_head(s, x, t, col, room), along = s->a->additive ? 0 : dot(room, sum, n);
    for (int64_t i = 0; i < n; i++)
        ax_ref_set(dx, t, col + i, r * (sum[i] - room[i] * along));
}

enum ax_status ax_ref_delta_backward(struct ax_queue *q, const struct ax_delta_backward *b,
                                     void *work) {
    (void)q;
    int64_t doubles = 0;
    const struct sums m = carve(&b->a, work, &doubles);
    const struct ax_tensor *const results[] = {&b->dq, &b->dk,    &b->dv,
                                               &b->dg, &b->dbeta, &b->dskip};
    for (int i = 0; i < 6; i++)
        if (ax_ref_given(results[i]))
            clear(results[i], &b->a.cu);
    for (int64_t d = 0; d + 1 < b->a.cu.shape[0]; d++) {
        for (int64_t h = 0; h < b->a.v.shape[1]; h++) {
            const struct head s = head_of(&b->a, NULL, d, h);
            const size_t from = (size_t)(s.first * s.dk), n = (size_t)((s.end - s.first) * s.dk);
            if (h % s.group == 0) {
                memset(m.dq + from, 0, n * sizeof(double));
                memset(m.dk + from, 0, n * sizeof(double));
            }
            backward_head(&s, b, &m);
            for (int64_t t = s.first; t < s.end && (h + 1) % s.group == 0; t++) {
                const int64_t col = s.key_head * s.dk;
                backward_norm(&s, &b->a.q, &b->dq, t, col, m.dq + t * s.dk, m.q);
                backward_norm(&s, &b->a.k, &b->dk, t, col, m.dk + t * s.dk, m.k);
            }
        }
    }
    return AX_OK;
}
