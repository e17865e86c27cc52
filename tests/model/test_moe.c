/* A mixture of experts in a whole model: gradients against finite differences, the same bits in
 * every recompute mode and for any number of threads, experts with all tokens and with none. (Over
 * several ranks: tests/model/test_moe_ranks.c.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tests/tiny.h"

static const int64_t lengths[] = {9, 1, 6, 0};

static const struct {
    const char *type, *extra;
    bool tied;
} models[] = {
    {"mixtral", ", \"num_local_experts\": 6", true},
    {"qwen3_moe",
     ", \"num_experts\": 8, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 24, "
     "\"mlp_only_layers\": [1]",
     false},
    {"qwen3_moe",
     ", \"num_experts\": 4, \"num_experts_per_tok\": 4, \"moe_intermediate_size\": 20, "
     "\"decoder_sparse_step\": 2, \"norm_topk_prob\": true",
     true},
};
#define N_MODELS (sizeof models / sizeof *models)

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* Tokens behind the documents are padding: they go to no expert and count in no balance. */
static struct ax_step_options options(enum ax_dtype dtype, enum ax_recompute recompute,
                                      double balance_coef) {
    struct ax_step_options o = tiny_options(dtype, recompute, 1, lengths);
    o.tokens += 3;
    o.balance_coef = balance_coef;
    return o;
}

struct probe {
    struct ax_arch arch;
    struct ax_step_options o;
    bool zero_routers;
    double worst;          /* of the differences */
    double loss, aux_loss; /* of one pass */
    double largest[16];    /* gradient by expert, over all layers */
    enum ax_status (*look)(struct probe *p, struct ax_step *s);
};

static enum ax_status trained_loss(struct probe *p, struct ax_step *s, double *loss) {
    struct ax_step_result r;
    AX_TRY(ax_step_gradients(s, &r));
    *loss = r.loss + p->o.balance_coef * r.aux_loss + p->o.sequence_coef * r.sequence_loss;
    p->loss = r.loss;
    p->aux_loss = r.aux_loss;
    return AX_OK;
}

/* Masters and compute copies. */
static void zero_routers(struct ax_model *m) {
    for (int i = 0; i < m->n_params; i++) {
        const struct ax_param *param = &m->params[i];
        const struct ax_segment *seg = &m->units[param->unit].segments[param->segment];
        if (!strstr(param->name, ".gate.weight"))
            continue;
        for (int64_t k = 0; k < ax_param_numel(param); k++) {
            ax_store(seg->compute, seg->shard.data, param->offset + k, 0);
            ax_store(seg->accum, seg->master.data, param->offset + k, 0);
        }
    }
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct probe *p = ctx;
    struct ax_step s;
    double loss;
    AX_TRY(ax_step_create(&s, rt, &p->arch, &p->o));
    enum ax_status st;
    ax_model_init_random(&s.model, 4);
    if (p->zero_routers && !ax_runtime_planning(rt))
        zero_routers(&s.model);
    AX_TRY_GOTO(tiny_fill(&s, lengths, 4), st, done);
    AX_TRY_GOTO(trained_loss(p, &s, &loss), st, done);
    if (!ax_runtime_planning(rt))
        st = p->look(p, &s);
done:
    ax_step_free(&s);
    return st;
}

static void run(struct probe *p, const char *backend) {
    const struct ax_runtime_options ro = {.backend = backend, .threads = 2};
    must(ax_runtime_run(&ro, body, p, NULL));
}

/* A few elements of every parameter, moved by ±h; all of the routers'. */
static enum ax_status differ(struct probe *p, struct ax_step *s) {
    const double h = 1e-5;
    double *grads;
    AX_TRY(ax_alloc(&grads, (size_t)ax_model_parameters(&s->model), sizeof *grads));
    enum ax_status st = AX_OK;
    int64_t from = 0;
    for (int i = 0; i < s->model.n_params; i++) {
        const struct ax_tensor g = ax_model_grad(&s->model, &s->model.params[i]);
        memcpy(grads + from, g.data, ax_tensor_bytes(&g));
        from += ax_tensor_numel(&g);
    }
    from = 0;
    for (int i = 0; i < s->model.n_params; i++) {
        const struct ax_tensor w = ax_model_value(&s->model, &s->model.params[i]);
        const int64_t n = ax_tensor_numel(&w);
        const int64_t tries = strstr(s->model.params[i].name, ".gate.weight") ? 6 : 1;
        double *v = w.data;
        for (int64_t k = 0; k < tries; k++) {
            const int64_t at = (n * k / tries + 5 * k + 1) % n;
            const double keep = v[at];
            double up, down;
            v[at] = keep + h;
            AX_TRY_GOTO(trained_loss(p, s, &up), st, done);
            v[at] = keep - h;
            AX_TRY_GOTO(trained_loss(p, s, &down), st, done);
            v[at] = keep;
            const double grad = grads[from + at];
            const double error = fabs((up - down) / (2 * h) - grad) / fmax(1, fabs(grad));
            p->worst = fmax(p->worst, error);
        }
        from += n;
    }
done:
    ax_free(grads);
    return st;
}

