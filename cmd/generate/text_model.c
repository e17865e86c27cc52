#include "cmd/generate/text_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "cmd/model/base_model.h"
#include "kernels/backend.h"
#include "kernels/cpu/isa.h"
#include "model/arch/classifier.h"

void ax_text_args_table(struct ax_text_args *a, struct ax_arg *args) {
    *a = (struct ax_text_args){.max_new_tokens = -1,
                               .top_k = -1,
                               .temperature = NAN,
                               .top_p = NAN,
                               .min_p = NAN,
                               .repetition_penalty = NAN};
    const struct ax_arg table[AX_TEXT_ARGS_COUNT] = {
        {"--model", AX_ARG_STRING, &a->model, 0, 0},
        {"--adapter", AX_ARG_LIST, &a->adapters, 0, 0},
        {"--base", AX_ARG_STRING, &a->base, 0, 0},
        {"--dtype", AX_ARG_STRING, &a->dtype, 0, 0},
        {"--max-new-tokens", AX_ARG_INT, &a->max_new_tokens, 1, 1 << 24},
        {"--temperature", AX_ARG_FLOAT, &a->temperature, 0, 0},
        {"--top-k", AX_ARG_INT, &a->top_k, 0, INT32_MAX},
        {"--top-p", AX_ARG_FLOAT, &a->top_p, 0, 0},
        {"--min-p", AX_ARG_FLOAT, &a->min_p, 0, 0},
        {"--repetition-penalty", AX_ARG_FLOAT, &a->repetition_penalty, 0, 0},
        {"--seed", AX_ARG_INT, &a->seed, 0, INT64_MAX},
        {"--stop", AX_ARG_LIST, &a->stop, 0, 0},
        {"--threads", AX_ARG_INT, &a->threads, 1, 1024},
        {"--mesh", AX_ARG_STRING, &a->mesh, 0, 0},
        {"--device", AX_ARG_STRING, &a->device, 0, 0},
    };
    memcpy(args, table, sizeof table);
}

/* Options take precedence over the folder's settings. A filter without a temperature implies 1. */
static enum ax_status apply_args(struct ax_text_model *t, const struct ax_text_args *a) {
    struct ax_sampling *s = &t->sampling;
    const bool filter = a->top_k > 0 || !isnan(a->top_p) || !isnan(a->min_p);
    if (!isnan(a->temperature))
        s->temperature = a->temperature;
    else if (filter && s->temperature == 0)
        s->temperature = 1;
    s->top_k = a->top_k >= 0 ? a->top_k : s->top_k;
    s->top_p = isnan(a->top_p) ? s->top_p : ax_given_top_p(a->top_p);
    s->min_p = isnan(a->min_p) ? s->min_p : a->min_p;
    s->repetition_penalty =
        isnan(a->repetition_penalty) ? s->repetition_penalty : a->repetition_penalty;
    s->seed = (uint64_t)a->seed;
    t->max_new = a->max_new_tokens > 0 ? a->max_new_tokens : t->max_new;
    if (a->stop.n > 0)
        t->stop_strings = a->stop;
    if (a->repetition_penalty == 0)
        return ax_error(AX_ERR_CONFIG,
                        "repetition_penalty: expected a number above 0 (1 = off), got 0");
    for (int i = 0; i < a->stop.n; i++)
        if (a->stop.text[i][0] == '\0')
            return ax_error(AX_ERR_CONFIG, "--stop: expected text, got an empty string");
    return ax_sampling_check(s);
}

/* ---- opening ---- */

/* Opens the tokenizers of the model, and of adapters that have their own. */
static enum ax_status open_sides(struct ax_text_model *t) {
    AX_TRY(ax_text_side_open(&t->sides[0], t->folder, t->folder));
    for (int i = 0; i < t->adapters.n; i++) {
        const char *dir = t->adapters.pefts[i].dir;
        if (ax_text_side_is_in(dir))
            AX_TRY(ax_text_side_open(&t->sides[i + 1], dir, t->folder));
    }
    return AX_OK;
}

const struct ax_text_side *ax_text_model_side(const struct ax_text_model *t, int adapter) {
    return &t->sides[t->sides[adapter + 1].folder ? adapter + 1 : 0];
}

