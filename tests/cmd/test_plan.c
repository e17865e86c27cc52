/* Plans: what they say, for shapes nobody here could run, and that reality equals them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "optim/plan.h"
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
    for (int i = 0; i < p->n_blocks; i++)
        if (strcmp(p->blocks[i].name, name) == 0)
            return p->blocks[i].bytes;
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
    so.masters = AX_MASTERS_REMAINDER;
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
            run.o.masters = (enum ax_masters)masters;
            const struct ax_runtime_options ro = {.backend = "cpu", .threads = 2};
            must(ax_plan_make(&plan, &ro, &arch, &run.o));
            must(tiny_run(&run, "cpu", 2)); /* fails itself if its marks are not its own plan's */
            assert_int_equal(plan.arena.persistent, run.plan.persistent);
            assert_memory_equal(plan.arena.scratch, run.plan.scratch, sizeof plan.arena.scratch);
        }
    }
    ax_arch_free(&arch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(big_models),
        cmocka_unit_test(small_state),
        cmocka_unit_test(flops_are_the_formula),
        cmocka_unit_test(a_real_run_reaches_the_plan),
        cmocka_unit_test(state_reaches_the_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
