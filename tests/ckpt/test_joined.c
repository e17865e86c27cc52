/* Experts that a family stacks, as one matrix each: what quantizing takes apart, and what quantized folders have, which
 * is read as the stacks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/quant/quant_ops.h"
#include "tests/ckpt/folder.h"

enum { E = 3, I = 4, H = 150 }; /* more rows than are turned together */

/* Where the families that do so have them. */
static const struct form {
    const char *gate_up, *down, *apart;
    bool turned;
    const char *type; /* the model_type, where others have matrices under these names; NULL: any */
} forms[] = {
    {"model.layers.1.feed_forward.experts.gate_up_proj",
     "model.layers.1.feed_forward.experts.down_proj", "model.layers.1.feed_forward.experts",
     .turned = true},
    {"model.layers.1.block_sparse_moe.input_linear.weight",
     "model.layers.1.block_sparse_moe.output_linear.weight",
     .apart = "model.layers.1.block_sparse_moe.experts"},
    {"model.layers.1.mlp.experts.gate_up_proj", "model.layers.1.mlp.experts.down_proj",
     "model.layers.1.mlp.experts", .type = "mistral4"},
    {"model.layers.1.experts.gate_up_proj", "model.layers.1.experts.down_proj",
     .apart = "model.layers.1.experts"},
    {"model.layers.1.experts.gate_up_proj", "model.layers.1.experts.down_proj",
     .apart = "model.layers.1.moe.experts"},
};
#define N_FORMS (sizeof forms / sizeof *forms)

/* Code of output i and input j of expert e; of gate, up and down. */
static int code_of(int what, int64_t e, int64_t i, int64_t j) {
    return (int)((what * 89 + e * 53 + i * 31 + j * 7) % 255) - 127;
}
static float scale_of(int what, int64_t e, int64_t i) {
    return 0.25F * (float)(1 + (what + 2 * e + 3 * i) % 7);
}

static int64_t rows_of(int what) {
    return what < 2 ? I : H;
}
static int64_t cols_of(int what) {
    return what < 2 ? H : I;
}

static float value_of(int what, int64_t e, int64_t i, int64_t j) {
    return (float)code_of(what, e, i, j) * scale_of(what, e, i);
}

/* Element `at` of a stack: of gate and up, or of down. */
static float stacked(const struct form *f, bool down, int64_t at) {
    const int64_t out = down ? H : 2 * I, in = down ? I : H, e = at / (in * out);
    const int64_t i = f->turned ? at % out : at / in % out;
    const int64_t j = f->turned ? at / out % in : at % in;
    return down ? value_of(2, e, i, j) : value_of(i >= I, e, i % I, j);
}

/* ---- what is taken apart ---- */

struct filled {
    const struct form *form;
    bool down;
};
static enum ax_status fill_stack(void *ctx, int64_t first, int64_t n, void *out) {
    const struct filled *f = ctx;
    for (int64_t k = 0; k < n; k++)
        ((float *)out)[k] = stacked(f->form, f->down, first + k);
    return AX_OK;
}

static struct ax_st_output stack(struct filled *f) {
    const struct form *form = f->form;
    const int64_t out = f->down ? H : 2 * I, in = f->down ? I : H;
    return (struct ax_st_output){.name = f->down ? form->down : form->gate_up,
                                 .dtype = AX_F32,
                                 .ndim = 3,
                                 .shape = {E, form->turned ? in : out, form->turned ? out : in},
                                 .fill = fill_stack,
                                 .ctx = f};
}

/* config.json of a model whose folder has the form; `more` is more of its members. */
static void put_config(const struct form *f, const char *more) {
    char text[600];
    snprintf(text, sizeof text, "{\"model_type\": \"%s\"%s}", f->type ? f->type : "llama", more);
    put_text("config.json", text);
}

static void assert_matrix(const struct ax_hf *hf, const struct form *f, int what, int64_t e) {
    static const char *const names[] = {"gate_proj", "up_proj", "down_proj"};
    const int64_t rows = rows_of(what), cols = cols_of(what);
    float v[I * H];
    char name[100];
    snprintf(name, sizeof name, "%s.%d.%s.weight", f->apart, (int)e, names[what]);
    const struct ax_st_entry *m = ax_hf_find(hf, name);
    if (!m)
        fail_msg("%s is missing", name);
    assert_true(m->ndim == 2 && m->shape[0] == rows && m->shape[1] == cols);
    assert_int_equal(m->bytes, sizeof v);
    if (f->turned) /* gate and up share memory, which is released when both were read */
        assert_int_equal(m->stored_bytes, what == 0 ? 0 : (what == 1 ? 2 : 1) * sizeof v);
    for (int64_t first = 0; first < rows * cols; first += 5) {
        const int64_t n = rows * cols - first < 5 ? rows * cols - first : 5;
        assert_int_equal(ax_st_read(m, first, n, AX_F32, v), AX_OK);
        for (int64_t k = 0; k < n; k++)
            assert_true(v[k] == value_of(what, e, (first + k) / cols, (first + k) % cols));
    }
}

