/* How long a run is, and when it evaluates, saves and logs: counted by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "optim/train/run.h"

#define PER_STEP 4 /* rows: two of each of two micro-batches */

/* ---- data of which only the number of rows counts ---- */

struct counted {
    int64_t rows[4]; /* of each epoch; a row is one document of 10, 20, 30, 10, … tokens */
    struct ax_example_source source;
    struct ax_loader *loader;
    struct ax_train_options o;
};

static enum ax_status give_chunk(void *ctx, int64_t epoch, int64_t chunk,
                                 struct ax_source_place place, struct ax_corpus *out,
                                 struct ax_source_place *next) {
    const struct counted *c = ctx;
    *next = place;
    for (int64_t i = 0; chunk == 0 && i < c->rows[epoch]; i++)
        AX_TRY(ax_corpus_add(out, (struct ax_example_ref){.n = (uint32_t)(10 + 10 * (i % 3))}));
    return AX_OK;
}

static void open_counted(struct counted *c, int64_t first, int64_t second, int64_t third) {
    *c = (struct counted){.rows = {first, second, third, third}};
    c->source = (struct ax_example_source){.ctx = c, .chunk = give_chunk, .countable = true};
    const struct ax_loader_options lo = {
        .pack = {.mode = AX_PACK_PLAIN, .capacity = 30, .max_docs = 1}};
    assert_int_equal(ax_loader_new(&c->loader, &c->source, &lo), AX_OK);
    c->o = (struct ax_train_options){
        .step = {.n_microbatches = 2},
        .data = {.train = c->loader, .sequences_per_batch = 2, .countable = true},
        .lr = {.kind = AX_LR_COSINE, .base_lr = 0.5},
        .epochs = 1,
        .warmup = -1,
        .warmup_ratio = -1};
}

static struct ax_train_schedule make(const struct counted *c, int ranks) {
    struct ax_train_schedule s;
    if (ax_train_schedule_make(&s, &c->o, ranks) != AX_OK)
        fail_msg("%s", ax_error_text());
    return s;
}

static int64_t total(struct counted *c, double epochs, bool drop_last, int64_t max_steps) {
    c->o.epochs = epochs;
    c->o.data.drop_last = drop_last;
    c->o.max_steps = max_steps;
    struct ax_train_schedule s = make(c, 1);
    const int64_t n = s.total;
    assert_int_equal(s.lr.total, n);
    ax_train_schedule_free(&s);
    return n;
}

/* ---- how many steps ---- */

static void steps_of_epochs(void **state) {
    (void)state;
    struct counted c;
    open_counted(&c, 40, 41, 43); /* 10 steps, and 0, 1, 3 rows more */
    static const struct {
        double epochs;
        int64_t dropping, keeping;
    } cases[] = {
        {1, 10, 10},   {2, 20, 21},   {3, 30, 32},   {4, 40, 43}, {0.5, 5, 5},   {0.25, 2, 3},
        {0.01, 1, 1}, /* never none */
        {1.5, 15, 16}, {1.1, 11, 12}, {2.3, 23, 25}, {0.7, 7, 7}, {1.4, 14, 15}, {3.9, 39, 42},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(total(&c, cases[i].epochs, true, 0), cases[i].dropping);
        assert_int_equal(total(&c, cases[i].epochs, false, 0), cases[i].keeping);
    }
    assert_int_equal(total(&c, 2, false, 20), 20); /* the fewer of the two */
    assert_int_equal(total(&c, 2, false, 21), 21);
    assert_int_equal(total(&c, 2, false, 22), 21);
    assert_int_equal(total(&c, 2, true, 1), 1);
    assert_int_equal(total(&c, 0, false, 1000000000), 1000000000); /* alone */
    assert_int_equal(total(&c, 0, true, 3), 3);
    ax_loader_free(c.loader);
    open_counted(&c, 90, 90, 90); /* 22 steps and a half: a share of the whole steps */
    assert_int_equal(total(&c, 1.5, true, 0), 33);
    assert_int_equal(total(&c, 1.5, false, 0), 23 + 12);
    ax_loader_free(c.loader);
}

