/* Weights in panels: where their elements lie, that products and look-ups give the bits they give
 * with rows on every instruction set, and that nothing else reads them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "isa.h"
#include "kernels/cpu/isa.h"
#include "kernels/operands.h"
#include "kernels/panels.h"
#include "tests/doubles/far.h"

static struct ax_tensor weight(int64_t rows, int64_t cols) {
    struct ax_tensor t = grid(AX_BF16, rows, cols, 0);
    randomize(&t, 1, 0);
    return t;
}

static struct ax_tensor panels_of(const struct ax_tensor *t) {
    struct ax_queue host = {.ops = &ax_ops_ref};
    struct ax_tensor p = clone(t);
    assert_int_equal(ax_panels_make(&host, &p), AX_OK);
    assert_true(p.panels);
    return p;
}

static void elements_are_where_the_header_says(void **state) {
    (void)state;
    const struct ax_tensor rows = weight(48, 6), panels = panels_of(&rows);
    const uint16_t *a = rows.data, *b = panels.data;
    for (int64_t r = 0; r < 48; r++)
        for (int64_t c = 0; c < 6; c++)
            assert_int_equal(b[ax_panels_at(6, r, c)], a[r * 6 + c]);
    assert_int_equal(b[1], a[1]); /* [panel][pair][row][2] */
    assert_int_equal(b[2], a[6]);
    assert_int_equal(b[32], a[2]);
    const struct ax_tensor second = ax_tensor_rows(&panels, 16, 16);
    assert_true(second.panels);
    assert_int_equal(((uint16_t *)second.data)[0], a[16 * 6]);
    release();
}

static void only_some_matrices_fit(void **state) {
    (void)state;
    static const struct {
        enum ax_dtype dtype;
        int64_t rows, cols;
        bool fits;
    } cases[] = {{AX_BF16, 16, 2, true},
                 {AX_BF16, 64, 30, true},
                 {AX_BF16, 24, 30, false},
                 {AX_BF16, 16, 3, false},
                 {AX_F32, 16, 2, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct ax_tensor t = ax_tensor_2d(cases[i].dtype, NULL, cases[i].rows, cases[i].cols);
        assert_int_equal(ax_panels_fit(&t), cases[i].fits);
    }
    const struct ax_tensor line = ax_tensor_1d(AX_BF16, NULL, 16);
    assert_false(ax_panels_fit(&line));
}

/* Like a backend whose products read rows alone. */
static bool reads_rows(const struct ax_queue *q, enum ax_op op, const void *args) {
    (void)q;
    assert_true(op == AX_OP_gemm || op == AX_OP_packed_gemm);
    return op == AX_OP_gemm ? !((const struct ax_gemm *)args)->b.panels
                            : !((const struct ax_packed_gemm *)args)->codes.panels;
}

static void only_some_backends_want_them(void **state) {
    (void)state;
    const struct ax_ops other = {.supports = reads_rows};
    const struct ax_tensor t = ax_tensor_2d(AX_BF16, NULL, 64, 32);
    const struct ax_code_panels codes = {.codes = ax_tensor_2d(AX_U8, NULL, 64, 64),
                                         .scale = ax_tensor_2d(AX_F32, NULL, 64, 2),
                                         .rows = 64,
                                         .cols = 64,
                                         .block = 32,
                                         .kind = AX_QUANT_INT8};
    const struct ax_ops *const backends[] = {&ax_ops_ref, ax_ops_cpu(), &other};
    for (int i = 0; i < 3; i++) {
        const struct ax_queue q = {.model = backends[i]};
        assert_int_equal(ax_panels_wanted(&q, &t), i < 2);
        assert_int_equal(ax_code_panels_wanted(&q, &codes), i < 2);
    }
}

static struct ax_tensor run(enum ax_cpu_isa isa, const struct ax_gemm *g, int threads) {
    const struct ax_ops *ops = ax_cpu_ops(isa);
    const struct isa named = {.name = ax_cpu_isa_name(isa)};
    struct ax_queue q = {.threads = threads};
    struct ax_gemm h = *g;
    h.c = clone(&g->c);
    const size_t bytes = ops->workspace(&q, AX_OP_gemm, &h);
    void *work = own(bytes);
    memset(work, 0xff, bytes);
    run_ok(&named, "gemm", ops->gemm(&q, &h, work));
    return h.c;
}

/* Every number of rows that has a kernel of its own, and some that have not; edges of panels by
 * threes; more than one block of k. */
static void products_have_the_bits_of_rows(void **state) {
    (void)state;
    static const int64_t ROWS[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 16, 17,
                                   18, 19, 27, 28, 33, 45, 63, 64, 65, 70, 130};
    static const struct {
        int64_t n, k;
    } SHAPES[] = {{16, 2}, {32, 34}, {48, 50}, {112, 130}, {64, 1536}, {80, 1602}, {16, 3138}};
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        for (size_t j = 0; j < sizeof SHAPES / sizeof *SHAPES; j++) {
            const int64_t m = ROWS[i], n = SHAPES[j].n, k = SHAPES[j].k;
            const size_t turn = i + j;
            struct ax_gemm g = {.trans_b = true, .alpha = turn % 2 == 0 ? 1 : -0.5};
            g.a = grid(AX_BF16, m, k, turn % 3 == 0 ? 0 : 2);
            g.c = grid(turn % 4 < 2 ? AX_BF16 : AX_F32, m, n, 3);
            randomize(&g.a, 1, 0);
            randomize(&g.c, 1, 0);
            g.accumulate = turn % 3 == 1;
            if (turn % 3 == 2)
                g.addend = g.c;
            if (turn % 5 < 2) {
                g.bias = line(AX_BF16, n);
                for (int64_t c = 0; c < n; c++)
                    ax_store(AX_BF16, g.bias.data, c, random_unit());
            }
            g.b = weight(n, k);
            struct ax_gemm h = g;
            h.b = panels_of(&g.b);
            for (enum ax_cpu_isa isa = AX_CPU_AVX2; isa < AX_CPU_ISAS; isa++) {
                if (!ax_cpu_has(isa))
                    continue;
                const struct ax_tensor want = run(isa, &g, 1);
                for (int t = 0; t < 3; t++) {
                    const struct ax_tensor got = run(isa, &h, THREADS[t]);
                    assert_same_bits(&got, &want);
                }
            }
            release();
        }
    }
}

