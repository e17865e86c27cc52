/* Opens a case: NAME.json, its settings, the model and adapter, the tensors, the micro-batches. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "tests/goldens/run.h"

#define MAX_JSON    (64u << 20)
#define MAX_STEPS   1000
#define MAX_MICRO   100 /* named m00 … m99 */
#define LATER_SHARE 1e-3

enum ax_status ax_run_path(const struct ax_run *r, const char *path, char **out) {
    if (strncmp(path, "runs/", 5) == 0)
        return ax_sprintf(out, "%s/%s", r->root, path + 5);
    AX_TRY(ax_sprintf(out, "%s/%s", r->root, path));
    if (ax_path_exists(*out))
        return AX_OK;
    ax_free(*out);
    return ax_sprintf(out, "%s/../%s", r->root, path);
}

/* ---- settings ---- */

/* Settings that change nothing of what is compared. */
static const struct {
    const char *key, *value; /* NULL: whatever it is */
} without_effect[] = {
    /* micro-batches, prompts and answers are recorded */
    {"chat_template_kwargs", NULL},
    {"gradient_accumulation_steps", NULL},
    {"lmbda", NULL},
    {"max_completion_length", NULL},
    {"per_device_train_batch_size", NULL},
    {"seed", NULL},
    {"top_k", NULL},
    {"top_p", NULL},
    {"local_rollout_forward_batch_size", NULL},
    {"num_sample_generations", NULL},
    {"stop_token", "eos"},
};

static bool has_effect(const char *key, const json_t *v) {
    const char *text = json_string_value(v);
    for (size_t i = 0; i < sizeof without_effect / sizeof *without_effect; i++)
        if (strcmp(key, without_effect[i].key) == 0)
            return without_effect[i].value && (!text || strcmp(text, without_effect[i].value) != 0);
    return !json_is_null(v);
}

struct ax_json ax_run_setting(const struct ax_run *r, const char *key) {
    (void)json_object_set_new(r->asked, key, json_true());
    return ax_json_get(r->settings, key);
}

enum ax_status ax_run_pad(const struct ax_run *r, int32_t *pad) {
    int64_t id;
    (void)ax_run_setting(r, "pad_token"); /* its text */
    AX_TRY(ax_json_i64_or(ax_run_setting(r, "pad_token_id"), 0, INT32_MAX, -1, &id));
    *pad = (int32_t)id;
    return AX_OK;
}

void ax_run_tell_settings(const struct ax_run *r) {
    const char *key;
    json_t *v;
    if (r->asked == NULL)
        return;
    json_object_foreach((json_t *)(uintptr_t)r->settings.v, key,
                        v) if (!json_object_get(r->asked, key) && has_effect(key, v))
        printf("  not repeated here: settings.%s\n", key);
}

static enum ax_status number(const struct ax_run *r, const char *key, double *out) {
    return ax_json_f64(ax_run_setting(r, key), out);
}

static enum ax_status read_schedule(struct ax_run *r) {
    const char *kind;
    r->lr = (struct ax_lr_schedule){.num_cycles = 0.5};
    AX_TRY(ax_json_str(ax_run_setting(r, "lr_scheduler_type"), &kind));
    AX_TRY(ax_lr_kind_parse(kind, &r->lr.kind));
    AX_TRY(number(r, "learning_rate", &r->lr.base_lr));
    AX_TRY(ax_json_i64_or(ax_run_setting(r, "max_steps"), 1, MAX_STEPS,
                          (int64_t)ax_json_size(r->steps), &r->lr.total));
    return ax_json_i64(ax_run_setting(r, "warmup_steps"), 0, MAX_STEPS, &r->lr.warmup);
}

static enum ax_status read_optimizer(struct ax_run *r) {
    const char *name;
    struct ax_step_options *o = &r->step;
    AX_TRY(ax_json_str(ax_run_setting(r, "optim"), &name));
    AX_TRY(ax_optimizer_find(name, &o->optimizer, &o->opt));
    AX_TRY(number(r, "adam_beta1", &o->opt.beta1));
    AX_TRY(number(r, "adam_beta2", &o->opt.beta2));
    AX_TRY(number(r, "adam_epsilon", &o->opt.eps));
    AX_TRY(number(r, "weight_decay", &o->opt.weight_decay));
    return number(r, "max_grad_norm", &o->max_norm);
}

