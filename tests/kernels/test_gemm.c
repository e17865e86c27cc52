/* Matrix products of every instruction set here against a naive double loop: awkward sizes, all
 * flags, dtypes and row strides; the same bits for any number of threads and for any part of the
 * result; exactly the workspace that was asked for; infinities stay where they belong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <sys/mman.h>
#include <unistd.h>

#include "isa.h"
#include "kernels/cpu/isa.h"
#include "tests/skip.h"
#include "tests/long.h"

struct gemm_isa {
    struct isa isa; /* its name, for messages */
    const struct ax_ops *ops;
};

#if defined(__x86_64__)
bool ax_tiles_exist_amx_emulated(void); /* kernels/cpu/vec/tiles.h */
#else
static inline bool ax_tiles_exist_amx_emulated(void) {
    return false;
}
#endif

static struct gemm_isa GEMMS[AX_CPU_ISAS];
static int n_gemms; /* of this machine */

static int find_gemms(void **state) {
    (void)state;
    for (enum ax_cpu_isa isa = AX_CPU_AVX2; isa < AX_CPU_ISAS; isa++)
        if (ax_cpu_has(isa))
            GEMMS[n_gemms++] = (struct gemm_isa){{.name = ax_cpu_isa_name(isa)}, ax_cpu_ops(isa)};
    return 0;
}

enum extra { EXTRA_NONE, EXTRA_BIAS, EXTRA_ADDEND, EXTRA_BIAS_ADDEND, EXTRA_ACCUMULATE, EXTRAS };

struct shape {
    int64_t m, n, k;
};

struct variant {
    enum ax_dtype real, out;
    bool trans_a, trans_b;
    enum extra extra;
    double alpha;
    int64_t pad; /* elements between rows */
};

static struct ax_tensor filled(enum ax_dtype dtype, int64_t rows, int64_t cols, int64_t pad) {
    struct ax_tensor t = grid(dtype, rows, cols, pad);
    randomize(&t, 1, 0);
    return t;
}

static struct ax_gemm make(struct shape s, const struct variant *v) {
    struct ax_gemm g = {.trans_a = v->trans_a,
                        .trans_b = v->trans_b,
                        .accumulate = v->extra == EXTRA_ACCUMULATE,
                        .alpha = v->alpha};
    g.a = v->trans_a ? filled(v->real, s.k, s.m, v->pad) : filled(v->real, s.m, s.k, v->pad);
    g.b = v->trans_b ? filled(v->real, s.n, s.k, v->pad) : filled(v->real, s.k, s.n, v->pad);
    g.c = filled(v->out, s.m, s.n, v->pad);
    if (v->extra == EXTRA_BIAS || v->extra == EXTRA_BIAS_ADDEND) {
        g.bias = line(v->real, s.n);
        for (int64_t i = 0; i < s.n; i++)
            ax_store(v->real, g.bias.data, i, random_unit());
    }
    if (v->extra == EXTRA_ADDEND || v->extra == EXTRA_BIAS_ADDEND)
        g.addend = filled(v->out, s.m, s.n, 2 * v->pad);
    return g;
}

/* Runs with a workspace of NaNs that has the size asked for, and a guard behind it. */
static void run(const struct gemm_isa *isa, const struct ax_gemm *g, int threads) {
    struct ax_queue q = {.threads = threads};
    enum { GUARD = 64 };
    size_t bytes = isa->ops->workspace(&q, AX_OP_gemm, g);
    unsigned char *work = aligned_alloc(64, (bytes + GUARD + 63) / 64 * 64);
    assert_non_null(work);
    memset(work, 0xff, bytes + GUARD);
    run_ok(&isa->isa, "gemm", isa->ops->gemm(&q, g, work));
    assert_false(ax_tiles_exist_amx_emulated()); /* released */
    for (int i = 0; i < GUARD; i++)
        assert_int_equal(work[bytes + (size_t)i], 0xff);
    free(work);
}

static double *doubles(const struct ax_tensor *t, bool transposed) {
    int64_t rows = t->shape[0], cols = t->shape[1];
    double *out = own((size_t)(rows * cols) * sizeof(*out));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            out[transposed ? c * rows + r : r * cols + c] = get(t, r, c);
    return out;
}

