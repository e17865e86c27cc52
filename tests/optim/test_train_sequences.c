/* The sequences of a step dealt to data ranks: together they have what one rank would, and each
 * group is whole in one micro-batch of one of them, or in one step where the objective lets it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "optim/evaluate/evaluate.h"
#include "optim/train/run.h"
#include "tests/data/group_case.h"
#include "tests/kernels/harness.h"

#define PER_BATCH    2 /* sequences */
#define CAPACITY     100
#define DOCS         8
#define MICROBATCHES 4 /* of a step, over all ranks */
#define STEPS        7

static const struct ax_objective objective = {.name = "pairs", .columns = &group_columns};

static bool in_place; /* what the loader does with labels */

/* One rank's side of a run. */
struct rank {
    struct machine m;
    struct ax_corpus corpus;
    struct ax_corpus_source source;
    struct ax_example_source examples;
    struct ax_loader *loader;
    struct ax_batch batches[MICROBATCHES];
    struct ax_runtime rt;
    struct ax_step step;
    struct ax_train_sequences sequences;
    struct ax_train_data data;
};

/* unit: see struct ax_pack_options' step. */
static void open_rank(struct rank *r, int rank, int ranks, int64_t capacity, int64_t unit) {
    struct ax_corpus_report report = {0};
    *r = (struct rank){.source = {.chunk = 1000, .shuffle = true, .seed = 3}};
    machine_open(&r->m, "ref", 1);
    assert_ok(ax_corpus_build(&r->corpus, &column_set, 1,
                              &(struct ax_corpus_options){.rule = {.max = INT64_MAX}}, &report));
    ax_corpus_source_init(&r->source, &r->corpus, &r->examples);
    assert_ok(ax_loader_new(&r->loader, &r->examples,
                            &(struct ax_loader_options){.pack = {.mode = AX_PACK_FIT,
                                                                 .capacity = capacity,
                                                                 .max_docs = DOCS,
                                                                 .chunk = 1000,
                                                                 .batch = PER_BATCH,
                                                                 .step = unit},
                                                        .shuffle = true,
                                                        .labels_in_place = in_place,
                                                        .seed = 3}));
    r->rt.q = r->m.q;
    r->step = (struct ax_step){.rt = &r->rt, .batches = r->batches};
    r->step.o.objective = &objective;
    r->step.o.n_microbatches = MICROBATCHES / ranks;
    r->step.o.tokens = PER_BATCH * CAPACITY;
    r->step.o.n_docs = PER_BATCH * DOCS;
    r->step.model.arch.vocab_size = N_GROUPS * GROUP_MAX;
    for (int m = 0; m < MICROBATCHES / ranks; m++) {
        ax_batch_allocate(&r->batches[m], &r->m.arena.scratch, PER_BATCH * CAPACITY,
                          PER_BATCH * DOCS, CAPACITY, 1, 0);
        ax_batch_add_columns(&r->batches[m], &r->m.arena.scratch, &group_columns);
    }
    r->data = (struct ax_train_data){
        .train = r->loader, .sequences_per_batch = PER_BATCH, .drop_last = true};
    r->rt.mesh.size[AX_ROLE_BATCH] = ranks;
    r->rt.mesh.coord[AX_ROLE_BATCH] = rank;
    assert_ok(ax_train_sequences_create(&r->sequences, &r->step));
}

static void close_rank(struct rank *r) {
    ax_train_sequences_free(&r->sequences);
    ax_loader_free(r->loader);
    ax_corpus_source_free(&r->source);
    ax_corpus_free(&r->corpus);
    machine_close(&r->m);
}

/* where[token] = the rank's micro-batch that has the example of this token, counted over all steps.
 */
static void note(const struct rank *r, int64_t step, int64_t *where) {
    const struct ax_train_sequences *s = &r->sequences;
    for (int m = 0; m < s->n_batches; m++) {
        assert_int_equal(r->batches[m].n_docs, s->n_docs[m]);
        assert_int_equal(s->all_docs[m * s->ranks + s->own], s->n_docs[m]);
        assert_true(r->batches[m].longest == s->longest[m] &&
                    r->batches[m].n_tokens <= s->longest[m]);
        for (int d = 0; d < s->n_docs[m]; d++) {
            const struct ax_document *doc = &s->docs[m * s->cap_docs + d];
            const int32_t token = doc->tokens[0];
            assert_int_equal(doc->columns[0][0], column_word(0, token, 0));
            for (int64_t t = 0; t < doc->n; t++) {
                assert_int_equal(doc->columns[1][t], column_word(1, token, t));
                for (int j = 0; j < WIDTH && doc->labels[t] >= 0; j++)
                    assert_int_equal(doc->columns[2][WIDTH * t + j],
                                     column_word(2, token, WIDTH * (t + !in_place) + j));
            }
            assert_int_equal(where[token], -1);
            assert_int_equal(s->origins[(m * s->ranks + s->own) * s->cap_docs + d].line,
                             group_of(token) + 1);
            where[token] =
                (step * MICROBATCHES + m) * MICROBATCHES + r->rt.mesh.coord[AX_ROLE_BATCH];
        }
    }
}

static void next_step(struct rank *r) {
    bool stopped = false;
    assert_ok(ax_train_sequences_next(&r->sequences, &r->step, &r->data, NULL, &stopped));
    assert_false(stopped);
}