/* The reference adds the routers' balancing loss whatever config.json says of router logits. */
static enum ax_status read_balance(struct ax_run *r, const char *config) {
    struct ax_json_doc doc;
    double usual;
    if (r->arch.moe.n_experts == 0)
        return AX_OK;
    AX_TRY(ax_json_load(&doc, config, MAX_JSON));
    enum ax_status st =
        ax_json_f64_or(ax_json_get(ax_json_root(&doc), "router_aux_loss_coef"), 0, &usual);
    if (st == AX_OK)
        st =
            ax_json_f64_or(ax_run_setting(r, "router_aux_loss_coef"), usual, &r->step.balance_coef);
    ax_json_free(&doc);
    return st;
}

/* ---- files ---- */

enum ax_status ax_run_open_model(struct ax_run *r, const char *key) {
    const char *model, *adapter;
    char *dir = NULL, *config = NULL;
    const struct ax_json root = ax_json_root(&r->doc);
    enum ax_status st;
    AX_TRY_GOTO(ax_json_str(ax_json_get(root, key), &model), st, done);
    AX_TRY_GOTO(ax_run_path(r, model, &dir), st, done);
    AX_TRY_GOTO(ax_sprintf(&config, "%s/config.json", dir), st, done);
    AX_TRY_GOTO(ax_arch_load(&r->arch, config), st, done);
    if (r->family->head)
        AX_TRY_GOTO(ax_classifier_choose(&r->arch, r->family->head), st, done);
    AX_TRY_GOTO(ax_hf_open(&r->hf, dir), st, done);
    AX_TRY_GOTO(read_balance(r, config), st, done);
    ax_free(dir);
    dir = NULL;
    AX_TRY_GOTO(ax_json_str_or(ax_json_get(root, "adapter_start"), NULL, &adapter), st, done);
    if (!adapter)
        goto done;
    AX_TRY_GOTO(ax_run_path(r, adapter, &dir), st, done);
    AX_TRY_GOTO(ax_peft_open(&r->adapter, dir), st, done);
    r->step.model.adapter = &r->adapter.config;
done:
    ax_free(dir);
    ax_free(config);
    return st;
}

static enum ax_status open_tensors(struct ax_run *r, const char *name) {
    const char *fed;
    char *path = NULL;
    enum ax_status st = AX_OK;
    AX_TRY(ax_json_str_or(ax_json_get(ax_json_root(&r->doc), "fed"), NULL, &fed));
    if (fed) { /* else the data have what was fed */
        AX_TRY(ax_run_path(r, fed, &path));
        st = ax_safetensors_open(&r->fed, path);
        ax_free(path);
        AX_TRY(st);
    }
    AX_TRY(ax_sprintf(&path, "%s.safetensors", name));
    if (ax_path_exists(path))
        st = ax_safetensors_open(&r->own, path);
    else
        ax_golden_absent(r->report, path, false);
    ax_free(path);
    return st;
}

/* ---- micro-batches ---- */

static enum ax_status count_micro(struct ax_run *r) {
    const size_t steps = ax_json_size(r->steps);
    if (steps == 0 || (int64_t)steps > r->lr.total)
        return ax_json_error(r->steps, "expected 1 to max_steps steps, got %zu", steps);
    r->n_steps = (int)steps;
    AX_TRY(ax_alloc(&r->first, steps + 1, sizeof *r->first));
    for (size_t i = 0; i < steps; i++) {
        const struct ax_json micro = ax_json_get(ax_json_at(r->steps, i), "micro");
        const size_t n = ax_json_size(micro);
        if (n == 0 || n + (size_t)r->first[i] > MAX_MICRO)
            return ax_json_error(micro, "expected 1 to %d micro-batches", MAX_MICRO);
        r->first[i + 1] = r->first[i] + (int)n;
        if (r->step.n_microbatches < (int)n)
            r->step.n_microbatches = (int)n;
    }
    r->n_micro = r->first[steps];
    return AX_OK;
}

static enum ax_status read_mismatched(struct ax_run *r) {
    AX_TRY(ax_alloc(&r->mismatched, (size_t)r->n_micro, sizeof *r->mismatched));
    for (int k = 0; k < r->n_micro; k++) {
        AX_TRY(r->family->read_mismatched(r, k, &r->mismatched[k]));
        AX_TRY(ax_run_micro_end(&r->mismatched[k], NULL));
    }
    return AX_OK;
}

