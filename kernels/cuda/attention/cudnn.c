/* cuDNN's attention, opened at run time, and its plans: one per kind of call. Making one takes long, so
 * that numbers of rows and documents are rounded up; kinds that cuDNN refuses are remembered as well. */
#include "kernels/cuda/attention/cudnn.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "kernels/cuda/graphs.h"
#include "kernels/cuda/libraries.h"
#include "kernels/cuda/state.h"
#include "kernels/operands.h"

#define KINDS 256
#define ROOM                                                                                       \
    ((size_t)16 << 20) /* beside what can be added up: cuDNN 9.28 takes 2 MiB for an H100 */

struct kind {
    struct ax_cudnn_shape shape;
    struct ax_cudnn_plan *plan; /* NULL: refused */
};

struct ax_dnn {
    const struct ax_cudnn_calls *calls;
    struct ax_cudnn *handle; /* NULL: there is no cuDNN */
    size_t version;
    bool said;    /* a refusal */
    int taken[2]; /* calls forward, backward */
    int n;
    struct kind kinds[KINDS];
};

/* ---- opening ---- */

enum ax_status ax_dnn_find(const struct ax_cudnn_calls **calls, void **function, size_t *version) {
    const struct ax_cudnn_calls *(*get)(void);
    size_t (*get_version)(void);
    const struct ax_symbol shim[] = {{"ax_cudnn_get", &get}};
    const struct ax_symbol library[] = {{"cudnnGetVersion", &get_version}};
    const struct ax_symbol runtime[] = {{"cudaRuntimeGetVersion", function}};
    AX_TRY(ax_cuda_library_open(AX_CUDNN_SHIM, "This axtrain was built without cuDNN's headers.",
                                shim, 1));
    *calls = get();
    if (strcmp((*calls)->version, AX_VERSION) != 0)
        return ax_error(AX_ERR_UNSUPPORTED,
                        AX_CUDNN_SHIM " is of axtrain %s, and this is axtrain " AX_VERSION,
                        (*calls)->version);
    AX_TRY(ax_cuda_library_open(AX_CUDART_FILE, "Install it: pip install nvidia-cuda-runtime.",
                                runtime, 1));
    AX_TRY(ax_cuda_library_open(AX_CUDNN_FILE, "Install it: pip install nvidia-cudnn-cu13.",
                                library, 1));
    memcpy(function, &get_version, sizeof get_version);
    *version = get_version();
    if (*version < AX_CUDNN_OLDEST)
        return ax_error(AX_ERR_UNSUPPORTED,
                        AX_CUDNN_FILE " is cuDNN %zu.%zu. Install %d.%d or later, which is for "
                                      "CUDA 13: pip install nvidia-cudnn-cu13.",
                        *version / 10000, *version / 100 % 100, AX_CUDNN_OLDEST / 10000,
                        AX_CUDNN_OLDEST / 100 % 100);
    return AX_OK;
}

/* Once, whatever the number of queues. */
static void say_own(const char *why) {
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&said))
        ax_log_info("cuda: attention by our own kernels: %.400s", why);
}

enum ax_status ax_dnn_open(struct ax_dnn **out) {
    struct ax_dnn *d;
    char text[AX_CUDNN_TEXT] = "";
    void *function;
    const char *wish = getenv("AXTRAIN_CUDNN");
    AX_TRY(ax_alloc(&d, 1, sizeof *d));
    *out = d;
    if (wish && strcmp(wish, "off") == 0)
        return AX_OK;
    if (ax_dnn_find(&d->calls, &function, &d->version) != AX_OK) {
        say_own(ax_error_text());
        ax_error_clear();
    } else if (d->calls->open(&d->handle, function, NULL, text) != AX_CUDNN_DONE) {
        say_own(text);
        d->handle = NULL;
    }
    return AX_OK;
}

static void forget_all(struct ax_dnn *d) {
    for (int i = 0; i < d->n; i++)
        if (d->kinds[i].plan)
            d->calls->forget(d->kinds[i].plan);
    d->n = 0;
}

