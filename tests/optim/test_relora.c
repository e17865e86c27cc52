/* ReLoRA: what a restart leaves of base, adapter and moments, against the same in double by hand;
 * which adapters it refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kernels/quant/dynamic_map.h"
#include "model/adapter/load.h"
#include "tests/tiny.h"

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* ---- steps ---- */

static const int64_t lengths[] = {9, 1, 6, 0};

/* A parameter, and its moments if it is trained. */
struct copy {
    int64_t n;
    double *w, *m, *v;
};

/* The element i of a moment. */
static double moment_at(const struct ax_param_state *s, int slot, int64_t i) {
    const struct ax_tensor *value = &s->slots[slot].value;
    if (s->n < 4)
        return ax_load(value->dtype, value->data, i);
    const struct ax_dynamic_map *map = slot == 0 ? &ax_dynamic_signed : &ax_dynamic_unsigned;
    const struct ax_tensor *scale = &s->slots[slot + 2].value;
    return (double)map->value[((const unsigned char *)value->data)[i]] *
           ax_load(scale->dtype, scale->data, (s->piece.phase + i) / AX_8BIT_BLOCK);
}

static double *read_tensor(const struct ax_tensor *t) {
    double *out;
    must(ax_alloc(&out, (size_t)ax_tensor_numel(t), sizeof *out));
    ax_convert(AX_F64, out, t->dtype, t->data, ax_tensor_numel(t));
    return out;
}

static struct copy copy_of(const struct ax_step *s, int i) {
    const struct ax_tensor w = ax_model_value(&s->model, &s->model.params[i]);
    struct copy c = {.n = ax_tensor_numel(&w), .w = read_tensor(&w)};
    must(ax_alloc(&c.m, (size_t)c.n, sizeof *c.m));
    must(ax_alloc(&c.v, (size_t)c.n, sizeof *c.v));
    for (int64_t k = 0; s->states[i].n > 0 && k < c.n; k++) {
        c.m[k] = moment_at(&s->states[i], 0, k);
        c.v[k] = moment_at(&s->states[i], 1, k);
    }
    return c;
}

static void free_copy(struct copy *c) {
    ax_free(c->w);
    ax_free(c->m);
    ax_free(c->v);
}

static int index_of(const struct ax_model *m, const char *name) {
    int i = 0;
    while (i < m->n_params && strcmp(m->params[i].name, name) != 0)
        i++;
    return i < m->n_params ? i : -1;
}

/* The parameter of a base matrix's adapter, "lora_A" or "lora_B"; −1: it has none. */
static int adapter_of(const struct ax_model *m, const struct ax_param *w, const char *which) {
    char name[2 * AX_NAME_MAX];
    const int stem = (int)(strlen(w->name) - strlen(".weight"));
    snprintf(name, sizeof name, AX_PEFT_PREFIX "%.*s.%s.weight", stem, w->name, which);
    return index_of(m, name);
}

/* size: what `within` is relative to. */
static void near(const char *what, const struct ax_param *p, const double *got, const double *want,
                 const double *size, int64_t n, double within) {
    for (int64_t k = 0; k < n; k++)
        if (!(fabs(got[k] - want[k]) <= within * size[k]))
            fail_msg("%s of %s, element %lld: %.17g, expected %.17g", what, p->name, (long long)k,
                     got[k], want[k]);
}

struct run {
    const struct ax_arch *arch;
    struct ax_step_options o;
    double within;         /* of the base; what the compute dtype rounds */
    int64_t merged, reset; /* matrices; moments that were not 0 */
};

static void check_reset(struct run *r, const struct ax_param *p, const double *got,
                        const double *before, int64_t n) {
    for (int64_t k = 0; k < n; k++) {
        r->reset += before[k] != 0;
        if (got[k] != 0)
            fail_msg("%s, element %lld: %.17g from %.17g", p->name, (long long)k, got[k],
                     before[k]);
    }
}

/* A is a new draw within its bounds, or normal; B is 0. */
static void check_new(const struct ax_model *m, const struct ax_param *p, const struct copy *now,
                      const struct copy *before) {
    const bool b = strstr(p->name, "lora_B") != NULL;
    const double bound = 1 / sqrt((double)p->shape[1]);
    double squares = 0;
    int64_t same = 0;
    for (int64_t k = 0; k < now->n; k++) {
        if (b)
            assert_true(now->w[k] == 0);
        else if (m->adapter->start == AX_LORA_USUAL)
            assert_true(fabs(now->w[k]) <= bound);
        squares += now->w[k] * now->w[k];
        same += !b && now->w[k] == before->w[k];
    }
    assert_int_equal(same, 0);
    const double spread =
        m->adapter->start == AX_LORA_USUAL ? bound / sqrt(3) : 1 / (double)p->shape[0];
    if (!b)
        assert_true(fabs(sqrt(squares / (double)now->n) / spread - 1) < 0.25);
}

