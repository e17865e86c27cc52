/* `axtrain plan`: memory by name, FLOPs and sizes of a training step, by dry run. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/json.h"
#include "base/threads.h"
#include "cmd/commands.h"
#include "cmd/config_args.h"
#include "cmd/train/step_args.h"
#include "cmd/train/setup.h"
#include "optim/plan.h"

/* What to plan, under which names, and in which recompute modes. */
struct request {
    const char *name, *masters, *optimizer;
    const struct ax_arch *arch;
    struct ax_runtime_options runtime;
    struct ax_step_options step;
    int64_t rows, row_tokens; /* of a micro-batch */
    enum ax_recompute first, last;
    bool json;
};

static void print_head(const struct request *r, const struct ax_plan *p) {
    const struct ax_step_options *o = &r->step;
    const struct ax_arch *arch = r->arch;
    const bool own = o->masters == AX_MASTERS_ACCUM;
    char n[32], f[32];
    printf("%s: %s, %s parameters, %lld layers, hidden %lld, vocabulary %lld%s\n", r->name,
           arch->family->model_type, ax_format_count(n, sizeof n, (double)p->parameters),
           (long long)arch->n_layers, (long long)arch->hidden_size, (long long)arch->vocab_size,
           arch->tied ? ", tied" : "");
    printf("step: %lld tokens (%d micro-batches of %lld × %lld), %s compute, %s masters, %s\n",
           (long long)p->tokens, o->n_microbatches, (long long)r->rows, (long long)r->row_tokens,
           ax_dtype_info(o->dtype)->name,
           own ? ax_dtype_info(ax_dtype_accum(o->dtype))->name : r->masters, r->optimizer);
    printf("model FLOPs per step: %s (6N+6LHS causal)\n",
           ax_format_count(f, sizeof f, p->model_flops));
}

static void print_plan(const struct ax_plan *p, enum ax_recompute mode) {
    char b[32], f[32];
    printf("\nrecompute %-10s %s in total, %s FLOPs executed per step (%.0f %% of the model's)\n",
           ax_recompute_name(mode),
           ax_format_bytes(b, sizeof b, (double)ax_arena_plan_total(&p->arena)),
           ax_format_count(f, sizeof f, p->flops), 100 * p->flops / p->model_flops);
    for (int i = 0; i < p->n_blocks; i++)
        printf("  %-30s %-12s %12s\n", p->blocks[i].name, p->blocks[i].where,
               ax_format_bytes(b, sizeof b, (double)p->blocks[i].bytes));
}

static enum ax_status add_json(json_t *list, const struct ax_plan *p, enum ax_recompute mode) {
    json_t *blocks = json_array();
    for (int i = 0; i < p->n_blocks; i++)
        json_array_append_new(blocks, json_pack("{ss ss sI}", "name", p->blocks[i].name, "where",
                                                p->blocks[i].where, "bytes",
                                                (json_int_t)p->blocks[i].bytes));
    json_t *item = json_pack("{ss sI sI sf sf so}", "recompute", ax_recompute_name(mode), "bytes",
                             (json_int_t)ax_arena_plan_total(&p->arena), "persistent_bytes",
                             (json_int_t)p->arena.persistent, "flops", p->flops, "model_flops",
                             p->model_flops, "blocks", blocks);
    if (!item || json_array_append_new(list, item) != 0)
        return ax_error(AX_ERR_NOMEM, "out of memory for the plan's JSON");
    return AX_OK;
}

static enum ax_status print_json(const char *model, const struct ax_plan *p, json_t *plans) {
    char *text = NULL;
    size_t len;
    json_t *root =
        json_pack("{ss sI sI sO}", "model", model, "parameters", (json_int_t)p->parameters,
                  "tokens_per_step", (json_int_t)p->tokens, "plans", plans);
    if (!root)
        return ax_error(AX_ERR_NOMEM, "out of memory for the plan's JSON");
    const enum ax_status st = ax_json_dump(root, &text, &len);
    if (st == AX_OK)
        printf("%s\n", text);
    ax_free(text);
    json_decref(root);
    return st;
}

