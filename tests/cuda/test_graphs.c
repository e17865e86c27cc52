/* Sequences of ops that come again are captured and replayed: with the results that they have one by one,
 * whatever changes in between, and only if nothing did. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/io.h"
#include "kernels/cuda/graphs.h"
#include "model/generate/generate.h"
#include "tests/kernels/harness.h"
#include "tests/tiny.h"

#define N 4

struct numbers {
    struct machine m;
    struct ax_tensor x, y;
    float expected; /* of each element of y */
};

static void open_numbers(struct numbers *t) {
    machine_open(&t->m, "cuda", 1);
    t->x = ax_tensor_1d(AX_F32, ax_stack_push(t->m.q->scratch, "x", 64), N);
    t->y = ax_tensor_1d(AX_F32, ax_stack_push(t->m.q->scratch, "y", 64), N);
    t->expected = 0;
    assert_int_equal(ax_run_fill(t->m.q, &(struct ax_fill){t->y, 0}), AX_OK);
}

static void set_x(struct numbers *t, float value) {
    const float all[N] = {value, value, value, value};
    assert_int_equal(ax_queue_write(t->m.q, t->x.data, all, sizeof all), AX_OK);
}

/* y = y / 2 + x, n times: each result depends on how many there were, and on their order. */
static void add(struct numbers *t, int n, float x) {
    for (int i = 0; i < n; i++) {
        const struct ax_scale half = {.y = t->y, .x = t->y, .alpha = 0.5};
        assert_int_equal(ax_run_scale(t->m.q, &half), AX_OK);
        assert_int_equal(ax_run_add(t->m.q, &(struct ax_add){t->y, t->x, 1}), AX_OK);
        t->expected = t->expected / 2 + x;
    }
}

static void check(struct numbers *t) {
    float out[N];
    assert_int_equal(ax_queue_read(t->m.q, t->y.data, out, sizeof out, NULL), AX_OK);
    for (int i = 0; i < N; i++)
        assert_true(out[i] == t->expected);
}

/* n times as many additions, each time with a read behind them. */
static void repeat(struct numbers *t, int n, int additions) {
    for (int i = 0; i < n; i++) {
        add(t, additions, 1);
        check(t);
    }
}

static uint64_t replayed(const struct numbers *t) {
    return t->m.q->counters.replayed;
}

/* ---- sequences ---- */

/* The third time it is captured, with what x is then. */
static void what_comes_again_is_replayed(void **state) {
    (void)state;
    struct numbers t;
    open_numbers(&t);
    for (int i = 0; i < 6; i++) {
        set_x(&t, (float)(i + 1));
        add(&t, 6, (float)(i + 1));
        check(&t);
        assert_int_equal(replayed(&t), i < 2 ? 0 : 12 * (i - 1));
    }
    machine_close(&t.m);
}

/* One that only begins as another does, one that goes on after it, and one that differs in a number. */
static void what_differs_is_not(void **state) {
    (void)state;
    struct numbers t;
    open_numbers(&t);
    set_x(&t, 1);
    repeat(&t, 3, 6);
    assert_int_equal(replayed(&t), 12);
    add(&t, 5, 1);
    check(&t);
    assert_int_equal(replayed(&t), 12);
    add(&t, 5, 1);
    assert_int_equal(ax_run_add(t.m.q, &(struct ax_add){t.y, t.x, 3}), AX_OK);
    t.expected += 3;
    check(&t);
    assert_int_equal(replayed(&t), 12);
    add(&t, 7, 1); /* the first twelve of fourteen */
    check(&t);
    assert_int_equal(replayed(&t), 24);
    machine_close(&t.m);
}

/* The longer of two that begin alike. */
static void longer_ones_go_on(void **state) {
    (void)state;
    struct numbers t;
    open_numbers(&t);
    set_x(&t, 1);
    repeat(&t, 3, 9);
    assert_int_equal(replayed(&t), 18);
    repeat(&t, 3, 6);
    assert_int_equal(replayed(&t), 30);
    add(&t, 9, 1);
    check(&t);
    assert_int_equal(replayed(&t), 48);
    machine_close(&t.m);
}

