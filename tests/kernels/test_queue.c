/* Queues and the dispatcher: backends by name, fallback, workspace, counting, planning without
 * memory, and error texts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "kernels/backend.h"
#include "kernels/cuda/find.h"
#include "tests/kernels/harness.h"
#include "tests/skip.h"

static const struct ax_shape GEMM = {
    .name = "y", .rows = 3, .cols = 5, .inner = 7, .flags = AX_SHAPE_TRANS_B};

static bool no_gemm(const struct ax_queue *q, enum ax_op op, const void *args) {
    (void)q;
    (void)args;
    return op != AX_OP_gemm;
}

static void backends_by_name(void **state) {
    (void)state;
    struct machine m;
    machine_open(&m, "ref", 3);
    assert_ptr_equal(m.q->ops, &ax_ops_ref);
    assert_ptr_equal(m.q->model, &ax_ops_ref);
    assert_null(m.q->fallback);
    assert_int_equal(m.q->threads, 3);
    assert_false(ax_queue_is_meta(m.q));
    struct ax_queue *q = NULL;
    assert_int_equal(ax_queue_create(&q, "tpu", NULL, 1, &m.arena.scratch), AX_ERR_CONFIG);
    assert_non_null(strstr(ax_error_text(), "\"tpu\""));
    assert_non_null(strstr(ax_error_text(), "cpu"));
    assert_null(q);
    assert_int_equal(ax_queue_create(&q, "meta", "ref", 1, &m.arena.scratch), AX_OK);
    assert_true(ax_queue_is_meta(q));
    assert_ptr_equal(q->model, &ax_ops_ref);
    ax_queue_free(q);
    ax_queue_free(NULL);
    machine_close(&m);
}

/* auto is the cpu without a word, cuda is refused, whether to compute or to plan. */
static void builds_without_cuda_say_so(void **state) {
    (void)state;
    const char *backend;
    unsetenv("AXTRAIN_DEVICE");
    assert_int_equal(ax_backend_choose("auto", false, &backend), AX_OK);
    assert_string_equal(backend, "cpu");
    for (int only_plans = 0; only_plans < 2; only_plans++) {
        assert_int_equal(ax_backend_choose("cuda", only_plans, &backend), AX_ERR_UNSUPPORTED);
        assert_non_null(
            strstr(ax_error_text(), "device cuda: this axtrain was built without CUDA"));
    }
    assert_int_equal(ax_backend_gpus("auto"), 0);
}

/* ref cannot touch a device's memory: what a backend lacks there is an error when it is planned. */
static void nothing_falls_back_on_a_device(void **state) {
    (void)state;
    struct machine m;
    struct ax_queue *q;
    machine_open(&m, "ref", 1);
    assert_int_equal(ax_queue_create(&q, "meta", "far", 1, &m.arena.scratch), AX_OK);
    assert_null(q->fallback);
    const struct ax_ops *const far = q->model;
    struct ax_ops lacks_gemm = *far;
    lacks_gemm.supports = no_gemm;
    q->model = &lacks_gemm;
    struct ax_case c;
    assert_int_equal(ax_case_create(&c, AX_OP_gemm, &GEMM, AX_F32, 1), AX_OK);
    assert_int_equal(ax_case_run(&c, q), AX_ERR_UNSUPPORTED);
    assert_non_null(strstr(ax_error_text(), "gemm: backend far cannot run this op on "));
    assert_int_equal(q->counters.fallbacks, 0);
    ax_case_free(&c);
    q->model = far;
    ax_queue_free(q);
    machine_close(&m);
}

static void cpu_falls_back_to_ref(void **state) {
    (void)state;
    if (!have_cpu())
        skip_because("hardware, AVX2");
    struct machine m;
    machine_open(&m, "cpu", 1);
    assert_ptr_equal(m.q->ops, ax_ops_cpu());
    assert_ptr_equal(m.q->fallback, &ax_ops_ref);
    struct ax_case c;
    assert_int_equal(ax_case_create(&c, AX_OP_gemm, &GEMM, AX_F32, 1), AX_OK);
    case_run(&c, &m);
    assert_int_equal(m.q->counters.fallbacks, 0);
    ax_case_free(&c);
    assert_int_equal(ax_case_create(&c, AX_OP_gemm, &GEMM, AX_F64, 1), AX_OK);
    case_run(&c, &m);
    assert_int_equal(m.q->counters.fallbacks, 1);
    assert_int_equal(m.q->counters.launches[AX_OP_gemm], 2);
    ax_case_free(&c);
    machine_close(&m);
}