/* 2.3 − 2 is a little less than 0.3, and 1.1 − 1 a little more than 0.1: no step less or more. */
static void shares_are_not_lost_in_rounding(void **state) {
    (void)state;
    struct counted c;
    for (int64_t steps = 10; steps <= 200; steps += 10) {
        open_counted(&c, steps * PER_STEP, steps * PER_STEP, steps * PER_STEP);
        for (int tenths = 1; tenths <= 40; tenths++) {
            assert_int_equal(total(&c, tenths / 10.0, true, 0), tenths * steps / 10);
            assert_int_equal(total(&c, tenths / 10.0, false, 0), tenths * steps / 10);
        }
        ax_loader_free(c.loader);
    }
}

static void ranks_and_tokens(void **state) {
    (void)state;
    struct counted c;
    open_counted(&c, 41, 45, 45);
    c.o.epochs = 2;
    assert_int_equal(ax_train_sequences_per_step(&c.o, 1), PER_STEP);
    assert_int_equal(ax_train_sequences_per_step(&c.o, 3), 3 * PER_STEP);
    struct ax_train_schedule s = make(&c, 3);
    assert_int_equal(s.total, 4 + 4);
    assert_int_equal(s.n_epochs, 2);
    assert_int_equal(s.sequences[0], 41);
    assert_int_equal(s.sequences[1], 45);
    assert_true(s.doc_tokens == 20);
    ax_train_schedule_free(&s);
    ax_loader_free(c.loader);
}

static void refused(void **state) {
    (void)state;
    struct counted c;
    struct ax_train_schedule s;
    const uint64_t live = ax_mem_live_blocks();
    open_counted(&c, 8, 3, 8);
    assert_int_equal(total(&c, 1, true, 0), 2);
    assert_int_equal(total(&c, 2, false, 0), 3);
    c.o.data.drop_last = true;
    assert_int_equal(ax_train_schedule_make(&s, &c.o, 1), AX_ERR_DATA);
    assert_non_null(
        strstr(ax_error_text(), "there are only 3 rows to train on, but one step takes 4;"));
    c.o.data.countable = false; /* streamed: max_steps alone says */
    assert_int_equal(ax_train_schedule_make(&s, &c.o, 1), AX_ERR_CONFIG);
    assert_non_null(strstr(ax_error_text(), "max_steps"));
    assert_int_equal(total(&c, 1, true, 77), 77);
    ax_loader_free(c.loader);
    assert_int_equal(ax_mem_live_blocks(), live);
}

/* ---- where an epoch ends ---- */

static double epoch_after(struct ax_train_schedule *s, const struct ax_train_sequences *r,
                          const struct counted *c, bool *last) {
    double epochs;
    assert_int_equal(ax_train_epoch_after(s, r, &c->o.data, &epochs, last), AX_OK);
    return epochs;
}

/* Walks over the epochs as the training loop takes rows; the step of each at which it ends. */
static void check_ends(struct counted *c, bool drop_last, const int64_t *ends) {
    c->o.epochs = 3;
    c->o.data.drop_last = drop_last;
    struct ax_train_schedule s = make(c, 1);
    for (int64_t epoch = 0; epoch < 3; epoch++) {
        for (int64_t step = 1; step <= ends[epoch]; step++) {
            const int64_t index = (step - 1) * PER_STEP, left = c->rows[epoch] - index;
            const struct ax_train_sequences r = {
                .epoch = epoch, .index = index, .n = left < PER_STEP ? left : PER_STEP};
            bool last;
            const double done = epoch_after(&s, &r, c, &last);
            assert_int_equal(last, step == ends[epoch]);
            const double share = (double)(index + r.n) / (double)c->rows[epoch];
            assert_true(done == (last ? (double)(epoch + 1) : (double)epoch + share));
        }
    }
    ax_train_schedule_free(&s);
}