static enum ax_status read_sampler(const struct ax_run *r, int k) {
    const struct ax_run_micro *m = &r->micro[k];
    struct ax_golden_tensor t;
    char name[64];
    snprintf(name, sizeof name, "m%02d.sampling_per_token_logps", k);
    AX_TRY(ax_golden_read(&r->own, name, &t));
    for (int i = 0; i < m->n; i++)
        for (int64_t at = 0; at + 1 < m->docs[i].n; at++) {
            const int64_t to = ax_run_micro_first(m, i) + at, from = m->recorded_answer[i] + at;
            if (m->labels[to] >= 0)
                m->sampler_values[to] = from < t.numel ? (float)t.v[from] : NAN;
        }
    ax_golden_tensor_free(&t);
    return AX_OK;
}

static enum ax_status read_micro(struct ax_run *r) {
    AX_TRY(count_micro(r));
    AX_TRY(ax_alloc(&r->micro, (size_t)r->n_micro, sizeof *r->micro));
    for (int k = 0; k < r->n_micro; k++) {
        AX_TRY(r->family->read(r, k, &r->micro[k]));
        AX_TRY(ax_run_micro_end(&r->micro[k], r->objective.columns));
        if (r->policy.o.sampler.given)
            AX_TRY(read_sampler(r, k));
        if (r->micro[k].scored == 0 && !r->rollouts.masks)
            return ax_error(AX_ERR_DATA, "%s: micro-batch %d scores no token", r->fed.path, k);
    }
    if (r->family->read_mismatched)
        AX_TRY(read_mismatched(r));
    const struct ax_run_sizes sizes = ax_run_sizes(r);
    r->step.tokens = sizes.tokens;
    r->step.n_docs = sizes.docs;
    r->step.max_len = sizes.longest;
    return AX_OK;
}

static void count(struct ax_run_sizes *s, const struct ax_run_micro *m) {
    s->tokens = m->tokens > s->tokens ? m->tokens : s->tokens;
    s->docs = m->n > s->docs ? m->n : s->docs;
    for (int i = 0; i < m->n; i++)
        s->longest = m->docs[i].n > s->longest ? m->docs[i].n : s->longest;
}

struct ax_run_sizes ax_run_sizes(const struct ax_run *r) {
    struct ax_run_sizes s = {0};
    for (int k = 0; k < r->n_micro; k++) {
        count(&s, &r->micro[k]);
        if (r->mismatched)
            count(&s, &r->mismatched[k]);
    }
    return s;
}

enum ax_status ax_run_open_case(struct ax_run *r, const char *name, const char *steps) {
    char *path;
    AX_TRY(ax_sprintf(&path, "%s.json", name));
    enum ax_status st = ax_json_load(&r->doc, path, MAX_JSON);
    ax_free(path);
    AX_TRY(st);
    r->settings = ax_json_get(ax_json_root(&r->doc), "settings");
    r->asked = json_object();
    r->steps = ax_json_get(ax_json_root(&r->doc), steps);
    r->step.model.dtype = r->dtype;
    r->step.objective = &r->objective;
    r->loss = r->family->loss;
    r->grad_norm = r->family->grad_norm;
    r->later_share = LATER_SHARE;
    AX_TRY(read_schedule(r));
    AX_TRY(read_optimizer(r));
    return open_tensors(r, name);
}

enum ax_status ax_run_open(struct ax_run *r, const char *name) {
    AX_TRY(ax_run_open_case(r, name, "steps"));
    AX_TRY(ax_run_open_model(r, "model"));
    AX_TRY(r->family->objective(r));
    return read_micro(r);
}

void ax_run_close(struct ax_run *r) {
    for (int k = 0; r->micro && k < r->n_micro; k++)
        ax_run_micro_free(&r->micro[k]);
    for (int k = 0; r->mismatched && k < r->n_micro; k++)
        ax_run_micro_free(&r->mismatched[k]);
    ax_run_rollouts_close(&r->rollouts);
    ax_free(r->micro);
    ax_free(r->mismatched);
    ax_free(r->first);
    ax_safetensors_close(&r->own);
    ax_safetensors_close(&r->fed);
    ax_peft_close(&r->adapter);
    ax_hf_close(&r->hf);
    ax_hf_close(&r->teacher);
    ax_arch_free(&r->arch);
    ax_arch_free(&r->teacher_arch);
    ax_json_free(&r->doc);
    json_decref(r->asked);
    ax_free(r->root);
}
