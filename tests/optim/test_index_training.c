/* Training of indexers: their gradients against finite differences, however documents are spread and however many
 * chunks queries are cut into, with the same bits in any recompute mode; what trains, and what is refused. That the loss
 * is that of a program in float64 is in tests/goldens, and meshes are in tests/cmd/test_mesh_families.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "model/parts/index_training.h"
#include "tests/optim/tiny_case.h"

#define LATENT                                                                                     \
    ", \"q_lora_rank\": 9, \"kv_lora_rank\": 10, \"qk_nope_head_dim\": 7, \"qk_rope_head_dim\": "  \
    "6, \"v_head_dim\": 5, \"n_routed_experts\": 8, \"n_group\": 1, \"topk_group\": 1, "           \
    "\"num_experts_per_tok\": 3, \"moe_intermediate_size\": 22, \"first_k_dense_replace\": 2"
#define INDEX   ", \"index_n_heads\": 3, \"index_head_dim\": 9, \"index_topk\": 5"
#define SHARING ", \"index_topk_pattern\": \"FSF\""

static struct tiny_run run_of(const struct ax_arch *arch, enum ax_indexer_mode mode,
                              enum ax_dtype dtype, int micro, const int64_t *of) {
    struct tiny_run t = tiny_step(arch, dtype, micro, of);
    t.o.model.indexers = mode;
    t.o.index_coef = 0.6;
    return t;
}

static bool of_indexer(const struct ax_param *p) {
    return strstr(p->name, ".indexer.") != NULL;
}

/* ---- gradients ---- */

struct probe {
    const struct ax_arch *arch;
    struct ax_step_options o;
    double worst, largest; /* of the differences; of the gradients */
    int tried;
};

/* coef · Σ of the divergences of all indexers. */
static enum ax_status loss_of(struct ax_step *s, double *out) {
    struct ax_step_result r;
    int n = 0;
    AX_TRY(ax_step_gradients(s, &r));
    for (int i = 0; i < s->model.arch.n_layers; i++)
        n += ax_index_trains(&s->model.layers[i]);
    *out = s->o.index_coef * r.index_loss * n;
    return AX_OK;
}

/* Three elements of a parameter, moved by ±h; grad: the parameter's gradient. */
static enum ax_status differ(struct probe *p, struct ax_step *s, const struct ax_param *param,
                             const double *grad) {
    const double h = 1e-5;
    const struct ax_tensor value = ax_model_value(&s->model, param);
    const int64_t n = ax_tensor_numel(&value);
    double *v = value.data, up, down;
    for (int64_t k = 0; k < 3; k++) {
        const int64_t at = (n * k / 3 + 5 * k + 1) % n;
        const double keep = v[at];
        v[at] = keep + h;
        AX_TRY(loss_of(s, &up));
        v[at] = keep - h;
        AX_TRY(loss_of(s, &down));
        v[at] = keep;
        p->largest = fmax(p->largest, fabs(grad[at]));
        p->worst = fmax(p->worst, fabs((up - down) / (2 * h) - grad[at]));
        p->tried++;
    }
    return AX_OK;
}

/* All parameters of indexers. */
static enum ax_status differ_all(struct probe *p, struct ax_step *s) {
    double *grads;
    enum ax_status st = AX_OK;
    int64_t from = 0;
    AX_TRY(ax_alloc(&grads, (size_t)ax_model_trainable(&s->model), sizeof *grads));
    for (int pass = 0; pass < 2; pass++, from = 0) /* further steps add to gradients */
        for (int i = 0; i < s->model.n_params && st == AX_OK; i++) {
            const struct ax_param *param = &s->model.params[i];
            const struct ax_tensor g = ax_model_grad(&s->model, param);
            if (!g.data)
                continue;
            if (pass == 0)
                memcpy(grads + from, g.data, ax_tensor_bytes(&g));
            else if (of_indexer(param))
                st = differ(p, s, param, grads + from);
            from += ax_tensor_numel(&g);
        }
    ax_free(grads);
    return st;
}

static enum ax_status probe_body(struct ax_runtime *rt, void *ctx) {
    struct probe *p = ctx;
    struct ax_step s;
    double loss;
    AX_TRY(ax_step_create(&s, rt, p->arch, &p->o));
    enum ax_status st = ax_model_init_random(&s.model, 4);
    for (int i = 0; st == AX_OK && i < s.model.n_params && !ax_runtime_planning(rt); i++)
        if (strstr(s.model.params[i].name, "self_attn") && s.model.params[i].ndim == 2)
            st = ax_model_draw(&s.model, &s.model.params[i], AX_VALUES_NORMAL, 0.4, 3);
    if (st == AX_OK)
        st = tiny_fill(&s, lengths, 4);
    if (st == AX_OK)
        st = loss_of(&s, &loss);
    if (st == AX_OK && !ax_runtime_planning(rt))
        st = differ_all(p, &s);
    ax_step_free(&s);
    return st;
}

