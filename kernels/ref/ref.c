/* The table of the reference backend, its workspaces, and rows as doubles. */
#include "kernels/ref/ref.h"

void ax_ref_load_row(const struct ax_tensor *t, int64_t row, int64_t col, int64_t n, double *out) {
    for (int64_t i = 0; i < n && t->panels; i++) {
        out[i] = ax_ref_get(t, row, col + i);
    }
    if (t->panels) {
        return;
    }
    const char *from = (const char *)ax_tensor_row(t, row) + (size_t)col * ax_dtype_size(t->dtype);
    ax_convert(AX_F64, out, t->dtype, from, n);
}

void ax_ref_store_row(const struct ax_tensor *t, int64_t row, int64_t col, int64_t n,
                      const double *values) {
    char *to = (char *)ax_tensor_row(t, row) + (size_t)col * ax_dtype_size(t->dtype);
    ax_convert(t->dtype, to, AX_F64, values, n);
}

double ax_ref_round(enum ax_dtype dtype, double value) {
    double room; /* as large as any element */
    ax_store(dtype, &room, 0, value);
    return ax_load(dtype, &room, 0);
}

/* Rows of doubles: six of one head in attention (see ref_attention.c), two and one of sums in gemm
 * and grouped_gemm.
 */
static size_t ref_workspace(struct ax_queue *q, enum ax_op op, const void *args) {
    (void)q;
    int64_t doubles = 0;
    if (op == AX_OP_attention_forward) {
        doubles = 6 * ((const struct ax_attention_forward *)args)->a.q.shape[2];
    } else if (op == AX_OP_attention_backward) {
        doubles = 6 * ((const struct ax_attention_backward *)args)->a.q.shape[2];
    } else if (op == AX_OP_gemm) {
        const struct ax_gemm *g = args;
        int64_t k = g->trans_a ? g->a.shape[0] : g->a.shape[1];
        doubles = 2 * k + g->c.shape[1];
    } else if (op == AX_OP_grouped_gemm) {
        const struct ax_grouped_gemm *g = args;
        int64_t k = g->a.shape[g->trans_a ? 0 : 1]; /* rows of a group: at most all */
        doubles = 2 * k + g->c.shape[g->c.ndim - 1];
    }
    return (size_t)doubles * sizeof(double);
}

const struct ax_ops ax_ops_ref = {.name = "ref",
                                  .workspace = ref_workspace,
#define ENTRY(op) .op = ax_ref_##op,
                                  AX_OP_LIST(ENTRY)
#undef ENTRY
};
