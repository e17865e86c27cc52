/* reward, prm: TRL's trainers of heads that classify. A reward's loss is a mean over a micro-batch's
 * pairs; PRMTrainer adds up its micro-batches' means. */
#include <stdio.h>
#include <string.h>

#include "tests/goldens/run.h"

/* Reads start.NAME into a parameter of the head. */
static enum ax_status start_param(struct ax_run *r, struct ax_model *m, const struct ax_param *p) {
    char name[AX_NAME_MAX + 8];
    snprintf(name, sizeof name, "start.%s", p->name);
    const struct ax_st_entry *e = ax_safetensors_find(&r->own, name);
    if (!e || e->numel != ax_param_numel(p))
        return ax_error(AX_ERR_DATA, "%s: %s is missing or has another shape", r->own.path, name);
    const struct ax_elements from = ax_st_elements(e);
    return ax_unit_load(&m->units[p->unit], m->rt, p, &from);
}

enum ax_status ax_run_start_head(struct ax_run *r, struct ax_model *m) {
    if (!r->own.path)
        return ax_error(AX_ERR_DATA, "the head before training is not recorded");
    AX_TRY(start_param(r, m, m->lm_head));
    return m->head.bias[0] ? start_param(r, m, m->head.bias[0]) : AX_OK;
}

static enum ax_status reward(struct ax_run *r) {
    double center;
    AX_TRY(ax_json_f64_or(ax_run_setting(r, "center_rewards_coefficient"), 0, &center));
    r->objective = ax_objective_reward(&r->reward, center);
    return AX_OK;
}

static enum ax_status prm(struct ax_run *r) {
    r->objective = ax_objective_prm(&r->sft);
    return AX_OK;
}

static enum ax_status read_reward(struct ax_run *r, int k, struct ax_run_micro *m) {
    static const struct ax_run_names names = {.ids = "input_ids", .mask = "attention_mask"};
    struct ax_run_rows rows;
    struct ax_golden_tensor margin = {0};
    char name[32];
    AX_TRY(ax_run_rows_open(&rows, r, k, &names));
    const int64_t n = rows.ids.shape[0] / 2;
    enum ax_status st;
    AX_TRY_GOTO(ax_run_pad(r, &rows.pad), st, done);
    snprintf(name, sizeof name, "m%02d.margin", k);
    if (ax_safetensors_find(&r->fed, name))
        AX_TRY_GOTO(ax_run_fed(r, k, "margin", &margin), st, done);
    for (int64_t i = 0; i < 2 * n; i++)
        AX_TRY_GOTO(
            ax_run_micro_add_classes(m, &rows, i / 2 + (i % 2) * n,
                                     i / 2 < margin.numel && margin.v ? (float)margin.v[i / 2] : 0),
            st, done);
done:
    ax_golden_tensor_free(&margin);
    ax_run_rows_close(&rows);
    return st;
}

static enum ax_status read_prm(struct ax_run *r, int k, struct ax_run_micro *m) {
    static const struct ax_run_names names = {
        .ids = "input_ids", .mask = "attention_mask", .scored = "labels"};
    struct ax_run_rows rows;
    AX_TRY(ax_run_rows_open(&rows, r, k, &names));
    enum ax_status st = AX_OK;
    for (int64_t i = 0; i < rows.ids.shape[0] && st == AX_OK; i++)
        st = ax_run_micro_add_classes(m, &rows, i, 0);
    ax_run_rows_close(&rows);
    return st;
}

const struct ax_run_family ax_run_family_reward = {.name = "reward",
                                                   .task = AX_TASK_REWARD,
                                                   .loss = 5e-6,
                                                   .grad_norm = 1e-5,
                                                   .mean = true,
                                                   .head = &ax_classifier_reward,
                                                   .objective = reward,
                                                   .read = read_reward};
const struct ax_run_family ax_run_family_prm = {.name = "prm",
                                                .task = AX_TASK_STEPS,
                                                .loss = 5e-6,
                                                .grad_norm = 1e-5,
                                                .each = true,
                                                .head = &ax_classifier_prm,
                                                .objective = prm,
                                                .read = read_prm};