void ax_dnn_close(struct ax_dnn *d) {
    if (!d)
        return;
    forget_all(d);
    if (d->handle)
        d->calls->close(d->handle);
    ax_free(d);
}

/* ---- kinds of calls ---- */

/* The smallest number ≥ n with at most `bits` significant bits. */
static int64_t round_up(int64_t n, int bits) {
    int64_t unit = 1;
    while (n >= unit << bits)
        unit *= 2;
    return (n + unit - 1) / unit * unit;
}

/* Rows begin at multiples of 16 bytes. */
static bool is_aligned(const struct ax_tensor *t) {
    return (uintptr_t)t->data % 16 == 0 && t->row_stride % 8 == 0 && t->shape[2] % 8 == 0;
}

static bool are_aligned(const struct ax_attention_backward *b) {
    return is_aligned(&b->dout) && is_aligned(&b->dq) && is_aligned(&b->dk) && is_aligned(&b->dv);
}

/* Backward, the queries' documents are the keys', so that each query sees at least itself: one without
 * keys has no finite lse, and would spoil sums of others. */
bool ax_dnn_suits(const struct ax_attention *a, const struct ax_attention_backward *b) {
    return a->q.dtype == AX_BF16 && a->ahead == 0 && !a->chosen.data &&
           (!a->block_table.data || a->block_size > 1) && a->q.shape[0] > 0 && a->k.shape[0] > 0 &&
           a->cu_q.shape[0] > 1 && a->max_q > 0 && a->max_k > 0 && is_aligned(&a->q) &&
           is_aligned(&a->k) && is_aligned(&a->v) && is_aligned(&a->out) &&
           (!b || (are_aligned(b) && a->cu_q.data == a->cu_k.data));
}

/* Where there is one query at most, which our own kernel computes unless heads have more than 256 elements, cuDNN
 * has no sink, and computes a row for documents without queries, too (seen with 9.14 and 9.19 on an H200),
 * which is the next document's. */
static int64_t most_queries(const struct ax_attention *a) {
    return a->max_q > 2 ? a->max_q : 2;
}

struct ax_cudnn_shape ax_dnn_shape(const struct ax_attention *a,
                                   const struct ax_attention_backward *b) {
    const bool in_blocks = a->block_table.data;
    const int bits = in_blocks ? 1 : 4;
    struct ax_cudnn_shape s = {.documents = round_up(a->cu_q.shape[0] - 1, bits),
                               .max_q = round_up(most_queries(a), bits),
                               .max_k = in_blocks ? a->block_table.shape[1] * a->block_size
                                                  : round_up(a->max_k, bits),
                               .rows_q = b ? round_up(a->q.shape[0], bits) : 0,
                               .rows_k = in_blocks ? a->k.shape[0]
                                         : b       ? round_up(a->k.shape[0], bits)
                                                   : 0,
                               .heads_q = a->q.shape[1],
                               .heads_k = a->k.shape[1],
                               .size_qk = a->q.shape[2],
                               .size_v = a->v.shape[2],
                               .window = a->window,
                               .scale = (float)a->scale,
                               .softcap = (float)a->softcap,
                               .block_size = in_blocks ? (int32_t)a->block_size : 0,
                               .causal = a->causal,
                               .sink = !b && a->sink.data,
                               .backward = b ? AX_CUDNN_FIXED : AX_CUDNN_NO_BACKWARD};
    const struct ax_tensor *t[AX_CUDNN_TENSORS] = {&a->q, &a->k, &a->v, &a->out, &a->lse};
    if (b) {
        t[AX_CUDNN_DOUT] = &b->dout;
        t[AX_CUDNN_DQ] = &b->dq;
        t[AX_CUDNN_DK] = &b->dk;
        t[AX_CUDNN_DV] = &b->dv;
    }
    for (int i = 0; i < AX_CUDNN_TENSORS; i++)
        s.stride[i] = t[i] ? t[i]->row_stride : 0;
    return s;
}