static enum ax_status make_plans(const struct request *r) {
    struct ax_plan plan = {0};
    struct ax_step_options o = r->step;
    json_t *plans = json_array();
    enum ax_status st = AX_OK;
    for (int mode = (int)r->first; mode <= (int)r->last; mode++) {
        o.recompute = (enum ax_recompute)mode;
        AX_TRY_GOTO(ax_plan_make(&plan, &r->runtime, r->arch, &o), st, done);
        if (!r->json && mode == (int)r->first)
            print_head(r, &plan);
        if (!r->json)
            print_plan(&plan, o.recompute);
        AX_TRY_GOTO(add_json(plans, &plan, o.recompute), st, done);
    }
    if (r->json)
        st = print_json(r->name, &plan, plans);
done:
    json_decref(plans);
    return st;
}

/* ---- of a model ---- */

static enum ax_status plan_model(int argc, char **argv) {
    struct ax_step_args a = {
        .dtype = "bfloat16", .optimizer = "adamw", .batch = 1, .seq = 2048, .accumulate = 1};
    struct request r = {.first = AX_RECOMPUTE_OFF, .last = AX_RECOMPUTE_ON};
    struct ax_arg args[AX_STEP_ARGS_COUNT + 1];
    struct ax_arch arch;
    int n;
    ax_step_args_table(&a, args);
    args[AX_STEP_ARGS_COUNT] = (struct ax_arg){"--json", AX_ARG_FLAG, &r.json, 0, 0};
    AX_TRY(ax_args_parse(argc, argv, AX_STEP_ARGS_COUNT + 1, args, 1, 1, &r.name, &n));
    AX_TRY(ax_step_args_options(&a, &r.step));
    if (a.recompute) {
        AX_TRY(ax_recompute_parse(a.recompute, &r.first));
        r.last = r.first;
    }
    AX_TRY(ax_arch_load(&arch, r.name));
    r.arch = &arch;
    r.rows = a.batch;
    r.row_tokens = a.seq;
    r.masters = a.masters;
    r.optimizer = a.optimizer;
    r.runtime = (struct ax_runtime_options){.backend = "cpu", .threads = (int)a.threads};
    const enum ax_status st = make_plans(&r);
    ax_arch_free(&arch);
    return st;
}

/* ---- of a configuration ---- */

/* A file that is no config.json of a model. */
static bool is_config(const char *word) {
    const size_t n = strlen(word);
    return ax_path_exists(word) && !ax_path_is_dir(word) &&
           (n < 5 || strcmp(word + n - 5, ".json") != 0);
}

static enum ax_status plan_config(int argc, char **argv) {
    struct request r = {.first = AX_RECOMPUTE_OFF, .last = AX_RECOMPUTE_ON};
    const struct ax_arg args[] = {{"--json", AX_ARG_FLAG, &r.json, 0, 0}};
    struct ax_config cfg;
    struct ax_train_setup s;
    AX_TRY(ax_setup_args(argc, argv, 1, args, AX_CONFIG_FOR_TRAINING, &cfg));
    enum ax_status st = ax_train_setup_open(&s, &cfg);
    if (st == AX_OK) {
        r.name = ax_config_str(&cfg, "base_model");
        r.masters = ax_config_str(&cfg, "master_dtype");
        r.optimizer = ax_config_str(&cfg, "optimizer");
        r.arch = &s.arch;
        r.runtime = s.o.runtime;
        r.step = ax_train_step_options(&s.o);
        r.rows = s.o.data.sequences_per_batch;
        r.row_tokens = s.o.data.sequence_tokens;
        if (!s.o.recompute_auto)
            r.first = r.last = r.step.recompute;
        st = make_plans(&r);
        if (st == AX_OK && s.o.recompute_auto && !r.json)
            printf("\ngradient_checkpointing: auto chooses the first of these that fits when "
                   "training starts\n");
        ax_train_setup_close(&s);
    }
    ax_config_free(&cfg);
    return st;
}

enum ax_status ax_cmd_plan(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (is_config(argv[i]))
            return plan_config(argc, argv);
    return plan_model(argc, argv);
}
