/* Documents that begin with the same tokens, which are computed once, against the same documents with
 * their own: equal bits of the loss, and gradients that differ by the order of sums. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kernels/transfer.h"
#include "tests/tiny.h"

/* Completions of prompts; of some prompts only one, of the last one also an empty one. */
static const struct {
    int prompt;
    int64_t n_prompt, n; /* n: of both */
} list[] = {{0, 9, 14}, {0, 9, 16},  {0, 9, 12},  {1, 1, 7},  {1, 1, 4},
            {2, 6, 17}, {3, 13, 19}, {3, 13, 13}, {3, 13, 25}};
#define COUNT(a) (sizeof(a) / sizeof *(a))
enum { DOCS = COUNT(list), CAP = 256, LONGEST = 25, ALIKE = 3 };

static const struct {
    const char *type, *extra;
    bool tied;
} models[] = {
    {"llama", "", false},
    {"llama", ", \"attention_bias\": true, \"mlp_bias\": true", true},
    {"mistral", ", \"sliding_window\": 8", false},
    {"qwen3", "", false},
    {"olmo2", "", true},
    {"mixtral", ", \"num_local_experts\": 4, \"num_experts_per_tok\": 2", false},
};

struct documents {
    int32_t tokens[CAP], labels[CAP];
    float weight[CAP];
    struct ax_document docs[DOCS];
    int64_t n; /* tokens */
};

/* Token i of document d: prompts are those of their number. */
static int32_t token_of(size_t d, int64_t i) {
    const bool prompt = i < list[d].n_prompt;
    const struct ax_rng_key key = {3, prompt ? (uint32_t)list[d].prompt : 100 + (uint32_t)d, 1};
    return (int32_t)ax_rng_below(key, (uint64_t)i, 97);
}

static void make(struct documents *x, bool shared) {
    memset(x, 0, sizeof *x);
    for (size_t d = 0, leader = 0; d < DOCS; d++) {
        if (list[d].prompt != list[leader].prompt)
            leader = d;
        const int64_t first = shared && d > leader ? list[d].n_prompt - 1 : 0, at = x->n;
        for (int64_t i = first; i < list[d].n; i++, x->n++) {
            const bool label = i + 1 >= list[d].n_prompt && i + 1 < list[d].n;
            x->tokens[x->n] = token_of(d, i);
            x->labels[x->n] = label ? token_of(d, i + 1) : -1;
            x->weight[x->n] = 0.5f + (float)(d % 3);
        }
        x->docs[d] = (struct ax_document){.n = list[d].n - first,
                                          .tokens = x->tokens + at,
                                          .labels = x->labels + at,
                                          .weight = x->weight + at,
                                          .first_position = first,
                                          .shared = first,
                                          .shared_with = (int)leader};
    }
}

struct run {
    const struct ax_arch *arch;
    struct ax_step_options o;
    bool shared;
    /* out */
    double loss, *grads;
    int64_t n_grads, n_tokens;
    double flops; /* of products */
};

static enum ax_status read_gradients(struct run *r, struct ax_step *s) {
    double *out;
    r->n_grads = ax_model_trainable(&s->model);
    AX_TRY(ax_alloc(&out, (size_t)r->n_grads, sizeof *out));
    r->grads = out;
    for (int i = 0; i < s->model.n_params; i++) {
        const struct ax_tensor grad = ax_model_grad(&s->model, &s->model.params[i]);
        if (!grad.data)
            continue;
        AX_TRY(ax_tensor_read(s->rt->q, &grad, AX_F64, out));
        out += ax_tensor_numel(&grad);
    }
    return AX_OK;
}

static enum ax_status steps(struct run *r, struct ax_step *s) {
    struct documents *x;
    struct ax_step_result result;
    AX_TRY(ax_model_init_random(&s->model, 7));
    AX_TRY(tiny_adapters(&s->model, 7));
    AX_TRY(ax_alloc(&x, 1, sizeof *x));
    make(x, r->shared);
    enum ax_status st;
    AX_TRY_GOTO(ax_batch_fill(&s->batches[0], s->rt->q, 97, DOCS, x->docs), st, done);
    r->n_tokens = s->batches[0].n_tokens;
    AX_TRY_GOTO(ax_step_gradients(s, &result), st, done);
    r->loss = result.loss;
    r->flops = ax_queue_product_flops(&s->rt->q->counters);
    if (!ax_runtime_planning(s->rt))
        AX_TRY_GOTO(read_gradients(r, s), st, done);
    st = ax_step_update(s, 1e-2, &result);
done:
    ax_free(x);
    return st;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct run *r = ctx;
    struct ax_step s;
    AX_TRY(ax_step_create(&s, rt, r->arch, &r->o));
    const enum ax_status st = steps(r, &s);
    ax_step_free(&s);
    return st;
}

