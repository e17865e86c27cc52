/* Distillation from stored log-probs: those of all tokens are the teacher itself; of a few, the gradient
 * is the loss's; and how records are packed, and which device computes, changes nothing. Meshes:
 * test_train_mesh.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "optim/losses/distill.h"
#include "model/parts/head.h"
#include "tests/optim/train_runs.h"

enum { V = 97, STEPS = 4 };

/* Wider and deeper than the student. */
static const char config[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 97, \"hidden_size\": 56, "
    "\"intermediate_size\": 70, \"num_hidden_layers\": 3, \"num_attention_heads\": 4, "
    "\"num_key_value_heads\": 4, \"head_dim\": 10, \"initializer_range\": 0.2, "
    "\"max_position_embeddings\": 64, \"tie_word_embeddings\": true}";

static struct ax_distill_options options;
static struct ax_objective objective;
static struct ax_arch teacher;

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s (%s)", ax_error_text(), ax_error_trace());
}

static void open_with(struct train_case *c, enum ax_dtype dtype, bool packed,
                      struct ax_distill_options o) {
    options = o;
    objective = ax_objective_distill(&options);
    must(train_case_open_for(c, dtype, packed, &objective));
    if (dtype == AX_F64)
        c->o.runtime.backend = "ref";
    c->o.max_steps = STEPS;
    c->o.metrics.logging_steps = 1;
    c->o.eval.when = (struct ax_cadence){AX_EACH_STEPS, 2};
}

static void open_teacher(void) {
    struct ax_json_doc doc;
    must(ax_json_parse(&doc, "config.json", config, strlen(config)));
    must(ax_arch_parse(&teacher, ax_json_root(&doc)));
    ax_json_free(&doc);
}

/* ---- targets of the teacher ---- */

/* What the teacher says after each token of a document. */
struct said {
    const int32_t *tokens;
    int64_t n;
    uint64_t seed;
    double logits[32][V];
};

static enum ax_status say(struct ax_runtime *rt, void *ctx) {
    struct said *s = ctx;
    struct ax_model m;
    struct ax_slot slot;
    struct ax_batch batch;
    const struct ax_document doc = {.n = s->n, .tokens = s->tokens};
    const struct ax_model_options mo = {.dtype = AX_F64, .max_positions = 64};
    AX_TRY(ax_model_create(&m, &teacher, rt, &mo));
    AX_TRY(ax_model_init_random(&m, s->seed));
    AX_TRY(ax_slot_create(&slot, &m, &rt->arena.slots[0]));
    ax_batch_allocate(&batch, &rt->arena.persistent, s->n, 1, s->n, 1, 0);
    AX_TRY(ax_batch_fill(&batch, rt->q, V, 1, &doc));
    struct ax_pass pass = {.model = &m,
                           .batch = &batch,
                           .slot = &slot,
                           .recompute = AX_RECOMPUTE_INFERENCE,
                           .inv_temperature = 1};
    AX_TRY(ax_pass_begin(&pass));
    AX_TRY(ax_pass_forward_all(&pass));
    struct ax_tensor logits = ax_tensor_2d(AX_F64, NULL, s->n, V);
    logits.data = ax_stack_push(&rt->arena.scratch, "logits", ax_tensor_bytes(&logits));
    AX_TRY(ax_pass_logits(&pass, 0, s->n, &logits));
    if (!ax_runtime_planning(rt))
        memcpy(s->logits, logits.data, ax_tensor_bytes(&logits));
    ax_stack_release(&rt->arena.scratch, 0);
    ax_pass_end(&pass);
    ax_slot_free(&slot);
    ax_model_free(&m);
    return AX_OK;
}

static uint32_t *column_of(const struct ax_examples *e, size_t i, int c) {
    return (uint32_t *)(uintptr_t)ax_examples_column(e, i, c);
}

/* Log-probs at temperature t1 of all tokens in an order of their own, times t1. */
static void store(const struct ax_examples *e, uint64_t seed, double t1) {
    static struct said s;
    for (size_t i = 0; i < e->n; i++) {
        int32_t tokens[32];
        s.n = e->list[i].n;
        for (int64_t t = 0; t < s.n; t++)
            tokens[t] = ax_word_token(ax_examples_words(e, i), (size_t)t);
        s.tokens = tokens;
        s.seed = seed;
        must(ax_runtime_run(&(struct ax_runtime_options){.backend = "ref", .threads = 1}, say, &s,
                            NULL));
        int32_t *ids = (int32_t *)column_of(e, i, AX_DISTILL_IDS);
        float *logits = (float *)column_of(e, i, AX_DISTILL_LOGITS);
        for (int64_t t = 1; t < s.n; t++) {
            double sum = 0;
            for (int c = 0; c < V; c++)
                sum += exp(s.logits[t - 1][c] / t1);
            for (int j = 0; j < V; j++) {
                const int c = (int)(t + 5 * j) % V;
                ids[t * V + j] = c;
                logits[t * V + j] = (float)(t1 * (s.logits[t - 1][c] / t1 - log(sum)));
            }
        }
    }
}

/* ---- runs ---- */

struct run {
    double loss[STEPS], grad_norm[STEPS];
    int n;
    struct ax_train_result r;
};