/* The definition, in double. want: [m][n]; size: the sum of its terms' magnitudes. */
static void reference(const struct ax_gemm *g, double *want, double *size) {
    int64_t m = g->c.shape[0], n = g->c.shape[1], k = g->a.shape[g->trans_a ? 0 : 1];
    const double *a = doubles(&g->a, g->trans_a);  /* [m][k] */
    const double *b = doubles(&g->b, !g->trans_b); /* [n][k] */
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            double sum = 0, terms = 0;
            for (int64_t x = 0; x < k; x++) {
                double term = a[i * k + x] * b[j * k + x];
                sum += term;
                terms += fabs(term);
            }
            double rest = g->bias.data != NULL ? ax_load(g->bias.dtype, g->bias.data, j) : 0;
            rest += g->addend.data != NULL ? get(&g->addend, i, j) : 0;
            rest += g->accumulate ? get(&g->c, i, j) : 0;
            want[i * n + j] = g->alpha * sum + rest;
            size[i * n + j] = fabs(g->alpha) * terms + 3;
        }
    }
}

/* One product on every instruction set: right, and the same bits with every number of threads. */
static void check(struct shape s, const struct variant *v) {
    struct ax_gemm g = make(s, v);
    struct ax_tensor a = clone(&g.a), b = clone(&g.b), before = clone(&g.c);
    double *want = own((size_t)(s.m * s.n) * sizeof(double));
    double *size = own((size_t)(s.m * s.n) * sizeof(double));
    reference(&g, want, size);
    for (int i = 0; i < n_gemms; i++) {
        struct ax_gemm h = g;
        h.c = clone(&before);
        run(&GEMMS[i], &h, 1);
        for (int64_t r = 0; r < s.m; r++) {
            for (int64_t c = 0; c < s.n; c++) {
                assert_near(&GEMMS[i].isa, "gemm", &h.c, r, c, want[r * s.n + c],
                            size[r * s.n + c]);
                set(&before, r, c, get(&h.c, r, c)); /* for a look at the padding */
            }
        }
        assert_same_bits(&h.c, &before);
        before = clone(&g.c);
        for (int t = 1; t < 3; t++) {
            struct ax_gemm other = g;
            other.c = clone(&before);
            run(&GEMMS[i], &other, THREADS[t]);
            assert_same_bits(&other.c, &h.c);
        }
    }
    assert_same_bits(&g.a, &a);
    assert_same_bits(&g.b, &b);
    release();
}

static void needs_avx2(void) {
    if (n_gemms == 0)
        skip_because("hardware, AVX2");
}

/* Dtypes in, dtype out. */
static const enum ax_dtype DTYPES[][2] = {{AX_F32, AX_F32}, {AX_BF16, AX_BF16}, {AX_BF16, AX_F32}};

/* Every shape with every combination of transpositions and dtypes; the rest takes turns, so that
 * each of its combinations meets many shapes. */
static void test_small_shapes(void **state) {
    (void)state;
    needs_avx2();
    static const int64_t SIZES[] = {1, 2, 3, 7, 16, 17, 31, 49, 65, 129};
    static const double ALPHAS[] = {1, -0.5};
    enum { N = sizeof(SIZES) / sizeof(SIZES[0]) };
    unsigned turn = 0;
    for (int i = 0; i < N * N * N; i++) {
        struct shape s = {SIZES[i % N], SIZES[i / N % N], SIZES[i / N / N]};
        if (s.m * s.n * s.k > 65 * 65 * 65)
            continue;
        for (int trans = 0; trans < 4; trans++) {
            const enum ax_dtype *dtypes = DTYPES[turn % 3];
            struct variant v = {.real = dtypes[0],
                                .out = dtypes[1],
                                .trans_a = (trans & 1) != 0,
                                .trans_b = (trans & 2) != 0,
                                .extra = (enum extra)(turn % EXTRAS),
                                .alpha = ALPHAS[turn / EXTRAS % 2],
                                .pad = turn % 7 == 0 ? 0 : 5};
            check(s, &v);
            turn++;
        }
    }
}

