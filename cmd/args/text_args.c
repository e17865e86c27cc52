#include "cmd/args/text_args.h"

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

/* ---- tools ---- */

void ax_tool_args_table(struct ax_tool_args *a, struct ax_arg *args) {
    *a = (struct ax_tool_args){.max_rounds = -1, .timeout = NAN, .rollout_timeout = NAN};
    const struct ax_arg table[AX_TOOL_ARGS_COUNT] = {
        {"--tools", AX_ARG_LIST, &a->tools, 0, 0},
        {"--max-tool-calling-iterations", AX_ARG_INT, &a->max_rounds, 1, INT32_MAX},
        {"--tool-call-format", AX_ARG_STRING, &a->format, 0, 0},
        {"--tool-parse-error", AX_ARG_STRING, &a->parse_error, 0, 0},
        {"--python-state", AX_ARG_STRING, &a->python_state, 0, 0},
        {"--tool-timeout", AX_ARG_FLOAT, &a->timeout, 0, 0},
        {"--tool-workers", AX_ARG_INT, &a->workers, 1, AX_TOOLS_MOST_WORKERS},
        {"--rollout-timeout", AX_ARG_FLOAT, &a->rollout_timeout, 0, 0},
    };
    memcpy(args, table, sizeof table);
}

static enum ax_status read_seconds(const char *option, double given, double *out) {
    if (isnan(given))
        return AX_OK;
    *out = given;
    return given > 0
               ? AX_OK
               : ax_error(AX_ERR_CONFIG, "%s: expected seconds above 0, got %g", option, given);
}

static enum ax_status read_word(const char *option, const char *words, const char *text,
                                bool *second) {
    int which = 0;
    if (text)
        AX_TRY(ax_args_word(option, words, text, &which));
    *second = which == 1;
    return AX_OK;
}

static enum ax_status check_format(const char *name) {
    struct ax_buf names = {0};
    enum ax_status st = AX_OK;
    if (!name || ax_tool_format_find(name))
        return AX_OK;
    for (int i = 0; st == AX_OK && ax_tool_format_at(i); i++)
        st = ax_buf_printf(&names, "%s%s", i > 0 ? ", " : "", ax_tool_format_at(i)->name);
    if (st == AX_OK)
        st = ax_error(AX_ERR_CONFIG, "--tool-call-format: expected one of %s, got \"%s\"",
                      names.data, name);
    ax_buf_free(&names);
    return st;
}

enum ax_status ax_tool_args_read(const struct ax_tool_args *a, struct ax_text_tools_options *out) {
    const bool others = a->format || a->parse_error || a->python_state || a->max_rounds > 0 ||
                        !isnan(a->timeout) || a->workers > 0 || !isnan(a->rollout_timeout);
    *out =
        (struct ax_text_tools_options){.tools = {.names = a->tools.text, .n = (size_t)a->tools.n},
                                       .rules = {.max_rounds = a->max_rounds},
                                       .format = a->format};
    if (a->tools.n == 0)
        return others
                   ? ax_error(AX_ERR_CONFIG, "--max-tool-calling-iterations, --tool-call-format, "
                                             "--tool-parse-error, --python-state, --tool-timeout, "
                                             "--tool-workers and --rollout-timeout need --tools")
                   : AX_OK;
    AX_TRY(check_format(a->format));
    AX_TRY(read_word("--tool-parse-error", AX_WORDS_PARSE_ERROR, a->parse_error, &out->rules.ends));
    AX_TRY(read_word("--python-state", AX_WORDS_PYTHON_STATE, a->python_state, &out->rules.keeps));
    out->tools.keeps = out->rules.keeps;
    out->tools.workers = a->workers;
    AX_TRY(read_seconds("--tool-timeout", a->timeout, &out->tools.timeout));
    return read_seconds("--rollout-timeout", a->rollout_timeout, &out->rules.max_seconds);
}

enum ax_status ax_tool_args_open(struct ax_text_tools *x, const struct ax_text_tools_options *o,
                                 struct ax_text_model *model) {
    if (o->tools.n == 0)
        return AX_OK;
    if (model->stop_strings.n > 0)
        return ax_error(AX_ERR_CONFIG,
                        "--tools: texts that end an answer (--stop, or stop_strings of "
                        "generation_config.json) end it within a turn: remove them");
    const enum ax_status st = ax_text_tools_open(x, o, model);
    return st == AX_OK ? AX_OK : ax_error_prefix(st, "--tools");
}

/* ---- the best of several answers ---- */

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
