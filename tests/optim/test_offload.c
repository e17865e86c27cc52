/* What is idle may stay in the device's host tier: the bits are the same, and the device's part of
 * the plan is smaller by exactly what moved, less the named stream buffers. A device whose memory is
 * the host's plans and computes as if nothing had been asked for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/text/json.h"
#include "optim/plan/plan.h"
#include "parallel/fabric/comm_local.h"
#include "tests/tiny.h"

static const int64_t lengths[] = {9, 1, 14, 0};
static char *targets[] = {"q_proj", "down_proj"};
static const struct ax_peft_config lora = {.r = 3, .alpha = 6, .targets = {2, targets}};
static const struct ax_peft_config attention = {.r = 3, .alpha = 6, .targets = {1, targets}};
static const struct ax_peft_config dora = {
    .r = 3, .alpha = 6, .dora = true, .targets = {2, targets}};

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

static void open_arch(struct ax_arch *arch, int layers, int vocab, int hidden) {
    char text[512];
    snprintf(text, sizeof text,
             "{\"model_type\": \"llama\", \"vocab_size\": %d, \"hidden_size\": %d, "
             "\"intermediate_size\": 80, \"num_hidden_layers\": %d, \"num_attention_heads\": 4, "
             "\"num_key_value_heads\": 2, \"head_dim\": 16, \"initializer_range\": 0.15, "
             "\"max_position_embeddings\": 64, \"tie_word_embeddings\": false}",
             vocab, hidden, layers);
    struct ax_json_doc doc;
    must(ax_json_parse(&doc, "tiny", text, strlen(text)));
    must(ax_arch_parse(arch, ax_json_root(&doc)));
    ax_json_free(&doc);
}

/* ---- what the plan says ---- */

/* Bytes of a block on the device, or in the host tier. */
static size_t bytes_of(const struct ax_plan *p, const char *name, bool host) {
    size_t bytes = 0;
    for (int i = 0; i < p->blocks.n; i++)
        if (strcmp(p->blocks.list[i].name, name) == 0 &&
            host == (strcmp(p->blocks.list[i].where, "host") == 0))
            bytes += p->blocks.list[i].bytes;
    return bytes;
}

static size_t stream_bytes(const struct ax_plan *p) {
    return bytes_of(p, "optimizer state stream", false) + bytes_of(p, "gathered weights", false) +
           bytes_of(p, "residual stream", false);
}

static void make_plan(struct ax_plan **p, const char *backend, const struct ax_arch *arch,
                      const struct ax_step_options *o) {
    const struct ax_runtime_options ro = {.backend = backend, .threads = 1};
    *p = malloc(sizeof **p);
    assert_non_null(*p);
    must(ax_plan_make(*p, &ro, arch, o));
}

/* `moved`: names of blocks that are in the host tier, wholly or in part; ends with NULL. */
static void compare_plans(const struct ax_arch *arch, const struct ax_step_options *o,
                          const char *const *moved) {
    struct ax_step_options plain = *o;
    struct ax_plan *before, *after;
    plain.model.offload = (struct ax_offload){0};
    make_plan(&before, "far", arch, &plain);
    make_plan(&after, "far", arch, o);
    size_t all = 0, stayed = 0;
    for (int i = 0; moved[i]; i++) {
        const size_t there = bytes_of(after, moved[i], true);
        /* the last two residuals are in the stream's buffers alone */
        const size_t stay =
            strcmp(moved[i], "residual") == 0 ? bytes_of(after, "residual stream", false) : 0;
        assert_int_equal(bytes_of(before, moved[i], true), 0);
        assert_int_equal(there + stay + bytes_of(after, moved[i], false),
                         bytes_of(before, moved[i], false));
        stayed += stay;
        assert_true(there > 0 || bytes_of(before, moved[i], false) == 0);
        all += there;
    }
    assert_true(all > 0);
    assert_int_equal(bytes_of(before, "write ring", true), AX_QUEUE_RING);
    assert_int_equal(before->arena.host, AX_QUEUE_RING);
    assert_int_equal(after->arena.host, AX_QUEUE_RING + all);
    assert_true(stream_bytes(after) > 0);
    assert_int_equal(ax_arena_plan_total(&after->arena),
                     ax_arena_plan_total(&before->arena) - all - stayed + stream_bytes(after));
    free(before);
    free(after);
    make_plan(&before, "ref", arch, &plain);
    make_plan(&after, "ref", arch, o);
    assert_int_equal(before->arena.host, 0); /* nothing is written through a ring */
    assert_memory_equal(&before->arena, &after->arena, sizeof before->arena);
    free(before);
    free(after);
}