/* Every flag combination on one shape with edges in all directions. */
static void test_all_flags(void **state) {
    (void)state;
    needs_avx2();
    for (int i = 0; i < 3 * 4 * EXTRAS * 2; i++) {
        const enum ax_dtype *dtypes = DTYPES[i % 3];
        struct variant v = {.real = dtypes[0],
                            .out = dtypes[1],
                            .trans_a = (i / 3 & 1) != 0,
                            .trans_b = (i / 3 & 2) != 0,
                            .extra = (enum extra)(i / 12 % EXTRAS),
                            .alpha = i / 12 / EXTRAS == 0 ? 1 : 0.75,
                            .pad = i % 2 == 0 ? 3 : 0};
        check((struct shape){37, 83, 41}, &v);
    }
}

/* More than one block of k, tile of rows or tile of columns; few rows; operands too long to keep.
 */
static void test_blocks_and_tiles(void **state) {
    (void)state;
    needs_avx2();
    static const struct shape SHAPES[] = {{401, 50, 70},   {9, 3100, 33},   {3, 97, 2501},
                                          {1, 200, 1153},  {400, 60, 1001}, {33, 70, 9001},
                                          {200, 130, 800}, {769, 17, 385}};
    unsigned turn = 0;
    for (size_t i = 0; i < sizeof(SHAPES) / sizeof(SHAPES[0]); i++) {
        for (int trans = 0; trans < 4; trans++) {
            const enum ax_dtype *dtypes = DTYPES[turn % 3];
            struct variant v = {.real = dtypes[0],
                                .out = dtypes[1],
                                .trans_a = (trans & 1) != 0,
                                .trans_b = (trans & 2) != 0,
                                .extra = turn % 2 == 0 ? EXTRA_ACCUMULATE : EXTRA_BIAS_ADDEND,
                                .alpha = 1,
                                .pad = 1};
            check(SHAPES[i], &v);
            turn++;
        }
    }
}

/* No k: only what is added. No rows or columns: nothing happens. */
static void test_empty(void **state) {
    (void)state;
    needs_avx2();
    struct variant v = {.real = AX_F32, .out = AX_F32, .extra = EXTRA_BIAS, .alpha = 1, .pad = 1};
    check((struct shape){5, 20, 0}, &v);
    check((struct shape){0, 20, 4}, &v);
    check((struct shape){5, 0, 4}, &v);
}

/* The element at (row, col) of the whole is element (0, 0) of the part. */
static void assert_part(const struct ax_tensor *whole, const struct ax_tensor *part, int64_t row,
                        int64_t col) {
    struct ax_tensor rows = ax_tensor_rows(whole, row, part->shape[0]);
    struct ax_tensor same = ax_tensor_cols(&rows, col, part->shape[1]);
    size_t bytes = (size_t)part->shape[1] * ax_dtype_size(part->dtype);
    for (int64_t r = 0; r < part->shape[0]; r++)
        assert_memory_equal(ax_tensor_row(&same, r), ax_tensor_row(part, r), bytes);
}

/* A part of c, computed alone from the rows of op(a) and columns of op(b) it needs, has the bits it
 * has in the whole: so decoding one token repeats prefill, and vocabulary shards the whole head. */
static void check_parts(struct shape s, const struct variant *v) {
    struct ax_gemm g = make(s, v);
    for (int i = 0; i < n_gemms; i++) {
        run(&GEMMS[i], &g, 2);
        static const int64_t COUNTS[] = {1, 2, 5, 16, 23};
        for (size_t p = 0; p < sizeof(COUNTS) / sizeof(COUNTS[0]); p++) {
            const int64_t rows = COUNTS[p], cols = 3 * COUNTS[p] + 1;
            const int64_t row = (s.m - rows) / 2, col = s.n - cols - (int64_t)p;
            struct ax_gemm h = g;
            h.a = v->trans_a ? ax_tensor_cols(&g.a, row, rows) : ax_tensor_rows(&g.a, row, rows);
            h.b = v->trans_b ? ax_tensor_rows(&g.b, col, cols) : ax_tensor_cols(&g.b, col, cols);
            h.c = grid(v->out, rows, cols, 0);
            run(&GEMMS[i], &h, 1);
            assert_part(&g.c, &h.c, row, col);
        }
    }
    release();
}

