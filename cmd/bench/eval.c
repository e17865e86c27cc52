/* `axtrain bench eval`: the loss of rows, and scores of answers to questions that share a prompt,
 * with how often the host waits for the device. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "cmd/bench/bench.h"
#include "model/generate/generate.h"
#include "optim/evaluate/evaluate.h"

#define MAX_ROUNDS  100
#define CHOICES     4    /* answers per question */
#define MAX_LANES   16   /* sequences at the same time */
#define PASS_TOKENS 1024 /* as in `axtrain eval` */

/* What is timed twice: rows, then answers. */
struct part {
    double seconds[MAX_ROUNDS];
    int64_t tokens, passes; /* of a round: computed by the model */
    uint64_t waits;
    int64_t counted; /* passes so far */
};

struct eval_bench {
    struct ax_bench_model m;
    const char *dtype_name;
    enum ax_dtype dtype;
    int64_t rows, seq, question, answer, rounds;
    double peak;
    struct part loss, scores;
    double nll, loglikelihood; /* per token */
    size_t arena;
    /* the rows */
    struct ax_examples examples;
    struct ax_corpus corpus;
    struct ax_corpus_source source;
    struct ax_example_source from;
    struct ax_loader *loader;
    /* the answers */
    int64_t n_seqs;
    struct ax_sequence *seqs; /* [n_seqs] */
    int32_t *ids;             /* [n_seqs][question + answer] */
    double *logprobs;         /* [n_seqs][answer] */
};

/* ---- input ---- */

static void random_ids(const struct eval_bench *b, uint32_t what, int64_t row, int64_t n,
                       int32_t *ids) {
    const struct ax_rng_key key = {what, (uint32_t)row, 0};
    for (int64_t i = 0; i < n; i++)
        ids[i] = (int32_t)ax_rng_below(key, (uint64_t)i, (uint64_t)b->m.arch.vocab_size);
}

static enum ax_status make_rows(struct eval_bench *b) {
    int32_t *ids;
    AX_TRY(ax_examples_add_file(&b->examples, "random"));
    AX_TRY(ax_alloc(&ids, (size_t)b->seq, sizeof *ids));
    enum ax_status st = AX_OK;
    b->corpus.sets = &b->examples;
    for (int64_t i = 0; i < b->rows && st == AX_OK; i++) {
        random_ids(b, 1, i, b->seq, ids);
        st = ax_examples_add(
            &b->examples, &(struct ax_example){.tokens = ids, .labels = ids, .n = (size_t)b->seq});
        if (st == AX_OK)
            st = ax_corpus_add(
                &b->corpus, (struct ax_example_ref){.index = (uint32_t)i, .n = (uint32_t)b->seq});
    }
    ax_free(ids);
    AX_TRY(st);
    b->source.chunk = b->rows;
    ax_corpus_source_init(&b->source, &b->corpus, &b->from);
    const struct ax_loader_options o = {
        .pack = {.mode = AX_PACK_PLAIN, .capacity = b->seq, .max_docs = 1, .chunk = b->rows}};
    return ax_loader_new(&b->loader, &b->from, &o);
}

/* CHOICES answers follow each question. */
static enum ax_status make_answers(struct eval_bench *b) {
    const int64_t per = b->question + b->answer;
    b->n_seqs = b->rows * CHOICES;
    AX_TRY(ax_alloc(&b->seqs, (size_t)b->n_seqs, sizeof *b->seqs));
    AX_TRY(ax_alloc(&b->ids, (size_t)(b->n_seqs * per), sizeof *b->ids));
    AX_TRY(ax_alloc(&b->logprobs, (size_t)(b->n_seqs * b->answer), sizeof *b->logprobs));
    for (int64_t i = 0; i < b->n_seqs; i++) {
        int32_t *ids = b->ids + i * per;
        random_ids(b, 2, i / CHOICES, b->question, ids);
        random_ids(b, 3, i, b->answer, ids + b->question);
        b->seqs[i] = (struct ax_sequence){.n_prompt = per - 1,
                                          .prompt = ids,
                                          .n_scored = b->answer,
                                          .scored = ids + b->question,
                                          .logprobs = b->logprobs + i * b->answer};
    }
    return AX_OK;
}

