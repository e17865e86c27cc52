/* `axtrain plan`: memory by name, FLOPs and sizes of a training step, by dry run. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/threads.h"
#include "cmd/commands.h"
#include "cmd/step_args.h"
#include "optim/plan.h"

static void print_head(const char *model, const struct ax_arch *arch, const struct ax_plan *p,
                       const struct ax_step_options *o, const struct ax_step_args *a) {
    const bool own = o->masters == AX_MASTERS_ACCUM;
    char n[32], f[32];
    printf("%s: %s, %s parameters, %lld layers, hidden %lld, vocabulary %lld%s\n", model,
           arch->family->model_type, ax_format_count(n, sizeof n, (double)p->parameters),
           (long long)arch->n_layers, (long long)arch->hidden_size, (long long)arch->vocab_size,
           arch->tied ? ", tied" : "");
    printf("step: %lld tokens (%d micro-batches of %lld × %lld), %s compute, %s masters, %s\n",
           (long long)p->tokens, o->n_microbatches, (long long)o->n_docs, (long long)o->max_len,
           ax_dtype_info(o->dtype)->name,
           own ? ax_dtype_info(ax_dtype_accum(o->dtype))->name : a->masters, a->optimizer);
    printf("model FLOPs per step: %s (6N+6LHS causal)\n",
           ax_format_count(f, sizeof f, p->model_flops));
}

static void print_plan(const struct ax_plan *p, enum ax_recompute mode) {
    char b[32], f[32];
    printf("\nrecompute %-10s %s in all, %s FLOPs executed per step (%.0f %% of the model's)\n",
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

enum ax_status ax_cmd_plan(int argc, char **argv) {
    struct ax_step_args a = {
        .dtype = "bfloat16", .optimizer = "adamw", .batch = 1, .seq = 2048, .accumulate = 1};
    bool json = false;
    struct ax_arg args[AX_STEP_ARGS_COUNT + 1];
    ax_step_args_table(&a, args);
    args[AX_STEP_ARGS_COUNT] = (struct ax_arg){"--json", AX_ARG_FLAG, &json, 0, 0};
    const char *path;
    int n;
    AX_TRY(ax_args_parse(argc, argv, AX_STEP_ARGS_COUNT + 1, args, 1, 1, &path, &n));
    struct ax_step_options o;
    struct ax_arch arch;
    AX_TRY(ax_step_args_options(&a, &o));
    enum ax_recompute first = AX_RECOMPUTE_OFF, last = AX_RECOMPUTE_ON;
    if (a.recompute) {
        AX_TRY(ax_recompute_parse(a.recompute, &first));
        last = first;
    }
    AX_TRY(ax_arch_load(&arch, path));
    const struct ax_runtime_options ro = {.backend = "cpu", .threads = (int)a.threads};
    struct ax_plan plan;
    json_t *plans = json_array();
    enum ax_status st = AX_OK;
    for (int mode = (int)first; mode <= (int)last; mode++) {
        o.recompute = (enum ax_recompute)mode;
        AX_TRY_GOTO(ax_plan_make(&plan, &ro, &arch, &o), st, done);
        if (!json && mode == (int)first)
            print_head(path, &arch, &plan, &o, &a);
        if (!json)
            print_plan(&plan, o.recompute);
        AX_TRY_GOTO(add_json(plans, &plan, o.recompute), st, done);
    }
    if (json)
        st = print_json(path, &plan, plans);
done:
    json_decref(plans);
    ax_arch_free(&arch);
    return st;
}
