/* Runs that sample what they train on: on meshes against one rank, on memory that the host cannot
 * touch, and after a stop while they sample. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"
#include "model/arch/classifier.h"
#include "optim/losses/value.h"
#include "parallel/fabric/comm_local.h"
#include "tests/golden_files.h"
#include "tests/tiny.h"
#include "tests/optim/train_runs.h"
#include "tests/long.h"

enum { STEPS = 6, PROMPTS = 10, GROUP = 4, MAX_PROMPT = 9, MAX_NEW = 12 };

static struct ax_tokenizer *tokenizer; /* of another model, with more tokens */

/* A reward model with random weights. */
struct judge {
    struct ax_arch arch;
    struct ax_reward_model model;
};

/* A case of prompts; each rank has its own. */
struct rollout_case {
    struct judge judge;
    struct ax_arch value_arch;
    struct ax_value_options value_options;
    struct ax_objective value;
    struct ax_rollout_ppo ppo;
    struct train_case c;
    struct ax_examples prompts;
    struct ax_corpus corpus;
    struct ax_corpus_source order;
    struct ax_example_source from, source; /* the second raises a signal, too */
    struct ax_loader *loader;
    struct ax_policy policy;
    struct ax_objective objective;
    struct ax_rewards *rewards;
    int64_t stop_epoch; /* in whose beginning a signal comes; −1: none */
};

struct variant {
    const char *backend;
    enum ax_dtype dtype;
    bool adapter;
    double beta;
    int steps, iterations, rounds;
    bool spread; /* rewards of all answers are the same */
    bool masks;  /* answers that are cut */
    bool judged; /* by a model, too */
    bool ppo;    /* with a value model; one answer per prompt */
};

static const int32_t ends[] = {3, 17, 40, 41, 42, 77};

/* ---- data ---- */

static enum ax_status add_prompts(struct ax_examples *e) {
    AX_TRY(ax_examples_add_file(e, "prompts.jsonl"));
    for (int k = 0; k < PROMPTS; k++) {
        int32_t ids[MAX_PROMPT];
        char text[32];
        const size_t n = 2 + (size_t)k % (MAX_PROMPT - 1);
        for (size_t i = 0; i < n; i++)
            ids[i] = (int32_t)ax_rng_below((struct ax_rng_key){5, (uint32_t)k, 2}, i, 97);
        snprintf(text, sizeof text, "{\"answer\": %d}", k);
        const struct ax_example x = {.tokens = ids,
                                     .labels = ids,
                                     .n = n,
                                     .text = text,
                                     .n_text = strlen(text),
                                     .origin = {.line = (uint64_t)k + 1}};
        AX_TRY(ax_examples_add(e, &x));
    }
    return AX_OK;
}

static enum ax_status chunk(void *ctx, int64_t epoch, int64_t number, struct ax_source_place place,
                            struct ax_corpus *out, struct ax_source_place *next) {
    struct rollout_case *r = ctx;
    if (epoch == r->stop_epoch) {
        r->stop_epoch = -1;
        raise(SIGTERM);
    }
    return r->from.chunk(r->from.ctx, epoch, number, place, out, next);
}

static enum ax_status open_prompts(struct rollout_case *r) {
    const struct ax_corpus_options co = {.rule = {1, MAX_PROMPT, 0, false}};
    const struct ax_loader_options lo = {.pack = {.mode = AX_PACK_PLAIN,
                                                  .capacity = MAX_PROMPT,
                                                  .max_docs = 1,
                                                  .group = 1,
                                                  .chunk = 1000},
                                         .shuffle = true,
                                         .seed = 5};
    struct ax_corpus_report report;
    AX_TRY(add_prompts(&r->prompts));
    AX_TRY(ax_corpus_build(&r->corpus, &r->prompts, 1, &co, &report));
    r->order = (struct ax_corpus_source){.chunk = 1000, .shuffle = true, .seed = 5};
    ax_corpus_source_init(&r->order, &r->corpus, &r->from);
    r->source = r->from;
    r->source.chunk = chunk;
    r->source.ctx = r;
    return ax_loader_new(&r->loader, &r->source, &lo);
}

/* ---- a reward model ---- */

