/* Halved backwards: the gradients of 1f1b to the bit, on stages that keep no more of a step, in planned
 * steps that wait less. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/arch/split.h"
#include "optim/plan/plan_time.h"
#include "tests/doubles/delay.h"
#include "tests/tiny.h"

enum { STEPS = 3, MAX_WORLD = 4 };
static const int64_t lengths[] = {9, 1, 14, 0};
static const int64_t long_row[] = {192, 0};
static const struct ax_peft_config lora = {
    .r = 3, .alpha = 6, .targets = {1, (char *[]){"q_proj"}}};

/* Eight layers of this size, whose head is small. */
static void make_arch(struct ax_arch *arch, const char *type, bool tied, int hidden) {
    char text[512];
    struct ax_json_doc doc;
    snprintf(text, sizeof text,
             "{\"model_type\": \"%s\", \"vocab_size\": 97, \"hidden_size\": %d, "
             "\"intermediate_size\": %d, \"num_hidden_layers\": 8, \"num_attention_heads\": 4, "
             "\"num_key_value_heads\": 2, \"head_dim\": %d, \"initializer_range\": 0.15, "
             "\"max_position_embeddings\": 4096, \"attention_bias\": true, "
             "\"tie_word_embeddings\": %s}",
             type, hidden, 2 * hidden, hidden / 4, tied ? "true" : "false");
    assert_int_equal(ax_json_parse(&doc, "arch", text, strlen(text)), AX_OK);
    assert_int_equal(ax_arch_parse(arch, ax_json_root(&doc)), AX_OK);
    ax_json_free(&doc);
}

struct run {
    const char *type, *extra; /* more of config.json, of three layers; NULL: none, of eight */
    const char *fp8;          /* recipe, or NULL */
    struct ax_mesh_sizes sizes;
    enum ax_dtype dtype;
    enum ax_recompute recompute;
    bool tied, adapter, overlap, turns;
    int micro;
    enum ax_pipeline_kind kind;
    struct ax_arch arch;
    struct ax_scheme scheme;
    /* out */
    uint64_t masters[MAX_WORLD], later[MAX_WORLD];
    double loss[STEPS], norm[STEPS];
    struct ax_arena_plan plan[MAX_WORLD];
    double step[MAX_WORLD], waited[MAX_WORLD]; /* of the last step, in the mode of turns */
};

static int world_of(const struct run *r) {
    const struct ax_mesh_sizes *s = &r->sizes;
    return s->pp * s->dp_replicate * s->dp_shard * s->cp * s->tp;
}

static struct ax_step_options options(const struct run *r) {
    struct ax_step_options o =
        tiny_options(r->dtype, r->recompute, r->micro, r->turns ? long_row : lengths);
    o.pipeline = r->kind;
    o.model.tp_overlap = r->overlap;
    o.model.adapter = r->adapter ? &lora : NULL;
    o.model.qat = r->fp8 ? &r->scheme : NULL;
    o.model.sharding = ax_zero_stage(1); /* as halved backwards keep gradients anyway */
    return o;
}

/* Micro-batches as usual, but the second one has padding, of which nothing may depend. */
static enum ax_status fill(struct ax_step *s, uint64_t seed) {
    static const int32_t tokens[] = {5, 80, 17, 3, 41}, labels[] = {80, 17, 3, 41, 5};
    const struct ax_document doc = {.n = 5, .tokens = tokens, .labels = labels};
    AX_TRY(tiny_fill(s, lengths, seed));
    return s->o.n_microbatches < 2
               ? AX_OK
               : ax_batch_fill(&s->batches[1], s->rt->q, s->model.arch.vocab_size, 1, &doc);
}

static enum ax_status take_steps(struct run *r, struct ax_step *s) {
    const int rank = s->rt->mesh.rank;
    AX_TRY(ax_model_init_random(&s->model, 5));
    if (r->adapter)
        AX_TRY(tiny_adapters(&s->model, 7));
    for (int i = 0; i < STEPS; i++) {
        struct ax_step_result result;
        AX_TRY(fill(s, (uint64_t)(10 * i)));
        AX_TRY(ax_step_run(s, 1e-2, &result));
        if (rank == 0 && !ax_runtime_planning(s->rt)) {
            r->loss[i] = result.loss;
            r->norm[i] = result.grad_norm;
        }
    }
    for (int i = 0; i < s->schedule.n_slots; i++)
        r->later[rank] += (uint64_t)s->slots[i].later.cap;
    return ax_runtime_planning(s->rt) ? AX_OK : tiny_hash_masters(s, &r->masters[rank]);
}