/* A backend that runs gemm without bias only, with 1000 bytes of workspace, and fails on request.
 */
static bool fail_next;
static size_t work_seen;

static bool picky_supports(const struct ax_queue *q, enum ax_op op, const void *args) {
    (void)q;
    return op == AX_OP_gemm && ((const struct ax_gemm *)args)->bias.data == NULL;
}

static size_t picky_workspace(struct ax_queue *q, enum ax_op op, const void *args) {
    (void)q;
    (void)op;
    (void)args;
    return 1000;
}

static enum ax_status picky_gemm(struct ax_queue *q, const struct ax_gemm *args, void *work) {
    if (fail_next)
        return ax_error(AX_ERR_FAILED, "the multiplier broke.");
    memset(work, 0x11, 1000);
    work_seen = q->scratch->top;
    return ax_ops_ref.fill(q, &(struct ax_fill){args->c, 42}, NULL);
}

static const struct ax_ops PICKY = {.device = &ax_device_host,

                                    .name = "picky",
                                    .supports = picky_supports,
                                    .workspace = picky_workspace,
                                    .gemm = picky_gemm};

static void dispatch_and_count(void **state) {
    (void)state;
    struct machine m;
    machine_open(&m, "ref", 1);
    m.q->ops = m.q->model = &PICKY;
    m.q->fallback = &ax_ops_ref;
    static struct ax_times times[AX_OP_COUNT];
    m.q->op_times = times;
    struct ax_case c;
    assert_int_equal(ax_case_create(&c, AX_OP_gemm, &GEMM, AX_F32, 1), AX_OK);
    struct ax_gemm *g = c.args;
    work_seen = 0;
    case_run(&c, &m);
    assert_true(element(&g->c, 0) == 42);
    assert_int_equal(work_seen, 1024);
    assert_int_equal(m.arena.scratch.top, 0);
    const struct ax_queue_counters *n = &m.q->counters;
    assert_int_equal(n->launches[AX_OP_gemm], 1);
    assert_int_equal(n->fallbacks, 0);
    assert_true(n->flops[AX_OP_gemm] == 2 * 3 * 5 * 7);
    assert_true(n->bytes[AX_OP_gemm] == 4 * (3 * 7 + 5 * 7 + 3 * 5));
    assert_true(times[AX_OP_gemm].seconds[0] > 0);
    assert_true(times[AX_OP_copy].seconds[0] == 0);

    float bias[5] = {0};
    g->bias = ax_tensor_1d(AX_F32, bias, 5); /* not for picky */
    case_run(&c, &m);
    assert_true(element(&g->c, 0) != 42);
    assert_int_equal(n->launches[AX_OP_gemm], 2);
    assert_int_equal(n->fallbacks, 1);
    assert_true(n->flops[AX_OP_gemm] == 2 * 2 * 3 * 5 * 7);
    assert_true(n->bytes[AX_OP_gemm] == 4 * (2 * (3 * 7 + 5 * 7 + 3 * 5) + 5));

    m.q->fallback = NULL;
    assert_int_equal(ax_run_gemm(m.q, g), AX_ERR_UNSUPPORTED);
    assert_non_null(strstr(ax_error_text(), "gemm"));
    assert_non_null(strstr(ax_error_text(), "picky"));
    assert_non_null(strstr(ax_error_text(), "a float32 [3][7], b float32 [5][7]"));

    g->bias.data = NULL;
    fail_next = true;
    assert_int_equal(ax_run_gemm(m.q, g), AX_ERR_FAILED);
    fail_next = false;
    assert_string_equal(ax_error_text(), "gemm on picky (a float32 [3][7], b float32 [5][7], c "
                                         "float32 [3][5]): the multiplier broke.");
    assert_int_equal(m.arena.scratch.top, 0); /* given back on failure too */
    assert_int_equal(n->launches[AX_OP_gemm], 2);
    ax_case_free(&c);
    machine_close(&m);
}

/* The same ops on a meta queue, with addresses nobody may touch, count the same and leave the same
 * marks as for real. */
