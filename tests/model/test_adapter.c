/* Adapters: gradients against finite differences and against each other, packed bases, dropout,
 * what is frozen, and what must give the same bits. PEFT folders are in test_adapter_folder.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "model/layer.h"
#include "tests/tiny.h"
#include "tests/long.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static const int64_t lengths[] = {9, 1, 14, 0};
static char *everywhere[] = {"q_proj",    "k_proj",    "v_proj",       "o_proj", "up_proj",
                             "gate_proj", "down_proj", "embed_tokens", "lm_head"};

static char *queries_and_values[] = {"q_proj", "v_proj"};
static struct ax_peft_pattern ranks[] = {{"k_proj", 5}, {"up_proj", 1}};

static char *stacked[] = {"mlp.experts.down_proj", "gate_up_proj"};

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

static struct ax_peft_config lora(void) {
    return (struct ax_peft_config){.r = 3, .alpha = 6, .targets = {7, everywhere}};
}

struct variant {
    const char *name, *type, *extra;
    bool tied, rslora, dora, ends;
    int stacked;      /* experts' weights: of two */
    bool gaps, ranks; /* q and v alone, k and up of other ranks */
    double dropout;
    enum ax_storage store;
};

static const struct variant variants[] = {
    {.name = "lora", .type = "llama"},
    {.name = "rslora, biases",
     .type = "llama",
     .rslora = true,
     .extra = ", \"attention_bias\": true, \"mlp_bias\": true"},
    {.name = "lora, q and v", .type = "llama", .gaps = true},
    {.name = "lora, several ranks", .type = "llama", .ranks = true},
    {.name = "dora, several ranks", .type = "llama", .dora = true, .ranks = true},
    {.name = "lora, dropout", .type = "qwen3", .dropout = 0.3},
    {.name = "dora", .type = "llama", .dora = true},
    {.name = "dora, biases, tied",
     .type = "llama",
     .dora = true,
     .tied = true,
     .extra = ", \"attention_bias\": true, \"mlp_bias\": true"},
    {.name = "dora, rslora, dropout",
     .type = "qwen2",
     .dora = true,
     .rslora = true,
     .dropout = 0.2},
    {.name = "lora, embedding and head", .type = "llama", .ends = true},
    {.name = "lora, embedding and head, tied, rslora, dropout",
     .type = "llama",
     .ends = true,
     .tied = true,
     .rslora = true,
     .dropout = 0.3},
    {.name = "lora, experts",
     .type = "mixtral",
     .stacked = 2,
     .extra = ", \"num_local_experts\": 6, \"num_experts_per_tok\": 2"},
    {.name = "rslora, experts' down",
     .type = "qwen3_moe",
     .stacked = 1,
     .rslora = true,
     .extra = ", \"num_experts\": 8, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 24, "
              "\"mlp_only_layers\": [1]"},
    {.name = "nf4 lora", .type = "mistral", .store = AX_STORAGE_NF4},
    {.name = "nf4 lora, nf4 experts",
     .type = "mixtral",
     .stacked = 2,
     .extra = ", \"num_local_experts\": 6, \"num_experts_per_tok\": 2",
     .store = AX_STORAGE_NF4},
    {.name = "int8 lora, int8 experts",
     .type = "qwen3_moe",
     .stacked = 1,
     .extra = ", \"num_experts\": 8, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 24, "
              "\"mlp_only_layers\": [1]",
     .store = AX_STORAGE_INT8},
    {.name = "nf4 double dora", .type = "llama", .dora = true, .store = AX_STORAGE_NF4_DOUBLE},
    {.name = "int8 lora", .type = "llama", .store = AX_STORAGE_INT8},
    {.name = "int4 lora", .type = "llama", .store = AX_STORAGE_INT4},
    {.name = "fp8 dora, dropout",
     .type = "llama",
     .dora = true,
     .dropout = 0.2,
     .store = AX_STORAGE_FP8},
};

