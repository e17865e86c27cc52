/* PEFT folders as GGUF adapters: in the order and under the names of the base's file, an adapter is
 * the difference between the merged model and its base. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "cmd/commands.h"
#include "ckpt/hf/peft.h"
#include "tests/ckpt/folder.h"
#include "tests/cmd/words_case.h"
#include "tests/golden_files.h"

static char model[512];

static int start(void **state) {
    snprintf(model, sizeof model, "%s", golden_path("models/llama"));
    return make_dir(state);
}

static const char *adapter(const char *name) {
    char path[64];
    snprintf(path, sizeof path, "lora/%s", name);
    return golden_path(path);
}

/* A float32 tensor of the file. */
static const float *values(const struct ax_gguf *g, const char *name, int64_t rows, int64_t cols) {
    const struct ax_gguf_tensor *t = ax_gguf_tensor(g, name);
    if (!t) {
        fail_msg("%s is missing", name);
        return NULL;
    }
    assert_true(t->ndim == 2 && t->shape[0] == rows && t->shape[1] == cols);
    assert_string_equal(t->type->name, "F32");
    return (const float *)(const void *)t->data;
}

/* merged − base = alpha / r · B·A, as llama.cpp adds it; returns the largest difference. */
static double check_matrix(const struct ax_gguf files[3], const struct ax_gguf_tensor *b,
                           double alpha) {
    char name[128], a_name[160];
    const size_t n = b->name.len - strlen(".lora_b");
    snprintf(name, sizeof name, "%.*s", (int)n, b->name.s);
    snprintf(a_name, sizeof a_name, "%s.lora_a", name);
    const int64_t rows = b->shape[0], r = b->shape[1];
    const struct ax_gguf_tensor *w = ax_gguf_tensor(&files[0], name);
    assert_non_null(w);
    const int64_t cols = w->shape[1];
    const float *base = values(&files[0], name, rows, cols);
    const float *merged = values(&files[1], name, rows, cols);
    const float *A = values(&files[2], a_name, r, cols);
    const float *B = (const float *)(const void *)b->data;
    double worst = 0, size = 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < cols; k++) {
            double sum = 0;
            for (int64_t j = 0; j < r; j++)
                sum += (double)B[i * r + j] * (double)A[j * cols + k];
            const double change = (double)merged[i * cols + k] - (double)base[i * cols + k];
            worst = fmax(worst, fabs(alpha / (double)r * sum - change));
            size = fmax(size, fabs(change));
        }
    assert_true(size > 1e-3); /* it does change the matrix */
    return worst;
}

static void an_adapter_is_the_difference_of_two_models(void **state) {
    (void)state;
    static const char *const names[] = {"llama_r4", "llama_r4_rslora"};
    for (size_t i = 0; i < 2; i++) {
        struct ax_gguf files[3];
        const char *const paths[] = {in_dir("base.gguf"), in_dir("merged.gguf"),
                                     in_dir("lora.gguf")};
        double alpha;
        int pairs = 0;
        const char *dir_of = adapter(names[i]);
        ok(RUN(ax_cmd_convert, model, paths[0], "--quant", "f32", "--overwrite"));
        ok(RUN(ax_cmd_merge, model, dir_of, paths[1], "--to", "gguf", "--quant", "f32",
               "--overwrite"));
        ok(RUN(ax_cmd_convert, dir_of, paths[2], "--overwrite"));
        for (int f = 0; f < 3; f++)
            ok(ax_gguf_open(&files[f], paths[f]));
        ok(ax_gguf_f64(&files[2], "adapter.lora.alpha", &alpha));
        for (size_t k = 0; k < files[2].n_tensors; k++) {
            const struct ax_gguf_tensor *t = &files[2].tensors[k];
            if (memcmp(t->name.s + t->name.len - 7, ".lora_b", 7) != 0)
                continue;
            pairs++;
            const double worst = check_matrix(files, t, alpha);
            if (!(worst < 1e-6))
                fail_msg("%.*s: %g", (int)t->name.len, t->name.s, worst);
        }
        assert_int_equal(pairs, 21);
        assert_int_equal(files[2].n_tensors, 2 * pairs);
        for (int f = 0; f < 3; f++)
            ax_gguf_close(&files[f]);
    }
}