static void epochs_end_with_their_last_step(void **state) {
    (void)state;
    struct counted c;
    open_counted(&c, 12, 13, 15); /* k steps exactly, one row more, one row less than k + 1 */
    check_ends(&c, true, (const int64_t[]){3, 3, 3});
    check_ends(&c, false, (const int64_t[]){3, 4, 4});
    ax_loader_free(c.loader);
    open_counted(&c, 4, 7, 8);
    check_ends(&c, true, (const int64_t[]){1, 1, 2});
    check_ends(&c, false, (const int64_t[]){1, 2, 2});
    ax_loader_free(c.loader);
}

/* The rows that fill no micro-batch are dropped, and those that fill no step are a step. */
static void incomplete_microbatches(void **state) {
    (void)state;
    static const struct {
        int64_t rows;
        int micro, ranks; /* of 2 rows */
        int64_t steps, used;
    } cases[] = {{11, 1, 1, 5, 10}, {11, 2, 1, 3, 10}, {11, 4, 1, 2, 10}, {11, 2, 2, 1, 8},
                 {8, 2, 1, 2, 8},   {9, 2, 1, 2, 8},   {10, 2, 1, 3, 10}, {2, 8, 1, 1, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct counted c;
        bool last;
        open_counted(&c, cases[i].rows, cases[i].rows, cases[i].rows);
        c.o.step.n_microbatches = cases[i].micro;
        c.o.data.drop_partial = true;
        struct ax_train_schedule s = make(&c, cases[i].ranks);
        assert_int_equal(s.total, cases[i].steps);
        struct ax_train_sequences r = {.n = cases[i].used};
        assert_true(epoch_after(&s, &r, &c, &last) == 1 && last);
        r.n -= 2 * cases[i].ranks;
        (void)epoch_after(&s, &r, &c, &last);
        assert_false(last);
        ax_train_schedule_free(&s);
        ax_loader_free(c.loader);
    }
}

/* max_steps alone: epochs end where they do, however many it takes; they are counted when they begin. Of
 * streamed data nothing is known. */
static void as_many_epochs_as_it_takes(void **state) {
    (void)state;
    struct counted c;
    bool last;
    open_counted(&c, 8, 9, 12); /* 2, 3 and 3 steps */
    c.o.epochs = 0;
    c.o.max_steps = 7;
    struct ax_train_schedule s = make(&c, 1);
    assert_int_equal(s.total, 7);
    assert_int_equal(s.n_epochs, 1);
    for (int64_t epoch = 0, step = 0; step < s.total; epoch++)
        for (int64_t i = 0; i < c.rows[epoch] && step < s.total; i += PER_STEP, step++) {
            const int64_t left = c.rows[epoch] - i, n = left < PER_STEP ? left : PER_STEP;
            const struct ax_train_sequences r = {.epoch = epoch, .index = i, .n = n};
            const double done = epoch_after(&s, &r, &c, &last);
            assert_true(done == (double)epoch + (double)(i + n) / (double)c.rows[epoch]);
            assert_int_equal(last, i + n == c.rows[epoch]);
        }
    assert_int_equal(s.n_epochs, 3);
    ax_train_schedule_free(&s);
    c.o.data.countable = false;
    s = make(&c, 1);
    const struct ax_train_sequences r = {.epoch = 3, .index = 8, .n = 4};
    assert_true(epoch_after(&s, &r, &c, &last) == 3);
    assert_false(last);
    ax_train_schedule_free(&s);
    ax_loader_free(c.loader);
}

/* ---- how often ---- */

/* Parts of an epoch, rounded up, at most of the run. */
static void times_per_epoch(void **state) {
    (void)state;
    static const struct {
        double epochs;
        int64_t max_steps, total;
        double per_epoch;
        int64_t every;
    } cases[] = {{0, 25, 25, 2, 5},  {0, 25, 25, 3, 4},   {0, 25, 25, 0.5, 20}, {0, 5, 5, 2, 3},
                 {2, 0, 20, 2, 5},   {2, 0, 20, 4, 3},    {2, 0, 20, 0.5, 20},  {2, 10, 10, 2, 3},
                 {2, 90, 20, 2, 5},  {0.5, 0, 5, 2, 5},   {1, 0, 10, 10, 1},    {1, 0, 10, 99, 1},
                 {1.5, 0, 15, 2, 5}, {0, 500, 500, 2, 5}, {3, 0, 30, 3, 4}};
    struct counted c;
    open_counted(&c, 40, 40, 40); /* 10 steps */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        c.o.epochs = cases[i].epochs;
        c.o.max_steps = cases[i].max_steps;
        c.o.save.when = (struct ax_cadence){AX_EACH_PART, 1 / cases[i].per_epoch};
        struct ax_train_schedule s = make(&c, 1);
        assert_int_equal(s.total, cases[i].total);
        assert_string_equal(s.limit,
                            cases[i].total == cases[i].max_steps ? "max_steps" : "num_epochs");
        assert_int_equal(s.save_every, cases[i].every);
        ax_train_schedule_free(&s);
    }
    ax_loader_free(c.loader);
}

