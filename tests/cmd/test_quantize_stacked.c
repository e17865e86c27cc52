/* Models whose experts are one tensor: `axtrain quantize` writes a matrix of each, and the folder is the model with the
 * values that are written: it has the perplexity that was printed, and trains and merges as its dequantized copy. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "ckpt/hf/hf.h"
#include "tests/cmd/quantize_case.h"

static const struct {
    const char *golden, *scheme, *says;
    const char *stack, *apart; /* of gate and up */
    bool turned;
} models[] = {
    {"models/llama4", "int8-int8", "52 matrices as int8-int8",
     "model.layers.1.feed_forward.experts.gate_up_proj",
     "model.layers.1.feed_forward.experts.%d.%s_proj.weight", true},
    {"models/llama4", "fp8", "52 matrices as fp8",
     "model.layers.1.feed_forward.experts.gate_up_proj",
     "model.layers.1.feed_forward.experts.%d.%s_proj.weight", true},
    {"models/gemma4_moe", "fp8", "matrices as fp8", "model.layers.1.experts.gate_up_proj",
     "model.layers.1.experts.%d.%s_proj.weight", false},
    {"models/gemma4_moe", "int8-int8", "matrices as int8-int8",
     "model.layers.1.experts.gate_up_proj", "model.layers.1.experts.%d.%s_proj.weight", false},
    {"models/granite4", "int8-int8", "matrices as int8-int8",
     "model.layers.1.block_sparse_moe.input_linear.weight",
     "model.layers.1.block_sparse_moe.experts.%d.%s_proj.weight", false},
    {"models/granite4", "fp8", "matrices as fp8",
     "model.layers.1.block_sparse_moe.input_linear.weight",
     "model.layers.1.block_sparse_moe.experts.%d.%s_proj.weight", false},
};
#define N_MODELS (sizeof models / sizeof *models)

/* TOKENS bytes are tokens, so that no id is above a golden's vocabulary. */
#define TOKENS 121
static void put_tokenizer(void) {
    struct ax_buf b = {0};
    assert_int_equal(
        ax_buf_puts(&b, "{\"version\": \"1.0\", \"added_tokens\": [], \"normalizer\": null, "
                        "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                        "\"trim_offsets\": true, \"use_regex\": false}, \"post_processor\": null, "
                        "\"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", "
                        "\"vocab\": {"),
        AX_OK);
    for (int i = 0; i < TOKENS; i++) /* from "a" on, and letters that stand for bytes */
        assert_int_equal(ax_buf_printf(&b, "%s\"\\u%04x\": %d", i ? ", " : "",
                                       (unsigned)(i < 26 ? 'a' + i : 256 - 26 + i), i),
                         AX_OK);
    assert_int_equal(ax_buf_puts(&b, "}, \"merges\": []}}"), AX_OK);
    put_bytes("model/tokenizer.json", b.data, b.len);
    put_bytes("model/tokenizer_config.json", "{\"eos_token\": \"z\"}", 18);
    ax_buf_free(&b);
}

/* SCRATCH/model: the golden of that path with a tokenizer; and SCRATCH/ids.jsonl, n rows of its vocabulary. */
static void make_model(const char *golden, int n) {
    assert_int_equal(ax_mkdir_parents(in_scratch("model")), AX_OK);
    copy_golden(golden, "config.json", "model");
    copy_golden(golden, "model.safetensors", "model");
    put_tokenizer();
    put_id_rows(n, 0, TOKENS);
}

static double evaluated_on_ids(const char *name) {
    char model[160], rows[160];
    snprintf(model, sizeof model, "%s", in_scratch(name));
    snprintf(rows, sizeof rows, "%s", in_scratch("ids.jsonl"));
    return evaluated(model, rows, "");
}

/* ---- what is written ---- */

/* What is read is what the stack had, but for rounding to 8 bits, and the file has it under the names that other
 * programs read. */
