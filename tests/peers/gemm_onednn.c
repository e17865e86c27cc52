/* Our matrix products beside oneDNN 2.x on the shapes of SmolLM2-135M: docs/results/gemm.md.
 *
 *   gcc -O2 -std=c11 -D_GNU_SOURCE -I. -fopenmp tests/peers/gemm_onednn.c build/libaxtrain.a \
 *       -ldnnl -ljansson -lyaml -lpcre2-8 -lutf8proc -lzstd -lz -lm -pthread -o build/gemm_onednn
 *   build/gemm_onednn THREADS float32|bfloat16
 *
 * oneDNN gets the very same operands (matmul with their strides, scratch memory of ours), so it
 * packs them in every call, as we do; "packed" gives it weights in the layout it likes best
 * instead. The programs take turns, and the best of the rounds counts; with one thread, CPU time
 * does, since that is the same on a busy machine. */
#include <dnnl.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "kernels/queue.h"

#define DNNL(call)                                                                                 \
    do {                                                                                           \
        if ((call) != dnnl_success) {                                                              \
            fprintf(stderr, "%s:%d: oneDNN refuses\n", __FILE__, __LINE__);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum kind { Y, DX, DW }; /* x·Wᵀ; dy·W; c += dyᵀ·x */

static const struct shape {
    const char *name;
    enum kind kind;
    int64_t m, n, k;
} SHAPES[] = {
    {"qkv", Y, 2048, 960, 576},
    {"o", Y, 2048, 576, 576},
    {"gate_up", Y, 2048, 3072, 576},
    {"down", Y, 2048, 576, 1536},
    {"head", Y, 256, 49152, 576},
    {"dx of qkv", DX, 2048, 576, 960},
    {"dx of o", DX, 2048, 576, 576},
    {"dx of gate_up", DX, 2048, 576, 3072},
    {"dx of down", DX, 2048, 1536, 576},
    {"dx of head", DX, 256, 576, 49152},
    {"dW of qkv", DW, 960, 576, 2048},
    {"dW of o", DW, 576, 576, 2048},
    {"dW of gate_up", DW, 3072, 576, 2048},
    {"dW of down", DW, 576, 1536, 2048},
    {"dW of head", DW, 49152, 576, 256},
    {"1 row", Y, 1, 147456, 576},
    {"4 rows", Y, 4, 147456, 576},
    {"16 rows", Y, 16, 147456, 576},
};

static clockid_t clock_id;

static double now(void) {
    struct timespec t;
    clock_gettime(clock_id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Touched memory in huge pages, which an arena asks for too. */
static void *memory(size_t bytes) {
    size_t huge = (size_t)2 << 20;
    void *p = aligned_alloc(huge, (bytes / huge + 1) * huge);
    madvise(p, bytes, MADV_HUGEPAGE);
    memset(p, 0x3c, bytes);
    return p;
}

struct peer {
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t args[4];
    dnnl_stream_t stream;
    void *weights, *scratch; /* its own memory */
};

static dnnl_memory_t wrap(dnnl_engine_t engine, const dnnl_memory_desc_t *md, void *data) {
    dnnl_memory_t mem;
    DNNL(dnnl_memory_create(&mem, md, engine, data));
    return mem;
}

static struct peer make_peer(dnnl_engine_t engine, const struct ax_gemm *g, bool packed) {
    struct peer p;
    DNNL(dnnl_stream_create(&p.stream, engine, dnnl_stream_default_flags));
    int64_t m = g->c.shape[0], n = g->c.shape[1], k = g->a.shape[g->trans_a ? 0 : 1];
    dnnl_data_type_t real = g->a.dtype == AX_F32 ? dnnl_f32 : dnnl_bf16;
    dnnl_dims_t da = {m, k}, db = {k, n}, dc = {m, n};
    dnnl_dims_t sa = {g->trans_a ? 1 : k, g->trans_a ? m : 1};
    dnnl_dims_t sb = {g->trans_b ? 1 : n, g->trans_b ? k : 1}, sc = {n, 1};
    dnnl_memory_desc_t a, b, c;
    DNNL(dnnl_memory_desc_init_by_strides(&a, 2, da, real, sa));
    DNNL(packed ? dnnl_memory_desc_init_by_tag(&b, 2, db, real, dnnl_format_tag_any)
                : dnnl_memory_desc_init_by_strides(&b, 2, db, real, sb));
    DNNL(dnnl_memory_desc_init_by_strides(&c, 2, dc, g->c.dtype == AX_F32 ? dnnl_f32 : real, sc));
    dnnl_primitive_attr_t attr;
    DNNL(dnnl_primitive_attr_create(&attr));
    DNNL(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user));
    if (g->accumulate) {
        dnnl_post_ops_t ops;
        DNNL(dnnl_post_ops_create(&ops));
        DNNL(dnnl_post_ops_append_sum(ops, 1));
        DNNL(dnnl_primitive_attr_set_post_ops(attr, ops));
    }
    dnnl_matmul_desc_t desc;
    dnnl_primitive_desc_t pd;
    DNNL(dnnl_matmul_desc_init(&desc, &a, &b, NULL, &c));
    DNNL(dnnl_primitive_desc_create(&pd, &desc, attr, engine, NULL));
    DNNL(dnnl_primitive_create(&p.primitive, pd));
    const dnnl_memory_desc_t *w = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
    const dnnl_memory_desc_t *s = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    p.weights = packed ? memory(dnnl_memory_desc_get_size(w)) : NULL;
    p.scratch = memory(dnnl_memory_desc_get_size(s));
    p.args[0] = (dnnl_exec_arg_t){DNNL_ARG_SRC, wrap(engine, &a, g->a.data)};
    p.args[1] =
        (dnnl_exec_arg_t){DNNL_ARG_WEIGHTS, wrap(engine, w, packed ? p.weights : g->b.data)};
    p.args[2] = (dnnl_exec_arg_t){DNNL_ARG_DST, wrap(engine, &c, g->c.data)};
    p.args[3] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, wrap(engine, s, p.scratch)};
    return p;
}

static void free_peer(struct peer *p) {
    for (int i = 0; i < 4; i++)
        dnnl_memory_destroy(p->args[i].memory);
    free(p->weights);
    free(p->scratch);
    dnnl_primitive_destroy(p->primitive);
    dnnl_stream_destroy(p->stream);
}

static void run_peer(const struct peer *p) {
    DNNL(dnnl_primitive_execute(p->primitive, p->stream, 4, p->args));
    DNNL(dnnl_stream_wait(p->stream));
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void bench(const struct shape *s, enum ax_dtype real, struct ax_queue *q,
                  dnnl_engine_t engine) {
    enum { ROUNDS = 9 };
    enum ax_dtype out = s->kind == DW ? AX_F32 : real;
    size_t size = ax_dtype_size(real);
    void *a = memory((size_t)(s->m * s->k) * size), *b = memory((size_t)(s->n * s->k) * size);
    void *c = memory((size_t)(s->m * s->n) * ax_dtype_size(out));
    struct ax_gemm g = {.trans_a = s->kind == DW,
                        .trans_b = s->kind == Y,
                        .accumulate = s->kind == DW,
                        .alpha = 1,
                        .c = ax_tensor_2d(out, c, s->m, s->n)};
    g.a = g.trans_a ? ax_tensor_2d(real, a, s->k, s->m) : ax_tensor_2d(real, a, s->m, s->k);
    g.b = g.trans_b ? ax_tensor_2d(real, b, s->n, s->k) : ax_tensor_2d(real, b, s->k, s->n);
    struct peer plain = make_peer(engine, &g, false), packed = make_peer(engine, &g, true);
    double seconds[3][ROUNDS + 1], ratio[ROUNDS];
    for (int r = 0; r <= ROUNDS; r++) { /* round 0 warms up */
        for (int who = 0; who < 3; who++) {
            double start = now();
            if (who == 0 && ax_run_gemm(q, &g) != AX_OK) {
                fprintf(stderr, "%s\n", ax_error_text());
                exit(1);
            }
            if (who > 0)
                run_peer(who == 1 ? &plain : &packed);
            seconds[who][r] = now() - start;
        }
        if (r > 0)
            ratio[r - 1] = seconds[1][r] / seconds[0][r];
    }
    for (int who = 0; who < 3; who++)
        qsort(seconds[who] + 1, ROUNDS, sizeof(double), compare);
    qsort(ratio, ROUNDS, sizeof(double), compare);
    double flops = 2.0 * (double)s->m * (double)s->n * (double)s->k;
    printf("| %s | %lld × %lld × %lld | %.2f | %.0f | %.0f | %.0f | %.2f |\n", s->name,
           (long long)s->m, (long long)s->n, (long long)s->k, seconds[0][1] * 1e3,
           flops / seconds[0][1] * 1e-9, flops / seconds[1][1] * 1e-9, flops / seconds[2][1] * 1e-9,
           ratio[ROUNDS / 2]);
    fflush(stdout);
    free_peer(&plain);
    free_peer(&packed);
    free(a);
    free(b);
    free(c);
}

int main(int argc, char **argv) {
    enum ax_dtype real;
    if (argc < 3 || ax_dtype_parse(argv[2], &real) != AX_OK) {
        fprintf(stderr, "usage: gemm_onednn THREADS float32|bfloat16\n");
        return 2;
    }
    int threads = atoi(argv[1]);
    omp_set_num_threads(threads);
    clock_id = threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    struct ax_arena arena;
    struct ax_arena_plan plan = {.scratch[AX_PHASE_TRAIN] = (size_t)1 << 28};
    struct ax_queue *q;
    dnnl_engine_t engine;
    if (ax_arena_create(&arena, &plan, &ax_device_host) != AX_OK ||
        ax_queue_create(&q, "cpu", NULL, threads, &arena.scratch) != AX_OK) {
        fprintf(stderr, "%s\n", ax_error_text());
        return 1;
    }
    DNNL(dnnl_engine_create(&engine, dnnl_cpu, 0));
    printf("| product | M × N × K | ms | GFLOP/s | oneDNN | packed | oneDNN's time ÷ ours |\n"
           "|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof(SHAPES) / sizeof(SHAPES[0]); i++)
        bench(&SHAPES[i], real, q, engine);
    dnnl_engine_destroy(engine);
    ax_queue_free(q);
    ax_arena_free(&arena);
    return 0;
}