static void cadences(void **state) {
    (void)state;
    static const struct {
        enum ax_when when;
        double steps;
        int64_t every; /* of 25 */
    } cases[] = {
        {AX_EACH_STEPS, 1, 1},     {AX_EACH_STEPS, 3, 3},     {AX_EACH_STEPS, 3.7, 3},
        {AX_EACH_STEPS, 500, 500}, {AX_EACH_STEPS, 0.1, 3},   {AX_EACH_STEPS, 0.04, 1},
        {AX_EACH_STEPS, 0.041, 2}, {AX_EACH_STEPS, 0.001, 1}, {AX_EACH_STEPS, 0.99, 25},
        {AX_EACH_STEPS, 0, 1},     {AX_NEVER, 3, 0},          {AX_EACH_EPOCH, 3, 0},
        {AX_WHEN_BEST, 3, 0},
    };
    const size_t n = sizeof cases / sizeof *cases;
    struct counted c;
    open_counted(&c, 100, 100, 100);
    for (size_t i = 0; i < n; i++) {
        const size_t other = (i + 1) % n;
        c.o.eval.when = (struct ax_cadence){cases[i].when, cases[i].steps};
        c.o.save.when = (struct ax_cadence){cases[other].when, cases[other].steps};
        struct ax_train_schedule s = make(&c, 1);
        assert_int_equal(s.eval_every, cases[i].every);
        assert_int_equal(s.save_every, cases[other].every);
        ax_train_schedule_free(&s);
    }
    ax_loader_free(c.loader);
}

static void warmup(void **state) {
    (void)state;
    static const struct {
        int64_t total, steps;
        double ratio;
        int64_t want;
    } cases[] = {
        {50, 0, 0.5, 0},     {50, 7, 0.5, 7},       {50, 80, -1, 80}, /* steps go before the ratio
                                                                       */
        {33, -1, -1, 0},     {34, -1, -1, 2},       {67, -1, -1, 2},  {3333, -1, -1, 99},
        {3334, -1, -1, 100}, {90000, -1, -1, 100}, /* 3 %, at most 100 */
        {100, -1, 0, 0},     {25, -1, 0.1, 2},      {29, -1, 0.1, 2}, {30, -1, 0.1, 3},
        {19, -1, 0.1, 2},    {10, -1, 0.1, 2},      {9, -1, 0.1, 0}, /* never one alone */
        {25, -1, 1, 25},     {9000, -1, 0.5, 4500},
    };
    struct counted c;
    open_counted(&c, 4, 4, 4);
    c.o.data.countable = false;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        c.o.max_steps = cases[i].total;
        c.o.warmup = cases[i].steps;
        c.o.warmup_ratio = cases[i].ratio;
        c.o.lr.decay = 5;
        c.o.lr.stable = i % 2 ? -1 : 3;
        struct ax_train_schedule s = make(&c, 1);
        assert_int_equal(s.lr.warmup, cases[i].want);
        assert_int_equal(s.lr.stable, i % 2 ? cases[i].total - cases[i].want - 5 : 3);
        assert_int_equal(s.lr.decay, 5);
        assert_true(s.lr.kind == AX_LR_COSINE && s.lr.base_lr == 0.5);
        ax_train_schedule_free(&s);
    }
    ax_loader_free(c.loader);
}

