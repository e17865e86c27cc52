/* A mixture of experts over several ranks (threads of this process): loss, balancing loss, norm and
 * every gathered gradient equal one rank that accumulates the same micro-batches. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "parallel/fabric/comm_local.h"
#include "tests/tiny.h"

#define MICRO  4 /* in a step, over all data ranks */
#define DOCS   3
#define TOKENS 24 /* of a micro-batch, padding included */

static const int64_t lengths[MICRO][DOCS] = {{9, 1, 6}, {12, 5, 4}, {3, 3, 2}, {14, 2, 8}};
#define MASKED 1 /* this micro-batch has no label at all */

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

struct runs {
    struct ax_arch arch;
    struct ax_mesh_sizes sizes;
    const char *backend;
    enum ax_dtype dtype;
    enum ax_recompute recompute;
    bool zero_routers; /* all tokens go to the first experts */
    double room;       /* of a round; 0 = the default */
    bool no_experts;   /* their gradients are left out */
    /* out */
    double *grads; /* gathered, parameter after parameter */
    double loss, aux_loss, norm;
    int rounds; /* the most of any layer, in the last micro-batch */
};

static enum ax_status fill(struct ax_batch *b, struct ax_queue *q, int micro, int64_t vocab) {
    int32_t tokens[DOCS][TOKENS], labels[DOCS][TOKENS];
    float weight[DOCS][TOKENS];
    struct ax_document docs[DOCS];
    for (int d = 0; d < DOCS; d++) {
        for (int64_t i = 0; i < lengths[micro][d]; i++) {
            const struct ax_rng_key key = {7, (uint32_t)(micro * DOCS + d), 1};
            const uint64_t k = (uint64_t)i * 4;
            const bool masked = micro == MASKED || ax_rng_below(key, k + 2, 3) == 0;
            tokens[d][i] = (int32_t)ax_rng_below(key, k, (uint64_t)vocab);
            labels[d][i] = masked ? -1 : (int32_t)ax_rng_below(key, k + 1, (uint64_t)vocab);
            weight[d][i] = 0.5f + ax_rng_uniform(key, k + 3);
        }
        docs[d] = (struct ax_document){
            .n = lengths[micro][d], .tokens = tokens[d], .labels = labels[d], .weight = weight[d]};
    }
    return ax_batch_fill(b, q, vocab, DOCS, docs);
}

static void zero_routers(struct ax_model *m) {
    for (int i = 0; i < m->n_params; i++) {
        const struct ax_param *p = &m->params[i];
        struct ax_unit *unit = &m->units[p->unit];
        int64_t first, n, at;
        if (!strstr(p->name, ".gate.weight"))
            continue;
        ax_unit_owned(unit, &m->rt->mesh, p, &first, &n, &at);
        for (int64_t k = 0; k < n; k++)
            ax_store(m->dtype, unit->segments[p->segment].shard.data, at + k, 0);
    }
}

/* Of values that several ranks have, one writes. */
static bool writes(const struct ax_mesh *mesh, const struct ax_param *p) {
    return mesh->coord[AX_ROLE_DP_REPLICATE] == 0 &&
           (p->expert || p->tp_dim >= 0 || mesh->coord[AX_ROLE_TP] == 0);
}

static void gather(struct runs *r, const struct ax_model *m) {
    const struct ax_mesh *mesh = &m->rt->mesh;
    int64_t from = 0;
    for (int i = 0; i < m->n_params; i++) {
        const struct ax_param *p = &m->params[i];
        const struct ax_unit *unit = &m->units[p->unit];
        const struct ax_tensor *grad = &unit->segments[p->segment].grad;
        int64_t first, n, at, run;
        ax_unit_owned(unit, mesh, p, &first, &n, &at);
        for (int64_t k = 0; k < n && writes(mesh, p) && !(p->expert && r->no_experts); k++)
            r->grads[from + ax_param_global_index(p, mesh, first + k, &run)] =
                ax_load(grad->dtype, grad->data, at + k);
        from += ax_param_numel(p);
    }
}