static enum ax_status look_away(struct probe *p, struct ax_step *s) {
    (void)p;
    (void)s;
    return AX_OK;
}

/* However many tokens of padding there are, the losses are the same bits. */
static void padding_goes_to_no_expert(void **state) {
    (void)state;
    for (size_t i = 0; i < N_MODELS; i++) {
        double loss = 0, aux = 0;
        for (int64_t padding = 0; padding <= 6; padding += 3) {
            struct probe p = {.look = look_away};
            must(tiny_arch(&p.arch, models[i].type, models[i].tied, models[i].extra));
            p.o = tiny_options(AX_F64, AX_RECOMPUTE_OFF, 1, lengths);
            p.o.tokens += padding;
            p.o.balance_coef = 0.3;
            run(&p, "ref");
            loss = padding == 0 ? p.loss : loss;
            aux = padding == 0 ? p.aux_loss : aux;
            assert_true(p.loss == loss && p.aux_loss == aux);
            ax_arch_free(&p.arch);
        }
    }
}

static void gradients_are_the_slope(void **state) {
    (void)state;
    for (size_t i = 0; i < N_MODELS; i++) {
        struct probe p = {.look = differ};
        must(tiny_arch(&p.arch, models[i].type, models[i].tied, models[i].extra));
        p.o = options(AX_F64, i == 1 ? AX_RECOMPUTE_ON : AX_RECOMPUTE_SELECTIVE, 0.3);
        p.o.sequence_coef = i == 2 ? 0 : 0.2;
        run(&p, "ref");
        if (p.worst > 1e-7)
            fail_msg("%s %zu: gradient off by %g", models[i].type, i, p.worst);
        assert_true(p.aux_loss >= 1); /* 1 = even, where k = 1; k at the least */
        ax_arch_free(&p.arch);
    }
}

static const struct {
    const char *backend;
    enum ax_dtype dtype;
} kinds[] = {{"ref", AX_F64}, {"cpu", AX_F32}, {"cpu", AX_BF16}};

static struct tiny_run small_run(const struct ax_arch *arch, enum ax_dtype dtype,
                                 enum ax_recompute mode) {
    struct tiny_run t = {.arch = arch, .lengths = lengths, .steps = 3, .seed = 6};
    t.o = options(dtype, mode, 0.01);
    return t;
}

static void recompute_and_threads_are_bitwise(void **state) {
    (void)state;
    struct ax_arch arch;
    for (size_t i = 0; i < N_MODELS; i++) {
        must(tiny_arch(&arch, models[i].type, models[i].tied, models[i].extra));
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            struct tiny_run first = small_run(&arch, kinds[k].dtype, AX_RECOMPUTE_OFF);
            must(tiny_run(&first, kinds[k].backend, 1));
            assert_true(isfinite(first.loss) && first.grads != 0);
            if (k > 0)
                assert_int_equal(first.fallbacks, 0);
            for (int mode = AX_RECOMPUTE_OFF; mode <= AX_RECOMPUTE_ON; mode++) {
                struct tiny_run other = small_run(&arch, kinds[k].dtype, (enum ax_recompute)mode);
                must(tiny_run(&other, kinds[k].backend, mode == AX_RECOMPUTE_ON ? 3 : 2));
                assert_true(other.grads == first.grads && other.masters == first.masters);
                assert_true(other.loss == first.loss);
            }
        }
        ax_arch_free(&arch);
    }
}