/* The model's score of each completion alone: at its last token. */
static enum ax_status judge(void *ctx, size_t n, const struct ax_reward_item *items, double *out) {
    struct judge *j = ctx;
    struct ax_document docs[4 * GROUP];
    int32_t labels[4 * GROUP][MAX_NEW];
    assert_true(n <= sizeof docs / sizeof *docs);
    for (size_t i = 0; i < n; i++) {
        for (int64_t t = 0; t < items[i].n_ids; t++)
            labels[i][t] = t + 1 == items[i].n_ids ? 0 : AX_NO_LABEL;
        docs[i] =
            (struct ax_document){.n = items[i].n_ids, .tokens = items[i].ids, .labels = labels[i]};
    }
    return ax_reward_model_read(&j->model, (int)n, docs, out);
}

static enum ax_status open_judge(struct judge *j) {
    AX_TRY(tiny_arch(&j->arch, "qwen3", false, ""));
    AX_TRY(ax_classifier_choose(&j->arch, &ax_classifier_reward));
    j->model = (struct ax_reward_model){
        .name = "judge", .arch = &j->arch, .max_len = MAX_NEW, .tokens = 2 * MAX_NEW};
    return AX_OK;
}

/* ---- a run ---- */

static const struct ax_peft_config lora = {.r = 3, .alpha = 8, .all_linear = true};

static void set_options(struct rollout_case *r, const struct variant *v, int data_ranks) {
    struct ax_train_options *o = &r->c.o;
    struct ax_policy_options po = ax_policy_defaults(v->ppo ? "bnpo" : "grpo");
    const int64_t group = v->ppo ? 1 : GROUP;
    po.old = true;
    po.beta = v->beta;
    po.token_advantages = v->ppo;
    r->objective = ax_objective_policy(&r->policy, &po);
    r->objective.temperature = 0.9;
    o->step.objective = &r->objective;
    o->step.model.adapter = v->adapter ? &lora : NULL;
    o->step.n_microbatches = 2 / data_ranks;
    o->runtime = (struct ax_runtime_options){.backend = v->backend, .threads = 1};
    o->data = (struct ax_train_data){.train = r->loader,
                                     .sequences_per_batch = GROUP,
                                     .sequence_tokens = MAX_PROMPT + MAX_NEW,
                                     .sequence_docs = 1,
                                     .doc_tokens = MAX_PROMPT + MAX_NEW,
                                     .drop_last = true,
                                     .countable = true,
                                     .pad = 4};
    o->max_steps = STEPS;
    o->epochs = 20;
    o->lr.base_lr = 1e-3;
    o->metrics.logging_steps = 1;
    o->rollout = (struct ax_rollout_options){.group = group,
                                             .prompts = 2 * GROUP / group * v->steps,
                                             .steps = v->steps,
                                             .iterations = v->iterations,
                                             .rounds = v->rounds,
                                             .max_prompt = MAX_PROMPT,
                                             .max_new = MAX_NEW,
                                             .lanes = 3,
                                             .sampling = {.temperature = 0.9, .seed = 11},
                                             .n_stop = (int)(sizeof ends / sizeof *ends),
                                             .stop = ends,
                                             .mask_truncated = v->masks,
                                             .policy = &r->policy,
                                             .rewards = r->rewards,
                                             .tokenizer = tokenizer};
}

static char *const scores[] = {(char *)"score"};
static const struct ax_peft_config value_lora = {
    .r = 2, .alpha = 4, .all_linear = true, .save = {1, (char **)scores}};

static enum ax_status open_value(struct rollout_case *r) {
    r->value_options = (struct ax_value_options){.coef = 0.1, .cliprange = 0.2};
    r->value = ax_objective_value(&r->value_options);
    r->ppo = (struct ax_rollout_ppo){.gamma = 0.99,
                                     .lambda = 0.95,
                                     .kl_coef = 0.05,
                                     .whiten_rewards = true,
                                     .missing_eos_penalty = 1};
    AX_TRY(tiny_arch(&r->value_arch, "llama", false, ""));
    AX_TRY(ax_classifier_choose(&r->value_arch, &ax_classifier_reward));
    r->c.o.value = (struct ax_train_value_options){.arch = &r->value_arch, .objective = &r->value};
    if (r->c.o.step.model.adapter) { /* on the policy's base */
        r->c.o.value.adapter = &value_lora;
        r->c.o.value.on_policy = true;
    }
    r->c.o.rollout.ppo = &r->ppo;
    return AX_OK;
}