static void check_restart(struct run *r, struct ax_step *s, int64_t number) {
    const struct ax_model *m = &s->model;
    struct copy *before, *now;
    must(ax_alloc(&before, (size_t)m->n_params, sizeof *before));
    must(ax_alloc(&now, (size_t)m->n_params, sizeof *now));
    for (int i = 0; i < m->n_params; i++)
        before[i] = copy_of(s, i);
    must(ax_step_restart(s, number));
    for (int i = 0; i < m->n_params; i++)
        now[i] = copy_of(s, i);
    for (int i = 0; i < m->n_params; i++) {
        const struct ax_param *p = &m->params[i];
        if (p->adapter) {
            check_new(m, p, &now[i], &before[i]);
            check_reset(r, p, now[i].m, before[i].m, now[i].n);
            check_reset(r, p, now[i].v, before[i].v, now[i].n);
            continue;
        }
        const int a = adapter_of(m, p, "lora_A"), b = adapter_of(m, p, "lora_B");
        double *size = before[i].m; /* |W| and the sum of the |products| */
        for (int64_t k = 0; k < now[i].n; k++)
            size[k] = fabs(before[i].w[k]);
        if (a >= 0) {
            const int64_t rank = m->params[a].shape[0], cols = p->shape[1];
            const double scale = m->adapter->alpha / (double)rank;
            for (int64_t k = 0; k < now[i].n; k++)
                for (int64_t j = 0; j < rank; j++) {
                    const double product =
                        scale * before[b].w[k / cols * rank + j] * before[a].w[j * cols + k % cols];
                    before[i].w[k] += product;
                    size[k] += fabs(product);
                }
            r->merged++;
        }
        near("base", p, now[i].w, before[i].w, size, now[i].n, a >= 0 ? r->within : 0);
    }
    for (int i = 0; i < m->n_params; i++) {
        free_copy(&before[i]);
        free_copy(&now[i]);
    }
    ax_free(before);
    ax_free(now);
}

/* AdamW by hand from the state that the restart left. */
static void check_update(struct ax_step *s) {
    const struct ax_optimizer_options *o = &s->o.opt;
    const struct ax_model *m = &s->model;
    struct ax_step_result r;
    struct copy *c;
    double **grads;
    must(ax_alloc(&c, (size_t)m->n_params, sizeof *c));
    must(ax_alloc(&grads, (size_t)m->n_params, sizeof *grads));
    must(ax_step_gradients(s, &r));
    for (int i = 0; i < m->n_params; i++) {
        const struct ax_tensor g = ax_model_grad(m, &m->params[i]);
        c[i] = copy_of(s, i);
        if (m->params[i].trainable)
            grads[i] = read_tensor(&g);
    }
    must(ax_step_update(s, 0.01, &r));
    const double b1 = 1 - pow(o->beta1, (double)s->count), b2 = 1 - pow(o->beta2, (double)s->count);
    for (int i = 0; i < m->n_params; i++) {
        const double decay = m->params[i].decay ? o->weight_decay : 0;
        for (int64_t k = 0; grads[i] && k < c[i].n; k++) {
            const double g = grads[i][k], mean = o->beta1 * c[i].m[k] + (1 - o->beta1) * g,
                         square = o->beta2 * c[i].v[k] + (1 - o->beta2) * g * g;
            c[i].w[k] -=
                0.01 * decay * c[i].w[k] + 0.01 * (mean / b1) / (sqrt(square / b2) + o->eps);
            c[i].v[k] = fmax(1, fabs(c[i].w[k]));
        }
        const struct ax_tensor w = ax_model_value(m, &m->params[i]);
        double *got = read_tensor(&w);
        near("update", &m->params[i], got, c[i].w, c[i].v, c[i].n, 1e-12);
        ax_free(got);
        ax_free(grads[i]);
        free_copy(&c[i]);
    }
    ax_free(grads);
    ax_free(c);
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct run *r = ctx;
    struct ax_step s;
    struct ax_step_result result;
    AX_TRY(ax_step_create(&s, rt, r->arch, &r->o));
    AX_TRY(ax_model_init_random(&s.model, 3));
    AX_TRY(ax_adapter_init(&s.model, 4));
    AX_TRY(ax_step_restore(&s, 0));
    AX_TRY(tiny_fill(&s, lengths, 3));
    if (ax_runtime_planning(rt)) {
        AX_TRY(ax_step_restart(&s, 1));
        AX_TRY(ax_step_run(&s, 0.01, &result));
        ax_step_free(&s);
        return AX_OK;
    }
    for (int64_t number = 1; number <= 3; number++) {
        for (int step = 0; step < 2; step++)
            AX_TRY(ax_step_run(&s, 0.01, &result));
        check_restart(r, &s, number);
        if (s.o.model.dtype == AX_F64)
            check_update(&s);
    }
    ax_step_free(&s);
    return AX_OK;
}

