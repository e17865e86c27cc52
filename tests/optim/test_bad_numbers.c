/* Numbers that are none, put into the gradient, the loss or the activations of a step: it is
 * skipped with weights and state as they were to the bit, the first tensor and the rows are named,
 * and after three in a row the run ends. A batch of garbage is a spike, and its rows are named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "optim/train/run.h"
#include "tests/tiny.h"
#include "tests/train_case.h"

enum bad { BAD_GRADIENT, BAD_LOSS, BAD_ACTIVATION };

/* An objective that is the usual one but in some steps. */
static struct {
    enum bad what;
    float value;
    int64_t first, last; /* steps it happens in */
    int64_t but;         /* a good one among them; 0 = none */
    int64_t calls;       /* of training passes so far: two a step */
    struct ax_examples *docs;
    int64_t garbage; /* step whose rows are garbage; 0 = none */
    /* losses of documents by themselves, in their turn, and how many were asked for; NULL: theirs
     */
    const double *losses;
    int asked;
} plan;

static int64_t step_now(void) {
    return plan.calls / 2 + 1;
}

static bool is_bad_step(void) {
    return step_now() >= plan.first && step_now() <= plan.last && step_now() != plan.but;
}

/* The residual stream in the middle of layer 1. */
static void spoil(void *ctx, const char *what, int layer, const struct ax_tensor *t) {
    (void)ctx;
    if (plan.what == BAD_ACTIVATION && is_bad_step() && layer == 1 && strcmp(what, "middle") == 0)
        ax_store(t->dtype, t->data, 5, plan.value);
}

/* Every token of every document becomes another one, x → random − x; the same again undoes it. */
static void scramble(void) {
    for (size_t i = 0; i < plan.docs->n; i++) {
        uint32_t *words = (uint32_t *)(uintptr_t)ax_examples_words(plan.docs, i);
        for (uint32_t k = 0; k < plan.docs->list[i].n; k++) {
            const struct ax_rng_key key = {77, (uint32_t)i, 1};
            const uint32_t trained = words[k] & AX_WORD_TRAINED, id = words[k] & ~AX_WORD_TRAINED;
            words[k] = trained | (97 + (uint32_t)ax_rng_below(key, k, 97) - id) % 97;
        }
    }
}

static enum ax_status token_grad(void *ctx, struct ax_pass *p, const struct ax_head_chunk *c) {
    (void)ctx;
    AX_TRY(ax_objective_sft.head.token_grad(NULL, p, c));
    if (ax_runtime_planning(p->model->rt))
        return AX_OK;
    if (p->recompute == AX_RECOMPUTE_INFERENCE) {
        if (plan.losses)
            p->scalars->loss = plan.losses[plan.asked++];
        return AX_OK;
    }
    if (plan.what == BAD_GRADIENT && is_bad_step())
        ax_store(c->g_logprob.dtype, c->g_logprob.data, 3, plan.value);
    if (plan.what == BAD_LOSS && is_bad_step())
        p->scalars->loss = plan.value;
    p->tap = spoil;
    plan.calls++;
    if (plan.garbage > 0 && plan.calls % 2 == 0 &&
        (step_now() == plan.garbage || step_now() == plan.garbage + 1))
        scramble(); /* before the rows of that step are read, and after */
    return AX_OK;
}

static const struct ax_objective objective = {.name = "spoiled",
                                              .head = {.linear = true, .token_grad = token_grad}};

static void open_case(struct train_case *c, enum ax_dtype dtype) {
    if (train_case_open(c, dtype, true) != AX_OK)
        fail_msg("%s", ax_error_text());
    c->o.step.objective = &objective;
    c->o.max_steps = 8;
    c->o.save.when = (struct ax_cadence){AX_EACH_STEPS, 1};
}