static void run_case(struct train_case *c, struct run *run) {
    char path[192], *text, *rest;
    size_t n;
    *run = (struct run){0};
    run_ok(c, &run->r);
    snprintf(path, sizeof path, "%s/metrics.jsonl", c->out);
    must(ax_read_file(path, 1 << 20, &text, &n));
    rest = text;
    for (const char *line; (line = strsep(&rest, "\n")) != NULL;) {
        json_t *v = json_loads(line, 0, NULL);
        if (json_object_get(v, "grad_norm") && run->n < STEPS) {
            run->loss[run->n] = json_number_value(json_object_get(v, "loss"));
            run->grad_norm[run->n++] = json_number_value(json_object_get(v, "grad_norm"));
        }
        json_decref(v);
    }
    ax_free(text);
    assert_int_equal(run->n, STEPS);
}

static void expect_near(const char *what, int at, double got, double want, double tolerance) {
    if (!(fabs(got - want) <= tolerance * fmax(1, fabs(want))))
        fail_msg("%s %d is %.12g, expected %.12g", what, at, got, want);
}

static void expect_same(const struct run *got, const struct run *want, double tolerance) {
    for (int i = 0; i < STEPS; i++) {
        expect_near("the loss of step", i + 1, got->loss[i], want->loss[i], tolerance);
        expect_near("the gradient norm of step", i + 1, got->grad_norm[i], want->grad_norm[i],
                    tolerance);
    }
    const struct ax_eval_result *a[] = {&got->r.first_eval, &got->r.last_eval},
                                *b[] = {&want->r.first_eval, &want->r.last_eval};
    for (int i = 0; i < 2; i++) {
        expect_near("the loss of evaluation", i, a[i]->loss, b[i]->loss, tolerance);
        for (int k = 0; k < 2; k++)
            expect_near("a measure of evaluation", i, a[i]->measures[k], b[i]->measures[k],
                        tolerance);
    }
}

/* Evaluates the many documents, in passes of several windows of logits, and trains on the few. */
static void swap_data(struct train_case *c) {
    c->o.data.train = c->eval_loader;
    c->o.data.eval = c->loader;
    c->o.data.eval_tokens = 512;
    c->o.data.eval_docs = 64;
}

/* All tokens, stored as floats at another temperature, and in another order for each token. */
static void all_tokens_are_the_teacher(void **state) {
    (void)state;
    const struct ax_distill_options live = {0.7, 0.4, .temperature = 2};
    struct ax_distill_options stored = live;
    struct train_case c;
    struct run want, got;
    open_teacher();
    open_with(&c, AX_F64, false, live);
    c.o.step.teacher = &teacher;
    swap_data(&c);
    run_case(&c, &want);
    train_case_close(&c);
    stored.stored = V;
    open_with(&c, AX_F64, false, stored);
    store(&c.docs, c.o.step.seed + 1, 1.5); /* the seed that a teacher without weights has */
    store(&c.eval_docs, c.o.step.seed + 1, 1.5);
    swap_data(&c);
    run_case(&c, &got);
    train_case_close(&c);
    ax_arch_free(&teacher);
    assert_true(want.r.first_eval.measures[AX_DISTILL_DIVERGENCE] > 0.01);
    expect_same(&got, &want, 1e-6);
}

/* The targets of a few tokens go where their documents go. */
static void packing_changes_nothing(void **state) {
    (void)state;
    const struct ax_distill_options o = {1, 0.3, .temperature = 1.5, .stored = 4};
    double loss[2], eval[2];
    for (int k = 0; k < 2; k++) {
        struct train_case c;
        struct ax_train_result r;
        open_with(&c, AX_F64, k, o);
        /* one step of all of the evaluation's documents, in whatever rows */
        c.o.data.train = c.eval_loader;
        c.o.data.sequences_per_batch = k ? 1 : (int64_t)c.eval.n;
        c.o.data.drop_last = false;
        c.o.step.n_microbatches = k ? (int)c.eval.n : 1;
        c.o.data.eval = NULL;
        c.o.eval.when = (struct ax_cadence){.when = AX_NEVER};
        c.o.max_steps = 1;
        ax_loader_start_epoch(c.eval_loader, 0);
        must(ax_train(&c.o, &r));
        loss[k] = r.loss;
        train_case_close(&c);
        open_with(&c, AX_F64, k, o);
        c.o.max_steps = 1;
        c.o.eval.when = (struct ax_cadence){AX_EACH_STEPS, 1};
        run_ok(&c, &r);
        eval[k] = r.first_eval.loss;
        train_case_close(&c);
    }
    assert_true(loss[0] > 1);
    expect_near("the loss, packed,", 0, loss[1], loss[0], 1e-12);
    expect_near("the evaluation, packed,", 0, eval[1], eval[0], 1e-12);
    expect_near("the evaluation", 0, eval[0], loss[0], 1e-12);
}

/* One that the host cannot touch, and that works late. */
static void a_far_device_has_the_same_bits(void **state) {
    (void)state;
    uint64_t hash[2];
    for (int k = 0; k < 2; k++) {
        struct train_case c;
        struct ax_train_result r;
        open_with(&c, AX_F32, true,
                  (struct ax_distill_options){1, 0.2, .temperature = 1.3, .stored = 6});
        c.o.runtime.backend = k ? "far" : "cpu";
        run_ok(&c, &r);
        hash[k] = train_case_hash(&c, "model.safetensors");
        train_case_close(&c);
    }
    assert_int_equal(hash[0], hash[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_tokens_are_the_teacher),
        cmocka_unit_test(packing_changes_nothing),
        cmocka_unit_test(a_far_device_has_the_same_bits),
    };
    return cmocka_run_group_tests(tests, quiet, NULL);
}