/* Graphs are of at most AX_GRAPH_OPS ops, and not of a few. */
static void sequences_have_a_size(void **state) {
    (void)state;
    struct numbers t;
    open_numbers(&t);
    set_x(&t, 1);
    repeat(&t, 3, 3);
    assert_int_equal(replayed(&t), 0);
    repeat(&t, 3, AX_GRAPH_OPS / 2 + 3);
    assert_true(replayed(&t) > 0 && replayed(&t) % AX_GRAPH_OPS == 0);
    machine_close(&t.m);
}

/* More sequences than are kept; the oldest are dropped. */
static void old_ones_are_dropped(void **state) {
    (void)state;
    struct numbers t;
    open_numbers(&t);
    set_x(&t, 1);
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 300; k++) {
            add(&t, 4, 1);
            assert_int_equal(ax_run_add(t.m.q, &(struct ax_add){t.y, t.x, k}), AX_OK);
            t.expected += (float)k;
            check(&t);
        }
    repeat(&t, 3, 6);
    assert_true(replayed(&t) >= 12);
    machine_close(&t.m);
}

/* ---- algorithms ---- */

#ifdef AX_CUDA_EMULATED

#define ROWS  6
#define INNER 300

/* Nine products, of which eight only make a sequence of it. */
static void multiply(struct machine *m, const struct ax_gemm *g, float *out) {
    for (int i = 0; i < 9; i++)
        assert_int_equal(ax_run_gemm(m->q, g), AX_OK);
    assert_int_equal(ax_queue_read(m->q, g->c.data, out, ROWS * ROWS * sizeof *out, NULL), AX_OK);
}

static struct ax_gemm product_of(struct machine *m) {
    static float x[ROWS * INNER];
    void *data = ax_stack_push(m->q->scratch, "a", sizeof x);
    for (int i = 0; i < ROWS * INNER; i++)
        x[i] = 1 / (float)(i + 1);
    assert_int_equal(ax_queue_write(m->q, data, x, sizeof x), AX_OK);
    const struct ax_tensor a = ax_tensor_2d(AX_F32, data, ROWS, INNER);
    void *c = ax_stack_push(m->q->scratch, "c", ROWS * ROWS * sizeof *x);
    return (struct ax_gemm){
        .a = a, .b = a, .c = ax_tensor_2d(AX_F32, c, ROWS, ROWS), .alpha = 1, .trans_b = true};
}

/* The graph has the favorite, which has other bits than what is chosen then. */
static void chosen_algorithms_are_not_the_old_graphs(void **state) {
    (void)state;
    struct machine m;
    struct ax_buf text = {0};
    float before[ROWS * ROWS], after[ROWS * ROWS];
    setenv("AXTRAIN_EMULATED_FASTEST", "1", 1);
    machine_open(&m, "cuda", 1);
    m.q->measures = true;
    const struct ax_gemm g = product_of(&m);
    for (int i = 0; i < 3; i++)
        multiply(&m, &g, before);
    assert_int_equal(m.q->counters.replayed, 9);
    assert_int_equal(ax_queue_choices(m.q, &text), AX_OK);
    assert_int_equal(ax_queue_choose(m.q, text.data), AX_OK);
    multiply(&m, &g, after);
    assert_int_equal(m.q->counters.replayed, 9);
    assert_memory_not_equal(before, after, sizeof before);
    ax_buf_free(&text);
    machine_close(&m);
    unsetenv("AXTRAIN_EMULATED_FASTEST");
}

/* ---- what goes wrong ---- */

static void without_capture_it_is_the_same(void **state) {
    (void)state;
    struct numbers t;
    setenv("AXTRAIN_EMULATED_GRAPHS", "0", 1);
    open_numbers(&t);
    for (int i = 0; i < 5; i++) {
        set_x(&t, (float)i);
        add(&t, 6, (float)i);
        check(&t);
    }
    assert_int_equal(replayed(&t), 0);
    machine_close(&t.m);
    unsetenv("AXTRAIN_EMULATED_GRAPHS");
}

/* A launch that fails after its op returned. */
static void errors_of_held_ops_are_told(void **state) {
    (void)state;
    struct numbers t;
    float out[N];
    open_numbers(&t);
    set_x(&t, 1);
    repeat(&t, 3, 6);
    add(&t, 3, 1); /* held back */
    ax_emulated_fail(cudaErrorLaunchFailure, false);
    assert_int_equal(ax_queue_read(t.m.q, t.y.data, out, sizeof out, NULL), AX_ERR_FAILED);
    assert_non_null(strstr(ax_error_text(), "scale on cuda (x float32 [4], y float32 [4])"));
    machine_close(&t.m);
}