static enum ax_status open_all(struct ax_text_model *t, const struct ax_text_args *a) {
    AX_TRY(ax_base_model_folder(&t->folder, &t->use, a->model, NULL, NULL));
    AX_TRY(ax_arch_load(&t->arch, t->folder));
    t->runtime = ax_ranks_runtime(a->ranks, (int)a->threads);
    t->dtype = ax_cpu_has_bf16() || ax_backend_prefers_bf16(t->runtime.backend) ? AX_BF16 : AX_F32;
    if (a->ranks) /* others may be other machines */
        AX_TRY(ax_team_share(&a->ranks->team, &t->dtype, sizeof t->dtype));
    if (a->dtype)
        AX_TRY(ax_args_dtype(a->dtype, &t->dtype));
    if (a->base)
        AX_TRY(ax_storage_parse(a->base, &t->store));
    AX_TRY(ax_adapters_open(&t->adapters, &a->adapters, t->folder, &t->arch));
    AX_TRY(ax_classifier_refuse(&t->arch, t->folder, "generate text"));
    AX_TRY(open_sides(t));
    AX_TRY(ax_text_settings_read(t, a));
    AX_TRY(apply_args(t, a));
    return ax_hf_open(&t->hf, t->folder);
}

enum ax_status ax_text_model_open(struct ax_text_model *t, const struct ax_text_args *a) {
    *t = (struct ax_text_model){0};
    if (!a->model)
        return ax_error(AX_ERR_CONFIG,
                        "--model is missing: give a model folder, a GGUF file or a hub id");
    const enum ax_status st = open_all(t, a);
    if (st != AX_OK)
        ax_text_model_close(t);
    return st;
}

void ax_text_model_close(struct ax_text_model *t) {
    ax_hf_close(&t->hf);
    for (int i = 0; i <= AX_ARG_LIST_MAX; i++)
        ax_text_side_close(&t->sides[i]);
    ax_adapters_close(&t->adapters);
    json_decref(t->settings);
    ax_arch_free(&t->arch);
    ax_lock_drop(&t->use);
    ax_free(t->folder);
    *t = (struct ax_text_model){0};
}

/* ---- running ---- */

struct run {
    struct ax_text_model *t;
    struct ax_generate_options o;
    bool logprobs;
    ax_text_body *body;
    void *ctx;
};

enum ax_status ax_text_model_use(const struct ax_text_model *t, struct ax_generator *g,
                                 int adapter) {
    const struct ax_stop_tokens *stop = &ax_text_model_side(t, adapter)->stop;
    g->o.n_stop = stop->n;
    g->o.stop = stop->ids;
    if (t->adapters.n == 0)
        return AX_OK;
    ax_generator_forget(g);
    return ax_adapter_bank_use(g->model, adapter);
}

/* Plans with every adapter; a pass without one needs less. */
static enum ax_status plan(const struct run *r, struct ax_generator *g) {
    double none;
    const int n = r->t->adapters.n;
    for (int i = n > 0 ? 0 : AX_ADAPTER_NONE; i < n; i++) {
        struct ax_sequence s = {.logprobs = r->logprobs ? &none : NULL};
        AX_TRY(ax_text_model_use(r->t, g, i));
        AX_TRY(ax_generate(g, 1, &s));
    }
    return AX_OK;
}

static enum ax_status with_model(struct ax_runtime *rt, void *ctx) {
    struct run *r = ctx;
    struct ax_model m;
    struct ax_generator g = {0};
    struct ax_adapter_bank bank;
    const struct ax_model_options mo = {.dtype = r->t->dtype,
                                        .base_store = r->t->store,
                                        .folder_inputs = true,
                                        .bank = ax_adapters_bank(&r->t->adapters, &bank),
                                        .max_positions = r->o.max_prompt + r->o.max_new};
    AX_TRY(ax_model_create(&m, &r->t->arch, rt, &mo));
    enum ax_status st;
    AX_TRY_GOTO(ax_model_load(&m, &r->t->hf), st, done);
    if (mo.bank)
        AX_TRY_GOTO(ax_adapter_bank_load(&m, &r->t->hf), st, done);
    AX_TRY_GOTO(ax_model_make_panels(&m), st, done);
    AX_TRY_GOTO(ax_generator_create(&g, &m, &r->o), st, done);
    st = ax_runtime_planning(rt) ? plan(r, &g) : r->body(&g, r->ctx);
done:
    ax_generator_free(&g);
    ax_model_free(&m);
    return st;
}

enum ax_status ax_text_model_run(struct ax_text_model *t, const struct ax_generate_options *o,
                                 bool logprobs, ax_text_body *body, void *ctx) {
    struct run r = {.t = t, .o = *o, .logprobs = logprobs, .body = body, .ctx = ctx};
    r.o.sampling = t->sampling;
    return ax_runtime_run(&t->runtime, with_model, &r, NULL);
}