static enum ax_status case_open(struct rollout_case *r, const struct variant *v, int data_ranks) {
    const struct ax_reward_function functions[] = {
        {.name = v->spread ? "length:100" : "soft_overlong:12:11", .weight = 1},
        {.name = "judge", .weight = 3, .score = judge, .ctx = &r->judge}};
    const struct ax_rewards_options ro = {
        .functions = functions, .n = v->judged ? 2 : 1, .program = getenv("AX_TEST_BIN")};
    *r = (struct rollout_case){.stop_epoch = -1};
    AX_TRY(train_case_open(&r->c, v->dtype, false));
    AX_TRY(open_prompts(r));
    AX_TRY(ax_rewards_open(&r->rewards, &ro));
    set_options(r, v, data_ranks);
    if (v->ppo)
        AX_TRY(open_value(r));
    if (v->judged) {
        AX_TRY(open_judge(&r->judge));
        r->c.o.rollout.models[r->c.o.rollout.n_models++] = &r->judge.model;
    }
    return AX_OK;
}

static void case_close(struct rollout_case *r) {
    ax_arch_free(&r->judge.arch);
    ax_arch_free(&r->value_arch);
    ax_loader_free(r->loader);
    ax_corpus_source_free(&r->order);
    ax_corpus_free(&r->corpus);
    ax_examples_free(&r->prompts);
    ax_rewards_close(r->rewards);
    train_case_close(&r->c);
}

/* What a run leaves, of rank 0. */
struct left {
    double losses[STEPS], norms[STEPS],
        values[STEPS]; /* losses of the value model, if there is one */
    int n;
    uint64_t completions, weights;
    char dir[112];
};

static void read_left(const struct train_case *c, struct left *l) {
    char path[160], *text, *rest;
    size_t size;
    l->n = 0;
    l->completions = train_case_hash(c, "completions.jsonl");
    l->weights = train_case_hash(c, c->o.step.model.adapter ? "adapter_model.safetensors"
                                                            : "model.safetensors");
    snprintf(path, sizeof path, "%s/metrics.jsonl", c->o.save.output_dir);
    assert_int_equal(ax_read_file(path, 1 << 22, &text, &size), AX_OK);
    rest = text;
    for (const char *line; (line = strsep(&rest, "\n")) != NULL;) {
        const char *loss = strstr(line, "\"loss\": "), *norm = strstr(line, "\"grad_norm\": ");
        if (!loss || !norm || l->n == STEPS)
            continue;
        const char *value = strstr(line, "\"loss/value_avg\": ");
        l->values[l->n] = value ? strtod(value + strlen("\"loss/value_avg\": "), NULL) : 0;
        l->losses[l->n] = strtod(loss + strlen("\"loss\": "), NULL);
        l->norms[l->n++] = strtod(norm + strlen("\"grad_norm\": "), NULL);
    }
    ax_free(text);
}

struct mesh_run {
    const struct variant *v;
    struct ax_mesh_sizes sizes;
    struct left left;
    char out[64];
};

static enum ax_status train_rank(struct ax_fabric *fabric, void *ctx) {
    struct mesh_run *m = ctx;
    struct rollout_case r;
    struct ax_train_result result;
    char out[80];
    AX_TRY(case_open(&r, m->v, m->sizes.dp_replicate * m->sizes.dp_shard));
    r.c.o.runtime.fabric = fabric;
    r.c.o.runtime.sizes = m->sizes;
    snprintf(out, sizeof out, "%s/out", m->out);
    snprintf(r.c.out, sizeof r.c.out, "%s", out);
    r.c.o.save.output_dir = r.c.out;
    const enum ax_status st = ax_train(&r.c.o, &result);
    if (st == AX_OK && fabric->rank == 0)
        read_left(&r.c, &m->left);
    case_close(&r);
    return st;
}

static void run_mesh(struct mesh_run *m) {
    const struct ax_mesh_sizes *s = &m->sizes;
    const uint64_t live = ax_mem_live_blocks();
    snprintf(m->out, sizeof m->out, "/tmp/axtrain-rollout-XXXXXX");
    assert_non_null(mkdtemp(m->out));
    const enum ax_status st =
        ax_local_run(s->pp * s->dp_replicate * s->dp_shard * s->cp * s->tp, NULL, train_rank, m);
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
    assert_int_equal(ax_remove_tree(m->out), AX_OK);
    assert_int_equal(ax_mem_live_blocks(), live);
    assert_int_equal(m->left.n, STEPS);
}

