/* Training runs on meshes of threads, against the same run on one rank: losses, evaluations and
 * weights; and what all ranks of a run must do together. Each rank reads its own copy of the data. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "parallel/comm_local.h"
#include "tests/optim/train_runs.h"

enum { STEPS = 5, MAX_WORLD = 8, WIDTH = 3 };

static const struct ax_peft_config lora = {.r = 3, .alpha = 8, .all_linear = true, .dropout = 0.1};

struct kind {
    bool on_ref, adapter, packed, experts;
    int accumulation; /* micro-batches of a step, over all data ranks */
    double neftune;
};

struct mesh_run {
    struct ax_mesh_sizes sizes;
    const struct kind *kind;
    bool spoiled; /* the second step's second micro-batch has a bad gradient */
    int broken;   /* rank that fails before its runtime is open; −1 = none */
    /* out, of rank 0 */
    struct ax_train_result r;
    double losses[STEPS];
    int n_losses;
    char warning[512]; /* the last */
};

/* An objective that is the usual one but in one micro-batch. */
struct spoiler {
    int calls, bad; /* of training passes */
};

static enum ax_status spoil(void *ctx, struct ax_pass *p, const struct ax_head_chunk *c) {
    struct spoiler *s = ctx;
    AX_TRY(ax_objective_sft.head.token_grad(NULL, p, c));
    if (p->recompute != AX_RECOMPUTE_INFERENCE && !ax_runtime_planning(p->model->rt) &&
        s->calls++ == s->bad)
        ax_store(c->g_logprob.dtype, c->g_logprob.data, 0, NAN);
    return AX_OK;
}

/* −1: another data rank has that micro-batch. */
static int bad_call(const struct mesh_run *m, const struct ax_fabric *f) {
    struct ax_mesh mesh;
    const int n = m->kind->accumulation;
    if (!m->spoiled || ax_mesh_create(&mesh, m->sizes, f->world, f->rank) != AX_OK)
        return -1;
    const int ranks = mesh.size[AX_ROLE_BATCH];
    return mesh.coord[AX_ROLE_BATCH] == 1 % ranks ? n / ranks + 1 / ranks : -1;
}

/* The losses that metrics.jsonl reports, step by step, and the last warning. */
static int read_metrics(const struct train_case *c, struct mesh_run *m) {
    char path[192], *text, *rest;
    size_t n;
    int found = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", c->out);
    if (ax_read_file(path, 1 << 20, &text, &n) != AX_OK)
        return 0;
    rest = text;
    for (const char *line; (line = strsep(&rest, "\n")) != NULL;) {
        const char *loss = strstr(line, "\"loss\": ");
        if (loss && strstr(line, "\"grad_norm\"") && found < STEPS)
            m->losses[found++] = strtod(loss + strlen("\"loss\": "), NULL);
        if (strstr(line, "\"warning\""))
            snprintf(m->warning, sizeof m->warning, "%s", strstr(line, "\"text\""));
    }
    ax_free(text);
    return found;
}

static int data_ranks(const struct ax_mesh_sizes *s) {
    return s->dp_replicate * s->dp_shard;
}

static const char experts[] =
    "{\"model_type\": \"mixtral\", \"vocab_size\": 97, \"hidden_size\": 40, "
    "\"intermediate_size\": 54, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
    "\"num_key_value_heads\": 2, \"head_dim\": 12, \"initializer_range\": 0.15, "
    "\"max_position_embeddings\": 64, \"num_local_experts\": 8, \"num_experts_per_tok\": 2}";

static enum ax_status use_experts(struct train_case *c) {
    struct ax_json_doc doc;
    ax_arch_free(&c->arch);
    json_decref(c->model_config);
    AX_TRY(ax_json_parse(&doc, "experts", experts, strlen(experts)));
    const enum ax_status st = ax_arch_parse(&c->arch, ax_json_root(&doc));
    c->model_config = json_incref(doc.root);
    c->o.save.hf.config = c->model_config;
    ax_json_free(&doc);
    return st;
}

