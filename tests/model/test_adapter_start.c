/* How adapters begin: the spread of what is drawn, and PiSSA, whose base and adapter together are
 * the base as it was, packed or not, and whose folder is for that base. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "base/hash/hash.h"
#include "base/mem.h"
#include "kernels/quant/quant_codes.h"
#include "model/adapter/load.h"
#include "model/convert/merged.h"
#include "model/adapter/pissa.h"
#include "model/layer.h"
#include "model/lora/low_rank.h"
#include "tests/ckpt/folder.h"
#include "tests/golden_files.h"
#include "tests/tiny.h"

static char *targets[] = {"q_proj", "v_proj", "o_proj", "down_proj"};

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

static struct ax_arch arch;
static struct ax_hf hf;

static int open_base(void **state) {
    if (make_dir(state) != 0)
        return -1;
    must(ax_arch_load(&arch, golden_path("models/llama")));
    must(ax_hf_open(&hf, golden_path("models/llama")));
    return 0;
}

static int close_base(void **state) {
    ax_hf_close(&hf);
    ax_arch_free(&arch);
    return remove_dir(state);
}

static struct ax_peft_config config(enum ax_lora_start start) {
    return (struct ax_peft_config){.r = 4, .alpha = 6, .start = start, .targets = {4, targets}};
}

struct job {
    const struct ax_peft_config *config;
    enum ax_storage store;
    void (*look)(struct ax_model *m, const struct job *j);
    const char *save;
    const char *backend; /* NULL: cpu */
};

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct job *j = ctx;
    struct ax_model m;
    const struct ax_model_options o = {.dtype = AX_F32,
                                       .train = true,
                                       .max_positions = 16,
                                       .adapter = j->config,
                                       .base_store = j->store};
    AX_TRY(ax_model_create(&m, &arch, rt, &o));
    enum ax_status st;
    AX_TRY_GOTO(ax_model_load(&m, &hf), st, done);
    AX_TRY_GOTO(ax_adapter_init(&m, 3), st, done);
    AX_TRY_GOTO(ax_adapter_pissa_start(&m, &hf, 3), st, done);
    if (ax_runtime_planning(rt))
        goto done;
    if (j->look)
        j->look(&m, j);
    if (j->save)
        AX_TRY_GOTO(ax_adapter_save(&m, j->save, AX_F32), st, done);
done:
    ax_model_free(&m);
    return st;
}

static enum ax_status run(struct job *j) {
    const char *backend = j->backend ? j->backend : "cpu";
    return ax_runtime_run(&(struct ax_runtime_options){.backend = backend, .threads = 1}, body, j,
                          NULL);
}

/* Calls `check` for each adapter of a linear, with its base as the model computes with it. */
static void each(struct ax_model *m, void (*check)(const struct ax_model *m,
                                                   const struct ax_adapter *a, const float *base)) {
    for (int layer = 0; layer < (int)m->arch.n_layers; layer++) {
        struct ax_linear *linears[AX_LAYER_MAX_LINEARS];
        const int n = ax_layer_linears(&m->layers[layer], linears);
        must(ax_unit_gather(m->layers[layer].unit, m->rt));
        for (int i = 0; i < n; i++)
            for (int part = 0; part < linears[i]->n_parts; part++) {
                const struct ax_adapter *a = &linears[i]->adapter[part];
                float *base;
                if (!a->a)
                    continue;
                must(ax_alloc(&base, (size_t)ax_param_numel(a->weight), sizeof *base));
                const struct ax_tensor t =
                    ax_tensor_2d(AX_F32, base, a->weight->shape[0], a->weight->shape[1]);
                if (ax_unit_is_packed(a->unit, a->weight)) {
                    const struct ax_packed packed = ax_unit_packed(a->unit, a->weight);
                    must(ax_packed_read(m->rt->q, &packed, &t));
                } else {
                    const struct ax_tensor w = ax_unit_weight(a->unit, a->weight);
                    memcpy(base, w.data, ax_tensor_bytes(&w));
                }
                check(m, a, base);
                ax_free(base);
            }
        ax_unit_release(m->layers[layer].unit);
    }
}

/* ---- PiSSA ---- */

static double worst;
static int64_t packed_blocks;

/* W_rest + s·B·A − W, relative to the largest of W. */
static void compare_with_base(const struct ax_model *m, const struct ax_adapter *a,
                              const float *base) {
    const struct ax_st_entry *e = ax_hf_find(&hf, a->weight->name);
    const struct ax_tensor ta = ax_model_value(m, a->a), tb = ax_model_value(m, a->b);
    const float *A = ta.data, *B = tb.data;
    const int64_t rows = a->weight->shape[0], cols = a->weight->shape[1], r = ta.shape[0];
    double largest = 0, off = 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < cols; k++) {
            double v = (double)base[i * cols + k];
            for (int64_t j = 0; j < r; j++)
                v += a->scale * (double)B[i * r + j] * (double)A[j * cols + k];
            const double want = ax_load(e->dtype, e->data, i * cols + k);
            largest = fmax(largest, fabs(want));
            off = fmax(off, fabs(v - want));
        }
    worst = fmax(worst, off / largest);
}