static void cpu_agrees_with_ref(void **state) {
    (void)state;
    struct ax_arch arch;
    for (size_t i = 0; i < N_MODELS; i++) {
        must(tiny_arch(&arch, models[i].type, models[i].tied, models[i].extra));
        struct tiny_run cpu = small_run(&arch, AX_F32, AX_RECOMPUTE_OFF);
        struct tiny_run ref = small_run(&arch, AX_F64, AX_RECOMPUTE_OFF);
        cpu.steps = ref.steps = 1;
        cpu.want_grads = ref.want_grads = true;
        must(tiny_run(&cpu, "cpu", 2));
        must(tiny_run(&ref, "ref", 1));
        assert_true(fabs(cpu.loss - ref.loss) < 2e-5);
        double diff = 0, norm = 0;
        for (int64_t g = 0; g < ref.n_grads; g++) {
            diff += pow(cpu.grad_values[g] - ref.grad_values[g], 2);
            norm += pow(ref.grad_values[g], 2);
        }
        if (sqrt(diff / norm) > 3e-5)
            fail_msg("%s %zu: gradients differ by %g", models[i].type, i, sqrt(diff / norm));
        ax_free(cpu.grad_values);
        ax_free(ref.grad_values);
        ax_arch_free(&arch);
    }
}

/* Number of the expert that a parameter belongs to, −1 = none. */
static int expert_of(const struct ax_param *p) {
    const char *at = strstr(p->name, "experts.");
    return at ? (int)strtol(at + 8, NULL, 10) : -1;
}

static enum ax_status look_at_experts(struct probe *p, struct ax_step *s) {
    memset(p->largest, 0, sizeof p->largest);
    for (int i = 0; i < s->model.n_params; i++) {
        const struct ax_tensor g = ax_model_grad(&s->model, &s->model.params[i]);
        const int e = expert_of(&s->model.params[i]);
        for (int64_t k = 0; e >= 0 && k < ax_tensor_numel(&g); k++)
            p->largest[e] = fmax(p->largest[e], fabs(ax_load(g.dtype, g.data, k)));
    }
    return AX_OK;
}

/* Routers of zeros make all probabilities equal: every token goes to the first experts, and the
 * others' gradients are exactly zero. */
static void all_tokens_to_the_first_experts(void **state) {
    (void)state;
    static const char *const chosen[] = {"1", "2"};
    for (int one = 0; one < 2; one++) {
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            char extra[128];
            snprintf(extra, sizeof extra, ", \"num_local_experts\": 6, \"num_experts_per_tok\": %s",
                     chosen[one]);
            struct probe p = {.look = look_at_experts, .zero_routers = true};
            must(tiny_arch(&p.arch, "mixtral", false, extra));
            p.o = options(kinds[k].dtype, AX_RECOMPUTE_SELECTIVE, 0);
            run(&p, kinds[k].backend);
            for (int e = 0; e < 6; e++)
                assert_true(e <= one ? p.largest[e] > 1e-6 : p.largest[e] == 0);
            assert_true(p.aux_loss == 0); /* not asked for */
            p.o.balance_coef = 1e-3;
            run(&p, kinds[k].backend);
            /* f = 1 for the chosen, P = 1/6 for all: 6·k·1/6 */
            assert_true(fabs(p.aux_loss - (one + 1)) < 1e-6);
            ax_arch_free(&p.arch);
        }
    }
}

/* Two micro-batches: each has its own balance, weighted as its labels are. */
static void each_micro_batch_is_balanced_alone(void **state) {
    (void)state;
    struct ax_arch arch;
    must(tiny_arch(&arch, "mixtral", true, ""));
    double aux[3], weight[2];
    for (int run_no = 0; run_no < 3; run_no++) {
        const struct ax_runtime_options ro = {.backend = "ref", .threads = 1};
        struct ax_runtime rt;
        struct ax_arena_plan plan;
        for (int pass = 0; pass < 2; pass++) {
            struct ax_step s;
            struct ax_step_result r;
            struct ax_step_options o = tiny_options(AX_F64, AX_RECOMPUTE_OFF, 2, lengths);
            o.balance_coef = 1;
            must(pass == 0 ? ax_runtime_open_planning(&rt, &ro)
                           : ax_runtime_open(&rt, &ro, &plan, 0));
            must(ax_step_create(&s, &rt, &arch, &o));
            ax_model_init_random(&s.model, 2);
            must(tiny_fill(&s, lengths, 2));
            if (run_no < 2) { /* only one of the two */
                must(ax_batch_fill(&s.batches[1 - run_no], rt.q, arch.vocab_size, 0, NULL));
                s.batches[1 - run_no].weight_total = 0;
            }
            must(ax_step_gradients(&s, &r));
            aux[run_no] = r.aux_loss;
            if (run_no < 2)
                weight[run_no] = s.batches[run_no].weight_total;
            ax_arena_measure(&rt.arena, &plan);
            ax_step_free(&s);
            ax_runtime_close(&rt);
        }
    }
    const double mean = (weight[0] * aux[0] + weight[1] * aux[1]) / (weight[0] + weight[1]);
    assert_true(fabs(aux[0] - aux[1]) > 1e-6 && weight[0] != weight[1]);
    assert_true(fabs(aux[2] - mean) < 1e-13);
    ax_arch_free(&arch);
}