static void restart(enum ax_dtype dtype, enum ax_moments moments,
                    const struct ax_peft_config *adapter) {
    struct ax_arch arch;
    struct run r = {.arch = &arch,
                    .o = tiny_options(dtype, AX_RECOMPUTE_SELECTIVE, 2, lengths),
                    .within = dtype == AX_F64   ? 1e-14
                              : dtype == AX_F32 ? 0x1p-22
                                                : 0x1p-8};
    const struct ax_runtime_options ro = {.backend = dtype == AX_F64 ? "ref" : "cpu", .threads = 1};
    r.o.model.adapter = adapter;
    r.o.max_norm = 0;
    r.o.opt.moments = moments;
    r.o.relora = (struct ax_relora_options){.interval = 2};
    must(tiny_arch(&arch, "llama", false, ""));
    must(ax_runtime_run(&ro, body, &r, NULL));
    assert_int_equal(r.merged, 3 * (adapter->all_linear ? 7 * arch.n_layers : arch.n_layers + 1));
    assert_true(r.reset > 1000);
    ax_arch_free(&arch);
}

static char *some[] = {"down_proj", "lm_head"};
static const struct ax_peft_config linears = {.r = 3, .alpha = 6, .all_linear = true},
                                   others = {.r = 4,
                                             .alpha = 2,
                                             .start = AX_LORA_GAUSSIAN,
                                             .dropout = 0.1,
                                             .targets = {2, some}};

static void by_hand(void **state) {
    (void)state;
    restart(AX_F64, AX_MOMENTS_FULL, &linears);
    restart(AX_F64, AX_MOMENTS_FULL, &others);
}

static void in_every_precision(void **state) {
    (void)state;
    restart(AX_F32, AX_MOMENTS_FULL, &linears);
    restart(AX_BF16, AX_MOMENTS_FULL, &linears);
    restart(AX_BF16, AX_MOMENTS_BF16, &others);
    restart(AX_BF16, AX_MOMENTS_8BIT, &others);
}

/* ---- refusals ---- */

static void refused(const char *what, const char *extra, bool tied, enum ax_storage store,
                    const struct ax_peft_config *adapter) {
    struct ax_arch arch;
    struct ax_runtime rt;
    struct ax_step s;
    struct ax_step_options o = tiny_options(AX_F32, AX_RECOMPUTE_OFF, 1, lengths);
    must(tiny_arch(&arch, extra[0] ? "mixtral" : "llama", tied, extra));
    must(ax_runtime_open_planning(&rt, &(struct ax_runtime_options){.backend = "cpu"}));
    o.model.adapter = adapter;
    o.model.base_store = store;
    must(ax_step_create(&s, &rt, &arch, &o));
    ax_step_free(&s);
    o.relora.interval = 2;
    assert_true(ax_step_create(&s, &rt, &arch, &o) != AX_OK);
    if (!strstr(ax_error_text(), "relora: ") || !strstr(ax_error_text(), what))
        fail_msg("\"%s\" is not in: %s", what, ax_error_text());
    ax_runtime_close(&rt);
    ax_arch_free(&arch);
}

static void refusals(void **state) {
    (void)state;
    static char *embedding[] = {"embed_tokens"}, *head[] = {"lm_head"}, *norm[] = {"norm"},
                *experts[] = {"mlp.experts.down_proj"};
    struct ax_peft_config c = linears;
    refused("no adapter", "", false, AX_STORAGE_PLAIN, NULL);
    refused("load_in_4bit", "", false, AX_STORAGE_NF4, &c);
    c.dora = true;
    refused("DoRA", "", false, AX_STORAGE_PLAIN, &c);
    c = linears;
    c.start = AX_LORA_RANDOM;
    refused("peft_init_lora_weights", "", false, AX_STORAGE_PLAIN, &c);
    c = linears;
    c.save = (struct ax_peft_names){1, norm};
    refused("lora_modules_to_save", "", false, AX_STORAGE_PLAIN, &c);
    c = (struct ax_peft_config){.r = 2, .alpha = 2, .targets = {1, embedding}};
    refused("remove embed_tokens", "", false, AX_STORAGE_PLAIN, &c);
    c.targets.names = head;
    refused("remove lm_head", "", true, AX_STORAGE_PLAIN, &c);
    c = (struct ax_peft_config){.r = 2, .alpha = 2, .parameters = {1, experts}};
    refused("lora_target_parameters", ", \"num_local_experts\": 4, \"num_experts_per_tok\": 2",
            false, AX_STORAGE_PLAIN, &c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_hand),
        cmocka_unit_test(in_every_precision),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
