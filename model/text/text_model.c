#include "model/text/text_model.h"

#include <math.h>
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "model/convert/base_model.h"
#include "kernels/backend.h"
#include "kernels/cpu/isa.h"
#include "model/arch/classifier.h"
#include "model/drafter.h"

/* ---- generation_config.json: followed, or named ---- */

#define MAX_CONFIG ((size_t)16 << 20)
#define UNSAID     0.7 /* the temperature of who samples where the folder does not say whether to */

/* Settings that change transformers' answers and not these, and where they do nothing. */
static const struct {
    const char *key;
    double nothing; /* NAN: only null, or an empty list */
} other_settings[] = {
    {"num_beams", 1},
    {"no_repeat_ngram_size", 0},
    {"suppress_tokens", NAN},
    {"begin_suppress_tokens", NAN},
    {"bad_words_ids", NAN},
    {"force_words_ids", NAN},
    {"min_length", 0},
    {"min_new_tokens", 0},
    {"forced_bos_token_id", NAN},
    {"forced_eos_token_id", NAN},
    {"forced_decoder_ids", NAN},
    {"sequence_bias", NAN},
    {"typical_p", 1},
    {"epsilon_cutoff", 0},
    {"eta_cutoff", 0},
    {"top_h", NAN},
    {"penalty_alpha", 0},
    {"dola_layers", NAN},
    {"guidance_scale", 1},
    {"diversity_penalty", 0},
    {"encoder_repetition_penalty", 1},
    {"encoder_no_repeat_ngram_size", 0},
    {"exponential_decay_length_penalty", NAN},
    {"constraints", NAN},
    {"watermarking_config", NAN},
    {"max_time", NAN},
};

static bool does_nothing(const json_t *v, double nothing) {
    if (!v || json_is_null(v) || json_is_false(v))
        return true;
    if (json_is_array(v) || json_is_object(v))
        return json_array_size(v) + json_object_size(v) == 0;
    return json_is_number(v) && json_number_value(v) == nothing;
}

/* max_length counts the prompt, too, and matters only where max_new_tokens is not given. */
static enum ax_status name_others(const json_t *c, bool unlimited, const char *path) {
    struct ax_buf keys = {0};
    enum ax_status st = AX_OK;
    for (size_t i = 0; st == AX_OK && i < sizeof other_settings / sizeof *other_settings; i++)
        if (!does_nothing(json_object_get(c, other_settings[i].key), other_settings[i].nothing))
            st = ax_buf_printf(&keys, "%s%s", keys.len > 0 ? ", " : "", other_settings[i].key);
    if (st == AX_OK && unlimited && !does_nothing(json_object_get(c, "max_length"), 20))
        st = ax_buf_printf(&keys, "%smax_length", keys.len > 0 ? ", " : "");
    if (keys.len > 0)
        ax_log_warn("%s: not followed, so answers differ from transformers': %s", path, keys.data);
    ax_buf_free(&keys);
    return st;
}

/* Those of the options replace them. transformers, too, ends at them, but keeps them in the text. */
static enum ax_status read_stop_strings(struct ax_text_model *t, struct ax_json v,
                                        const char *path) {
    const size_t n = json_is_string(v.v) ? 1 : ax_json_size(v);
    if (!v.v || json_is_null(v.v))
        return AX_OK;
    if (n > AX_ARG_LIST_MAX)
        return ax_json_error(v, "more than %d stop strings", AX_ARG_LIST_MAX);
    for (size_t i = 0; i < n; i++) {
        const struct ax_json one = json_is_string(v.v) ? v : ax_json_at(v, i);
        AX_TRY(ax_json_str(one, &t->stop_strings.text[i]));
        if (t->stop_strings.text[i][0] == '\0')
            return ax_json_error(one, "expected text, got an empty string");
    }
    t->stop_strings.n = (int)n;
    ax_log_info("%s: answers end before the texts in stop_strings", path);
    return AX_OK;
}