/* ---- packed experts ---- */

struct numbers {
    double *values; /* of all parameters, one after the other */
    bool restore;
};

static struct numbers decoded;

/* What a packed parameter decodes to, or a plain one is. */
static enum ax_status read_numbers(struct ax_step *s, const struct ax_param *p, double *out) {
    struct ax_unit *unit = &s->model.units[p->unit];
    const int64_t n = ax_param_numel(p);
    enum ax_status st = AX_OK;
    AX_TRY(ax_unit_gather(unit, s->rt));
    if (ax_unit_is_packed(unit, p)) {
        const struct ax_packed packed = ax_unit_packed(unit, p);
        const struct ax_tensor into = ax_tensor_2d(AX_F64, out, p->shape[0], p->shape[1]);
        st = ax_packed_read(s->rt->q, &packed, &into);
    } else {
        const struct ax_tensor w = ax_unit_weight(unit, p);
        for (int64_t k = 0; k < n; k++)
            out[k] = ax_load(w.dtype, w.data, k);
    }
    ax_unit_release(unit);
    return st;
}

static enum ax_status exchange_numbers(struct probe *p, struct ax_step *s) {
    int64_t at = 0;
    double loss;
    for (int i = 0; i < s->model.n_params; i++) {
        const struct ax_param *param = &s->model.params[i];
        const struct ax_segment *seg = &s->model.units[param->unit].segments[param->segment];
        if (!decoded.restore)
            AX_TRY(read_numbers(s, param, decoded.values + at));
        for (int64_t k = 0; decoded.restore && k < ax_param_numel(param); k++)
            ax_store(AX_F64, seg->shard.data, param->offset + k, decoded.values[at + k]);
        at += ax_param_numel(param);
    }
    return trained_loss(p, s, &loss);
}

/* A model with packed experts is the model with the numbers that they decode to, to the bit. */
static void packed_experts_are_their_numbers(void **state) {
    (void)state;
    static const enum ax_storage stores[] = {AX_STORAGE_NF4, AX_STORAGE_NF4_DOUBLE,
                                             AX_STORAGE_INT8};
    for (size_t i = 0; i < N_MODELS; i++) {
        struct probe p = {.look = exchange_numbers};
        must(tiny_arch(&p.arch, models[i].type, false, models[i].extra));
        must(ax_alloc(&decoded.values, 1 << 20, sizeof(double)));
        p.o = options(AX_F64, (enum ax_recompute)i, 0.1);
        run(&p, "ref");
        const double unpacked = p.loss;
        p.o.model.base_store = stores[i];
        p.o.model.store_experts = true;
        decoded.restore = false;
        run(&p, "ref");
        const double loss = p.loss, aux = p.aux_loss;
        assert_true(loss < unpacked || loss > unpacked);
        p.o.model.base_store = AX_STORAGE_PLAIN;
        decoded.restore = true;
        run(&p, "ref");
        assert_true(!(p.loss < loss) && !(p.loss > loss));
        assert_true(!(p.aux_loss < aux) && !(p.aux_loss > aux));
        ax_free(decoded.values);
        ax_arch_free(&p.arch);
    }
}

/* What the probe's one step launched; bytes of the ops that move rows. */
static struct ax_queue_counters launched;

static enum ax_status look_at_launches(struct probe *p, struct ax_step *s) {
    (void)p;
    launched = s->model.rt->q->counters;
    return AX_OK;
}

