/* A plan for a person: does it fit, what will it read, how long will it take, what will it write; and the best
 * meshes of a search. */
#include "cmd/plan/plan.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "parallel/fabric/mesh_sizes.h"
#include "optim/forecast/search.h"
#include "model/arch/classifier.h"

#define NAMED 5 /* blocks in the memory line, and ops of each kind */

/* ---- what each pipeline stage needs, and what a rank sends in a step ---- */

static void print_stage(const struct ax_plan_stage *s) {
    char place[64], bytes[32], has[48];
    snprintf(has, sizeof has, "%s%d layer%s%s", s->plan.has_embedding ? "embedding, " : "",
             s->plan.n_layers, s->plan.n_layers == 1 ? "" : "s", s->plan.has_head ? ", head" : "");
    printf("         %-5d %10s  %-27s %s\n", s->mesh.rank,
           ax_format_bytes(bytes, sizeof bytes, (double)s->arena), has,
           ax_mesh_rank_name(place, sizeof place, &s->mesh));
}

/* The most that a rank of any stage sends. */
static double most_sent(const struct ax_plan_figures *f, int role, int kind) {
    double most = 0;
    for (int i = 0; i < f->n_stages; i++) {
        const double bytes = f->stages[i].plan.bytes_sent[role][kind];
        most = bytes > most ? bytes : most;
    }
    return most;
}

static bool is_used(const struct ax_plan_figures *f, int kind) {
    bool used = false;
    for (int role = 0; role < AX_ROLE_COUNT; role++)
        used = used || most_sent(f, role, kind) > 0;
    return used;
}

static void print_traffic(const struct ax_plan_figures *f) {
    char bytes[32];
    printf("sent     at most, by a rank in a step\n         %-12s", "role");
    for (int kind = 0; kind < AX_COLLECTIVE_COUNT; kind++)
        if (is_used(f, kind))
            printf(" %14s", ax_collective_name((enum ax_collective_kind)kind));
    printf("\n");
    for (int role = 0; role < AX_ROLE_COUNT; role++) {
        double all = 0;
        for (int kind = 0; kind < AX_COLLECTIVE_COUNT; kind++)
            all += most_sent(f, role, kind);
        if (all == 0)
            continue;
        printf("         %-12s", ax_role_name((enum ax_role)role));
        for (int kind = 0; kind < AX_COLLECTIVE_COUNT; kind++)
            if (is_used(f, kind))
                printf(" %14s", most_sent(f, role, kind) > 0
                                    ? ax_format_bytes(bytes, sizeof bytes, most_sent(f, role, kind))
                                    : "-");
        printf("\n");
    }
}

static void print_stages(const struct ax_plan_figures *f) {
    if (f->n_stages == 0)
        return;
    printf("stages   of each the rank that needs most\n         %-5s %10s  %-27s %s\n", "rank",
           "memory", "has", "place");
    for (int i = 0; i < f->n_stages; i++)
        print_stage(&f->stages[i]);
    print_traffic(f);
}

/* ---- the time of a step on another machine ---- */

static double sum(const double *values, int n) {
    double s = 0;
    for (int i = 0; i < n; i++)
        s += values[i];
    return s;
}

/* A line for each role that has transfers. */
static void print_roles(const struct ax_plan_time *t) {
    char a[32], b[32];
    for (int role = 0; role < AX_TIME_ROLES; role++)
        if (t->moved[role] > 0)
            printf("         %-20s %10s under way, %10s waited for (%.1f %% of the step)\n",
                   ax_time_role_name((enum ax_time_role)role),
                   ax_format_seconds(a, sizeof a, t->moved[role]),
                   ax_format_seconds(b, sizeof b, t->exposed[role]),
                   100 * t->exposed[role] / t->step);
}

