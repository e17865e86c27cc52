/* Folders in Mistral's own form: the tensors and the configuration of the Hugging Face folder that they are
 * made of here, by transformers' rules turned around; and what such a folder cannot be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "ckpt/hf/config.h"
#include "ckpt/hf/params.h"
#include "model/arch.h"
#include "tests/ckpt/folder.h"
#include "tests/own_names.h"
#include "tests/cmd/program_case.h"

enum { MAX_TENSORS = 128, HEAD = 16 };

static const char *model(const char *name) {
    static char path[64];
    snprintf(path, sizeof path, "models/%s", name);
    return fixture(path);
}

/* transformers makes [head][j][i] of [head][i][j]. */
static enum ax_status fill_own(void *ctx, int64_t first, int64_t n, void *out) {
    const struct ax_st_entry *e = ctx;
    const bool rotary = strstr(e->name, "q_proj") || strstr(e->name, "k_proj");
    for (int64_t k = first; k < first + n; k++) {
        int64_t from = k;
        if (rotary) {
            const int64_t cols = e->shape[1], row = k / cols, head = row / HEAD;
            const int64_t i = row % HEAD / 2, j = row % 2;
            from = (head * HEAD + j * (HEAD / 2) + i) * cols + k % cols;
        }
        AX_TRY(ax_st_read(e, from, 1, e->dtype,
                          (char *)out + (size_t)(k - first) * ax_dtype_size(e->dtype)));
    }
    return AX_OK;
}

struct made {
    struct ax_hf hf;
    int n;
    char names[MAX_TENSORS][160];
    struct ax_st_output tensors[MAX_TENSORS];
};

static void make(struct made *m, const char *of) {
    assert_int_equal(ax_hf_open(&m->hf, model(of)), AX_OK);
    m->n = ax_hf_count(&m->hf);
    assert_in_range(m->n, 1, MAX_TENSORS);
    for (int i = 0; i < m->n; i++) {
        const struct ax_st_entry *e = ax_hf_at(&m->hf, i);
        own_name(e->name, m->names[i]);
        m->tensors[i] = (struct ax_st_output){.name = m->names[i],
                                              .dtype = e->dtype,
                                              .ndim = e->ndim,
                                              .fill = fill_own,
                                              .ctx = (void *)(uintptr_t)e};
        memcpy(m->tensors[i].shape, e->shape, sizeof e->shape);
    }
}

static void write_part(const struct made *m, const char *name, int first, int end) {
    assert_int_equal(ax_safetensors_write(in_dir(name), end - first, m->tensors + first), AX_OK);
}

#define SIZES                                                                                      \
    "\"dim\": 64, \"n_layers\": 2, \"head_dim\": 16, \"n_heads\": 4, \"n_kv_heads\": 2, "          \
    "\"norm_eps\": 1e-05"
#define MISTRAL                                                                                    \
    "{" SIZES ", \"hidden_dim\": 128, \"vocab_size\": 512, \"sliding_window\": \"16\", "           \
    "\"max_seq_len\": 256, \"max_batch_size\": 1, \"lora\": null, \"model_type\": "                \
    "\"transformer\"}"
#define MIXTRAL                                                                                    \
    "{" SIZES ", \"hidden_dim\": 48, \"vocab_size\": 320, \"rope_theta\": 1000000.0, "             \
    "\"moe\": {\"num_experts\": 8, \"num_experts_per_tok\": 2}}"

static void assert_same_tensors(const struct made *m, const char *folder) {
    struct ax_hf hf;
    if (ax_hf_open(&hf, in_dir(folder)) != AX_OK)
        fail_msg("%s", ax_error_text());
    assert_int_equal(ax_hf_count(&hf), m->n);
    for (int i = 0; i < m->n; i++) {
        const struct ax_st_entry *want = ax_hf_at(&m->hf, i), *e = ax_hf_find(&hf, want->name);
        assert_non_null(e);
        assert_int_equal(e->dtype, want->dtype);
        assert_int_equal(e->ndim, want->ndim);
        assert_memory_equal(e->shape, want->shape, (size_t)e->ndim * sizeof *e->shape);
        assert_int_equal(e->bytes, want->bytes);
        char *a = malloc(e->bytes), *b = malloc(e->bytes);
        const int64_t cut = e->numel / 3; /* in the middle of a row */
        const size_t size = ax_dtype_size(e->dtype);
        assert_int_equal(ax_st_read(e, 0, cut, e->dtype, a), AX_OK);
        assert_int_equal(ax_st_read(e, cut, e->numel - cut, e->dtype, a + (size_t)cut * size),
                         AX_OK);
        assert_int_equal(ax_st_read(want, 0, e->numel, e->dtype, b), AX_OK);
        if (memcmp(a, b, e->bytes) != 0)
            fail_msg("%s differs", e->name);
        free(a);
        free(b);
    }
    ax_hf_close(&hf);
}

