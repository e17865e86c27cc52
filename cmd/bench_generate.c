/* `axtrain bench generate`: reading prompts and decoding at several batch sizes, beside what the
 * machine's memory and matrix products allow. */
#include "cmd/bench.h"

#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "cmd/args.h"
#include "cmd/shapes_builtin.h"
#include "kernels/cpu/isa.h"
#include "model/generate.h"
#include "optim/bandwidth.h"
#include "optim/peak.h"

#define MAX_RESULTS 3
#define MAX_BATCH   1024

struct result {
    int64_t batch;
    double prefill, decode; /* tokens per second, best of the rounds */
    double decode_bytes;    /* read per second while decoding: weights and cache */
    double prefill_flops;   /* per second */
    uint64_t allocations;   /* in one round's decoding, most */
    size_t arena;
    double op_seconds[AX_OP_COUNT]; /* of the last round */
    double last_seconds;
};

struct bench {
    const char *model, *arch_name, *dtype_name;
    int64_t batch, prompt, new_tokens, rounds, threads;
    bool json;

    struct ax_json_doc config; /* of --arch */
    struct ax_arch arch;
    struct ax_hf hf; /* dir NULL: random weights */
    enum ax_dtype dtype;
    double bandwidth, peak;
    int64_t weight_bytes; /* that each decoded token reads */
    int n_results;
    struct result results[MAX_RESULTS];
    /* of one batch size */
    struct result *now;
    struct ax_sequence *seqs;
    int32_t *ids; /* prompts, then new tokens */
};

/* Every prompt of every round is another one, so that none finds its tokens in the cache. */
static void fill_prompts(struct bench *b, int64_t round) {
    const int64_t per = b->prompt + b->new_tokens;
    for (int64_t i = 0; i < b->now->batch; i++) {
        const struct ax_rng_key key = {(uint64_t)round, (uint32_t)i, 0};
        int32_t *prompt = b->ids + i * per;
        for (int64_t k = 0; k < b->prompt; k++)
            prompt[k] = (int32_t)ax_rng_below(key, (uint64_t)k, (uint64_t)b->arch.vocab_size);
        b->seqs[i] = (struct ax_sequence){
            .n_prompt = b->prompt, .prompt = prompt, .tokens = prompt + b->prompt};
    }
}

/* Keys and values read for that many decoded tokens. */
static double cache_bytes(const struct bench *b, double tokens) {
    const double row = 2.0 * (double)(b->arch.n_layers * b->arch.n_kv_heads * b->arch.head_dim) *
                       (double)ax_dtype_size(b->dtype);
    return row * tokens * ((double)b->prompt + (double)b->new_tokens / 2);
}

