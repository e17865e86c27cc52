#include "model/parts/qkv.h"

int64_t ax_qkv_q_heads(const struct ax_layer *l, const struct ax_arch *a) {
    return l->attention.o.weight[0]->local_shape[1] / a->v_head_dim;
}
int64_t ax_qkv_kv_heads(const struct ax_layer *l, const struct ax_arch *a) {
    const int64_t tp = a->n_heads / ax_qkv_q_heads(l, a);
    return a->n_kv_heads < tp ? a->n_kv_heads : a->n_kv_heads / tp;
}

/* q, k, v of all heads, [T][…], from one matrix: its columns of this rank's heads are copied to or from
 * `own`. */
static enum ax_status copy_own(const struct ax_layer *l, const struct ax_pass *p,
                               const struct ax_tensor *all, const struct ax_tensor *own, bool to) {
    const struct ax_arch *a = &p->model->arch;
    const struct ax_mesh *mesh = &p->model->rt->mesh;
    const int64_t rank = mesh->coord[AX_ROLE_TP], Hq = ax_qkv_q_heads(l, a),
                  Hk = ax_qkv_kv_heads(l, a);
    const int64_t hd = a->head_dim, vd = a->v_head_dim, k = a->n_heads * hd;
    const int64_t first_kv = ax_tp_kv_replicated(mesh, a->n_kv_heads) ? 0 : rank * Hk;
    const struct {
        int64_t from, n;
    } parts[] = {{rank * Hq * hd, Hq * hd},
                 {k + first_kv * hd, Hk * hd},
                 {k + a->n_kv_heads * hd + first_kv * vd, Hk * vd}};
    for (int64_t i = 0, at = 0; i < 3; at += parts[i++].n) {
        const struct ax_tensor there = ax_tensor_cols(all, parts[i].from, parts[i].n);
        const struct ax_tensor here = ax_tensor_cols(own, at, parts[i].n);
        AX_TRY(
            ax_run_copy(p->model->rt->q, &(struct ax_copy){to ? there : here, to ? here : there}));
    }
    return AX_OK;
}

/* Memory for this rank's rows of q, k, v of all heads. */
static struct ax_tensor take_rows(const struct ax_layer *l, const struct ax_pass *p) {
    struct ax_runtime *rt = p->model->rt;
    struct ax_tensor t = ax_tensor_2d(p->model->dtype, NULL, ax_tp_rows(rt, p->batch->T),
                                      ax_linear_out(&l->attention.qkv));
    t.data = ax_stack_push(&rt->arena.scratch, "q, k, v of own rows", ax_tensor_bytes(&t));
    return t;
}

enum ax_status ax_qkv_forward(const struct ax_layer *l, const struct ax_pass *p,
                              const struct ax_tensor *h, const struct ax_tensor *qkv) {
    struct ax_runtime *rt = p->model->rt;
    const struct ax_linear *lin = &l->attention.qkv;
    if (lin->split != AX_SPLIT_NONE || rt->mesh.size[AX_ROLE_TP] == 1)
        return ax_linear_forward(rt, lin, h, NULL, qkv);
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct ax_tensor rows = take_rows(l, p);
    struct ax_tensor all;
    AX_TRY(ax_linear_forward(rt, lin, h, NULL, &rows));
    AX_TRY(ax_tp_gather(rt, &rows, &all));
    AX_TRY(copy_own(l, p, &all, qkv, false));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}

enum ax_status ax_qkv_backward(const struct ax_layer *l, const struct ax_pass *p,
                               const struct ax_tensor *h, const struct ax_tensor *d_qkv,
                               const struct ax_tensor *dh) {
    struct ax_runtime *rt = p->model->rt;
    const struct ax_linear *lin = &l->attention.qkv;
    if (lin->split != AX_SPLIT_NONE || rt->mesh.size[AX_ROLE_TP] == 1)
        return ax_linear_backward(rt, lin, h, d_qkv, dh);
    const size_t mark = ax_stack_mark(&rt->arena.scratch);
    const struct ax_tensor rows = take_rows(l, p), all = ax_tp_partial(rt, &rows);
    AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){all, 0}));
    AX_TRY(copy_own(l, p, &all, d_qkv, true));
    AX_TRY(ax_tp_reduce(rt, &all, NULL, &rows));
    AX_TRY(ax_linear_backward(rt, lin, h, &rows, dh));
    ax_stack_release(&rt->arena.scratch, mark);
    return AX_OK;
}