static const struct variant *variant(const char *name) {
    size_t i = 0;
    while (i < COUNT(variants) && strcmp(variants[i].name, name) != 0)
        i++;
    assert_true(i < COUNT(variants));
    return &variants[i];
}

static struct ax_peft_config config_of(const struct variant *v) {
    struct ax_peft_config c = lora();
    c.rslora = v->rslora;
    c.dora = v->dora;
    c.dropout = v->dropout;
    c.targets.n = v->ends ? 9 : v->stacked ? 4 : 7;
    c.parameters = (struct ax_peft_names){v->stacked, stacked};
    if (v->gaps)
        c.targets = (struct ax_peft_names){COUNT(queries_and_values), queries_and_values};
    if (v->ranks) {
        c.ranks = ranks;
        c.n_ranks = COUNT(ranks);
    }
    return c;
}

static void arch_of(struct ax_arch *arch, const struct variant *v) {
    must(tiny_arch(arch, v->type, v->tied, v->extra ? v->extra : ""));
}

/* --- finite differences --- */

struct probe {
    const struct ax_arch *arch;
    const struct ax_peft_config *config;
    enum ax_storage store;
    const char *name;
    double worst;
};

/* Row norms of V = W + s·B·A as the adapter has them now; out [rows]. */
static enum ax_status row_norms(struct ax_step *s, const struct ax_linear *l, int part,
                                double *out) {
    static double w[16384];
    const struct ax_model *m = &s->model;
    const struct ax_adapter *a = &l->adapter[part];
    const struct ax_tensor A = ax_model_value(m, a->a), B = ax_model_value(m, a->b);
    const int64_t rows = a->weight->shape[0], cols = a->weight->shape[1], r = A.shape[0];
    const struct ax_tensor plain = ax_model_value(m, a->weight);
    assert_true(rows * cols <= 16384);
    struct ax_unit *unit = &s->model.units[a->weight->unit];
    AX_TRY(ax_unit_gather(unit, s->rt));
    if (ax_unit_is_packed(unit, a->weight)) {
        const struct ax_packed packed = ax_unit_packed(unit, a->weight);
        const struct ax_tensor into = ax_tensor_2d(AX_F64, w, rows, cols);
        AX_TRY(ax_packed_read(s->rt->q, &packed, &into));
    } else {
        memcpy(w, plain.data, (size_t)(rows * cols) * sizeof *w);
    }
    ax_unit_release(unit);
    for (int64_t i = 0; i < rows; i++) {
        double sum = 0;
        for (int64_t k = 0; k < cols; k++) {
            double v = w[i * cols + k];
            for (int64_t j = 0; j < r; j++)
                v += a->scale * ((double *)B.data)[i * r + j] * ((double *)A.data)[j * cols + k];
            sum += v * v;
        }
        out[i] = sqrt(sum);
    }
    return AX_OK;
}

/* Of length 1: all of a parameter moves, each element by ±1/√n. */
static double direction(const struct ax_param *p, int64_t k) {
    const uint32_t word = ax_rng_u32((struct ax_rng_key){3, 0, (uint32_t)p->offset}, (uint64_t)k);
    return (word & 1 ? 1 : -1) / sqrt((double)ax_param_numel(p));
}

/* The loss with p moved by `by` in that direction. The norm is no path for gradients, so where p is
 * part of one, magnitudes are changed with it and m/‖V‖ stays. */
static enum ax_status moved_loss(struct ax_step *s, const struct ax_linear *l, int part,
                                 const struct ax_param *p, double by, double *loss) {
    static double was[1 << 16];
    const struct ax_adapter *a = &l->adapter[part];
    const struct ax_tensor value = ax_model_value(&s->model, p);
    double *values = value.data;
    struct ax_tensor m = {0};
    double before[256], after[256], kept[256];
    struct ax_step_result r;
    const bool follow = a->magnitude && p != a->magnitude;
    memcpy(was, values, ax_tensor_bytes(&value));
    if (follow) {
        m = ax_model_value(&s->model, a->magnitude);
        AX_TRY(row_norms(s, l, part, before));
        memcpy(kept, m.data, ax_tensor_bytes(&m));
    }
    for (int64_t k = 0; k < ax_param_numel(p); k++)
        values[k] += by * direction(p, k);
    if (follow) {
        AX_TRY(row_norms(s, l, part, after));
        for (int64_t i = 0; i < m.shape[0]; i++)
            ((double *)m.data)[i] = kept[i] * after[i] / before[i];
    }
    AX_TRY(ax_step_gradients(s, &r));
    *loss = r.loss;
    memcpy(values, was, ax_tensor_bytes(&value));
    if (follow)
        memcpy(m.data, kept, ax_tensor_bytes(&m));
    return AX_OK;
}

