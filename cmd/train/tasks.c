#include "cmd/train/tasks.h"

#include "base/log.h"
#include "base/stop.h"
#include "cmd/harness/report.h"

/* ---- an evaluation ---- */

struct answering {
    const struct ax_tasks *o;
    struct ax_model *model;
    struct ax_team *team;
};

static enum ax_status answer(void *ctx, struct ax_text_requests *r) {
    const struct answering *a = ctx;
    return ax_tasks_answer(a->o, a->model, a->team, r);
}

static enum ax_status look(void *ctx) {
    (void)ctx;
    return ax_stop_requested() == AX_STOP_NONE ? AX_OK : AX_INTERRUPTED;
}

static enum ax_status run(void *ctx, struct ax_model *m, struct ax_team *team,
                          struct ax_figures *out, bool *stopped) {
    const struct ax_setup_tasks *t = ctx;
    struct answering a = {.o = &t->o, .model = m, .team = team};
    struct ax_watch watch = {.look = look};
    struct ax_harness_options o = t->harness;
    struct ax_harness_outcome outcome;
    o.team = team;
    o.answer = answer;
    o.ctx = &a;
    o.watch = &watch;
    AX_TRY(ax_harness_run(&o, &outcome));
    *stopped = outcome.stopped;
    if (outcome.failure.st != AX_OK)
        ax_log_warn("lm_eval_tasks: %s. Training continues without their results.",
                    outcome.failure.text);
    if (outcome.results)
        ax_harness_figures(outcome.results, out);
    json_decref(outcome.results);
    return AX_OK;
}

/* ---- keys ---- */

static enum ax_status list_tasks(json_t **out, const struct ax_yaml_node *names) {
    *out = json_array();
    for (size_t i = 0; i < names->n; i++)
        if (json_array_append_new(*out, json_string(names->entries[i].value->text)) != 0)
            return ax_error(AX_ERR_CONFIG, "lm_eval_tasks: a name is not UTF-8");
    return AX_OK;
}

/* Before a run, and where its data may be downloaded without ranks that wait for steps. */
static enum ax_status try(const struct ax_setup_tasks *t, struct ax_fabric *fabric) {
    const bool leads = !fabric || fabric->rank == 0;
    bool found = true;
    return ax_team_choice(fabric, leads ? ax_harness_try(&t->harness) : AX_OK, &found,
                          sizeof found);
}

enum ax_status ax_setup_tasks_read(struct ax_setup_tasks *t, const struct ax_config *cfg,
                                   const struct ax_setup_data *d, const char *base,
                                   struct ax_fabric *fabric) {
    struct ax_task_keys k = {0};
    AX_FILL(cfg, "", struct ax_task_keys, &k);
    if (!k.tasks || k.tasks->n == 0 || !ax_config_holds(cfg, "lm_eval_tasks"))
        return AX_OK;
    t->o = (struct ax_tasks){.lanes = (int)k.lanes,
                             .max_length = d->keys.sequence_len[false],
                             .seed = AX_HARNESS_SEED,
                             .run = run,
                             .ctx = t};
    if (!base)
        return AX_OK;
    AX_TRY(ax_setup_stops(&t->o.stop, base, d));
    t->side = (struct ax_text_side){.tokenizer = d->tok.tokenizer};
    t->harness = (struct ax_harness_options){.option = "lm_eval_tasks",
                                             .num_fewshot = -1,
                                             .seed = AX_HARNESS_SEED,
                                             .side = &t->side,
                                             .max_length = t->o.max_length};
    AX_TRY(list_tasks(&t->harness.tasks, k.tasks));
    return try(t, fabric);
}

void ax_setup_tasks_free(struct ax_setup_tasks *t) {
    json_decref(t->harness.tasks);
    *t = (struct ax_setup_tasks){0};
}
