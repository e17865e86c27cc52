/* A generation that is trained on later, elsewhere or after a resume: a letter, in JSON, with its completions as in a
 * checkpoint, and what is reported when it is trained on. */
#include <math.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/text/json.h"
#include "optim/rollout/rollout.h"

/* ---- writing ---- */

static json_t *figures_json(const struct ax_figures *f) {
    json_t *v = json_object();
    for (int i = 0; v && i < f->n; i++)
        if (json_object_set_new(v, f->names[i], ax_json_number(f->values[i])) != 0) {
            json_decref(v);
            return NULL;
        }
    return v;
}

static json_t *buf_json(const struct ax_buf *b) {
    return json_stringn(b->data, b->len);
}

static enum ax_status append(json_t *list, json_t *item) {
    if (item && json_array_append_new(list, item) == 0)
        return AX_OK;
    return ax_error(AX_ERR_NOMEM, "out of memory for a generation");
}

/* A line that cannot be made costs nothing but itself. */
static enum ax_status add_line(const struct ax_rollout *r, int64_t i, json_t *lines) {
    struct ax_buf line = {0};
    enum ax_status st = ax_rollout_line(r, i, r->generation, &line);
    if (st == AX_OK) {
        st = append(lines, buf_json(&line));
    } else if (st != AX_ERR_NOMEM) {
        ax_log_warn("completions.jsonl: %s", ax_error_text());
        ax_error_clear();
        st = AX_OK;
    }
    ax_buf_free(&line);
    return st;
}

static enum ax_status add_shown(const struct ax_rollout *r, int64_t i, json_t *shown) {
    struct ax_buf prompt = {0}, completion = {0}, worth = {0};
    enum ax_status st;
    AX_TRY_GOTO(ax_rollout_text(r, &r->list[i], &prompt, &completion), st, done);
    AX_TRY_GOTO(ax_rollout_worth(r, i, &worth), st, done);
    st = append(shown,
                json_pack("[o, o, o]", buf_json(&prompt), buf_json(&completion), buf_json(&worth)));
done:
    ax_buf_free(&prompt);
    ax_buf_free(&completion);
    ax_buf_free(&worth);
    return st;
}

static enum ax_status add_reports(const struct ax_rollout *r, json_t *lines, json_t *shown) {
    for (int64_t i = 0; i < r->n; i++)
        AX_TRY(add_line(r, i, lines));
    for (int64_t i = 0; i < ax_rollout_shown(r); i++)
        AX_TRY(add_shown(r, i, shown));
    return AX_OK;
}

enum ax_status ax_rollout_to_letter(const struct ax_rollout *r, const struct ax_loader *loader,
                                    json_t **out) {
    struct ax_loader_state at;
    json_t *rollout = NULL, *data = NULL, *lines = json_array(), *shown = json_array();
    enum ax_status st;
    AX_TRY_GOTO(ax_rollout_to_json(r, &rollout), st, fail);
    ax_loader_save(loader, &at);
    AX_TRY_GOTO(ax_loader_state_to_json(&at, &data), st, fail);
    AX_TRY_GOTO(add_reports(r, lines, shown), st, fail);
    *out = json_pack("{sI so so so si sf sf so so}", "weights", (json_int_t)r->version, "rollout",
                     rollout, "data", data, "figures", figures_json(&r->figures), "worth",
                     (int)r->worth, "seconds", r->seconds, "reward_seconds", r->reward_seconds,
                     "lines", lines, "shown", shown);
    return *out ? AX_OK : ax_error(AX_ERR_NOMEM, "out of memory for a generation");
fail:
    json_decref(rollout);
    json_decref(data);
    json_decref(lines);
    json_decref(shown);
    return st;
}

/* ---- reading ---- */

static enum ax_status read_figures(struct ax_figures *f, struct ax_json v) {
    const char *name;
    json_t *value;
    f->n = 0;
    json_object_foreach((json_t *)(uintptr_t)v.v, name, value) {
        if (f->n == AX_FIGURES_MAX)
            return ax_json_error(v, "expected at most %d figures", AX_FIGURES_MAX);
        ax_figures_add(f, name, json_is_number(value) ? json_number_value(value) : (double)NAN);
    }
    return AX_OK;
}

enum ax_status ax_rollout_from_letter(struct ax_rollout *r, struct ax_json letter) {
    int64_t worth;
    AX_TRY(ax_rollout_from_json(r, ax_json_get(letter, "rollout")));
    if (!r->filled)
        return ax_json_error(ax_json_get(letter, "rollout"), "expected completions");
    AX_TRY(ax_json_i64(ax_json_get(letter, "weights"), 0, INT64_MAX, &r->version));
    AX_TRY(ax_json_i64(ax_json_get(letter, "worth"), AX_WORTH_VARIED, AX_WORTH_MOST, &worth));
    AX_TRY(ax_json_f64(ax_json_get(letter, "seconds"), &r->seconds));
    AX_TRY(ax_json_f64(ax_json_get(letter, "reward_seconds"), &r->reward_seconds));
    r->worth = (enum ax_worth)worth;
    return read_figures(&r->figures, ax_json_get(letter, "figures"));
}
