/* `axtrain merge` on the golden adapters: what is written, and what is refused without a trace. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "ckpt/gguf/gguf.h"
#include "cmd/commands.h"
#include "ckpt/hf/peft.h"
#include "model/convert/merge.h"
#include "model/arch/classifier.h"
#include "tests/ckpt/folder.h"
#include "tests/golden_files.h"
#include "tests/goldens/digest.h"

static struct ax_merge merge_of(const char *adapter, const char *dst) {
    return (struct ax_merge){.base = golden_path("models/llama"),
                             .adapter = golden_path(adapter),
                             .dst = in_dir(dst),
                             .threads = 1};
}

static void refused(struct ax_merge *m, enum ax_status want, const char *mention) {
    assert_int_equal(ax_merge_run(m), want);
    assert_mentions(mention);
    assert_false(ax_path_exists(m->dst));
}

static void merged_weights_equal_the_golden(void **state) {
    (void)state;
    char golden[600];
    struct ax_merge m = merge_of("lora/llama_r4", "merged");
    struct ax_safetensors want;
    struct ax_hf got;
    assert_int_equal(ax_merge_run(&m), AX_OK);
    assert_int_equal(m.matrices, 21);
    assert_true(m.effect > 1 && m.error < 1e-4 && m.written == AX_F32);
    snprintf(golden, sizeof golden, "%s/golden/merged.safetensors", m.adapter);
    assert_int_equal(ax_safetensors_open(&want, golden), AX_OK);
    assert_int_equal(ax_hf_open(&got, m.dst), AX_OK);
    for (int i = 0; i < want.n; i++) {
        const struct ax_st_entry *w = &want.entries[i], *g = ax_hf_find(&got, w->name);
        struct ax_golden_tensor digest;
        double *values;
        assert_non_null(g);
        assert_int_equal(golden_read_form(&want, w->name, &digest), AX_OK);
        assert_int_equal(g->numel, digest.numel);
        assert_int_equal(ax_alloc(&values, (size_t)g->numel, sizeof *values), AX_OK);
        assert_int_equal(ax_st_read(g, 0, g->numel, AX_F64, values), AX_OK);
        const struct golden_figure f = golden_of_largest(&digest, values, 1e-6);
        if (!(f.figure <= f.tolerance))
            fail_msg("%s: %g, may be %g", w->name, f.figure, f.tolerance);
        ax_free(values);
        ax_golden_tensor_free(&digest);
    }
    ax_hf_close(&got);
    ax_safetensors_close(&want);

    char copy[512]; /* in_dir's buffers take turns */
    snprintf(copy, sizeof copy, "%s", m.dst);
    struct ax_merge again = merge_of("lora/llama_r4", "twice");
    again.base = copy;
    refused(&again, AX_ERR_CONFIG, "is already merged into it");
    struct ax_merge other = merge_of("lora/llama_r4_dora", "both");
    other.base = copy;
    other.dtype = "bfloat16";
    assert_int_equal(ax_merge_run(&other), AX_OK); /* another adapter may follow */
    assert_true(other.written == AX_BF16 && other.error > 0);
}

static void what_does_not_fit_is_refused(void **state) {
    (void)state;
    struct ax_merge m = merge_of("lora/llama_r4", "none");
    m.dtype = "int8";
    refused(&m, AX_ERR_CONFIG, "--dtype: expected float32");
    m.dtype = NULL;
    m.base = golden_path("models/mistral");
    refused(&m, AX_ERR_DATA, "the adapter is for another model");
    m.base = golden_path("models/llama");
    m.dst = in_dir("");
    put_text("here", "x");
    assert_int_equal(ax_merge_run(&m), AX_ERR_CONFIG);
    assert_mentions("the folder is not empty");
}

static enum ax_status zeros(void *ctx, int64_t first, int64_t n, void *out) {
    (void)ctx;
    (void)first;
    memset(out, 0, (size_t)n * sizeof(float));
    return AX_OK;
}

/* The golden adapter with every B zero: as it was before training. */
static void an_untrained_adapter_is_refused(void **state) {
    (void)state;
    struct ax_merge m = merge_of("lora/llama_r4", "untrained");
    struct ax_peft peft;
    struct ax_st_output tensors[64];
    assert_int_equal(ax_peft_open(&peft, m.adapter), AX_OK);
    assert_true(peft.weights.n <= 64);
    for (int i = 0; i < peft.weights.n; i++) {
        const struct ax_st_entry *e = &peft.weights.entries[i];
        tensors[i] =
            (struct ax_st_output){.name = e->name, .dtype = AX_F32, .ndim = e->ndim, .fill = zeros};
        memcpy(tensors[i].shape, e->shape, sizeof e->shape);
    }
    assert_int_equal(ax_peft_write(in_dir("zero"), &peft.config, peft.weights.n, tensors), AX_OK);
    ax_peft_close(&peft);
    m.adapter = in_dir("zero");
    refused(&m, AX_ERR_CONFIG, "the adapter was never trained");
}