static void free_input(struct eval_bench *b) {
    ax_loader_free(b->loader);
    ax_corpus_source_free(&b->source);
    ax_corpus_free(&b->corpus);
    ax_examples_free(&b->examples);
    ax_free(b->seqs);
    ax_free(b->ids);
    ax_free(b->logprobs);
}

/* ---- rounds ---- */

/* Round 0 warms up. */
static void note(struct part *p, int64_t round, double start, int64_t tokens, int64_t passes,
                 const struct ax_queue *q) {
    if (round > 0)
        p->seconds[round - 1] = ax_clock_now() - start;
    p->tokens = tokens;
    p->passes = passes;
    p->waits = q->counters.waits;
}

static void count_pass(void *ctx, int64_t rows_done) {
    struct eval_bench *b = ctx;
    (void)rows_done;
    b->loss.counted++;
}

static enum ax_status time_loss(struct eval_bench *b, struct ax_model *m, int64_t round) {
    struct ax_eval_result r;
    const struct ax_eval_options o = {.tokens = b->seq > PASS_TOKENS ? b->seq : PASS_TOKENS,
                                      .max_docs = b->rows,
                                      .max_len = b->seq,
                                      .progress = count_pass,
                                      .ctx = b};
    struct ax_queue *q = m->rt->q;
    b->loss.counted = 0;
    memset(&q->counters, 0, sizeof q->counters);
    const double start = ax_clock_now();
    AX_TRY(ax_evaluate(m, b->loader, &o, &r));
    note(&b->loss, round, start, r.tokens, b->loss.counted, q);
    b->nll = r.loss;
    return AX_OK;
}

static enum ax_status time_scores(struct eval_bench *b, struct ax_generator *g, int64_t round) {
    struct ax_queue *q = g->model->rt->q;
    memset(&q->counters, 0, sizeof q->counters);
    memset(&g->counters, 0, sizeof g->counters);
    const double start = ax_clock_now();
    AX_TRY(ax_generate(g, b->n_seqs, b->seqs));
    note(&b->scores, round, start, g->counters.prompt_tokens, g->counters.passes, q);
    ax_generator_forget(g); /* the next round computes the same */
    const int64_t n = b->n_seqs * b->answer;
    b->loglikelihood = 0;
    for (int64_t i = 0; i < n; i++)
        b->loglikelihood += b->logprobs[i] / (double)n;
    return AX_OK;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct eval_bench *b = ctx;
    struct ax_model m;
    struct ax_generator g = {0};
    const int64_t longest = b->question + b->answer;
    const int64_t rounds = ax_runtime_planning(rt) ? 1 : b->rounds + 1;
    const struct ax_model_options mo = {.dtype = b->dtype,
                                        .max_positions = b->seq > longest ? b->seq : longest};
    const struct ax_generate_options o = {.n_seqs =
                                              (int)(b->n_seqs < MAX_LANES ? b->n_seqs : MAX_LANES),
                                          .max_prompt = longest - 1,
                                          .max_new = 1,
                                          .scoring = true};
    AX_TRY(ax_model_create(&m, &b->m.arch, rt, &mo));
    enum ax_status st = ax_bench_model_fill(&b->m, &m);
    if (st == AX_OK)
        st = ax_model_make_panels(&m);
    for (int64_t round = 0; round < rounds && st == AX_OK; round++)
        st = time_loss(b, &m, round);
    if (st == AX_OK)
        st = ax_generator_create(&g, &m, &o);
    for (int64_t round = 0; round < rounds && st == AX_OK; round++)
        st = time_scores(b, &g, round);
    ax_generator_free(&g);
    ax_model_free(&m);
    return st;
}

/* ---- output ---- */

static double waits_of(const struct part *p) {
    return (double)p->waits / (double)p->passes;
}

static json_t *part_json(const struct part *p, const char *key, double value) {
    return json_pack("{sI sI sI sf}", "tokens", (json_int_t)p->tokens, "passes",
                     (json_int_t)p->passes, "waits", (json_int_t)p->waits, key, value);
}

static json_t *details(const struct eval_bench *b) {
    return json_pack("{sI sI sI so so}", "rounds", (json_int_t)b->rounds, "planned_bytes",
                     (json_int_t)b->arena, "peak_rss_bytes", (json_int_t)ax_mem_peak_rss(), "loss",
                     part_json(&b->loss, "loss", b->nll), "loglikelihood",
                     part_json(&b->scores, "mean_logprob", b->loglikelihood));
}

