/* Memory, arithmetic and traffic of a step as recorded in tests/optim/plan_record.txt, for every family and ways
 * to train it, and of generation: what keeps more than it needs, or computes more, has the right numbers all the
 * same.
 *
 * A line has the bytes of parameters, of scratch, and of activations that are kept; how often the stacks were
 * marked, and the sum of their tops then (of a block that is released too late, too, where the high-water mark is
 * another's); FLOPs as executed, of products, of attention, and as the method needs them; and the bytes sent. The
 * plans are of reference kernels, whose workspace does not depend on the processor. If what differs is intended,
 * AX_UPDATE=1 writes the file, for git to show. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/generate/generate.h"
#include "optim/plan/plan.h"
#include "tests/record.h"
#include "tests/tiny.h"

#define RECORD  "tests/optim/plan_record.txt"
#define GOLDENS "tests/goldens/models"

/* ---- the stacks ---- */

static long long n_marks, tops;

/* Stands before the library's, as this program is searched first. Each op begins with a mark. */
size_t ax_stack_mark(struct ax_stack *s) {
    static size_t (*next)(struct ax_stack *s);
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "ax_stack_mark");
    n_marks++;
    tops += (long long)s->top;
    return next(s);
}

/* ---- ways to train ---- */

static char *targets[] = {"q_proj", "down_proj"};
static const struct ax_peft_config lora = {.r = 3, .alpha = 6, .dropout = 0.1, .all_linear = true};
static const struct ax_peft_config two = {.r = 3, .alpha = 6, .targets = {2, targets}};
static const struct ax_peft_config dora = {.r = 3, .alpha = 6, .dora = true, .all_linear = true};

static const struct way {
    const char *name;
    const struct ax_peft_config *adapter;
    enum ax_storage store;
    const char *qat;       /* scheme; NULL: none */
    const char *optimizer; /* NULL: adamw */
    enum ax_masters masters;
    struct ax_mesh_sizes sizes;
    int world, rank; /* 0: one rank */
    int n_micro;     /* 0: 1 */
} ways[] = {
    {.name = "full"},
    {.name = "micro-batches", .n_micro = 3},
    {.name = "lora", .adapter = &lora},
    {.name = "lora of two", .adapter = &two},
    {.name = "dora", .adapter = &dora},
    {.name = "qlora", .adapter = &lora, .store = AX_STORAGE_NF4_DOUBLE},
    {.name = "qat", .qat = "int8"},
    {.name = "qat lora", .qat = "fp8", .adapter = &lora},
    {.name = "muon", .optimizer = "muon"},
    {.name = "adafactor", .optimizer = "adafactor", .masters = AX_MASTERS_STOCHASTIC},
    {.name = "adamw_8bit", .optimizer = "adamw_8bit", .masters = AX_MASTERS_STOCHASTIC},
    {.name = "dp_shard", .sizes = {.dp_shard = 2}, .world = 2, .n_micro = 2},
    {.name = "dp_replicate", .sizes = {.dp_replicate = 2}, .world = 2, .rank = 1},
    {.name = "tp", .sizes = {.tp = 2}, .world = 2},
    {.name = "tp qlora",
     .adapter = &lora,
     .store = AX_STORAGE_NF4_DOUBLE,
     .sizes = {.tp = 2},
     .world = 2},
    {.name = "cp", .sizes = {.cp = 2}, .world = 2, .rank = 1},
    {.name = "pp first", .sizes = {.pp = 2}, .world = 2, .n_micro = 4},
    {.name = "pp last", .sizes = {.pp = 2}, .world = 2, .rank = 1, .n_micro = 4},
    {.name = "ep", .sizes = {.dp_shard = 2, .ep = 2}, .world = 2},
};
#define N_WAYS (sizeof ways / sizeof *ways)

/* Those that are planned in every way: among them layers of each kind. */
static const char *const in_all_ways[] = {"llama",      "gemma2",    "gemma3n",    "deepseek_v3",
                                          "qwen3_next", "falcon_h1", "minimax_m2", "gpt_oss"};

static bool is_in_all_ways(const char *model) {
    for (size_t i = 0; i < sizeof in_all_ways / sizeof *in_all_ways; i++)
        if (strcmp(in_all_ways[i], model) == 0)
            return true;
    return false;
}

/* ---- the record ---- */