static enum ax_status copy_entry(void *ctx, int64_t first, int64_t n, void *out) {
    return ax_st_read(ctx, first, n, AX_F32, out);
}

static enum ax_status ramp(void *ctx, int64_t first, int64_t n, void *out) {
    for (int64_t i = 0; i < n; i++)
        ((float *)out)[i] = 0.01f * (float)(first + i) + *(const float *)ctx;
    return AX_OK;
}

/* The golden adapter as one of a process reward model, in `dst`: with a head, and both names that PEFT
 * lists for it. */
static void write_classifier(const char *golden, const char *dst) {
    static float of_weight = 1, of_bias = 5;
    static char *save[] = {"classifier", "score"};
    struct ax_peft peft;
    struct ax_st_output tensors[66];
    assert_int_equal(ax_peft_open(&peft, golden), AX_OK);
    const int n = peft.weights.n;
    assert_true(n <= 64);
    for (int i = 0; i < n; i++) {
        struct ax_st_entry *e = &peft.weights.entries[i];
        tensors[i] = (struct ax_st_output){
            .name = e->name, .dtype = AX_F32, .ndim = e->ndim, .fill = copy_entry, .ctx = e};
        memcpy(tensors[i].shape, e->shape, sizeof e->shape);
    }
    tensors[n] = (struct ax_st_output){.name = AX_PEFT_PREFIX "score.bias",
                                       .dtype = AX_F32,
                                       .ndim = 1,
                                       .shape = {2},
                                       .fill = ramp,
                                       .ctx = &of_bias};
    tensors[n + 1] = (struct ax_st_output){.name = AX_PEFT_PREFIX "score.weight",
                                           .dtype = AX_F32,
                                           .ndim = 2,
                                           .shape = {2, 64},
                                           .fill = ramp,
                                           .ctx = &of_weight};
    struct ax_peft_config c = peft.config;
    c.save = (struct ax_peft_names){2, save};
    c.task_type = "TOKEN_CLS";
    assert_int_equal(ax_peft_write(dst, &c, n + 2, tensors), AX_OK);
    ax_peft_close(&peft);
}

/* Its head takes the place of the base's; merged into a classifier, of the one that is there. */
static void a_classifier_brings_its_head(void **state) {
    (void)state;
    char adapter[512];
    struct ax_merge m = merge_of("lora/llama_r4", "first");
    snprintf(adapter, sizeof adapter, "%s", in_dir("prm"));
    write_classifier(m.adapter, adapter);
    m.adapter = adapter;
    for (int turn = 0; turn < 2; turn++) {
        struct ax_hf base, hf;
        struct ax_arch arch;
        assert_int_equal(ax_merge_run(&m), AX_OK);
        assert_true(m.effect > 1 && m.error < 1e-4 * m.largest);
        assert_int_equal(ax_arch_load(&arch, m.dst), AX_OK);
        assert_true(arch.classifier == &ax_classifier_prm && arch.n_labels == 2 && !arch.new_head);
        assert_int_equal(ax_hf_open(&hf, m.dst), AX_OK);
        assert_int_equal(ax_hf_open(&base, m.base), AX_OK);
        const struct ax_st_entry *w = ax_hf_find(&hf, "score.weight"),
                                 *b = ax_hf_find(&hf, "score.bias");
        assert_true(w && b && !ax_hf_find(&hf, "lm_head.weight"));
        assert_int_equal(ax_hf_count(&hf), ax_hf_count(&base) + (turn == 0 ? 1 : 0));
        assert_true(fabs(ax_load(AX_F32, w->data, 127) - 2.27) < 1e-6);
        assert_true(fabs(ax_load(AX_F32, b->data, 1) - 5.01) < 1e-6);
        ax_hf_close(&base);
        ax_hf_close(&hf);
        ax_arch_free(&arch);
        m = merge_of("lora/llama_r4", "second");
        m.adapter = adapter;
        m.base = golden_path("runs/prm/prm_trained");
    }
    struct ax_merge file = merge_of("lora/llama_r4", "out.gguf");
    file.adapter = adapter;
    file.to_gguf = true;
    refused(&file, AX_ERR_CONFIG, "a process reward model, which cannot be written as GGUF");
}

enum { RANK = 2, VOCAB = 512, HIDDEN = 64 };

static float factor_a(int64_t i) {
    return 0.01f * (float)(i % 13 - 6);
}
static float factor_b(int64_t i) {
    return 0.1f * (float)(i % 7 - 3);
}

static enum ax_status fill_factor(void *ctx, int64_t first, int64_t n, void *out) {
    float (*factor)(int64_t) = *(float (**)(int64_t))ctx;
    for (int64_t i = 0; i < n; i++)
        ((float *)out)[i] = factor(first + i);
    return AX_OK;
}