/* With turns, an operation of a rank's ops takes a nanosecond of its clock, whatever else the machine does. */
static _Thread_local const struct ax_queue *counted;
static _Thread_local double counted_before; /* by queues that are gone */

static double seconds_counted(void) {
    double flops = 0;
    for (int i = 0; counted && i < AX_OP_COUNT; i++)
        flops += counted->counters.flops[i];
    return counted_before + 1e-9 * flops;
}

static double waited(const struct ax_runtime *rt) {
    double sum = 0;
    for (int role = 0; role < AX_ROLE_COUNT; role++)
        sum += ax_delay_exposed(rt->fabric, (enum ax_role)role);
    return sum;
}

/* The last of two steps, of random documents. */
static enum ax_status time_step(struct run *r, struct ax_step *s) {
    const int rank = s->rt->mesh.rank;
    struct ax_step_result result;
    counted = s->rt->q;
    AX_TRY(ax_model_init_random(&s->model, 5));
    AX_TRY(tiny_fill(s, long_row, 1));
    AX_TRY(ax_step_run(s, 1e-3, &result));
    r->step[rank] = -ax_delay_now(s->rt->fabric);
    r->waited[rank] = -waited(s->rt);
    AX_TRY(ax_step_run(s, 1e-3, &result));
    r->step[rank] += ax_delay_now(s->rt->fabric);
    r->waited[rank] += waited(s->rt);
    counted_before = seconds_counted();
    counted = NULL;
    return AX_OK;
}

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct run *r = ctx;
    struct ax_step s;
    const struct ax_step_options o = options(r);
    AX_TRY(ax_step_create(&s, rt, &r->arch, &o));
    const enum ax_status st = r->turns ? time_step(r, &s) : take_steps(r, &s);
    ax_step_free(&s);
    return st;
}

static enum ax_status run_rank(struct ax_fabric *fabric, void *ctx) {
    struct run *r = ctx;
    struct ax_runtime_options o = {.backend = r->dtype == AX_F64 ? "ref" : "cpu",
                                   .threads = 1,
                                   .sizes = r->sizes,
                                   .fabric = fabric};
    const struct ax_step_options so = options(r);
    struct ax_mesh mesh;
    AX_TRY(ax_mesh_create(&mesh, r->sizes, fabric->world, fabric->rank));
    AX_TRY(ax_step_slots(&so, mesh.coord[AX_ROLE_PP], mesh.size[AX_ROLE_PP], &o.n_slots));
    return ax_runtime_run(&o, body, r, &r->plan[fabric->rank]);
}

static void open_arch(struct run *r) {
    if (r->fp8)
        assert_int_equal(ax_fp8_recipe(r->fp8, false, &r->scheme), AX_OK);
    if (r->extra)
        assert_int_equal(tiny_arch(&r->arch, r->type, r->tied, r->extra), AX_OK);
    else
        make_arch(&r->arch, r->type, r->tied, 48);
}

static void run(struct run *r, enum ax_pipeline_kind kind) {
    const uint64_t live = ax_mem_live_blocks();
    r->kind = kind;
    open_arch(r);
    if (ax_local_run(world_of(r), NULL, run_rank, r) != AX_OK)
        fail_msg("%s", ax_error_text());
    ax_arch_free(&r->arch);
    assert_int_equal(ax_mem_live_blocks(), live);
}

#define SIX ", \"num_local_experts\": 6, \"num_experts_per_tok\": 3"
#define GATED                                                                                      \
    ", \"num_experts\": 8, \"num_experts_per_tok\": 3, \"moe_intermediate_size\": 24, "            \
    "\"shared_expert_intermediate_size\": 30"