/* What is not in params.json has transformers' default. */
static void assert_same_arch(const char *of, const char *folder) {
    struct ax_arch a, b;
    assert_int_equal(ax_arch_load(&a, model(of)), AX_OK);
    if (ax_arch_load(&b, in_dir(folder)) != AX_OK)
        fail_msg("%s", ax_error_text());
    assert_ptr_equal(a.family, b.family);
    assert_int_equal(a.vocab_size, b.vocab_size);
    assert_int_equal(a.hidden_size, b.hidden_size);
    assert_int_equal(a.intermediate_size, b.intermediate_size);
    assert_int_equal(a.n_layers, b.n_layers);
    assert_int_equal(a.n_heads, b.n_heads);
    assert_int_equal(a.n_kv_heads, b.n_kv_heads);
    assert_int_equal(a.head_dim, b.head_dim);
    assert_true(a.norm_eps == b.norm_eps);
    assert_true(a.rope.theta == b.rope.theta);
    assert_int_equal(a.tied, b.tied);
    assert_int_equal(a.dtype, b.dtype);
    assert_int_equal(a.moe.n_experts, b.moe.n_experts);
    assert_int_equal(a.moe.n_active, b.moe.n_active);
    assert_int_equal(a.layers[1].window, b.layers[1].window);
    assert_int_equal(ax_arch_parameters(&a), ax_arch_parameters(&b));
    ax_arch_free(&a);
    ax_arch_free(&b);
}

static void make_folder(const char *name) {
    assert_int_equal(ax_mkdir_parents(in_dir(name)), AX_OK);
}

static void one_file_is_the_same_model(void **state) {
    (void)state;
    struct made m;
    make(&m, "mistral");
    make_folder("one");
    put_text("one/params.json", MISTRAL);
    write_part(&m, "one/consolidated.safetensors", 0, m.n);
    assert_same_tensors(&m, "one");
    assert_same_arch("mistral", "one");
    ax_hf_close(&m.hf);
}

static void several_files_are_with_and_without_an_index(void **state) {
    (void)state;
    struct made m;
    make(&m, "mixtral");
    make_folder("many");
    put_text("many/params.json", MIXTRAL);
    write_part(&m, "many/consolidated-00001-of-00003.safetensors", 0, 20);
    write_part(&m, "many/consolidated-00002-of-00003.safetensors", 20, 21);
    write_part(&m, "many/consolidated-00003-of-00003.safetensors", 21, m.n);
    assert_same_tensors(&m, "many");
    assert_same_arch("mixtral", "many");
    put_text("many/consolidated.safetensors.index.json",
             "{\"weight_map\": {\"norm.weight\": \"consolidated-00001-of-00003.safetensors\"}}");
    struct ax_hf hf;
    assert_int_equal(ax_hf_open(&hf, in_dir("many")),
                     AX_ERR_DATA); /* it does not list the others */
    assert_mentions("consolidated.safetensors.index.json: weight_map");
    assert_int_equal(ax_unlink(in_dir("many/consolidated.safetensors.index.json")), AX_OK);
    write_part(&m, "many/consolidated-00002-of-00003.safetensors", 20, 22);
    assert_int_equal(ax_hf_open(&hf, in_dir("many")), AX_ERR_DATA);
    assert_mentions("two files have the tensor of ");
    ax_hf_close(&m.hf);
}