static void test_parts_have_the_bits_of_the_whole(void **state) {
    (void)state;
    needs_avx2();
    for (int i = 0; i < 12; i++) {
        struct variant v = {.real = DTYPES[i % 3][0],
                            .out = DTYPES[i % 3][1],
                            .trans_a = (i / 3 & 1) != 0,
                            .trans_b = (i / 3 & 2) != 0,
                            .alpha = 1};
        check_parts((struct shape){410, 150, 577}, &v);
        check_parts((struct shape){60, 100, 6001}, &v);
    }
}

/* An operand and its transpose in memory give the same bits. */
static void test_layout_does_not_matter(void **state) {
    (void)state;
    needs_avx2();
    for (int d = 0; d < 3; d++) {
        struct variant v = {.real = DTYPES[d][0], .out = DTYPES[d][1], .alpha = 1};
        struct ax_gemm g = make((struct shape){45, 110, 901}, &v), h = g;
        h.a = grid(v.real, 901, 45, 2);
        h.b = grid(v.real, 110, 901, 4);
        h.trans_a = h.trans_b = true;
        for (int64_t k = 0; k < 901; k++) {
            for (int64_t i = 0; i < 110; i++) {
                set(&h.b, i, k, get(&g.b, k, i));
                if (i < 45)
                    set(&h.a, k, i, get(&g.a, i, k));
            }
        }
        for (int i = 0; i < n_gemms; i++) {
            h.c = grid(v.out, 45, 110, 0);
            run(&GEMMS[i], &g, 1);
            run(&GEMMS[i], &h, 1);
            assert_same_bits(&g.c, &h.c);
        }
        release();
    }
}

/* A copy whose last element is the last one before memory that must not be read. */
static struct ax_tensor at_the_end(const struct ax_tensor *t, char *memory, size_t bytes) {
    struct ax_tensor to = *t;
    const size_t n = ax_tensor_bytes(t);
    assert_true(n <= bytes);
    to.data = memory + bytes - n;
    memcpy(to.data, t->data, n);
    return to;
}

/* Of operands nothing is read but their elements, also by few rows that fill no tile. */
static void test_operands_end_where_they_end(void **state) {
    (void)state;
    needs_avx2();
    static const struct shape shapes[] = {{1, 17, 33}, {20, 24, 70}, {33, 50, 64}, {70, 40, 31}};
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), room = 4 * page;
    char *memory[2];
    for (int i = 0; i < 2; i++) {
        memory[i] =
            mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(memory[i] != MAP_FAILED);
        assert_int_equal(mprotect(memory[i] + room, page, PROT_NONE), 0);
    }
    for (int i = 0; i < 4 * 3 * 4; i++) {
        const struct variant v = {.real = DTYPES[i % 3][0],
                                  .out = DTYPES[i % 3][1],
                                  .trans_a = (i / 12 & 1) != 0,
                                  .trans_b = (i / 12 & 2) == 0,
                                  .alpha = 1};
        struct ax_gemm g = make(shapes[i / 3 % 4], &v), h = g;
        h.a = at_the_end(&g.a, memory[0], room);
        h.b = at_the_end(&g.b, memory[1], room);
        for (int n = 0; n < n_gemms; n++) {
            h.c = grid(v.out, shapes[i / 3 % 4].m, shapes[i / 3 % 4].n, 0);
            run(&GEMMS[n], &g, 1);
            run(&GEMMS[n], &h, 1);
            assert_same_bits(&g.c, &h.c);
        }
        release();
    }
    for (int i = 0; i < 2; i++)
        munmap(memory[i], room + page);
}

/* An infinity or NaN in one row of op(a) or column of op(b) reaches that row or column only, also
 * where panels are filled up with zeros. */
static void test_infinities_stay_in_place(void **state) {
    (void)state;
    needs_avx2();
    for (int i = 0; i < 12; i++) {
        struct variant v = {.real = DTYPES[i % 3][0],
                            .out = DTYPES[i % 3][1],
                            .trans_a = (i / 3 & 1) != 0,
                            .trans_b = (i / 3 & 2) != 0,
                            .alpha = 1};
        struct ax_gemm g = make((struct shape){19, 53, 33}, &v);
        set(&g.a, v.trans_a ? 32 : 18, v.trans_a ? 18 : 32, (double)NAN);
        set(&g.b, v.trans_b ? 52 : 32, v.trans_b ? 32 : 52, (double)INFINITY);
        for (int n = 0; n < n_gemms; n++) {
            run(&GEMMS[n], &g, 1);
            for (int64_t r = 0; r < 19; r++) {
                for (int64_t c = 0; c < 53; c++) {
                    double x = get(&g.c, r, c);
                    assert_true(r == 18 ? isnan(x) : c == 52 ? isinf(x) : isfinite(x));
                }
            }
        }
        release();
    }
}

