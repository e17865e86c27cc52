/* Evaluation: the loss of training, whatever shares a pass, and no trace left in a training run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "model/core/results.h"
#include "optim/evaluate/evaluate.h"
#include "tests/tiny.h"

enum { DOCS = 7, VOCAB = 97 };
static const uint32_t lengths[DOCS] = {19, 2, 40, 7, 33, 11, 25};

enum trained { NOTHING, SOME, ALL };

/* Documents of random tokens; of SOME about half are trained. */
struct data {
    struct ax_examples docs;
    struct ax_corpus corpus;
    struct ax_corpus_source source;
    struct ax_example_source from;
    struct ax_loader *loader;
};

static void add_documents(struct ax_examples *docs, enum trained trained) {
    assert_int_equal(ax_examples_add_file(docs, "rows.jsonl"), AX_OK);
    for (int d = 0; d < DOCS; d++) {
        int32_t ids[64], labels[64];
        for (uint32_t i = 0; i < lengths[d]; i++) {
            const struct ax_rng_key key = {4, (uint32_t)d, 2};
            ids[i] = (int32_t)ax_rng_below(key, 2 * i, 97);
            const bool mine =
                trained == ALL || (trained == SOME && ax_rng_below(key, 2 * i + 1, 2));
            labels[i] = mine ? ids[i] : AX_NO_LABEL;
        }
        if (trained)
            labels[lengths[d] - 1] = ids[lengths[d] - 1];
        assert_int_equal(
            ax_examples_add(docs, &(struct ax_example){.tokens = ids,
                                                       .labels = labels,
                                                       .n = lengths[d],
                                                       .origin = {.line = (uint64_t)d + 1}}),
            AX_OK);
    }
}

/* Of the first n documents of d->docs. */
static void open_loader(struct data *d, enum ax_pack_mode mode, uint32_t n) {
    d->corpus.sets = &d->docs;
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(
            ax_corpus_add(&d->corpus, (struct ax_example_ref){.index = i, .n = d->docs.list[i].n}),
            AX_OK);
    ax_corpus_source_init(&d->source, &d->corpus, &d->from);
    const struct ax_loader_options o = {
        .pack = {.mode = mode, .capacity = 64, .max_docs = 8, .chunk = 100}};
    assert_int_equal(ax_loader_new(&d->loader, &d->from, &o), AX_OK);
}

static void open_data(struct data *d, enum ax_pack_mode mode, enum trained trained) {
    *d = (struct data){.source = {.chunk = 100}};
    add_documents(&d->docs, trained);
    open_loader(d, mode, DOCS);
}

static void close_data(struct data *d) {
    ax_loader_free(d->loader);
    ax_corpus_source_free(&d->source);
    ax_corpus_free(&d->corpus);
    ax_examples_free(&d->docs);
}

/* ---- a model that is only evaluated ---- */

struct run {
    struct ax_arch *arch;
    struct ax_loader *loader;
    enum ax_dtype dtype;
    struct ax_eval_options o;
    /* out */
    struct ax_eval_result r;
    int n;
    struct ax_eval_document docs[VOCAB];
    int passes;
    uint64_t waits;
    struct ax_arena_plan plan;
};

static enum ax_status keep(void *ctx, const struct ax_eval_document *d) {
    struct run *r = ctx;
    assert_true(r->n < VOCAB);
    r->docs[r->n++] = *d;
    return AX_OK;
}

static void count_pass(void *ctx, int64_t rows) {
    struct run *r = ctx;
    (void)rows;
    r->passes++;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct run *r = ctx;
    struct ax_model m;
    const struct ax_model_options mo = {.dtype = r->dtype, .max_positions = 64};
    AX_TRY(ax_model_create(&m, r->arch, rt, &mo));
    ax_model_init_random(&m, 1);
    r->n = 0;
    r->o.document = keep;
    r->o.progress = count_pass;
    r->o.ctx = r;
    r->passes = 0;
    const uint64_t waits = rt->q->counters.waits;
    enum ax_status st = ax_evaluate(&m, r->loader, &r->o, &r->r);
    r->waits = rt->q->counters.waits - waits;
    const struct ax_eval_result first = r->r;
    if (st == AX_OK) { /* and again: the same */
        r->n = r->passes = 0;
        st = ax_evaluate(&m, r->loader, &r->o, &r->r);
        assert_memory_equal(&first, &r->r, offsetof(struct ax_eval_result, seconds));
    }
    ax_model_free(&m);
    return st;
}

static enum ax_status evaluate(struct run *r, const char *backend) {
    const struct ax_runtime_options ro = {.backend = backend, .threads = 2};
    return ax_runtime_run(&ro, body, r, &r->plan);
}

/* Of documents that differ in their last token, which alone is trained, exactly one ends with the
 * token that the model finds likeliest. */
