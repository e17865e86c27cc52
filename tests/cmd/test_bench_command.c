/* `axtrain bench` as a command: every kind on a tiny model gives its figures, options that make no
 * sense are refused, and a comparison decides the exit code. Nothing here depends on speed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>

#include "cmd/bench/result.h"
#include "cmd/commands.h"
#include "tests/cmd/command_case.h"
#include "tests/cmd/sft_case.h"

/* Runs it with -o and reads what it wrote. */
static void bench(struct ax_bench_list *out, int n, const char *const *args) {
    const char *words[SFT_ARGS];
    char file[256], said[8192];
    snprintf(file, sizeof file, "%s", in_scratch("now.json"));
    assert_true(n + 2 < SFT_ARGS);
    memcpy(words, args, (size_t)n * sizeof *args);
    words[n] = "-o";
    words[n + 1] = file;
    if (sft(said, sizeof said, n + 2, words) != 0)
        fail_msg("%s", said);
    assert_ok(ax_bench_list_load(out, file));
}
#define BENCH(out, ...)                                                                            \
    do {                                                                                           \
        const char *const args_[] = {__VA_ARGS__};                                                 \
        bench(out, (int)(sizeof args_ / sizeof *args_), args_);                                    \
    } while (0)

static void expect_figures(struct ax_bench_list *l, size_t n, const char *const *names) {
    assert_int_equal(l->n, n);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(l->list[i].name, names[i]);
        const bool may_be_0 = strstr(names[i], "allocations") || strstr(names[i], "waits");
        assert_true(l->list[i].figure.value > 0 || may_be_0);
    }
    ax_bench_list_free(l);
}

static void test_ops(void **state) {
    (void)state;
    need_binary();
    struct ax_bench_list l;
    static const char *const names[] = {"ops/clip/nothing trained/float32",
                                        "ops/fill/hidden/float32"};
    BENCH(&l, "ops", "--op", "clip", "--op", "fill", "--dtype", "float32", "--threads", "1");
    assert_string_equal(l.list[0].unit, "us");
    assert_true(l.list[0].figure.lower_is_better && l.list[0].figure.share < 0);
    assert_string_equal(l.list[1].unit, "GB/s");
    assert_true(l.list[1].figure.share > 0);
    assert_int_equal(l.threads, 1);
    expect_figures(&l, 2, names);
}

static void test_ops_on_the_reference(void **state) {
    (void)state;
    need_binary();
    struct ax_bench_list l;
    static const char *const names[] = {"ops/fill/hidden/float32/ref"};
    BENCH(&l, "ops", "--op", "fill", "--dtype", "float32", "--backend", "ref");
    assert_true(l.threads > 0); /* none were asked for: one for each processor */
    assert_int_equal(l.threads, json_integer_value(json_object_get(l.machine, "cpus")));
    expect_figures(&l, 1, names);
}

/* Of memory that the host cannot touch, which the program has not. */
static void test_ops_on_a_device(void **state) {
    (void)state;
    struct ax_bench_list l;
    char file[256], said[8192];
    snprintf(file, sizeof file, "%s", in_scratch("far.json"));
    char *args[] = {"bench",     "ops",  "--op",    "attention_backward",
                    "--op",      "fill", "--dtype", "bfloat16",
                    "--backend", "far",  "-o",      file};
    static const char *const names[] = {"ops/attention_backward/training/bfloat16",
                                        "ops/fill/hidden/bfloat16"};
    assert_ok(run_command(ax_cmd_bench, (int)(sizeof args / sizeof *args), args, NULL,
                          in_scratch("out"), said, sizeof said));
    assert_ok(ax_bench_list_load(&l, file));
    expect_figures(&l, 2, names);
}

static void test_step(void **state) {
    (void)state;
    need_binary();
    struct ax_bench_list l;
#define LORA_STEP "step/llama-tiny/float32/2x16x2/lora4/float32/dora/"
    static const char *const names[] = {LORA_STEP "speed", LORA_STEP "executed",
                                        LORA_STEP "planned-memory", LORA_STEP "allocations",
                                        LORA_STEP "waits"};
    BENCH(&l, "step", "--arch", "llama-tiny", "--batch", "2", "--seq", "16", "--accumulate", "2",
          "--steps", "1", "--lora", "4", "--dora", "--dtype", "float32", "--masters", "float32",
          "--threads", "1");
    assert_true(l.list[0].figure.share > 0);
    assert_true(l.n == 5 && l.list[4].figure.value == 1);
    expect_figures(&l, 5, names);
}

