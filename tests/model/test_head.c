/* The head's three numbers per token and their gradients, through the whole model: against finite
 * differences in float64, with a temperature, in one walk and in two, and over several chunks; also
 * of heads that classify. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/text/json.h"
#include "base/mem.h"
#include "model/parts/head.h"
#include "tests/tiny.h"

static const int64_t lengths[] = {9, 1, 6, 0};

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* L = Σ_t a·logprob + b·lse + c·entropy, each factor another for every token. */
static double factor(int which, int64_t t) {
    return 0.2 * (which + 1) + 0.03 * (double)((t * 7 + which) % 5);
}

static enum ax_status mixed(void *ctx, struct ax_pass *p, const struct ax_head_chunk *c) {
    (void)ctx;
    if (ax_runtime_planning(p->model->rt))
        return AX_OK;
    const struct ax_tensor *values[] = {&c->logprob, &c->lse, &c->entropy};
    const struct ax_tensor *grads[] = {&c->g_logprob, &c->g_lse, &c->g_entropy};
    for (int64_t i = 0; i < c->n; i++) {
        const int64_t t = c->first + i;
        const bool labeled = ((const int32_t *)p->batch->labels.data)[t] >= 0;
        for (int k = 0; k < 3; k++) {
            const double f = k == 0 && !labeled ? 0 : factor(k, t);
            ax_store(grads[k]->dtype, grads[k]->data, i, f);
            p->scalars->loss += f * ax_load(values[k]->dtype, values[k]->data, i);
        }
    }
    return AX_OK;
}

static struct ax_objective objective = {.name = "mixed",
                                        .head = {.needs_entropy = true, .token_grad = mixed}};

struct probe {
    const struct ax_objective *objective;
    const struct ax_arch *arch;
    enum ax_dtype dtype;
    bool linear;
    double inv_temperature;
    bool differences; /* check gradients of some parameters by central differences */
    double loss, worst;
    double *grads;
    int64_t n;
};

static enum ax_status loss_of(struct ax_step *s, double *loss) {
    struct ax_step_result r;
    AX_TRY(ax_step_gradients(s, &r));
    *loss = r.loss;
    return AX_OK;
}

/* A few elements of every parameter, moved by ±h. */
static enum ax_status differ(struct probe *p, struct ax_step *s) {
    const double h = 1e-5;
    const double *grad = p->grads;
    for (int i = 0; i < s->model.n_params; i++) {
        const struct ax_tensor w = ax_model_value(&s->model, &s->model.params[i]);
        const int64_t n = ax_tensor_numel(&w);
        double *v = w.data;
        for (int64_t k = 0; k < 3; k++) {
            const int64_t at = (n * k / 3 + 1) % n;
            const double keep = v[at];
            double up, down;
            v[at] = keep + h;
            AX_TRY(loss_of(s, &up));
            v[at] = keep - h;
            AX_TRY(loss_of(s, &down));
            v[at] = keep;
            const double error = fabs((up - down) / (2 * h) - grad[at]) / fmax(1, fabs(grad[at]));
            p->worst = fmax(p->worst, error);
        }
        grad += n;
    }
    return AX_OK;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct probe *p = ctx;
    struct ax_step s;
    struct ax_step_options o = tiny_options(p->dtype, AX_RECOMPUTE_SELECTIVE, 1, lengths);
    objective.head.linear = p->linear;
    o.objective = p->objective ? p->objective : &objective;
    AX_TRY(ax_step_create(&s, rt, p->arch, &o));
    s.passes[0].inv_temperature = p->inv_temperature;
    AX_TRY(ax_model_init_random(&s.model, 3));
    enum ax_status st;
    AX_TRY_GOTO(tiny_fill(&s, lengths, 3), st, done);
    AX_TRY_GOTO(loss_of(&s, &p->loss), st, done);
    if (ax_runtime_planning(rt))
        goto done;
    p->n = ax_model_parameters(&s.model);
    AX_TRY_GOTO(ax_alloc(&p->grads, (size_t)p->n, sizeof *p->grads), st, done);
    double *out = p->grads;
    for (int i = 0; i < s.model.n_params; i++) {
        const struct ax_tensor g = ax_model_grad(&s.model, &s.model.params[i]);
        ax_convert(AX_F64, out, g.dtype, g.data, ax_tensor_numel(&g));
        out += ax_tensor_numel(&g);
    }
    if (p->differences)
        st = differ(p, &s);
done:
    ax_step_free(&s);
    return st;
}