#endif

static void nothing_is_held_back_if_not_wished(void **state) {
    (void)state;
    struct numbers t;
    setenv("AXTRAIN_CUDA_GRAPHS", "off", 1);
    open_numbers(&t);
    set_x(&t, 1);
    repeat(&t, 4, 6);
    assert_int_equal(replayed(&t), 0);
    machine_close(&t.m);
    unsetenv("AXTRAIN_CUDA_GRAPHS");
}

/* ---- threads ---- */

struct asker {
    struct ax_queue *q;
    atomic_bool stop;
    int asked;
};

/* As what saves a checkpoint does. */
static void *ask(void *arg) {
    struct asker *a = arg;
    bool slept;
    while (!atomic_load(&a->stop)) {
        const uint64_t ticket = a->q->ops->device->signal(a->q);
        if (a->q->ops->device->wait(a->q, ticket, &slept) != AX_OK)
            return a;
        a->asked++;
    }
    return NULL;
}

static enum ax_status nothing(struct ax_queue *q, const void *args, void *const *at) {
    (void)q;
    (void)args;
    (void)at;
    return AX_OK;
}

/* Also while a function of the host runs, for which recording the ticket may have to wait. */
static void others_may_ask_for_tickets(void **state) {
    (void)state;
    struct numbers t;
    pthread_t thread;
    void *failed;
    open_numbers(&t);
    struct asker a = {.q = t.m.q};
    assert_int_equal(pthread_create(&thread, NULL, ask, &a), 0);
    for (int i = 0; i < 300; i++) {
        set_x(&t, (float)(i % 7));
        add(&t, 6, (float)(i % 7));
        assert_int_equal(ax_queue_call(t.m.q, nothing, NULL, 0, NULL, 0), AX_OK);
        check(&t);
    }
    atomic_store(&a.stop, true);
    pthread_join(thread, &failed);
    assert_null(failed);
    assert_true(a.asked > 0);
    machine_close(&t.m);
}

/* ---- trainings ---- */

static const int64_t lengths[] = {9, 17, 5, 0};

struct training {
    struct ax_arch arch;
    enum ax_dtype dtype;
    double loss[6], norm[6];
    uint64_t masters, ops, replayed;
};

static enum ax_status train(struct ax_runtime *rt, void *ctx) {
    struct training *t = ctx;
    struct ax_step s;
    const struct ax_step_options o = tiny_options(t->dtype, AX_RECOMPUTE_ON, 2, lengths);
    AX_TRY(ax_step_create(&s, rt, &t->arch, &o));
    enum ax_status st = ax_model_init_random(&s.model, 5);
    for (int i = 0; i < 6 && st == AX_OK; i++) {
        struct ax_step_result result;
        st = tiny_fill(&s, lengths, 3);
        if (st == AX_OK)
            st = ax_step_run(&s, 1e-2, &result);
        t->loss[i] = result.loss;
        t->norm[i] = result.grad_norm;
    }
    if (st == AX_OK)
        st = tiny_hash_masters(&s, &t->masters);
    t->ops = 0;
    for (int op = 0; op < AX_OP_COUNT; op++)
        t->ops += rt->q->counters.launches[op];
    t->replayed = rt->q->counters.replayed;
    ax_step_free(&s);
    return st;
}

static void run(struct training *t, bool graphs) {
    const struct ax_runtime_options o = {
        .backend = "cuda", .threads = 1, .sizes = {1, 1, 1, 1, 1, 1}};
    setenv("AXTRAIN_CUDA_GRAPHS", graphs ? "on" : "off", 1);
    if (ax_runtime_run(&o, train, t, NULL) != AX_OK)
        fail_msg("%s", ax_error_text());
    unsetenv("AXTRAIN_CUDA_GRAPHS");
}

