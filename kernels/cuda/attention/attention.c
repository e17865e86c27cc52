/* attention_forward and attention_backward: by cuDNN, or where it is not there or does not take a call, by
 * our own kernels. Which of them it is depends on the library and on shapes, never on values. */
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
    if (!ax_dnn_suits(a, NULL))
        return ax_cuda_own_attention_forward(q, a);
    const struct ax_cudnn_shape s = ax_dnn_shape(a, NULL);
    if (ax_dnn_work(q, &s) > ax_dnn_room(&s)) {
        ax_dnn_say_refused(q, false);
        return ax_cuda_own_attention_forward(q, a);
    }
    struct ax_cudnn_operands o = {0};
    char *at = work;
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

/* Also of some heads that do not begin at a multiple of 16 bytes. */
static bool has_own_lse(const struct ax_attention *a) {
    return a->softcap > 0 || (a->lse.shape[1] < a->lse.row_stride && a->lse.shape[1] % 4 != 0);
}

static struct ax_tensor own_lse(const struct ax_tensor *lse, char **work) {
    const int64_t rows = lse->shape[0] + AX_DNN_BEHIND, heads = lse->shape[1];
    return ax_tensor_2d(AX_F32, take(work, (size_t)(rows * heads) * sizeof(float)), rows, heads);
}

/* A call as it is given to cuDNN, with what it takes of the workspace. */
struct given {
    struct ax_attention_backward b; /* with an lse (ax_dnn_finite_lse) and results of its own */
    struct ax_cudnn_shape s;
    void *lists, *work;
};

static struct given as_given(const struct ax_attention_backward *b, char *work) {
    struct given g = {.b = *b};
    if (has_own_lse(&b->a))
        g.b.a.lse = own_lse(&b->a.lse, &work);
    if (has_short_rows(&b->a)) {
        g.b.dk = short_rows(&b->dk, &work);
        g.b.dv = short_rows(&b->dv, &work);
    }
    g.s = ax_dnn_shape(&g.b.a, &g.b);
    g.lists = take(&work, ax_dnn_list_bytes(&g.s));
    g.work = take(&work, 0);
    return g;
}

/* What is before cuDNN's own workspace; only how far the address moves counts. */
static size_t bytes_before(const struct given *g) {
    return (size_t)((uintptr_t)g->work - ALIGN);
}
static struct given as_planned(const struct ax_attention_backward *b) {
    return as_given(b, (char *)ALIGN);
}

size_t ax_cuda_attention_backward_work(const struct ax_attention_backward *b) {
    const size_t own = ax_cuda_own_attention_backward_work(b);
    if (!ax_dnn_suits(&b->a, b))
        return own;
    const struct given g = as_planned(b);
    const size_t bytes = padded(bytes_before(&g) + ax_dnn_room(&g.s));
    return bytes > own ? bytes : own;
}

/* ---- some heads at a time ---- */

/* Heads first … first + n of [rows][heads] or [rows][heads][size]. */
static struct ax_tensor heads_of(const struct ax_tensor *t, int64_t first, int64_t n) {
    struct ax_tensor s = *t;
    const int64_t size = t->ndim == 3 ? t->shape[2] : 1;
    s.shape[1] = n;
    s.data = (char *)t->data + (size_t)(first * size) * ax_dtype_size(t->dtype);
    return s;
}

/* The part of a call that is n KV heads, and their queries'. Rows are as far apart as before. */
static struct ax_attention_backward part_of(const struct ax_attention_backward *b, int64_t first,
                                            int64_t n) {
    struct ax_attention_backward s = *b;
    const int64_t group = b->a.q.shape[1] / b->a.k.shape[1];
    struct ax_tensor *of_queries[] = {&s.a.q, &s.a.out, &s.a.lse, &s.dout, &s.dq};
    struct ax_tensor *of_keys[] = {&s.a.k, &s.a.v, &s.dk, &s.dv};
    for (size_t i = 0; i < sizeof of_queries / sizeof *of_queries; i++)
        *of_queries[i] = heads_of(of_queries[i], first * group, n * group);
    for (size_t i = 0; i < sizeof of_keys / sizeof *of_keys; i++)
        *of_keys[i] = heads_of(of_keys[i], first, n);
    return s;
}

