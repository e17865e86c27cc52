/* attention_forward and attention_backward: by cuDNN, or in decoding, and where it is not there or does not
 * take a call, by our own kernels. Which of them it is depends on the library and on shapes, never on values; and backward, on whether bits may vary. */
#include "kernels/cuda/attention/tensor.h"
#include "kernels/cuda/state.h"
#include "kernels/operands.h"

/* From the workspace, at addresses that are multiples of 256. */
#define ALIGN ((size_t)256)
static void *take(char **work, size_t bytes) {
    char *at = (char *)(((uintptr_t)*work + ALIGN - 1) & -(uintptr_t)ALIGN);
    *work = at + bytes;
    return at;
}
static size_t padded(size_t bytes) {
    return bytes + ALIGN;
}

/* ---- forward ---- */

size_t ax_cuda_attention_forward_work(const struct ax_attention_forward *f) {
    if (ax_decode_attention_suits(&f->a))
        return padded(ax_decode_attention_work(&f->a));
    if (!ax_dnn_suits(&f->a, NULL))
        return 0;
    const struct ax_cudnn_shape s = ax_dnn_shape(&f->a, NULL);
    return padded(ax_dnn_list_bytes(&s)) + padded(ax_dnn_room(&s));
}

static void set_forward(struct ax_cudnn_operands *o, const struct ax_attention *a) {
    o->data[AX_CUDNN_Q] = a->q.data;
    o->data[AX_CUDNN_K] = a->k.data;
    o->data[AX_CUDNN_V] = a->v.data;
    o->data[AX_CUDNN_OUT] = a->out.data;
    o->data[AX_CUDNN_LSE] = a->lse.data;
    o->sink = a->sink.data;
}

enum ax_status ax_cuda_attention_forward(struct ax_queue *q, const struct ax_attention_forward *f,
                                         void *work) {
    const struct ax_attention *a = &f->a;
    char *at = work;
    if (ax_decode_attention_suits(a))
        return ax_decode_attention_forward(q, a, take(&at, 0));
    if (!ax_dnn_suits(a, NULL))
        return ax_cuda_own_attention_forward(q, a);
    const struct ax_cudnn_shape s = ax_dnn_shape(a, NULL);
    if (!ax_dnn_takes(q, &s))
        return ax_cuda_own_attention_forward(q, a);
    struct ax_cudnn_operands o = {0};
    void *lists = take(&at, ax_dnn_list_bytes(&s));
    set_forward(&o, a);
    AX_TRY(ax_dnn_list(q, a, &s, lists, &o));
    AX_TRY(ax_dnn_run(q, &s, &o, take(&at, 0)));
    return ax_dnn_finish_forward(q, a);
}

/* ---- backward ---- */

/* With fewer KV heads than queries, cuDNN first computes dk and dv of each query head, in rows that are as
 * many times longer than dk's and dv's. These are part of wider rows, so that the results go to short
 * rows first. */
static bool has_short_rows(const struct ax_attention *a) {
    return a->k.shape[1] < a->q.shape[1];
}

static struct ax_tensor short_rows(const struct ax_tensor *t, char **work) {
    struct ax_tensor s = *t;
    s.row_stride = t->shape[1] * t->shape[2];
    s.data = take(work, ax_tensor_bytes(&s));
    return s;
}

static struct ax_tensor finite_lse(const struct ax_tensor *lse, char **work) {
    const int64_t rows = lse->shape[0] + AX_DNN_BEHIND, heads = lse->shape[1];
    return ax_tensor_2d(AX_F32, take(work, (size_t)(rows * heads) * sizeof(float)), rows, heads);
}

/* The same call as it is given to cuDNN, with an lse (ax_dnn_finite_lse) and results at *work. */
static struct ax_attention_backward as_given(const struct ax_attention_backward *b, char **work) {
    struct ax_attention_backward s = *b;
    if (b->a.softcap > 0)
        s.a.lse = finite_lse(&b->a.lse, work);
    if (!has_short_rows(&b->a))
        return s;
    s.dk = short_rows(&b->dk, work);
    s.dv = short_rows(&b->dv, work);
    return s;
}

size_t ax_cuda_attention_backward_work(const struct ax_attention_backward *b) {
    const size_t own = ax_cuda_own_attention_backward_work(b);
    size_t bytes = 0;
    if (!ax_dnn_suits(&b->a, b))
        return own;
    char *at = (char *)ALIGN; /* only how far it moves counts */
    const struct ax_attention_backward there = as_given(b, &at);
    const struct ax_cudnn_shape s = ax_dnn_shape(&there.a, &there);
    bytes = (size_t)(uintptr_t)at + padded(ax_dnn_list_bytes(&s)) + padded(ax_dnn_room(&s));
    return bytes > own ? bytes : own;
}

static enum ax_status by_cudnn(struct ax_queue *q, const struct ax_attention_backward *b,
                               const struct ax_attention_backward *there,
                               const struct ax_cudnn_shape *s, char *at) {
    struct ax_cudnn_operands o = {0};
    void *lists = take(&at, ax_dnn_list_bytes(s));
    set_forward(&o, &there->a);
    o.data[AX_CUDNN_DOUT] = b->dout.data;
    o.data[AX_CUDNN_DQ] = there->dq.data;
    o.data[AX_CUDNN_DK] = there->dk.data;
    o.data[AX_CUDNN_DV] = there->dv.data;
    if (b->a.softcap > 0)
        AX_TRY(ax_dnn_finite_lse(q, &b->a, &there->a.lse));
    AX_TRY(ax_dnn_list(q, &b->a, s, lists, &o));
    AX_TRY(ax_dnn_run(q, s, &o, take(&at, 0)));
    AX_TRY(ax_dnn_finish_backward(q, &there->dq, &b->a.cu_q));
    AX_TRY(ax_dnn_finish_backward(q, &there->dk, &b->a.cu_k));
    AX_TRY(ax_dnn_finish_backward(q, &there->dv, &b->a.cu_k));
    if (!has_short_rows(&b->a))
        return AX_OK;
    AX_TRY(ax_cuda_copy(q, &(struct ax_copy){.dst = b->dk, .src = there->dk}, NULL));
    return ax_cuda_copy(q, &(struct ax_copy){.dst = b->dv, .src = there->dv}, NULL);
}

enum ax_status ax_cuda_attention_backward(struct ax_queue *q, const struct ax_attention_backward *b,
                                          void *work) {
    if (!ax_dnn_suits(&b->a, b))
        return ax_cuda_own_attention_backward(q, b, work);
    char *at = work;
    const struct ax_attention_backward there = as_given(b, &at);
    struct ax_cudnn_shape s = ax_dnn_shape(&there.a, &there);
    if (q->attention_varies)
        s.backward = AX_CUDNN_VARIES;
    if (!ax_dnn_takes(q, &s))
        return ax_cuda_own_attention_backward(q, b, work);
    AX_TRY(by_cudnn(q, b, &there, &s, at));
    return b->dsink.data ? ax_cuda_own_attention_dsink(q, b, work) : AX_OK;
}