static struct run go(const struct ax_arch *arch, const struct ax_step_options *o, bool shared,
                     const char *backend, int threads) {
    static struct documents x;
    const struct ax_runtime_options ro = {
        .backend = backend, .threads = threads, .may_stay_below = true};
    struct run r = {.arch = arch, .o = *o, .shared = shared};
    make(&x, false);
    r.o.keys = r.o.tokens = x.n;
    make(&x, shared);
    r.o.alike = shared ? ALIKE : 0;
    r.o.tokens = shared ? x.n + 3 : r.o.tokens;
    if (ax_runtime_run(&ro, body, &r, NULL) != AX_OK)
        fail_msg("%s", ax_error_text());
    return r;
}

static void close_gradients(const struct run *a, const struct run *b, double tolerance,
                            const char *what) {
    double diff = 0, norm = 0;
    assert_int_equal(a->n_grads, b->n_grads);
    for (int64_t i = 0; i < a->n_grads; i++) {
        diff += pow(a->grads[i] - b->grads[i], 2);
        norm += pow(a->grads[i], 2);
    }
    if (!(norm > 0 && sqrt(diff) <= tolerance * sqrt(norm)))
        fail_msg("%s: gradients differ by %g", what, sqrt(diff / norm));
}

static struct ax_step_options options(enum ax_dtype dtype, enum ax_recompute recompute) {
    return (struct ax_step_options){.model.dtype = dtype,
                                    .recompute = recompute,
                                    .optimizer = &ax_optimizer_adamw,
                                    .objective = &ax_objective_sft,
                                    .opt = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8},
                                    .max_norm = 1,
                                    .n_microbatches = 1,
                                    .n_docs = DOCS,
                                    .max_len = LONGEST,
                                    .pad = 1};
}

static const struct {
    const char *backend;
    enum ax_dtype dtype;
    double tolerance;
} kinds[] = {{"ref", AX_F64, 1e-12}, {"cpu", AX_F32, 1e-5}, {"cpu", AX_BF16, 0.02}};

static void equals_documents_with_their_own(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(models); i++) {
        struct ax_arch arch;
        assert_int_equal(tiny_arch(&arch, models[i].type, models[i].tied, models[i].extra), AX_OK);
        for (size_t k = 0; k < COUNT(kinds); k++) {
            const struct ax_step_options o = options(kinds[k].dtype, AX_RECOMPUTE_OFF);
            struct run own = go(&arch, &o, false, kinds[k].backend, 2);
            struct run shared = go(&arch, &o, true, kinds[k].backend, 2);
            assert_true(own.loss > 0 && own.loss == shared.loss);
            close_gradients(&own, &shared, kinds[k].tolerance, models[i].type);
            assert_int_equal(own.n_tokens - shared.n_tokens, 8 + 8 + 12 + 12);
            assert_true(shared.flops < 0.8 * own.flops);
            ax_free(own.grads);
            ax_free(shared.grads);
        }
        ax_arch_free(&arch);
    }
}

static const struct ax_peft_config lora = {.r = 3, .alpha = 8, .all_linear = true};

/* Recompute modes, threads and memory out of the host's reach change no bit. */
static void all_ways_are_bitwise(void **state) {
    (void)state;
    static const struct {
        const char *backend;
        enum ax_recompute recompute;
        int threads;
    } ways[] = {{"cpu", AX_RECOMPUTE_SELECTIVE, 2},
                {"cpu", AX_RECOMPUTE_ON, 2},
                {"cpu", AX_RECOMPUTE_OFF, 1},
                {"cpu", AX_RECOMPUTE_OFF, 5},
                {"far", AX_RECOMPUTE_ON, 2}};
    struct ax_arch arch;
    assert_int_equal(tiny_arch(&arch, "qwen3", false, ""), AX_OK);
    for (int adapter = 0; adapter < 2; adapter++) {
        struct ax_step_options o = options(AX_F32, AX_RECOMPUTE_OFF);
        o.model.adapter = adapter ? &lora : NULL;
        struct run first = go(&arch, &o, true, "cpu", 2);
        for (size_t i = 0; i < COUNT(ways); i++) {
            o.recompute = ways[i].recompute;
            struct run other = go(&arch, &o, true, ways[i].backend, ways[i].threads);
            assert_true(first.loss == other.loss && first.n_grads == other.n_grads);
            assert_memory_equal(first.grads, other.grads,
                                (size_t)first.n_grads * sizeof *first.grads);
            ax_free(other.grads);
        }
        ax_free(first.grads);
    }
    ax_arch_free(&arch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_documents_with_their_own),
        cmocka_unit_test(all_ways_are_bitwise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