static enum ax_status train_rank(struct ax_fabric *fabric, void *ctx) {
    struct mesh_run *m = ctx;
    const struct kind *k = m->kind;
    struct train_case c;
    struct ax_train_result r;
    AX_TRY(train_case_open(&c, k->on_ref ? AX_F64 : AX_F32, k->packed));
    struct ax_train_options *o = &c.o;
    if (k->experts)
        AX_TRY(use_experts(&c));
    o->runtime = (struct ax_runtime_options){
        .backend = k->on_ref ? "ref" : "cpu", .threads = 1, .sizes = m->sizes, .fabric = fabric};
    o->step.n_microbatches = k->accumulation / data_ranks(&m->sizes);
    o->step.neftune_alpha = k->neftune;
    o->step.adapter = k->adapter ? &lora : NULL;
    o->data.pad = 4;
    o->max_steps = STEPS;
    o->lr.base_lr = 1e-3; /* with Adam, rounding errors of small gradients become steps */
    o->metrics.logging_steps = 1;
    o->eval.when = (struct ax_cadence){AX_EACH_STEPS, 2};
    o->data.eval_tokens = 40; /* several passes */
    struct spoiler spoiler = {.bad = bad_call(m, fabric)};
    const struct ax_objective spoiled = {
        .name = "spoiled", .head = {.linear = true, .token_grad = spoil, .ctx = &spoiler}};
    if (m->spoiled)
        o->step.objective = &spoiled;
    if (m->broken == fabric->rank) {
        o->data.countable = false;
        o->max_steps = 0;
    }
    ax_loader_start_epoch(c.loader, 0);
    const enum ax_status st = ax_train(o, &r);
    if (st == AX_OK && fabric->rank == 0) {
        m->r = r;
        m->n_losses = read_metrics(&c, m);
    }
    train_case_close(&c);
    return st;
}

/* What a run on several ranks cannot do. */
enum { REFUSED_SAVE, REFUSED_AUTO, REFUSED };
struct refused {
    int what;
};

static enum ax_status train_refused(struct ax_fabric *fabric, void *ctx) {
    const struct refused *r = ctx;
    struct train_case c;
    struct ax_train_result result;
    AX_TRY(train_case_open(&c, AX_F32, false));
    c.o.runtime = (struct ax_runtime_options){
        .backend = "cpu", .threads = 1, .sizes = {.dp_shard = 2}, .fabric = fabric};
    if (r->what == REFUSED_SAVE)
        c.o.save.when = (struct ax_cadence){AX_EACH_STEPS, 1};
    c.o.recompute_auto = r->what == REFUSED_AUTO;
    const enum ax_status st = ax_train(&c.o, &result);
    train_case_close(&c);
    return st;
}

static enum ax_status train(struct mesh_run *m) {
    const struct ax_mesh_sizes *s = &m->sizes;
    const uint64_t live = ax_mem_live_blocks();
    const enum ax_status st =
        ax_local_run(s->pp * s->dp_replicate * s->dp_shard * s->cp * s->tp, NULL, train_rank, m);
    assert_int_equal(ax_mem_live_blocks(), live);
    return st;
}

static void run_ok_on(struct mesh_run *m) {
    if (train(m) != AX_OK)
        fail_msg("%s", ax_error_text());
}

static void expect_close(const char *what, int at, double mesh, double one, double tolerance,
                         const struct ax_mesh_sizes *s) {
    if (!(fabs(mesh - one) <= tolerance * fmax(1, fabs(one))))
        fail_msg("pp %d dp_replicate %d dp_shard %d cp %d tp %d ep %d: %s %d is %.15g, on one rank "
                 "%.15g",
                 s->pp, s->dp_replicate, s->dp_shard, s->cp, s->tp, s->ep, what, at, mesh, one);
}

static void expect_equal(struct mesh_run *m, const struct mesh_run *one) {
    const double tolerance = m->kind->on_ref ? 1e-11 : 1e-5;
    run_ok_on(m);
    assert_int_equal(m->n_losses, STEPS);
    for (int i = 0; i < STEPS; i++)
        expect_close("the loss of step", i + 1, m->losses[i], one->losses[i], tolerance, &m->sizes);
    assert_true(m->r.evaluated && one->r.evaluated);
    const struct ax_eval_result *got[] = {&m->r.first_eval, &m->r.last_eval},
                                *want[] = {&one->r.first_eval, &one->r.last_eval};
    for (int i = 0; i < 2; i++) {
        expect_close("the loss of evaluation", i, got[i]->loss, want[i]->loss, tolerance,
                     &m->sizes);
        assert_int_equal(got[i]->documents, want[i]->documents);
        assert_int_equal(got[i]->tokens, want[i]->tokens);
        assert_int_equal(got[i]->trained, want[i]->trained);
        assert_int_equal(got[i]->correct, want[i]->correct);
    }
}

static const struct ax_mesh_sizes meshes[] = {
    /* pp, dp_replicate, dp_shard, cp, tp, ep */
    {1, 1, 2, 1, 1, 1}, {1, 2, 1, 1, 1, 1}, {1, 1, 1, 1, 2, 1}, {1, 1, 1, 2, 1, 1},
    {2, 1, 1, 1, 1, 1}, {1, 1, 2, 1, 2, 1}, {2, 1, 2, 1, 1, 1}, {1, 1, 2, 2, 1, 1},
    {1, 1, 1, 2, 2, 1}, {2, 1, 1, 1, 2, 1}, {2, 1, 1, 2, 1, 1}, {1, 2, 2, 1, 1, 1},
};
static const struct ax_mesh_sizes of_experts[] = {
    {1, 1, 2, 1, 1, 2}, {1, 1, 4, 1, 1, 2}, {1, 1, 2, 1, 2, 4},
    {1, 1, 1, 2, 1, 2}, {2, 1, 2, 1, 1, 2}, {1, 1, 1, 1, 2, 2},
};