static enum ax_status time_round(struct bench *b, struct ax_generator *g, int64_t round) {
    struct result *r = b->now;
    struct ax_queue *q = g->model->rt->q;
    fill_prompts(b, round);
    memset(&g->counters, 0, sizeof g->counters);
    memset(&q->counters, 0, sizeof q->counters);
    const uint64_t calls = ax_mem_calls();
    AX_TRY(ax_generate(g, r->batch, b->seqs));
    const struct ax_generate_counters *c = &g->counters;
    if (round == 0)
        return AX_OK;
    const double new_calls = (double)(ax_mem_calls() - calls);
    const double decode = (double)c->decode_tokens / c->decode_seconds;
    const double prefill = (double)c->prompt_tokens / c->prompt_seconds;
    if (decode > r->decode) {
        r->decode = decode;
        r->decode_bytes = ((double)c->decode_passes * (double)b->weight_bytes +
                           cache_bytes(b, (double)c->decode_tokens)) /
                          c->decode_seconds;
    }
    if (prefill > r->prefill) {
        r->prefill = prefill;
        /* forward is a third of training; the head runs for last tokens only */
        const double head = 2.0 * (double)(b->arch.hidden_size * b->arch.vocab_size);
        const double per_token = ax_arch_flops_per_token(&b->arch, b->prompt) / 3 - head;
        r->prefill_flops = prefill * (per_token + head / (double)b->prompt);
    }
    r->allocations = new_calls > (double)r->allocations ? (uint64_t)new_calls : r->allocations;
    memcpy(r->op_seconds, q->counters.seconds, sizeof r->op_seconds);
    r->last_seconds = c->decode_seconds + c->prompt_seconds;
    return AX_OK;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct bench *b = ctx;
    struct ax_model m;
    struct ax_generator g = {0};
    const struct ax_model_options mo = {.dtype = b->dtype,
                                        .max_positions = b->prompt + b->new_tokens};
    const struct ax_generate_options o = {
        .n_seqs = (int)b->now->batch, .max_prompt = b->prompt, .max_new = b->new_tokens};
    AX_TRY(ax_model_create(&m, &b->arch, rt, &mo));
    enum ax_status st = AX_OK;
    if (b->hf.dir)
        st = ax_model_load(&m, &b->hf);
    else
        ax_model_init_random(&m, 0);
    b->weight_bytes = ax_model_parameters(&m) * (int64_t)ax_dtype_size(b->dtype);
    if (!b->arch.tied) /* of the embedding only rows are read */
        b->weight_bytes -=
            b->arch.vocab_size * b->arch.hidden_size * (int64_t)ax_dtype_size(b->dtype);
    if (st == AX_OK)
        st = ax_model_make_panels(&m);
    if (st == AX_OK)
        st = ax_generator_create(&g, &m, &o);
    rt->q->timing = true;
    const int64_t rounds = ax_runtime_planning(rt) ? 1 : b->rounds + 1;
    for (int64_t round = 0; round < rounds && st == AX_OK; round++)
        st = time_round(b, &g, round);
    ax_generator_free(&g);
    ax_model_free(&m);
    return st;
}

