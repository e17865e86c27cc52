/* The option table and its conversion to step options. */
#include "cmd/train/step_args.h"

#include <string.h>

#include "kernels/cpu/isa.h"

void ax_step_args_table(struct ax_step_args *a, struct ax_arg *args) {
    const struct ax_arg table[AX_STEP_ARGS_COUNT] = {
        {"--dtype", AX_ARG_STRING, &a->dtype, 0, 0},
        {"--optimizer", AX_ARG_STRING, &a->optimizer, 0, 0},
        {"--masters", AX_ARG_STRING, &a->masters, 0, 0},
        {"--moments", AX_ARG_STRING, &a->moments, 0, 0},
        {"--recompute", AX_ARG_STRING, &a->recompute, 0, 0},
        {"--batch", AX_ARG_INT, &a->batch, 1, 1 << 20},
        {"--seq", AX_ARG_INT, &a->seq, 1, 1 << 24},
        {"--accumulate", AX_ARG_INT, &a->accumulate, 1, 1 << 16},
        {"--threads", AX_ARG_INT, &a->threads, 1, 1024},
        {"--lora", AX_ARG_INT, &a->lora, 1, 65536},
        {"--dora", AX_ARG_FLAG, &a->dora, 0, 0},
        {"--base", AX_ARG_STRING, &a->base, 0, 0},
        {"--fp8", AX_ARG_STRING, &a->fp8, 0, 0},
    };
    memcpy(args, table, sizeof table);
}

/* Adapters on all linears, with alpha = 2r; the base may be stored packed. */
static enum ax_status adapter(struct ax_step_args *a, struct ax_step_options *o) {
    if (!a->lora && (a->dora || a->base))
        return ax_error(AX_ERR_CONFIG, "--dora and --base need --lora R");
    if (!a->lora)
        return AX_OK;
    a->adapter = (struct ax_peft_config){
        .r = a->lora, .alpha = 2 * (double)a->lora, .dora = a->dora, .all_linear = true};
    o->model.adapter = &a->adapter;
    return a->base ? ax_storage_parse(a->base, &o->model.base_store) : AX_OK;
}

enum ax_status ax_step_args_options(struct ax_step_args *a, struct ax_step_options *o) {
    *o = (struct ax_step_options){.objective = &ax_objective_sft,
                                  .max_norm = 1,
                                  .n_microbatches = (int)a->accumulate,
                                  .tokens = a->batch * a->seq,
                                  .n_docs = a->batch,
                                  .max_len = a->seq};
    if (o->tokens > INT32_MAX)
        return ax_error(
            AX_ERR_CONFIG,
            "--batch %lld × --seq %lld exceeds the maximum number of tokens in a micro-batch (%d)",
            (long long)a->batch, (long long)a->seq, INT32_MAX);
    AX_TRY(adapter(a, o));
    if (a->fp8) {
        AX_TRY(ax_fp8_recipe(a->fp8, false, &a->scheme));
        o->model.qat = &a->scheme;
    }
    AX_TRY(ax_optimizer_find(a->optimizer, &o->optimizer, &o->opt));
    if (a->moments)
        AX_TRY(ax_moments_parse(a->moments, &o->opt.moments));
    AX_TRY(ax_optimizer_check(o->optimizer, &o->opt));
    o->model.dtype = ax_cpu_prefers_bf16(ax_cpu_isa()) ? AX_BF16 : AX_F32;
    if (a->dtype)
        AX_TRY(ax_args_dtype(a->dtype, &o->model.dtype));
    if (!a->masters)
        return AX_OK;
    AX_TRY(ax_masters_parse(a->masters, &o->model.masters));
    if (o->model.masters != AX_MASTERS_ACCUM && o->model.dtype != AX_BF16)
        return ax_error(AX_ERR_CONFIG, "--masters %s needs --dtype bf16", a->masters);
    return AX_OK;
}