/* ---- what is computed ---- */

static void expect_same(const char *name, const struct ax_arch *arch,
                        const struct ax_step_options *o) {
    struct tiny_run near = {.arch = arch, .o = *o, .lengths = lengths, .steps = 3, .seed = 4};
    struct tiny_run far = near;
    must(tiny_run(&near, ax_ops_cpu() ? "cpu" : "ref", 1));
    must(tiny_run(&far, "far", 1));
    if (near.loss != far.loss || near.grad_norm != far.grad_norm || near.grads != far.grads ||
        near.masters != far.masters)
        fail_msg("%s differs", name);
    assert_int_equal(near.plan.host, 0);
    assert_true(far.plan.host > AX_QUEUE_RING);
}

static const char *const adamw[] = {"exp_avg", "exp_avg_sq", NULL};
static const char *const adamw_masters[] = {"exp_avg", "exp_avg_sq", "masters", NULL};
static const char *const adamw_8bit[] = {"exp_avg", "exp_avg_sq", "exp_avg_scale",
                                         "exp_avg_sq_scale", NULL};
static const char *const momentum[] = {"exp_avg", "masters", NULL};
static const char *const frozen[] = {"frozen weights", NULL};
static const char *const packed[] = {"frozen weights", "packed weights", NULL};
static const char *const everything[] = {"frozen weights", "exp_avg", "exp_avg_sq", "masters",
                                         NULL};
static const char *const residuals[] = {"residual", NULL};
static const char *const adafactor[] = {"exp_avg_sq", "exp_avg_sq_row", "exp_avg_sq_col", NULL};

#define F32   AX_MASTERS_ACCUM
#define PLAIN AX_STORAGE_PLAIN

#define STATE            {.optimizer = true}, AX_RECOMPUTE_SELECTIVE
#define LAYERS           {.layers = true}, AX_RECOMPUTE_SELECTIVE
#define STATE_AND_LAYERS {.optimizer = true, .layers = true}, AX_RECOMPUTE_SELECTIVE
#define ACTIVATIONS(how) {.activations = true}, how

static const struct kind {
    const char *name, *optimizer;
    enum ax_dtype dtype;
    enum ax_moments moments;
    enum ax_masters masters;
    enum ax_storage store;
    const struct ax_peft_config *adapter;
    const char *const *moved;
    struct ax_offload offload;
    enum ax_recompute recompute;
} kinds[] = {
    {"AdamW", "adamw", AX_F32, AX_MOMENTS_FULL, F32, PLAIN, NULL, adamw, STATE},
    {"AdamW, bf16", "adamw", AX_BF16, AX_MOMENTS_FULL, F32, PLAIN, NULL, adamw_masters, STATE},
    {"8 bits", "adamw", AX_BF16, AX_MOMENTS_8BIT, AX_MASTERS_REMAINDER, PLAIN, NULL, adamw_8bit,
     STATE},
    {"Lion", "lion", AX_BF16, AX_MOMENTS_BF16, F32, PLAIN, NULL, momentum, STATE},
    {"Adafactor", "adafactor", AX_F32, AX_MOMENTS_FULL, F32, PLAIN, NULL, adafactor, STATE},
    {"LoRA", "adamw", AX_BF16, AX_MOMENTS_FULL, F32, PLAIN, &lora, adamw_masters, STATE},
    {"frozen", "adamw", AX_F32, AX_MOMENTS_FULL, F32, PLAIN, &lora, frozen, LAYERS},
    {"DoRA", "adamw", AX_BF16, AX_MOMENTS_FULL, F32, PLAIN, &dora, frozen, LAYERS},
    {"QLoRA", "adamw", AX_BF16, AX_MOMENTS_FULL, F32, AX_STORAGE_NF4_DOUBLE, &lora, packed, LAYERS},
    {"both", "adamw", AX_BF16, AX_MOMENTS_FULL, F32, PLAIN, &lora, everything, STATE_AND_LAYERS},
    {"activations", "adamw", AX_F32, AX_MOMENTS_FULL, F32, PLAIN, NULL, residuals,
     ACTIVATIONS(AX_RECOMPUTE_ON)},
    {"activations, selective", "adamw", AX_BF16, AX_MOMENTS_FULL, F32, PLAIN, NULL, residuals,
     ACTIVATIONS(AX_RECOMPUTE_SELECTIVE)},
};