/* The host waits for the counts of each layer and micro-batch, if rows travel, and for the step. */
static enum ax_status check_waits(const struct ax_step *s, uint64_t waits) {
    uint64_t layers = 0;
    for (int i = 0; i < s->model.n_units - 2; i++)
        layers += s->model.layers[i].moe.router != NULL;
    const uint64_t counts = s->model.experts.ranks > 1 ? layers * (uint64_t)s->o.n_microbatches : 0;
    if (waits == counts + 1)
        return AX_OK;
    return ax_error(AX_ERR_FAILED, "%llu waits in a step of %llu layers with experts, %d batches",
                    (unsigned long long)waits, (unsigned long long)layers, s->o.n_microbatches);
}

static int most_rounds(const struct ax_step *s) {
    int most = 1;
    for (int64_t i = 0; s->slots[0].expert_rounds && i < s->model.arch.n_layers; i++)
        most = s->slots[0].expert_rounds[i].n > most ? s->slots[0].expert_rounds[i].n : most;
    return most;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct runs *r = ctx;
    struct ax_step s;
    struct ax_step_result result;
    const struct ax_mesh *mesh = &rt->mesh;
    const int micro = MICRO / mesh->size[AX_ROLE_BATCH];
    struct ax_step_options o = {.model.dtype = r->dtype,
                                .recompute = r->recompute,
                                .optimizer = &ax_optimizer_sgd,
                                .objective = &ax_objective_sft,
                                .max_norm = 1,
                                .balance_coef = 0.4,
                                .model.expert_room = r->room,
                                .n_microbatches = micro,
                                .tokens = TOKENS,
                                .n_docs = DOCS,
                                .max_len = TOKENS};
    AX_TRY(ax_step_create(&s, rt, &r->arch, &o));
    enum ax_status st;
    ax_model_init_random(&s.model, 5);
    if (r->zero_routers && !ax_runtime_planning(rt))
        zero_routers(&s.model);
    for (int m = 0; m < micro; m++)
        AX_TRY_GOTO(
            fill(&s.batches[m], rt->q, mesh->coord[AX_ROLE_BATCH] * micro + m, r->arch.vocab_size),
            st, done);
    const uint64_t waits = rt->q->counters.waits;
    AX_TRY_GOTO(ax_step_gradients(&s, &result), st, done);
    AX_TRY_GOTO(check_waits(&s, rt->q->counters.waits - waits), st, done);
    if (ax_runtime_planning(rt))
        goto done;
    gather(r, &s.model);
    if (mesh->rank == mesh->world - 1) {
        r->rounds = most_rounds(&s);
        r->loss = result.loss;
        r->aux_loss = result.aux_loss;
        r->norm = result.grad_norm;
    }
done:
    ax_step_free(&s);
    return st;
}

static enum ax_status one_rank(struct ax_fabric *fabric, void *ctx) {
    struct runs *r = ctx;
    const struct ax_runtime_options o = {
        .backend = r->backend, .threads = 1, .sizes = r->sizes, .fabric = fabric};
    return ax_runtime_run(&o, body, r, NULL);
}

static int world_of(const struct ax_mesh_sizes *s) {
    return s->pp * s->dp_replicate * s->dp_shard * s->cp * s->tp;
}

/* ax_free(r->grads) afterwards. */
static void run(struct runs *r) {
    must(ax_alloc(&r->grads, (size_t)ax_arch_parameters(&r->arch), sizeof *r->grads));
    const int world = world_of(&r->sizes);
    if (world > 1)
        must(ax_local_run(world, NULL, one_rank, r));
    else
        must(one_rank(NULL, r));
}