static void one_token_is_right(void **state) {
    (void)state;
    struct data d = {.source = {.chunk = 100}};
    struct ax_arch arch;
    assert_int_equal(tiny_arch(&arch, "llama", true, ""), AX_OK);
    assert_int_equal(ax_examples_add_file(&d.docs, "rows.jsonl"), AX_OK);
    for (int32_t v = 0; v < VOCAB; v++) {
        const int32_t ids[] = {3, 8, v}, labels[] = {AX_NO_LABEL, AX_NO_LABEL, v};
        assert_int_equal(ax_examples_add(&d.docs, &(struct ax_example){.tokens = ids,
                                                                       .labels = labels,
                                                                       .n = 3,
                                                                       .origin = {.line = 1}}),
                         AX_OK);
    }
    open_loader(&d, AX_PACK_PLAIN, VOCAB);
    struct run r = {.arch = &arch,
                    .loader = d.loader,
                    .dtype = AX_F32,
                    .o = {.tokens = 60, .max_docs = 8, .max_len = 40}};
    if (evaluate(&r, "cpu") != AX_OK)
        fail_msg("%s", ax_error_text());
    assert_int_equal(r.passes, 13); /* 97 documents, 8 to a pass */
    assert_int_equal(r.waits, 0);
    int right = 0;
    for (int k = 0; k < VOCAB; k++)
        right += (int)r.docs[k].correct;
    assert_int_equal(right, 1);
    assert_int_equal(r.r.correct, 1);
    assert_true(r.r.accuracy == 1.0 / VOCAB);
    close_data(&d);
    ax_arch_free(&arch);
}

/* The host waits once per 16 passes, and the documents come in order all the same. Where memory is
 * the host's, it waits for nothing, and scores take the memory of one pass, here of one window. */
static void one_wait_per_sixteen_passes(void **state) {
    (void)state;
    struct data d;
    struct ax_arch arch;
    double once[DOCS];
    open_data(&d, AX_PACK_PLAIN, SOME);
    for (int k = 1; k < 6; k++) /* the same documents again and again */
        for (uint32_t i = 0; i < DOCS; i++)
            assert_int_equal(
                ax_corpus_add(&d.corpus,
                              (struct ax_example_ref){.index = i, .n = d.docs.list[i].n}),
                AX_OK);
    assert_int_equal(tiny_arch(&arch, "llama", true, ""), AX_OK);
    struct run r = {.arch = &arch,
                    .loader = d.loader,
                    .dtype = AX_F32,
                    .o = {.tokens = 40, .max_docs = 1, .max_len = 40}};
    struct run far = r;
    if (evaluate(&r, "cpu") != AX_OK || evaluate(&far, "far") != AX_OK)
        fail_msg("%s", ax_error_text());
    assert_memory_equal(&r.r, &far.r, offsetof(struct ax_eval_result, seconds));
    assert_memory_equal(r.docs, far.docs, sizeof r.docs);
    assert_int_equal(far.waits, 3); /* 42 passes */
    assert_int_equal(r.passes, 6 * DOCS);
    assert_int_equal(r.n, 6 * DOCS);
    const size_t window = ax_results_bytes(AX_F32, 40) + ax_results_bytes(AX_I32, 40);
    assert_int_equal(r.waits, 0);
    assert_int_equal(far.plan.scratch[AX_PHASE_EVAL] - r.plan.scratch[AX_PHASE_EVAL], 15 * window);
    for (int k = 0; k < r.n; k++) {
        assert_int_equal(r.docs[k].example, k % DOCS);
        once[k % DOCS] = k < DOCS ? r.docs[k].nll : once[k % DOCS];
        assert_true(r.docs[k].nll == once[k % DOCS] && r.docs[k].nll > 0);
    }
    close_data(&d);
    ax_arch_free(&arch);
}

