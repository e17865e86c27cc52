/* Training runs on meshes of threads, against the same run on one rank: losses, evaluations and
 * weights; and what all ranks of a run must do together. Each rank reads its own copy of the data. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "model/arch/classifier.h"
#include "optim/losses/distill.h"
#include "optim/losses/kto.h"
#include "optim/losses/policy.h"
#include "optim/losses/preference.h"
#include "optim/losses/reward.h"
#include "optim/losses/value.h"
#include "parallel/fabric/comm_local.h"
#include "tests/optim/train_runs.h"
#include "tests/long.h"

enum { STEPS = 4, MAX_WORLD = 8, WIDTH = 3 };

static char *save[] = {"score"};
static const struct ax_peft_config of_classifier = {
    .r = 3, .alpha = 8, .all_linear = true, .save = {1, save}};
static const struct ax_peft_config lora = {.r = 3, .alpha = 8, .all_linear = true, .dropout = 0.1};

struct kind {
    bool on_ref, adapter, packed, experts, deep, classifies;
    enum ax_pipeline_kind schedule; /* of deep ones */
    bool chooses;                   /* the kind of recompute */
    bool recomputes;                /* all that can be */
    bool limps;                     /* rank 1 computes longer than the others */
    bool measures;                  /* the peak */
    int steps;                      /* 0: STEPS */
    int accumulation;               /* micro-batches of a step, over all data ranks */
    double neftune;
    int64_t restarts;                  /* steps between merges of the adapter */
    bool prefers;                      /* pairs, by a mixture of losses */
    bool rates;                        /* KTO */
    bool reinforces;                   /* completions with a ratio per token, … */
    bool of_sequences;                 /* … or per completion */
    bool values;                       /* PPO's, by a head of one label; without evaluations */
    double first;                      /* loss of the first evaluation, by hand; 0: not known */
    struct ax_distill_options distill; /* all 0: no teacher */
    int labels; /* a reward model's (1), a process reward model's (2); 0: others */
};

static const struct ax_kto_options ratings = {
    .beta = 0.3, .desirable_weight = 1, .undesirable_weight = 1.5};

/* Losses with sums and means, of each side and of both; one counts tokens. */
static const struct ax_preference_options mixture = {.beta = 0.3,
                                                     .reference = true,
                                                     .shares = true,
                                                     .weight = {[AX_PREFER_SIGMOID] = 1,
                                                                [AX_PREFER_IPO] = 0.1,
                                                                [AX_PREFER_NCA_PAIR] = 0.5,
                                                                [AX_PREFER_SFT] = 0.2}};

/* Of tokens with an entropy bonus, of completions with sums; both with the KL divergence. */
static struct ax_policy_options policy_options(bool sequence) {
    struct ax_policy_options o = ax_policy_defaults(sequence ? "grpo" : "bnpo");
    o.old = true;
    o.beta = 0.5;
    o.sequence = sequence;
    o.entropy_coef = sequence ? 0 : 0.01;
    return o;
}

struct mesh_run {
    struct ax_mesh_sizes sizes;
    const struct kind *kind;
    bool spoiled; /* the second step's second micro-batch has a bad gradient */
    int broken;   /* rank that fails before its runtime is open; −1 = none */
    bool apart;   /* each rank writes to a folder of its own, as on hosts that share none */
    char out[64]; /* else all write to this one */
    /* out, of rank 0 */
    struct ax_train_result r;
    double losses[STEPS];
    int n_losses;
    char warning[512];             /* the last */
    int slowest[STEPS], n_slowest; /* rank */
    int n_waits;                   /* steps in which a rank waited for all others */
    char peak[96];                 /* what is said of it */
};

/* An objective that is the usual one but in one micro-batch. */
struct spoiler {
    int calls, bad; /* of training passes */
    bool limps;
};