static void embeddings_have_the_bits_of_rows(void **state) {
    (void)state;
    const struct ax_tensor rows = weight(48, 70), panels = panels_of(&rows);
    const struct ax_tensor tokens = line(AX_I32, 9);
    for (int64_t i = 0; i < 9; i++)
        ax_store(AX_I32, tokens.data, i, (double)(4 + i * 7)); /* the last ones are elsewhere */
    for (int isa = 0; isa < isas_here(); isa++) {
        for (int wide = 0; wide < 2; wide++) {
            const struct ax_tensor a = grid(wide ? AX_F32 : AX_BF16, 9, 70, 3), b = clone(&a);
            RUN(&ISAS[isa], 2, embedding_forward, .weight = rows, .tokens = tokens, .out = a,
                .first_row = 5);
            RUN(&ISAS[isa], 2, embedding_forward, .weight = panels, .tokens = tokens, .out = b,
                .first_row = 5);
            assert_same_bits(&a, &b);
        }
    }
    release();
}

static void the_reference_reads_them(void **state) {
    (void)state;
    struct ax_queue *q;
    struct ax_arena arena;
    const struct ax_arena_plan plan = {.scratch[AX_PHASE_TRAIN] = (size_t)1 << 20};
    assert_int_equal(ax_arena_create(&arena, &plan, &ax_device_host), AX_OK);
    assert_int_equal(ax_queue_create(&q, "ref", NULL, 1, &arena.scratch), AX_OK);
    const struct ax_tensor rows = weight(32, 18), panels = panels_of(&rows), x = weight(3, 18);
    const struct ax_tensor tokens = line(AX_I32, 2);
    ax_store(AX_I32, tokens.data, 1, 31);
    struct ax_tensor y[2], looked_up[2];
    for (int i = 0; i < 2; i++) {
        y[i] = grid(AX_F32, 3, 32, 0);
        looked_up[i] = grid(AX_F32, 2, 18, 0);
        const struct ax_tensor w = i == 0 ? rows : panels;
        const struct ax_gemm g = {.a = x, .b = w, .c = y[i], .trans_b = true, .alpha = 1};
        assert_int_equal(ax_run_gemm(q, &g), AX_OK);
        const struct ax_embedding_forward e = {.weight = w, .tokens = tokens, .out = looked_up[i]};
        assert_int_equal(ax_run_embedding_forward(q, &e), AX_OK);
    }
    assert_same_bits(&y[0], &y[1]);
    assert_same_bits(&looked_up[0], &looked_up[1]);
    ax_queue_free(q);
    ax_arena_free(&arena);
    release();
}

