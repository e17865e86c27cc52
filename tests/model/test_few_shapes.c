/* A backend that wants few shapes gets few: a packed run of 200 steps on the cpu's ops with the
 * rounding of a GPU, and the results of cpu's own rounding. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "data/records/pipeline/loader.h"
#include "optim/step/step.h"

#define VOCAB     64
#define ROW       1024 /* tokens of a micro-batch */
#define DOCUMENTS 2000 /* of 20 to 275 tokens, the first part of each a prompt */
#define MOST_DOCS 52
#define STEPS     200
#define MOST_GEMM 4096

static const char model[] = "{\"model_type\": \"llama\", \"vocab_size\": 64, \"hidden_size\": 32, "
                            "\"intermediate_size\": 48, "
                            "\"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"head_dim\": "
                            "16, \"initializer_range\": "
                            "0.15, \"tie_word_embeddings\": false}";

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* ---- the backend ---- */

struct shape {
    int64_t m, n, k;
    bool trans_a, trans_b;
};

static struct shape seen[MOST_GEMM];
static size_t n_seen;

static enum ax_status noted_gemm(struct ax_queue *q, const struct ax_gemm *g, void *work) {
    const struct shape s = {.m = g->c.shape[0],
                            .n = g->c.shape[1],
                            .k = g->a.shape[g->trans_a ? 0 : 1],
                            .trans_a = g->trans_a,
                            .trans_b = g->trans_b};
    size_t i = 0;
    while (i < n_seen && (seen[i].m != s.m || seen[i].n != s.n || seen[i].k != s.k ||
                          seen[i].trans_a != s.trans_a || seen[i].trans_b != s.trans_b))
        i++;
    assert_true(i < MOST_GEMM);
    n_seen = i == n_seen ? n_seen + 1 : n_seen;
    seen[i] = s;
    return ax_ops_cpu()->gemm(q, g, work);
}

/* ---- the data ---- */

struct data {
    struct ax_examples docs;
    struct ax_corpus corpus;
    struct ax_corpus_source source;
    struct ax_example_source examples;
    struct ax_loader *loader;
};

static void open_data(struct data *d) {
    const struct ax_corpus_options co = {.seed = 3, .shuffle = true, .rule = {1, ROW, 0, false}};
    const struct ax_loader_options lo = {
        .pack = {.mode = AX_PACK_FIT, .capacity = ROW, .max_docs = MOST_DOCS, .chunk = DOCUMENTS},
        .shuffle = true,
        .seed = 5};
    struct ax_corpus_report report;
    int32_t ids[ROW], labels[ROW];
    *d = (struct data){0};
    must(ax_examples_add_file(&d->docs, "rows.jsonl"));
    for (int k = 0; k < DOCUMENTS; k++) {
        const struct ax_rng_key key = {9, (uint32_t)k, 1};
        const size_t n = 20 + ax_rng_below(key, 0, 256), prompt = ax_rng_below(key, 1, n);
        ids[0] = k % VOCAB;
        for (size_t i = 1; i < n; i++) /* something to learn */
            ids[i] = (int32_t)((ids[i - 1] * 5 + (int32_t)ax_rng_below(key, 2 + i, 4)) % VOCAB);
        for (size_t i = 0; i < n; i++)
            labels[i] = i < prompt ? AX_NO_LABEL : ids[i];
        must(ax_examples_add(&d->docs,
                             &(struct ax_example){.tokens = ids,
                                                  .labels = labels,
                                                  .n = n,
                                                  .origin = {.file = 0, .line = (uint64_t)k + 1}}));
    }
    must(ax_corpus_build(&d->corpus, &d->docs, 1, &co, &report));
    d->source = (struct ax_corpus_source){.chunk = DOCUMENTS, .shuffle = true, .seed = 5};
    ax_corpus_source_init(&d->source, &d->corpus, &d->examples);
    must(ax_loader_new(&d->loader, &d->examples, &lo));
}

static void close_data(struct data *d) {
    ax_loader_free(d->loader);
    ax_corpus_source_free(&d->source);
    ax_corpus_free(&d->corpus);
    ax_examples_free(&d->docs);
}

/* The next row; the epochs follow each other. */
static enum ax_status fill(struct ax_step *s, struct data *d, int64_t *epoch) {
    struct ax_packed_sequence row;
    bool got;
    AX_TRY(ax_loader_next(d->loader, &row, &got));
    if (!got) {
        ax_loader_start_epoch(d->loader, ++*epoch);
        AX_TRY(ax_loader_next(d->loader, &row, &got));
        assert_true(got);
    }
    return ax_batch_fill(&s->batches[0], s->rt->q, VOCAB, row.n, row.docs);
}

/* ---- a run ---- */

