/* Ten lines: does it fit, what will it read, how long will it take, what will it write. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cmd/mesh_sizes.h"
#include "cmd/plan/plan.h"
#include "model/arch/classifier.h"

#define NAMED 5 /* blocks in the memory line */

static void print_model(const struct ax_plan_request *r, const struct ax_plan *p) {
    const struct ax_step_options *o = &r->step;
    const struct ax_arch *arch = r->arch;
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
    printf("%s: %s, %s parameters, %lld layer%s, hidden %lld, vocabulary %lld%s%s\n", r->name,
           arch->family->model_type, ax_format_count(count, sizeof count, (double)p->parameters),
           (long long)arch->n_layers, arch->n_layers == 1 ? "" : "s", (long long)arch->hidden_size,
           (long long)arch->vocab_size, arch->tied ? ", tied" : "", labels);
    const int64_t ranks = p->tokens > 0 ? ax_plan_step_tokens(r, p) / p->tokens : 1;
    if (ranks > 1)
        snprintf(each, sizeof each, " on each of %lld data ranks", (long long)ranks);
    printf("step     %lld tokens (%d micro-batch%s of %lld × %lld%s), %s compute, %s masters, "
           "%s%s%s\n",
           (long long)ax_plan_step_tokens(r, p), n, n == 1 ? "" : "es", (long long)r->sequences,
           (long long)r->sequence_tokens, each, ax_dtype_info(o->model.dtype)->name,
           own ? ax_dtype_info(ax_dtype_accum(o->model.dtype))->name : r->masters, r->optimizer,
           o->model.adapter ? ", adapter" : "", restarts);
}

/* "mesh     pp2-tp2: memory and compute are those of rank 0 of 4, which needs most" */
static void print_mesh(const struct ax_plan_request *r, const struct ax_plan *p) {
    struct ax_mesh mesh;
    char name[96];
    if (r->runtime.world > 1 &&
        ax_mesh_create(&mesh, r->runtime.sizes, r->runtime.world, 0) == AX_OK)
        printf("mesh     %s: memory and compute are those of rank %d of %d, which needs most; time "
               "is %s\n",
               ax_mesh_sizes_name(name, sizeof name, &mesh), r->runtime.rank, r->runtime.world,
               r->rates ? "below, with communication"
                        : "without communication, on ranks as fast as this machine");
    if (r->runtime.sizes.pp > 1) {
        const struct ax_pipeline pipeline = ax_step_pipeline(&r->step, r->runtime.sizes.pp);
        const int ranges = ax_pipeline_chunks(&pipeline);
        printf(
            "pipeline %s, %d range%s of layers per rank: stages wait for each other %.0f %% of a "
            "step\n",
            ax_pipeline_name(pipeline.kind), ranges, ranges == 1 ? "" : "s", 100 * p->idle);
    }
}

static void print_memory(const struct ax_plan_request *r, const struct ax_plan_figures *f) {
    const struct ax_train_fit *fit = &f->forecast.fit;
    const struct ax_plan *p = &f->plans[f->chosen];
    char need[32], is[32], block[32];
    printf("memory   %s with recompute %s",
           ax_format_bytes(need, sizeof need, (double)(fit->arena + fit->beside)),
           ax_recompute_name(f->chosen));
    if (fit->available > 0)
        printf("; %s free: %s", ax_format_bytes(is, sizeof is, (double)fit->available),
               fit->fits ? "it fits" : "it does not fit");
    printf("\n         ");
    for (int i = 0; i < p->n_blocks && i < NAMED; i++)
        printf("%s %s, ", p->blocks[i].name,
               ax_format_bytes(block, sizeof block, (double)p->blocks[i].bytes));
    printf("code and data about %s\n", ax_format_bytes(block, sizeof block, (double)fit->beside));
    for (int mode = (int)r->first; mode <= (int)r->last && r->first != r->last; mode++)
        printf(
            "%s%s %s", mode == (int)r->first ? "         plan of a step: " : ", ",
            ax_recompute_name((enum ax_recompute)mode),
            ax_format_bytes(need, sizeof need, (double)ax_arena_plan_total(&f->plans[mode].arena)));
    if (r->first != r->last)
        printf("%s\n", r->train ? "; auto chooses the first that fits when training starts" : "");
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

static void print_run(const struct ax_plan_request *r, const struct ax_train_forecast *t) {
    char a[32], b[32], c[32];
    if (r->uncounted)
        printf("data     not counted: %s\n", r->uncounted);
    else if (r->streamed)
        printf("data     streamed, so their number is unknown\n");
    else
        printf("data     %lld documents, %s tokens in %lld sequences per epoch\n",
               (long long)t->epoch.examples, ax_format_count(a, sizeof a, (double)t->epoch.tokens),
               (long long)t->epoch.sequences);
    if (t->steps > 0 && t->tokens > 0)
        printf("steps    %lld, %.4g epoch%s, %s tokens\n", (long long)t->steps, t->epochs,
               t->epochs > 1 ? "s" : "", ax_format_count(a, sizeof a, (double)t->tokens));
    else if (t->steps > 0)
        printf("steps    %lld\n", (long long)t->steps);
    if (t->steps > 0)
        printf("disk     %s in %s: %lld checkpoint%s of %s and the model; %s free\n",
               ax_format_bytes(a, sizeof a, t->disk_bytes), r->output_dir,
               (long long)t->checkpoints, t->checkpoints == 1 ? "" : "s",
               ax_format_bytes(b, sizeof b, t->checkpoint_bytes),
               ax_format_bytes(c, sizeof c, (double)t->disk_available));
}

static void print_time(const struct ax_plan_request *r, const struct ax_plan_figures *f) {
    const struct ax_plan *p = &f->plans[f->chosen];
    const struct ax_train_forecast *t = &f->forecast;
    char a[32], b[32];
    printf("compute  %s FLOPs executed per step, %.0f %% of %swhat the method needs\n",
           ax_format_count(a, sizeof a, p->flops), 100 * p->flops / p->model_flops,
           f->n_stages > 0 ? "a rank's share of " : "");
    if (f->speed <= 0)
        return;
    const double step = (double)ax_plan_step_tokens(r, p);
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
    for (int i = 0; i < p->n_blocks; i++)
        printf("  %-30s %-12s %12s\n", p->blocks[i].name, p->blocks[i].where,
               ax_format_bytes(b, sizeof b, (double)p->blocks[i].bytes));
}

void ax_plan_print(const struct ax_plan_request *r, const struct ax_plan_figures *f) {
    print_model(r, &f->plans[f->chosen]);
    print_mesh(r, &f->plans[f->chosen]);
    print_memory(r, f);
    ax_plan_print_mesh(f);
    if (r->train) {
        print_run(r, &f->forecast);
        print_rollout(r->train, &f->forecast.fit);
        print_value(r->train);
    }
    print_time(r, f);
    if (r->rates)
        ax_plan_print_time(r, f);
    if (!r->blocks) {
        printf("every block of memory: --blocks\n");
        return;
    }
    for (int mode = (int)r->first; mode <= (int)r->last; mode++)
        print_blocks(&f->plans[mode], (enum ax_recompute)mode);
}