static enum ax_status difference(struct probe *probe, struct ax_step *s, const struct ax_linear *l,
                                 int part, const struct ax_param *p, const double *grads) {
    const double h = 1e-5;
    double up, down, got = 0;
    AX_TRY(moved_loss(s, l, part, p, h, &up));
    AX_TRY(moved_loss(s, l, part, p, -h, &down));
    for (int64_t k = 0; k < ax_param_numel(p); k++)
        got += grads[k] * direction(p, k);
    const double want = (up - down) / (2 * h);
    const double off = fabs(got - want) / fmax(1e-3, fabs(want));
    if (off > 1e-5)
        fail_msg("%s: %s: gradient %.10g, difference quotient %.10g", probe->name, p->name, got,
                 want);
    probe->worst = fmax(probe->worst, off);
    return AX_OK;
}

static enum ax_status differences_of(struct probe *probe, struct ax_step *s,
                                     const struct ax_linear *l, int part,
                                     const struct ax_adapter *a) {
    static double kept[1 << 16];
    const struct ax_param *all[] = {a->a, a->b, a->magnitude};
    for (int k = 0; k < 3 && all[k]; k++) {
        struct ax_step_result r;
        const struct ax_tensor grad = ax_model_grad(&s->model, all[k]);
        for (int u = 0; u < s->model.n_units; u++)
            for (int g = 0; g < s->model.units[u].n_segments; g++) {
                struct ax_tensor *t = &s->model.units[u].segments[g].grad;
                if (t->data)
                    memset(t->data, 0, ax_tensor_bytes(t));
            }
        AX_TRY(ax_step_gradients(s, &r));
        memcpy(kept, grad.data, ax_tensor_bytes(&grad));
        AX_TRY(difference(probe, s, l, part, all[k], kept));
    }
    return AX_OK;
}

/* Every trained parameter has a gradient. */
static enum ax_status all_have_effect(const struct probe *probe, struct ax_step *s) {
    const struct ax_model *m = &s->model;
    struct ax_step_result r;
    AX_TRY(ax_step_gradients(s, &r));
    for (int i = 0; i < m->n_params; i++) {
        if (!m->params[i].trainable)
            continue;
        const struct ax_tensor grad = ax_model_grad(m, &m->params[i]);
        double most = 0;
        for (int64_t k = 0; k < ax_tensor_numel(&grad); k++)
            most = fmax(most, fabs(((const double *)grad.data)[k]));
        if (most == 0)
            fail_msg("%s: %s has no effect", probe->name, m->params[i].name);
    }
    return AX_OK;
}

/* Embedding, head, layers 0 and 2, one part of each linear. */
static enum ax_status differences(struct probe *probe, struct ax_step *s) {
    const struct ax_model *m = &s->model;
    AX_TRY(all_have_effect(probe, s));
    const struct ax_adapter *ends[] = {&m->embed_adapter, &m->head.adapter[0]};
    for (int i = 0; i < 2; i++)
        if (ends[i]->a)
            AX_TRY(differences_of(probe, s, &m->head, 0, ends[i]));
    for (int layer = 0; layer < 3; layer += 2) {
        struct ax_linear *linears[AX_LAYER_MAX_LINEARS];
        const int n = ax_layer_linears(&s->model.layers[layer], linears);
        const struct ax_moe_part *moe = &m->layers[layer].moe;
        const struct ax_expert_adapter *experts[] = {&moe->gate_up_adapter, &moe->down_adapter};
        for (int i = 0; i < 2; i++) {
            const struct ax_adapter like = {.a = experts[i]->a, .b = experts[i]->b};
            AX_TRY(differences_of(probe, s, &m->head, 0, &like));
        }
        for (int i = 0; i < n; i++) {
            if (linears[i]->n_parts == 0)
                continue;
            const int part = (layer + i) % linears[i]->n_parts;
            AX_TRY(differences_of(probe, s, linears[i], part, &linears[i]->adapter[part]));
        }
    }
    return AX_OK;
}