static void compare(const struct kind *k, size_t first, size_t every) {
    const struct ax_mesh_sizes *list = k->experts ? of_experts : meshes;
    const size_t n =
        k->experts ? sizeof of_experts / sizeof *of_experts : sizeof meshes / sizeof *meshes;
    struct mesh_run one = {.sizes = {1, 1, 1, 1, 1, 1}, .kind = k, .broken = -1};
    run_ok_on(&one);
    assert_int_equal(one.n_losses, STEPS);
    assert_true(one.losses[STEPS - 1] != one.losses[0]);
    for (size_t i = first; i < n; i += every) {
        struct mesh_run m = {.sizes = list[i], .kind = k, .broken = -1};
        if (k->accumulation % data_ranks(&m.sizes) == 0)
            expect_equal(&m, &one);
    }
}

/* Rows of one document are of unequal length; dropout and noise are numbered by the row in the
 * step. */
static void runs_are_those_of_one_rank_in_double(void **state) {
    (void)state;
    static const struct kind full = {.on_ref = true, .accumulation = 4, .neftune = 5},
                             adapter = {.on_ref = true, .accumulation = 4, .adapter = true};
    compare(&full, 0, 1);
    compare(&adapter, 0, 2);
}

/* The ranks of an expert group may send each other all rows of their equally long micro-batches. */
static void runs_with_experts_are_those_of_one_rank(void **state) {
    (void)state;
    static const struct kind exact = {.on_ref = true, .accumulation = 4, .experts = true};
    compare(&exact, 0, 1);
}

static void runs_are_those_of_one_rank_in_float(void **state) {
    (void)state;
    static const struct kind once = {.accumulation = 2, .packed = true}, four = {.accumulation = 8},
                             adapter = {.accumulation = 4, .adapter = true, .neftune = 5};
    compare(&once, 0, 3);
    compare(&four, 1, 3);
    compare(&adapter, 1, 2);
}

/* A bad gradient of one data rank: all skip the step, and the records that are named are those of all
 * data ranks, as on one rank; the losses before and after are one rank's, too. */
static void a_bad_step_is_that_of_one_rank(void **state) {
    (void)state;
    static const struct kind kind = {.on_ref = true, .accumulation = 4};
    struct mesh_run one = {
        .sizes = {1, 1, 1, 1, 1, 1}, .kind = &kind, .spoiled = true, .broken = -1};
    run_ok_on(&one);
    assert_non_null(strstr(one.warning, "the step is skipped"));
    assert_non_null(strstr(one.warning, "rows.jsonl:"));
    for (size_t i = 0; i < 7; i++) {
        struct mesh_run m = {.sizes = meshes[i], .kind = &kind, .spoiled = true, .broken = -1};
        expect_equal(&m, &one);
        assert_string_equal(m.warning, one.warning);
    }
}

static void what_only_one_rank_does_is_refused(void **state) {
    (void)state;
    struct refused r = {0};
    for (r.what = 0; r.what < REFUSED; r.what++) {
        assert_int_equal(ax_local_run(2, NULL, train_refused, &r), AX_ERR_UNSUPPORTED);
        expect_error(r.what == REFUSED_SAVE ? "writes no checkpoints" : "cannot agree on auto");
    }
}

/* Before the runtime of a rank is open, too, others hear of its failure. */
static void a_failure_before_the_run_reaches_all(void **state) {
    (void)state;
    static const struct kind kind = {.accumulation = 2};
    for (int rank = 0; rank < 2; rank++) {
        struct mesh_run m = {.sizes = {1, 1, 2, 1, 1, 1}, .kind = &kind, .broken = rank};
        const double start = ax_clock_now();
        assert_int_equal(train(&m), AX_ERR_CONFIG);
        expect_error("max_steps");
        assert_true(ax_clock_now() - start < 30); /* not the fabric's timeout */
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_are_those_of_one_rank_in_double),
        cmocka_unit_test(a_bad_step_is_that_of_one_rank),
        cmocka_unit_test(what_only_one_rank_does_is_refused),
        cmocka_unit_test(a_failure_before_the_run_reaches_all),
        cmocka_unit_test(runs_with_experts_are_those_of_one_rank),
        cmocka_unit_test(runs_are_those_of_one_rank_in_float),
    };
    return cmocka_run_group_tests(tests, quiet, NULL);
}