/* Of a family whose folders may have prediction layers, which a folder without weights has not. */
static void test_random_weights(void **state) {
    (void)state;
    need_binary();
    static const char *const models[] = {"tests/goldens/models/qwen3_next",
                                         "tests/goldens/models/qwen3_next/config.json"};
    char said[4096], *weights[2];
    size_t n[2];
    for (size_t i = 0; i < 2; i++) {
        const char *const args[] = {"step", "--model", models[i], "--write-random",
                                    in_scratch(i == 0 ? "of_folder" : "of_config")};
        if (sft(said, sizeof said, 5, args) != 0)
            fail_msg("%s", said);
        assert_ok(ax_read_file(
            in_scratch(i == 0 ? "of_folder/model.safetensors" : "of_config/model.safetensors"),
            1 << 24, &weights[i], &n[i]));
    }
    assert_true(n[0] == n[1] && memcmp(weights[0], weights[1], n[0]) == 0);
    ax_free(weights[0]);
    ax_free(weights[1]);
}

/* Two ranks and many layers: each stage of ZeRO needs less memory than the one before. */
static void test_stages(void **state) {
    (void)state;
    need_binary();
    static const char config[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 97, \"hidden_size\": 64, "
        "\"intermediate_size\": 128, \"num_hidden_layers\": 12, \"num_attention_heads\": 2, "
        "\"num_key_value_heads\": 2, \"max_position_embeddings\": 64}";
    static const char *const stages[] = {"1", "2", "3"}, *const names[] = {"/zero1", "/zero2", ""};
    char file[256], name[128];
    double before = INFINITY;
    snprintf(file, sizeof file, "%s", put_bytes("deep.json", config, sizeof config - 1));
    for (int i = 0; i < 3; i++) {
        struct ax_bench_list l;
        sft_command = "launch";
        BENCH(&l, "-n", "2", "--", "bench", "step", "--model", file, "--seq", "8", "--batch", "1",
              "--accumulate", "2", "--steps", "1", "--dtype", "float32", "--zero", stages[i]);
        sft_command = "bench";
        snprintf(name, sizeof name, "step/deep.json/float32/1x8x2%s/dp_shard2/planned-memory",
                 names[i]);
        assert_true(l.n == 5);
        assert_string_equal(l.list[2].name, name);
        assert_true(l.list[2].figure.value < before);
        before = l.list[2].figure.value;
        ax_bench_list_free(&l);
    }
}

static void test_generate(void **state) {
    (void)state;
    need_binary();
    struct ax_bench_list l;
    static const char *const names[] = {"generate/llama-tiny/float32/8+2/batch3/prefill",
                                        "generate/llama-tiny/float32/8+2/batch3/decode",
                                        "generate/llama-tiny/float32/8+2/batch3/waits"};
    BENCH(&l, "generate", "--arch", "llama-tiny", "--batch", "3", "--prompt-tokens", "8",
          "--new-tokens", "2", "--rounds", "1", "--dtype", "float32", "--threads", "1");
    assert_true(l.n == 3 && l.list[2].figure.value == 1); /* a pass each of prompts and decoding */
    expect_figures(&l, 3, names);
}

#define EVAL "eval/llama-tiny/float32/"
static void test_eval(void **state) {
    (void)state;
    need_binary();
    struct ax_bench_list l;
    struct ax_json_doc doc;
    static const char *const names[] = {
        EVAL "loss/3x8/speed", EVAL "loss/3x8/waits", EVAL "loglikelihood/3x5+4x2/speed",
        EVAL "loglikelihood/3x5+4x2/waits", EVAL "planned-memory/3x8"};
    BENCH(&l, "eval", "--arch", "llama-tiny", "--batch", "3", "--seq", "8", "--prompt-tokens", "5",
          "--new-tokens", "2", "--rounds", "2", "--dtype", "float32", "--threads", "1");
    assert_true(l.list[0].figure.share > 0 && l.list[2].figure.share > 0);
    assert_true(l.list[1].figure.value == 0 && l.list[3].figure.value > 0);
    expect_figures(&l, 5, names);
    assert_ok(ax_json_load(&doc, in_scratch("now.json"), 1 << 20));
    json_t *eval = json_object_get(doc.root, "eval"), *loss = json_object_get(eval, "loss"),
           *scores = json_object_get(eval, "loglikelihood");
    assert_int_equal(json_integer_value(json_object_get(loss, "tokens")), 3 * 8);
    assert_int_equal(json_integer_value(json_object_get(loss, "passes")), 1);
    /* random weights and tokens: about as likely as any of the vocabulary */
    assert_true(fabs(json_real_value(json_object_get(loss, "loss")) - log(512)) < 0.5);
    assert_true(fabs(json_real_value(json_object_get(scores, "mean_logprob")) + log(512)) < 0.5);
    /* of each question the first four tokens once, its last and an answer's first four times */
    assert_int_equal(json_integer_value(json_object_get(scores, "tokens")), 3 * 4 * 6);
    ax_json_free(&doc);
}

/* Without the name of one: a short set of all, on the model that is given. */
static void test_all(void **state) {
    (void)state;
    need_binary();
    static const char *const some[] = {"step/llama-tiny/", "generate/llama-tiny/",
                                       "eval/llama-tiny/", "ops/gemm/", "ops/attention_backward/"};
    struct ax_bench_list l;
    BENCH(&l, "--arch", "llama-tiny", "--threads", "1");
    for (size_t k = 0; k < sizeof some / sizeof *some; k++) {
        size_t n = 0;
        for (size_t i = 0; i < l.n; i++)
            n += strncmp(l.list[i].name, some[k], strlen(some[k])) == 0;
        if (n == 0)
            fail_msg("no %s", some[k]);
    }
    for (size_t i = 0; i < l.n; i++) {
        const bool of_ops = strncmp(l.list[i].name, "ops/", 4) == 0;
        assert_true(of_ops || strstr(l.list[i].name, "/llama-tiny/"));
    }
    assert_int_equal(l.threads, 1);
    ax_bench_list_free(&l);
}

#define STEP "step", "--arch", "llama-tiny", "--seq", "8", "--steps", "1"

/* Of a step each op that ran, and no other, with how often: what a model of two layers takes. */
static void test_ops_of_a_step(void **state) {
    (void)state;
    need_binary();
    struct ax_bench_list l;
    struct ax_json_doc doc;
    static const struct {
        const char *op;
        int64_t launches;
    } ran[] = {{"embedding_backward", 1},
               {"attention_backward", 2},
               {"swiglu_backward", 2},
               {"nll_loss", 1},
               {"clip", 1}};
    BENCH(&l, STEP, "--batch", "1", "--dtype", "float32", "--threads", "1");
    ax_bench_list_free(&l);
    assert_ok(ax_json_load(&doc, in_scratch("now.json"), 1 << 20));
    const json_t *step = json_object_get(doc.root, "step"), *op;
    json_t *ops = json_object_get(step, "ops");
    const char *name;
    assert_int_equal(json_integer_value(json_object_get(step, "steps")), 1);
    assert_int_equal(json_object_size(json_object_get(step, "phases")), 3);
    json_object_foreach(ops, name, op) {
        assert_true(json_integer_value(json_object_get(op, "launches")) >= 1);
        assert_true(json_real_value(json_object_get(op, "seconds")) > 0);
        assert_true(json_real_value(json_object_get(op, "gflops")) >= 0);
    }
    for (size_t i = 0; i < sizeof ran / sizeof *ran; i++) {
        op = json_object_get(ops, ran[i].op);
        assert_int_equal(json_integer_value(json_object_get(op, "launches")), ran[i].launches);
    }
    assert_non_null(json_object_get(ops, "gemm"));
    assert_non_null(json_object_get(ops, "adamw"));
    ax_json_free(&doc);
}

/* ---- figures that follow from others, however fast the machine is ---- */

/* FLOPs of llama-tiny per token of 8: two layers' matrices (2 · 64² + 2 · 64 · 32 + 3 · 64 · 160 = 43,008), the
 * head, and scores and values of attention, of which the causal mask leaves a half. */
#define TINY_FORWARD_8 (2.0 * (2 * 43008 + 512 * 64) + 2 * (2 * 2 * 64 * 8 / 2))

struct figures {
    struct ax_bench_list list;
    struct ax_json_doc doc;
};

static void figures_open(struct figures *f, int n, const char *const *args) {
    bench(&f->list, n, args);
    assert_ok(ax_json_load(&f->doc, in_scratch("now.json"), 1 << 20));
}
#define FIGURES_OPEN(f, ...)                                                                       \
    do {                                                                                           \
        const char *const args_[] = {__VA_ARGS__};                                                 \
        figures_open(f, (int)(sizeof args_ / sizeof *args_), args_);                               \
    } while (0)

static void figures_close(struct figures *f) {
    ax_json_free(&f->doc);
    ax_bench_list_free(&f->list);
}

/* The figure whose name ends so. */
static const struct ax_bench_figure *figure(const struct figures *f, const char *end) {
    for (size_t i = 0; i < f->list.n; i++) {
        const char *name = f->list.list[i].name;
        if (strlen(name) > strlen(end) && strcmp(name + strlen(name) - strlen(end), end) == 0)
            return &f->list.list[i].figure;
    }
    fail_msg("no figure ends in %s", end);
    return NULL;
}

/* A number by its path, as in "step.ops.gemm.gflops". */
static double number(const struct figures *f, const char *path) {
    const json_t *v = f->doc.root;
    char key[64];
    for (const char *at = path; *at; at += strspn(at, ".")) {
        const size_t n = strcspn(at, ".");
        snprintf(key, sizeof key, "%.*s", (int)n, at);
        v = json_is_array(v) ? json_array_get(v, (size_t)atoi(key)) : json_object_get(v, key);
        at += n;
    }
    if (!json_is_number(v))
        fail_msg("%s is no number", path);
    return json_number_value(v);
}

static void agree(const char *what, double got, double want) {
    if (!(fabs(got - want) <= 1e-9 * fabs(want)))
        fail_msg("%s: %.12g, expected %.12g", what, got, want);
}

static void test_figures_of_a_step(void **state) {
    (void)state;
    need_binary();
    struct figures f;
    const char *key;
    json_t *op;
    double in_ops = 0;
    FIGURES_OPEN(&f, "step", "--arch", "llama-tiny", "--seq", "8", "--batch", "2", "--steps", "4",
                 "--dtype", "float32", "--threads", "1");
    const double peak = number(&f, "peak.flops"), best = 16 / number(&f, "step.tokens_per_second"),
                 median = 16 / number(&f, "step.tokens_per_second_median");
    const struct ax_bench_figure *speed = figure(&f, "/speed"), *made = figure(&f, "/executed");
    agree("speed", speed->value * median, 16);
    agree("share of speed", speed->share * peak * median, 16 * 3 * TINY_FORWARD_8);
    agree("share of products", made->share * peak, made->value * 1e9);
    agree("products", made->value * median,
          number(&f, "step.ops.gemm.gflops") + number(&f, "step.ops.attention_forward.gflops") +
              number(&f, "step.ops.attention_backward.gflops"));
    json_object_foreach(json_object_get(json_object_get(f.doc.root, "step"), "ops"), key, op)
        in_ops += json_real_value(json_object_get(op, "seconds"));
    agree("time outside of ops", 1 + number(&f, "step.outside_ops"),
          1 + fmax(0, 1 - in_ops / best));
    const double phases = number(&f, "step.phases.forward") + number(&f, "step.phases.backward") +
                          number(&f, "step.phases.optimizer");
    assert_true(best <= median && phases > 0 && phases <= best);
    assert_true(number(&f, "step.peak_rss_bytes") > 1e9 * figure(&f, "/planned-memory")->value);
    figures_close(&f);
}

/* Two prompts of eight tokens and four answers of three. */
static void test_figures_of_generating(void **state) {
    (void)state;
    need_binary();
    struct figures f;
    FIGURES_OPEN(&f, "generate", "--arch", "llama-tiny", "--batch", "4", "--samples", "2",
                 "--prompt-tokens", "8", "--new-tokens", "3", "--rounds", "1", "--dtype", "float32",
                 "--threads", "1");
    const struct ax_bench_figure *prefill = figure(&f, "/prefill"), *decode = figure(&f, "/decode"),
                                 *answers = figure(&f, "/samples2");
    const double weights = number(&f, "generate.weight_bytes");
    agree("prefill", prefill->value, number(&f, "generate.results.0.prefill_tokens_per_second"));
    agree("decode", decode->value, number(&f, "generate.results.0.decode_tokens_per_second"));
    /* the head runs for one of eight tokens */
    agree("share of prefill",
          prefill->share * number(&f, "generate.gemm_flops_per_second") / prefill->value,
          TINY_FORWARD_8 - 2.0 * 64 * 512 * 7 / 8);
    /* a pass reads the weights, and for each of 4 tokens keys and values of 8 + 3 / 2 others */
    agree("share of decode",
          decode->share * number(&f, "generate.copy_bytes_per_second") / decode->value,
          weights / 4 + 9.5 * (2 * 2 * 2 * 16 * 4));
    /* ops that ran, each with its time */
    assert_true(number(&f, "generate.results.0.op_seconds.gemm") > 0);
    assert_true(number(&f, "generate.results.0.op_seconds.rope") > 0);
    const json_t *ops = json_object_get(
        json_array_get(json_object_get(json_object_get(f.doc.root, "generate"), "results"), 0),
        "op_seconds");
    const char *op;
    json_t *seconds;
    json_object_foreach((json_t *)(uintptr_t)ops, op, seconds)
        assert_true(json_real_value(seconds) > 0);
    /* such short prompts fill no block of the cache, so samples share none */
    agree("tokens of prompts", prefill->value * (12 / answers->value - 8 / decode->value), 4 * 8);
    figures_close(&f);
}

static void test_figures_of_scoring(void **state) {
    (void)state;
    need_binary();
    struct figures f;
    FIGURES_OPEN(&f, "eval", "--arch", "llama-tiny", "--batch", "3", "--seq", "8",
                 "--prompt-tokens", "8", "--new-tokens", "2", "--rounds", "1", "--dtype", "float32",
                 "--threads", "1");
    const struct ax_bench_figure *loss = figure(&f, "loss/3x8/speed"),
                                 *scores = figure(&f, "loglikelihood/3x8+4x2/speed");
    const double peak = number(&f, "peak.flops");
    agree("share of losses", loss->share * peak / loss->value, TINY_FORWARD_8);
    /* the head runs for 2 of 8 + 2 − 1 tokens */
    agree("share of scores", scores->share * peak / scores->value,
          TINY_FORWARD_8 - 2.0 * 64 * 512 * 7 / 9);
    agree("memory", number(&f, "eval.planned_bytes"),
          1e9 * figure(&f, "/planned-memory/3x8")->value);
    assert_true(number(&f, "eval.peak_rss_bytes") > number(&f, "eval.planned_bytes"));
    assert_int_equal(number(&f, "eval.rounds"), 1);
    figures_close(&f);
}

/* What memory traffic limits is a share of one bandwidth, and products of the peak. */
static void test_figures_of_ops(void **state) {
    (void)state;
    need_binary();
    struct figures f;
    FIGURES_OPEN(&f, "ops", "--op", "gemm", "--op", "fill", "--op", "add", "--dtype", "float32",
                 "--threads", "1");
    const double peak = number(&f, "peak.flops");
    double bandwidth = 0;
    int products = 0;
    for (size_t i = 0; i < f.list.n; i++) {
        const struct ax_bench_figure *x = &f.list.list[i].figure;
        if (strcmp(x->unit, "GFLOP/s") == 0) {
            agree(f.list.list[i].name, x->share * peak, x->value * 1e9);
            products++;
            continue;
        }
        assert_string_equal(x->unit, "GB/s");
        if (bandwidth > 0)
            agree(f.list.list[i].name, x->value / x->share, bandwidth);
        bandwidth = x->value / x->share;
    }
    assert_true(products > 0 && bandwidth > 0);
    assert_true(fabs(1e9 * bandwidth / peak - 1) > 1e-9); /* nor are they one figure */
    figures_close(&f);
}

/* ---- what is printed for a person ---- */

/* The number after `before`, which stands after the text `in`. */
static double said_after(const char *said, const char *in, const char *before) {
    const char *at = strstr(said, in);
    at = at ? strstr(at + strlen(in), before) : NULL;
    if (!at)
        fail_msg("no \"%s\" after \"%s\" in: %s", before, in, said);
    return strtod(at + strlen(before), NULL);
}

/* Runs it and reads what it printed and wrote. */
static void told_open(struct figures *f, char *said, size_t size, int n, const char *const *args) {
    if (sft(said, size, n, args) != 0)
        fail_msg("%s", said);
    assert_ok(ax_bench_list_load(&f->list, in_scratch("told.json")));
    assert_ok(ax_json_load(&f->doc, in_scratch("told.json"), 1 << 20));
}

/* The printed shares are percentages of those in the file. */
static void expect_shares(const struct figures *f, const char *said) {
    int shares = 0;
    for (size_t i = 0; i < f->list.n; i++) {
        const struct ax_bench_result *r = &f->list.list[i];
        if (r->figure.share < 0)
            continue;
        char unit[40];
        snprintf(unit, sizeof unit, " %s", r->unit);
        const double percent = said_after(said, r->name, unit);
        assert_true(fabs(percent - 100 * r->figure.share) <= 0.051);
        shares += r->figure.share > 0.002;
    }
    assert_true(shares > 0);
}

/* Bytes of memory, in the unit that follows the number. */
static double bytes_after(const char *said, const char *before) {
    const double n = said_after(said, "\npeak ", before);
    const char *unit = strstr(strstr(said, "\npeak "), before) + strlen(before);
    unit += strspn(unit, " 0123456789.");
    return n * (*unit == 'G' ? 1 << 30 : *unit == 'M' ? 1 << 20 : *unit == 'K' ? 1 << 10 : 1);
}

/* Of one step, the best is the median; what is not planned is the rest of the memory. */
static void test_what_a_step_tells(void **state) {
    (void)state;
    need_binary();
    struct figures f;
    char said[8192], file[256];
    snprintf(file, sizeof file, "%s", in_scratch("told.json"));
    const char *const args[] = {"step",    "--arch",    "llama-tiny", "--seq", "64",
                                "--steps", "1",         "--batch",    "16",    "--dtype",
                                "float32", "--threads", "1",          "-o",    file};
    told_open(&f, said, sizeof said, sizeof args / sizeof *args, args);
    expect_shares(&f, said);
    assert_true(fabs(said_after(said, "the best of 1 steps", ",") - figure(&f, "/speed")->value) <
                1);
    const double peak = bytes_after(said, "memory "), planned = bytes_after(said, "planned "),
                 rest = bytes_after(said, "threads ");
    assert_true(fabs(1e-9 * planned / figure(&f, "/planned-memory")->value - 1) < 0.01);
    assert_true(planned > 0.1 * peak && fabs(planned + rest - peak) < 0.01 * peak);
    figures_close(&f);
}

/* A round is its prompt of 1000 tokens, and the 63 tokens of an answer but the first. */
static void test_what_generating_tells(void **state) {
    (void)state;
    need_binary();
    struct figures f;
    char said[8192], file[256];
    snprintf(file, sizeof file, "%s", in_scratch("told.json"));
    const char *const args[] = {
        "generate", "--arch",       "llama-tiny", "--batch",  "1", "--prompt-tokens",
        "1000",     "--new-tokens", "64",         "--rounds", "1", "--dtype",
        "float32",  "--threads",    "1",          "-o",       file};
    told_open(&f, said, sizeof said, sizeof args / sizeof *args, args);
    expect_shares(&f, said);
    const double prompt = 1000 / figure(&f, "/prefill")->value,
                 answer = 63 / figure(&f, "/decode")->value,
                 round = said_after(said, "one round of batch 1", ":");
    assert_true(fabs(round - prompt - answer) <= 0.0006);
    figures_close(&f);
}

/* ---- comparing ---- */

/* The same results with planned memory, which every run has alike, changed by a factor. Speed is so
 * low there that no run is worse. */
static const char *older(double factor) {
    char *text;
    size_t len;
    struct ax_json_doc doc;
    assert_ok(ax_json_load(&doc, in_scratch("now.json"), 1 << 20));
    size_t i;
    json_t *r;
    json_array_foreach(json_object_get(doc.root, "results"), i, r) {
        json_t *value = json_object_get(r, "value");
        const char *name = json_string_value(json_object_get(r, "name"));
        const bool timed = strstr(name, "speed") || strstr(name, "executed");
        const double by = timed ? 1e-6 : strstr(name, "memory") ? factor : 1;
        assert_int_equal(json_real_set(value, json_real_value(value) * by), 0);
    }
    assert_ok(ax_json_dump(doc.root, &text, &len));
    ax_json_free(&doc);
    const char *path = put_text("old.json", text);
    ax_free(text);
    return path;
}

static void test_comparison(void **state) {
    (void)state;
    need_binary();
    struct ax_bench_list l;
    char old[256];
    BENCH(&l, STEP);
    ax_bench_list_free(&l);
    snprintf(old, sizeof old, "%s", older(1));
    EXPECT(0, "0 worse by more than 5%", STEP, "--compare", old);
    EXPECT(0, "not measured this time: step/llama-tiny", "ops", "--op", "clip", "--compare", old);
    EXPECT(0, "new: ops/clip", "ops", "--op", "clip", "--compare", old);
    older(0.5);
    EXPECT(1, "bench: 1 of 5 figures are worse than in ", STEP, "--compare", old);
    EXPECT(1, "2.000  WORSE", STEP, "--compare", old, "--tolerance", "99%");
    EXPECT(0, "2.000  \n", STEP, "--compare", old, "--tolerance", "100%");
    older(2);
    EXPECT(0, "0.500  better", STEP, "--compare", old, "--tolerance", "49%");
}

static void test_mistakes(void **state) {
    (void)state;
    need_binary();
    char broken[256], none[256];
    snprintf(broken, sizeof broken, "%s", put_text("broken.json", "{\"results\": 7}"));
    snprintf(none, sizeof none, "%s", in_scratch("none/of/these.json"));
    EXPECT(2, "did you mean generate?", "generated");
    EXPECT(2, "is not one of ops, step, generate, eval", "everything");
    EXPECT(2, "give either --model DIR or --arch NAME", "step");
    EXPECT(2, "give either --model DIR or --arch NAME", "--arch", "llama-tiny", "--model", ".");
    EXPECT(2, "build/tests/bench/bench pipeline", "pipeline", "--arch", "llama-tiny");
    EXPECT(2, "build/tests/bench/bench startup", "startup");
    EXPECT(2, "--masters bf16_sr needs --dtype bf16", "step", "--arch", "llama-tiny", "--dtype",
           "float32", "--masters", "bf16_sr");
    EXPECT(2, "is not one of float32, bf16_remainder, bf16_sr", "step", "--arch", "llama-tiny",
           "--masters", "bf16");
    EXPECT(2, "unknown op gem; did you mean gemm?", "ops", "--op", "gem");
    EXPECT(2, "unknown op multiplication", "ops", "--op", "multiplication");
    EXPECT(2, "expected float32 or bfloat16, got \"float16\"", "ops", "--dtype", "float16");
    EXPECT(2, "--tolerance needs --compare", "ops", "--op", "clip", "--tolerance", "5%");
    EXPECT(2, "such as 5%", "ops", "--op", "clip", "--compare", broken, "--tolerance", "5");
    EXPECT(3, "results: expected a list", "ops", "--op", "clip", "--compare", broken);
    EXPECT(2, "--compare: no such file", "ops", "--op", "clip", "--compare", none);
    EXPECT(2, "-o: the folder of", "ops", "--op", "clip", "-o", none);
    EXPECT(2, "--arch: no shape is called \"llama\"", "step", "--arch", "llama");
}

int main(void) {
    sft_command = "bench";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ops_of_a_step),
        cmocka_unit_test(test_figures_of_a_step),
        cmocka_unit_test(test_figures_of_generating),
        cmocka_unit_test(test_figures_of_scoring),
        cmocka_unit_test(test_figures_of_ops),
        cmocka_unit_test(test_what_a_step_tells),
        cmocka_unit_test(test_what_generating_tells),
        cmocka_unit_test(test_ops),
        cmocka_unit_test(test_ops_on_the_reference),
        cmocka_unit_test(test_ops_on_a_device),
        cmocka_unit_test(test_step),
        cmocka_unit_test(test_random_weights),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_generate),
        cmocka_unit_test(test_eval),
        cmocka_unit_test(test_all),
        cmocka_unit_test(test_comparison),
        cmocka_unit_test(test_mistakes),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
