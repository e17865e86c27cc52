/* Plans: what they say, for shapes nobody here could run, and that reality equals them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text/json.h"
#include "optim/plan/plan.h"
#include "parallel/fabric/comm_local.h"
#include "tests/tiny.h"

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

static void llama(struct ax_arch *arch, int hidden, int inner, int layers, int heads, int vocab) {
    char text[512];
    snprintf(text, sizeof text,
             "{\"model_type\": \"llama\", \"hidden_size\": %d, \"intermediate_size\": %d, "
             "\"num_hidden_layers\": %d, \"num_attention_heads\": %d, \"num_key_value_heads\": 8, "
             "\"vocab_size\": %d, \"max_position_embeddings\": 131072}",
             hidden, inner, layers, heads, vocab);
    struct ax_json_doc doc;
    must(ax_json_parse(&doc, "llama", text, strlen(text)));
    must(ax_arch_parse(arch, ax_json_root(&doc)));
    ax_json_free(&doc);
}

static size_t block(const struct ax_plan *p, const char *name) {
    for (int i = 0; i < p->blocks.n; i++)
        if (strcmp(p->blocks.list[i].name, name) == 0)
            return p->blocks.list[i].bytes;
    return 0;
}

static void big_models(void **state) {
    (void)state;
    static const int64_t lengths[] = {2048, 0};
    static const struct {
        int hidden, inner, layers, heads;
        int64_t parameters;
    } models[] = {{4096, 14336, 32, 32, 8030261248}, {16384, 53248, 126, 128, 405853388800}};
    for (int i = 0; i < 2; i++) {
        struct ax_arch arch;
        struct ax_plan plan;
        llama(&arch, models[i].hidden, models[i].inner, models[i].layers, models[i].heads, 128256);
        const struct ax_runtime_options ro = {.backend = "cpu", .threads = 2};
        const struct ax_step_options so = tiny_options(AX_BF16, AX_RECOMPUTE_ON, 1, lengths);
        must(ax_plan_make(&plan, &ro, &arch, &so));
        assert_int_equal(plan.parameters, models[i].parameters);
        /* 2 + 4 + 4 + 4 + 4 bytes a parameter; padding of each parameter's start only */
        const size_t n = (size_t)plan.parameters;
        assert_in_range(block(&plan, "weights"), 2 * n, 2 * n + n / 1000);
        assert_in_range(block(&plan, "masters"), 4 * n, 4 * n + n / 1000);
        assert_in_range(block(&plan, "gradients"), 4 * n, 4 * n + n / 1000);
        assert_in_range(block(&plan, "exp_avg"), 4 * n, 4 * n + n / 1000);
        /* recompute on: one residual of [T][D] per layer and the embedding, in float32 */
        assert_int_equal(block(&plan, "residual"),
                         4 * 2048 * (size_t)arch.hidden_size * (size_t)(arch.n_layers + 1));
        /* forward 2N, backward 4N, recompute 2N less the last projection of each layer */
        const double ratio = plan.flops / plan.model_flops;
        assert_true(ratio > 1.2 && ratio < 1.35);
        ax_arch_free(&arch);
    }
}

/* Ranks that compute the same tokens share what the method needs. */
static void a_rank_is_compared_with_its_share(void **state) {
    (void)state;
    static const struct ax_mesh_sizes meshes[] = {{.tp = 2}, {.cp = 2}, {.dp_shard = 2}};
    static const int64_t lengths[] = {512, 0};
    struct ax_arch arch;
    struct ax_plan plan;
    llama(&arch, 256, 1024, 4, 8, 4096);
    struct ax_runtime_options ro = {.backend = "cpu", .threads = 2};
    const struct ax_step_options so = tiny_options(AX_BF16, AX_RECOMPUTE_OFF, 1, lengths);
    must(ax_plan_make(&plan, &ro, &arch, &so));
    const double one = plan.flops / plan.model_flops, needed = plan.model_flops;
    ro.world = 2;
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        ro.sizes = meshes[i];
        must(ax_plan_make(&plan, &ro, &arch, &so));
        const double ratio = plan.flops / plan.model_flops;
        assert_true(ratio > 0.9 * one && ratio < 1.1 * one);
        assert_true(plan.model_flops == (meshes[i].dp_shard == 2 ? needed : needed / 2));
    }
    ax_arch_free(&arch);
}

