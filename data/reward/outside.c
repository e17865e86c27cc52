/* Functions in child processes (child.h): the user's Python, all of it in one child, and programs, each a
 * child of its own. A child that died or was killed is started again by the next call. In order: the line
 * that a child is sent, functions. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/text/unicode.h"
#include "data/reward/answer.h"
#include "data/reward/child.h"
#include "data/reward/function.h"
#include "data/reward/keeper.h"

/* ---- the line that a child is sent for a call ----
 *
 *   {"function": NAME, "prompts": […], "completions": […], "completion_ids": [[…], …],
 *    "columns": {"answer": […], …}, "trainer_state": {"global_step": 12, "max_steps": 100, "epoch": 0.5}}
 *
 * as TRL passes them to functions: prompts as the records have them; completions as strings, or as
 * lists of one message where the prompt is a list of messages; every other column of the records,
 * null where a record lacks it. */

static int append_json(const char *data, size_t n, void *to) {
    return ax_buf_append(to, data, n) == AX_OK ? 0 : -1;
}

/* Appends a JSON value, or a string of any bytes as JSON. */
static enum ax_status put_json(struct ax_buf *out, const json_t *v) {
    if (json_dump_callback(v, append_json, out, JSON_COMPACT | JSON_ENCODE_ANY) == 0)
        return AX_OK;
    return ax_error(AX_ERR_NOMEM, "out of memory for a reward function's arguments");
}

static enum ax_status put_string(struct ax_buf *out, const char *s, size_t n) {
    struct ax_buf valid = {0};
    AX_TRY(ax_utf8_repair(&valid, s, n));
    json_t *v = json_stringn(valid.data ? valid.data : "", valid.len);
    ax_buf_free(&valid);
    if (!v)
        return ax_error(AX_ERR_NOMEM, "out of memory for a reward function's arguments");
    const enum ax_status st = put_json(out, v);
    json_decref(v);
    return st;
}

static enum ax_status put_prompt(struct ax_buf *out, const struct ax_reward_item *item,
                                 const char *key) {
    const json_t *prompt = json_object_get(item->record, "prompt");
    (void)key;
    return prompt ? put_json(out, prompt) : put_string(out, item->prompt, strlen(item->prompt));
}

static enum ax_status put_completion(struct ax_buf *out, const struct ax_reward_item *item,
                                     const char *key) {
    (void)key;
    if (item->messages)
        return put_json(out, item->messages);
    if (item->chat)
        AX_TRY(ax_buf_puts(out, "[{\"role\":\"assistant\",\"content\":"));
    AX_TRY(put_string(out, item->completion, item->n));
    return item->chat ? ax_buf_puts(out, "}]") : AX_OK;
}

static enum ax_status put_ids(struct ax_buf *out, const struct ax_reward_item *item,
                              const char *key) {
    (void)key;
    AX_TRY(ax_buf_puts(out, "["));
    for (int64_t i = 0; i < item->n_ids; i++)
        AX_TRY(ax_buf_printf(out, i ? ",%d" : "%d", item->ids[i]));
    return ax_buf_puts(out, "]");
}

static enum ax_status put_column(struct ax_buf *out, const struct ax_reward_item *item,
                                 const char *key) {
    const json_t *v = json_object_get(item->record, key);
    return v ? put_json(out, v) : ax_buf_puts(out, "null");
}

typedef enum ax_status put_one(struct ax_buf *out, const struct ax_reward_item *item,
                               const char *key);

static enum ax_status put_list(struct ax_buf *out, const struct ax_reward_call *call, put_one *put,
                               const char *key) {
    AX_TRY(ax_buf_puts(out, "["));
    for (size_t i = 0; i < call->n; i++) {
        AX_TRY(ax_buf_puts(out, i ? "," : ""));
        AX_TRY(put(out, &call->items[i], key));
    }
    return ax_buf_puts(out, "]");
}

/* TRL passes these in lists of their own. */
static bool is_own(const char *key) {
    return strcmp(key, "prompt") == 0 || strcmp(key, "completion") == 0 ||
           strcmp(key, "completion_ids") == 0;
}

/* An object whose keys are those of all records. */
static enum ax_status collect_keys(json_t **out, const struct ax_reward_call *call) {
    json_t *keys = json_object();
    bool ok = keys != NULL;
    for (size_t i = 0; i < call->n && ok; i++) {
        json_t *record = (json_t *)(uintptr_t)call->items[i].record; /* for the iterator */
        const char *key;
        json_t *v;
        json_object_foreach(record, key, v) {
            if (!is_own(key) && !json_object_get(keys, key))
                ok = ok && json_object_set_new(keys, key, json_null()) == 0;
        }
    }
    if (ok) {
        *out = keys;
        return AX_OK;
    }
    json_decref(keys);
    return ax_error(AX_ERR_NOMEM, "out of memory for a reward function's arguments");
}