static void trainings_have_the_same_bits(void **state) {
    (void)state;
    static const enum ax_dtype dtypes[] = {AX_F32, AX_BF16};
    for (int d = 0; d < 2; d++) {
        struct training with = {.dtype = dtypes[d]};
        assert_int_equal(tiny_arch(&with.arch, "llama", true, ""), AX_OK);
        struct training without = with;
        run(&with, true);
        run(&without, false);
        for (int i = 0; i < 6; i++)
            assert_true(with.loss[i] == without.loss[i] && with.norm[i] == without.norm[i]);
        assert_true(with.loss[5] < with.loss[0]);
        assert_int_equal(with.masters, without.masters);
        assert_int_equal(with.ops, without.ops);
        assert_int_equal(without.replayed, 0);
        print_message("%d of %d ops were replayed\n", (int)with.replayed, (int)with.ops);
        assert_true(with.replayed > with.ops / 2); /* of four of six steps */
        ax_arch_free(&with.arch);
    }
}

/* ---- answers ---- */

struct answer {
    struct ax_arch arch;
    int32_t tokens[24];
    double logprobs[24];
    uint64_t ops, replayed;
};

static enum ax_status answer(struct ax_runtime *rt, void *ctx) {
    static const int32_t prompt[] = {3, 14, 15, 9, 26};
    struct answer *a = ctx;
    struct ax_model m;
    struct ax_generator g = {0};
    const struct ax_model_options mo = {.dtype = AX_BF16, .max_positions = 64};
    const struct ax_generate_options o = {.n_seqs = 1, .max_prompt = 40, .max_new = 24};
    struct ax_sequence seq = {.n_prompt = 5,
                              .prompt = prompt,
                              .max_new = 24,
                              .tokens = a->tokens,
                              .logprobs = a->logprobs};
    AX_TRY(ax_model_create(&m, &a->arch, rt, &mo));
    ax_model_init_random(&m, 5);
    enum ax_status st = ax_generator_create(&g, &m, &o);
    if (st == AX_OK)
        st = ax_generate(&g, 1, &seq);
    a->ops = 0;
    for (int op = 0; op < AX_OP_COUNT; op++)
        a->ops += rt->q->counters.launches[op];
    a->replayed = rt->q->counters.replayed;
    ax_generator_free(&g);
    ax_model_free(&m);
    return st;
}

static void get_answer(struct answer *a, bool graphs) {
    const struct ax_runtime_options o = {.backend = "cuda", .threads = 1};
    setenv("AXTRAIN_CUDA_GRAPHS", graphs ? "on" : "off", 1);
    if (ax_runtime_run(&o, answer, a, NULL) != AX_OK)
        fail_msg("%s", ax_error_text());
    unsetenv("AXTRAIN_CUDA_GRAPHS");
}

/* Tokens come one by one: each is the same sequence, whatever the cache has by then. */
static void decoding_is_replayed(void **state) {
    (void)state;
    struct answer with = {0};
    assert_int_equal(tiny_arch(&with.arch, "llama", true, ""), AX_OK);
    struct answer without = with;
    get_answer(&with, true);
    get_answer(&without, false);
    assert_memory_equal(with.tokens, without.tokens, sizeof with.tokens);
    assert_memory_equal(with.logprobs, without.logprobs, sizeof with.logprobs);
    assert_int_equal(with.ops, without.ops);
    assert_int_equal(without.replayed, 0);
    print_message("%d of %d ops were replayed\n", (int)with.replayed, (int)with.ops);
    assert_true(with.replayed > with.ops * 3 / 4); /* of 21 of 24 passes */
    ax_arch_free(&with.arch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_comes_again_is_replayed),
        cmocka_unit_test(what_differs_is_not),
        cmocka_unit_test(longer_ones_go_on),
        cmocka_unit_test(sequences_have_a_size),
        cmocka_unit_test(old_ones_are_dropped),
#ifdef AX_CUDA_EMULATED
        cmocka_unit_test(chosen_algorithms_are_not_the_old_graphs),
        cmocka_unit_test(without_capture_it_is_the_same),
        cmocka_unit_test(errors_of_held_ops_are_told),
#endif
        cmocka_unit_test(nothing_is_held_back_if_not_wished),
        cmocka_unit_test(others_may_ask_for_tickets),
        cmocka_unit_test(trainings_have_the_same_bits),
        cmocka_unit_test(decoding_is_replayed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