static void run(struct probe *p, const char *backend) {
    const struct ax_runtime_options ro = {.backend = backend, .threads = 2};
    must(ax_runtime_run(&ro, body, p, NULL));
}

static void gradients_are_the_slope(void **state) {
    (void)state;
    static const struct {
        const char *type, *extra;
        bool tied;
    } models[] = {
        {"qwen2", "", true},
        {"qwen3", "", false},
        {"mistral", ", \"sliding_window\": 4", false},
        {"llama", ", \"architectures\": [\"LlamaForSequenceClassification\"], \"num_labels\": 1",
         false},
        {"qwen3", ", \"architectures\": [\"Qwen3ForTokenClassification\"]", true},
        {"llama", ", \"architectures\": [\"LlamaForTokenClassification\"], \"num_labels\": 5",
         false},
    };
    for (int i = 0; i < (int)(sizeof models / sizeof *models); i++) {
        struct ax_arch arch;
        must(tiny_arch(&arch, models[i].type, models[i].tied, models[i].extra));
        struct probe p = {.arch = &arch,
                          .dtype = AX_F64,
                          .linear = i != 1,
                          .inv_temperature = i == 2 ? 1 : 1 / 0.7,
                          .differences = true};
        run(&p, "ref");
        if (p.worst > 1e-6)
            fail_msg("%s: gradient off by %g", models[i].type, p.worst);
        ax_free(p.grads);
        ax_arch_free(&arch);
    }
}

/* SFT with label smoothing and z-loss, in one walk and, told that it is not linear, in two. */
static void smoothing_and_z_loss(void **state) {
    (void)state;
    struct ax_sft_options options = {.label_smoothing = 0.1, .z_loss = 0.01};
    struct ax_arch arch;
    must(tiny_arch(&arch, "llama", true, ""));
    struct ax_objective sft = ax_objective_sft_with(&options), twice = sft;
    twice.head.linear = false;
    struct probe one = {.objective = &sft,
                        .arch = &arch,
                        .dtype = AX_F64,
                        .inv_temperature = 1,
                        .differences = true};
    struct probe two = {.objective = &twice, .arch = &arch, .dtype = AX_F64, .inv_temperature = 1};
    struct probe plain = {
        .objective = &ax_objective_sft, .arch = &arch, .dtype = AX_F64, .inv_temperature = 1};
    run(&one, "ref");
    run(&two, "ref");
    run(&plain, "ref");
    if (one.worst > 1e-6)
        fail_msg("gradient off by %g", one.worst);
    assert_true(one.loss == two.loss && one.loss != plain.loss);
    assert_memory_equal(one.grads, two.grads, (size_t)one.n * sizeof *one.grads);
    ax_free(one.grads);
    ax_free(two.grads);
    ax_free(plain.grads);
    ax_arch_free(&arch);
}

/* SFT whose weights are multiplied by the entropy of all tokens, from the head's own entropy. */
static enum ax_status by_entropy(void *ctx, struct ax_pass *p, const struct ax_head_chunk *c) {
    (void)ctx;
    if (ax_runtime_planning(p->model->rt))
        return AX_OK;
    for (int64_t i = 0; i < c->n; i++) {
        const int64_t t = c->first + i;
        const bool labeled = ((const int32_t *)p->batch->labels.data)[t] >= 0;
        const double h = ax_load(c->entropy.dtype, c->entropy.data, i),
                     w = labeled ? ((const float *)p->batch->weight.data)[t] * h * h : 0;
        ax_store(c->g_logprob.dtype, c->g_logprob.data, i, -w * p->scalars->inv_weight);
        p->scalars->loss -=
            w * p->scalars->inv_weight * ax_load(c->logprob.dtype, c->logprob.data, i);
    }
    return AX_OK;
}