/* ---- tests ---- */

static const struct ax_mesh_sizes meshes[] = {
    {1, 1, 2, 1, 1, 1}, {1, 2, 1, 1, 1, 1}, {1, 1, 1, 1, 2, 1}, {1, 1, 2, 1, 2, 1},
    {2, 1, 1, 1, 1, 1}, {1, 1, 1, 2, 1, 1}, {2, 1, 1, 2, 1, 1}, {2, 1, 2, 1, 1, 1}};

/* The same completions; what they teach is summed in another order. */
static void any_mesh_is_one_rank(void **state) {
    (void)state;
    static const struct variant all[] = {
        {.backend = "ref", .dtype = AX_F64, .steps = 1, .iterations = 1},
        {.backend = "ref", .dtype = AX_F64, .steps = 2, .iterations = 1, .judged = true},
        {.backend = "ref", .dtype = AX_F64, .steps = 2, .iterations = 2, .beta = 0.1},
        {.backend = "ref",
         .dtype = AX_F64,
         .steps = 1,
         .iterations = 2,
         .beta = 0.1,
         .adapter = true},
        {.backend = "ref", .dtype = AX_F64, .steps = 1, .iterations = 2, .ppo = true},
        {.backend = "ref",
         .dtype = AX_F64,
         .steps = 1,
         .iterations = 1,
         .judged = true,
         .ppo = true,
         .adapter = true},
    };
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        struct mesh_run one = {.v = &all[k], .sizes = {1, 1, 1, 1, 1, 1}};
        run_mesh(&one);
        double most = 0;
        for (int i = 0; i < STEPS; i++)
            most = fmax(most, one.left.norms[i]);
        assert_true(most > 0);
        assert_int_equal(all[k].ppo, one.left.values[0] > 0);
        for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
            struct mesh_run m = {.v = &all[k], .sizes = meshes[i]};
            run_mesh(&m);
            assert_true(m.left.completions == one.left.completions);
            for (int s = 0; s < STEPS; s++)
                if (!(fabs(m.left.losses[s] - one.left.losses[s]) <= 1e-11 &&
                      fabs(m.left.values[s] - one.left.values[s]) <= 1e-11 &&
                      fabs(m.left.norms[s] - one.left.norms[s]) <= 1e-11 * (1 + most)))
                    fail_msg(
                        "variant %zu, mesh %zu, step %d: loss %.12g and norm %.12g, on one rank "
                        "%.12g and %.12g",
                        k, i, s + 1, m.left.losses[s], m.left.norms[s], one.left.losses[s],
                        one.left.norms[s]);
        }
    }
}

/* Completions without a gradient are left out, which changes no sum: with a KL divergence of no weight
 * all are there. */
static void leaving_out_changes_nothing(void **state) {
    (void)state;
    static const struct variant all[] = {
        {.backend = "ref", .dtype = AX_F64, .steps = 2, .iterations = 1, .masks = true},
        {.backend = "ref",
         .dtype = AX_F64,
         .steps = 2,
         .iterations = 1,
         .masks = true,
         .beta = 1e-30}};
    static const struct ax_mesh_sizes two = {1, 2, 1, 1, 1, 1};
    for (int ranks = 1; ranks <= 2; ranks++) {
        struct mesh_run m[2];
        for (int i = 0; i < 2; i++) {
            m[i] = (struct mesh_run){.v = &all[i], .sizes = ranks == 2 ? two : meshes[0]};
            m[i].sizes.dp_shard = 1;
            run_mesh(&m[i]);
        }
        assert_true(m[0].left.completions == m[1].left.completions);
        for (int s = 0; s < STEPS; s++)
            assert_true(fabs(m[0].left.norms[s] - m[1].left.norms[s]) <= 1e-11);
    }
}

static void run_here(struct rollout_case *r, struct left *l) {
    struct ax_train_result result;
    if (ax_train(&r->c.o, &result) != AX_OK)
        fail_msg("%s (%s)", ax_error_text(), ax_error_trace());
    read_left(&r->c, l);
}