static struct ax_queue_counters launches_with(struct ax_step_options o, int experts, int width,
                                              const char *dense) {
    char more[200];
    struct probe p = {.o = o, .look = look_at_launches};
    snprintf(more, sizeof more,
             ", \"num_experts\": %d, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": %d, "
             "\"mlp_only_layers\": %s",
             experts, width, dense);
    must(tiny_arch(&p.arch, "qwen3_moe", false, more));
    run(&p, "cpu");
    ax_arch_free(&p.arch);
    return launched;
}

static struct ax_queue_counters launches_of(const char *dense, enum ax_recompute recompute) {
    return launches_with(options(AX_F32, recompute, 0), 8, 24, dense);
}

/* On one rank a row goes to its expert and comes back, forward and backward: four moves of all rows in a
 * step, five if backward makes the experts' input again. */
static void rows_move_there_and_back(void **state) {
    (void)state;
    static const int moves[] = {AX_OP_scatter_rows, AX_OP_combine_forward, AX_OP_combine_backward,
                                AX_OP_copy};
    for (int mode = AX_RECOMPUTE_OFF; mode <= AX_RECOMPUTE_ON; mode++) {
        const int again = mode == AX_RECOMPUTE_ON ? 1 : mode == AX_RECOMPUTE_SELECTIVE ? 1 : 0;
        const int want[] = {1 + again, 2, 1, 0};
        const struct ax_queue_counters none = launches_of("[0, 1, 2]", (enum ax_recompute)mode);
        const struct ax_queue_counters two = launches_of("[1]", (enum ax_recompute)mode);
        const struct ax_queue_counters one = launches_of("[0, 1]", (enum ax_recompute)mode);
        assert_int_equal(none.launches[AX_OP_group_rows], 0);
        assert_int_equal(two.launches[AX_OP_group_rows], 2);
        for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
            const int op = moves[i];
            assert_int_equal(two.launches[op] - none.launches[op], 2 * want[i]);
            assert_true(two.bytes[op] - one.bytes[op] == one.bytes[op] - none.bytes[op]);
        }
    }
}

/* A step of more experts launches no more: neither for adapters of theirs, nor for packed matrices, nor for values of
 * a format. Matrices of 16 × 48 have no gaps between them. */
static void launches_do_not_grow_with_experts(void **state) {
    (void)state;
    static char *stacked[] = {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"};
    static const struct ax_peft_config lora = {.r = 4, .alpha = 8, .parameters = {2, stacked}};
    static const struct {
        bool adapters;
        enum ax_storage store;
        const char *scheme;
    } ways[] = {{false, AX_STORAGE_PLAIN, NULL},
                {true, AX_STORAGE_PLAIN, NULL},
                {true, AX_STORAGE_NF4, NULL},
                {true, AX_STORAGE_INT8, NULL},
                {false, AX_STORAGE_PLAIN, "int8"}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct ax_step_options o = options(AX_F32, AX_RECOMPUTE_ON, 0);
        struct ax_scheme scheme;
        if (ways[i].scheme) {
            must(ax_scheme_find("qat", ways[i].scheme, &scheme));
            o.model.qat = &scheme;
        }
        o.model.adapter = ways[i].adapters ? &lora : NULL;
        o.model.base_store = ways[i].store;
        o.model.store_experts = true;
        const struct ax_queue_counters few = launches_with(o, 4, 16, "[]"),
                                       many = launches_with(o, 16, 16, "[]");
        for (int op = 0; op < AX_OP_COUNT; op++)
            if (op != AX_OP_quantize && few.launches[op] != many.launches[op]) /* while it loads */
                fail_msg("way %zu: %s, %d launches with 4 experts, %d with 16", i,
                         ax_op_name((enum ax_op)op), (int)few.launches[op], (int)many.launches[op]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_move_there_and_back),
        cmocka_unit_test(launches_do_not_grow_with_experts),
        cmocka_unit_test(padding_goes_to_no_expert),
        cmocka_unit_test(packed_experts_are_their_numbers),
        cmocka_unit_test(gradients_are_the_slope),
        cmocka_unit_test(recompute_and_threads_are_bitwise),
        cmocka_unit_test(cpu_agrees_with_ref),
        cmocka_unit_test(all_tokens_to_the_first_experts),
        cmocka_unit_test(each_micro_batch_is_balanced_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