static void deal_whole(void) {
    int64_t steps_of[N_GROUPS * GROUP_MAX];
    for (int ranks = 1; ranks <= MICROBATCHES; ranks *= 2) {
        int64_t where[N_GROUPS * GROUP_MAX];
        memset(where, -1, sizeof where);
        for (int rank = 0; rank < ranks; rank++) {
            struct rank r;
            open_rank(&r, rank, ranks, CAPACITY, 0);
            for (int64_t step = 0; step < STEPS; step++) {
                next_step(&r);
                assert_int_equal(r.sequences.n, MICROBATCHES * PER_BATCH);
                assert_int_equal(r.sequences.epoch, 0);
                note(&r, step, where);
            }
            close_rank(&r);
        }
        int n = 0;
        for (int64_t id = 0; id < N_GROUPS; id++)
            for (size_t k = 0; k < group_size(id); k++, n++)
                assert_int_equal(where[GROUP_MAX * id + (int64_t)k], where[GROUP_MAX * id]);
        assert_int_equal(n, column_set.n);
        /* whatever the number of ranks, a step is the same examples */
        for (int i = 0; i < N_GROUPS * GROUP_MAX; i++) {
            const int64_t step = where[i] < 0 ? -1 : where[i] / (MICROBATCHES * MICROBATCHES);
            assert_true(ranks == 1 || step == steps_of[i]);
            steps_of[i] = step;
        }
    }
}

static void dealt_whole(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        in_place = k == 1;
        deal_whole();
    }
    in_place = false;
}

/* Groups of up to 4 sequences, micro-batches of 2: some take two micro-batches, always of one step,
 * and the step is the same on one rank with 4 micro-batches and on two with 2 each. */
static void dealt_over_a_step(void **state) {
    (void)state;
    int64_t steps_of[N_GROUPS * GROUP_MAX];
    for (int ranks = 1; ranks <= 2; ranks++) {
        int64_t where[N_GROUPS * GROUP_MAX];
        int64_t n_steps[2] = {0};
        memset(where, -1, sizeof where);
        for (int rank = 0; rank < ranks; rank++) {
            struct rank r;
            open_rank(&r, rank, ranks, LENGTH_MAX, 2 * PER_BATCH);
            for (;; n_steps[rank]++) {
                next_step(&r);
                if (r.sequences.epoch > 0)
                    break;
                note(&r, n_steps[rank], where);
            }
            close_rank(&r);
        }
        assert_true(ranks == 1 || n_steps[0] == n_steps[1]);
        int over = 0;
        int dealt = 0;
        for (int64_t id = 0; id < N_GROUPS; id++) {
            const int64_t *w = where + GROUP_MAX * id;
            bool here = true;
            for (size_t k = 0; k < group_size(id); k++, dealt += w[0] >= 0) {
                assert_int_equal(w[k] < 0 ? -1 : w[k] / (MICROBATCHES * MICROBATCHES),
                                 w[0] < 0 ? -1 : w[0] / (MICROBATCHES * MICROBATCHES));
                here = here && w[k] == w[0];
            }
            over += !here;
        }
        assert_true(over > 10);
        assert_in_range(dealt, column_set.n - 2 * GROUP_MAX * PER_BATCH, column_set.n);
        for (int i = 0; i < N_GROUPS * GROUP_MAX; i++) {
            const int64_t step = where[i] < 0 ? -1 : where[i] / (MICROBATCHES * MICROBATCHES);
            assert_true(ranks == 1 || step == steps_of[i]);
            steps_of[i] = step;
        }
    }
}

/* ---- pairs ---- */

static void prompts_of_pairs(void **state) {
    (void)state;
    static const struct {
        int64_t n[2], prompt[2]; /* tokens; of them without a label */
        int64_t differ;          /* the first token that does */
        int64_t shared;
    } cases[] = {{{20, 25}, {12, 12}, 12, 12}, {{20, 25}, {12, 12}, 30, 12},
                 {{20, 25}, {12, 9}, 12, 9},   {{20, 25}, {20, 25}, 15, 15},
                 {{20, 25}, {12, 12}, 7, 0},   {{12, 12}, {12, 12}, 30, 11},
                 {{13, 40}, {40, 40}, 30, 12}, {{40, 13}, {40, 40}, 30, 12},
                 {{20, 25}, {0, 0}, 30, 0},    {{20, 25}, {8, 8}, 8, 8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t tokens[2][40], labels[2][40];
        struct ax_document docs[4];
        for (int k = 0; k < 2; k++) {
            for (int32_t t = 0; t < 40; t++) {
                tokens[k][t] = t + (t >= cases[i].differ ? k : 0);
                labels[k][t] = t < cases[i].prompt[k] ? AX_NO_LABEL : 0; /* a token, too */
            }
            docs[k] = docs[k + 2] =
                (struct ax_document){.n = cases[i].n[k], .tokens = tokens[k], .labels = labels[k]};
        }
        const struct ax_packed_sequence s = {.n = 4, .docs = docs};
        for (int k = 0; k < 4; k++)
            assert_int_equal(ax_pair_shared(&s, k), k % 2 == 1 ? cases[i].shared : 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(dealt_whole),
                                       cmocka_unit_test(dealt_over_a_step),
                                       cmocka_unit_test(prompts_of_pairs)};
    return cmocka_run_group_tests(tests, make_column_set, free_column_set);
}