static void far_memory_is_near(void **state) {
    (void)state;
    static const char *const backends[] = {"cpu", "far"};
    for (int ppo = 0; ppo < 2; ppo++) {
        struct left left[2];
        for (int i = 0; i < 2; i++) {
            const struct variant v = {.backend = backends[i],
                                      .dtype = AX_F32,
                                      .steps = ppo ? 1 : 2,
                                      .iterations = 2,
                                      .beta = ppo ? 0 : 0.1,
                                      .judged = true,
                                      .ppo = ppo};
            struct rollout_case r;
            assert_int_equal(case_open(&r, &v, 1), AX_OK);
            run_here(&r, &left[i]);
            case_close(&r);
        }
        assert_true(left[0].completions == left[1].completions);
        assert_true(left[0].weights == left[1].weights);
        for (int s = 0; s < STEPS; s++)
            assert_true(left[0].values[s] == left[1].values[s]);
    }
}

/* A signal while prompts are read: nothing of that generation counts. */
static void a_stop_while_it_samples(void **state) {
    (void)state;
    static const struct variant v = {
        .backend = "cpu", .dtype = AX_F32, .steps = 2, .iterations = 1};
    struct rollout_case r;
    struct ax_train_result result;
    struct left straight, stopped;
    assert_int_equal(case_open(&r, &v, 1), AX_OK);
    r.c.o.data.countable = false; /* else all epochs are looked through before */
    run_here(&r, &straight);
    case_close(&r);
    assert_int_equal(case_open(&r, &v, 1), AX_OK);
    r.c.o.data.countable = false;
    r.stop_epoch = 1; /* of two generations each */
    r.c.o.save.resume = AX_RESUME_NEWEST;
    assert_int_equal(ax_train(&r.c.o, &result), AX_SAVED_REQUEUE);
    assert_int_equal(result.steps, 4);
    run_here(&r, &stopped);
    case_close(&r);
    assert_true(straight.completions == stopped.completions);
    assert_true(straight.weights == stopped.weights);
    for (int i = 0; i < STEPS; i++)
        assert_true(straight.losses[i] == stopped.losses[i]);
}

/* Each of the two steps says how many times it has sampled, and how many prompts. */
static void said_of_rounds(const struct train_case *c, int rounds) {
    char path[160], *text, want[96];
    size_t n;
    int found = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", c->o.save.output_dir);
    assert_int_equal(ax_read_file(path, 1 << 22, &text, &n), AX_OK);
    snprintf(want, sizeof want,
             "\"dynamic_sampling/rounds\": %d, \"dynamic_sampling/prompts\": %d,", 1 + rounds,
             2 * (1 + rounds));
    for (const char *at = text; (at = strstr(at, rounds ? want : "dynamic_sampling/")); at++)
        found++;
    assert_int_equal(found, rounds ? 2 : 0);
    ax_free(text);
}

/* Where all answers are worth the same, other prompts are sampled, as often as is allowed. */
static void prompts_without_a_spread_are_replaced(void **state) {
    (void)state;
    for (int rounds = 0; rounds < 3; rounds++) {
        const struct variant v = {.backend = "cpu",
                                  .dtype = AX_F32,
                                  .steps = 1,
                                  .iterations = 1,
                                  .rounds = rounds,
                                  .spread = true};
        struct rollout_case r;
        struct left l = {0};
        struct ax_loader_state at;
        assert_int_equal(case_open(&r, &v, 1), AX_OK);
        r.c.o.max_steps = 2;
        run_here(&r, &l);
        ax_loader_save(r.loader, &at);
        assert_int_equal(at.epoch * PROMPTS + at.index, 2 * 2 * (1 + rounds));
        assert_true(l.norms[0] == 0 && l.norms[1] == 0);
        said_of_rounds(&r.c, rounds);
        case_close(&r);
    }
}

/* ---- what is said of answers, which are written here ---- */

static double figure(const struct ax_rollout *r, const char *name) {
    for (int i = 0; i < r->figures.n; i++)
        if (strcmp(r->figures.names[i], name) == 0)
            return r->figures.values[i];
    fail_msg("no %s", name);
    return 0;
}