static enum ax_status put_columns(struct ax_buf *out, const struct ax_reward_call *call) {
    json_t *keys, *v;
    const char *key, *separator = "";
    enum ax_status st = AX_OK;
    AX_TRY(collect_keys(&keys, call));
    json_object_foreach(keys, key, v) {
        AX_TRY_GOTO(ax_buf_puts(out, separator), st, done);
        AX_TRY_GOTO(put_string(out, key, strlen(key)), st, done);
        AX_TRY_GOTO(ax_buf_puts(out, ":"), st, done);
        AX_TRY_GOTO(put_list(out, call, put_column, key), st, done);
        separator = ",";
    }
done:
    json_decref(keys);
    return st;
}

static enum ax_status build_request(struct ax_buf *out, const struct ax_reward_call *call) {
    AX_TRY(ax_buf_puts(out, ",\"prompts\":"));
    AX_TRY(put_list(out, call, put_prompt, NULL));
    AX_TRY(ax_buf_puts(out, ",\"completions\":"));
    AX_TRY(put_list(out, call, put_completion, NULL));
    AX_TRY(ax_buf_puts(out, ",\"completion_ids\":"));
    AX_TRY(put_list(out, call, put_ids, NULL));
    AX_TRY(ax_buf_puts(out, ",\"columns\":{"));
    AX_TRY(put_columns(out, call));
    return ax_buf_printf(
        out, "},\"trainer_state\":{\"global_step\":%lld,\"max_steps\":%lld,\"epoch\":%.17g}}\n",
        (long long)call->progress.step, (long long)call->progress.total, call->progress.epoch);
}

/* Appends the line, with its newline, to `out`. */
static enum ax_status put_request(struct ax_buf *out, const char *function,
                                  const struct ax_reward_call *call) {
    struct ax_buf *body = call->request;
    if (body->len == 0)
        AX_TRY(build_request(body, call));
    AX_TRY(ax_buf_puts(out, "{\"function\":"));
    AX_TRY(put_string(out, function, strlen(function)));
    return ax_buf_append(out, body->data, body->len);
}

/* ---- functions ---- */

struct outside {
    struct ax_child *child; /* of a program: its own */
    uint64_t loaded;        /* of Python: the start of the child that has loaded it; 0: none */
    char *who;              /* in the log: the module or program */
    char *python, *program; /* the second: ours, for keepers */
    double seconds, start_seconds;
};

/* ---- opening and closing ---- */

static enum ax_status make(struct ax_reward_fn *f, const struct ax_rewards_options *o) {
    struct outside *x;
    AX_TRY(ax_alloc(&x, 1, sizeof *x));
    f->state = x;
    AX_TRY(ax_strdup(&x->program, o->program ? o->program : "/proc/self/exe"));
    x->seconds = o->timeout > 0 ? o->timeout : AX_REWARDS_TIMEOUT;
    x->start_seconds = o->start_timeout > 0 ? o->start_timeout : AX_REWARDS_START_TIMEOUT;
    return AX_OK;
}

static void free_child(struct ax_child **c, const char *who) {
    if (*c)
        ax_child_end(*c, who, AX_CHILD_END_SECONDS);
    ax_free(*c);
    *c = NULL;
}

void ax_reward_shared_free(struct ax_reward_shared *s) {
    free_child(&s->python, "python");
}

static void close_outside(struct ax_reward_fn *f) {
    struct outside *x = f->state;
    if (!x)
        return;
    if (f->kind == &ax_reward_program)
        free_child(&x->child, x->who);
    ax_free(x->who);
    ax_free(x->python);
    ax_free(x->program);
    ax_free(x);
}

/* ---- Python ---- */

/* The question that makes the child load f, behind the script if it has just been started. */
static enum ax_status put_load(struct ax_buf *out, const struct ax_reward_fn *f, bool new) {
    if (new)
        AX_TRY(ax_child_put_script(out));
    AX_TRY(ax_buf_puts(out, "{\"load\":"));
    AX_TRY(put_string(out, f->name, strlen(f->name)));
    return ax_buf_puts(out, "}\n");
}

static enum ax_status ask(struct ax_reward_fn *f, const struct ax_buf *question, double seconds,
                          size_t n, double *out, size_t *not_finite,
                          struct ax_reward_outcome *outcome) {
    struct outside *x = f->state;
    const bool logs = f->kind == &ax_reward_python && out;
    const struct ax_question q = {.who = x->who,
                                  .text = question->data,
                                  .n = question->len,
                                  .max_answer = AX_REWARD_ANSWER_MAX(n) +
                                                (logs ? AX_REWARD_LOGGED_MAX(n) : 0),
                                  .seconds = seconds,
                                  .watch = f->shared->watch};
    AX_TRY(ax_child_ask(x->child, &q, outcome));
    if (outcome->failure != AX_REWARD_FINE)
        return AX_OK;
    AX_TRY(ax_reward_answer_read(x->child->line.data, x->child->line.len, n, logs, out, not_finite,
                                 outcome));
    if (outcome->failure == AX_REWARD_RUBBISH) /* who knows what its next line answers */
        ax_child_end(x->child, x->who, 0);
    return AX_OK;
}