static void test_supports(void **state) {
    (void)state;
    needs_avx2();
    static const struct {
        enum ax_dtype a, b, c;
        bool yes;
    } CASES[] = {{AX_F32, AX_F32, AX_F32, true},    {AX_BF16, AX_BF16, AX_BF16, true},
                 {AX_BF16, AX_BF16, AX_F32, true},  {AX_F64, AX_F64, AX_F64, false},
                 {AX_F32, AX_F32, AX_BF16, false},  {AX_F32, AX_BF16, AX_F32, false},
                 {AX_BF16, AX_BF16, AX_F64, false}, {AX_F16, AX_F16, AX_F16, false}};
    struct ax_queue q = {.threads = 2};
    for (int i = 0; i < n_gemms; i++) {
        for (size_t n = 0; n < sizeof(CASES) / sizeof(CASES[0]); n++) {
            struct ax_gemm g = {.a = grid(CASES[n].a, 2, 3, 0),
                                .b = grid(CASES[n].b, 3, 4, 0),
                                .c = grid(CASES[n].c, 2, 4, 0)};
            assert_int_equal(GEMMS[i].ops->supports(&q, AX_OP_gemm, &g), CASES[n].yes);
        }
    }
    release();
}

/* A run whose micro-batches vary has the memory that the largest needs. */
static void check_no_smaller_needs_more(const struct ax_ops *ops, bool trans_a, bool trans_b) {
    struct ax_queue q = {.threads = 2};
    const struct variant v = {.real = AX_BF16, .out = AX_F32, .alpha = 1};
    struct ax_gemm g = make((struct shape){8, 8, 8}, &v);
    g.trans_a = trans_a;
    g.trans_b = trans_b;
    static const int64_t SIZES[] = {1, 16, 17, 32, 33, 64, 300, 575, 577, 1536, 2049, 49152};
    enum { N = sizeof(SIZES) / sizeof(SIZES[0]) };
    size_t need[N][N][N];
    for (int i = 0; i < N * N * N; i++) {
        const int m = i / (N * N), n = i / N % N, k = i % N;
        g.c.shape[0] = g.a.shape[trans_a ? 1 : 0] = SIZES[m];
        g.c.shape[1] = g.b.shape[trans_b ? 0 : 1] = SIZES[n];
        g.a.shape[trans_a ? 0 : 1] = g.b.shape[trans_b ? 1 : 0] = SIZES[k];
        need[m][n][k] = ops->workspace(&q, AX_OP_gemm, &g);
        assert_true(need[m][n][k] > 0);
        assert_true(m == 0 || need[m - 1][n][k] <= need[m][n][k]);
        assert_true(n == 0 || need[m][n - 1][k] <= need[m][n][k]);
        assert_true(k == 0 || need[m][n][k - 1] <= need[m][n][k]);
    }
}

/* The plan is made before there is memory: other addresses must not need other workspace. And it
 * stays moderate: a thread's share does not grow with c or with k. */
static void test_workspace(void **state) {
    (void)state;
    needs_avx2();
    struct variant v = {.real = AX_BF16, .out = AX_F32, .trans_b = true, .alpha = 1};
    for (int i = 0; i < n_gemms; i++) {
        struct ax_queue q = {.threads = 4};
        struct ax_gemm g = make((struct shape){64, 96, 128}, &v);
        size_t bytes = GEMMS[i].ops->workspace(&q, AX_OP_gemm, &g);
        g.a.data = g.b.data = g.c.data = (char *)64;
        assert_int_equal(GEMMS[i].ops->workspace(&q, AX_OP_gemm, &g), bytes);
        static const struct shape BIG[] = {
            {2048, 3072, 576}, {49152, 576, 256}, {256, 49152, 576}, {256, 576, 49152}};
        for (int s = 0; s < 4; s++) {
            g.a.shape[0] = g.c.shape[0] = BIG[s].m;
            g.b.shape[0] = g.c.shape[1] = BIG[s].n;
            g.a.shape[1] = g.b.shape[1] = BIG[s].k;
            assert_in_range(GEMMS[i].ops->workspace(&q, AX_OP_gemm, &g), 1, 4 * (6u << 20));
        }
        check_no_smaller_needs_more(GEMMS[i].ops, false, true);
        check_no_smaller_needs_more(GEMMS[i].ops, false, false);
        check_no_smaller_needs_more(GEMMS[i].ops, true, false);
    }
    release();
}

