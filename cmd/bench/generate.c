/* `axtrain bench generate`: prompt processing and decoding at several batch sizes, compared with
 * the limits of memory bandwidth and matrix products, and how often the host waits for the device. */
#include "cmd/bench/bench.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "model/generate/generate.h"

#define MAX_RESULTS 3
#define MAX_BATCH   1024

struct result {
    int64_t batch;
    double prefill, decode; /* tokens per second, best of the rounds */
    double answers;         /* new tokens per second, prompts included */
    double decode_bytes;    /* bytes read per second while decoding: weights and cache */
    double prefill_flops;   /* per second */
    uint64_t allocations;   /* the most in the decoding of one round */
    double waits;           /* of the host for the device, per pass: likewise */
    size_t arena;
    struct ax_times ops[AX_OP_COUNT]; /* of the last round */
    double last_seconds;
};

struct generate_bench {
    struct ax_bench_model m;
    const char *dtype_name, *backend;
    int64_t batch, prompt, new_tokens, rounds;
    int64_t samples; /* of a prompt, as training on rewards takes them; 0: one, greedily */
    enum ax_dtype dtype;
    double bandwidth, peak;
    int64_t weight_bytes; /* bytes that each decoded token reads */
    int n_results;
    struct result results[MAX_RESULTS];
    /* of the current batch size */
    struct result *now;
    struct ax_sequence *seqs;
    int32_t *ids; /* prompts, then new tokens */
};

/* Makes every prompt of every round different, so that none finds its tokens in the cache but other
 * samples. */
static void fill_prompts(struct generate_bench *b, int64_t round) {
    const int64_t per = b->prompt + b->new_tokens;
    for (int64_t i = 0; i < b->now->batch; i++) {
        const int64_t number = b->samples > 0 ? i / b->samples : i;
        const struct ax_rng_key key = {(uint64_t)round, (uint32_t)number, 0};
        int32_t *prompt = b->ids + i * per;
        for (int64_t k = 0; k < b->prompt; k++)
            prompt[k] = (int32_t)ax_rng_below(key, (uint64_t)k, (uint64_t)b->m.arch.vocab_size);
        b->seqs[i] = (struct ax_sequence){.n_prompt = b->prompt,
                                          .prompt = prompt,
                                          .stream = (uint64_t)i,
                                          .tokens = prompt + b->prompt};
    }
}

/* Bytes of keys and values read to decode this many tokens. */
static double cache_bytes(const struct generate_bench *b, double tokens) {
    const double row = (double)ax_kv_token_bytes(&b->m.arch, 1, b->dtype);
    return row * tokens * ((double)b->prompt + (double)b->new_tokens / 2);
}

static enum ax_status time_round(struct generate_bench *b, struct ax_generator *g, int64_t round) {
    struct result *r = b->now;
    struct ax_queue *q = g->model->rt->q;
    fill_prompts(b, round);
    memset(&g->counters, 0, sizeof g->counters);
    memset(&q->counters, 0, sizeof q->counters);
    const uint64_t calls = ax_mem_calls();
    AX_TRY(ax_generate(g, r->batch, b->seqs));
    const struct ax_generate_counters *c = &g->counters;
    if (round == 0 || q->op_times)
        return AX_OK;
    const double new_calls = (double)(ax_mem_calls() - calls);
    const double decode = (double)c->decode_tokens / c->decode_seconds;
    const double prefill = (double)c->prompt_tokens / c->prompt_seconds;
    r->answers = fmax(r->answers, (double)c->tokens / (c->prompt_seconds + c->decode_seconds));
    if (decode > r->decode) {
        r->decode = decode;
        r->decode_bytes = ((double)c->decode_passes * (double)b->weight_bytes +
                           cache_bytes(b, (double)c->decode_tokens)) /
                          c->decode_seconds;
    }
    if (prefill > r->prefill) {
        r->prefill = prefill;
        /* forward is a third of training; the head runs only for last tokens */
        const double head = 2.0 * (double)(b->m.arch.hidden_size * b->m.arch.vocab_size);
        const double per_token = ax_arch_flops_per_token(&b->m.arch, b->prompt) / 3 - head;
        r->prefill_flops = prefill * (per_token + head / (double)b->prompt);
    }
    r->allocations = new_calls > (double)r->allocations ? (uint64_t)new_calls : r->allocations;
    r->waits = fmax(r->waits, (double)q->counters.waits / (double)c->passes);
    r->last_seconds = c->decode_seconds + c->prompt_seconds;
    return AX_OK;
}