/* Fewer KV heads, by which `heads` can be divided, if these take `wanted` bytes. */
static int64_t fewer_heads(int64_t heads, size_t wanted, size_t room) {
    int64_t n = (int64_t)((double)heads * (double)room / (double)wanted);
    while (n > 1 && heads % n != 0)
        n--;
    return n > 1 ? n : 1;
}

int64_t ax_dnn_heads(const struct ax_attention_backward *b,
                     size_t (*work)(void *of, const struct ax_cudnn_shape *s), void *of) {
    const size_t bytes = ax_cuda_attention_backward_work(b);
    for (int64_t n = b->a.k.shape[1];;) {
        const struct ax_attention_backward part = part_of(b, 0, n);
        const struct given g = as_planned(&part);
        const size_t before = padded(bytes_before(&g)), room = bytes > before ? bytes - before : 0;
        const size_t wanted = work(of, &g.s);
        if (wanted <= room)
            return n;
        if (wanted == AX_DNN_REFUSED || n == 1)
            return 0;
        n = fewer_heads(n, wanted, room);
    }
}

static enum ax_status part_by_cudnn(struct ax_queue *q, const struct ax_attention_backward *b,
                                    char *work) {
    struct ax_cudnn_operands o = {0};
    const struct given g = as_given(b, work);
    set_forward(&o, &g.b.a);
    o.data[AX_CUDNN_DOUT] = g.b.dout.data;
    o.data[AX_CUDNN_DQ] = g.b.dq.data;
    o.data[AX_CUDNN_DK] = g.b.dk.data;
    o.data[AX_CUDNN_DV] = g.b.dv.data;
    if (has_own_lse(&b->a))
        AX_TRY(ax_dnn_finite_lse(q, &b->a, &g.b.a.lse));
    AX_TRY(ax_dnn_list(q, &b->a, &g.s, g.lists, &o));
    AX_TRY(ax_dnn_run(q, &g.s, &o, g.work));
    if (!has_short_rows(&b->a))
        return AX_OK;
    AX_TRY(ax_cuda_copy(q, &(struct ax_copy){.dst = b->dk, .src = g.b.dk}, NULL));
    return ax_cuda_copy(q, &(struct ax_copy){.dst = b->dv, .src = g.b.dv}, NULL);
}

/* Parts are one after another, and share the workspace. */
static enum ax_status by_cudnn(struct ax_queue *q, const struct ax_attention_backward *b, int64_t n,
                               void *work) {
    for (int64_t first = 0; first < b->a.k.shape[1]; first += n) {
        const struct ax_attention_backward part = part_of(b, first, n);
        AX_TRY(part_by_cudnn(q, &part, work));
    }
    AX_TRY(ax_dnn_finish_backward(q, &b->dq, &b->a.cu_q));
    AX_TRY(ax_dnn_finish_backward(q, &b->dk, &b->a.cu_k));
    return ax_dnn_finish_backward(q, &b->dv, &b->a.cu_k);
}

static size_t work_of(void *q, const struct ax_cudnn_shape *s) {
    return ax_dnn_work(q, s);
}

enum ax_status ax_cuda_attention_backward(struct ax_queue *q, const struct ax_attention_backward *b,
                                          void *work) {
    if (!ax_dnn_suits(&b->a, b))
        return ax_cuda_own_attention_backward(q, b, work);
    const int64_t heads = ax_dnn_heads(b, work_of, q);
    if (heads == 0) {
        ax_dnn_say_refused(q, true);
        return ax_cuda_own_attention_backward(q, b, work);
    }
    if (heads < b->a.k.shape[1])
        ax_dnn_say_parts(q, b->a.k.shape[1] / heads);
    AX_TRY(by_cudnn(q, b, heads, work));
    return b->dsink.data ? ax_cuda_own_attention_dsink(q, b, work) : AX_OK;
}