static void assert_figures(const struct ax_rollout *r, const char *const *names,
                           const double *values, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!(fabs(figure(r, names[i]) - values[i]) <= 1e-12))
            fail_msg("%s: %.17g, expected %.17g", names[i], figure(r, names[i]), values[i]);
}

/* Of four answers with tools: lengths are of what was sampled, and calls are counted over all answers. */
static void figures_of_answers(void **state) {
    (void)state;
    static const struct ax_episode_rules rules = {.max_seconds = 5};
    static const struct ax_completion list[4] = {
        {.sampled = 3, .n_calls = 2, .n_failed = 1},
        {.sampled = 8, .n_unread = 1, .truncated = true, .late = true},
        {.sampled = 5, .n_calls = 1},
        {.sampled = 1, .n_unread = 1}};
    static const char *const names[] = {"completions/mean_length",
                                        "completions/min_length",
                                        "completions/max_length",
                                        "completions/clipped_ratio",
                                        "completions/mean_terminated_length",
                                        "completions/min_terminated_length",
                                        "completions/max_terminated_length",
                                        "tools/call_frequency",
                                        "tools/failure_frequency",
                                        "tools/unread_frequency",
                                        "tools/timeout_frequency",
                                        "tools/seconds",
                                        "tools/wait_seconds",
                                        "drafts/passes",
                                        "drafts/tried",
                                        "drafts/accepted",
                                        "on_policy"};
    static const double values[] = {17 / 4.0, 1,    8,    0.25, 9 / 3.0, 1, 5, 3 / 4.0, 1 / 3.0,
                                    2 / 4.0,  0.25, 2.25, 0.75, 7,       6, 4, 1};
    const struct ax_rollout_options o = {.group = 2,
                                         .prompts = 2,
                                         .steps = 1,
                                         .iterations = 1,
                                         .max_prompt = MAX_PROMPT,
                                         .max_new = MAX_NEW,
                                         .turns = &rules,
                                         .drafts = true,
                                         .own_share = 0.5};
    struct ax_rollout r;
    assert_int_equal(ax_rollout_create(&r, &o), AX_OK);
    memcpy(r.list, list, sizeof list);
    r.tool_seconds = 2.25;
    r.wait_seconds = 0.75;
    r.passes = 7;
    r.drafts = 6;
    r.accepted = 4;
    assert_int_equal(ax_rollout_judge(&r), AX_OK);
    assert_figures(&r, names, values, sizeof values / sizeof *values);
    r.list[0].given = true;
    assert_int_equal(ax_rollout_judge(&r), AX_OK);
    assert_true(figure(&r, "on_policy") == 0);
    ax_rollout_free(&r);
}

/* A function of the highest reward 1 and the weight 2, another with 3, and a penalty. */
static void worth_of_answers(void **state) {
    (void)state;
    static const struct ax_reward_function functions[] = {
        {.name = "format:x", .weight = 2},
        {.name = "judge", .weight = 3, .score = judge},
        {.name = "soft_overlong:12:11", .weight = 4}};
    static const struct {
        double rewards[4][3]; /* of two answers to each of two prompts */
        enum ax_worth worth;
        double mean;
    } cases[] = {
        {{{1, 1, 0}, {1, 1, 0}, {1, 1, 0}, {1, 1, 0}}, AX_WORTH_MOST, 5},
        {{{1, 0, 0}, {1, 0, 0}, {1, 0, 0}, {1, 0, 0}}, AX_WORTH_EQUAL, 2},
        {{{1, 1, 0}, {1, 1, 0}, {0, 1, 0}, {0, 1, 0}}, AX_WORTH_EQUAL, 4},
        {{{1, 1, 0}, {1, 1, 0}, {1, 1, 0}, {1, 1, -0.25}}, AX_WORTH_VARIED, 4.75},
        {{{1, 1, 0}, {1, 1, 0}, {0, 1, 0}, {1, 0, 0}}, AX_WORTH_VARIED, 3.75},
        {{{NAN, NAN, NAN}, {NAN, NAN, NAN}, {NAN, NAN, NAN}, {NAN, NAN, NAN}}, AX_WORTH_NONE, NAN},
        {{{NAN, NAN, NAN}, {1, 1, 0}, {NAN, NAN, NAN}, {1, 1, 0}}, AX_WORTH_EQUAL, 5},
    };
    static const char *const names[] = {"dynamic_sampling/rounds", "dynamic_sampling/prompts",
                                        "code/verdicts/exit", "code/stopped"};
    static const double values[] = {2, 3, 6, 0.25};
    const struct ax_rewards_options ro = {
        .functions = functions, .n = 3, .program = getenv("AX_TEST_BIN")};
    struct ax_rollout_options o = {.group = 2,
                                   .prompts = 2,
                                   .steps = 1,
                                   .iterations = 1,
                                   .rounds = 3,
                                   .max_prompt = MAX_PROMPT,
                                   .max_new = MAX_NEW};
    struct ax_rollout r;
    assert_int_equal(ax_rewards_open(&o.rewards, &ro), AX_OK);
    assert_int_equal(ax_rollout_create(&r, &o), AX_OK);
    r.round = 2;
    r.read = 3;
    r.verdicts[AX_VERDICT_EXIT] = 6;
    r.verdicts[AX_VERDICT_EXIT + 1] = 2;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memcpy(r.rewards, cases[i].rewards, sizeof cases[i].rewards);
        assert_int_equal(ax_rollout_judge(&r), AX_OK);
        if (r.worth != cases[i].worth)
            fail_msg("%zu: %d", i, (int)r.worth);
        const double mean = figure(&r, "reward");
        assert_true(isnan(cases[i].mean) ? isnan(mean) : fabs(mean - cases[i].mean) <= 1e-12);
        assert_figures(&r, names, values, sizeof values / sizeof *values);
    }
    ax_rollout_free(&r);
    ax_rewards_close(o.rewards);
}