static void compare(const struct runs *got, const struct runs *want, double tolerance) {
    const struct ax_mesh_sizes *s = &got->sizes;
    double diff = 0, norm = 0;
    assert_true(isfinite(want->loss) && want->loss > 0 && want->aux_loss > 0.99);
    for (int64_t i = 0; i < ax_arch_parameters(&got->arch); i++) {
        diff += pow(got->grads[i] - want->grads[i], 2);
        norm += pow(want->grads[i], 2);
        if (want->grads[i] == 0 && got->grads[i] != 0) /* an expert without tokens */
            fail_msg("gradient %lld is %g instead of 0", (long long)i, got->grads[i]);
    }
    const double worst[] = {sqrt(diff / norm), fabs(got->loss / want->loss - 1),
                            fabs(got->aux_loss / want->aux_loss - 1),
                            fabs(got->norm / want->norm - 1)};
    for (int i = 0; i < 4; i++)
        if (!(worst[i] <= tolerance))
            fail_msg(
                "dp_replicate %d dp_shard %d cp %d tp %d ep %d: gradients %.3g, loss %.3g, aux "
                "%.3g, norm %.3g apart",
                s->dp_replicate, s->dp_shard, s->cp, s->tp, s->ep, worst[0], worst[1], worst[2],
                worst[3]);
}

static const char six[] = ", \"num_local_experts\": 6, \"num_experts_per_tok\": 3";
static const char eight[] = ", \"num_experts\": 8, \"num_experts_per_tok\": 2, "
                            "\"moe_intermediate_size\": 24, \"mlp_only_layers\": [1]";

/* pp, dp_replicate, dp_shard, cp, tp, ep */
static const struct {
    const char *type, *extra;
    struct ax_mesh_sizes sizes;
} cases[] = {
    {"mixtral", six, {1, 1, 2, 1, 1, 2}},     {"qwen3_moe", eight, {1, 1, 4, 1, 1, 4}},
    {"qwen3_moe", eight, {1, 1, 4, 1, 1, 2}}, {"mixtral", six, {1, 2, 2, 1, 1, 2}},
    {"qwen3_moe", eight, {1, 1, 1, 1, 2, 2}}, {"mixtral", six, {1, 1, 1, 2, 1, 2}},
    {"mixtral", six, {1, 1, 1, 1, 2, 1}},     {"qwen3_moe", eight, {1, 1, 2, 1, 2, 4}},
    {"mixtral", six, {1, 1, 2, 1, 1, 1}},
};
#define N_CASES (sizeof cases / sizeof *cases)

static void check_case(size_t i, struct runs like, double tolerance) {
    const bool tied = i % 2 == 0;
    struct runs many = like;
    must(tiny_arch(&many.arch, cases[i].type, tied, cases[i].extra));
    struct runs one = many;
    one.sizes = (struct ax_mesh_sizes){1, 1, 1, 1, 1, 1};
    many.sizes = cases[i].sizes;
    run(&one);
    run(&many);
    compare(&many, &one, tolerance);
    ax_free(one.grads);
    ax_free(many.grads);
    ax_arch_free(&many.arch);
}

static void ranks_equal_one(void **state) {
    (void)state;
    for (size_t i = 0; i < N_CASES; i++)
        for (int zero = 0; zero < (i < 2 ? 2 : 1); zero++) {
            const struct runs like = {.backend = "ref",
                                      .dtype = AX_F64,
                                      .recompute = (enum ax_recompute)(i % 3),
                                      .zero_routers = zero == 1};
            check_case(i, like, 1e-11);
        }
}

/* ---- rounds ---- */

/* pp, dp_replicate, dp_shard, cp, tp, ep */
static const struct {
    const char *type, *extra;
    struct ax_mesh_sizes sizes;
    int most; /* rounds at a room of 0.3, if all tokens go to the first experts */
} round_cases[] = {
    {"mixtral", ", \"num_local_experts\": 6, \"num_experts_per_tok\": 1", {1, 1, 2, 1, 1, 2}, 7},
    {"qwen3_moe", eight, {1, 1, 2, 1, 2, 4}, 14},
    {"qwen3_moe", eight, {1, 1, 1, 2, 1, 2}, 7},
};
#define N_ROUND_CASES (sizeof round_cases / sizeof *round_cases)

