/* gkd, distill and opd: TRL's GKDTrainer and DistillationTrainer on given completions, or, in opd, on those that
 * the model has sampled at each step. A document's tokens
 * are compared with a teacher's; a step's loss is the sum over its tokens, divided by their number.
 * gkd uses its temperature for sampling only. */
#include <string.h>

#include "tests/goldens/run.h"

static enum ax_status open_teacher(struct ax_run *r) {
    const char *name;
    char *dir = NULL, *config = NULL;
    enum ax_status st;
    AX_TRY_GOTO(ax_json_str(ax_json_get(ax_json_root(&r->doc), "teacher"), &name), st, done);
    AX_TRY_GOTO(ax_run_path(r, name, &dir), st, done);
    AX_TRY_GOTO(ax_sprintf(&config, "%s/config.json", dir), st, done);
    AX_TRY_GOTO(ax_arch_load(&r->teacher_arch, config), st, done);
    AX_TRY_GOTO(ax_hf_open(&r->teacher, dir), st, done);
    r->step.teacher = &r->teacher_arch;
done:
    ax_free(dir);
    ax_free(config);
    return st;
}

static enum ax_status objective(struct ax_run *r, double beta, double temperature) {
    r->distill = (struct ax_distill_options){
        .divergence_weight = 1, .beta = beta, .temperature = temperature};
    r->objective = ax_objective_distill(&r->distill);
    return open_teacher(r);
}

static enum ax_status gkd_objective(struct ax_run *r) {
    double beta;
    AX_TRY(ax_json_f64_or(ax_run_setting(r, "beta"), 0.5, &beta));
    return objective(r, beta, 1);
}

static enum ax_status distill_objective(struct ax_run *r) {
    double beta, temperature;
    AX_TRY(ax_json_f64_or(ax_run_setting(r, "beta"), 1, &beta));
    AX_TRY(ax_json_f64_or(ax_run_setting(r, "temperature"), 1, &temperature));
    return objective(r, beta, temperature);
}

/* A completion per prompt, and each is trained on once. */
static enum ax_status opd_objective(struct ax_run *r) {
    struct ax_run_rollouts *o = &r->rollouts;
    int64_t batches, rows;
    AX_TRY(ax_json_i64(ax_run_setting(r, "gradient_accumulation_steps"), 1, 100, &batches));
    AX_TRY(ax_json_i64(ax_run_setting(r, "per_device_train_batch_size"), 1, 100, &rows));
    o->o.group = o->iterations = 1;
    o->batches = (int)batches;
    o->rows = (int)rows;
    AX_TRY(ax_run_rollouts_open(r));
    return distill_objective(r);
}

/* ---- documents ---- */

/* Rows padded on the left. */
static enum ax_status gkd_read(struct ax_run *r, int k, struct ax_run_micro *m) {
    static const struct ax_run_names names = {
        .ids = "input_ids", .mask = "attention_mask", .scored = "labels"};
    struct ax_run_rows rows;
    AX_TRY(ax_run_rows_open(&rows, r, k, &names));
    enum ax_status st = AX_OK;
    const int64_t S = rows.ids.shape[1];
    for (int64_t i = 0; i < rows.ids.shape[0] && st == AX_OK; i++) {
        int64_t first = 0;
        while (first < S && rows.mask.v[i * S + first] == 0)
            first++;
        st = ax_run_micro_add(m, &rows, i * S + first, S - first, 0);
    }
    ax_run_rows_close(&rows);
    return st;
}

enum ax_status ax_run_read_answers(struct ax_run *r, int k, struct ax_run_micro *m) {
    static const struct ax_run_names prompts = {.ids = "prompt_ids", .mask = "prompt_mask"},
                                     completions = {.ids = "completion_ids",
                                                    .mask = "completion_mask"};
    struct ax_run_rows prompt = {0}, completion = {0};
    enum ax_status st;
    AX_TRY_GOTO(ax_run_rows_open(&prompt, r, k, &prompts), st, done);
    AX_TRY_GOTO(ax_run_rows_open(&completion, r, k, &completions), st, done);
    if (prompt.ids.shape[0] != completion.ids.shape[0])
        st = ax_error(AX_ERR_DATA,
                      "%s: micro-batch %d has unequal numbers of prompts and completions",
                      r->fed.path, k);
    for (int64_t i = 0; i < prompt.ids.shape[0] && st == AX_OK; i++)
        st = ax_run_micro_add_answer(m, &prompt, &completion, i);
done:
    ax_run_rows_close(&prompt);
    ax_run_rows_close(&completion);
    return st;
}

/* ---- records: a prompt and its answer ---- */

static enum ax_status replace(json_t **record, json_t *with) {
    if (!with)
        return ax_error(AX_ERR_DATA, "a record has no prompt and answer");
    json_decref(*record);
    *record = with;
    return AX_OK;
}

/* Trains on the last turn. */
static enum ax_status gkd_record(json_t **record) {
    json_t *prompt = json_deep_copy(json_object_get(*record, "messages"));
    const size_t n = json_array_size(prompt);
    json_t *last = n > 0 ? json_incref(json_array_get(prompt, n - 1)) : NULL;
    if (last)
        (void)json_array_remove(prompt, n - 1);
    return replace(record, json_pack("{so s[o]}", "prompt", prompt, "completion", last));
}

enum ax_status ax_run_answer_record(json_t **record) {
    json_t *prompt = json_object_get(*record, "prompt"),
           *text = json_array_get(json_object_get(*record, "texts"), 0);
    return replace(record, json_pack("{sO s[{ss sO}]}", "prompt", prompt, "completion", "role",
                                     "assistant", "content", text));
}

/* At the temperature of the distillation. */
static void metrics(const struct ax_run *r, const struct ax_run_micro *m,
                    struct ax_run_metrics *out) {
    (void)r;
    double entropy = 0;
    for (int64_t t = 0; t < m->tokens; t++)
        entropy += m->entropy[t];
    ax_run_metric_add(out, "entropy", entropy / (double)m->scored);
}

/* The count is the generated batch's. */
static void opd_metrics(const struct ax_run *r, const struct ax_run_micro *m,
                        struct ax_run_metrics *out) {
    metrics(r, m, out);
    ax_run_metric_add(out, "num_items_in_batch", ax_run_generated_tokens(r, (int)(m - r->micro)));
}

/* Of generated answers. */
static const char *const of_rollouts[] = {"completions/*", NULL};

const struct ax_run_family ax_run_family_gkd = {.name = "gkd",
                                                .loss = 5e-6,
                                                .grad_norm = 1e-5,
                                                .objective = gkd_objective,
                                                .read = gkd_read,
                                                .record = gkd_record};
const struct ax_run_family ax_run_family_distill = {.name = "distill",
                                                    .loss = 5e-6,
                                                    .grad_norm = 1e-5,
                                                    .ignore = of_rollouts,
                                                    .objective = distill_objective,
                                                    .read = ax_run_read_answers,
                                                    .record = ax_run_answer_record,
                                                    .metrics = metrics};
const struct ax_run_family ax_run_family_opd = {.name = "opd",
                                                .loss = 5e-6,
                                                .grad_norm = 1e-5,
                                                .objective = opd_objective,
                                                .read = ax_run_read_turns,
                                                .compare = ax_run_compare_turns,
                                                .metrics = opd_metrics,
                                                .step_metrics = ax_run_rollout_metrics};