static uint64_t state_after(const struct train_case *c, int64_t step) {
    char name[96];
    snprintf(name, sizeof name, "checkpoint-%lld/state/rank-00000.safetensors", (long long)step);
    const uint64_t hash = train_case_hash(c, name);
    snprintf(name, sizeof name, "checkpoint-%lld/model.safetensors", (long long)step);
    assert_true(hash != 0 && train_case_hash(c, name) != 0);
    return hash ^ train_case_hash(c, name) * 31;
}

/* Occurrences in metrics.jsonl of the part, each in a line with the other two. */
static int said(const struct train_case *c, const char *part, const char *also, const char *rows) {
    char path[160], *text, *rest;
    size_t n;
    int count = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", c->out);
    assert_int_equal(ax_read_file(path, 1 << 24, &text, &n), AX_OK);
    rest = text;
    for (const char *line; (line = strsep(&rest, "\n")) != NULL;) {
        if (!strstr(line, part))
            continue;
        if (!strstr(line, also) || !strstr(line, rows))
            fail_msg("no \"%s\" and \"%s\" in: %s", also, rows, line);
        count++;
    }
    ax_free(text);
    return count;
}

static void skipped_once(enum bad what, float value, enum ax_dtype dtype, const char *tensor) {
    struct train_case c;
    struct ax_train_result r;
    open_case(&c, dtype);
    plan.what = what;
    plan.value = value;
    plan.first = plan.last = 4;
    plan.calls = plan.garbage = 0;
    if (train_case_run(&c, &r) != AX_OK)
        fail_msg("%s", ax_error_text());
    assert_int_equal(plan.calls, 16);
    assert_true(state_after(&c, 3) == state_after(&c, 4));
    assert_true(state_after(&c, 2) != state_after(&c, 3));
    assert_true(state_after(&c, 4) != state_after(&c, 5));
    assert_int_equal(said(&c, "the step is skipped", tensor, "rows.jsonl:"), 1);
    assert_true(isfinite(r.loss));
    train_case_close(&c);
}

static void test_bad_step_is_skipped(void **state) {
    (void)state;
    static const enum ax_dtype dtypes[] = {AX_F32, AX_BF16};
    for (int d = 0; d < 2; d++) {
        for (int i = 0; i < 2; i++) {
            const float value = i == 0 ? NAN : INFINITY;
            skipped_once(BAD_GRADIENT, value, dtypes[d], "first bad gradient: model.");
            skipped_once(BAD_ACTIVATION, value, dtypes[d], "first bad gradient: model.");
            skipped_once(BAD_LOSS, value, dtypes[d], "first bad gradient: none");
        }
    }
}

/* Of those that train, in the model's order. */
static void test_the_first_tensor_is_named(void **state) {
    (void)state;
    char *layer_1[] = {(char[]){"^model.layers.1."}},
         *layer_2[] = {(char[]){"^model.layers.2.mlp"}};
    static const char *const names[] = {"model.embed_tokens.weight",
                                        "model.layers.1.input_layernorm.weight",
                                        "model.layers.2.mlp.gate_proj.weight"};
    const struct ax_peft_names unfrozen[] = {{0}, {1, layer_1}, {1, layer_2}};
    for (int i = 0; i < 3; i++) {
        struct train_case c;
        struct ax_train_result r;
        char want[96];
        open_case(&c, AX_F32);
        c.o.step.model.unfrozen = i > 0 ? &unfrozen[i] : NULL;
        plan.what = BAD_GRADIENT;
        plan.value = NAN;
        plan.first = plan.last = 2;
        plan.calls = plan.garbage = 0;
        c.o.max_steps = 2;
        if (train_case_run(&c, &r) != AX_OK)
            fail_msg("%s", ax_error_text());
        snprintf(want, sizeof want, "first bad gradient: %s;", names[i]);
        assert_int_equal(said(&c, "the step is skipped", want, "rows.jsonl:"), 1);
        train_case_close(&c);
    }
}