/* The halves are the same products, and each matrix sums its micro-batches in the same order. */
static void halves_change_no_bit(void **state) {
    (void)state;
    static const struct run kinds[] = {
        {.type = "llama", .sizes = {2, 1, 1, 1, 1, 1}, .dtype = AX_F32, .micro = 1},
        {.type = "llama", .sizes = {2, 1, 1, 1, 1, 1}, .dtype = AX_F64, .micro = 5, .tied = true},
        {.type = "qwen3",
         .sizes = {4, 1, 1, 1, 1, 1},
         .dtype = AX_BF16,
         .micro = 6,
         .recompute = AX_RECOMPUTE_SELECTIVE},
        {.type = "llama",
         .sizes = {3, 1, 1, 1, 1, 1},
         .dtype = AX_F32,
         .micro = 4,
         .recompute = AX_RECOMPUTE_ON},
        {.type = "llama",
         .sizes = {2, 1, 1, 1, 2, 1},
         .dtype = AX_F32,
         .micro = 3,
         .overlap = true},
        {.type = "llama", .sizes = {2, 1, 1, 1, 2, 1}, .dtype = AX_F32, .micro = 3},
        {.type = "qwen3", .sizes = {2, 1, 2, 1, 1, 1}, .dtype = AX_F32, .micro = 3},
        {.type = "llama", .sizes = {2, 2, 1, 1, 1, 1}, .dtype = AX_F32, .micro = 2},
        {.type = "llama", .sizes = {2, 1, 1, 2, 1, 1}, .dtype = AX_F32, .micro = 2},
        {.type = "llama",
         .sizes = {2, 1, 1, 1, 1, 1},
         .dtype = AX_F32,
         .micro = 3,
         .adapter = true},
        {.type = "llama",
         .fp8 = "tensorwise",
         .sizes = {2, 1, 1, 1, 1, 1},
         .dtype = AX_BF16,
         .micro = 3},
        {.type = "qwen3",
         .fp8 = "rowwise",
         .sizes = {2, 1, 1, 1, 2, 1},
         .dtype = AX_F32,
         .micro = 3,
         .overlap = true},
        {.type = "mixtral",
         .extra = SIX,
         .sizes = {3, 1, 1, 1, 1, 1},
         .dtype = AX_F32,
         .micro = 4,
         .recompute = AX_RECOMPUTE_ON},
        {.type = "gpt_oss",
         .extra = SIX,
         .sizes = {2, 1, 1, 1, 2, 1},
         .dtype = AX_F64,
         .micro = 3,
         .overlap = true},
        {.type = "qwen2_moe",
         .extra = GATED,
         .sizes = {2, 1, 2, 1, 1, 2},
         .dtype = AX_BF16,
         .micro = 3,
         .recompute = AX_RECOMPUTE_SELECTIVE},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        static struct run plain, halved;
        plain = halved = kinds[i];
        run(&plain, AX_PIPELINE_1F1B);
        run(&halved, AX_PIPELINE_ZERO_BUBBLE);
        assert_true(plain.loss[0] != plain.loss[STEPS - 1]);
        assert_memory_equal(halved.loss, plain.loss, sizeof plain.loss);
        assert_memory_equal(halved.norm, plain.norm, sizeof plain.norm);
        assert_memory_equal(halved.masters, plain.masters, sizeof plain.masters);
        const int last = world_of(&plain) - 1;
        assert_int_equal(plain.later[last], 0);
        assert_int_equal(halved.later[0], 0); /* nobody waits for the first stage */
        assert_int_equal(halved.later[last] > 0, !kinds[i].adapter);
    }
}

/* On the second stage, with one micro-batch, products that follow the gradient's way to the first are the
 * matrices'. */