/* The same 8 billion parameters with as little state as there is: 2 + 2 bytes of weights, 1 + 1 of
 * moments and 4 + 4 for each 256 of them. */
static void small_state(void **state) {
    (void)state;
    static const int64_t lengths[] = {2048, 0};
    struct ax_arch arch;
    struct ax_plan plan;
    llama(&arch, 4096, 14336, 32, 32, 128256);
    const struct ax_runtime_options ro = {.backend = "cpu", .threads = 2};
    struct ax_step_options so = tiny_options(AX_BF16, AX_RECOMPUTE_ON, 1, lengths);
    must(ax_optimizer_find("adamw_bnb_8bit", &so.optimizer, &so.opt));
    so.model.masters = AX_MASTERS_REMAINDER;
    must(ax_plan_make(&plan, &ro, &arch, &so));
    const size_t n = (size_t)plan.parameters, more = n / 1000;
    assert_in_range(block(&plan, "weights"), 2 * n, 2 * n + more);
    assert_in_range(block(&plan, "master remainders"), 2 * n, 2 * n + more);
    assert_int_equal(block(&plan, "masters"), 0);
    static const char *const moments[] = {"exp_avg", "exp_avg_sq"};
    static const char *const scales[] = {"exp_avg_scale", "exp_avg_sq_scale"};
    for (int k = 0; k < 2; k++) {
        assert_in_range(block(&plan, moments[k]), n, n + more);
        assert_in_range(block(&plan, scales[k]), n / 64, n / 64 + more);
    }
    ax_arch_free(&arch);
}

/* FLOPs of a step without recompute: 6 per matrix parameter and token, and attention. */
static void flops_are_the_formula(void **state) {
    (void)state;
    static const int64_t lengths[] = {512, 0};
    struct ax_arch arch;
    struct ax_plan plan;
    llama(&arch, 1024, 4096, 4, 16, 32000);
    const struct ax_runtime_options ro = {.backend = "cpu", .threads = 2};
    const struct ax_step_options so = tiny_options(AX_F32, AX_RECOMPUTE_OFF, 1, lengths);
    must(ax_plan_make(&plan, &ro, &arch, &so));
    const double kv = 8.0 / 16;
    const double layer = 1024.0 * 1024 * (2 + 2 * kv) + 3.0 * 1024 * 4096;
    const double gemm = 6 * 512 * (4 * layer + 32000.0 * 1024);
    assert_true(plan.gemm_flops == gemm);
    assert_true(plan.attention_flops > 0 && plan.attention_flops < 0.1 * gemm);
    ax_arch_free(&arch);
}

static void a_real_run_reaches_the_plan(void **state) {
    (void)state;
    static const int64_t lengths[] = {30, 9, 0};
    struct ax_arch arch;
    must(tiny_arch(&arch, "qwen3", true, ""));
    for (int mode = AX_RECOMPUTE_OFF; mode <= AX_RECOMPUTE_ON; mode++) {
        struct ax_plan plan;
        struct tiny_run run = {.arch = &arch, .lengths = lengths, .steps = 3};
        run.o = tiny_options(AX_BF16, (enum ax_recompute)mode, 2, lengths);
        const struct ax_runtime_options ro = {.backend = "cpu", .threads = 2};
        must(ax_plan_make(&plan, &ro, &arch, &run.o));
        must(tiny_run(&run, "cpu", 2)); /* fails itself if its marks are not its own plan's */
        assert_int_equal(ax_arena_plan_total(&plan.arena), ax_arena_plan_total(&run.plan));
        assert_memory_equal(plan.arena.scratch, run.plan.scratch, sizeof plan.arena.scratch);
        assert_memory_equal(plan.arena.slot[0], run.plan.slot[0], sizeof plan.arena.slot[0]);
    }
    ax_arch_free(&arch);
}