struct run {
    struct ax_rounding rounding;
    struct ax_arch arch;
    struct data *data;
    /* out */
    double loss[STEPS], norm[STEPS];
    int64_t tokens, rows, docs; /* computed, over all steps */
    size_t shapes;
};

static bool is_power_of_2(int64_t n) {
    return n > 0 && (n & (n - 1)) == 0;
}

/* Each size is as the backend wants it, or as large as it can be. */
static void check_batch(const struct ax_batch *b, const struct ax_rounding *r) {
    const int64_t docs = b->cu_seqlens.shape[0] - 1;
    assert_true(b->T >= b->n_tokens && b->n_rows >= b->trained && docs >= b->n_docs);
    if (r->tokens == 0)
        return;
    assert_true(b->T % r->tokens == 0 || b->T == b->cap);
    assert_true(b->n_rows % r->head_rows == 0 || b->n_rows == b->T);
    assert_true(is_power_of_2(docs) || docs == b->n_cap);
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct run *r = ctx;
    struct ax_step s;
    struct ax_step_result result;
    struct ax_ops ops = *ax_ops_cpu();
    const struct ax_ops *own[] = {rt->q->ops, rt->q->model};
    const struct ax_step_options o = {.model.dtype = AX_F32,
                                      .recompute = AX_RECOMPUTE_SELECTIVE,
                                      .optimizer = &ax_optimizer_sgd,
                                      .objective = &ax_objective_sft,
                                      .max_norm = 1,
                                      .n_microbatches = 1,
                                      .tokens = ROW,
                                      .n_docs = MOST_DOCS,
                                      .max_len = ROW};
    int64_t epoch = 0;
    ops.rounding = r->rounding;
    ops.gemm = noted_gemm;
    rt->q->model = &ops;
    if (!ax_runtime_planning(rt))
        rt->q->ops = &ops;
    n_seen = 0;
    enum ax_status st = ax_step_create(&s, rt, &r->arch, &o);
    AX_TRY_GOTO(st, st, done);
    AX_TRY_GOTO(ax_model_init_random(&s.model, 4), st, done);
    s.batches[0].round = 8;
    ax_loader_start_epoch(r->data->loader, 0);
    for (int i = 0; i < (ax_runtime_planning(rt) ? 1 : STEPS); i++) {
        AX_TRY_GOTO(fill(&s, r->data, &epoch), st, done);
        check_batch(&s.batches[0], &r->rounding);
        AX_TRY_GOTO(ax_step_run(&s, 0.05, &result), st, done);
        r->loss[i] = result.loss;
        r->norm[i] = result.grad_norm;
        r->tokens += s.batches[0].T;
        r->rows += s.batches[0].n_rows;
        r->docs += s.batches[0].cu_seqlens.shape[0] - 1;
    }
    r->shapes = n_seen;
done:
    ax_step_free(&s);
    rt->q->ops = own[0];
    rt->q->model = own[1];
    return st;
}

static void run(struct run *r) {
    const struct ax_runtime_options o = {.backend = "cpu", .threads = 1, .may_stay_below = true};
    struct ax_json_doc doc;
    must(ax_json_parse(&doc, "small", model, strlen(model)));
    must(ax_arch_parse(&r->arch, ax_json_root(&doc)));
    ax_json_free(&doc);
    must(ax_runtime_run(&o, body, r, NULL));
    ax_arch_free(&r->arch);
}

static void shapes_are_few(void **state) {
    (void)state;
    static struct run gpu, cpu;
    struct data d;
    open_data(&d);
    gpu = (struct run){
        .rounding = {.tokens = 256, .head_rows = 128, .head_chunk = 1024, .documents = true},
        .data = &d};
    cpu = (struct run){.data = &d};
    run(&gpu);
    run(&cpu);
    close_data(&d);
    double worst_loss = 0, worst_norm = 0;
    for (int i = 0; i < STEPS; i++) {
        worst_loss = fmax(worst_loss, fabs(gpu.loss[i] / cpu.loss[i] - 1));
        worst_norm = fmax(worst_norm, fabs(gpu.norm[i] / cpu.norm[i] - 1));
    }
    print_message("%zu shapes, %zu of cpu; loss %.3g to %.3g, worst %.2g, norm %.2g\n", gpu.shapes,
                  cpu.shapes, cpu.loss[0], cpu.loss[STEPS - 1], worst_loss, worst_norm);
    assert_true(gpu.shapes > 0 && gpu.shapes <= 40);
    assert_true(cpu.shapes > 100); /* cpu's rounding is as fine as ever */
    assert_true(cpu.loss[STEPS - 1] < 0.9 * cpu.loss[0]);
    assert_true(worst_loss < 1e-5 && worst_norm < 1e-4);
    assert_true(gpu.tokens > cpu.tokens && gpu.rows > cpu.rows && gpu.docs < cpu.docs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_are_few),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