/* Steps on documents of these seeds, each at a rate of its own; bad ones as the plan says. */
struct steps {
    const struct ax_arch *arch;
    struct ax_step_options o;
    const int64_t *lengths;
    int n;
    uint64_t seeds[8];
    int skipped;
    int64_t updates;
    uint64_t state; /* hash of masters and optimizer state after them */
};

static enum ax_status take_steps(struct steps *t, struct ax_step *s) {
    struct ax_step_result r;
    AX_TRY(ax_model_init_random(&s->model, 5));
    for (int i = 0; i < t->n; i++) {
        AX_TRY(tiny_fill(s, t->lengths, t->seeds[i]));
        AX_TRY(ax_step_run(s, 1e-3 * (double)t->seeds[i], &r));
        t->skipped += r.skipped;
    }
    t->updates = s->count;
    return AX_OK;
}

static enum ax_status steps_body(struct ax_runtime *rt, void *ctx) {
    struct steps *t = ctx;
    struct ax_step s;
    struct ax_state_parts parts = {0};
    t->skipped = 0;
    t->state = 1;
    AX_TRY(ax_step_create(&s, rt, t->arch, &t->o));
    enum ax_status st = take_steps(t, &s);
    if (st == AX_OK && !ax_runtime_planning(rt))
        st = ax_param_states_parts(&s.model, s.states, &parts);
    for (int i = 0; i < parts.n; i++)
        t->state =
            ax_hash64(parts.list[i].data,
                      (size_t)parts.list[i].n * ax_dtype_size(parts.list[i].dtype), t->state);
    ax_state_parts_free(&parts);
    ax_step_free(&s);
    return st;
}

static void run_steps(struct steps *t) {
    const struct ax_runtime_options ro = {.backend = "cpu", .threads = 1};
    struct ax_arena_plan memory;
    plan.calls = plan.garbage = 0;
    if (ax_runtime_run(&ro, steps_body, t, &memory) != AX_OK)
        fail_msg("%s", ax_error_text());
}

static const struct optimizer_case {
    const char *name;
    enum ax_moments moments;
    enum ax_masters masters;
} optimizers[] = {
    {"adamw", AX_MOMENTS_FULL, AX_MASTERS_ACCUM},
    {"adamw", AX_MOMENTS_BF16, AX_MASTERS_STOCHASTIC},
    {"adamw", AX_MOMENTS_8BIT, AX_MASTERS_REMAINDER},
    {"sgd", AX_MOMENTS_FULL, AX_MASTERS_ACCUM},
    {"lion", AX_MOMENTS_BF16, AX_MASTERS_ACCUM},
    {"adafactor", AX_MOMENTS_FULL, AX_MASTERS_STOCHASTIC},
    {"muon", AX_MOMENTS_FULL, AX_MASTERS_ACCUM},
};

static struct steps steps_of(const struct ax_arch *arch, const struct optimizer_case *c) {
    static const int64_t lengths[] = {9, 5, 7, 0};
    struct steps t = {.arch = arch, .lengths = lengths, .n = 5, .seeds = {1, 2, 3, 4, 5}};
    t.o = tiny_options(AX_BF16, AX_RECOMPUTE_OFF, 2, lengths);
    t.o.objective = &objective;
    t.o.neftune_alpha = 5;
    assert_int_equal(ax_optimizer_find(c->name, &t.o.optimizer, &t.o.opt), AX_OK);
    t.o.opt.moments = c->moments;
    t.o.opt.momentum = 0.9;
    t.o.model.masters = c->masters;
    return t;
}

/* Step 5 after a skipped step 4 is update number 4, to the bit: bias correction, the bits of
 * stochastic rounding and what the optimizer keeps are as if step 4 had never been. */
