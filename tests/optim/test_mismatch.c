/* Mismatched answers: which record has whose, and the estimate of KL that they give. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "optim/losses/kto.h"
#include "optim/train/reference.h"
#include "tests/tiny.h"

enum { DOCS = 4, MAX_LEN = 8 };
static const int prompts[DOCS] = {3, 1, 4, 2}, answers[DOCS] = {2, 6, 1, 5};

struct run {
    struct ax_arch arch;
    struct ax_kto kto;
    struct ax_objective objective;
    struct ax_examples docs;
    struct ax_corpus corpus;
    struct ax_corpus_source source;
    struct ax_example_source from;
    struct ax_loader *loader;
};

static int32_t prompt_token(int doc) {
    return 10 + doc;
}

static int32_t answer_token(int doc) {
    return 50 + doc;
}

static void add_docs(struct run *r) {
    const int32_t desirable = 1;
    const float reference = 0;
    r->docs.columns = r->objective.columns;
    assert_int_equal(ax_examples_add_file(&r->docs, "rows.jsonl"), AX_OK);
    r->corpus.sets = &r->docs;
    for (int d = 0; d < DOCS; d++) {
        int32_t ids[16], labels[16];
        const int n = prompts[d] + answers[d];
        for (int i = 0; i < n; i++) {
            ids[i] = i < prompts[d] ? prompt_token(d) : answer_token(d);
            labels[i] = i < prompts[d] ? AX_NO_LABEL : ids[i];
        }
        assert_int_equal(
            ax_examples_add(&r->docs,
                            &(struct ax_example){.tokens = ids,
                                                 .labels = labels,
                                                 .n = (size_t)n,
                                                 .columns = {(const uint32_t *)&reference,
                                                             (const uint32_t *)&desirable}}),
            AX_OK);
        assert_int_equal(ax_corpus_add(&r->corpus, (struct ax_example_ref){.index = (uint32_t)d,
                                                                           .n = (uint32_t)n}),
                         AX_OK);
    }
    const struct ax_loader_options lo = {
        .pack = {.mode = AX_PACK_IN_ORDER, .capacity = 24, .max_docs = 8, .chunk = 100}};
    r->source = (struct ax_corpus_source){.chunk = 100};
    ax_corpus_source_init(&r->source, &r->corpus, &r->from);
    assert_int_equal(ax_loader_new(&r->loader, &r->from, &lo), AX_OK);
}

/* Record d has the next one's answer, cut. */
static void expect_examples(const struct ax_mismatch *x) {
    assert_int_equal(x->set.n, DOCS);
    for (int d = 0; d < DOCS; d++) {
        const int other = (d + 1) % DOCS, all = prompts[d] + answers[other];
        const int n = all < MAX_LEN ? all : MAX_LEN;
        const uint32_t *words = ax_examples_words(&x->set, (size_t)d);
        assert_int_equal(x->set.list[d].n, n);
        for (int t = 0; t < n; t++) {
            const bool own = t < prompts[d];
            const int32_t token = own ? prompt_token(d) : answer_token(other);
            assert_int_equal(ax_word_token(words, (size_t)t), token);
            assert_int_equal(ax_word_label(&x->set.list[d], words, (size_t)t),
                             own ? AX_NO_LABEL : token);
        }
    }
}

/* `docs` NULL: all. */
static double kl_of(const struct ax_mismatch *x, struct ax_model *m, const struct ax_examples *set,
                    const int *docs, size_t n, const struct ax_eval_options *o) {
    struct ax_mismatch_of of[DOCS];
    double kl;
    for (size_t i = 0; docs && i < n; i++)
        of[i] = (struct ax_mismatch_of){set, (size_t)docs[i]};
    assert_int_equal(ax_mismatch_kl(x, m, docs ? of : NULL, n, o, &kl), AX_OK);
    return kl;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct run *r = ctx;
    struct ax_model m;
    struct ax_mismatch x = {0}, after = {0};
    struct ax_eval_result result;
    struct ax_eval_options o = {
        .tokens = 24, .max_docs = 8, .max_len = 16, .documents = r->objective.documents};
    AX_TRY(ax_model_create(&m, &r->arch, rt,
                           &(struct ax_model_options){.dtype = AX_F64, .max_positions = 64}));
    if (ax_runtime_planning(rt)) {
        AX_TRY(ax_evaluate(&m, r->loader, &o, &result));
        ax_model_free(&m);
        return AX_OK;
    }
    AX_TRY(ax_model_init_random(&m, 1));
    assert_int_equal(ax_mismatch_create(&x, &m, r->loader, 0, MAX_LEN, &o), AX_OK);
    expect_examples(&x);
    static const int all[] = {0, 1, 2, 3}, some[] = {2, 0};
    assert_true(kl_of(&x, &m, &r->docs, all, DOCS, &o) == 0);
    AX_TRY(ax_model_init_random(&m, 2));
    /* what another model says of the same answers */
    assert_int_equal(ax_mismatch_create(&after, &m, r->loader, 0, MAX_LEN, &o), AX_OK);
    double difference[DOCS], sum = 0;
    for (size_t d = 0; d < DOCS; d++) {
        difference[d] = (double)(ax_references_get(&after.references, &after.set, d) -
                                 ax_references_get(&x.references, &x.set, d));
        assert_true(fabs(difference[d]) > 1e-3);
        sum += difference[d];
    }
    assert_true(fabs(kl_of(&x, &m, &r->docs, all, DOCS, &o) - sum / DOCS) < 1e-9);
    assert_true(fabs(kl_of(&x, &m, &r->docs, NULL, DOCS, &o) - sum / DOCS) < 1e-9);
    assert_true(fabs(kl_of(&x, &m, &r->docs, some, 2, &o) - (difference[2] + difference[0]) / 2) <
                1e-9);
    ax_mismatch_free(&x);
    ax_mismatch_free(&after);
    ax_model_free(&m);
    return AX_OK;
}

static void answers_of_the_next_record(void **state) {
    (void)state;
    struct run r = {0};
    const struct ax_runtime_options ro = {.backend = "ref", .threads = 1};
    r.objective = ax_objective_kto(&r.kto, &(struct ax_kto_options){.beta = 0.1});
    assert_int_equal(tiny_arch(&r.arch, "llama", true, ""), AX_OK);
    add_docs(&r);
    if (ax_runtime_run(&ro, body, &r, NULL) != AX_OK)
        fail_msg("%s", ax_error_text());
    ax_loader_free(r.loader);
    ax_corpus_source_free(&r.source);
    ax_corpus_free(&r.corpus);
    ax_examples_free(&r.docs);
    ax_arch_free(&r.arch);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers_of_the_next_record)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