static struct ax_step_options options_of(const struct kind *k) {
    struct ax_step_options o = tiny_options(k->dtype, k->recompute, 2, lengths);
    must(ax_optimizer_find(k->optimizer, &o.optimizer, &o.opt));
    o.opt.moments = k->moments;
    o.model.masters = k->masters;
    o.model.adapter = k->adapter;
    o.model.base_store = k->store;
    o.model.offload = k->offload;
    return o;
}

static void what_is_idle_moves(void **state) {
    (void)state;
    struct ax_arch arch;
    open_arch(&arch, 8, 97, 48);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct ax_step_options o = options_of(&kinds[i]);
        compare_plans(&arch, &o, kinds[i].moved);
        expect_same(kinds[i].name, &arch, &o);
    }
    ax_arch_free(&arch);
}

/* A parameter of more than one piece, whose last one is short; the stream is not larger than the
 * largest piece. */
static void large_parameters_move_in_pieces(void **state) {
    (void)state;
    struct ax_arch arch;
    open_arch(&arch, 1, 22003, 48);
    for (size_t i = 1; i < 3; i++) {
        const struct ax_step_options o = options_of(&kinds[i]);
        struct ax_plan *plan;
        compare_plans(&arch, &o, kinds[i].moved);
        expect_same(kinds[i].name, &arch, &o);
        make_plan(&plan, "far", &arch, &o);
        assert_true(stream_bytes(plan) <= 2 * ((size_t)12 << 20));
        free(plan);
    }
    ax_arch_free(&arch);
}

/* ---- several ranks ---- */

#define RANKS 2
#define STEPS 3

struct ranks {
    struct ax_arch arch;
    struct ax_step_options o;
    struct ax_mesh_sizes sizes;
    double loss[RANKS][STEPS], norm[RANKS][STEPS];
    struct ax_arena_plan plan[RANKS];
};

static enum ax_status rank_body(struct ax_runtime *rt, void *ctx) {
    struct ranks *r = ctx;
    const int steps = ax_runtime_planning(rt) ? 1 : STEPS, rank = rt->mesh.rank;
    struct ax_step s;
    struct ax_step_result result;
    AX_TRY(ax_step_create(&s, rt, &r->arch, &r->o));
    enum ax_status st;
    AX_TRY_GOTO(ax_model_init_random(&s.model, 8), st, done);
    AX_TRY_GOTO(tiny_adapters(&s.model, 8), st, done);
    for (int i = 0; i < steps; i++) {
        if (r->o.relora.interval > 0 && (i > 0 || ax_runtime_planning(rt)))
            AX_TRY_GOTO(ax_step_restart(&s, i), st, done);
        AX_TRY_GOTO(tiny_fill(&s, lengths, (uint64_t)i), st, done);
        AX_TRY_GOTO(ax_step_run(&s, 1e-2, &result), st, done);
        r->loss[rank][i] = result.loss;
        r->norm[rank][i] = result.grad_norm;
    }
done:
    ax_step_free(&s);
    return st;
}

static enum ax_status one_rank(struct ax_fabric *fabric, void *ctx) {
    struct ranks *r = ctx;
    struct ax_runtime_options o = {
        .backend = "far", .threads = 1, .sizes = r->sizes, .fabric = fabric};
    if (r->sizes.pp > 1)
        AX_TRY(ax_step_slots(&r->o, fabric->rank, r->sizes.pp, &o.n_slots));
    return ax_runtime_run(&o, rank_body, r, &r->plan[fabric->rank]);
}

/* Shards of frozen weights move too: each rank's own. The buffers that they are gathered into are
 * there already. */