static void test_skipped_step_is_no_update(void **state) {
    (void)state;
    struct ax_arch arch;
    assert_int_equal(tiny_arch(&arch, "llama", true, ""), AX_OK);
    plan.what = BAD_LOSS;
    plan.value = NAN;
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++) {
        struct steps skipping = steps_of(&arch, &optimizers[i]), without = skipping;
        plan.first = plan.last = 4;
        run_steps(&skipping);
        assert_int_equal(skipping.skipped, 1);
        assert_int_equal(skipping.updates, 4);
        plan.first = plan.last = 0;
        without.n = 4;
        without.seeds[3] = 5;
        run_steps(&without);
        assert_int_equal(without.skipped, 0);
        if (skipping.state != without.state)
            fail_msg("%s: a skipped step left something behind", optimizers[i].name);
        without.seeds[3] = 6;
        run_steps(&without);
        assert_true(skipping.state != without.state);
    }
    ax_arch_free(&arch);
}

static void test_three_in_a_row_end_the_run(void **state) {
    (void)state;
    struct train_case c;
    struct ax_train_result r;
    open_case(&c, AX_F32);
    plan.what = BAD_ACTIVATION;
    plan.value = NAN;
    plan.first = 4;
    plan.last = 100;
    plan.calls = plan.garbage = 0;
    assert_int_equal(train_case_run(&c, &r), AX_ERR_DIVERGED);
    assert_non_null(strstr(ax_error_text(), "for the 3rd step in a row"));
    assert_non_null(strstr(ax_error_text(), "first bad gradient: model."));
    assert_non_null(strstr(ax_error_text(), "rows.jsonl:"));
    assert_int_equal(r.steps, 5);
    assert_true(state_after(&c, 3) == state_after(&c, 5));
    train_case_close(&c);
}

/* A good step between them: two and two are not three in a row. */
static void test_others_are_skipped(void **state) {
    (void)state;
    struct train_case c;
    struct ax_train_result r;
    open_case(&c, AX_F32);
    plan.what = BAD_LOSS;
    plan.value = NAN;
    plan.first = 2;
    plan.but = 4;
    plan.last = 6;
    plan.calls = plan.garbage = 0;
    if (train_case_run(&c, &r) != AX_OK)
        fail_msg("%s", ax_error_text());
    plan.but = 0;
    assert_int_equal(r.steps, 8);
    assert_int_equal(said(&c, "the step is skipped", "first bad gradient: none", "rows.jsonl:"), 4);
    train_case_close(&c);
}

/* ---- losses above a limit ---- */