static void values_are_near(const char *stack, const char *apart, bool turned) {
    struct ax_hf before, after;
    assert_int_equal(ax_hf_open(&before, in_scratch("model")), AX_OK);
    assert_int_equal(ax_hf_open(&after, in_scratch("quantized")), AX_OK);
    const struct ax_st_entry *old = ax_hf_find(&before, stack), *new = ax_hf_find(&after, stack);
    char raw[160];
    struct ax_safetensors file;
    assert_true(old && new && old->numel == new->numel);
    float *x, *y;
    assert_int_equal(ax_alloc(&x, (size_t)old->numel, sizeof *x), AX_OK);
    assert_int_equal(ax_alloc(&y, (size_t)old->numel, sizeof *y), AX_OK);
    assert_int_equal(ax_st_read(old, 0, old->numel, AX_F32, x), AX_OK);
    assert_int_equal(ax_st_read(new, 0, new->numel, AX_F32, y), AX_OK);
    double squares = 0, errors = 0;
    for (int64_t i = 0; i < old->numel; i++) {
        squares += (double)x[i] * x[i];
        errors += ((double)y[i] - x[i]) * ((double)y[i] - x[i]);
    }
    assert_true(errors > 0 && sqrt(errors / squares) < 0.04);
    assert_int_equal(ax_safetensors_open(&file, in_scratch("quantized/model.safetensors")), AX_OK);
    assert_null(ax_safetensors_find(&file, stack));
    for (int e = 0; e < (int)old->shape[0]; e++)
        for (int up = 0; up < 2; up++) {
            char name[160];
            snprintf(raw, sizeof raw, apart, e, up ? "up" : "gate");
            const struct ax_st_entry *codes = ax_safetensors_find(&file, raw);
            snprintf(name, sizeof name, "%s_scale", raw);
            const struct ax_st_entry *scale = ax_safetensors_find(&file, name);
            assert_true(codes && scale && codes->ndim == 2 && scale->numel == codes->shape[0]);
            assert_int_equal(2 * codes->shape[0], old->shape[turned ? 2 : 1]);
            assert_int_equal(codes->shape[1], old->shape[turned ? 1 : 2]);
        }
    ax_safetensors_close(&file);
    ax_free(x);
    ax_free(y);
    ax_hf_close(&before);
    ax_hf_close(&after);
}

static enum ax_status copy(void *ctx, int64_t first, int64_t n, void *out) {
    const struct ax_st_entry *e = ctx;
    return ax_st_read(e, first, n, e->dtype, out);
}

/* SCRATCH/dense: what is read of SCRATCH/quantized, in float32. */
static void write_dense(void) {
    struct ax_hf hf;
    struct ax_st_output *t;
    char from[160], to[160];
    snprintf(from, sizeof from, "%s", in_scratch("model"));
    snprintf(to, sizeof to, "%s", in_scratch("dense"));
    assert_int_equal(ax_remove_tree(to), AX_OK);
    assert_int_equal(ax_hf_open(&hf, in_scratch("quantized")), AX_OK);
    const int n = ax_hf_count(&hf);
    assert_int_equal(ax_alloc(&t, (size_t)n, sizeof *t), AX_OK);
    for (int i = 0; i < n; i++) {
        const struct ax_st_entry *e = ax_hf_at(&hf, i);
        t[i] = (struct ax_st_output){.name = e->name,
                                     .dtype = e->dtype,
                                     .ndim = e->ndim,
                                     .fill = copy,
                                     .ctx = (void *)(uintptr_t)e};
        memcpy(t[i].shape, e->shape, sizeof t[i].shape);
    }
    const struct ax_hf_save save = {
        .dir = to, .base_dir = from, .dtype = AX_F32, .n = n, .tensors = t};
    assert_int_equal(ax_hf_write(&save), AX_OK);
    ax_free(t);
    ax_hf_close(&hf);
}

static void quantize(const char *scheme, const char *says) {
    char src[160], dst[160], rows[160];
    snprintf(src, sizeof src, "%s", in_scratch("model"));
    snprintf(dst, sizeof dst, "%s", in_scratch("quantized"));
    snprintf(rows, sizeof rows, "%s", in_scratch("ids.jsonl"));
    assert_int_equal(ax_remove_tree(dst), AX_OK);
    sft_command = "quantize";
    EXPECT(0, says, src, dst, "--scheme", scheme, "--calibrate", rows, "--type", "");
}