static void stacks_are_taken_apart(void **state) {
    (void)state;
    for (size_t i = 0; i < N_FORMS - 1; i++) { /* the last form is the one before */
        struct filled f[] = {{&forms[i], false}, {&forms[i], true}};
        const int64_t width = 5;
        struct ax_st_output t[] = {stack(&f[0]), stack(&f[1]),
                                   output("model.norm.weight", AX_F32, 1, &width)};
        struct ax_hf hf;
        const uint64_t live = ax_mem_live_blocks();
        assert_int_equal(ax_safetensors_write(in_dir("model.safetensors"), 3, t), AX_OK);
        put_config(&forms[i], "");
        assert_int_equal(ax_hf_open(&hf, dir), AX_OK);
        assert_int_equal(ax_hf_count(&hf), 3);
        assert_int_equal(ax_hf_split_experts(&hf), AX_OK);
        assert_int_equal(ax_hf_count(&hf), 3 * E + 1);
        assert_tensor(ax_hf_find(&hf, "model.norm.weight"), &t[2]);
        for (int what = 0; what < 3; what++)
            for (int e = 0; e < E; e++)
                assert_matrix(&hf, &forms[i], what, e);
        ax_hf_close(&hf);
        assert_int_equal(ax_mem_live_blocks(), live);
    }
}

/* Zeros of any shape. */
static enum ax_status fill_zeros(void *ctx, int64_t first, int64_t n, void *out) {
    (void)ctx;
    (void)first;
    memset(out, 0, (size_t)n);
    return AX_OK;
}

enum { LAYERS = 6 };

/* A folder of layers, each with a pair of stacks. */
static enum ax_status open_stacks(struct ax_hf *hf, int layers, int64_t experts, int64_t width,
                                  int64_t hidden) {
    static char names[2 * LAYERS][80];
    struct ax_st_output t[2 * LAYERS];
    for (int i = 0; i < 2 * layers; i++) {
        const bool down = i % 2;
        snprintf(names[i], sizeof names[i], "model.layers.%d.mlp.experts.%s", i / 2,
                 down ? "down_proj" : "gate_up_proj");
        t[i] = (struct ax_st_output){
            .name = names[i],
            .dtype = AX_U8,
            .ndim = 3,
            .shape = {experts, down ? hidden : 2 * width, down ? width : hidden},
            .fill = fill_zeros};
    }
    assert_int_equal(ax_safetensors_write(in_dir("model.safetensors"), 2 * layers, t), AX_OK);
    put_text("config.json", "{}");
    return ax_hf_open(hf, dir);
}

/* A few bytes of a file do not make a list of a million names. */
static void lists_are_no_longer_than_files(void **state) {
    (void)state;
    static const struct {
        int64_t width, hidden;
    } empty[] = {{0, 0}, {0, 5}, {5, 0}};
    struct ax_hf hf;
    const uint64_t live = ax_mem_live_blocks();
    for (size_t i = 0; i < sizeof empty / sizeof *empty; i++) {
        assert_int_equal(open_stacks(&hf, 1, 65536, empty[i].width, empty[i].hidden), AX_OK);
        assert_int_equal(ax_hf_count(&hf), 2); /* as they are in the file */
        ax_hf_close(&hf);
    }
    assert_int_equal(open_stacks(&hf, 1, 3, 2, 1), AX_OK);
    assert_int_equal(ax_hf_count(&hf), 9);
    ax_hf_close(&hf);
    assert_int_equal(open_stacks(&hf, LAYERS, 65536, 1, 1), AX_ERR_UNSUPPORTED);
    assert_mentions("/model.safetensors: its stacks of experts have 1179648 matrices;");
    assert_int_equal(ax_mem_live_blocks(), live);
}

/* ---- what quantized folders have ---- */

struct matrix {
    int what;
    int64_t e;
};
static enum ax_status fill_codes(void *ctx, int64_t first, int64_t n, void *out) {
    const struct matrix *m = ctx;
    const int64_t cols = cols_of(m->what);
    for (int64_t k = first; k < first + n; k++)
        ((signed char *)out)[k - first] = (signed char)code_of(m->what, m->e, k / cols, k % cols);
    return AX_OK;
}
static enum ax_status fill_scales(void *ctx, int64_t first, int64_t n, void *out) {
    const struct matrix *m = ctx;
    for (int64_t k = first; k < first + n; k++)
        ((float *)out)[k - first] = scale_of(m->what, m->e, k);
    return AX_OK;
}