/* However small the buffers are, and wherever the tokens go (to one expert, or one in eight), the
 * gradients are one rank's; the runtime compares memory with the plan. */
static void rounds_equal_one_rank(void **state) {
    (void)state;
    static const double rooms[] = {0.3, 1, 0};
    for (size_t i = 0; i < N_ROUND_CASES; i++)
        for (size_t k = 0; k < sizeof rooms / sizeof *rooms; k++)
            for (int zero = 0; zero < 2; zero++) {
                struct runs many = {.backend = "ref",
                                    .dtype = AX_F64,
                                    .recompute = (enum ax_recompute)((i + k) % 3),
                                    .zero_routers = zero == 1,
                                    .room = rooms[k]};
                must(tiny_arch(&many.arch, round_cases[i].type, true, round_cases[i].extra));
                struct runs one = many;
                one.sizes = (struct ax_mesh_sizes){1, 1, 1, 1, 1, 1};
                many.sizes = round_cases[i].sizes;
                run(&one);
                run(&many);
                compare(&many, &one, 1e-11);
                assert_int_equal(one.rounds, 1);
                assert_true(k == 2 || many.rounds > 1);
                if (zero == 1)
                    assert_in_range(many.rounds, k == 0 ? 3 : 2, round_cases[i].most);
                ax_free(one.grads);
                ax_free(many.grads);
                ax_arch_free(&many.arch);
            }
}

/* Rows are computed independently, so one round and several differ in the experts' own gradients
 * alone, which are sums over rounds. */
static void rounds_change_no_bit(void **state) {
    (void)state;
    struct runs one = {.backend = "cpu", .dtype = AX_F32, .room = 8, .no_experts = true}, many;
    must(tiny_arch(&one.arch, "qwen3_moe", false, eight));
    one.sizes = (struct ax_mesh_sizes){1, 1, 4, 1, 1, 4};
    many = one;
    many.room = 0.3;
    run(&one);
    run(&many);
    assert_int_equal(one.rounds, 1);
    assert_true(many.rounds > 3);
    assert_true(one.loss == many.loss && one.aux_loss == many.aux_loss);
    const size_t bytes = (size_t)ax_arch_parameters(&one.arch) * sizeof *one.grads;
    assert_memory_equal(one.grads, many.grads, bytes);
    ax_free(one.grads);
    ax_free(many.grads);
    ax_arch_free(&one.arch);
}

static void ranks_equal_one_in_float32(void **state) {
    (void)state;
    const struct runs like = {
        .backend = "cpu", .dtype = AX_F32, .recompute = AX_RECOMPUTE_SELECTIVE};
    check_case(0, like, 3e-5);
    check_case(1, like, 3e-5);
}

static void ep_must_divide_the_experts(void **state) {
    (void)state;
    struct ax_arch arch;
    must(tiny_arch(&arch, "mixtral", true, six));
    const struct ax_runtime_options o = {
        .backend = "ref", .sizes = {.dp_shard = 4, .ep = 4}, .world = 4};
    const struct ax_model_options mo = {.dtype = AX_F32, .max_positions = 8};
    struct ax_runtime rt;
    struct ax_model m;
    must(ax_runtime_open_planning(&rt, &o));
    assert_int_equal(ax_model_create(&m, &arch, &rt, &mo), AX_ERR_CONFIG);
    assert_non_null(strstr(ax_error_text(), "ep 4 does not divide the 6 experts. Nearest: ep 3"));
    ax_runtime_close(&rt);
    ax_arch_free(&arch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_equal_one),
        cmocka_unit_test(ranks_equal_one_in_float32),
        cmocka_unit_test(rounds_equal_one_rank),
        cmocka_unit_test(rounds_change_no_bit),
        cmocka_unit_test(ep_must_divide_the_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