static enum ax_status spoil(void *ctx, struct ax_pass *p, const struct ax_head_chunk *c) {
    struct spoiler *s = ctx;
    AX_TRY(ax_objective_sft.head.token_grad(NULL, p, c));
    if (s->limps)
        nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
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
static int read_metrics(struct mesh_run *m) {
    char path[192], *text, *rest;
    size_t n;
    int found = 0;
    snprintf(path, sizeof path, "%s/out/metrics.jsonl", m->out);
    if (ax_read_file(path, 1 << 20, &text, &n) != AX_OK)
        return 0;
    rest = text;
    for (const char *line; (line = strsep(&rest, "\n")) != NULL;) {
        json_t *v = *line ? json_loads(line, 0, NULL) : json_null();
        const char *loss = strstr(line, "\"loss\": ");
        if (!v)
            return 0; /* not JSON */
        const json_t *waits = json_object_get(json_object_get(v, "ranks"), "wait_seconds");
        m->n_waits += json_number_value(json_object_get(waits, "world")) > 0;
        json_decref(v);
        if (loss && strstr(line, "\"grad_norm\"") && found < STEPS)
            m->losses[found++] = strtod(loss + strlen("\"loss\": "), NULL);
        const char *slowest = strstr(line, "\"slowest\": ");
        if (slowest && m->n_slowest < STEPS)
            m->slowest[m->n_slowest++] = atoi(slowest + strlen("\"slowest\": "));
        if (strstr(line, "\"event\": \"peak\""))
            snprintf(m->peak, sizeof m->peak, "%s", strstr(line, "\"text\""));
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

/* Layers for two chunks on each of two stages, of unequal lengths. */
static const char deep[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 97, \"hidden_size\": 40, "
    "\"intermediate_size\": 54, \"num_hidden_layers\": 5, \"num_attention_heads\": 4, "
    "\"num_key_value_heads\": 2, \"head_dim\": 12, \"initializer_range\": 0.15, "
    "\"max_position_embeddings\": 64, \"tie_word_embeddings\": true}";

/* As many labels as there are tokens: the data are the same. */
static const char classifier[] =
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForTokenClassification\"], "
    "\"num_labels\": 97, \"vocab_size\": 97, \"hidden_size\": 40, \"intermediate_size\": 54, "
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"head_dim\": 12, \"initializer_range\": 0.15, \"max_position_embeddings\": 64}";

/* Wider and deeper than the student, and tied. */
static const char teachers[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 97, \"hidden_size\": 56, "
    "\"intermediate_size\": 70, \"num_hidden_layers\": 3, \"num_attention_heads\": 4, "
    "\"num_key_value_heads\": 4, \"head_dim\": 10, \"initializer_range\": 0.2, "
    "\"max_position_embeddings\": 64, \"tie_word_embeddings\": true}";

static enum ax_status open_teacher(struct train_case *c, struct ax_arch *arch) {
    struct ax_json_doc doc;
    AX_TRY(ax_json_parse(&doc, "config.json", teachers, strlen(teachers)));
    const enum ax_status st = ax_arch_parse(arch, ax_json_root(&doc));
    ax_json_free(&doc);
    c->o.step.teacher = arch;
    return st;
}

/* Rank r's peak is r + 1 TFLOP/s: more than any step reaches, which would raise it. */
static enum ax_status pretend_peak(const struct ax_runtime_options *o, double limit,
                                   struct ax_peak *peak) {
    (void)limit;
    const double flops = 1e12 * (o->fabric->rank + 1);
    *peak = (struct ax_peak){flops, flops, AX_F32, "pretended"};
    return AX_OK;
}

static enum ax_status train_rank(struct ax_fabric *fabric, void *ctx) {
    struct mesh_run *m = ctx;
    const struct kind *k = m->kind;
    struct train_case c;
    struct ax_train_result r;
    struct ax_preference preference;
    struct ax_reward reward;
    struct ax_sft_options steps;
    const struct ax_objective pairs = ax_objective_preference(&preference, "dpo", &mixture),
                              rewards = ax_objective_reward(&reward, 0.05),
                              prm = ax_objective_prm(&steps);
    struct ax_kto kto;
    struct ax_distill_options distill = k->distill;
    const bool learns = distill.temperature > 0;
    const struct ax_objective distilled = ax_objective_distill(&distill);
    struct ax_arch teacher = {0};
    const struct ax_objective rated = ax_objective_kto(&kto, &ratings);
    struct ax_policy policy;
    const struct ax_policy_options completions = policy_options(k->of_sequences);
    const struct ax_objective policies = ax_objective_policy(&policy, &completions);
    struct ax_value_options clipped = {.coef = 0.7, .cliprange = 0.2};
    const struct ax_objective valued = ax_objective_value(&clipped);
    const struct ax_objective *const of[] = {k->prefers      ? &pairs
                                             : k->rates      ? &rated
                                             : k->reinforces ? &policies
                                             : learns        ? &distilled
                                                             : &ax_objective_sft,
                                             k->values ? &valued : &rewards, &prm};
    AX_TRY(train_case_open_for(&c, k->on_ref ? AX_F64 : AX_F32, k->packed, of[k->labels]));
    struct ax_train_options *o = &c.o;
    if (learns && distill.stored == 0)
        AX_TRY(open_teacher(&c, &teacher));
    if (k->experts || k->deep || k->classifies)
        AX_TRY(train_case_use_model(&c, k->experts ? experts : k->deep ? deep : classifier));
    if (k->labels > 0) { /* the head is drawn like all of the model */
        AX_TRY(ax_classifier_choose(&c.arch,
                                    k->labels == 1 ? &ax_classifier_reward : &ax_classifier_prm));
        c.arch.new_head = false;
    }
    o->runtime = (struct ax_runtime_options){
        .backend = k->on_ref ? "ref" : "cpu", .threads = 1, .sizes = m->sizes, .fabric = fabric};
    o->step.n_microbatches = k->accumulation / data_ranks(&m->sizes);
    o->step.neftune_alpha = k->neftune;
    o->step.pipeline = k->schedule;
    o->step.model.adapter = !k->adapter ? NULL : k->labels > 0 ? &of_classifier : &lora;
    o->step.relora = (struct ax_relora_options){k->restarts};
    o->recompute_auto = k->chooses;
    o->step.recompute = k->recomputes ? AX_RECOMPUTE_ON : o->step.recompute;
    o->measure_peak = k->measures ? pretend_peak : NULL;
    char shared[96];
    snprintf(shared, sizeof shared, "%s/out", m->out);
    if (!m->apart)
        o->save.output_dir = shared;
    o->data.pad = 4;
    o->max_steps = k->steps > 0 ? k->steps : STEPS;
    o->lr.base_lr = 1e-3; /* with Adam, rounding errors of small gradients become steps */
    o->metrics.logging_steps = 1;
    if (!k->values)
        o->eval.when = (struct ax_cadence){AX_EACH_STEPS, 2};
    o->data.eval_tokens = k->prefers || k->labels == 1 ? 64 : 40; /* several passes */
    struct spoiler spoiler = {.bad = bad_call(m, fabric), .limps = k->limps && fabric->rank == 1};
    const struct ax_objective spoiled = {
        .name = "spoiled", .head = {.linear = true, .token_grad = spoil, .ctx = &spoiler}};
    if (m->spoiled || k->limps)
        o->step.objective = &spoiled;
    if (m->broken == fabric->rank) {
        o->data.countable = false;
        o->max_steps = 0;
    }
    ax_loader_start_epoch(c.loader, 0);
    const enum ax_status st = ax_train(o, &r);
    if (st == AX_OK && fabric->rank == 0) {
        m->r = r;
        m->n_losses = read_metrics(m);
    }
    train_case_close(&c);
    ax_arch_free(&teacher);
    return st;
}

static enum ax_status train(struct mesh_run *m) {
    const struct ax_mesh_sizes *s = &m->sizes;
    const uint64_t live = ax_mem_live_blocks();
    snprintf(m->out, sizeof m->out, "%s", "/tmp/axtrain-mesh-XXXXXX");
    assert_non_null(mkdtemp(m->out));
    const enum ax_status st =
        ax_local_run(s->pp * s->dp_replicate * s->dp_shard * s->cp * s->tp, NULL, train_rank, m);
    struct ax_error_record first;
    ax_error_save(&first, st);
    assert_int_equal(ax_remove_tree(m->out), AX_OK);
    (void)ax_error_restore(&first);
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
    assert_true(m->kind->values || (m->r.evaluated && one->r.evaluated));
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

static const struct ax_mesh_sizes pipelines[] = {
    {2, 1, 1, 1, 1, 1}, {2, 1, 2, 1, 1, 1}, {2, 1, 1, 1, 2, 1},
    {2, 1, 1, 2, 1, 1}, {2, 2, 1, 1, 1, 1}, {2, 1, 2, 1, 2, 1},
};
#define COUNT(list) (sizeof(list) / sizeof *(list))

/* Sanitized code runs several times as long: it has half of the meshes. */
#ifdef __SANITIZE_ADDRESS__
#define EACH 2
#else
#define EACH 1
#endif

static void compare(const struct kind *k, size_t first, size_t every) {
    const struct ax_mesh_sizes *list = k->experts ? of_experts : k->deep ? pipelines : meshes;
    const size_t n = k->experts ? COUNT(of_experts) : k->deep ? COUNT(pipelines) : COUNT(meshes);
    struct mesh_run one = {.sizes = {1, 1, 1, 1, 1, 1}, .kind = k, .broken = -1};
    run_ok_on(&one);
    assert_int_equal(one.n_losses, STEPS);
    assert_true(one.losses[STEPS - 1] != one.losses[0]);
    if (k->first > 0)
        expect_close("the first evaluation", 0, one.r.first_eval.loss, k->first, 1e-12, &one.sizes);
    for (size_t i = first; i < n; i += every * EACH) {
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
                             adapter = {.on_ref = true, .accumulation = 4, .adapter = true},
                             restarts = {.on_ref = true,
                                         .accumulation = 4,
                                         .adapter = true,
                                         .restarts = 2},
                             classifies = {.on_ref = true, .accumulation = 4, .classifies = true};
    compare(&full, 0, 1);
    compare(&adapter, 0, 2);
    compare(&restarts, 0, 1);
    compare(&classifies, 0, 2);
}

/* Tied, with micro-batches whose number two stages do not divide. What the head keeps of one stays while others
 * use its scratch. */
static void every_schedule_is_one_rank(void **state) {
    (void)state;
    static const enum ax_pipeline_kind schedules[] = {AX_PIPELINE_AFAB, AX_PIPELINE_INTERLEAVED};
    for (size_t i = 0; i < COUNT(schedules); i++) {
        const struct kind exact = {.on_ref = true,
                                   .accumulation = 6,
                                   .deep = true,
                                   .schedule = schedules[i],
                                   .neftune = 5},
                          adapter = {.accumulation = 6,
                                     .deep = true,
                                     .schedule = schedules[i],
                                     .adapter = true},
                          once = {.accumulation = 2, .deep = true, .schedule = schedules[i]},
                          recomputes = {.on_ref = true,
                                        .accumulation = 6,
                                        .deep = true,
                                        .schedule = schedules[i],
                                        .prefers = true,
                                        .recomputes = true};
        compare(&exact, 0, 1);
        compare(&recomputes, i, 2);
        compare(&adapter, i, 2);
        compare(&once, 1 - i, 2);
    }
}

/* The log-probs of the reference, too, are computed on the mesh. */
static void preferences_are_those_of_one_rank(void **state) {
    (void)state;
    static const struct kind full = {.on_ref = true, .accumulation = 4, .prefers = true},
                             adapter = {.on_ref = true,
                                        .accumulation = 4,
                                        .adapter = true,
                                        .packed = true,
                                        .prefers = true};
    compare(&full, 1, 2);
    compare(&adapter, 0, 2);
}

/* The teacher's states, and both vocabularies' shards; stored targets, wherever their tokens are. */
static void distillations_are_those_of_one_rank(void **state) {
    (void)state;
    static const struct kind full = {.on_ref = true,
                                     .accumulation = 4,
                                     .distill = {1, 0.5, .temperature = 2, .beta = 0.3}},
                             adapter = {.on_ref = true,
                                        .accumulation = 4,
                                        .adapter = true,
                                        .packed = true,
                                        .distill = {1, 0, .temperature = 1, .beta = 1}},
                             interleaved = {.on_ref = true,
                                            .accumulation = 6,
                                            .deep = true,
                                            .schedule = AX_PIPELINE_INTERLEAVED,
                                            .distill = {1, 0, .temperature = 1}},
                             stored = {.on_ref = true,
                                       .accumulation = 4,
                                       .distill = {1, 0.5, .temperature = 2, .stored = 5}},
                             stored_packed = {.on_ref = true,
                                              .accumulation = 4,
                                              .packed = true,
                                              .distill = {1, 0, .temperature = 1, .stored = 3}};
    compare(&full, 0, 2);
    compare(&adapter, 1, 2);
    compare(&interleaved, 0, 2);
    compare(&stored, 1, 2);
    compare(&stored_packed, 0, 2);
}

/* An estimate of the KL divergence is of the step's records, whichever rank has them. */
static void ratings_are_those_of_one_rank(void **state) {
    (void)state;
    /* half of the weights, while policy and reference are one: of 12 documents 8 are desirable */
    static const struct kind full = {.on_ref = true,
                                     .accumulation = 4,
                                     .rates = true,
                                     .first = (8 * 1 + 4 * 1.5) / 12 / 2},
                             adapter = {.on_ref = true,
                                        .accumulation = 4,
                                        .adapter = true,
                                        .packed = true,
                                        .rates = true};
    compare(&full, 0, 2);
    compare(&adapter, 3, 4);
}

/* Sums of a completion are over ranks that have a part of it; means over all ranks' tokens. */
static void completions_are_those_of_one_rank(void **state) {
    (void)state;
    for (size_t sequences = 0; sequences < 2; sequences++) {
        const struct kind full = {.on_ref = true,
                                  .accumulation = 4,
                                  .reinforces = true,
                                  .of_sequences = sequences},
                          adapter = {.on_ref = true,
                                     .accumulation = 4,
                                     .adapter = true,
                                     .packed = true,
                                     .reinforces = true,
                                     .of_sequences = sequences};
        compare(&full, sequences, 2);
        compare(&adapter, 2 + sequences, 4);
    }
    static const struct kind values = {
        .on_ref = true, .accumulation = 4, .packed = true, .labels = 1, .values = true};
    compare(&values, 0, 2);
}

/* Evaluations, too, whose sums of pairs are those of logits. */
static void scores_are_those_of_one_rank(void **state) {
    (void)state;
    for (int labels = 1; labels <= 2; labels++) {
        const struct kind full = {.on_ref = true, .accumulation = 4, .labels = labels},
                          adapter = {.on_ref = true,
                                     .accumulation = 4,
                                     .adapter = true,
                                     .packed = true,
                                     .labels = labels};
        compare(&full, labels == 2, 2);
        compare(&adapter, labels == 1, 2);
    }
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

static void hosts_without_a_shared_folder_are_told(void **state) {
    (void)state;
    static const struct kind kind = {.accumulation = 2};
    struct mesh_run m = {.sizes = {1, 1, 2, 1, 1, 1}, .kind = &kind, .broken = -1, .apart = true};
    const enum ax_status st = train(&m);
    assert_true(st == AX_ERR_CONFIG || st == AX_ERR_PEER); /* the rank's, or what it told rank 0 */
    expect_error("is not the folder that rank 0 writes to");
}

/* Ranks have unequal parts, and choose the same. */
static void the_peak_is_that_of_all_ranks(void **state) {
    (void)state;
    const struct kind kind = {.accumulation = 3, .measures = true};
    struct mesh_run m = {.sizes = {1, 3, 1, 1, 1, 1}, .kind = &kind, .broken = -1};
    run_ok_on(&m);
    if (!strstr(m.peak, "\"6.00 TFLOP/s (float32, pretended) on 3 ranks, "))
        fail_msg("%s", m.peak);
}

static void recompute_is_chosen_together(void **state) {
    (void)state;
    static const struct kind kind = {.accumulation = 2, .chooses = true};
    struct mesh_run m = {.sizes = {2, 1, 1, 1, 1, 1}, .kind = &kind, .broken = -1};
    run_ok_on(&m);
    assert_int_equal(m.n_losses, STEPS);
}

/* Who computes longest is named, step by step; waiting for it is not computing. */
static void the_slowest_rank_is_named(void **state) {
    (void)state;
    static const struct kind kind = {.accumulation = 2, .limps = true};
    static const struct ax_mesh_sizes sizes[] = {{1, 1, 2, 1, 1, 1}, {1, 2, 1, 1, 1, 1}};
    for (size_t i = 0; i < 2; i++) {
        struct mesh_run m = {.sizes = sizes[i], .kind = &kind, .broken = -1};
        run_ok_on(&m);
        assert_int_equal(m.n_slowest, STEPS);
        assert_int_equal(m.n_waits, STEPS);
        for (int k = 0; k < STEPS; k++)
            assert_int_equal(m.slowest[k], 1);
    }
    struct mesh_run one = {.sizes = {1, 1, 1, 1, 1, 1}, .kind = &kind, .broken = -1};
    run_ok_on(&one);
    assert_int_equal(one.n_slowest, 0);
    static const struct kind longer = {.accumulation = 2, .limps = true, .steps = 21};
    struct mesh_run m = {.sizes = {1, 1, 2, 1, 1, 1}, .kind = &longer, .broken = -1};
    run_ok_on(&m);
    assert_non_null(strstr(m.warning, "rank 1 holds the others up"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LONG_TEST(cmocka_unit_test(runs_are_those_of_one_rank_in_double)),
        LONG_TEST(cmocka_unit_test(a_bad_step_is_that_of_one_rank)),
        cmocka_unit_test(a_failure_before_the_run_reaches_all),
        cmocka_unit_test(hosts_without_a_shared_folder_are_told),
        cmocka_unit_test(the_peak_is_that_of_all_ranks),
        cmocka_unit_test(recompute_is_chosen_together),
        LONG_TEST(cmocka_unit_test(the_slowest_rank_is_named)),
        LONG_TEST(cmocka_unit_test(every_schedule_is_one_rank)),
        LONG_TEST(cmocka_unit_test(preferences_are_those_of_one_rank)),
        LONG_TEST(cmocka_unit_test(distillations_are_those_of_one_rank)),
        LONG_TEST(cmocka_unit_test(ratings_are_those_of_one_rank)),
        LONG_TEST(cmocka_unit_test(completions_are_those_of_one_rank)),
        LONG_TEST(cmocka_unit_test(scores_are_those_of_one_rank)),
        LONG_TEST(cmocka_unit_test(runs_with_experts_are_those_of_one_rank)),
        LONG_TEST(cmocka_unit_test(runs_are_those_of_one_rank_in_float)),
    };
    return cmocka_run_group_tests(tests, quiet, NULL);
}