static enum ax_status time_batch(struct bench *b, const struct ax_runtime_options *ro) {
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

static json_t *result_json(const struct bench *b, const struct result *r) {
    json_t *ops = json_object();
    for (int op = 0; op < AX_OP_COUNT; op++)
        if (r->op_seconds[op] > 0)
            json_object_set_new(ops, ax_op_name((enum ax_op)op), json_real(r->op_seconds[op]));
    return json_pack("{sI sf sf sf sf sI sI so}", "batch", (json_int_t)r->batch,
                     "prefill_tokens_per_second", r->prefill, "prefill_share_of_peak",
                     r->prefill_flops / b->peak, "decode_tokens_per_second", r->decode,
                     "decode_share_of_bandwidth", r->decode_bytes / b->bandwidth, "arena_bytes",
                     (json_int_t)r->arena, "allocations_per_round", (json_int_t)r->allocations,
                     "op_seconds", ops);
}

static enum ax_status print_json(const struct bench *b) {
    json_t *list = json_array();
    for (int i = 0; i < b->n_results; i++)
        json_array_append_new(list, result_json(b, &b->results[i]));
    json_t *all = json_pack(
        "{ss ss ss sI sI sI sf sf sI so}", "what", "axtrain generate", "model",
        b->model ? b->model : b->arch_name, "dtype", ax_dtype_info(b->dtype)->name, "prompt_tokens",
        (json_int_t)b->prompt, "new_tokens", (json_int_t)b->new_tokens, "weight_bytes",
        (json_int_t)b->weight_bytes, "copy_bytes_per_second", b->bandwidth, "gemm_flops_per_second",
        b->peak, "peak_rss_bytes", (json_int_t)ax_mem_peak_rss(), "results", list);
    char *text = NULL;
    size_t len;
    if (!all)
        return ax_error(AX_ERR_NOMEM, "out of memory for the result");
    const enum ax_status st = ax_json_dump(all, &text, &len);
    if (st == AX_OK)
        printf("%s\n", text);
    ax_free(text);
    json_decref(all);
    return st;
}

static void print_text(const struct bench *b) {
    printf("%.1f GB/s copied (read + written), %.1f GFLOP/s in a %s matrix product; %.1f MB of "
           "weights\n",
           b->bandwidth / 1e9, b->peak / 1e9, ax_dtype_info(b->dtype)->name,
           (double)b->weight_bytes / 1e6);
    printf("prompts of %lld tokens, %lld new ones, best of %lld rounds\n", (long long)b->prompt,
           (long long)b->new_tokens, (long long)b->rounds);
    printf("%6s %16s %10s %16s %14s\n", "batch", "prefill tok/s", "of peak", "decode tok/s",
           "of bandwidth");
    for (int i = 0; i < b->n_results; i++) {
        const struct result *r = &b->results[i];
        printf("%6lld %16.0f %9.0f%% %16.1f %13.0f%%\n", (long long)r->batch, r->prefill,
               100 * r->prefill_flops / b->peak, r->decode, 100 * r->decode_bytes / b->bandwidth);
    }
    const struct result *r = &b->results[b->n_results - 1];
    printf("one round of batch %lld: %.3f s, %llu allocations\n", (long long)r->batch,
           r->last_seconds, (unsigned long long)r->allocations);
    for (int op = 0; op < AX_OP_COUNT; op++)
        if (r->op_seconds[op] > 0)
            printf("  %-20s %8.3f s\n", ax_op_name((enum ax_op)op), r->op_seconds[op]);
}

static enum ax_status run(struct bench *b) {
    static const int64_t sizes[MAX_RESULTS] = {1, 8, 64};
    const struct ax_runtime_options ro = {.backend = "cpu", .threads = (int)b->threads};
    b->dtype = ax_cpu_has_bf16() ? AX_BF16 : AX_F32;
    if (b->dtype_name)
        AX_TRY(ax_dtype_parse(b->dtype_name, &b->dtype));
    if (b->arch_name) {
        AX_TRY(ax_builtin_config(b->arch_name, &b->config));
        AX_TRY(ax_arch_parse(&b->arch, ax_json_root(&b->config)));
    } else {
        AX_TRY(ax_arch_load(&b->arch, b->model));
        AX_TRY(ax_hf_open(&b->hf, b->model));
    }
    AX_TRY(ax_measure_copy_bandwidth(&ro, &b->bandwidth));
    AX_TRY(ax_measure_gemm_peak(&ro, b->dtype, &b->peak));
    b->n_results = b->batch > 0 ? 1 : MAX_RESULTS;
    for (int i = 0; i < b->n_results && i < MAX_RESULTS; i++) {
        b->now = &b->results[i];
        b->now->batch = b->batch > 0 ? b->batch : sizes[i];
        AX_TRY(time_batch(b, &ro));
    }
    if (b->json)
        return print_json(b);
    print_text(b);
    return AX_OK;
}

enum ax_status ax_bench_generate(int argc, char **argv) {
    struct bench b = {.prompt = 128, .new_tokens = 64, .rounds = 3};
    const struct ax_arg args[] = {
        {"--model", AX_ARG_STRING, &b.model, 0, 0},
        {"--arch", AX_ARG_STRING, &b.arch_name, 0, 0},
        {"--dtype", AX_ARG_STRING, &b.dtype_name, 0, 0},
        {"--batch", AX_ARG_INT, &b.batch, 1, MAX_BATCH},
        {"--prompt-tokens", AX_ARG_INT, &b.prompt, 1, 1 << 20},
        {"--new-tokens", AX_ARG_INT, &b.new_tokens, 2, 1 << 20},
        {"--rounds", AX_ARG_INT, &b.rounds, 1, 1000},
        {"--threads", AX_ARG_INT, &b.threads, 1, 1024},
        {"--json", AX_ARG_FLAG, &b.json, 0, 0},
    };
    int n;
    AX_TRY(ax_args_parse(argc, argv, sizeof args / sizeof *args, args, 0, 0, NULL, &n));
    if (!b.model == !b.arch_name)
        return ax_error(AX_ERR_CONFIG, "bench generate: give either --model DIR or --arch NAME");
    const enum ax_status st = run(&b);
    ax_hf_close(&b.hf);
    ax_arch_free(&b.arch);
    ax_json_free(&b.config);
    return st;
}