/* What is wrong with a folder: a matrix that it lacks, or has in another shape, or a gate of this name that it has besides. */
struct mistake {
    const char *lacks, *wide, *besides;
};

enum { MATRICES = 3 * E + 1 };
struct quantized {
    struct matrix m[MATRICES];
    char names[2 * MATRICES][100];
    struct ax_st_output t[2 * MATRICES + 1];
    int n;
};

/* Codes and scales of a matrix, as the next tensors. */
static void put_matrix(struct quantized *q, const char *module, struct matrix which, bool wide) {
    char *name = q->names[q->n], *scale = q->names[q->n + 1];
    struct matrix *m = &q->m[q->n / 2];
    const int64_t rows = rows_of(which.what), cols = cols_of(which.what);
    *m = which;
    snprintf(name, sizeof q->names[0], "%s.weight", module);
    snprintf(scale, sizeof q->names[0], "%s.weight_scale", module);
    q->t[q->n++] = (struct ax_st_output){.name = name,
                                         .dtype = AX_I8,
                                         .ndim = 2,
                                         .shape = {rows, wide ? cols + 1 : cols},
                                         .fill = fill_codes,
                                         .ctx = m};
    q->t[q->n++] = (struct ax_st_output){.name = scale,
                                         .dtype = AX_F32,
                                         .ndim = 2,
                                         .shape = {rows, 1},
                                         .fill = fill_scales,
                                         .ctx = m};
}

static enum ax_status open_quantized(struct ax_hf *hf, const struct form *f,
                                     const struct mistake *wrong) {
    static const char *const names[] = {"gate_proj", "up_proj", "down_proj"};
    struct quantized q = {0};
    const int64_t width = 5;
    for (int k = 0; k < 3 * E; k++) {
        char own[40], module[90];
        snprintf(own, sizeof own, ".%d.%s", k / 3, names[k % 3]);
        snprintf(module, sizeof module, "%s%s", f->apart, own);
        if (!wrong->lacks || strcmp(wrong->lacks, own) != 0)
            put_matrix(&q, module, (struct matrix){k % 3, k / 3},
                       wrong->wide && strcmp(wrong->wide, own) == 0);
    }
    if (wrong->besides)
        put_matrix(&q, wrong->besides, (struct matrix){0, 0}, false);
    q.t[q.n++] = output("model.norm.weight", AX_F32, 1, &width);
    put_config(f,
               ", \"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": "
               "\"int-quantized\", \"config_groups\": {\"group_0\": {\"targets\": [\"Linear\"], "
               "\"weights\": {\"num_bits\": 8, \"type\": \"int\", \"symmetric\": true, "
               "\"strategy\": \"channel\"}}}}");
    assert_int_equal(ax_safetensors_write(in_dir("model.safetensors"), q.n, q.t), AX_OK);
    return ax_hf_open(hf, dir);
}

static void assert_stack(const struct ax_hf *hf, const struct form *f, bool down) {
    const struct ax_st_entry *e = ax_hf_find(hf, down ? f->down : f->gate_up);
    const int64_t out = down ? H : 2 * I, in = down ? I : H;
    float v[E * 2 * I * H];
    if (!e)
        fail_msg("%s: no stack", f->apart);
    assert_true(e->ndim == 3 && e->shape[0] == E && e->shape[1] == (f->turned ? in : out) &&
                e->shape[2] == (f->turned ? out : in));
    assert_int_equal(e->numel, E * in * out);
    for (int64_t first = 0; first < e->numel; first += first < 20 ? 1 : 37)
        for (int64_t n = 1; n <= e->numel - first; n += n < 9 ? 1 : 61) {
            assert_int_equal(ax_st_read(e, first, n, AX_F32, v), AX_OK);
            for (int64_t k = 0; k < n; k++)
                if (v[k] != stacked(f, down, first + k))
                    fail_msg("%s: element %lld of [%lld, +%lld) is %g, not %g", e->name,
                             (long long)(first + k), (long long)first, (long long)n, (double)v[k],
                             (double)stacked(f, down, first + k));
        }
    assert_int_equal(e->codes == NULL, f->turned);
    if (f->turned)
        return;
    unsigned char codes[E * 2 * I * H];
    float scales[E * 2 * I * H];
    assert_int_equal(e->codes->block, in);
    assert_int_equal(e->codes->read(e->ctx, in, e->numel - in, codes, scales), AX_OK);
    for (int64_t k = 0; k < e->numel - in; k++)
        assert_true((float)(signed char)codes[k] * scales[k / in] == stacked(f, down, in + k));
}