/* The lower one of two that are equally near. */
static float nearest_nf4(float x) {
    float best = ax_nf4_values[0];
    for (int c = 1; c < 16; c++)
        best = fabsf(x - ax_nf4_values[c]) < fabsf(x - best) ? ax_nf4_values[c] : best;
    return best;
}

/* A packed base is NF4 of W − s·B·A, to the bit: of each 64 elements the largest magnitude is the
 * scale, and of x/scale the nearest of the 16 values is kept. */
static void compare_with_packed(const struct ax_model *m, const struct ax_adapter *a,
                                const float *base) {
    enum { BLOCK = 64 };
    const struct ax_st_entry *e = ax_hf_find(&hf, a->weight->name);
    const struct ax_tensor ta = ax_model_value(m, a->a), tb = ax_model_value(m, a->b);
    const float *A = ta.data, *B = tb.data;
    const int64_t cols = a->weight->shape[1], r = ta.shape[0], n = ax_param_numel(a->weight);
    for (int64_t first = 0; first < n; first += BLOCK) {
        const int64_t len = n - first < BLOCK ? n - first : BLOCK;
        float rest[BLOCK], scale = 0;
        for (int64_t k = 0; k < len; k++) {
            const int64_t row = (first + k) / cols, col = (first + k) % cols;
            double x = ax_load(e->dtype, e->data, first + k);
            for (int64_t j = 0; j < r; j++)
                x -= a->scale * (double)B[row * r + j] * (double)A[j * cols + col];
            rest[k] = (float)x;
            scale = fmaxf(scale, fabsf(rest[k]));
        }
        for (int64_t k = 0; k < len; k++)
            assert_true(base[first + k] == nearest_nf4(rest[k] / scale) * scale);
        packed_blocks++;
    }
}

/* s·B·A is W's best approximation of rank r: ‖A_j‖·‖B_j‖·s are its singular values. */
static void compare_with_values(const struct ax_model *m, const struct ax_adapter *a,
                                const float *base) {
    const struct ax_st_entry *e = ax_hf_find(&hf, a->weight->name);
    const struct ax_tensor ta = ax_model_value(m, a->a), tb = ax_model_value(m, a->b);
    (void)base;
    float *w;
    must(ax_alloc(&w, (size_t)e->numel, sizeof *w));
    ax_convert(AX_F32, w, e->dtype, e->data, e->numel);
    const int64_t rows = e->shape[0], cols = e->shape[1], r = ta.shape[0];
    const int64_t all = rows < cols ? rows : cols;
    struct ax_low_rank l = {.w = w, .rows = rows, .cols = cols, .r = all, .key = {99, 0, 1}};
    must(ax_low_rank_find(&l));
    for (int64_t j = 0; j < r; j++) {
        double aa = 0, bb = 0;
        for (int64_t k = 0; k < cols; k++)
            aa += pow((double)((float *)ta.data)[j * cols + k], 2);
        for (int64_t i = 0; i < rows; i++)
            bb += pow((double)((float *)tb.data)[i * r + j], 2);
        assert_true(fabs(a->scale * sqrt(aa * bb) - l.s[j]) < 1e-6 * l.s[0]);
        assert_true(fabs(aa - bb) < 1e-6 * aa);
    }
    ax_low_rank_free(&l);
    ax_free(w);
}

static void look_at_parts(struct ax_model *m, const struct job *j) {
    (void)j;
    each(m, compare_with_base);
}

static void look_at_packed(struct ax_model *m, const struct job *j) {
    (void)j;
    each(m, compare_with_packed);
}

static void look_at_values(struct ax_model *m, const struct job *j) {
    look_at_parts(m, j);
    each(m, compare_with_values);
}

static void pissa_splits_the_base(void **state) {
    (void)state;
    struct ax_peft_config c = config(AX_LORA_PISSA);
    struct job j = {.config = &c, .look = look_at_values};
    worst = 0;
    must(run(&j));
    print_message("rest + adapter: off by %.2g of the largest weight\n", worst);
    assert_true(worst > 0 && worst < 2e-7);
    c.iterations = 4;
    c.rslora = true;
    j.look = look_at_parts;
    worst = 0;
    must(run(&j));
    assert_true(worst < 2e-7);
    j.store = AX_STORAGE_NF4;
    j.look = look_at_packed;
    packed_blocks = 0;
    must(run(&j));
    assert_true(packed_blocks > 100);
    c.r = 4096;
    assert_int_equal(run(&j), AX_ERR_CONFIG);
    assert_mentions("pissa: rank 4096 exceeds the rank of");
}