static void the_keys_that_llama_cpp_reads(void **state) {
    (void)state;
    static const char *const keys[][2] = {{"general.architecture", "llama"},
                                          {"general.type", "adapter"},
                                          {"general.name", "keys"},
                                          {"adapter.type", "lora"}};
    struct ax_gguf g;
    ok(RUN(ax_cmd_convert, adapter("llama_r4"), in_dir("keys.gguf"), "--quant", "f16"));
    assert_non_null(strstr(text, "keys.gguf: lora, 42 tensors, 13440 weights, f16"));
    ok(ax_gguf_open(&g, in_dir("keys.gguf")));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct ax_gguf_text value;
        ok(ax_gguf_string_or_null(&g, keys[i][0], &value));
        assert_non_null(value.s);
        assert_int_equal(value.len, strlen(keys[i][1]));
        assert_memory_equal(value.s, keys[i][1], value.len);
    }
    assert_int_equal(ax_gguf_key(&g, "adapter.lora.alpha")->type, AX_GGUF_F32);
    assert_string_equal(ax_gguf_tensor(&g, "blk.2.attn_k.weight.lora_b")->type->name, "F16");
    ax_gguf_close(&g);
}

static void an_adapter_of_llama_cpp_is_no_model(void **state) {
    (void)state;
    ok(RUN(ax_cmd_convert, adapter("llama_r4"), in_dir("alone.gguf"), "--overwrite"));
    assert_int_equal(RUN(ax_cmd_convert, in_dir("alone.gguf"), in_dir("hf"), "--to", "hf"),
                     AX_ERR_UNSUPPORTED);
    assert_mentions("alone.gguf: an adapter for llama.cpp, which is not read here; use the PEFT");
}

static void refused(const char *part, const char *const *argv) {
    assert_int_not_equal(run(ax_cmd_convert, argv), AX_OK);
    assert_mentions(part);
    assert_false(ax_path_exists(in_dir("no.gguf")));
}
#define REFUSED(part, ...) refused(part, (const char *const[]){"convert", __VA_ARGS__, NULL})

/* The adapter with one more tensor, or without the last one. */
static const char *with_tensor(const char *name) {
    struct ax_peft peft;
    struct ax_st_output t[64];
    ok(ax_peft_open(&peft, adapter("llama_r4")));
    const int n = peft.weights.n;
    static float zeros[64 * 512];
    struct ax_st_source sources[64];
    for (int i = 0; i < n; i++) {
        const struct ax_st_entry *e = &peft.weights.entries[i];
        sources[i] = (struct ax_st_source){
            .value = ax_tensor_nd(e->dtype, (void *)(uintptr_t)e->data, e->ndim, e->shape),
            .dtype = e->dtype};
        t[i] = (struct ax_st_output){.name = e->name,
                                     .dtype = e->dtype,
                                     .ndim = e->ndim,
                                     .shape = {e->shape[0], e->shape[1]},
                                     .fill = ax_st_fill,
                                     .ctx = &sources[i]};
    }
    sources[n] =
        (struct ax_st_source){.value = ax_tensor_2d(AX_F32, zeros, 4, 64), .dtype = AX_F32};
    t[n] = (struct ax_st_output){.name = name,
                                 .dtype = AX_F32,
                                 .ndim = 2,
                                 .shape = {4, 64},
                                 .fill = ax_st_fill,
                                 .ctx = &sources[n]};
    ok(ax_peft_write(in_dir("more"), &peft.config, name ? n + 1 : n - 1, t));
    ax_peft_close(&peft);
    return in_dir("more");
}

static void what_has_no_place_is_named(void **state) {
    (void)state;
    REFUSED("the magnitudes of DoRA have no place", adapter("llama_r4_dora"), in_dir("no.gguf"));
    REFUSED("tensor base_model.model.lm_head.base_layer.weight has no place in a GGUF adapter",
            with_tensor("base_model.model.lm_head.base_layer.weight"), in_dir("no.gguf"), "--base",
            model);
    REFUSED("the tensors of model.layers.2.self_attn.v_proj do not match", with_tensor(NULL),
            in_dir("no.gguf"), "--base", model);
    REFUSED("--quant: q8_0 is for models", adapter("llama_r4"), in_dir("no.gguf"), "--quant",
            "q8_0");
    REFUSED("--ollama is for models", adapter("llama_r4"), in_dir("no.gguf"), "--ollama");
    REFUSED("--base is for adapters", model, in_dir("no.gguf"), "--base", model);
    REFUSED("--base needs --to gguf", in_dir("no.gguf"), in_dir("hf"), "--to", "hf", "--base",
            model);
    char other[512];
    snprintf(other, sizeof other, "%.*s/qwen3", (int)(strlen(model) - strlen("/llama")), model);
    REFUSED("the adapter is for another model", adapter("llama_r4"), in_dir("no.gguf"), "--base",
            other);
    REFUSED("the adapter's base (--base names another): ../../models/llama: no such folder",
            with_tensor("x"), in_dir("no.gguf"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_adapter_is_the_difference_of_two_models),
        cmocka_unit_test(the_keys_that_llama_cpp_reads),
        cmocka_unit_test(an_adapter_of_llama_cpp_is_no_model),
        cmocka_unit_test(what_has_no_place_is_named),
    };
    return cmocka_run_group_tests(tests, start, remove_dir);
}