static void gradients_are_differences(void **state) {
    (void)state;
    static const char *const extra[] = {LATENT INDEX, LATENT INDEX SHARING};
    static const char *const types[] = {"deepseek_v32", "glm_moe_dsa"};
    const struct ax_runtime_options ro = {.backend = "ref", .threads = 1};
    for (int i = 0; i < 4; i++) {
        struct ax_arch arch;
        const enum ax_indexer_mode mode = i < 2 ? AX_INDEXERS_WARM_UP : AX_INDEXERS_SPARSE;
        must(tiny_arch(&arch, types[i % 2], false, extra[i % 2]));
        struct probe p = {.arch = &arch, .o = run_of(&arch, mode, AX_F64, 1, lengths).o};
        must(ax_runtime_run(&ro, probe_body, &p, NULL));
        assert_int_equal(p.tried, 3 * 5 * (i % 2 ? 2 : 3));
        if (!(p.worst < 1e-8 && p.largest > 1e-3))
            fail_msg("%s: off by %g, of gradients up to %g", types[i % 2], p.worst, p.largest);
        ax_arch_free(&arch);
    }
}

/* The loss of tokens has the gradients that it has while indexers are frozen. */
static void other_gradients_are_those_of_frozen_indexers(void **state) {
    (void)state;
    struct ax_arch arch;
    must(tiny_arch(&arch, "deepseek_v32", false, LATENT INDEX));
    struct tiny_run frozen = run_of(&arch, AX_INDEXERS_FROZEN, AX_F64, 1, lengths),
                    with = run_of(&arch, AX_INDEXERS_SPARSE, AX_F64, 1, lengths);
    must(tiny_run(&frozen, "ref", 1));
    must(tiny_run(&with, "ref", 1));
    assert_true(with.loss == frozen.loss && with.grad_norm > frozen.grad_norm);
    double squares = 0, all = 0;
    int64_t k = 0;
    for (int64_t i = 0; i < with.n_grads; i++) { /* those of indexers are between */
        const double g = with.grad_values[i];
        const bool same = k < frozen.n_grads && g == frozen.grad_values[k];
        squares += same ? 0 : g * g;
        all += g * g;
        k += same;
    }
    assert_int_equal(k, frozen.n_grads);
    assert_true(squares > 0 && fabs(with.grad_norm - sqrt(all)) < 1e-12);
    ax_free(frozen.grad_values);
    ax_free(with.grad_values);
    ax_arch_free(&arch);
}

static void packed_documents_are_those_alone(void **state) {
    (void)state;
    struct ax_arch arch;
    must(tiny_arch(&arch, "deepseek_v32", false, LATENT INDEX));
    for (int mode = AX_INDEXERS_WARM_UP; mode <= AX_INDEXERS_SPARSE; mode++)
        for (size_t k = 0; k < N_PACKINGS; k++) {
            struct tiny_run one = run_of(&arch, (enum ax_indexer_mode)mode, AX_F64, 1,
                                         packings[k].together),
                            more = run_of(&arch, (enum ax_indexer_mode)mode, AX_F64,
                                          packings[k].micro, packings[k].apart);
            expect_same_gradients(&one, &more, "ref", 1, 1e-12);
        }
    ax_arch_free(&arch);
}

/* Pairs of queries and keys are several tables: of a document of 3,000 tokens, and of padding behind it; and of three
 * documents, where those of later queries begin with a later key. */
static void chunks_change_nothing(void **state) {
    (void)state;
    static const int64_t row[] = {3000, 0}, three[] = {1000, 1000, 1000, 0}, alone[] = {1000, 0};
    struct ax_arch arch;
    must(tiny_arch(&arch, "deepseek_v32", false, LATENT INDEX));
    struct tiny_run one = run_of(&arch, AX_INDEXERS_WARM_UP, AX_F32, 1, row), padded = one;
    padded.o.tokens = 7000;
    expect_same_gradients(&padded, &one, "cpu", 2, 1e-4);
    struct tiny_run together = run_of(&arch, AX_INDEXERS_WARM_UP, AX_F32, 1, three),
                    apart = run_of(&arch, AX_INDEXERS_WARM_UP, AX_F32, 3, alone);
    expect_same_gradients(&together, &apart, "cpu", 2, 1e-4);
    ax_arch_free(&arch);
}