/* EAFT over as many tokens as there are; no gradient flows through the entropy. */
static void weights_by_entropy(void **state) {
    (void)state;
    static const struct {
        const char *backend;
        enum ax_dtype dtype;
        double within;
    } kinds[] = {{"ref", AX_F64, 1e-6}, {"cpu", AX_F32, 1e-4}};
    struct ax_sft_options options = {.entropy_k = AX_TOP_MAX, .entropy_alpha = 2};
    const struct ax_objective hand = {.name = "by entropy",
                                      .head = {.linear = true, .token_grad = by_entropy}};
    const struct ax_objective eaft = ax_objective_sft_with(&options);
    struct ax_arch arch;
    must(tiny_arch(&arch, "llama", true, ""));
    assert_true(arch.vocab_size <= AX_TOP_MAX);
    for (int k = 0; k < 2; k++) {
        struct probe one = {
            .objective = &eaft, .arch = &arch, .dtype = kinds[k].dtype, .inv_temperature = 1};
        struct probe two = one, plain = one;
        two.objective = &hand;
        plain.objective = &ax_objective_sft;
        run(&one, kinds[k].backend);
        run(&two, kinds[k].backend);
        run(&plain, kinds[k].backend);
        assert_true(fabs(one.loss - two.loss) <= kinds[k].within * two.loss);
        assert_true(fabs(one.loss - plain.loss) > 0.5 * plain.loss);
        double worst = 0, largest = 0;
        for (int64_t i = 0; i < one.n; i++) {
            worst = fmax(worst, fabs(one.grads[i] - two.grads[i]));
            largest = fmax(largest, fabs(two.grads[i]));
        }
        assert_true(largest > 0 && worst <= kinds[k].within * largest);
        ax_free(one.grads);
        ax_free(two.grads);
        ax_free(plain.grads);
    }
    ax_arch_free(&arch);
}

/* The same objective called chunk by chunk, and once with all rows. */
static void one_walk_equals_two(void **state) {
    (void)state;
    static const struct {
        const char *backend;
        enum ax_dtype dtype;
    } kinds[] = {{"ref", AX_F64}, {"cpu", AX_F32}, {"cpu", AX_BF16}};
    struct ax_arch arch;
    must(tiny_arch(&arch, "llama", false, ""));
    for (int k = 0; k < 3; k++) {
        struct probe one = {.arch = &arch, .dtype = kinds[k].dtype, .linear = true};
        one.inv_temperature = 1.5;
        struct probe two = one;
        two.linear = false;
        run(&one, kinds[k].backend);
        run(&two, kinds[k].backend);
        assert_true(one.loss == two.loss && isfinite(one.loss) && one.loss != 0);
        assert_memory_equal(one.grads, two.grads, (size_t)one.n * sizeof *one.grads);
        ax_free(one.grads);
        ax_free(two.grads);
    }
    ax_arch_free(&arch);
}

static double apart(const struct tiny_run *got, const struct tiny_run *want) {
    double diff = 0, norm = 0;
    assert_int_equal(got->n_grads, want->n_grads);
    for (int64_t i = 0; i < want->n_grads; i++) {
        diff += pow(got->grad_values[i] - want->grad_values[i], 2);
        norm += pow(want->grad_values[i], 2);
    }
    return sqrt(diff / norm);
}

static void parse(struct ax_arch *arch, const char *text) {
    struct ax_json_doc doc;
    must(ax_json_parse(&doc, "wide", text, strlen(text)));
    must(ax_arch_parse(arch, ax_json_root(&doc)));
    ax_json_free(&doc);
}