/* Each document by itself, some together, all together; packed rows: the same per document. */
static void nothing_depends_on_passes(void **state) {
    (void)state;
    static const struct {
        int64_t tokens, max_docs;
        enum ax_pack_mode mode;
    } cases[] = {{40, 1, AX_PACK_PLAIN},
                 {64, 3, AX_PACK_PLAIN},
                 {300, 8, AX_PACK_PLAIN},
                 {64, 8, AX_PACK_IN_ORDER}};
    static const char *const backends[] = {"ref", "cpu"};
    struct ax_arch arch;
    assert_int_equal(tiny_arch(&arch, "llama", true, ""), AX_OK);
    for (int b = 0; b < 2; b++) {
        struct run first = {0};
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            struct data d;
            open_data(&d, cases[i].mode, SOME);
            struct run r = {
                .arch = &arch,
                .loader = d.loader,
                .dtype = b ? AX_F32 : AX_F64,
                .o = {.tokens = cases[i].tokens, .max_docs = cases[i].max_docs, .max_len = 40}};
            if (evaluate(&r, backends[b]) != AX_OK)
                fail_msg("%s", ax_error_text());
            assert_int_equal(r.n, DOCS);
            assert_int_equal(r.r.tokens, 137);
            assert_int_equal(r.r.documents, DOCS);
            assert_true(fabs(r.r.perplexity - exp(r.r.loss)) < 1e-9 * r.r.perplexity);
            for (int k = 0; k < DOCS; k++) {
                const struct ax_examples *set = r.docs[k].set;
                assert_ptr_equal(set, &d.docs);
                assert_int_equal(r.docs[k].example, k);
                assert_int_equal(
                    r.docs[k].trained,
                    ax_examples_trained(set, (size_t)k, 0, lengths[k]) -
                        (ax_word_label(&set->list[k], ax_examples_words(set, (size_t)k), 0) !=
                         AX_NO_LABEL));
                if (i > 0) {
                    assert_true(r.docs[k].nll == first.docs[k].nll);
                    assert_int_equal(r.docs[k].correct, first.docs[k].correct);
                }
            }
            if (i == 0)
                first = r;
            assert_true(r.r.loss == first.r.loss && r.r.loss > 0);
            close_data(&d);
        }
    }
    ax_arch_free(&arch);
}

/* 130 trained tokens are two windows of 128 rows: the second begins early enough to end with the
 * pass's room, wherever that ends, and scores the rest only. */
static void the_last_window_is_shifted(void **state) {
    (void)state;
    static const int64_t room[] = {40, 137, 140, 300};
    struct ax_arch arch;
    assert_int_equal(tiny_arch(&arch, "llama", true, ""), AX_OK);
    struct run alone = {0};
    for (size_t i = 0; i < sizeof room / sizeof *room; i++) {
        struct data d;
        open_data(&d, AX_PACK_PLAIN, ALL);
        struct run r = {.arch = &arch,
                        .loader = d.loader,
                        .dtype = AX_F32,
                        .o = {.tokens = room[i], .max_docs = i == 0 ? 1 : 8, .max_len = 40}};
        if (evaluate(&r, "cpu") != AX_OK)
            fail_msg("%s", ax_error_text());
        assert_int_equal(r.r.trained, 137 - DOCS);
        assert_int_equal(r.n, DOCS);
        alone = i == 0 ? r : alone; /* each document in a window of its own */
        for (int k = 0; k < DOCS; k++) {
            assert_int_equal(r.docs[k].trained, lengths[k] - 1);
            assert_true(r.docs[k].nll == alone.docs[k].nll && r.docs[k].nll > 0);
            assert_int_equal(r.docs[k].correct, alone.docs[k].correct);
        }
        assert_true(r.r.loss == alone.r.loss);
        close_data(&d);
    }
    ax_arch_free(&arch);
}

static void limited_rows(void **state) {
    (void)state;
    struct ax_arch arch;
    struct data d;
    open_data(&d, AX_PACK_PLAIN, SOME);
    assert_int_equal(tiny_arch(&arch, "llama", false, ""), AX_OK);
    struct run r = {.arch = &arch,
                    .loader = d.loader,
                    .dtype = AX_F32,
                    .o = {.tokens = 64, .max_docs = 8, .max_len = 40, .max_rows = 3}};
    assert_int_equal(evaluate(&r, "cpu"), AX_OK);
    assert_int_equal(r.r.rows, 3);
    assert_int_equal(r.r.documents, 3);
    close_data(&d);
    ax_arch_free(&arch);
}

static void nothing_to_score(void **state) {
    (void)state;
    struct ax_arch arch;
    struct data d;
    open_data(&d, AX_PACK_PLAIN, NOTHING);
    assert_int_equal(tiny_arch(&arch, "llama", false, ""), AX_OK);
    struct run r = {.arch = &arch,
                    .loader = d.loader,
                    .dtype = AX_F32,
                    .o = {.tokens = 64, .max_docs = 8, .max_len = 40}};
    assert_int_equal(evaluate(&r, "cpu"), AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), "none of 7 rows has a trained token"));
    close_data(&d);
    ax_arch_free(&arch);
}

/* ---- between training steps ---- */

struct training {
    struct ax_arch *arch;
    struct ax_loader *loader; /* NULL: no evaluation between the steps */
    struct ax_step_options o;
    const int64_t *lengths;
    double losses[4];
    struct ax_eval_result r;
};

