#include "cmd/text_args.h"

#include <math.h>
#include <string.h>

#include "optim/evaluate/score/best_of.h"

void ax_text_args_table(struct ax_text_args *a, struct ax_arg *args) {
    struct ax_text_options *o = &a->o;
    *a = (struct ax_text_args){.o = {.max_new_tokens = -1,
                                     .top_k = -1,
                                     .temperature = NAN,
                                     .top_p = NAN,
                                     .min_p = NAN,
                                     .repetition_penalty = NAN}};
    const struct ax_arg table[AX_TEXT_ARGS_COUNT] = {
        {"--model", AX_ARG_STRING, &o->model, 0, 0},
        {"--adapter", AX_ARG_LIST, &o->adapters, 0, 0},
        {"--base", AX_ARG_STRING, &o->base, 0, 0},
        {"--dtype", AX_ARG_STRING, &a->dtype, 0, 0},
        {"--max-new-tokens", AX_ARG_INT, &o->max_new_tokens, 1, 1 << 24},
        {"--temperature", AX_ARG_FLOAT, &o->temperature, 0, 0},
        {"--top-k", AX_ARG_INT, &o->top_k, 0, INT32_MAX},
        {"--top-p", AX_ARG_FLOAT, &o->top_p, 0, 0},
        {"--min-p", AX_ARG_FLOAT, &o->min_p, 0, 0},
        {"--repetition-penalty", AX_ARG_FLOAT, &o->repetition_penalty, 0, 0},
        {"--seed", AX_ARG_INT, &o->seed, 0, INT64_MAX},
        {"--stop", AX_ARG_LIST, &o->stop, 0, 0},
        {"--threads", AX_ARG_INT, &a->threads, 1, 1024},
        {"--mesh", AX_ARG_STRING, &a->mesh, 0, 0},
        {"--device", AX_ARG_STRING, &a->device, 0, 0},
    };
    memcpy(args, table, sizeof table);
}

enum ax_status ax_text_args_open(struct ax_text_model *t, struct ax_text_args *a,
                                 struct ax_ranks *ranks) {
    *t = (struct ax_text_model){0};
    a->o.runtime = ax_ranks_runtime(ranks, (int)a->threads);
    a->o.team = ranks ? &ranks->team : NULL;
    if (a->dtype)
        AX_TRY(ax_args_dtype(a->dtype, &a->o.dtype));
    a->o.dtype_given = a->dtype != NULL;
    return ax_text_model_open(t, &a->o);
}

enum ax_status ax_best_of_args_check(const struct ax_best_of_args *a, const char *command) {
    enum ax_score_by by;
    if (a->n == 0)
        return a->scorer || a->by
                   ? ax_error(AX_ERR_CONFIG, "%s: --scorer and --score-by need --best-of N",
                              command)
                   : AX_OK;
    if (!a->scorer)
        return ax_error(AX_ERR_CONFIG,
                        "%s: --best-of needs --scorer DIR, a reward model or a process reward "
                        "model",
                        command);
    return a->by ? ax_score_by_parse("--score-by", a->by, &by) : AX_OK;
}