static void how_large_a_chunk_is(void **state) {
    (void)state;
    struct ax_arch arch = {.hidden_size = 16};
    const struct ax_param lm_head = {.local_shape = {300000, 16}};
    struct ax_ops ops = ax_ops_ref;
    struct ax_queue q = {.model = &ops};
    struct ax_runtime rt = {.q = &q};
    const struct ax_model m = {.arch = arch, .accum = AX_F32, .lm_head = &lm_head, .rt = &rt};
    assert_int_equal(ax_head_chunk_tokens(&m, 75), 32);
    assert_int_equal(ax_head_chunk_tokens(&m, 25), 25);
    ops.rounding.head_chunk = 64;
    assert_int_equal(ax_head_chunk_tokens(&m, 75), 64);
    assert_int_equal(ax_head_chunk_tokens(&m, 25), 25);
    const struct ax_param score = {.local_shape = {1, 8192}};
    const struct ax_model wide = {
        .arch = {.hidden_size = 8192}, .accum = AX_F32, .lm_head = &score, .rt = &rt};
    assert_int_equal(ax_head_chunk_tokens(&wide, 1 << 20), 2048); /* rows of 32 KiB */
}

static void chunks_do_not_show_in(const char *text, const int64_t *together, const int64_t *each) {
    struct ax_arch arch;
    parse(&arch, text);
    struct ax_objective twice = ax_objective_sft;
    twice.head.linear = false;
    struct tiny_run alone = {
        .arch = &arch, .lengths = each, .steps = 1, .seed = 4, .want_grads = true};
    alone.o = tiny_options(AX_F32, AX_RECOMPUTE_OFF, 3, each);
    must(tiny_run(&alone, "cpu", 2));
    for (int walks = 1; walks <= 2; walks++) {
        struct tiny_run whole = alone;
        whole.lengths = together;
        whole.o = tiny_options(AX_F32, AX_RECOMPUTE_OFF, 1, together);
        whole.o.objective = walks == 1 ? &ax_objective_sft : &twice;
        must(tiny_run(&whole, "cpu", 2));
        assert_true(fabs(whole.loss - alone.loss) < 1e-5 * alone.loss);
        assert_true(apart(&whole, &alone) < 1e-5);
        ax_free(whole.grad_values);
    }
    ax_free(alone.grad_values);
    ax_arch_free(&arch);
}

/* Chunks of the head that are not full: 75 tokens take three chunks of 32, 300 take two of 256,
 * in one walk and in two; compared with the same documents in micro-batches of one chunk each. */
static void chunks_do_not_show(void **state) {
    (void)state;
    static const int64_t lengths_a[] = {25, 25, 25, 0}, alone_a[] = {25, 0},
                         lengths_b[] = {100, 100, 100, 0}, alone_b[] = {100, 0};
#define WIDE                                                                                       \
    "{\"model_type\": \"llama\", \"hidden_size\": 16, \"intermediate_size\": 16, "                 \
    "\"num_attention_heads\": 2, \"num_hidden_layers\": 1, \"initializer_range\": 0.3, "
    chunks_do_not_show_in(WIDE "\"vocab_size\": 300000, \"tie_word_embeddings\": true}", lengths_a,
                          alone_a);
    chunks_do_not_show_in(WIDE "\"vocab_size\": 30, \"num_labels\": 65536, "
                               "\"architectures\": [\"LlamaForTokenClassification\"]}",
                          lengths_b, alone_b);
}

/* Float32 logits are larger than all other scratch, and their gradient, in bfloat16, takes none beside them. */
static void gradients_are_over_logits(void **state) {
    (void)state;
    static const int64_t full[] = {512, 0};
    const size_t logits = (size_t)512 * 30000 * sizeof(float);
    struct ax_arch arch;
    parse(&arch, WIDE "\"vocab_size\": 30000, \"tie_word_embeddings\": true}");
    struct tiny_run run = {.arch = &arch, .lengths = full, .steps = 1, .seed = 4};
    run.o = tiny_options(AX_BF16, AX_RECOMPUTE_OFF, 1, full);
    must(tiny_run(&run, "ref", 1));
    assert_in_range(run.plan.scratch[AX_PHASE_TRAIN], logits, logits + logits / 8);
    ax_arch_free(&arch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_the_slope),   cmocka_unit_test(smoothing_and_z_loss),
        cmocka_unit_test(weights_by_entropy),        cmocka_unit_test(one_walk_equals_two),
        cmocka_unit_test(how_large_a_chunk_is),      cmocka_unit_test(chunks_do_not_show),
        cmocka_unit_test(gradients_are_over_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
