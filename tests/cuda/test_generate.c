/* Generation on an emulated GPU: cuDNN computes prompts' attention to the cache, our own kernel that of one token at
 * a time, with windows, soft caps and sinks, and the answers are those of our own kernels alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "base/rng.h"
#include "kernels/cuda/state.h"
#include "model/generate/generate.h"
#include "tests/tiny.h"

enum { SEQUENCES = 5, LANES = 3, LONGEST = 37, NEW = 6 };

struct answers {
    const struct ax_arch *arch;
    int32_t prompts[SEQUENCES][LONGEST], tokens[SEQUENCES][NEW];
    double logprobs[SEQUENCES][NEW];
    int64_t passes, decode_passes, max_queries; /* the last pass's */
    int by_cudnn;
};

static enum ax_status generate(struct ax_generator *g, struct answers *a) {
    struct ax_sequence s[SEQUENCES];
    for (int i = 0; i < SEQUENCES; i++) {
        const int64_t n = 1 + 9 * i;
        for (int64_t t = 0; t < n; t++)
            a->prompts[i][t] =
                (int32_t)ax_rng_below((struct ax_rng_key){3, (uint32_t)i, 0}, (uint64_t)t, 97);
        s[i] = (struct ax_sequence){.n_prompt = n,
                                    .prompt = a->prompts[i],
                                    .stream = (uint64_t)i,
                                    .tokens = a->tokens[i],
                                    .logprobs = a->logprobs[i]};
    }
    AX_TRY(ax_generate(g, SEQUENCES, s));
    a->passes = g->counters.passes;
    a->decode_passes = g->counters.decode_passes;
    a->max_queries = g->batch.max_queries;
    return AX_OK;
}

/* What generation finds in its memory. */
static enum ax_status leave_nans(struct ax_runtime *rt) {
    struct ax_stack *s = &rt->arena.scratch;
    const size_t mark = ax_stack_mark(s);
    struct ax_tensor t = ax_tensor_2d(AX_BF16, NULL, 1, 32768);
    t.data = ax_stack_push(s, "NaNs", ax_tensor_bytes(&t));
    const enum ax_status st = ax_run_fill(rt->q, &(struct ax_fill){t, NAN});
    ax_stack_release(s, mark);
    return st;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct answers *a = ctx;
    struct ax_model m;
    struct ax_generator g = {0};
    const struct ax_model_options mo = {.dtype = AX_BF16, .max_positions = LONGEST + NEW};
    const struct ax_generate_options go = {.n_seqs = LANES, .max_prompt = LONGEST, .max_new = NEW};
    AX_TRY(ax_model_create(&m, a->arch, rt, &mo));
    enum ax_status st = ax_model_init_random(&m, 5);
    if (st == AX_OK)
        st = leave_nans(rt);
    if (st == AX_OK)
        st = ax_generator_create(&g, &m, &go);
    if (st == AX_OK)
        st = generate(&g, a);
    if (st == AX_OK && !ax_runtime_planning(rt))
        a->by_cudnn = ax_dnn_calls(ax_cuda_state(rt->q)->dnn, false);
    ax_generator_free(&g);
    ax_model_free(&m);
    return st;
}

/* With the plan's memory to the byte. */
static void answer(struct answers *a, const struct ax_arch *arch) {
    const struct ax_runtime_options o = {.backend = "cuda", .threads = 1};
    a->arch = arch;
    if (ax_runtime_run(&o, body, a, NULL) != AX_OK)
        fail_msg("%s", ax_error_text());
}

static void check(const char *family, const char *extra) {
    static struct answers cudnn, own, replayed;
    struct ax_arch arch;
    assert_int_equal(tiny_arch(&arch, family, true, extra), AX_OK);
    answer(&replayed, &arch);
    setenv("AXTRAIN_CUDA_GRAPHS", "off", 1); /* calls of the library in graphs are not counted */
    answer(&cudnn, &arch);
    unsetenv("AXTRAIN_CUDA_GRAPHS");
    setenv("AXTRAIN_CUDNN", "off", 1);
    answer(&own, &arch);
    unsetenv("AXTRAIN_CUDNN");
    assert_true(cudnn.decode_passes >= NEW && cudnn.passes > cudnn.decode_passes);
    assert_int_equal(cudnn.by_cudnn, (cudnn.passes - cudnn.decode_passes) * arch.n_layers);
    assert_int_equal(own.by_cudnn, 0);
    assert_int_equal(cudnn.max_queries, 1); /* for which we have a kernel */
    assert_memory_equal(cudnn.tokens, replayed.tokens, sizeof cudnn.tokens);
    assert_memory_equal(cudnn.logprobs, replayed.logprobs, sizeof cudnn.logprobs);
    assert_memory_equal(cudnn.tokens, own.tokens, sizeof own.tokens);
    for (int i = 0; i < SEQUENCES; i++)
        for (int t = 0; t < NEW; t++)
            if (!(fabs(cudnn.logprobs[i][t] - own.logprobs[i][t]) < 0.02))
                fail_msg(
                    "%s, sequence %d, token %d: log-prob %.9g by cuDNN, %.9g by our own kernel",
                    family, i, t, cudnn.logprobs[i][t], own.logprobs[i][t]);
    ax_arch_free(&arch);
}

static void attention_to_prompts_is_cudnns(void **state) {
    (void)state;
    check("llama", "");
    check(
        "gemma2",
        ", \"sliding_window\": 6, \"attn_logit_softcapping\": 2, \"query_pre_attn_scalar\": 0.05");
    check("gpt_oss",
          ", \"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"sliding_window\": 6");
}

static void prompts_come_in_larger_pieces(void **state) {
    (void)state;
    static const struct {
        const char *backend;
        bool in_training;
        int64_t tokens;
    } cases[] = {
        {"ref", false, 512}, {"ref", true, 256}, {"cuda", false, 2048}, {"cuda", true, 2048}};
    struct ax_arch arch;
    assert_int_equal(tiny_arch(&arch, "llama", true, ""), AX_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct ax_runtime_options ro = {.backend = cases[i].backend, .threads = 1};
        const struct ax_model_options mo = {.dtype = AX_BF16, .max_positions = 3001};
        const struct ax_generate_options go = {
            .n_seqs = 2, .max_prompt = 3000, .max_new = 1, .in_training = cases[i].in_training};
        struct ax_runtime rt;
        struct ax_model m;
        struct ax_generator g;
        assert_int_equal(ax_runtime_open_planning(&rt, &ro), AX_OK);
        assert_int_equal(ax_model_create(&m, &arch, &rt, &mo), AX_OK);
        assert_int_equal(ax_generator_create(&g, &m, &go), AX_OK);
        assert_int_equal(g.o.pass_tokens, cases[i].tokens);
        ax_generator_free(&g);
        ax_model_free(&m);
        ax_runtime_close(&rt);
    }
    ax_arch_free(&arch);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(attention_to_prompts_is_cudnns),
                                       cmocka_unit_test(prompts_come_in_larger_pieces)};
    return cmocka_run_group_tests_name("cuda generate", tests, NULL, NULL);
}