/* per_token: FLOPs. */
static enum ax_status add_part(struct ax_bench *out, const struct eval_bench *b, struct part *p,
                               double per_token, const char *name) {
    const double speed = (double)p->tokens / ax_bench_median(p->seconds, (size_t)b->rounds);
    const struct ax_bench_figure rate = {speed, "tokens/s", false, speed * per_token / b->peak};
    const struct ax_bench_figure waits = {waits_of(p), "per pass", true, -1};
    AX_TRY(ax_bench_add(out, &rate, "%s/speed", name));
    return ax_bench_add(out, &waits, "%s/waits", name);
}

static enum ax_status report(struct ax_bench *out, struct eval_bench *b) {
    char start[120], name[160];
    /* forward is a third of training; of answers, the head runs for scored tokens only */
    const double forward = ax_arch_flops_per_token(&b->m.arch, b->seq) / 3;
    const double head = 2.0 * (double)(b->m.arch.hidden_size * b->m.arch.vocab_size);
    const double scored = (double)(b->n_seqs * b->answer) / (double)b->scores.tokens;
    const double to_score = ax_arch_flops_per_token(&b->m.arch, b->question) / 3 - head;
    snprintf(start, sizeof start, "eval/%s/%s", b->m.name, ax_dtype_info(b->dtype)->name);
    snprintf(name, sizeof name, "%s/loss/%lldx%lld", start, (long long)b->rows, (long long)b->seq);
    AX_TRY(add_part(out, b, &b->loss, forward, name));
    snprintf(name, sizeof name, "%s/loglikelihood/%lldx%lld+%dx%lld", start, (long long)b->rows,
             (long long)b->question, CHOICES, (long long)b->answer);
    AX_TRY(add_part(out, b, &b->scores, to_score + head * scored, name));
    const struct ax_bench_figure memory = {(double)b->arena / 1e9, "GB", true, -1};
    AX_TRY(ax_bench_add(out, &memory, "%s/planned-memory/%lldx%lld", start, (long long)b->rows,
                        (long long)b->seq));
    return ax_bench_detail(out, "eval", details(b));
}

static enum ax_status run(struct ax_bench *out, struct eval_bench *b) {
    struct ax_arena_plan plan;
    const struct ax_runtime_options ro = {.backend = "cpu", .threads = (int)out->threads};
    AX_TRY(ax_bench_dtype(b->dtype_name, &b->dtype));
    AX_TRY(ax_bench_model_open(&b->m, "eval", true));
    AX_TRY(ax_bench_peak(out, &b->peak));
    AX_TRY(make_rows(b));
    AX_TRY(make_answers(b));
    AX_TRY(ax_runtime_run(&ro, body, b, &plan));
    b->arena = ax_arena_plan_total(&plan);
    return report(out, b);
}

enum ax_status ax_bench_eval(struct ax_bench *r, int argc, char **argv) {
    struct eval_bench *b;
    AX_TRY(ax_alloc(&b, 1, sizeof *b));
    *b = (struct eval_bench){.rows = 16, .seq = 1024, .question = 128, .answer = 8, .rounds = 3};
    const struct ax_arg own[] = {
        AX_BENCH_MODEL_ARGS(&b->m),
        {"--dtype", AX_ARG_STRING, &b->dtype_name, 0, 0},
        {"--batch", AX_ARG_INT, &b->rows, 1, 1 << 16},
        {"--seq", AX_ARG_INT, &b->seq, 2, 1 << 20},
        {"--prompt-tokens", AX_ARG_INT, &b->question, 1, 1 << 20},
        {"--new-tokens", AX_ARG_INT, &b->answer, 1, 1 << 20},
        {"--rounds", AX_ARG_INT, &b->rounds, 1, MAX_ROUNDS},
        {"--threads", AX_ARG_INT, &r->threads, 1, 1024},
    };
    enum ax_status st = ax_bench_parse(r, argc, argv, sizeof own / sizeof *own, own);
    if (st == AX_OK)
        st = run(r, b);
    free_input(b);
    ax_bench_model_close(&b->m);
    ax_free(b);
    return st;
}