/* The products of SmolLM2-135M's step (docs/results/gemm.md), with fewer rows or columns: forward, dx
 * and dW. */
static void test_shapes_of_a_step(void **state) {
    (void)state;
    needs_avx2();
    static const struct {
        struct shape s;
        bool trans_a, trans_b;
    } CASES[] = {
        {{70, 960, 576}, false, true},   {{40, 3072, 576}, false, true},
        {{70, 576, 1536}, false, true},  {{20, 4160, 576}, false, true},
        {{70, 576, 960}, false, false},  {{40, 576, 3072}, false, false},
        {{70, 1536, 576}, false, false}, {{20, 576, 4160}, false, false},
        {{576, 72, 2048}, true, false},  {{960, 64, 500}, true, false},
        {{4160, 48, 256}, true, false},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct variant v = {.real = AX_BF16,
                            .out = CASES[i].trans_a ? AX_F32 : AX_BF16,
                            .trans_a = CASES[i].trans_a,
                            .trans_b = CASES[i].trans_b,
                            .extra = CASES[i].trans_a ? EXTRA_ACCUMULATE : EXTRA_NONE,
                            .alpha = 1};
        check(CASES[i].s, &v);
    }
}

/* Tiles of the processor against tiles in plain C. */
static void test_hardware_tiles_have_the_bits_of_emulated_ones(void **state) {
    (void)state;
    if (!ax_cpu_has(AX_CPU_AMX))
        skip_because("hardware, AMX");
    static const struct shape SHAPES[] = {{16, 16, 32},   {1, 100, 70},  {50, 33, 577},
                                          {64, 200, 129}, {65, 40, 800}, {400, 130, 1153}};
    struct gemm_isa hardware = {{.name = "amx"}, ax_cpu_ops(AX_CPU_AMX)};
    struct gemm_isa plain = {{.name = "amx-emulated"}, ax_cpu_ops(AX_CPU_AMX_EMULATED)};
    for (size_t i = 0; i < 4 * sizeof(SHAPES) / sizeof(SHAPES[0]); i++) {
        for (int scale = 0; scale < 2; scale++) {
            struct variant v = {.real = AX_BF16,
                                .out = AX_F32,
                                .trans_a = (i & 1) != 0,
                                .trans_b = (i & 2) != 0,
                                .alpha = 1};
            struct ax_gemm g = make(SHAPES[i / 4], &v), h = g;
            randomize(&g.a, scale == 0 ? 1 : 0x1p-63, 0); /* sums that are denormal in part */
            randomize(&g.b, scale == 0 ? 1 : 0x1p-63, 0);
            h.c = clone(&g.c);
            run(&hardware, &g, 2);
            run(&plain, &h, 2);
            assert_same_bits(&g.c, &h.c);
            release();
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LONG_TEST(cmocka_unit_test(test_small_shapes)),
        cmocka_unit_test(test_all_flags),
        LONG_TEST(cmocka_unit_test(test_blocks_and_tiles)),
        cmocka_unit_test(test_empty),
        LONG_TEST(cmocka_unit_test(test_parts_have_the_bits_of_the_whole)),
        cmocka_unit_test(test_layout_does_not_matter),
        cmocka_unit_test(test_operands_end_where_they_end),
        cmocka_unit_test(test_infinities_stay_in_place),
        cmocka_unit_test(test_supports),
        cmocka_unit_test(test_workspace),
        LONG_TEST(cmocka_unit_test(test_shapes_of_a_step)),
        LONG_TEST(cmocka_unit_test(test_hardware_tiles_have_the_bits_of_emulated_ones)),
    };
    return cmocka_run_group_tests(tests, find_gemms, NULL);
}