static void logging(void **state) {
    (void)state;
    static const int64_t cases[][3] = {/* total, asked for, one in */
                                       {1, 0, 1},     {399, 0, 1},    {400, 0, 2},   {1999, 0, 9},
                                       {2000, 0, 10}, {90000, 0, 10}, {90000, 3, 3}, {5, 50, 50}};
    struct counted c;
    open_counted(&c, 4, 4, 4);
    c.o.data.countable = false;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        c.o.max_steps = cases[i][0];
        c.o.metrics.logging_steps = cases[i][1];
        struct ax_train_schedule s = make(&c, 1);
        assert_int_equal(s.logging_steps, cases[i][2]);
        ax_train_schedule_free(&s);
    }
    ax_loader_free(c.loader);
}

static int quiet(void **state) {
    (void)state;
    ax_log_set_level(AX_LOG_ERROR);
    return 0;
}

/* What ax_train_schedule_warn says on stderr. */
static const char *warned(const struct ax_train_schedule *s, const struct ax_train_options *o) {
    static char text[1000];
    FILE *f = tmpfile();
    assert_non_null(f);
    const int old = dup(STDERR_FILENO);
    const enum ax_log_level level = ax_log_get_level();
    ax_log_set_level(AX_LOG_WARN);
    dup2(fileno(f), STDERR_FILENO);
    ax_train_schedule_warn(s, o);
    dup2(old, STDERR_FILENO);
    close(old);
    ax_log_set_level(level);
    rewind(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

static void what_begins_too_late(void **state) {
    (void)state;
    struct counted c;
    open_counted(&c, 4, 4, 4);
    c.o.data.countable = false;
    c.o.max_steps = 10;
    static const struct {
        enum ax_lr_kind kind;
        int64_t warmup, qat_after;
        const char *want;
    } cases[] = {
        {AX_LR_COSINE, 9, 9, NULL},
        {AX_LR_COSINE, 10, 0,
         "warmup_steps: the run ends after step 10, but the warmup takes 10: the learning rate "
         "only gets to 0.45 of 0.5\n"},
        {AX_LR_LINEAR, 100, 0, "the learning rate only gets to 0.045 of 0.5\n"},
        {AX_LR_CONSTANT, 100, 0, NULL},
        {AX_LR_REX, 10, 0, NULL}, /* rises a step early */
        {AX_LR_COSINE, 0, 10,
         "qat.fake_quant_after_n_steps: the run ends after step 10, but quantization starts after "
         "step 10: nothing is trained for it\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        c.o.lr.kind = cases[i].kind;
        c.o.warmup = cases[i].warmup;
        c.o.step.qat_after = cases[i].qat_after;
        struct ax_train_schedule s = make(&c, 1);
        const char *got = warned(&s, &c.o);
        if (cases[i].want ? !strstr(got, cases[i].want) : got[0] != '\0')
            fail_msg("%zu: %s", i, got);
        ax_train_schedule_free(&s);
    }
    ax_loader_free(c.loader);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_of_epochs),
        cmocka_unit_test(shares_are_not_lost_in_rounding),
        cmocka_unit_test(ranks_and_tokens),
        cmocka_unit_test(refused),
        cmocka_unit_test(epochs_end_with_their_last_step),
        cmocka_unit_test(incomplete_microbatches),
        cmocka_unit_test(as_many_epochs_as_it_takes),
        cmocka_unit_test(times_per_epoch),
        cmocka_unit_test(cadences),
        cmocka_unit_test(warmup),
        cmocka_unit_test(logging),
        cmocka_unit_test(what_begins_too_late),
    };
    return cmocka_run_group_tests(tests, quiet, NULL);
}