static void run_all(struct ax_queue *q, struct machine *helper) {
    for (int op = 0; op < AX_OP_COUNT; op++) {
        int n;
        const struct ax_shape *shapes = ax_op_shapes((enum ax_op)op, &n);
        for (int i = 0; i < n; i++) {
            struct ax_case c;
            if (shapes[i].big)
                continue;
            assert_int_equal(ax_case_create(&c, (enum ax_op)op, &shapes[i], AX_F32, 2), AX_OK);
            if (!ax_queue_is_meta(q))
                assert_int_equal(ax_case_prepare(&c, helper->q), AX_OK);
            for (const struct ax_operand *o = ax_op_operands(c.op); o->name != NULL; o++) {
                struct ax_tensor *t = ax_operand_tensor(o, c.args);
                if (ax_queue_is_meta(q) && t->data != NULL)
                    t->data = (char *)t->data - c.memory + (char *)64;
            }
            assert_int_equal(ax_case_run(&c, q), AX_OK);
            ax_case_free(&c);
        }
    }
}

static void planning_counts_what_running_does(void **state) {
    (void)state;
    const char *backend = *state;
    if (strcmp(backend, "cpu") == 0 && !have_cpu())
        skip_because("hardware, AVX2");
    struct machine m, ref;
    machine_open(&m, backend, 2);
    machine_open(&ref, "ref", 1);
    run_all(m.q, &ref);
    struct ax_arena planning;
    struct ax_queue *meta;
    assert_int_equal(ax_arena_create_planning(&planning, 0), AX_OK);
    assert_int_equal(ax_queue_create(&meta, "meta", backend, 2, &planning.scratch), AX_OK);
    run_all(meta, &ref);
    assert_memory_equal(&m.q->counters, &meta->counters, sizeof(meta->counters));
    struct ax_arena_plan real_plan, meta_plan;
    ax_arena_measure(&m.arena, &real_plan);
    ax_arena_measure(&planning, &meta_plan);
    assert_memory_equal(&real_plan, &meta_plan, sizeof(real_plan));
    assert_true(meta_plan.scratch[AX_PHASE_TRAIN] > 0);
    ax_queue_free(meta);
    ax_arena_free(&planning);
    machine_close(&ref);
    machine_close(&m);
}

static void reading_and_writing(void **state) {
    (void)state;
    struct machine m;
    machine_open(&m, "ref", 1);
    int32_t device[2] = {0}, host[2] = {7, 8}, cap[2] = {100, 200}, out[2] = {0};
    assert_int_equal(ax_queue_write(m.q, device, host, sizeof(host)), AX_OK);
    assert_int_equal(ax_queue_read(m.q, device, out, sizeof(out), cap), AX_OK);
    assert_memory_equal(out, host, sizeof(out));
    struct ax_queue *meta;
    assert_int_equal(ax_queue_create(&meta, "meta", "ref", 1, &m.arena.scratch), AX_OK);
    assert_int_equal(ax_queue_write(meta, (char *)64, host, sizeof(host)), AX_OK);
    assert_int_equal(ax_queue_read(meta, (char *)64, out, sizeof(out), cap), AX_OK);
    assert_memory_equal(out, cap, sizeof(out));
    assert_int_equal(ax_queue_read(meta, (char *)64, out, sizeof(out), NULL), AX_OK);
    assert_int_equal(out[0] | out[1], 0);
    ax_queue_free(meta);
    machine_close(&m);
}

static double forward_flops(int64_t nq, int64_t nk, bool causal, int64_t window) {
    struct ax_attention_forward f = {0};
    f.a.q = (struct ax_tensor){.ndim = 3, .shape = {nq, 2, 8}};
    f.a.v = (struct ax_tensor){.ndim = 3, .shape = {nk, 2, 8}};
    f.a.max_q = nq;
    f.a.max_k = nk;
    f.a.causal = causal;
    f.a.window = window;
    return ax_op_cost(AX_OP_attention_forward, &f).flops / (4 * 2 * 8);
}

