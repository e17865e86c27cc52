/* The table of the reference backend, and its workspaces. */
#include "kernels/ref/ref.h"

#include "kernels/ref/delta.h"

static int64_t head_rows(const struct ax_attention *a) {
    return 3 * (a->k.shape[2] + a->v.shape[2]);
}

/* Some of a and of sums, and one of b, which is as long as either. */
static int64_t gemm_rows(int64_t k, int64_t n) {
    return AX_REF_GEMM_ROWS * (k + n) + (k > n ? k : n);
}

/* Rows of doubles: six of one head in attention, three as long as keys and three as long as values
 * (see attention.c); a query, a key, and scores and marks of all keys in top_keys; those of gemm.c in gemm and grouped_gemm; delta.h's;
 * three of a row in sample and truncate. */
static size_t ref_workspace(struct ax_queue *q, enum ax_op op, const void *args) {
    (void)q;
    int64_t doubles = 0;
    if (op == AX_OP_attention_forward) {
        doubles = head_rows(&((const struct ax_attention_forward *)args)->a);
    } else if (op == AX_OP_attention_backward) {
        doubles = head_rows(&((const struct ax_attention_backward *)args)->a);
    } else if (op == AX_OP_top_keys) {
        const struct ax_top_keys *t = args;
        doubles = 2 * (t->q.shape[2] + t->max_k);
    } else if (op == AX_OP_gemm) {
        const struct ax_gemm *g = args;
        doubles = gemm_rows(g->trans_a ? g->a.shape[0] : g->a.shape[1], g->c.shape[1]);
    } else if (op == AX_OP_grouped_gemm) {
        const struct ax_grouped_gemm *g = args;
        /* rows of a group: at most all */
        doubles = gemm_rows(g->a.shape[g->trans_a ? 0 : 1], g->c.shape[g->c.ndim - 1]);
    } else if (op == AX_OP_delta_forward) {
        doubles = ax_ref_delta_forward_doubles(args);
    } else if (op == AX_OP_delta_backward) {
        doubles = ax_ref_delta_backward_doubles(args);
    } else if (op == AX_OP_sample) {
        doubles = 3 * ((const struct ax_sample *)args)->logits.shape[1];
    } else if (op == AX_OP_truncate) {
        doubles = 3 * ((const struct ax_truncate *)args)->all.shape[1];
    }
    return (size_t)doubles * sizeof(double);
}

const struct ax_ops ax_ops_ref = {.name = "ref",
                                  .device = &ax_device_host,
                                  .workspace = ref_workspace,
#define ENTRY(op) .op = ax_ref_##op,
                                  AX_OP_LIST(ENTRY)
#undef ENTRY
};