/* Each first one of a row is told of, and as many in a row as allowed end the run; only logged ones count. */
static void test_losses_above_a_limit(void **state) {
    (void)state;
    static const struct {
        int64_t patience, first, but, last, logging;
        int told;
        int64_t stops; /* in this step; 0: never */
        const char *next;
    } cases[] = {{2, 2, 3, 4, 1, 2, 0, "the next 1 logged"},
                 {2, 2, 0, 3, 1, 1, 3, "the next 1 logged"},
                 {3, 2, 4, 7, 1, 2, 7, "the next 2 logged"},
                 {2, 3, 0, 5, 2, 1, 0, "the next 1 logged"},
                 {2, 3, 0, 6, 2, 1, 6, "the next 1 logged"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct train_case c;
        struct ax_train_result r;
        char want[96];
        open_case(&c, AX_F32);
        c.o.watchdog = 8; /* the loss begins near ln 97 */
        c.o.watchdog_patience = cases[i].patience;
        c.o.metrics.logging_steps = cases[i].logging;
        c.o.save.when.when = AX_NEVER;
        plan.what = BAD_LOSS;
        plan.value = 9;
        plan.first = cases[i].first;
        plan.but = cases[i].but;
        plan.last = cases[i].last;
        plan.calls = plan.garbage = 0;
        const enum ax_status st = train_case_run(&c, &r);
        plan.but = 0;
        if (st != (cases[i].stops ? AX_ERR_DIVERGED : AX_OK))
            fail_msg("%zu: %s", i, ax_error_text());
        assert_int_equal(
            said(&c, "loss 9 is above 8: training stops if", cases[i].next, "rows.jsonl:"),
            cases[i].told);
        snprintf(want, sizeof want, "above 8 in %lld logged steps in a row, 9 in step %lld;",
                 (long long)cases[i].patience, (long long)cases[i].stops);
        assert_true(cases[i].stops == 0 || strstr(ax_error_text(), want));
        train_case_close(&c);
    }
}

/* ---- over a stop ---- */

static void spoil_losses(float value, int64_t first) {
    plan.what = BAD_LOSS;
    plan.value = value;
    plan.first = first;
    plan.last = 100;
    plan.calls = plan.garbage = 0;
}

static void run_to(struct train_case *c, int64_t steps) {
    struct ax_train_result r;
    c->o.max_steps = steps;
    if (train_case_run(c, &r) != AX_OK)
        fail_msg("%s", ax_error_text());
    c->o.save.resume = AX_RESUME_NEWEST;
    c->o.max_steps = 8;
}

static void stops_in(struct train_case *c, int64_t step, const char *text) {
    struct ax_train_result r;
    assert_int_equal(train_case_run(c, &r), AX_ERR_DIVERGED);
    if (!strstr(ax_error_text(), text))
        fail_msg("%s", ax_error_text());
    assert_int_equal(r.steps, step - 1);
    train_case_close(c);
}

/* A run that goes on has seen what it had seen: steps of no number, losses above a limit, the range of losses. */
static void test_counts_go_on(void **state) {
    (void)state;
    struct train_case c;
    for (int n = 1; n < 3; n++) {
        open_case(&c, AX_F32);
        spoil_losses(NAN, 4);
        run_to(&c, 3 + n);
        assert_int_equal(said(&c, "the run ends with ",
                              n == 1 ? "with 1 skipped step, " : "with 2 skipped steps, ",
                              "finite: the last finite loss is "),
                         1);
        stops_in(&c, 6, "step 6: loss nan, gradient norm");
    }
    open_case(&c, AX_F32);
    spoil_losses(NAN, 1);
    run_to(&c, 1);
    assert_int_equal(said(&c, "the run ends with ", "1 skipped step,", "no loss was finite"), 1);
    stops_in(&c, 3, "for the 3rd step in a row");
    for (int n = 1; n < 3; n++) {
        open_case(&c, AX_F32);
        c.o.watchdog = 8;
        c.o.watchdog_patience = 3;
        spoil_losses(9, 2);
        run_to(&c, 1 + n);
        stops_in(&c, 4, "was above 8 in 3 logged steps in a row, 9 in step 4;");
    }
    open_case(&c, AX_F32);
    c.o.watchdog = NAN;
    c.o.watchdog_patience = 1;
    spoil_losses(1000, 3);
    run_to(&c, 2);
    stops_in(&c, 3, "far outside its recent range, in 1 logged steps in a row, 1000 in step 3;");
}

/* ---- which rows are named ---- */

#define MANY 64

/* The rows of a first step whose loss is not finite, where its documents alone have these losses:
 * as "(loss …)" and as what stands before each. Returns the number of documents. */
static int named_rows(bool packed, const double *losses, char *numbers, char (*rows)[64]) {
    struct train_case c;
    struct ax_train_result r;
    char path[160], *text;
    size_t n;
    int found = 0, more = 0;
    if (train_case_open(&c, AX_F32, packed) != AX_OK)
        fail_msg("%s", ax_error_text());
    c.o.step.objective = &objective;
    c.o.max_steps = 1;
    c.o.save.when.when = AX_NEVER;
    plan.what = BAD_LOSS;
    plan.value = NAN;
    plan.first = plan.last = 1;
    plan.calls = plan.garbage = plan.asked = 0;
    plan.losses = losses;
    if (train_case_run(&c, &r) != AX_OK)
        fail_msg("%s", ax_error_text());
    plan.losses = NULL;
    snprintf(path, sizeof path, "%s/metrics.jsonl", c.out);
    assert_int_equal(ax_read_file(path, 1 << 24, &text, &n), AX_OK);
    const char *at = strstr(text, "; records: ");
    assert_non_null(at);
    at += strlen("; records: ");
    *numbers = '\0';
    for (;; at += 2) {
        const char *loss = strstr(at, " (loss "), *end = strchr(at, ')');
        assert_true(found < 4 && loss && end && loss < end);
        snprintf(rows[found++], 64, "%.*s", (int)(loss - at), at);
        loss += strlen(" (loss ");
        snprintf(numbers + strlen(numbers), 64, "%s%.*s", found > 1 ? " " : "", (int)(end - loss),
                 loss);
        at = end + 1;
        if (strncmp(at, ", ", 2) != 0)
            break;
    }
    if (sscanf(at, " and %d more\"", &more) == 1)
        assert_true(more > 0);
    else
        assert_int_equal(*at, '"');
    ax_free(text);
    train_case_close(&c);
    assert_true(plan.asked <= MANY);
    int own = 0; /* one of 0 says that a record has none of its own */
    for (int i = 0; i < plan.asked; i++)
        own += losses[i] != 0;
    assert_int_equal(found + more, own);
    return plan.asked;
}

/* Four of them, the worst first: no number is worse than any number. Of equal ones those that came
 * first. */
static void test_the_worst_rows_are_named(void **state) {
    (void)state;
    double losses[MANY];
    char numbers[256], falling[4][64], rows[4][64];
    for (int i = 0; i < MANY; i++)
        losses[i] = 100 - i;
    const int n = named_rows(true, losses, numbers, falling);
    assert_true(n >= 7);
    assert_string_equal(numbers, "100 99 98 97");
    for (int i = 0; i < 4; i++) /* each is a row of its own */
        for (int k = 0; k < i; k++)
            assert_string_not_equal(falling[i], falling[k]);
    for (int i = 0; i < MANY; i++)
        losses[i] = i;
    assert_int_equal(named_rows(true, losses, numbers, rows), n);
    char want[256];
    snprintf(want, sizeof want, "%d %d %d %d", n - 1, n - 2, n - 3, n - 4);
    assert_string_equal(numbers, want);
    const double mixed[MANY] = {2, NAN, 5, NAN, 1, -1, 2};
    assert_int_equal(named_rows(true, mixed, numbers, rows), n);
    assert_string_equal(numbers, "nan nan 5 2");
    assert_string_equal(rows[0], falling[1]);
    assert_string_equal(rows[1], falling[3]);
    assert_string_equal(rows[2], falling[2]);
    assert_string_equal(rows[3], falling[0]);
    /* of just four all are named */
    assert_int_equal(named_rows(false, mixed, numbers, rows), 4);
    assert_string_equal(numbers, "nan nan 5 2");
}

static void test_garbage_is_a_spike(void **state) {
    (void)state;
    struct train_case c;
    struct ax_train_result r;
    open_case(&c, AX_F32);
    c.o.max_steps = 150;
    c.o.epochs = 100;
    c.o.save.when.when = AX_NEVER;
    plan.first = plan.last = 0;
    plan.calls = 0;
    plan.docs = &c.docs;
    plan.garbage = 140;
    if (train_case_run(&c, &r) != AX_OK)
        fail_msg("%s", ax_error_text());
    assert_int_equal(said(&c, "deviations above the last ones", "\"step\": 140", "rows.jsonl:"), 1);
    train_case_close(&c);
}

/* Far above the recent losses, by the definition: the lower median and three times the largest of
 * its size, the spread of the middle 80 %, and 1 (4 while there are fewer than 8 losses). A loss
 * above it does not become a recent one. */
static void test_what_is_far_above(void **state) {
    (void)state;
    static const struct {
        int64_t n;
        double losses[8], limit;
    } cases[] = {
        {0, {0}, INFINITY},
        {1, {7.85}, 31.4},
        {1, {0.25}, 12.25},
        {7, {1, 1, 1, 1, 1, 1, 1}, 13},
        {8, {1, 1, 1, 1, 1, 1, 1, 9}, 4},
        {8, {9, 1, 1, 1, 1, 1, 1, 1}, 4},
        {8, {-5, -5, -5, -5, -5, -5, -5, -5}, 10},
        {8, {0, 0, 0, 0, 0, 0, 0, 0}, 3},
        {8, {7, 1, 3, 5, 4, 2, 6, 0}, 21},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int above = 0; above < 2; above++) {
            const struct ax_train_options o = {.watchdog = NAN}; /* no patience: it only looks */
            struct ax_train t = {.o = &o, .schedule = {.logging_steps = 1}};
            const double limit = isinf(cases[i].limit) ? 1e9 : cases[i].limit;
            const struct ax_step_result r = {
                .loss = limit + (above ? 0.01 : -0.01), .grad_norm = 1, .weight_total = 1};
            memcpy(t.watch.window, cases[i].losses, sizeof cases[i].losses);
            t.watch.n = cases[i].n;
            assert_int_equal(ax_train_watch_step(&t, &r), AX_OK);
            const bool far = above && !isinf(cases[i].limit);
            assert_int_equal(t.watch.n, cases[i].n + !far);
        }
    }
}