/* A Hugging Face model beside them is the one that is read, and its config.json goes with either. */
static void the_other_form_comes_first(void **state) {
    (void)state;
    struct made m;
    make(&m, "mistral");
    make_folder("both");
    char from[700], *text;
    size_t len;
    snprintf(from, sizeof from, "%s/config.json", model("mistral"));
    assert_int_equal(ax_read_file(from, 1 << 20, &text, &len), AX_OK);
    put_file("both/config.json", text, len);
    ax_free(text);
    put_text("both/params.json", "{\"dim\": 1}");
    write_part(&m, "both/consolidated.safetensors", 0, m.n);
    assert_same_tensors(&m, "both");
    assert_same_arch("mistral", "both");
    const struct ax_st_output other = output("x", AX_U8, 1, (const int64_t[]){3});
    assert_int_equal(ax_safetensors_write(in_dir("both/model.safetensors"), 1, &other), AX_OK);
    struct ax_hf hf;
    assert_int_equal(ax_hf_open(&hf, in_dir("both")), AX_OK);
    assert_non_null(ax_hf_find(&hf, "x"));
    ax_hf_close(&hf);
    ax_hf_close(&m.hf);
}

static void other_models_are_named(void **state) {
    (void)state;
    static const struct {
        const char *more;
        enum ax_status st;
        const char *part;
    } bad[] = {
        {", \"vision_encoder\": {\"hidden_size\": 8}", AX_ERR_UNSUPPORTED,
         "params.json: vision_encoder: this is not supported in Mistral's own form"},
        {", \"quantization\": {\"qformat_weight\": \"fp8_e4m3\"}", AX_ERR_UNSUPPORTED,
         "quantization: "},
        {", \"model_type\": \"mamba\"", AX_ERR_UNSUPPORTED, "model_type: models other than"},
        {", \"sliding_window\": [4, 8]", AX_ERR_UNSUPPORTED, "windows that differ by layer"},
        {", \"sliding_window\": \"many\"", AX_ERR_DATA, "sliding_window: expected a number"},
        {", \"moe\": {\"num_experts\": 8, \"num_experts_per_tok\": 2, \"num_shared_experts\": 1}",
         AX_ERR_UNSUPPORTED, "moe.num_shared_experts"},
        {", \"moe\": {\"num_experts\": 8}", AX_ERR_DATA, "moe.num_experts_per_tok: missing"},
        {", \"moe\": 8", AX_ERR_DATA, "moe: expected an object"},
        {", \"max_seq_len\": -1", AX_ERR_DATA, "max_seq_len: expected"},
        {", \"use_biases\": true", AX_ERR_UNSUPPORTED, "use_biases"},
    };
    make_folder("bad");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[1024];
        struct ax_arch a;
        snprintf(text, sizeof text, "{" SIZES ", \"hidden_dim\": 128, \"vocab_size\": 512%s}",
                 bad[i].more);
        put_text("bad/params.json", text);
        const enum ax_status st = ax_arch_load(&a, in_dir("bad"));
        if (st != bad[i].st)
            fail_msg("%s: %s", bad[i].more, ax_error_text());
        assert_mentions(bad[i].part);
        assert_mentions("params.json");
    }
    struct ax_hf hf;
    struct ax_st_output t[] = {
        output("tok_embeddings.weight", AX_F32, 2, (const int64_t[]){4, 4}),
        output("layers.0.attention.wq.weight", AX_F32, 2, (const int64_t[]){24, 4}),
        output("layers.0.attention.wq.lora_A.weight", AX_F32, 1, (const int64_t[]){4})};
    put_text("bad/params.json", MISTRAL);
    assert_int_equal(ax_hf_open(&hf, in_dir("bad")), AX_ERR_DATA);
    assert_mentions("consolidated.safetensors");
    assert_int_equal(ax_safetensors_write(in_dir("bad/consolidated.safetensors"), 2, t), AX_OK);
    assert_int_equal(ax_hf_open(&hf, in_dir("bad")), AX_ERR_DATA);
    assert_mentions("wq.weight does not consist of heads of 16 rows");
    t[1] = t[2];
    assert_int_equal(ax_safetensors_write(in_dir("bad/consolidated.safetensors"), 2, t), AX_OK);
    assert_int_equal(ax_hf_open(&hf, in_dir("bad")), AX_ERR_UNSUPPORTED);
    assert_mentions("layers.0.attention.wq.lora_A.weight is not a tensor of a text model");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_file_is_the_same_model),
        cmocka_unit_test(several_files_are_with_and_without_an_index),
        cmocka_unit_test(the_other_form_comes_first),
        cmocka_unit_test(other_models_are_named),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