static void products_follow_the_message(void **state) {
    (void)state;
    static const struct {
        struct run run;
        enum ax_op op;
        uint64_t each; /* of a layer */
    } cases[] = {
        {{.type = "llama"}, AX_OP_gemm, 4},
        {{.type = "llama", .fp8 = "rowwise"}, AX_OP_gemm, 4},
        {{.type = "mixtral", .extra = SIX}, AX_OP_gemm, 2},
        {{.type = "mixtral", .extra = SIX}, AX_OP_grouped_gemm, 2},
        {{.type = "qwen2_moe", .extra = GATED}, AX_OP_gemm, 5},
        {{.type = "qwen2_moe", .extra = GATED}, AX_OP_grouped_gemm, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static struct run r;
        struct ax_recording recording = {0};
        struct ax_plan plan;
        r = cases[i].run;
        r.dtype = AX_BF16;
        r.micro = 1;
        r.kind = AX_PIPELINE_ZERO_BUBBLE;
        open_arch(&r);
        const struct ax_step_options o = options(&r);
        const struct ax_runtime_options ro = {
            .backend = "sheet", .threads = 1, .sizes = {2, 1, 1, 1, 1, 1}, .world = 2, .rank = 1};
        if (ax_plan_record(&plan, &recording, &ro, &r.arch, &o) != AX_OK)
            fail_msg("%s", ax_error_text());
        uint64_t late = 0;
        bool sent = false;
        for (size_t k = 0; k < recording.n; k++) {
            const struct ax_event *e = &recording.events[k];
            sent |=
                e->kind == AX_EVENT_START && e->transfer.lane == AX_ROLE_PP && e->transfer.to >= 0;
            late += sent && e->kind == AX_EVENT_OP && e->op.op == cases[i].op;
        }
        assert_true(plan.n_layers > 0);
        assert_int_equal(late, cases[i].each * (uint64_t)plan.n_layers);
        ax_recording_free(&recording);
        ax_arch_free(&r.arch);
    }
}

static size_t of_slots(const struct ax_arena_plan *plan) {
    size_t bytes = 0;
    for (int i = 0; i < plan->n_slots; i++)
        bytes += plan->slot[i][AX_PHASE_TRAIN];
    return bytes;
}

/* Operands grow in the memory that activations leave. Each pass may need more for those of one layer, before
 * it leaves its own: as many bytes as a layer keeps, at most. */
static void no_stage_keeps_more_than_the_first(void **state) {
    (void)state;
    enum { STAGES = 4, LAYERS = 2 };
    static struct run plain, halved;
    plain = (struct run){
        .type = "llama", .sizes = {STAGES, 1, 1, 1, 1, 1}, .dtype = AX_F32, .micro = 6};
    halved = plain;
    run(&plain, AX_PIPELINE_1F1B);
    run(&halved, AX_PIPELINE_ZERO_BUBBLE);
    const size_t first = of_slots(&plain.plan[0]);
    assert_int_equal(of_slots(&halved.plan[0]), first);
    for (int r = 1; r < STAGES; r++) {
        const size_t bytes = of_slots(&halved.plan[r]);
        print_message("stage %d: %zu bytes, 1f1b's first %zu\n", r, bytes, first);
        assert_int_equal(halved.plan[r].n_slots, STAGES);
        assert_true(bytes > of_slots(&plain.plan[r]));
        assert_true(bytes <= first + first / LAYERS);
    }
}

/* In which a stage computes nothing, of a step on H100s: waiting for messages, or done. */
static double bubble_of(enum ax_pipeline_kind kind, double *step) {
    static const int64_t rows[] = {4096, 0};
    struct ax_hardware h;
    struct ax_plan_time t;
    struct ax_arch arch;
    make_arch(&arch, "llama", false, 4096);
    assert_int_equal(ax_hardware_find("h100-sxm-80", &h), AX_OK);
    const struct ax_rates rates = ax_rates_of(&h);
    const struct ax_plan_time_options o = {.rates = &rates};
    const struct ax_runtime_options ro = {
        .backend = "sheet", .threads = 1, .sizes = {4, 1, 1, 1, 1, 1}, .world = 4};
    struct ax_step_options so = tiny_options(AX_BF16, AX_RECOMPUTE_OFF, 8, rows);
    so.pipeline = kind;
    if (ax_plan_time(&t, &o, &ro, &arch, &so) != AX_OK)
        fail_msg("%s", ax_error_text());
    ax_arch_free(&arch);
    *step = t.step;
    return t.exposed[AX_TIME_PP] + t.idle;
}

static void planned_steps_wait_less(void **state) {
    (void)state;
    double step[2];
    const double plain = bubble_of(AX_PIPELINE_1F1B, &step[0]),
                 halved = bubble_of(AX_PIPELINE_ZERO_BUBBLE, &step[1]);
    print_message("a step of %.2f ms waits %.2f ms, with halved backwards %.2f ms %.2f ms\n",
                  1e3 * step[0], 1e3 * plain, 1e3 * step[1], 1e3 * halved);
    assert_true(step[1] < step[0]);
    assert_true(halved <= 0.6 * plain);
}

/* Share of a step in which the stages compute nothing, with messages that take no time. */
static double measured_bubble(enum ax_pipeline_kind kind) {
    static struct run r;
    double step = 0, waits = 0;
    r = (struct run){.type = "llama",
                     .sizes = {4, 1, 1, 1, 1, 1},
                     .dtype = AX_F32,
                     .micro = 8,
                     .kind = kind,
                     .turns = true};
    make_arch(&r.arch, r.type, false, 192);
    if (ax_delay_run_told(4, (struct ax_delay_link){0}, seconds_counted, run_rank, &r) != AX_OK)
        fail_msg("%s", ax_error_text());
    ax_arch_free(&r.arch);
    for (int rank = 0; rank < 4; rank++) {
        step += r.step[rank];
        waits += r.waited[rank];
    }
    return waits / step;
}

/* In the delay fabric's mode of turns, as four stages that compute at the same time. */
static void real_steps_wait_less(void **state) {
    (void)state;
    const double plain = measured_bubble(AX_PIPELINE_1F1B),
                 halved = measured_bubble(AX_PIPELINE_ZERO_BUBBLE);
    print_message("bubble: 1f1b %.1f %% of the step, halved backwards %.1f %%\n", 100 * plain,
                  100 * halved);
    assert_true(plain > 0.2 && halved <= 0.75 * plain);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_change_no_bit),
        cmocka_unit_test(products_follow_the_message),
        cmocka_unit_test(no_stage_keeps_more_than_the_first),
        cmocka_unit_test(planned_steps_wait_less),
        cmocka_unit_test(real_steps_wait_less),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