static enum ax_status difference_body(struct ax_runtime *rt, void *ctx) {
    struct probe *probe = ctx;
    struct ax_step s;
    struct ax_step_options o = tiny_options(AX_F64, AX_RECOMPUTE_SELECTIVE, 1, lengths);
    o.model.adapter = probe->config;
    o.model.base_store = probe->store;
    o.model.store_experts = true;
    o.seed = 4;
    AX_TRY(ax_step_create(&s, rt, probe->arch, &o));
    enum ax_status st;
    struct ax_step_result r;
    AX_TRY_GOTO(ax_model_init_random(&s.model, 8), st, done);
    AX_TRY_GOTO(tiny_adapters(&s.model, 8), st, done);
    AX_TRY_GOTO(tiny_fill(&s, lengths, 8), st, done);
    if (ax_runtime_planning(rt))
        AX_TRY_GOTO(ax_step_gradients(&s, &r), st, done);
    else
        AX_TRY_GOTO(differences(probe, &s), st, done);
done:
    ax_step_free(&s);
    return st;
}

static void gradients_are_difference_quotients(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(variants); i++) {
        struct ax_arch arch;
        arch_of(&arch, &variants[i]);
        const struct ax_peft_config c = config_of(&variants[i]);
        struct probe probe = {
            .arch = &arch, .config = &c, .store = variants[i].store, .name = variants[i].name};
        must(ax_runtime_run(&(struct ax_runtime_options){.backend = "ref", .threads = 1},
                            difference_body, &probe, NULL));
        print_message("%s: worst %.2g\n", probe.name, probe.worst);
        ax_arch_free(&arch);
    }
}

/* --- the same bits --- */

static struct tiny_run run_of(const struct ax_arch *arch, const struct ax_peft_config *c,
                              const struct variant *v, enum ax_dtype dtype,
                              enum ax_recompute recompute) {
    struct tiny_run t = {.arch = arch, .lengths = lengths, .steps = 3, .seed = 7};
    t.o = tiny_options(dtype, recompute, 2, lengths);
    t.o.model.adapter = c;
    t.o.model.base_store = v->store;
    t.o.model.store_experts = true;
    t.o.seed = 11;
    return t;
}

static void same_bits(const struct tiny_run *a, const struct tiny_run *b, const char *what,
                      const char *which) {
    if (a->grads != b->grads || a->masters != b->masters || a->loss != b->loss)
        fail_msg("%s, %s: grads %d masters %d loss %.17g %.17g", which, what, a->grads == b->grads,
                 a->masters == b->masters, a->loss, b->loss);
    assert_true(a->loss > 0 && isfinite(a->loss) && a->grad_norm > 0);
}