static void test_folder_is_the_model(void **state) {
    (void)state;
    need_binary();
    for (size_t i = 0; i < N_MODELS; i++) {
        make_model(models[i].golden, 10);
        const double original = evaluated_on_ids("model");
        quantize(models[i].scheme, models[i].says);
        const double before = number_after("tokens): "), after = number_after("before, ");
        const double now = evaluated_on_ids("quantized");
        if (before != original || after != now || before == after)
            fail_msg("%s, %s: %.4f before, %.4f after; eval says %.4f, %.4f", models[i].golden,
                     models[i].scheme, before, after, original, now);
        values_are_near(models[i].stack, models[i].apart, models[i].turned);
    }
}

/* ---- training on it ---- */

/* SCRATCH/base → SCRATCH/of-base. */
static void train(const char *base, const char *more) {
    char path[128], name[40];
    struct ax_buf b = {0};
    snprintf(name, sizeof name, "of-%s", base);
    assert_int_equal(ax_remove_tree(in_scratch(name)), AX_OK);
    assert_int_equal(
        ax_buf_printf(&b,
                      "base_model: %s/%s\noutput_dir: %s/of-%s\ndatasets:\n"
                      "  - path: %s/ids.jsonl\n    type:\nsequence_len: 64\nlearning_rate: 5e-3\n"
                      "micro_batch_size: 2\ngradient_accumulation_steps: 1\nmax_steps: 3\n"
                      "logging_steps: 1\nsave_only_model: true\nfloat32: true\n%s",
                      scratch, base, scratch, base, scratch, more),
        AX_OK);
    snprintf(name, sizeof name, "%s.yaml", base);
    snprintf(path, sizeof path, "%s", put_bytes(name, b.data, b.len));
    ax_buf_free(&b);
    sft_command = "sft";
    EXPECT(0, "", path);
}

/* With QLoRA, whose base is what is read of the folder, and in full. */
static void test_it_trains_as_its_copy(void **state) {
    (void)state;
    static const char *const ways[] = {
        "", "adapter: qlora\nload_in_4bit: true\nquantize_moe_experts: true\nlora_r: 4\n"
            "lora_alpha: 8\nlora_target_modules: [q_proj, k_proj]\nmerge_lora: true\n"};
    need_binary();
    for (size_t i = 0; i < N_MODELS; i += 2)
        for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
            make_model(models[i].golden, 10);
            quantize(models[i].scheme, models[i].says);
            write_dense();
            train("quantized", ways[way]);
            train("dense", ways[way]);
            const double a = metric_of("of-quantized", "loss", 3),
                         b = metric_of("of-dense", "loss", 3);
            if (a != b)
                fail_msg("%s, way %zu: %.17g, its copy %.17g", models[i].golden, way, a, b);
            assert_true(same_weights(way ? "of-quantized/merged" : "of-quantized",
                                     way ? "of-dense/merged" : "of-dense"));
        }
}

/* ---- GPTQ ---- */

/* Rows that fill one sequence: it calibrates and measures. */
static void test_gptq(void **state) {
    (void)state;
    char src[160], dst[160], rows[160];
    need_binary();
    make_model("models/llama4", 8);
    snprintf(src, sizeof src, "%s", in_scratch("model"));
    snprintf(dst, sizeof dst, "%s", in_scratch("gptq"));
    snprintf(rows, sizeof rows, "%s", in_scratch("ids.jsonl"));
    sft_command = "quantize";
    EXPECT(0, "52 matrices as int4 by GPTQ", src, dst, "--scheme", "int4", "--group", "8", "--gptq",
           "--calibrate", rows, "--type", "");
    const double after = number_after("before, ");
    for (int layer = 0; layer < 4; layer++) {
        char at[64];
        snprintf(at, sizeof at, "layer %d: relative error of outputs ", layer);
        const double written = number_after(at);
        snprintf(at, sizeof at, "outputs %.4f, rounded to nearest ", written);
        assert_true(written < 0.9 * number_after(at));
    }
    const double now = evaluated_on_ids("gptq");
    if (after != now)
        fail_msg("%.4f after; eval says %.4f", after, now);
}

static void test_refused(void **state) {
    (void)state;
    char dst[160];
    need_binary();
    snprintf(dst, sizeof dst, "%s", in_scratch("refused"));
    sft_command = "quantize";
    EXPECT(2, "experts of gpt_oss models have biases, which quantize does not write",
           golden_path("models/gpt_oss"), dst, "--scheme", "int8");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folder_is_the_model),
        cmocka_unit_test(test_it_trains_as_its_copy),
        cmocka_unit_test(test_gptq),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