/* Ops of a kind that a step has, the longest first; returns their number. */
static int sort_ops(const struct ax_plan_time *t, enum ax_time_kind kind, enum ax_op *sorted) {
    int n = 0;
    for (int op = 0; op < AX_OP_COUNT; op++) {
        int at = n;
        if (t->ops[op].calls == 0 || ax_rates_kind((enum ax_op)op) != kind)
            continue;
        for (; at > 0 && t->ops[sorted[at - 1]].seconds < t->ops[op].seconds; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = (enum ax_op)op;
        n++;
    }
    return n;
}

/* "           swiglu_backward 17.4 ms, rmsnorm_backward 12.2 ms, …, others 3.1 ms" */
static void print_ops(const struct ax_plan_time *t, enum ax_time_kind kind) {
    enum ax_op sorted[AX_OP_COUNT];
    const int n = sort_ops(t, kind, sorted);
    double others = 0;
    char a[32];
    printf("          ");
    for (int i = 0; i < n && i < NAMED; i++)
        printf("%s %s %s", i > 0 ? "," : "", ax_op_name(sorted[i]),
               ax_format_seconds(a, sizeof a, t->ops[sorted[i]].seconds));
    for (int i = NAMED; i < n; i++)
        others += t->ops[sorted[i]].seconds;
    if (others > 0)
        printf(", others %s", ax_format_seconds(a, sizeof a, others));
    printf("\n");
}

static void print_machine(const struct ax_plan_words *w, const struct ax_plan_figures *f) {
    const struct ax_plan_time *t = &f->time;
    const struct ax_hardware *h = &w->plan.rates->hardware;
    char a[32], b[32];
    printf("machine  %s (%s): %sFLOP/s in the compute dtype, %s/s of memory\n", h->name, h->source,
           ax_format_count(a, sizeof a, t->peak), ax_format_bytes(b, sizeof b, h->bandwidth));
    printf("rates    %s\n", w->plan.rates->source);
    printf("step     %s: %s tokens/s, MFU %.1f %% (attention counted in full: %.1f %%)\n",
           ax_format_seconds(a, sizeof a, t->step),
           ax_format_count(b, sizeof b, t->tokens_per_second), 100 * t->mfu, 100 * t->mfu_full);
    for (int kind = 0; kind < AX_TIME_KINDS; kind++) {
        if (t->work[kind] == 0)
            continue;
        printf("         %-20s %10s                        (%.1f %% of the step)\n",
               ax_time_kind_name((enum ax_time_kind)kind),
               ax_format_seconds(a, sizeof a, t->work[kind]), 100 * t->work[kind] / t->step);
        if (kind != AX_TIME_COPIES)
            print_ops(t, (enum ax_time_kind)kind);
    }
    print_roles(t);
    if (w->plan.runtime.sizes.pp > 1)
        printf("         a stage computes nothing %.1f %% of the step: %.1f %% waiting for other "
               "stages\n",
               100 * (1 - sum(t->work, AX_TIME_KINDS) / t->step),
               100 * (t->exposed[AX_TIME_PP] + t->idle) / t->step);
}

/* ---- all of it ---- */

static void print_model(const struct ax_plan_words *w, const struct ax_plan *p) {
    const struct ax_step_options *o = &w->plan.step;
    const struct ax_arch *arch = w->plan.arch;
    const bool own = o->model.masters == AX_MASTERS_ACCUM;
    const int n = o->n_microbatches;
    char count[32], restarts[48] = "", labels[48] = "";
    char each[48] = "";
    if (arch->classifier)
        snprintf(labels, sizeof labels, ", %lld label%s", (long long)arch->n_labels,
                 arch->n_labels == 1 ? "" : "s");
    if (o->relora.interval > 0)
        snprintf(restarts, sizeof restarts, " merged every %lld steps",
                 (long long)o->relora.interval);
    printf("%s: %s, %s parameters, %lld layer%s, hidden %lld, vocabulary %lld%s%s\n", w->name,
           arch->family->model_type, ax_format_count(count, sizeof count, (double)p->parameters),
           (long long)arch->n_layers, arch->n_layers == 1 ? "" : "s", (long long)arch->hidden_size,
           (long long)arch->vocab_size, arch->tied ? ", tied" : "", labels);
    const int64_t ranks = p->tokens > 0 ? ax_plan_step_tokens(&w->plan, p) / p->tokens : 1;
    if (ranks > 1)
        snprintf(each, sizeof each, " on each of %lld data ranks", (long long)ranks);
    printf("step     %lld tokens (%d micro-batch%s of %lld × %lld%s), %s compute, %s masters, "
           "%s%s%s\n",
           (long long)ax_plan_step_tokens(&w->plan, p), n, n == 1 ? "" : "es",
           (long long)w->plan.sequences, (long long)w->plan.sequence_tokens, each,
           ax_dtype_info(o->model.dtype)->name,
           own ? ax_dtype_info(ax_dtype_accum(o->model.dtype))->name : w->masters, w->optimizer,
           o->model.adapter ? ", adapter" : "", restarts);
}

/* "mesh     pp2-tp2: memory and compute are those of rank 0 of 4, which needs most" */
static void print_mesh(const struct ax_plan_words *w, const struct ax_plan *p) {
    struct ax_mesh mesh;
    char name[96];
    if (w->plan.runtime.world > 1 &&
        ax_mesh_create(&mesh, w->plan.runtime.sizes, w->plan.runtime.world, 0) == AX_OK)
        printf("mesh     %s: memory and compute are those of rank %d of %d, which needs most; time "
               "is %s\n",
               ax_mesh_sizes_name(name, sizeof name, &mesh), w->plan.runtime.rank,
               w->plan.runtime.world,
               w->plan.rates ? "below, with communication"
                             : "without communication, on ranks as fast as this machine");
    if (w->plan.runtime.sizes.pp > 1) {
        const struct ax_pipeline pipeline =
            ax_step_pipeline(&w->plan.step, w->plan.runtime.sizes.pp);
        const int ranges = ax_pipeline_chunks(&pipeline);
        printf(
            "pipeline %s, %d range%s of layers per rank: stages wait for each other %.0f %% of a "
            "step\n",
            ax_pipeline_name(pipeline.kind), ranges, ranges == 1 ? "" : "s", 100 * p->idle);
    }
}

static void print_memory(const struct ax_plan_words *w, const struct ax_plan_figures *f) {
    const struct ax_train_fit *fit = &f->forecast.fit;
    const struct ax_plan_block *blocks = fit->blocks.list;
    char need[32], is[32], block[32];
    printf("memory   %s with recompute %s",
           ax_format_bytes(need, sizeof need, (double)(fit->arena + fit->beside)),
           ax_recompute_name(f->chosen));
    if (fit->available > 0)
        printf("; %s free: %s", ax_format_bytes(is, sizeof is, (double)fit->available),
               fit->fits ? "it fits" : "it does not fit");
    printf("\n         ");
    for (int i = 0; i < fit->blocks.n && i < NAMED; i++)
        printf("%s %s, ", blocks[i].name,
               ax_format_bytes(block, sizeof block, (double)blocks[i].bytes));
    printf("code and data about %s\n", ax_format_bytes(block, sizeof block, (double)fit->beside));
    for (int mode = (int)w->plan.first; mode <= (int)w->plan.last && w->plan.first != w->plan.last;
         mode++)
        printf(
            "%s%s %s", mode == (int)w->plan.first ? "         plan of a step: " : ", ",
            ax_recompute_name((enum ax_recompute)mode),
            ax_format_bytes(need, sizeof need, (double)ax_arena_plan_total(&f->plans[mode].arena)));
    if (w->plan.first != w->plan.last)
        printf("%s\n",
               w->plan.train ? "; auto chooses the first that fits when training starts" : "");
}

static void print_value(const struct ax_train_options *o) {
    char count[32];
    if (o->value.arch)
        printf("value    a model with one label, %s, %s parameters, %s; the memory above includes "
               "it\n",
               o->value.arch->family->model_type,
               ax_format_count(count, sizeof count, (double)ax_arch_parameters(o->value.arch)),
               !o->value.adapter     ? "which trains beside the policy"
               : !o->value.on_policy ? "whose adapter trains on the reward model's weights"
               : ax_step_keeps_base(&o->step)
                   ? "whose adapter trains on the policy's base"
                   : "whose adapter trains on a copy of the policy's base");
}

static void print_teacher(const struct ax_train_options *o) {
    const struct ax_arch *arch = o->step.teacher ? o->step.teacher : o->rollout.teacher;
    char count[32];
    if (arch)
        printf("teacher  %s, %s parameters, frozen%s%s; the memory above includes it\n",
               arch->family->model_type,
               ax_format_count(count, sizeof count, (double)ax_arch_parameters(arch)),
               o->teacher_adapter ? ", with an adapter" : "",
               ax_step_teacher_options(&o->step, arch).on_base ? ", on the model's base" : "");
}

static void print_reward_models(const struct ax_train_options *t) {
    const struct ax_rollout_options *o = &t->rollout;
    char count[32];
    for (int i = 0; i < o->n_models; i++) {
        const struct ax_reward_model *m = o->models[i];
        printf("rewards  of %s: %s, %s, %s parameters, frozen%s; the memory above includes it\n",
               m->name, m->arch->classifier->what, m->arch->family->model_type,
               ax_format_count(count, sizeof count, (double)ax_arch_parameters(m->arch)),
               m->lender == AX_LENDER_POLICY && ax_step_keeps_base(&t->step)
                   ? ", on the policy's base"
                   : "");
    }
}

static void print_rollout(const struct ax_train_options *t, const struct ax_train_fit *fit) {
    const struct ax_rollout_options *o = &t->rollout;
    char bytes[32];
    if (o->group == 0)
        return;
    print_reward_models(t);
    printf(
        "sampling %lld prompt%s × %lld answer%s for %d step%s, %lld at a time: keys and values of "
        "%lld tokens in all, %s, in memory that steps use, too%s\n",
        (long long)o->prompts, o->prompts == 1 ? "" : "s", (long long)o->group,
        o->group == 1 ? "" : "s", o->steps * o->iterations,
        o->steps * o->iterations == 1 ? "" : "s", (long long)o->lanes, (long long)o->kv_tokens,
        ax_format_bytes(bytes, sizeof bytes, (double)o->kv_bytes),
        t->runtime.sizes.dp_shard == 1 ? ""
        : fit->held                    ? "; weights gathered once"
                                       : "; weights gathered in each pass");
}

static void print_run(const struct ax_plan_words *w, const struct ax_train_forecast *t) {
    char a[32], b[32], c[32];
    if (w->uncounted)
        printf("data     not counted: %s\n", w->uncounted);
    else if (w->streamed)
        printf("data     streamed, so their number is unknown\n");
    else
        printf("data     %lld document%s, %s tokens in %lld sequence%s per epoch\n",
               (long long)t->epoch.examples, t->epoch.examples == 1 ? "" : "s",
               ax_format_count(a, sizeof a, (double)t->epoch.tokens), (long long)t->epoch.sequences,
               t->epoch.sequences == 1 ? "" : "s");
    if (t->steps > 0 && t->tokens > 0)
        printf("steps    %lld, %.4g epoch%s, %s tokens\n", (long long)t->steps, t->epochs,
               t->epochs > 1 ? "s" : "", ax_format_count(a, sizeof a, (double)t->tokens));
    else if (t->steps > 0)
        printf("steps    %lld\n", (long long)t->steps);
    if (t->steps > 0)
        printf("disk     %s in %s: %lld checkpoint%s of %s and the model; %s free\n",
               ax_format_bytes(a, sizeof a, t->disk_bytes), w->output_dir,
               (long long)t->checkpoints, t->checkpoints == 1 ? "" : "s",
               ax_format_bytes(b, sizeof b, t->checkpoint_bytes),
               ax_format_bytes(c, sizeof c, (double)t->disk_available));
}

static void print_time(const struct ax_plan_words *w, const struct ax_plan_figures *f) {
    const struct ax_plan *p = &f->plans[f->chosen];
    const struct ax_train_forecast *t = &f->forecast;
    char a[32], b[32];
    printf("compute  %s FLOPs executed per step, %.0f %% of %swhat the method needs\n",
           ax_format_count(a, sizeof a, p->flops), 100 * p->flops / p->model_flops,
           f->n_stages > 0 ? "a rank's share of " : "");
    if (f->speed <= 0)
        return;
    const double step = (double)ax_plan_step_tokens(&w->plan, p);
    const double tokens = t->tokens > 0  ? (double)t->tokens
                          : t->steps > 0 ? (double)t->steps * step
                                         : step;
    printf("time     about %s%s at %s tokens/s", ax_format_seconds(a, sizeof a, tokens / f->speed),
           t->steps > 0 ? "" : " per step", ax_format_count(b, sizeof b, f->speed));
    if (f->peak_flops > 0)
        printf(
            " (%.0f %% of the matrix speed measured now, %sFLOP/s in all; --speed N for another)",
            100 * AX_PLAN_STEP_SHARE, ax_format_count(b, sizeof b, f->peak_flops));
    printf("\n");
}

static void print_blocks(const struct ax_plan *p, enum ax_recompute mode) {
    char b[32];
    printf("\nrecompute %-10s %s in total, without evaluation, code and data\n",
           ax_recompute_name(mode),
           ax_format_bytes(b, sizeof b, (double)ax_arena_plan_total(&p->arena)));
    const struct ax_plan_block *blocks = p->blocks.list;
    for (int i = 0; i < p->blocks.n; i++)
        printf("  %-30s %-12s %12s\n", blocks[i].name, blocks[i].where,
               ax_format_bytes(b, sizeof b, (double)blocks[i].bytes));
}

void ax_plan_print(const struct ax_plan_words *w, const struct ax_plan_figures *f) {
    print_model(w, &f->plans[f->chosen]);
    print_mesh(w, &f->plans[f->chosen]);
    print_memory(w, f);
    print_stages(f);
    if (w->plan.train) {
        print_run(w, &f->forecast);
        print_rollout(w->plan.train, &f->forecast.fit);
        print_value(w->plan.train);
        print_teacher(w->plan.train);
    }
    print_time(w, f);
    if (w->plan.rates)
        print_machine(w, f);
    if (!w->blocks) {
        printf("every block of memory: --blocks\n");
        return;
    }
    for (int mode = (int)w->plan.first; mode <= (int)w->plan.last; mode++)
        print_blocks(&f->plans[mode], (enum ax_recompute)mode);
}

/* ---- a search ---- */

#define TEXT(x)    TEXT_OF(x)
#define TEXT_OF(x) #x
static const char cp_short[] =
    "cp leaves less than " TEXT(AX_SEARCH_LEAST_TOKENS) " tokens of a sequence to a rank";

static const char *const reasons[AX_SEARCH_REASONS] = {
    [AX_SEARCH_TP_FAR] = "tp across nodes",
    [AX_SEARCH_CP_SHORT] = cp_short,
    [AX_SEARCH_REPLICAS] = "weights sharded over neither one node, eight nodes, nor all ranks",
    [AX_SEARCH_EXPERTS] = "experts over a part of a node",
    [AX_SEARCH_PIPELINE] = "more stages than layers, or than micro-batches",
    [AX_SEARCH_BATCH] = "the step's sequences cannot be divided among the data ranks",
    [AX_SEARCH_MODEL] = "the model cannot be split so",
    [AX_SEARCH_STATES] = "weights and optimizer state alone need more memory",
    [AX_SEARCH_MEMORY] = "a step needs more memory, even with recompute",
    [AX_SEARCH_SLOWER] = "slower",
};

static const char *mesh_name(char *buf, size_t size, const struct ax_search_choice *c, int world) {
    struct ax_mesh mesh;
    if (ax_mesh_create(&mesh, c->sizes, world, 0) != AX_OK)
        return "?";
    ax_mesh_sizes_name(buf, size, &mesh);
    return buf[0] ? buf : "one rank";
}

static void print_choice(const struct ax_search_choice *c, int world, int place) {
    char name[96], a[32], b[32], d[32];
    printf(
        "best %d   %s, micro-batches of %lld, recompute %s: %s per step, %s tokens/s, MFU %.1f %%, "
        "%s of memory\n",
        place, mesh_name(name, sizeof name, c, world), (long long)c->rows,
        ax_recompute_name(c->recompute), ax_format_seconds(a, sizeof a, c->time.step),
        ax_format_count(b, sizeof b, c->time.tokens_per_second), 100 * c->time.mfu,
        ax_format_bytes(d, sizeof d, (double)c->time.arena));
}

enum ax_status ax_plan_search(const struct ax_plan_request *r) {
    struct ax_search s;
    char took[32];
    AX_TRY(ax_search_run(&s, r));
    printf("search   %d meshes of %d ranks of %s, in %s\n", s.tried, r->runtime.world,
           r->rates->hardware.name, ax_format_seconds(took, sizeof took, s.seconds));
    for (int i = 0; i < s.n; i++)
        print_choice(&s.best[i], r->runtime.world, i + 1);
    const char *begin = "left out";
    for (int i = 0; i < AX_SEARCH_REASONS; i++) {
        if (s.left_out[i] == 0)
            continue;
        printf("%-8s %d: %s\n", begin, s.left_out[i], reasons[i]);
        begin = "";
    }
    if (s.n > 0)
        return AX_OK;
    return ax_error(AX_ERR_CONFIG,
                    "plan: no mesh of %d ranks of %s fits. Use more ranks, shorter sequences, an "
                    "adapter, or masters of fewer bits.",
                    r->runtime.world, r->rates->hardware.name);
}