/* Sees to it that there is a child that has loaded f. */
static enum ax_status load(struct ax_reward_fn *f, struct ax_reward_outcome *outcome) {
    struct outside *x = f->state;
    struct ax_buf question = {0};
    size_t not_finite;
    const bool new = x->child->pid == 0;
    outcome->failure = AX_REWARD_FINE;
    if (new)
        AX_TRY(ax_child_start_python(x->child, x->program, x->python));
    else if (x->loaded == x->child->starts)
        return AX_OK;
    enum ax_status st = put_load(&question, f, new);
    if (st == AX_OK)
        st = ask(f, &question, x->start_seconds, 0, NULL, &not_finite, outcome);
    if (st == AX_OK && outcome->failure == AX_REWARD_FINE)
        x->loaded = x->child->starts;
    ax_buf_free(&question);
    return st;
}

static enum ax_status open_python(struct ax_reward_fn *f, const struct ax_rewards_options *o) {
    struct ax_reward_outcome outcome;
    const char *set = getenv("AXTRAIN_PYTHON");
    AX_TRY(make(f, o));
    struct outside *x = f->state;
    AX_TRY(ax_strdup(&x->python, o->python ? o->python : set && *set ? set : "python3"));
    AX_TRY(ax_strndup(&x->who, f->name, (size_t)(strrchr(f->name, '.') - f->name)));
    if (!f->shared->python)
        AX_TRY(ax_alloc(&f->shared->python, 1, sizeof *f->shared->python));
    x->child = f->shared->python;
    x->child->what = "rewards";
    const enum ax_status st = load(f, &outcome);
    if (st == AX_ERR_CONFIG)
        return ax_error(st,
                        "reward function \"%s\": %s. Install Python, or name one in AXTRAIN_PYTHON",
                        f->name, ax_error_text());
    AX_TRY(st);
    if (outcome.failure == AX_REWARD_EXCEPTION)
        return ax_error(AX_ERR_CONFIG, "reward function \"%s\": %s", f->name, outcome.text);
    if (outcome.failure != AX_REWARD_FINE)
        return ax_error(AX_ERR_CONFIG, "reward function \"%s\": %s while it was loaded: %s",
                        f->name, ax_reward_failure_names[outcome.failure], outcome.text);
    return AX_OK;
}

/* ---- programs ---- */

static enum ax_status start_program(struct ax_reward_fn *f) {
    struct outside *x = f->state;
    const char *const argv[] = {"axtrain", AX_REWARD_KEEPER, f->name, NULL};
    return x->child->pid ? AX_OK : ax_child_start(x->child, x->program, argv);
}

static enum ax_status open_program(struct ax_reward_fn *f, const struct ax_rewards_options *o) {
    AX_TRY(make(f, o));
    struct outside *x = f->state;
    AX_TRY(ax_strdup(&x->who, strrchr(f->name, '/') + 1));
    AX_TRY(ax_alloc(&x->child, 1, sizeof *x->child));
    x->child->what = "rewards";
    const enum ax_status st = start_program(f);
    return st == AX_OK ? AX_OK : ax_error_prefix(st, "reward function \"%s\"", f->name);
}

/* ---- a call ---- */

static enum ax_status prepare(struct ax_reward_fn *f, struct ax_reward_outcome *outcome) {
    const enum ax_status st = f->kind == &ax_reward_python ? load(f, outcome) : start_program(f);
    if (st != AX_ERR_CONFIG)
        return st;
    ax_reward_fail(outcome, AX_REWARD_DEATH, "%s", ax_error_text());
    ax_error_clear();
    return AX_OK;
}

static enum ax_status score_outside(struct ax_reward_fn *f, const struct ax_reward_call *call,
                                    double *out, struct ax_reward_outcome *outcome) {
    struct outside *x = f->state;
    struct ax_buf question = {0};
    size_t not_finite = 0;
    AX_TRY(prepare(f, outcome));
    if (outcome->failure != AX_REWARD_FINE)
        return AX_OK;
    enum ax_status st = put_request(&question, f->name, call);
    if (st == AX_OK)
        st = ask(f, &question, x->seconds, call->n, out, &not_finite, outcome);
    ax_buf_free(&question);
    if (st == AX_OK && not_finite > 0)
        ax_log_warn(
            "rewards: %s: %zu of %zu rewards are NaN, infinite or beyond 1e30, and count as none",
            f->name, not_finite, call->n);
    return st;
}

const struct ax_reward_kind ax_reward_python = {open_python, score_outside, close_outside};
const struct ax_reward_kind ax_reward_program = {open_program, score_outside, close_outside};