/* ---- what a checkpoint has of answers, and what ranks send each other ---- */

static void fill_answer(struct ax_rollout *r, int64_t i, int64_t n_prompt, int64_t n) {
    struct ax_completion *c = &r->list[i];
    *c = (struct ax_completion){.start = i * (MAX_PROMPT + MAX_NEW),
                                .n_prompt = n_prompt,
                                .n = n_prompt + n,
                                .sampled = n,
                                .taught_kl = NAN,
                                .advantage = i == 0 ? 0.5F : NAN};
    for (int64_t t = 0; t < c->n; t++) {
        r->ids[c->start + t] = (int32_t)(50 + 100 * i + t);
        r->logprobs[c->start + t] = -0.125F * (float)t;
    }
    r->order[i] = 1 - i;
}

/* Read over the answers of an earlier generation, of which nothing stays. */
static void answers_that_are_read(void **state) {
    (void)state;
    static const struct ax_episode_rules rules = {0};
    const struct ax_rollout_options o = {.group = 2,
                                         .prompts = 1,
                                         .steps = 2,
                                         .iterations = 1,
                                         .max_prompt = MAX_PROMPT,
                                         .max_new = MAX_NEW,
                                         .turns = &rules};
    struct ax_rollout from, to;
    json_t *v;
    assert_int_equal(ax_rollout_create(&from, &o), AX_OK);
    assert_int_equal(ax_rollout_create(&to, &o), AX_OK);
    fill_answer(&from, 0, 4, 6);
    fill_answer(&from, 1, 4, 3);
    from.inserted[from.list[0].start + 4 + 2] = from.inserted[from.list[0].start + 4 + 3] = true;
    from.list[0].sampled = 4;
    from.list[0].truncated = from.list[1].lost = true;
    assert_int_equal(ax_strdup(&from.origins[0].file, "a.jsonl"), AX_OK);
    from.origins[0].line = 7;
    from.filled = true;
    from.generation = 5;
    from.turn = 1;
    from.epoch = 2;
    from.index = 9;
    from.read = 1;
    for (int64_t i = 0; i < 2 * (MAX_PROMPT + MAX_NEW); i++)
        to.inserted[i] = true;
    to.list[0].lost = to.list[1].truncated = true;
    assert_int_equal(ax_rollout_to_json(&from, &v), AX_OK);
    assert_int_equal(ax_rollout_from_json(&to, (struct ax_json){.v = v}), AX_OK);
    assert_true(to.filled && to.generation == 5 && to.turn == 1);
    assert_true(to.epoch == 2 && to.index == 9 && to.read == 1);
    assert_string_equal(to.origins[0].file, "a.jsonl");
    assert_int_equal(to.origins[0].line, 7);
    for (int64_t i = 0; i < 2; i++) {
        const struct ax_completion *c = &to.list[i], *want = &from.list[i];
        assert_true(c->n_prompt == 4 && c->n == want->n && c->sampled == want->sampled);
        assert_true(c->truncated == !i && (i ? isnan(c->advantage) : c->advantage == 0.5F));
        assert_int_equal(c->lost, i == 1);
        assert_int_equal(to.order[i], 1 - i);
        assert_memory_equal(to.ids + c->start, from.ids + c->start, (size_t)c->n * sizeof *to.ids);
        for (int64_t t = 4; t < c->n; t++) {
            assert_true(to.logprobs[c->start + t] == -0.125F * (float)t);
            assert_int_equal(ax_rollout_is_sampled(&to, c->start + t), i == 1 || t < 6 || t > 7);
        }
    }
    json_decref(v);
    ax_rollout_free(&from);
    ax_rollout_free(&to);
}

