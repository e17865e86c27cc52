/* ssd_gates_forward, ssd_gates_backward. As delta_gates.c: elements one by one, sums over tokens by the blocks of
 * rowsum.h. */
#include "kernels/cpu/vec/delta/gates.h"
#include "kernels/cpu/vec/entries.h"
#include "kernels/cpu/vec/rows/rowsum.h"

enum ax_status AX_VEC(ax_cpu_ssd_gates_forward)(struct ax_queue *q,
                                                const struct ax_ssd_gates_forward *f, void *work) {
    (void)work;
    const int64_t tokens = f->a.shape[0], heads = f->a.shape[1];
    AX_PARALLEL_FOR (team(q, 8 * tokens * heads), t, tokens) {
        for (int64_t h = 0; h < heads; h++) {
            const float x = at(&f->a, t, h) + of_head(&f->bias, h);
            const float step = fminf(fmaxf(softplus(x), (float)f->low), (float)f->high);
            put(&f->g, t, h, -exp_one(of_head(&f->log, h)) * step);
            put(&f->step, t, h, step);
        }
    }
    return AX_OK;
}

size_t AX_VEC(ax_cpu_ssd_gates_backward_workspace)(struct ax_queue *q,
                                                   const struct ax_ssd_gates_backward *b) {
    (void)q;
    return block_sums_bytes(b->a.shape[0], 3 * b->a.shape[1]);
}

/* Of a token; adds to the sums of dlog, dbias and dskip. */
static void backward_token(const struct ax_ssd_gates_backward *b, int64_t t, float *dlog,
                           float *dbias, float *dskip) {
    for (int64_t h = 0; h < b->a.shape[1]; h++) {
        const float rate = exp_one(of_head(&b->log, h)), dg = at(&b->dg, t, h);
        const float x = at(&b->a, t, h) + of_head(&b->bias, h), raw = softplus(x);
        const float step = fminf(fmaxf(raw, (float)b->low), (float)b->high);
        const float da = step == raw ? (at(&b->dstep, t, h) - rate * dg) / (1 + exp_one(-x)) : 0;
        put(&b->da, t, h, da);
        dlog[h] -= dg * rate * step;
        dbias[h] += da;
        dskip[h] += at(&b->shares, t, h);
    }
}

enum ax_status AX_VEC(ax_cpu_ssd_gates_backward)(struct ax_queue *q,
                                                 const struct ax_ssd_gates_backward *b,
                                                 void *work) {
    const int64_t tokens = b->a.shape[0], heads = b->a.shape[1];
    const struct row_blocks blocks = block_rows(tokens);
    const struct ax_tensor *const to[] = {&b->dlog, &b->dbias, &b->dskip};
    float *sums[3];
    for (int i = 0; i < 3; i++)
        sums[i] = (float *)work + i * blocks.count * heads;
    AX_PARALLEL_FOR (team(q, 8 * tokens * heads), i, blocks.count) {
        for (int k = 0; k < 3; k++)
            memset(sums[k] + i * heads, 0, (size_t)heads * sizeof(float));
        for (int64_t t = i * blocks.rows; t < least(tokens, (i + 1) * blocks.rows); t++)
            backward_token(b, t, sums[0] + i * heads, sums[1] + i * heads, sums[2] + i * heads);
    }
    for (int k = 0; k < 3; k++)
        if (to[k]->data)
            add_blocks(q, to[k]->data, sums[k], blocks.count, heads);
    return AX_OK;
}