static enum ax_status take_settings(struct ax_text_model *t, const struct ax_text_options *o,
                                    struct ax_json c, const char *path) {
    struct ax_sampling *s = &t->sampling;
    bool sample;
    const bool unsaid = o->samples && !json_object_get(c.v, "do_sample");
    AX_TRY(ax_json_bool_or(ax_json_get(c, "do_sample"), false, &sample));
    AX_TRY(ax_json_f64_or(ax_json_get(c, "temperature"), unsaid ? UNSAID : 1, &s->temperature));
    AX_TRY(ax_json_i64_or(ax_json_get(c, "top_k"), 0, INT32_MAX, 0, &s->top_k));
    AX_TRY(ax_json_f64_or(ax_json_get(c, "top_p"), 1, &s->top_p));
    s->top_p = ax_given_top_p(s->top_p);
    AX_TRY(ax_json_f64_or(ax_json_get(c, "min_p"), 0, &s->min_p));
    AX_TRY(ax_json_f64_or(ax_json_get(c, "repetition_penalty"), 1, &s->repetition_penalty));
    if (!(s->repetition_penalty > 0))
        return ax_json_error(ax_json_get(c, "repetition_penalty"), "expected a number above 0");
    AX_TRY(ax_json_i64_or(ax_json_get(c, "max_new_tokens"), 1, 1 << 24, 0, &t->max_new));
    AX_TRY(name_others(c.v, t->max_new == 0 && o->max_new_tokens <= 0, path));
    if (o->stop.n == 0)
        AX_TRY(read_stop_strings(t, ax_json_get(c, "stop_strings"), path));
    if (!sample && !unsaid) {
        const struct ax_sampling greedy = {.repetition_penalty = s->repetition_penalty};
        *s = greedy;
    }
    return AX_OK;
}

static enum ax_status read_settings(struct ax_text_model *t, const struct ax_text_options *o) {
    struct ax_json_doc doc = {0};
    char *path;
    AX_TRY(ax_path_join(&path, t->folder, "generation_config.json"));
    enum ax_status st = AX_OK;
    t->sampling.temperature = o->samples ? UNSAID : 0;
    if (ax_path_exists(path) && (st = ax_json_load(&doc, path, MAX_CONFIG)) == AX_OK)
        st = take_settings(t, o, ax_json_root(&doc), path);
    t->settings = json_incref(doc.root); /* has the texts */
    ax_json_free(&doc);
    ax_free(path);
    return st;
}

/* ---- options ---- */

/* Options take precedence over the folder's settings. A filter without a temperature implies 1. */
static enum ax_status apply_options(struct ax_text_model *t, const struct ax_text_options *o) {
    struct ax_sampling *s = &t->sampling;
    const bool filter = o->top_k > 0 || !isnan(o->top_p) || !isnan(o->min_p);
    if (!isnan(o->temperature))
        s->temperature = o->temperature;
    else if (filter && s->temperature == 0)
        s->temperature = 1;
    s->top_k = o->top_k >= 0 ? o->top_k : s->top_k;
    s->top_p = isnan(o->top_p) ? s->top_p : ax_given_top_p(o->top_p);
    s->min_p = isnan(o->min_p) ? s->min_p : o->min_p;
    s->repetition_penalty =
        isnan(o->repetition_penalty) ? s->repetition_penalty : o->repetition_penalty;
    s->seed = (uint64_t)o->seed;
    t->max_new = o->max_new_tokens > 0 ? o->max_new_tokens : t->max_new;
    if (o->stop.n > 0)
        t->stop_strings = o->stop;
    if (o->repetition_penalty == 0)
        return ax_error(AX_ERR_CONFIG,
                        "repetition_penalty: expected a number above 0 (1 = off), got 0");
    for (int i = 0; i < o->stop.n; i++)
        if (o->stop.text[i][0] == '\0')
            return ax_error(AX_ERR_CONFIG, "--stop: expected text, got an empty string");
    return ax_sampling_check(s);
}

/* ---- opening ---- */

/* Opens the tokenizers of the model, and of adapters that have their own. */
static enum ax_status open_sides(struct ax_text_model *t) {
    AX_TRY(ax_text_side_open(&t->sides[0], t->folder, t->folder));
    for (int i = 0; i < t->adapters.n - t->adapters.n_slots; i++) {
        const char *dir = t->adapters.pefts[i].dir;
        if (ax_text_side_is_in(dir))
            AX_TRY(ax_text_side_open(&t->sides[i + 1], dir, t->folder));
    }
    return AX_OK;
}

const struct ax_text_side *ax_text_model_side(const struct ax_text_model *t, int adapter) {
    return &t->sides[t->sides[adapter + 1].folder ? adapter + 1 : 0];
}

