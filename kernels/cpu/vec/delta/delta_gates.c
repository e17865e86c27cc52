/* delta_gates_forward, delta_gates_backward. There are as many elements as heads in each token, which is little: they
 * are computed one by one. Sums over tokens by the blocks of rowsum.h. */
#include "kernels/cpu/vec/delta/gates.h"
#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/rows/rowsum.h"

static float sigmoid_of(float x) {
    return 1 / (1 + exp_one(-x));
}

/* Heads, those of a row, and rows per token. */
struct heads {
    int64_t count, row, rows;
};
static struct heads heads_of(const struct ax_tensor *a, const struct ax_tensor *log) {
    return (struct heads){log->shape[0], a->shape[1], log->shape[0] / a->shape[1]};
}

enum ax_status AX_VEC(ax_cpu_delta_gates_forward)(struct ax_queue *q,
                                                  const struct ax_delta_gates_forward *f,
                                                  void *work) {
    (void)work;
    const struct heads s = heads_of(&f->a, &f->log);
    const int64_t tokens = f->a.shape[0] / s.rows;
    AX_PARALLEL_FOR (team(q, 8 * tokens * s.count), t, tokens) {
        for (int64_t h = 0; h < s.count; h++) {
            const int64_t n = t * s.rows + h / s.row, j = h % s.row;
            const float x = at(&f->a, n, j) + of_head(&f->bias, h);
            put(&f->g, n, j, -exp_one(of_head(&f->log, h)) * softplus(x));
            put(&f->beta, n, j, (float)f->scale * sigmoid_of(at(&f->b, n, j)));
        }
    }
    return AX_OK;
}

size_t AX_VEC(ax_cpu_delta_gates_backward_workspace)(struct ax_queue *q,
                                                     const struct ax_delta_gates_backward *b) {
    (void)q;
    const struct heads s = heads_of(&b->a, &b->log);
    return block_sums_bytes(b->a.shape[0] / s.rows, 2 * s.count);
}

/* Of a token; adds to the sums of dlog and of dbias. */
static void backward_token(const struct ax_delta_gates_backward *b, const struct heads *s,
                           int64_t t, float *dlog, float *dbias) {
    for (int64_t h = 0; h < s->count; h++) {
        const int64_t n = t * s->rows + h / s->row, j = h % s->row;
        const float x = at(&b->a, n, j) + of_head(&b->bias, h),
                    strength = sigmoid_of(at(&b->b, n, j));
        const float scaled = -at(&b->dg, n, j) * exp_one(of_head(&b->log, h));
        const float da = scaled * sigmoid_of(x);
        put(&b->da, n, j, da);
        put(&b->db, n, j, at(&b->dbeta, n, j) * (float)b->scale * strength * (1 - strength));
        dlog[h] += scaled * softplus(x);
        dbias[h] += da;
    }
}

enum ax_status AX_VEC(ax_cpu_delta_gates_backward)(struct ax_queue *q,
                                                   const struct ax_delta_gates_backward *b,
                                                   void *work) {
    const struct heads s = heads_of(&b->a, &b->log);
    const int64_t tokens = b->a.shape[0] / s.rows;
    const struct row_blocks blocks = block_rows(tokens);
    float *dlog = work, *dbias = dlog + blocks.count * s.count;
    AX_PARALLEL_FOR (team(q, 8 * tokens * s.count), i, blocks.count) {
        memset(dlog + i * s.count, 0, (size_t)s.count * sizeof *dlog);
        memset(dbias + i * s.count, 0, (size_t)s.count * sizeof *dbias);
        for (int64_t t = i * blocks.rows; t < least(tokens, (i + 1) * blocks.rows); t++)
            backward_token(b, &s, t, dlog + i * s.count, dbias + i * s.count);
    }
    if (b->dlog.data)
        add_blocks(q, b->dlog.data, dlog, blocks.count, s.count);
    if (b->dbias.data)
        add_blocks(q, b->dbias.data, dbias, blocks.count, s.count);
    return AX_OK;
}