static void put_plan(struct ax_buf *out, const struct ax_arch *arch, const struct way *w,
                     enum ax_recompute recompute) {
    static const char *const modes[] = {"off", "selective", "on"};
    static const int64_t lengths[] = {23, 9, 0};
    static struct ax_plan p;
    const int n_micro = w->n_micro ? w->n_micro : 1;
    const struct ax_runtime_options ro = {.backend = "ref",
                                          .threads = 1,
                                          .sizes = w->sizes,
                                          .world = w->world,
                                          .rank = w->rank,
                                          .n_slots = n_micro};
    struct ax_step_options so = tiny_options(AX_BF16, recompute, n_micro, lengths);
    so.model.adapter = w->adapter;
    so.model.base_store = w->store;
    so.model.masters = w->masters;
    struct ax_scheme qat;
    if (w->qat) {
        assert_int_equal(ax_scheme_find_trained("qat", w->qat, &qat), AX_OK);
        so.model.qat = &qat;
    }
    if (w->optimizer)
        assert_int_equal(ax_optimizer_find(w->optimizer, &so.optimizer, &so.opt), AX_OK);
    n_marks = tops = 0;
    record_put(out, "  %-13s %-9s", w->name, modes[recompute]);
    if (ax_plan_make(&p, &ro, arch, &so) != AX_OK) {
        record_put(out, " %s\n", ax_error_text());
        return;
    }
    double sent = 0;
    for (int r = 0; r < AX_ROLE_COUNT; r++)
        for (int c = 0; c < AX_COLLECTIVE_COUNT; c++)
            sent += p.bytes_sent[r][c];
    record_put(out, " %8zu %7zu %7zu %5lld %10lld %9.0f %9.0f %8.0f %9.0f %7.0f\n",
               p.arena.persistent, p.arena.scratch[AX_PHASE_TRAIN], p.arena.slot[0][AX_PHASE_TRAIN],
               n_marks, tops, p.flops, p.gemm_flops, p.attention_flops, p.model_flops, sent);
}

/* ---- generation ---- */

static enum ax_status plan_generation(struct ax_runtime *rt, const struct ax_arch *arch,
                                      const struct ax_peft_config *adapter) {
    struct ax_model m;
    struct ax_generator g = {0};
    struct ax_sequence s = {.n_prompt = 0};
    const struct ax_generate_options o = {
        .n_seqs = 3, .max_prompt = 23, .max_new = 9, .scoring = true};
    const struct ax_model_options mo = {.dtype = AX_BF16, .max_positions = 32, .adapter = adapter};
    AX_TRY(ax_model_create(&m, arch, rt, &mo));
    enum ax_status st = ax_generator_create(&g, &m, &o);
    if (st == AX_OK)
        st = ax_generate(&g, 1, &s);
    ax_generator_free(&g);
    assert_int_equal(rt->arena.scratch.top, 0); /* a step uses the same memory */
    ax_model_free(&m);
    return st;
}

static void put_generation(struct ax_buf *out, const struct ax_arch *arch,
                           const struct ax_peft_config *adapter) {
    const struct ax_runtime_options ro = {.backend = "ref", .threads = 1};
    struct ax_runtime rt;
    struct ax_arena_plan p;
    double flops = 0;
    n_marks = tops = 0;
    record_put(out, "  generation    %-9s", adapter ? "lora" : "");
    assert_int_equal(ax_runtime_open_planning(&rt, &ro), AX_OK);
    if (plan_generation(&rt, arch, adapter) != AX_OK)
        fail_msg("%s", ax_error_text());
    ax_arena_measure(&rt.arena, &p);
    for (int op = 0; op < AX_OP_COUNT; op++)
        flops += rt.q->counters.flops[op];
    record_put(out, " %8zu %7zu %7zu %5lld %10lld %9.0f\n", p.persistent,
               p.scratch[AX_PHASE_ROLLOUT], p.slot[0][AX_PHASE_ROLLOUT], n_marks, tops, flops);
    ax_runtime_close(&rt);
}

static void put_model(struct ax_buf *out, const char *model) {
    char path[512];
    struct ax_arch arch;
    snprintf(path, sizeof path, GOLDENS "/%s/config.json", model);
    if (ax_arch_load(&arch, path) != AX_OK)
        fail_msg("%s", ax_error_text());
    record_put(out, "%s\n", model);
    for (int mode = AX_RECOMPUTE_OFF; mode <= AX_RECOMPUTE_ON; mode++)
        put_plan(out, &arch, &ways[0], (enum ax_recompute)mode);
    put_generation(out, &arch, NULL);
    if (is_in_all_ways(model))
        put_generation(out, &arch, &lora);
    for (size_t i = 1; is_in_all_ways(model) && i < N_WAYS; i++)
        put_plan(out, &arch, &ways[i], (enum ax_recompute)(i % 3));
    ax_arch_free(&arch);
}

/* ---- all ---- */

static int is_shown(const struct dirent *d) {
    return d->d_name[0] != '.';
}

static void plans_are_as_recorded(void **state) {
    (void)state;
    struct ax_buf now = {0};
    struct dirent **models;
    const int n = scandir(GOLDENS, &models, is_shown, alphasort);
    assert_true(n > 40);
    record_put(&now, "  %-23s %8s %7s %7s %5s %10s %9s %9s %8s %9s %7s\n", "", "kept", "scratch",
               "slot", "marks", "tops", "FLOPs", "products", "attend", "needed", "sent");
    for (int i = 0; i < n; i++) {
        put_model(&now, models[i]->d_name);
        free(models[i]);
    }
    free(models);
    record_compare(RECORD, &now);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(plans_are_as_recorded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