static void recompute_and_threads_are_bitwise(void **state) {
    (void)state;
    static const struct {
        const char *backend;
        enum ax_dtype dtype;
    } kinds[] = {{"ref", AX_F64}, {"cpu", AX_F32}, {"cpu", AX_BF16}};
    for (size_t i = 0; i < COUNT(variants); i++) {
        struct ax_arch arch;
        arch_of(&arch, &variants[i]);
        const struct ax_peft_config c = config_of(&variants[i]);
        for (size_t k = 0; k < COUNT(kinds); k++) {
            struct tiny_run off = run_of(&arch, &c, &variants[i], kinds[k].dtype, AX_RECOMPUTE_OFF);
            struct tiny_run selective =
                run_of(&arch, &c, &variants[i], kinds[k].dtype, AX_RECOMPUTE_SELECTIVE);
            struct tiny_run on = run_of(&arch, &c, &variants[i], kinds[k].dtype, AX_RECOMPUTE_ON);
            must(tiny_run(&off, kinds[k].backend, 1));
            must(tiny_run(&selective, kinds[k].backend, 2));
            must(tiny_run(&on, kinds[k].backend, 3));
            same_bits(&off, &selective, "selective", variants[i].name);
            same_bits(&off, &on, "on", variants[i].name);
            assert_int_equal(on.fallbacks, 0);
        }
        ax_arch_free(&arch);
    }
}

/* Starts, packed weights and training on memory that the host cannot touch. */
static void far_memory_is_bitwise(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(variants); i++) {
        struct ax_arch arch;
        arch_of(&arch, &variants[i]);
        const struct ax_peft_config c = config_of(&variants[i]);
        const enum ax_dtype dtype = i % 2 ? AX_BF16 : AX_F32;
        struct tiny_run host = run_of(&arch, &c, &variants[i], dtype, AX_RECOMPUTE_SELECTIVE);
        struct tiny_run far = host;
        must(tiny_run(&host, "cpu", 2));
        must(tiny_run(&far, "far", 2));
        same_bits(&host, &far, "far", variants[i].name);
        ax_arch_free(&arch);
    }
}

static void steps_do_not_allocate(void **state) {
    (void)state;
    struct ax_arch arch;
    const struct variant *v = variant("nf4 lora, nf4 experts");
    arch_of(&arch, v);
    const struct ax_peft_config c = config_of(v);
    struct tiny_run t = run_of(&arch, &c, v, AX_F32, AX_RECOMPUTE_ON);
    t.steps = 6;
    must(tiny_run(&t, "cpu", 2));
    assert_int_equal(t.allocations, 0);
    ax_arch_free(&arch);
}

/* Four documents packed into one row, or two and two in two micro-batches; dropout too is numbered
 * by the token of the step. */
static void packing_and_accumulation_change_nothing(void **state) {
    (void)state;
    static const int64_t four[] = {9, 14, 9, 14, 0}, two[] = {9, 14, 0};
    for (size_t i = 0; i < COUNT(variants); i++) {
        struct ax_arch arch;
        arch_of(&arch, &variants[i]);
        const struct ax_peft_config c = config_of(&variants[i]);
        struct tiny_run one = run_of(&arch, &c, &variants[i], AX_F64, AX_RECOMPUTE_ON);
        one.steps = 2;
        one.want_grads = true;
        struct tiny_run split = one;
        one.lengths = four;
        split.lengths = two;
        one.o = tiny_options(AX_F64, AX_RECOMPUTE_ON, 1, four);
        split.o = tiny_options(AX_F64, AX_RECOMPUTE_ON, 2, two);
        one.o.model.adapter = split.o.model.adapter = &c;
        one.o.model.base_store = split.o.model.base_store = variants[i].store;
        one.o.model.store_experts = split.o.model.store_experts = true;
        must(tiny_run(&one, "ref", 1));
        must(tiny_run(&split, "ref", 1));
        assert_int_equal(one.n_grads, split.n_grads);
        double largest = 0, off = 0;
        for (int64_t k = 0; k < one.n_grads; k++) {
            largest = fmax(largest, fabs(one.grad_values[k]));
            off = fmax(off, fabs(one.grad_values[k] - split.grad_values[k]));
        }
        if (!(off <= 1e-11 * largest))
            fail_msg("%s: gradients differ by %.3g of %.3g", variants[i].name, off, largest);
        ax_free(one.grad_values);
        ax_free(split.grad_values);
        ax_arch_free(&arch);
    }
}