/* Whatever the optimizer keeps and however the masters are kept. */
static void state_reaches_the_plan(void **state) {
    (void)state;
    static const int64_t lengths[] = {30, 9, 0};
    static const char *const names[] = {"adamw", "adamw_8bit", "sgd",      "lion",
                                        "muon",  "adafactor",  "lion_8bit"};
    struct ax_arch arch;
    must(tiny_arch(&arch, "llama", false, ""));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        for (int masters = AX_MASTERS_ACCUM; masters <= AX_MASTERS_STOCHASTIC; masters++) {
            struct ax_plan plan;
            struct tiny_run run = {.arch = &arch, .lengths = lengths, .steps = 2};
            run.o = tiny_options(AX_BF16, AX_RECOMPUTE_OFF, 1, lengths);
            must(ax_optimizer_find(names[i], &run.o.optimizer, &run.o.opt));
            run.o.model.masters = (enum ax_masters)masters;
            const struct ax_runtime_options ro = {.backend = "cpu", .threads = 2};
            must(ax_plan_make(&plan, &ro, &arch, &run.o));
            must(tiny_run(&run, "cpu", 2)); /* fails itself if its marks are not its own plan's */
            assert_int_equal(plan.arena.persistent, run.plan.persistent);
            assert_memory_equal(plan.arena.scratch, run.plan.scratch, sizeof plan.arena.scratch);
        }
    }
    ax_arch_free(&arch);
}

/* The head and the tail of a row together cost each rank of cp the same. */
static void ranks_attend_equally(void **state) {
    (void)state;
    static const int64_t lengths[] = {960, 0};
    struct ax_arch arch;
    struct ax_plan one, plan;
    llama(&arch, 256, 512, 2, 8, 512);
    const struct ax_step_options so = tiny_options(AX_F32, AX_RECOMPUTE_OFF, 1, lengths);
    struct ax_runtime_options ro = {.backend = "cpu", .threads = 1};
    must(ax_plan_make(&one, &ro, &arch, &so));
    assert_true(one.attention_flops > 0);
    for (ro.world = 2; ro.world <= 8; ro.world *= 2) {
        ro.sizes.cp = ro.world;
        for (ro.rank = 0; ro.rank < ro.world; ro.rank++) {
            must(ax_plan_make(&plan, &ro, &arch, &so));
            assert_true(fabs(plan.attention_flops * ro.world / one.attention_flops - 1) < 1e-9);
        }
    }
    ax_arch_free(&arch);
}

/* ---- meshes ---- */

/* A step on a mesh of threads, of documents that fill it and are trained on everywhere. */
struct mesh_step {
    const struct ax_arch *arch;
    struct ax_step_options o;
    struct ax_mesh_sizes sizes;
    int world;
};

/* The options of rank `rank`, whose plan is made without the others. */
static struct ax_runtime_options rank_options(const struct mesh_step *s, int rank) {
    const int stage = rank / (s->world / s->sizes.pp);
    struct ax_runtime_options o = {
        .backend = "cpu", .threads = 1, .sizes = s->sizes, .world = s->world, .rank = rank};
    must(ax_step_slots(&s->o, stage, s->sizes.pp, &o.n_slots));
    return o;
}

static enum ax_status fill_whole(struct ax_step *s) {
    int32_t tokens[32];
    const struct ax_document doc = {.n = s->o.tokens, .tokens = tokens, .labels = tokens};
    AX_ASSERT(s->o.tokens == 32);
    for (int i = 0; i < 32; i++)
        tokens[i] = i;
    for (int m = 0; m < s->o.n_microbatches; m++)
        AX_TRY(ax_batch_fill(&s->batches[m], s->rt->q, s->model.arch.vocab_size, 1, &doc));
    return AX_OK;
}