/* Row v of the merged embedding is that of the base and s·A[:, v]ᵀ·Bᵀ. A head that was the same
 * matrix stays what it was, as one of its own. */
static void merge_embedding(const char *base, bool tied) {
    struct ax_merge m = merge_of("lora/llama_r4", tied ? "untied" : "embedded");
    m.base = golden_path(base);
    char *target = (char[]){"embed_tokens"};
    const struct ax_peft_config config = {.r = RANK, .alpha = 8, .targets = {1, &target}};
    float (*factors[])(int64_t) = {factor_a, factor_b};
    const struct ax_st_output tensors[] = {
        {.name = AX_PEFT_PREFIX "model.embed_tokens.lora_embedding_A",
         .dtype = AX_F32,
         .ndim = 2,
         .shape = {RANK, VOCAB},
         .fill = fill_factor,
         .ctx = &factors[0]},
        {.name = AX_PEFT_PREFIX "model.embed_tokens.lora_embedding_B",
         .dtype = AX_F32,
         .ndim = 2,
         .shape = {HIDDEN, RANK},
         .fill = fill_factor,
         .ctx = &factors[1]}};
    m.adapter = in_dir(tied ? "embedding-tied" : "embedding");
    assert_int_equal(ax_peft_write(m.adapter, &config, 2, tensors), AX_OK);
    assert_int_equal(ax_merge_run(&m), AX_OK);
    assert_int_equal(m.matrices, 1);
    assert_true(m.effect > 0.01 && m.error < 1e-4);
    struct ax_hf before, after;
    assert_int_equal(ax_hf_open(&before, m.base), AX_OK);
    assert_int_equal(ax_hf_open(&after, m.dst), AX_OK);
    const struct ax_st_entry *old = ax_hf_find(&before, "model.embed_tokens.weight");
    const struct ax_st_entry *new = ax_hf_find(&after, "model.embed_tokens.weight");
    assert_true(old->shape[0] == VOCAB && old->shape[1] == HIDDEN && new->numel == old->numel);
    for (int64_t v = 0; v < VOCAB; v++)
        for (int64_t d = 0; d < HIDDEN; d++) {
            double want = ax_load(old->dtype, old->data, v * HIDDEN + d);
            for (int64_t k = 0; k < RANK; k++)
                want += 8.0 / RANK * factor_a(k * VOCAB + v) * factor_b(d * RANK + k);
            assert_true(fabs(ax_load(new->dtype, new->data, v * HIDDEN + d) - want) < 1e-6);
        }
    const struct ax_st_entry *head = ax_hf_find(&after, "lm_head.weight");
    assert_non_null(head);
    assert_int_equal(ax_hf_find(&before, "lm_head.weight") == NULL, tied);
    assert_int_equal(ax_hf_count(&after), ax_hf_count(&before) + tied);
    for (int64_t i = 0; tied && i < VOCAB * HIDDEN; i++)
        assert_true(ax_load(head->dtype, head->data, i) == ax_load(old->dtype, old->data, i));
    ax_hf_close(&before);
    ax_hf_close(&after);
}

static void an_embedding_is_merged(void **state) {
    (void)state;
    merge_embedding("models/llama", false);
    merge_embedding("models/qwen3", true);
}

static void the_command_needs_three_names(void **state) {
    (void)state;
    char *argv[] = {"merge", "a", "b", NULL};
    assert_int_equal(ax_cmd_merge(3, argv), AX_ERR_CONFIG);
}

static enum ax_status command(const char *dst, const char *option, const char *value) {
    const struct ax_merge m = merge_of("lora/llama_r4", dst);
    const char *const argv[] = {"merge", m.base, m.adapter, m.dst, option, value, NULL};
    return ax_cmd_merge(option ? 6 : 4, (char **)(uintptr_t)argv);
}

static void the_command_writes_both_formats(void **state) {
    (void)state;
    assert_int_equal(command("plain", NULL, NULL), AX_OK);
    assert_true(ax_path_is_dir(in_dir("plain")));
    assert_int_equal(command("named", "--to", "hf"), AX_OK);
    assert_true(ax_path_is_dir(in_dir("named")));
    assert_int_equal(command("file.gguf", "--to", "gguf"), AX_OK);
    assert_true(ax_gguf_is(in_dir("file.gguf")));
    assert_int_equal(command("no", "--to", "safetensors"), AX_ERR_CONFIG);
    assert_mentions("--to: expected hf or gguf, got \"safetensors\"");
    assert_int_equal(command("no", "--quant", "Q8_0"), AX_ERR_CONFIG);
    assert_mentions("--quant needs --to gguf");
    assert_false(ax_path_exists(in_dir("no")));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merged_weights_equal_the_golden),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(an_untrained_adapter_is_refused),
        cmocka_unit_test(a_classifier_brings_its_head),
        cmocka_unit_test(an_embedding_is_merged),
        cmocka_unit_test(the_command_needs_three_names),
        cmocka_unit_test(the_command_writes_both_formats),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