/* The folder's s·B·A is what training added. */
static void a_folder_is_for_the_base_as_it_was(void **state) {
    (void)state;
    struct ax_peft_config c = config(AX_LORA_PISSA);
    struct ax_peft peft;
    for (int rslora = 0; rslora < 2; rslora++) {
        const char *to = in_dir(rslora ? "rslora" : "pissa");
        c.rslora = rslora;
        struct job still = {.config = &c, .save = to};
        must(run(&still));
        must(ax_peft_open(&peft, to));
        assert_int_equal(peft.config.r, 8);
        assert_true(fabs(peft.config.alpha - (rslora ? 6 * sqrt(2) : 12)) < 1e-12);
        for (int i = 0; i < ax_hf_count(&hf); i++) {
            const struct ax_st_entry *e = ax_hf_at(&hf, i);
            struct ax_merged t;
            double *values;
            must(ax_merged_open(&t, &arch, e, &peft, AX_F64));
            must(ax_alloc(&values, (size_t)e->numel, sizeof *values));
            must(ax_merged_read(&t, 0, e->numel, values));
            for (int64_t k = 0; k < e->numel; k++)
                assert_true(fabs(values[k] - ax_load(e->dtype, e->data, k)) < 1e-9);
            ax_free(values);
            ax_merged_close(&t);
        }
        ax_peft_close(&peft);
    }
}

/* ---- what is drawn ---- */

static const struct {
    enum ax_lora_start start;
    double a, b; /* standard deviations; a's inputs are 1 */
    bool by_inputs;
} starts[] = {
    {AX_LORA_USUAL, 0.57735, 0, true},
    {AX_LORA_RANDOM, 0.57735, 0.57735 / 2, true},
    {AX_LORA_GAUSSIAN, 0.25, 0, false},
};
static size_t which;

static double deviation(const struct ax_tensor *t) {
    const int64_t n = ax_tensor_numel(t);
    double sum = 0;
    for (int64_t k = 0; k < n; k++)
        sum += pow((double)((float *)t->data)[k], 2);
    return sqrt(sum / (double)n);
}

static void check_spread(const struct ax_model *m, const struct ax_adapter *a, const float *base) {
    (void)base;
    const struct ax_tensor ta = ax_model_value(m, a->a), tb = ax_model_value(m, a->b);
    const double inputs = (double)ta.shape[1];
    const double want = starts[which].a / (starts[which].by_inputs ? sqrt(inputs) : 1);
    assert_true(fabs(deviation(&ta) / want - 1) < 0.15);
    if (starts[which].b == 0)
        assert_true(deviation(&tb) == 0);
    else
        assert_true(fabs(deviation(&tb) / starts[which].b - 1) < 0.2);
}

static void look_at_spread(struct ax_model *m, const struct job *j) {
    (void)j;
    each(m, check_spread);
}

/* ---- memory that the host cannot touch ---- */

static uint64_t memory;

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

/* All that a model keeps: weights, masters, what PiSSA started from, tables, and the zeros between
 * them, which nothing else may read. */
static void look_at_memory(struct ax_model *m, const struct job *j) {
    const struct ax_stack *all = &m->rt->arena.persistent;
    char *copy;
    (void)j;
    must(ax_alloc(&copy, all->top, 1));
    ASAN_UNPOISON_MEMORY_REGION(all->base, all->top);
    must(ax_queue_read(m->rt->q, all->base, copy, all->top, NULL));
    memory = ax_hash64(copy, all->top, 0);
    ax_free(copy);
}

static void far_models_start_as_on_cpu(void **state) {
    (void)state;
    static const enum ax_lora_start kinds[] = {AX_LORA_USUAL, AX_LORA_RANDOM, AX_LORA_GAUSSIAN,
                                               AX_LORA_PISSA};
    static const enum ax_storage stores[] = {
        AX_STORAGE_PLAIN, AX_STORAGE_NF4, AX_STORAGE_NF4_DOUBLE, AX_STORAGE_INT8, AX_STORAGE_FP8};
    for (size_t i = 0; i < 20; i++) {
        struct ax_peft_config c = config(kinds[i % 4]);
        c.dora = kinds[i % 4] != AX_LORA_PISSA;
        c.iterations = 2;
        struct job j = {.config = &c, .store = stores[i % 5], .look = look_at_memory};
        must(run(&j));
        const uint64_t want = memory;
        j.backend = "far";
        must(run(&j));
        if (memory != want)
            fail_msg("start %zu, store %zu: other memory than on cpu", i % 4, i % 5);
    }
}

static void drawn_starts_have_their_spread(void **state) {
    (void)state;
    for (which = 0; which < sizeof starts / sizeof *starts; which++) {
        const struct ax_peft_config c = config(starts[which].start);
        struct job j = {.config = &c, .look = look_at_spread};
        must(run(&j));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pissa_splits_the_base),
        cmocka_unit_test(a_folder_is_for_the_base_as_it_was),
        cmocka_unit_test(drawn_starts_have_their_spread),
        cmocka_unit_test(far_models_start_as_on_cpu),
    };
    return cmocka_run_group_tests(tests, open_base, close_base);
}