/* One more round, which only measures what ops take. */
static enum ax_status time_ops(struct generate_bench *b, struct ax_generator *g,
                               struct ax_times AX_DEVICE *times) {
    struct ax_queue *q = g->model->rt->q;
    AX_TRY(ax_queue_write(q, times, b->now->ops, sizeof b->now->ops));
    q->op_times = times;
    const enum ax_status st = time_round(b, g, b->rounds + 1);
    q->op_times = NULL;
    return st == AX_OK ? ax_queue_read(q, times, b->now->ops, sizeof b->now->ops, NULL) : st;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct generate_bench *b = ctx;
    struct ax_model m;
    struct ax_generator g = {0};
    const struct ax_model_options mo = {.dtype = b->dtype,
                                        .max_positions = b->prompt + b->new_tokens};
    const struct ax_generate_options o = {.n_seqs = (int)b->now->batch,
                                          .max_prompt = b->prompt,
                                          .max_new = b->new_tokens,
                                          .sampling.temperature = b->samples > 0 ? 1 : 0};
    struct ax_times AX_DEVICE *times =
        ax_stack_push(&rt->arena.persistent, "times of ops", sizeof b->now->ops);
    AX_TRY(ax_model_create(&m, &b->m.arch, rt, &mo));
    enum ax_status st = ax_bench_model_fill(&b->m, &m);
    b->weight_bytes = ax_model_parameters(&m) * (int64_t)ax_dtype_size(b->dtype);
    if (!b->m.arch.tied) /* reads only single rows of the embedding */
        b->weight_bytes -=
            b->m.arch.vocab_size * b->m.arch.hidden_size * (int64_t)ax_dtype_size(b->dtype);
    if (st == AX_OK && b->samples == 0) /* weights that are trained are not in panels */
        st = ax_model_make_panels(&m);
    if (st == AX_OK)
        st = ax_generator_create(&g, &m, &o);
    const int64_t rounds = ax_runtime_planning(rt) ? 1 : b->rounds + 1;
    for (int64_t round = 0; round < rounds && st == AX_OK; round++)
        st = time_round(b, &g, round);
    if (st == AX_OK && !ax_runtime_planning(rt))
        st = time_ops(b, &g, times);
    ax_generator_free(&g);
    ax_model_free(&m);
    return st;
}

static enum ax_status time_batch(struct generate_bench *b, const struct ax_runtime_options *ro) {
    struct ax_arena_plan plan;
    enum ax_status st;
    const size_t n = (size_t)b->now->batch;
    AX_TRY_GOTO(ax_alloc(&b->seqs, n, sizeof *b->seqs), st, done);
    AX_TRY_GOTO(ax_alloc(&b->ids, n * (size_t)(b->prompt + b->new_tokens), sizeof *b->ids), st,
                done);
    st = ax_runtime_run(ro, body, b, &plan);
    b->now->arena = ax_arena_plan_total(&plan);
done:
    ax_free(b->seqs);
    ax_free(b->ids);
    b->seqs = NULL;
    b->ids = NULL;
    return st;
}

/* ---- output ---- */

static json_t *result_json(const struct result *r) {
    json_t *ops = json_object();
    for (int op = 0; op < AX_OP_COUNT; op++)
        if (r->ops[op].seconds[0] > 0)
            json_object_set_new(ops, ax_op_name((enum ax_op)op), json_real(r->ops[op].seconds[0]));
    return json_pack("{sI sf sf sI sI so}", "batch", (json_int_t)r->batch,
                     "prefill_tokens_per_second", r->prefill, "decode_tokens_per_second", r->decode,
                     "arena_bytes", (json_int_t)r->arena, "allocations_per_round",
                     (json_int_t)r->allocations, "op_seconds", ops);
}

static json_t *details(const struct generate_bench *b) {
    json_t *list = json_array();
    for (int i = 0; i < b->n_results; i++)
        json_array_append_new(list, result_json(&b->results[i]));
    return json_pack("{sI sI sI sf sf sI so}", "prompt_tokens", (json_int_t)b->prompt, "new_tokens",
                     (json_int_t)b->new_tokens, "weight_bytes", (json_int_t)b->weight_bytes,
                     "copy_bytes_per_second", b->bandwidth, "gemm_flops_per_second", b->peak,
                     "peak_rss_bytes", (json_int_t)ax_mem_peak_rss(), "results", list);
}