/* Other masks with another seed; the same with the same. */
static void dropout_follows_the_seed(void **state) {
    (void)state;
    struct ax_arch arch;
    const struct variant *v = variant("lora, dropout");
    arch_of(&arch, v);
    const struct ax_peft_config c = config_of(v);
    struct tiny_run a = run_of(&arch, &c, v, AX_F32, AX_RECOMPUTE_OFF), b = a, other = a;
    other.o.seed++;
    must(tiny_run(&a, "cpu", 1));
    must(tiny_run(&b, "cpu", 2));
    must(tiny_run(&other, "cpu", 1));
    same_bits(&a, &b, "again", "dropout");
    assert_true(other.loss != a.loss && other.grads != a.grads);
    ax_arch_free(&arch);
}

/* --- what is frozen --- */

struct frozen {
    const struct ax_arch *arch;
    const struct ax_peft_config *config;
    enum ax_storage store;
    int lowest;
    int64_t trained;
    double *grads; /* of the last layer's adapters */
    int64_t n;
};

static enum ax_status frozen_body(struct ax_runtime *rt, void *ctx) {
    struct frozen *f = ctx;
    struct ax_step s;
    struct ax_step_result r;
    struct ax_step_options o = tiny_options(AX_BF16, AX_RECOMPUTE_ON, 1, lengths);
    o.model.adapter = f->config;
    o.model.base_store = f->store;
    AX_TRY(ax_step_create(&s, rt, f->arch, &o));
    enum ax_status st;
    AX_TRY_GOTO(ax_model_init_random(&s.model, 2), st, done);
    AX_TRY_GOTO(tiny_adapters(&s.model, 2), st, done);
    AX_TRY_GOTO(tiny_fill(&s, lengths, 2), st, done);
    AX_TRY_GOTO(ax_step_gradients(&s, &r), st, done);
    f->lowest = s.model.lowest_unit;
    f->trained = ax_model_trainable(&s.model);
    f->n = 0;
    for (int i = 0; !ax_runtime_planning(rt) && i < s.model.n_params; i++) {
        const struct ax_param *p = &s.model.params[i];
        const struct ax_tensor grad = ax_model_grad(&s.model, p);
        assert_true(p->trainable == (grad.data != NULL));
        if (!p->adapter || p->unit != s.model.n_units - 2)
            continue;
        for (int64_t k = 0; k < ax_param_numel(p); k++)
            f->grads[f->n++] = ax_load(grad.dtype, grad.data, k);
    }
done:
    ax_step_free(&s);
    return st;
}

static size_t plan_bytes(const struct ax_arena_plan *plan) {
    return plan->persistent;
}

/* Gradients of the last layer's adapters do not depend on whether anything below trains; and a
 * frozen matrix costs its own bytes and nothing else. */
static void the_base_is_frozen(void **state) {
    (void)state;
    static double low[1 << 16], high[1 << 16];
    static int64_t last[] = {2};
    static char *embedding[] = {"embed_tokens"};
    struct ax_arch arch;
    struct ax_arena_plan plain, packed, all;
    must(tiny_arch(&arch, "llama", false, ""));
    struct ax_peft_config c = lora();
    c.n_layers = 1;
    c.layers = last;
    struct frozen top = {.arch = &arch, .config = &c, .grads = high};
    const struct ax_runtime_options ro = {.backend = "cpu", .threads = 1};
    must(ax_runtime_run(&ro, frozen_body, &top, &plain));
    assert_int_equal(top.lowest, 3);
    assert_int_equal(top.trained, 3 * (48 + 64 + 2 * (48 + 32) + 64 + 48 + 3 * (48 + 80)));
    struct ax_peft_config with = c;
    with.save = (struct ax_peft_names){1, embedding};
    struct frozen whole = {.arch = &arch, .config = &with, .grads = low};
    must(ax_runtime_run(&ro, frozen_body, &whole, &all));
    assert_int_equal(whole.lowest, 0);
    assert_int_equal(whole.trained, top.trained + 97 * 48);
    assert_int_equal(whole.n, top.n);
    assert_memory_equal(low, high, (size_t)top.n * sizeof *low);
    /* the embedding's master and gradient, which are padded, and its two moments, in F32; its own
     * numbers are there anyway */
    const size_t moments = 97 * 48, rows = (moments + 255) / 256 * 256;
    const size_t cost = 8 * rows + 8 * moments;
    assert_in_range(plan_bytes(&all) - plan_bytes(&plain), cost, cost + 4096);
    struct frozen small = {.arch = &arch, .config = &c, .grads = low, .store = AX_STORAGE_NF4};
    must(ax_runtime_run(&ro, frozen_body, &small, &packed));
    const size_t matrices = 3 * (48 * 64 + 2 * 48 * 32 + 64 * 48 + 3 * 48 * 80);
    /* bf16 to half a byte and a sixteenth; some padding */
    assert_in_range(plan_bytes(&plain) - plan_bytes(&packed), matrices * 23 / 16 - 4096,
                    matrices * 23 / 16 + 4096);
    ax_arch_free(&arch);
}