static enum ax_status train(struct ax_runtime *rt, void *ctx) {
    struct training *t = ctx;
    struct ax_step s;
    const struct ax_eval_options eo = {.tokens = 50, .max_docs = 4, .max_len = 40};
    AX_TRY(ax_step_create(&s, rt, t->arch, &t->o));
    enum ax_status st = AX_OK;
    ax_model_init_random(&s.model, 1);
    for (int i = 0; i < 4; i++) {
        struct ax_step_result r;
        AX_TRY_GOTO(tiny_fill(&s, t->lengths, 7), st, done);
        AX_TRY_GOTO(ax_step_run(&s, 1e-2, &r), st, done);
        t->losses[i] = r.loss;
        if (t->loader)
            AX_TRY_GOTO(ax_evaluate(&s.model, t->loader, &eo, &t->r), st, done);
    }
done:
    ax_step_free(&s);
    return st;
}

static void leaves_no_trace_in_training(void **state) {
    (void)state;
    static const int64_t rows[] = {40, 24, 0};
    struct ax_arch arch;
    struct data d;
    open_data(&d, AX_PACK_PLAIN, SOME);
    assert_int_equal(tiny_arch(&arch, "llama", true, ""), AX_OK);
    const struct ax_runtime_options ro = {.backend = "cpu", .threads = 2};
    struct training with = {.arch = &arch,
                            .loader = d.loader,
                            .o = tiny_options(AX_F32, AX_RECOMPUTE_OFF, 2, rows),
                            .lengths = rows},
                    without = with;
    without.loader = NULL;
    if (ax_runtime_run(&ro, train, &with, NULL) != AX_OK)
        fail_msg("%s", ax_error_text());
    assert_int_equal(ax_runtime_run(&ro, train, &without, NULL), AX_OK);
    for (int i = 0; i < 4; i++)
        assert_true(with.losses[i] == without.losses[i]);
    assert_true(isfinite(with.r.loss) && with.r.trained > 50);
    close_data(&d);
    ax_arch_free(&arch);
}

/* The loss of a training step on the same documents, all of equal weight. */
static enum ax_status step_loss(struct ax_runtime *rt, void *ctx) {
    struct training *t = ctx;
    struct ax_step s;
    struct ax_step_result r = {0};
    AX_TRY(ax_step_create(&s, rt, t->arch, &t->o));
    ax_model_init_random(&s.model, 1);
    struct ax_document docs[DOCS];
    int n = 0;
    ax_loader_start_epoch(t->loader, 0);
    static int32_t tokens[DOCS][64], labels[DOCS][64];
    for (bool got = true; got;) {
        struct ax_packed_sequence row;
        AX_TRY(ax_loader_next(t->loader, &row, &got));
        if (!got)
            break;
        memcpy(tokens[n], row.docs[0].tokens, (size_t)row.docs[0].n * sizeof(int32_t));
        memcpy(labels[n], row.docs[0].labels, (size_t)row.docs[0].n * sizeof(int32_t));
        docs[n] =
            (struct ax_document){.n = row.docs[0].n, .tokens = tokens[n], .labels = labels[n]};
        n++;
    }
    enum ax_status st;
    AX_TRY_GOTO(ax_batch_fill(&s.batches[0], rt->q, 97, n, docs), st, done);
    st = ax_step_run(&s, 0, &r);
    t->losses[0] = r.loss;
done:
    ax_step_free(&s);
    return st;
}

static void is_the_loss_of_training(void **state) {
    (void)state;
    static const int64_t all[] = {19, 2, 40, 7, 33, 11, 25, 0};
    struct ax_arch arch;
    struct data d;
    open_data(&d, AX_PACK_PLAIN, SOME);
    assert_int_equal(tiny_arch(&arch, "llama", true, ""), AX_OK);
    const struct ax_runtime_options ro = {.backend = "ref", .threads = 2};
    struct run r = {.arch = &arch,
                    .loader = d.loader,
                    .dtype = AX_F64,
                    .o = {.tokens = 64, .max_docs = 8, .max_len = 40}};
    struct training t = {
        .arch = &arch, .loader = d.loader, .o = tiny_options(AX_F64, AX_RECOMPUTE_OFF, 1, all)};
    assert_int_equal(evaluate(&r, "ref"), AX_OK);
    if (ax_runtime_run(&ro, step_loss, &t, NULL) != AX_OK)
        fail_msg("%s", ax_error_text());
    print_message("evaluation %.15g, training step %.15g\n", r.r.loss, t.losses[0]);
    assert_true(fabs(r.r.loss - t.losses[0]) < 1e-12);
    close_data(&d);
    ax_arch_free(&arch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_wait_per_sixteen_passes),
        cmocka_unit_test(one_token_is_right),
        cmocka_unit_test(nothing_depends_on_passes),
        cmocka_unit_test(the_last_window_is_shifted),
        cmocka_unit_test(limited_rows),
        cmocka_unit_test(nothing_to_score),
        cmocka_unit_test(leaves_no_trace_in_training),
        cmocka_unit_test(is_the_loss_of_training),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