static void shards_move(void **state) {
    (void)state;
    static const struct {
        const char *type, *extra;
        const struct ax_peft_config *adapter;
        enum ax_storage store;
    } cases[] = {
        {"llama", "", &lora, AX_STORAGE_PLAIN},
        {"llama", "", &lora, AX_STORAGE_NF4_DOUBLE},
        {"qwen2", "", &dora, AX_STORAGE_PLAIN},
        {"mixtral", ", \"num_local_experts\": 6, \"num_experts_per_tok\": 3", &attention,
         AX_STORAGE_PLAIN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ranks here = {.o = tiny_options(AX_BF16, AX_RECOMPUTE_SELECTIVE, 2, lengths),
                             .sizes = {.dp_shard = RANKS}};
        must(tiny_arch(&here.arch, cases[i].type, false, cases[i].extra));
        here.o.model.adapter = cases[i].adapter;
        here.o.model.base_store = cases[i].store;
        struct ranks away = here;
        away.o.model.offload.layers = true;
        must(ax_local_run(RANKS, NULL, one_rank, &here));
        must(ax_local_run(RANKS, NULL, one_rank, &away));
        assert_memory_equal(here.loss, away.loss, sizeof here.loss);
        assert_memory_equal(here.norm, away.norm, sizeof here.norm);
        assert_true(here.loss[0][0] > 0 && here.loss[0][0] != here.loss[0][STEPS - 1]);
        for (int rank = 0; rank < RANKS; rank++) {
            const size_t moved = away.plan[rank].host - here.plan[rank].host;
            assert_int_equal(here.plan[rank].host, AX_QUEUE_RING);
            assert_true(moved > 0);
            assert_int_equal(ax_arena_plan_total(&away.plan[rank]),
                             ax_arena_plan_total(&here.plan[rank]) - moved);
        }
        ax_arch_free(&here.arch);
    }
}

/* Adapters are merged from masters that are away, those of a shard or of a slice. */
static void masters_come_back_for_merges(void **state) {
    (void)state;
    static const struct ax_mesh_sizes meshes[] = {{.dp_shard = RANKS}, {.tp = RANKS}};
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        struct ranks here = {.o = tiny_options(AX_BF16, AX_RECOMPUTE_SELECTIVE, 2, lengths),
                             .sizes = meshes[i]};
        must(tiny_arch(&here.arch, "llama", false, ""));
        here.o.model.adapter = &lora;
        here.o.relora = (struct ax_relora_options){1};
        struct ranks away = here;
        away.o.model.offload.optimizer = true;
        must(ax_local_run(RANKS, NULL, one_rank, &here));
        must(ax_local_run(RANKS, NULL, one_rank, &away));
        assert_memory_equal(here.loss, away.loss, sizeof here.loss);
        assert_memory_equal(here.norm, away.norm, sizeof here.norm);
        for (int rank = 0; rank < RANKS; rank++)
            assert_true(away.plan[rank].host > here.plan[rank].host);
        ax_arch_free(&here.arch);
    }
}

static const char thirteen_layers[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 97, \"hidden_size\": 48, "
    "\"intermediate_size\": 80, \"num_hidden_layers\": 13, \"num_attention_heads\": 4, "
    "\"num_key_value_heads\": 2, \"head_dim\": 16, \"initializer_range\": 0.15, "
    "\"max_position_embeddings\": 64, \"tie_word_embeddings\": true}";

/* The memory of a slot serves one range of layers after the other, of unequal lengths. */
static void activations_of_stages_move(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct ranks here = {.o = tiny_options(AX_F32, AX_RECOMPUTE_ON, 4, lengths),
                             .sizes = {.pp = RANKS}};
        struct ax_json_doc doc;
        must(ax_json_parse(&doc, "thirteen", thirteen_layers, strlen(thirteen_layers)));
        must(ax_arch_parse(&here.arch, ax_json_root(&doc)));
        ax_json_free(&doc);
        here.o.pipeline = AX_PIPELINE_INTERLEAVED;
        here.o.virtual_stages = 2;
        here.o.model.adapter = k ? &lora : NULL;
        struct ranks away = here;
        away.o.model.offload.activations = true;
        must(ax_local_run(RANKS, NULL, one_rank, &here));
        must(ax_local_run(RANKS, NULL, one_rank, &away));
        assert_memory_equal(here.loss, away.loss, sizeof here.loss);
        assert_memory_equal(here.norm, away.norm, sizeof here.norm);
        for (int rank = 0; rank < RANKS; rank++)
            assert_true(away.plan[rank].host > here.plan[rank].host);
        ax_arch_free(&here.arch);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_idle_moves),
        cmocka_unit_test(large_parameters_move_in_pieces),
        cmocka_unit_test(shards_move),
        cmocka_unit_test(masters_come_back_for_merges),
        cmocka_unit_test(activations_of_stages_move),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