/* Six deviations above the mean of the last losses, and a tenth of it, of at least sixteen; a policy's says nothing. */
static void test_what_is_a_spike(void **state) {
    (void)state;
    static const struct {
        int n;
        double even, odd; /* losses in turn */
        int64_t sampled;
        double limit;
    } cases[] = {{15, 2, 2, 0, INFINITY}, {16, 2, 2, 0, 2.2},    {16, 1, 3, 0, 8},
                 {64, 1, 3, 0, 8},        {16, -2, -2, 0, -1.8}, {20, 4, 4.02, 0, 4.01 * 1.1},
                 {16, 1, 3, 4, INFINITY}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct ax_train_options o = {.watchdog = 5, .rollout = {.group = cases[i].sampled}};
        struct ax_train t = {.o = &o, .schedule = {.logging_steps = 1}};
        for (int k = 0; k < cases[i].n; k++)
            t.watch.window[k] = k % 2 ? cases[i].odd : cases[i].even;
        t.watch.n = cases[i].n;
        const double got = ax_train_watch_bound(&t);
        if (!(got == cases[i].limit || fabs(got - cases[i].limit) < 1e-12))
            fail_msg("%zu: %.17g", i, got);
        const struct ax_train_options watches = {
            .watchdog = 5, .watchdog_patience = 1, .rollout = o.rollout};
        t.o = &watches; /* then its limit, too */
        assert_true(fabs(ax_train_watch_bound(&t) - fmin(5, cases[i].limit)) < 1e-12);
    }
}

static int quiet(void **state) {
    (void)state;
    ax_log_set_level(AX_LOG_ERROR);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_step_is_skipped),
        cmocka_unit_test(test_the_first_tensor_is_named),
        cmocka_unit_test(test_skipped_step_is_no_update),
        cmocka_unit_test(test_three_in_a_row_end_the_run),
        cmocka_unit_test(test_others_are_skipped),
        cmocka_unit_test(test_losses_above_a_limit),
        cmocka_unit_test(test_counts_go_on),
        cmocka_unit_test(test_the_worst_rows_are_named),
        cmocka_unit_test(test_garbage_is_a_spike),
        cmocka_unit_test(test_what_is_far_above),
        cmocka_unit_test(test_what_is_a_spike),
    };
    return cmocka_run_group_tests(tests, quiet, NULL);
}