/* ---- a random packed base ---- */

static enum ax_status drawn_body(struct ax_runtime *rt, void *ctx) {
    struct ax_step s;
    struct ax_step_options o = tiny_options(AX_F32, AX_RECOMPUTE_OFF, 1, lengths);
    const struct ax_peft_config c = lora();
    o.model.adapter = &c;
    o.model.base_store = AX_STORAGE_NF4;
    AX_TRY(ax_step_create(&s, rt, ctx, &o));
    enum ax_status st;
    AX_TRY_GOTO(ax_model_init_random(&s.model, 8), st, done);
    const struct ax_param *p = s.model.params;
    while (p->storage == AX_STORAGE_PLAIN)
        p++;
    struct ax_unit *unit = &s.model.units[p->unit];
    const int64_t n = ax_param_numel(p);
    struct ax_tensor out = ax_tensor_1d(AX_F32, NULL, n);
    out.data = ax_stack_push(&rt->arena.persistent, "decoded", ax_tensor_bytes(&out));
    AX_TRY_GOTO(ax_unit_gather(unit, rt), st, done);
    const struct ax_packed packed = ax_unit_packed(unit, p);
    AX_TRY_GOTO(ax_packed_read(rt->q, &packed, &out), st, done);
    ax_unit_release(unit);
    if (ax_runtime_planning(rt))
        goto done;
    /* NF4's steps are at most 0.31 of a block's largest, here below 5 deviations */
    const struct ax_rng_key key = {8, 0, ax_hash32(p->name)};
    double worst = 0, largest = 0;
    for (int64_t i = 0; i < n; i++) {
        const double drawn = (double)ax_rng_normal(key, (uint64_t)i);
        const double got = (double)((const float *)out.data)[i] / s.model.arch.init_range;
        worst = fmax(worst, fabs(got - drawn));
        largest = fmax(largest, fabs(drawn));
    }
    if (largest < 2.5 || worst > 0.16 * largest)
        st = ax_error(AX_ERR_FAILED, "%s: off by %g of %g", p->name, worst, largest);
done:
    ax_step_free(&s);
    return st;
}

static void packed_bases_are_drawn_like_plain_ones(void **state) {
    (void)state;
    struct ax_arch arch;
    must(tiny_arch(&arch, "llama", false, ""));
    must(ax_runtime_run(&(struct ax_runtime_options){.backend = "ref", .threads = 1}, drawn_body,
                        &arch, NULL));
    ax_arch_free(&arch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LONG_TEST(cmocka_unit_test(gradients_are_difference_quotients)),
        LONG_TEST(cmocka_unit_test(recompute_and_threads_are_bitwise)),
        LONG_TEST(cmocka_unit_test(far_memory_is_bitwise)),
        cmocka_unit_test(steps_do_not_allocate),
        LONG_TEST(cmocka_unit_test(packing_and_accumulation_change_nothing)),
        cmocka_unit_test(dropout_follows_the_seed),
        cmocka_unit_test(the_base_is_frozen),
        cmocka_unit_test(packed_bases_are_drawn_like_plain_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