static void expect_sent(const struct mesh_step *s, const struct ax_runtime *rt,
                        double before[][AX_COLLECTIVE_COUNT]) {
    const struct ax_runtime_options ro = rank_options(s, rt->mesh.rank);
    struct ax_plan plan;
    must(ax_plan_make(&plan, &ro, s->arch, &s->o));
    for (int role = 0; role < AX_ROLE_COUNT; role++)
        for (int kind = 0; kind < AX_COLLECTIVE_COUNT; kind++) {
            const double sent = rt->comms[role].bytes_sent[kind] - before[role][kind];
            const bool by_routing = kind == AX_ALL_TO_ALL_V; /* balanced in a plan */
            if (by_routing ? (sent > 0) != (plan.bytes_sent[role][kind] > 0)
                           : sent != plan.bytes_sent[role][kind])
                fail_msg("rank %d of %d, %s, %s: planned %.17g, sent %.17g", rt->mesh.rank,
                         s->world, ax_role_name((enum ax_role)role),
                         ax_collective_name((enum ax_collective_kind)kind),
                         plan.bytes_sent[role][kind], sent);
        }
}

static enum ax_status run_step(struct ax_runtime *rt, void *ctx) {
    const struct mesh_step *m = ctx;
    double before[AX_ROLE_COUNT][AX_COLLECTIVE_COUNT];
    struct ax_step_result r;
    struct ax_step s;
    AX_TRY(ax_step_create(&s, rt, m->arch, &m->o));
    enum ax_status st;
    AX_TRY_GOTO(ax_model_init_random(&s.model, 3), st, done);
    AX_TRY_GOTO(fill_whole(&s), st, done);
    for (int role = 0; role < AX_ROLE_COUNT; role++)
        memcpy(before[role], rt->comms[role].bytes_sent, sizeof *before);
    AX_TRY_GOTO(ax_step_run(&s, 1e-3, &r), st, done);
    if (!ax_runtime_planning(rt))
        expect_sent(m, rt, before);
done:
    ax_step_free(&s);
    return st;
}

static enum ax_status run_rank(struct ax_fabric *fabric, void *ctx) {
    const struct mesh_step *m = ctx;
    struct ax_runtime_options ro = rank_options(m, fabric->rank);
    ro.fabric = fabric;
    return ax_runtime_run(&ro, run_step, ctx, NULL);
}

static void a_mesh_sends_what_was_planned(void **state) {
    (void)state;
    static const int64_t lengths[] = {32, 0};
    static const struct {
        const char *model;
        struct ax_mesh_sizes sizes; /* pp, dp_replicate, dp_shard, cp, tp, ep */
    } cases[] = {
        {"llama", {1, 1, 1, 1, 1, 1}},   {"llama", {1, 1, 2, 1, 1, 1}},
        {"llama", {1, 2, 1, 1, 1, 1}},   {"llama", {1, 1, 1, 1, 2, 1}},
        {"llama", {1, 1, 1, 2, 1, 1}},   {"llama", {2, 1, 1, 1, 1, 1}},
        {"llama", {2, 1, 2, 1, 2, 1}},   {"llama", {2, 2, 1, 2, 1, 1}},
        {"mixtral", {1, 1, 2, 1, 1, 2}}, {"mixtral", {1, 1, 1, 1, 2, 2}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int mode = AX_RECOMPUTE_OFF; mode <= AX_RECOMPUTE_ON; mode++) {
            struct ax_arch arch;
            struct mesh_step s = {.arch = &arch, .sizes = cases[i].sizes};
            must(tiny_arch(&arch, cases[i].model, i % 2 == 0, ""));
            s.world =
                s.sizes.pp * s.sizes.dp_replicate * s.sizes.dp_shard * s.sizes.cp * s.sizes.tp;
            s.o = tiny_options(AX_F32, (enum ax_recompute)mode, 4, lengths);
            must(ax_local_run(s.world, NULL, run_rank, &s));
            ax_arch_free(&arch);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_attend_equally),
        cmocka_unit_test(big_models),
        cmocka_unit_test(small_state),
        cmocka_unit_test(a_rank_is_compared_with_its_share),
        cmocka_unit_test(flops_are_the_formula),
        cmocka_unit_test(a_real_run_reaches_the_plan),
        cmocka_unit_test(state_reaches_the_plan),
        cmocka_unit_test(a_mesh_sends_what_was_planned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