static void tell(const struct generate_bench *b) {
    const struct result *r = &b->results[b->n_results - 1];
    printf("peaks: %.1f GB/s copied (read + written), %.1f GFLOP/s in matrix products; %.1f MB of "
           "weights\n",
           b->bandwidth / 1e9, b->peak / 1e9, (double)b->weight_bytes / 1e6);
    printf("one round of batch %lld: %.3f s, %llu allocations\n", (long long)r->batch,
           r->last_seconds, (unsigned long long)r->allocations);
    for (int op = 0; op < AX_OP_COUNT; op++)
        if (r->ops[op].seconds[0] > 0)
            printf("  %-20s %8.3f s\n", ax_op_name((enum ax_op)op), r->ops[op].seconds[0]);
}

static enum ax_status report(struct ax_bench *out, const struct generate_bench *b) {
    const struct result *r = b->now;
    const struct ax_bench_figure prefill = {r->prefill, "tokens/s", false,
                                            r->prefill_flops / b->peak};
    const struct ax_bench_figure decode = {r->decode, "tokens/s", false,
                                           r->decode_bytes / b->bandwidth};
    const struct ax_bench_figure waits = {r->waits, "per pass", true, -1};
    const struct ax_bench_figure answers = {r->answers, "tokens/s", false, -1};
    char name[160];
    snprintf(name, sizeof name, "generate/%s/%s/%lld+%lld/batch%lld%s", b->m.name,
             ax_dtype_info(b->dtype)->name, (long long)b->prompt, (long long)b->new_tokens,
             (long long)r->batch, out->backend ? "/cuda" : "");
    AX_TRY(ax_bench_add(out, &prefill, "%s/prefill", name));
    AX_TRY(ax_bench_add(out, &decode, "%s/decode", name));
    if (b->samples > 0)
        AX_TRY(ax_bench_add(out, &answers, "%s/samples%lld", name, (long long)b->samples));
    return ax_bench_add(out, &waits, "%s/waits", name);
}

static enum ax_status run(struct ax_bench *out, struct generate_bench *b) {
    static const int64_t sizes[MAX_RESULTS] = {1, 8, 64};
    const struct ax_runtime_options ro = {.backend = b->backend, .threads = (int)out->threads};
    AX_TRY(ax_bench_backend(out, b->backend));
    AX_TRY(ax_bench_dtype(b->dtype_name, &b->dtype));
    AX_TRY(ax_bench_model_open(&b->m, "generate", true));
    AX_TRY(ax_bench_bandwidth(out, &b->bandwidth));
    AX_TRY(ax_bench_peak(out, &b->peak));
    b->n_results = b->batch > 0 ? 1 : MAX_RESULTS;
    for (int i = 0; i < b->n_results && i < MAX_RESULTS; i++) {
        b->now = &b->results[i];
        b->now->batch = b->batch > 0 ? b->batch : sizes[i];
        AX_TRY(time_batch(b, &ro));
        AX_TRY(report(out, b));
    }
    if (ax_bench_tells(out))
        tell(b);
    return ax_bench_detail(out, "generate", details(b));
}

enum ax_status ax_bench_generate(struct ax_bench *r, int argc, char **argv) {
    struct generate_bench b = {.prompt = 128, .new_tokens = 64, .rounds = 3, .backend = "cpu"};
    const struct ax_arg own[] = {
        AX_BENCH_MODEL_ARGS(&b.m),
        {"--dtype", AX_ARG_STRING, &b.dtype_name, 0, 0},
        {"--backend", AX_ARG_STRING, &b.backend, 0, 0},
        {"--batch", AX_ARG_INT, &b.batch, 1, MAX_BATCH},
        {"--prompt-tokens", AX_ARG_INT, &b.prompt, 1, 1 << 20},
        {"--new-tokens", AX_ARG_INT, &b.new_tokens, 2, 1 << 20},
        {"--samples", AX_ARG_INT, &b.samples, 1, MAX_BATCH},
        {"--rounds", AX_ARG_INT, &b.rounds, 1, 1000},
        {"--threads", AX_ARG_INT, &r->threads, 1, 1024},
    };
    AX_TRY(ax_bench_parse(r, argc, argv, sizeof own / sizeof *own, own));
    const enum ax_status st = run(r, &b);
    ax_bench_model_close(&b.m);
    return st;
}