static void recompute_changes_no_bit(void **state) {
    (void)state;
    static const enum ax_dtype dtypes[] = {AX_F32, AX_BF16};
    struct ax_arch arch;
    must(tiny_arch(&arch, "glm_moe_dsa", false, LATENT INDEX SHARING));
    for (int mode = AX_INDEXERS_WARM_UP; mode <= AX_INDEXERS_SPARSE; mode++)
        for (int i = 0; i < 2; i++)
            recompute_keeps_bits(run_of(&arch, (enum ax_indexer_mode)mode, dtypes[i], 2, lengths));
    ax_arch_free(&arch);
}

/* ---- what trains ---- */

struct count {
    const struct ax_arch *arch;
    struct ax_model_options o;
    int indexers, others; /* that train */
};

static enum ax_status count_trained(struct ax_runtime *rt, void *ctx) {
    struct count *c = ctx;
    struct ax_model m;
    c->indexers = c->others = 0;
    AX_TRY(ax_model_create(&m, c->arch, rt, &c->o));
    for (int i = 0; i < m.n_params; i++)
        *(of_indexer(&m.params[i]) ? &c->indexers : &c->others) += m.params[i].trainable;
    ax_model_free(&m);
    return AX_OK;
}

static void modes_say_what_trains(void **state) {
    (void)state;
    static char *keys[] = {"model.layers.2.self_attn.indexer.wk"};
    static const struct ax_peft_names one = {1, keys};
    const struct ax_runtime_options ro = {.backend = "ref", .threads = 1};
    struct ax_arch arch;
    must(tiny_arch(&arch, "glm_moe_dsa", false, LATENT INDEX SHARING));
    struct count c = {.arch = &arch, .o = {.dtype = AX_F64, .train = true, .max_positions = 32}};
    must(ax_runtime_run(&ro, count_trained, &c, NULL));
    assert_int_equal(c.indexers, 0);
    const int others = c.others;
    c.o.indexers = AX_INDEXERS_WARM_UP;
    must(ax_runtime_run(&ro, count_trained, &c, NULL));
    assert_true(c.indexers == 2 * 5 && c.others == 0); /* layers 0 and 2 */
    c.o.indexers = AX_INDEXERS_SPARSE;
    must(ax_runtime_run(&ro, count_trained, &c, NULL));
    assert_true(c.indexers == 2 * 5 && c.others == others);
    c.o.unfrozen = &one;
    must(ax_runtime_run(&ro, count_trained, &c, NULL));
    assert_true(c.indexers == 1 && c.others == 0);
    ax_arch_free(&arch);
}

static void others_are_refused(void **state) {
    (void)state;
    static char *all[] = {".*"};
    static const struct ax_peft_names patterns = {1, all};
    static const struct ax_peft_config adapter = {.r = 2, .alpha = 4, .all_linear = true};
    const struct ax_runtime_options ro = {.backend = "ref", .threads = 1};
    struct ax_arch dense, sparse;
    must(tiny_arch(&dense, "deepseek_v3", false, LATENT));
    must(tiny_arch(&sparse, "deepseek_v32", false, LATENT INDEX));
    static const char *const words[] = {"deepseek_v3 models have no indexers",
                                        "an adapter is saved without the model's indexers",
                                        "warm_up trains indexers alone"};
    for (int i = 0; i < 3; i++) {
        struct tiny_run t =
            run_of(i == 0 ? &dense : &sparse, AX_INDEXERS_WARM_UP, AX_F32, 1, lengths);
        t.o.model.adapter = i == 1 ? &adapter : NULL;
        t.o.model.unfrozen = i == 2 ? &patterns : NULL;
        assert_int_equal(ax_runtime_run(&ro, tiny_create, &t, NULL),
                         i == 1 ? AX_ERR_UNSUPPORTED : AX_ERR_CONFIG);
        if (!strstr(ax_error_text(), words[i]))
            fail_msg("\"%s\" is not in: %s", words[i], ax_error_text());
        ax_error_clear();
    }
    ax_arch_free(&dense);
    ax_arch_free(&sparse);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_differences),
        cmocka_unit_test(other_gradients_are_those_of_frozen_indexers),
        cmocka_unit_test(packed_documents_are_those_alone),
        cmocka_unit_test(chunks_change_nothing),
        cmocka_unit_test(recompute_changes_no_bit),
        cmocka_unit_test(modes_say_what_trains),
        cmocka_unit_test(others_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