/* Backward: dq and δ in F32, in rows as long as dq's and lse's; and with fewer KV heads, dk and dv of each
 * query head. */
size_t ax_dnn_room(const struct ax_cudnn_shape *s) {
    int64_t floats = 0;
    if (s->backward)
        floats = s->rows_q * (s->stride[AX_CUDNN_DQ] + s->stride[AX_CUDNN_LSE]);
    if (s->backward && s->heads_k < s->heads_q)
        floats += s->rows_k * (s->heads_q / s->heads_k) *
                  (s->stride[AX_CUDNN_DK] + s->stride[AX_CUDNN_DV]);
    return (size_t)floats * sizeof(float) + ROOM;
}

/* ---- plans ---- */

static void say(struct ax_dnn *d, const struct ax_cudnn_shape *s, const char *text) {
    if (!d->said)
        ax_log_info("cuda: attention %s by our own kernel: cuDNN: %.400s",
                    s->backward ? "backward" : "forward", text);
    d->said = true;
}

/* Refused is also what needs more memory than was planned: before 9.25, on Hopper, the products of all lengths.
 * Divided by heads they would fit, but on an H200 eight such parts were no faster than our own kernel (180 to 168
 * TFLOP/s with heads of 128; 95 to 140 with 64). */
static void make(struct ax_dnn *d, struct kind *k) {
    char text[AX_CUDNN_TEXT] = "";
    size_t work = 0;
    k->plan = NULL;
    if (k->shape.backward && d->version < AX_CUDNN_BACKWARD_OLDEST) {
        snprintf(text, sizeof text,
                 "backward by %zu.%zu can be wrong. Install %d.%d or later: pip install "
                 "nvidia-cudnn-cu13",
                 d->version / 10000, d->version / 100 % 100, AX_CUDNN_BACKWARD_OLDEST / 10000,
                 AX_CUDNN_BACKWARD_OLDEST / 100 % 100);
        say(d, &k->shape, text);
    } else if (d->calls->plan(d->handle, &k->shape, &k->plan, &work, text) != AX_CUDNN_DONE) {
        k->plan = NULL;
        say(d, &k->shape, text);
    } else if (work > ax_dnn_room(&k->shape)) {
        d->calls->forget(k->plan);
        k->plan = NULL;
        say(d, &k->shape, "it needs more workspace than there is");
    }
}

static const struct kind *find(struct ax_queue *q, const struct ax_cudnn_shape *s) {
    struct ax_dnn *d = ax_cuda_state(q)->dnn;
    for (int i = 0; i < d->n; i++)
        if (memcmp(&d->kinds[i].shape, s, sizeof *s) == 0)
            return &d->kinds[i];
    if (d->n == KINDS) {
        ax_graphs_forget(ax_cuda_graphs(q));            /* which may have these plans' kernels */
        (void)cudaStreamSynchronize(ax_cuda_stream(q)); /* they may be running */
        forget_all(d);
    }
    struct kind *k = &d->kinds[d->n++];
    k->shape = *s;
    make(d, k);
    return k;
}

bool ax_dnn_takes(struct ax_queue *q, const struct ax_cudnn_shape *s) {
    struct ax_dnn *d = ax_cuda_state(q)->dnn;
    return d->handle && find(q, s)->plan;
}

enum ax_status ax_dnn_run(struct ax_queue *q, const struct ax_cudnn_shape *s,
                          const struct ax_cudnn_operands *o, void *work) {
    struct ax_dnn *d = ax_cuda_state(q)->dnn;
    char text[AX_CUDNN_TEXT] = "";
    if (d->calls->run(d->handle, find(q, s)->plan, o, work, ax_cuda_stream(q), text) !=
        AX_CUDNN_DONE)
        return ax_error(AX_ERR_FAILED, "cuDNN's attention failed: %.400s", text);
    d->taken[s->backward != AX_CUDNN_NO_BACKWARD]++;
    return AX_OK;
}

int ax_dnn_calls(const struct ax_dnn *d, bool backward) {
    return d->taken[backward];
}