/* Times, figures and the weights' age go with the answers, for the step that trains on them. */
static void what_goes_with_answers(void **state) {
    (void)state;
    const struct ax_rollout_options o = {.group = 2,
                                         .prompts = 1,
                                         .steps = 1,
                                         .iterations = 1,
                                         .staleness = 1,
                                         .max_prompt = MAX_PROMPT,
                                         .max_new = MAX_NEW,
                                         .teacher = &(struct ax_arch){0},
                                         .tokenizer = tokenizer};
    static const struct variant v = {
        .backend = "cpu", .dtype = AX_F32, .steps = 1, .iterations = 1};
    struct rollout_case c;
    struct ax_rollout from, to;
    json_t *letter;
    assert_int_equal(case_open(&c, &v, 1), AX_OK);
    assert_int_equal(ax_rollout_create(&from, &o), AX_OK);
    assert_int_equal(ax_rollout_create(&to, &o), AX_OK);
    fill_answer(&from, 0, 4, 6);
    fill_answer(&from, 1, 4, 3);
    assert_int_equal(ax_strdup(&from.origins[0].file, "a.jsonl"), AX_OK);
    from.filled = true;
    from.generation = 1;
    from.version = 3;
    from.worth = AX_WORTH_EQUAL;
    from.seconds = 2.5;
    from.reward_seconds = 0.5;
    ax_figures_add(&from.figures, "reward", 0.75);
    ax_figures_add(&from.figures, "reward_std", NAN);
    ax_figures_add(&to.figures, "earlier", 1);
    assert_int_equal(ax_rollout_to_letter(&from, c.loader, &letter), AX_OK);
    assert_int_equal(json_array_size(json_object_get(letter, "lines")), 2);
    assert_int_equal(json_array_size(json_object_get(letter, "shown")), 2); /* of the first: all */
    assert_int_equal(ax_rollout_from_letter(&to, (struct ax_json){.v = letter}), AX_OK);
    assert_true(to.version == 3 && to.worth == AX_WORTH_EQUAL);
    assert_true(to.seconds == 2.5 && to.reward_seconds == 0.5);
    assert_int_equal(to.figures.n, 2);
    assert_true(figure(&to, "reward") == 0.75 && isnan(figure(&to, "reward_std")));
    json_decref(letter);
    ax_rollout_free(&from);
    ax_rollout_free(&to);
    case_close(&c);
}

static int load_tokenizer(void **state) {
    (void)quiet(state);
    return ax_tokenizer_load(&tokenizer, golden_path("models/llama")) == AX_OK ? 0 : -1;
}

static int free_tokenizer(void **state) {
    (void)state;
    ax_tokenizer_free(tokenizer);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LONG_TEST(cmocka_unit_test(any_mesh_is_one_rank)),
        cmocka_unit_test(leaving_out_changes_nothing),
        cmocka_unit_test(far_memory_is_near),
        cmocka_unit_test(a_stop_while_it_samples),
        cmocka_unit_test(prompts_without_a_spread_are_replaced),
        cmocka_unit_test(figures_of_answers),
        cmocka_unit_test(worth_of_answers),
        cmocka_unit_test(answers_that_are_read),
        cmocka_unit_test(what_goes_with_answers),
    };
    return cmocka_run_group_tests(tests, load_tokenizer, free_tokenizer);
}
