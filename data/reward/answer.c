#include "data/reward/answer.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/fit.h"
#include "base/log.h"
#include "base/text/json.h"

const char *const ax_reward_failure_names[AX_REWARD_FAILURE_COUNT] = {
    [AX_REWARD_FINE] = "fine",
    [AX_REWARD_EXCEPTION] = "exception",
    [AX_REWARD_COUNT] = "wrong number of rewards",
    [AX_REWARD_RUBBISH] = "not an answer",
    [AX_REWARD_TIMEOUT] = "timeout",
    [AX_REWARD_DEATH] = "it died",
};

void ax_reward_fail(struct ax_reward_outcome *outcome, enum ax_reward_failure failure,
                    const char *fmt, ...) {
    va_list ap;
    outcome->failure = failure;
    va_start(ap, fmt);
    ax_vfit(outcome->text, sizeof outcome->text, fmt, ap);
    va_end(ap);
    for (char *s = outcome->text; *s; s++)
        if ((unsigned char)*s < ' ' || *s == '\x7f')
            *s = ' ';
}

/* Sums and squares of these stay numbers. */
#define LARGEST 1e30

/* false: it is no reward. */
static bool read_reward(const json_t *v, double *out, size_t *not_finite) {
    static const char *const names[] = {"nan", "inf", "-inf"};
    if (json_is_number(v)) {
        if (fabs(json_number_value(v)) <= LARGEST)
            *out = json_number_value(v);
        else
            ++*not_finite;
        return true;
    }
    for (int i = 0; json_is_string(v) && i < 3; i++)
        if (strcmp(json_string_value(v), names[i]) == 0) {
            ++*not_finite;
            return true;
        }
    return json_is_null(v);
}

static void read_rewards(const json_t *list, size_t n, double *out, size_t *not_finite,
                         struct ax_reward_outcome *outcome) {
    if (json_array_size(list) != n) {
        ax_reward_fail(outcome, AX_REWARD_COUNT, "%zu for %zu completions", json_array_size(list),
                       n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        if (!read_reward(json_array_get(list, i), &out[i], not_finite)) {
            ax_reward_fail(outcome, AX_REWARD_RUBBISH, "rewards[%zu] is neither a number nor null",
                           i);
            return;
        }
}

/* ---- what is logged ---- */

static bool are_metrics(json_t *metrics) {
    const char *name;
    json_t *v;
    json_object_foreach(metrics, name, v) {
        const json_t *sum = json_array_get(v, 0);
        if (json_array_size(v) != 2 || (!json_is_number(sum) && !json_is_string(sum)) ||
            json_integer_value(json_array_get(v, 1)) < 1)
            return false;
    }
    return true;
}

static bool are_columns(json_t *extra, size_t n) {
    const char *name;
    json_t *v;
    json_object_foreach(extra, name, v) if (json_array_size(v) != n) return false;
    return true;
}

static enum ax_status read_logged(const json_t *root, size_t n, struct ax_reward_outcome *outcome) {
    json_t *metrics = json_object_get(root, "metrics"), *extra = json_object_get(root, "extra");
    if (outcome->failure != AX_REWARD_FINE || (!metrics && !extra))
        return AX_OK;
    if ((metrics && !json_is_object(metrics)) || (extra && !json_is_object(extra)) ||
        !are_metrics(metrics) || !are_columns(extra, n)) {
        ax_reward_fail(outcome, AX_REWARD_RUBBISH,
                       "what it logs is not as log_metric or log_extra writes it");
        return AX_OK;
    }
    outcome->logged = json_pack("{sO* sO*}", "metrics", metrics, "extra", extra);
    return outcome->logged
               ? AX_OK
               : ax_error(AX_ERR_NOMEM, "out of memory for what a reward function logs");
}

/* ---- the line ---- */

static void read_object(const json_t *root, size_t n, double *out, size_t *not_finite,
                        struct ax_reward_outcome *outcome) {
    const json_t *rewards = json_object_get(root, "rewards"),
                 *error = json_object_get(root, "error"), *at = json_object_get(root, "at");
    if (json_is_string(error) && json_is_string(at))
        ax_reward_fail(outcome, AX_REWARD_EXCEPTION, "%s (%s)", json_string_value(error),
                       json_string_value(at));
    else if (json_is_string(error))
        ax_reward_fail(outcome, AX_REWARD_EXCEPTION, "%s", json_string_value(error));
    else if (json_is_array(rewards))
        read_rewards(rewards, n, out, not_finite, outcome);
    else
        ax_reward_fail(outcome, AX_REWARD_RUBBISH,
                       "the line has neither a list \"rewards\" nor a string \"error\"");
}

enum ax_status ax_reward_answer_read(const char *line, size_t len, size_t n, bool logs, double *out,
                                     size_t *not_finite, struct ax_reward_outcome *outcome) {
    struct ax_json_doc doc;
    outcome->failure = AX_REWARD_FINE;
    outcome->logged = NULL;
    *not_finite = 0;
    for (size_t i = 0; i < n; i++)
        out[i] = NAN;
    enum ax_status st = ax_json_parse(&doc, "its line", line, len);
    if (st == AX_ERR_NOMEM)
        return st;
    if (st != AX_OK) {
        ax_reward_fail(outcome, AX_REWARD_RUBBISH, "%s", ax_error_text());
        ax_error_clear();
        return AX_OK;
    }
    read_object(doc.root, n, out, not_finite, outcome);
    st = logs ? read_logged(doc.root, n, outcome) : AX_OK;
    ax_json_free(&doc);
    for (size_t i = 0; i < n && outcome->failure != AX_REWARD_FINE; i++)
        out[i] = NAN;
    return st;
}

void ax_reward_tell(struct ax_reward_fn *f, const char *fmt, ...) {
    char text[512];
    va_list ap;
    if (f->told)
        return;
    f->told = true;
    va_start(ap, fmt);
    ax_vfit(text, sizeof text, fmt, ap);
    va_end(ap);
    ax_log_warn("rewards: %s: %s: no reward (this is said only once)", f->name, text);
}