/* Converted on the device's side, after the rows have come and before the product reads them. */
static void far_rows_become_panels(void **state) {
    (void)state;
    struct ax_queue *q;
    struct ax_arena arena;
    const struct ax_arena_plan plan = {.scratch[AX_PHASE_TRAIN] = (size_t)1 << 20,
                                       .host = AX_QUEUE_RING};
    assert_int_equal(ax_arena_create(&arena, &plan, &ax_device_far), AX_OK);
    assert_int_equal(ax_queue_create(&q, "far", NULL, 1, &arena.scratch), AX_OK);
    assert_int_equal(ax_queue_open_ring(q), AX_OK);
    const struct ax_tensor rows = weight(32, 18), x = weight(3, 18), want = panels_of(&rows);
    struct ax_tensor w = rows, a = x, y[2], results[2];
    w.data = ax_stack_push(&arena.scratch, "weight", ax_tensor_bytes(&w));
    a.data = ax_stack_push(&arena.scratch, "input", ax_tensor_bytes(&a));
    assert_int_equal(ax_queue_write(q, a.data, x.data, ax_tensor_bytes(&a)), AX_OK);
    assert_int_equal(ax_queue_write(q, w.data, rows.data, ax_tensor_bytes(&w)), AX_OK);
    for (int i = 0; i < 2; i++) {
        y[i] = ax_tensor_2d(AX_F32, ax_stack_push(&arena.scratch, "output", 3 * 32 * 4), 3, 32);
        if (i == 1)
            assert_int_equal(ax_panels_make(q, &w), AX_OK);
        const struct ax_gemm g = {.a = a, .b = w, .c = y[i], .trans_b = true, .alpha = 1};
        assert_int_equal(ax_run_gemm(q, &g), AX_OK);
    }
    struct ax_tensor got = clone(&rows);
    assert_int_equal(ax_queue_read(q, w.data, got.data, ax_tensor_bytes(&w), NULL), AX_OK);
    assert_memory_equal(got.data, want.data, ax_tensor_bytes(&w));
    for (int i = 0; i < 2; i++) {
        results[i] = grid(AX_F32, 3, 32, 0);
        assert_int_equal(ax_queue_read(q, y[i].data, results[i].data, ax_tensor_bytes(&y[i]), NULL),
                         AX_OK);
    }
    assert_same_bits(&results[0], &results[1]);
    ax_queue_free(q);
    ax_arena_free(&arena);
    release();
}

static void other_ops_refuse_them(void **state) {
    (void)state;
    const struct ax_tensor rows = weight(16, 16), panels = panels_of(&rows);
    const struct ax_tensor y = grid(AX_BF16, 16, 16, 0);
    struct ax_gemm g = {.a = rows, .b = panels, .c = y, .trans_b = true, .alpha = 1};
    assert_null(ax_op_broken_rule(AX_OP_gemm, &g));
    g.trans_b = false;
    assert_non_null(strstr(ax_op_broken_rule(AX_OP_gemm, &g), "product"));
    g = (struct ax_gemm){.a = panels, .b = rows, .c = y, .trans_b = true, .alpha = 1};
    assert_non_null(ax_op_broken_rule(AX_OP_gemm, &g));
    const struct ax_copy copy = {.dst = y, .src = panels};
    assert_non_null(ax_op_broken_rule(AX_OP_copy, &copy));
    struct ax_tensor thin = panels; /* a part of a panel */
    thin.shape[0] = 8;
    g = (struct ax_gemm){.a = rows, .b = thin, .c = grid(AX_BF16, 16, 8, 0), .trans_b = true};
    assert_non_null(strstr(ax_op_broken_rule(AX_OP_gemm, &g), "ax_panels_fit"));
    release();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_are_where_the_header_says),
        cmocka_unit_test(only_some_matrices_fit),
        cmocka_unit_test(only_some_backends_want_them),
        cmocka_unit_test(products_have_the_bits_of_rows),
        cmocka_unit_test(embeddings_have_the_bits_of_rows),
        cmocka_unit_test(the_reference_reads_them),
        cmocka_unit_test(far_rows_become_panels),
        cmocka_unit_test(other_ops_refuse_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