static void quantized_experts_are_read_as_stacks(void **state) {
    (void)state;
    for (size_t i = 0; i < N_FORMS; i++) {
        struct ax_hf hf;
        const uint64_t live = ax_mem_live_blocks();
        if (open_quantized(&hf, &forms[i], &(struct mistake){0}) != AX_OK)
            fail_msg("%s", ax_error_text());
        assert_int_equal(ax_hf_count(&hf), 3);
        assert_stack(&hf, &forms[i], false);
        assert_stack(&hf, &forms[i], true);
        ax_hf_close(&hf);
        assert_int_equal(ax_mem_live_blocks(), live);
    }
}

static void mistakes_are_named(void **state) {
    (void)state;
    static const struct {
        struct mistake wrong;
        const char *says;
    } cases[] = {
        {{.lacks = ".1.up_proj"}, "experts.1.up_proj.weight is missing"},
        {{.lacks = ".0.gate_proj"}, "experts.0.gate_proj.weight is missing"},
        {{.lacks = ".1.down_proj"}, "but not down_proj of that expert"},
        {{.lacks = ".0.down_proj"}, "but not down_proj of that expert"},
        {{.wide = ".2.down_proj"}, "experts.2.down_proj.weight has another shape"},
        {{.wide = ".0.up_proj"}, "experts.0.up_proj.weight has another shape"},
    };
    for (size_t i = 0; i < N_FORMS; i++)
        for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
            struct ax_hf hf;
            const uint64_t live = ax_mem_live_blocks();
            assert_int_equal(open_quantized(&hf, &forms[i], &cases[k].wrong), AX_ERR_DATA);
            assert_mentions(cases[k].says);
            assert_int_equal(ax_mem_live_blocks(), live);
        }
}

/* None is left out beside others. */
static void other_names_of_experts_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *module, *says;
    } cases[] = {
        {"model.layers.1.experts.00.gate_proj",
         "model.layers.1.experts.00.gate_proj.weight: expected its expert as 0"},
        {"model.layers.1.moe.experts.0.gate_proj",
         "model.layers.1.moe.experts.0.gate_proj.weight is beside others of the layer in .experts"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct mistake wrong = {.besides = cases[i].module};
        struct ax_hf hf;
        const uint64_t live = ax_mem_live_blocks();
        assert_int_equal(open_quantized(&hf, &forms[3], &wrong), AX_ERR_DATA);
        assert_mentions(cases[i].says);
        assert_int_equal(ax_mem_live_blocks(), live);
    }
}

/* Names that only resemble those of experts keep their tensors. */
static void other_names_stay_as_they_are(void **state) {
    (void)state;
    static const char *const modules[] = {
        "model.layers.1.experts_0.gate_proj",  /* no number of its own */
        "model.layers.1.experts_.0.gate_proj", /* longer */
        "model.layers.1.adapter.0.gate_proj",  /* as long */
        "model.layers.1.reviews.0.gate_proj",
        "model.layers.1.experts..gate_proj",
        "model.layers.1.experts.0_gate_proj",
        "model.layers.1.experts.100000.gate_proj", /* more than there may be */
        "model.layers.1.experts.0.gate_proj.lora", /* more follows */
    };
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
        const struct mistake none = {.besides = modules[i]};
        char name[100];
        struct ax_hf hf;
        float v[I * H];
        if (open_quantized(&hf, &forms[3], &none) != AX_OK)
            fail_msg("%s: %s", modules[i], ax_error_text());
        assert_int_equal(ax_hf_count(&hf), 4);
        assert_stack(&hf, &forms[3], false);
        assert_stack(&hf, &forms[3], true);
        snprintf(name, sizeof name, "%s.weight", modules[i]);
        const struct ax_st_entry *e = ax_hf_find(&hf, name);
        if (!e)
            fail_msg("%s is missing", name);
        assert_int_equal(ax_st_read(e, 0, I * H, AX_F32, v), AX_OK);
        for (int64_t k = 0; k < I * H; k++)
            assert_true(v[k] == value_of(0, 0, k / H, k % H));
        ax_hf_close(&hf);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stacks_are_taken_apart),
        cmocka_unit_test(lists_are_no_longer_than_files),
        cmocka_unit_test(quantized_experts_are_read_as_stacks),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(other_names_of_experts_are_refused),
        cmocka_unit_test(other_names_stay_as_they_are),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