/* Pairs of query and key that are multiplied, against counting them. */
/* What is added to is read and written. */
static void accumulating_costs_a_read_more(void **state) {
    (void)state;
    float a[2 * 3], b[3 * 4], c[2 * 4], w[5 * 4 * 3];
    int32_t ends[6] = {0};
    struct ax_gemm g = {.a = ax_tensor_2d(AX_F32, a, 2, 3),
                        .b = ax_tensor_2d(AX_F32, b, 3, 4),
                        .c = ax_tensor_2d(AX_F32, c, 2, 4),
                        .alpha = 1};
    const double once = 4 * (2 * 3 + 3 * 4 + 2 * 4);
    assert_true(ax_op_cost(AX_OP_gemm, &g).bytes == once);
    g.accumulate = true;
    assert_true(ax_op_cost(AX_OP_gemm, &g).bytes == once + 4 * 2 * 4);
    assert_true(ax_op_cost(AX_OP_gemm, &g).flops == 2 * 2 * 3 * 4);
    /* y = x·Wᵀ of 2 rows, 5 experts of [4][3]; then dW += dyᵀ·x */
    struct ax_grouped_gemm e = {.a = g.a,
                                .b = ax_tensor_3d(AX_F32, w, 5, 4, 3),
                                .c = g.c,
                                .offsets = ax_tensor_1d(AX_I32, ends, 6),
                                .trans_b = true,
                                .alpha = 1,
                                .expected_rows = 2};
    const double rows = 4 * 2 * (3 + 4), matrices = 4 * 5 * 4 * 3, offsets = 4 * 6;
    assert_true(ax_op_cost(AX_OP_grouped_gemm, &e).bytes == rows + matrices + offsets);
    assert_true(ax_op_cost(AX_OP_grouped_gemm, &e).flops == 2 * 2 * 4 * 3);
    e.accumulate = true;
    assert_true(ax_op_cost(AX_OP_grouped_gemm, &e).bytes == rows + 4 * 2 * 4 + matrices + offsets);
    e = (struct ax_grouped_gemm){.a = g.c,
                                 .b = g.a,
                                 .c = e.b,
                                 .offsets = e.offsets,
                                 .trans_a = true,
                                 .alpha = 1,
                                 .expected_rows = 2};
    assert_true(ax_op_cost(AX_OP_grouped_gemm, &e).bytes == rows + 2 * matrices + offsets);
    assert_true(ax_op_cost(AX_OP_grouped_gemm, &e).flops == 2 * 2 * 4 * 3);
}

static void attention_cost_counts_visible_pairs(void **state) {
    (void)state;
    for (int64_t nq = 0; nq <= 9; nq++) {
        for (int64_t nk = 0; nk <= 9; nk++) {
            for (int64_t window = 0; window <= 10; window++) {
                int64_t pairs = 0;
                for (int64_t i = 0; i < nq; i++) {
                    for (int64_t j = 0; j < nk; j++) {
                        int64_t diagonal = i + nk - nq;
                        pairs += j <= diagonal && (window == 0 || j > diagonal - window);
                    }
                }
                assert_true(fabs(forward_flops(nq, nk, true, window) - (double)pairs) < 1e-9);
            }
            assert_true(forward_flops(nq, nk, false, 0) == (double)(nq * nk));
        }
    }
}

/* Every small case keeps the contract; a broken one is named. */
static void contract_is_checked(void **state) {
    (void)state;
    struct ax_case c;
    assert_int_equal(ax_case_create(&c, AX_OP_gemm, &GEMM, AX_F32, 1), AX_OK);
    struct ax_gemm *g = c.args;
    assert_null(ax_op_broken_rule(AX_OP_gemm, g));
    g->b.shape[1] = 6;
    assert_non_null(strstr(ax_op_broken_rule(AX_OP_gemm, g), "g->b"));
    g->b.shape[1] = 7;
    g->c.dtype = AX_BF16;
    assert_non_null(strstr(ax_op_broken_rule(AX_OP_gemm, g), "g->c.dtype"));
    g->c.dtype = AX_F32;
    g->c.row_stride = 4; /* rows would overlap */
    assert_non_null(ax_op_broken_rule(AX_OP_gemm, g));
    ax_case_free(&c);
}

int main(void) {
    static char ref_name[] = "ref", cpu_name[] = "cpu";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backends_by_name),
        unit_test_if(!ax_cuda_is_built(), builds_without_cuda_say_so),
        cmocka_unit_test(nothing_falls_back_on_a_device),
        cmocka_unit_test(cpu_falls_back_to_ref),
        cmocka_unit_test(dispatch_and_count),
        {"planning_counts_what_ref_does", planning_counts_what_running_does, NULL, NULL, ref_name},
        {"planning_counts_what_cpu_does", planning_counts_what_running_does, NULL, NULL, cpu_name},
        cmocka_unit_test(reading_and_writing),
        cmocka_unit_test(accumulating_costs_a_read_more),
        cmocka_unit_test(attention_cost_counts_visible_pairs),
        cmocka_unit_test(contract_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