static enum ax_status open_all(struct ax_text_model *t, const struct ax_text_options *o) {
    struct ax_arg_list adapters = o->adapters;
    const char *model = o->model;
    AX_TRY(ax_base_model_of_adapter(&t->named, &model, &adapters));
    AX_TRY(ax_base_model_folder(&t->folder, &t->use, model, NULL, NULL));
    AX_TRY(ax_arch_load(&t->arch, t->folder));
    if (o->drafts)
        AX_TRY(ax_arch_check_predict(&t->arch, "--drafts"));
    t->drafts = o->drafts;
    t->runtime = o->runtime;
    t->dtype = ax_cpu_has_bf16() || ax_backend_prefers_bf16(t->runtime.backend) ? AX_BF16 : AX_F32;
    if (o->team) /* others may be other machines */
        AX_TRY(ax_team_share(o->team, &t->dtype, sizeof t->dtype));
    if (o->dtype_given)
        t->dtype = o->dtype;
    if (o->base)
        AX_TRY(ax_storage_parse(o->base, &t->store));
    AX_TRY(ax_adapters_open(&t->adapters, &adapters, t->folder, &t->arch));
    AX_TRY(ax_adapters_add_slots(&t->adapters, o->adapter_slots));
    AX_TRY(ax_classifier_refuse(&t->arch, t->folder, "generate text"));
    AX_TRY(open_sides(t));
    AX_TRY(read_settings(t, o));
    AX_TRY(apply_options(t, o));
    return ax_hf_open(&t->hf, t->folder);
}

enum ax_status ax_text_model_open(struct ax_text_model *t, const struct ax_text_options *o) {
    *t = (struct ax_text_model){0};
    if (!o->model)
        return ax_error(AX_ERR_CONFIG,
                        "--model is missing: give a model folder, a GGUF file or a hub id");
    const enum ax_status st = open_all(t, o);
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
    ax_free(t->named);
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

static struct ax_model_options options_of(const struct ax_text_model *t) {
    return (struct ax_model_options){.dtype = t->dtype, .base_store = t->store, .folder = &t->hf};
}

/* The model with its weights and adapters; `bank` must outlive it. */
static enum ax_status create_model(struct ax_model *m, const struct ax_text_model *t,
                                   struct ax_runtime *rt, int64_t max_positions,
                                   struct ax_adapter_bank *bank) {
    struct ax_model_options mo = options_of(t);
    mo.bank = ax_adapters_bank(&t->adapters, bank);
    mo.max_positions = max_positions;
    AX_TRY(ax_model_create(m, &t->arch, rt, &mo));
    enum ax_status st = ax_model_load(m, &t->hf);
    if (st == AX_OK && mo.bank)
        st = ax_adapter_bank_load(m, &t->hf);
    if (st != AX_OK)
        ax_model_free(m);
    return st;
}

enum ax_status ax_text_model_check(const struct ax_text_model *t) {
    struct ax_runtime rt;
    struct ax_model m;
    struct ax_adapter_bank bank;
    AX_TRY(ax_runtime_open_planning(&rt, &t->runtime));
    const enum ax_status st = create_model(&m, t, &rt, 1, &bank);
    if (st == AX_OK)
        ax_model_free(&m);
    ax_runtime_close(&rt);
    return st;
}

static enum ax_status create_drafter(struct ax_drafter *d, const struct ax_text_model *t,
                                     struct ax_model *m) {
    const struct ax_model_options o = options_of(t);
    if (!t->drafts)
        return AX_OK;
    AX_TRY(ax_drafter_create(d, m, &o));
    AX_TRY(ax_model_load(&d->model, &t->hf));
    return ax_model_make_panels(&d->model);
}

static enum ax_status with_model(struct ax_runtime *rt, void *ctx) {
    struct run *r = ctx;
    struct ax_model m;
    struct ax_drafter drafter = {0};
    struct ax_generator g = {0};
    struct ax_adapter_bank bank;
    AX_TRY(create_model(&m, r->t, rt, r->o.max_prompt + r->o.max_new, &bank));
    enum ax_status st;
    AX_TRY_GOTO(ax_model_make_panels(&m), st, done);
    AX_TRY_GOTO(create_drafter(&drafter, r->t, &m), st, done);
    AX_TRY_GOTO(ax_generator_create(&g, &m, &r->o), st, done);
    st = ax_runtime_planning(rt) ? plan(r, &g) : r->body(&g, r->ctx);
done:
    ax_generator_free(&g);
    ax_drafter_free(&drafter);
    ax_model_free(&m);
    return st;
}

enum ax_status ax_text_model_run(struct ax_text_model *t, const struct ax_generate_options *o,
                                 bool logprobs, ax_text_body *body, void *ctx) {
    struct run r = {.t = t, .o = *o, .logprobs = logprobs, .body = body, .ctx = ctx};
    r.o.sampling = t->sampling;
    r.o.drafts = t->drafts;
    return ax_runtime_run(&t->runtime, with_model, &r, NULL);
}
