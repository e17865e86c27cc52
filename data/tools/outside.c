/* Tools in child processes. A child that died or was killed is started again by its next call.
 *
 *   program   {"tools": true}                          ->  {"tools": [definition, …]}
 *             {"call": NAME, "arguments": {…},
 *              "rollout": 17, "turn": 2}               ->  {"result": …} or {"error": "…"}
 *
 * Python's side is data/reward/python.py. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fit.h"
#include "base/text/json.h"
#include "data/reward/answer.h"
#include "data/reward/child.h"
#include "data/reward/keeper.h"
#include "data/tools/tools.h"

#define ANSWER_MAX ((size_t)1 << 20) /* bytes of a line */

struct ax_tool_child {
    struct ax_child child;
    char *name, *python, *program; /* name NULL: Python; program: ours */
    double seconds;
    char **envp;
};

extern char **environ;

/* ---- the environment ---- */

/* Those that ordinary programs need, and those that the user names for tools; tokens and keys are not among them. */
static bool is_passed(const char *variable) {
    static const char *const names[] = {
        "PATH=",         "HOME=",        "USER=",        "LOGNAME=", "LANG=",
        "LC_",           "TZ=",          "TMPDIR=",      "PYTHON",   "LD_LIBRARY_PATH=",
        "CONDA_PREFIX=", "VIRTUAL_ENV=", "AXTRAIN_TOOL_"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(variable, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

static enum ax_status make_environment(struct ax_tool_child *c) {
    size_t n = 0;
    for (char **v = environ; *v; v++)
        n += is_passed(*v);
    AX_TRY(ax_alloc(&c->envp, n + 1, sizeof *c->envp));
    n = 0;
    for (char **v = environ; *v; v++)
        if (is_passed(*v))
            AX_TRY(ax_strdup(&c->envp[n++], *v));
    return AX_OK;
}

/* ---- opening and closing ---- */

bool ax_tool_is_function(const char *name) {
    const char *colon = strrchr(name, ':'), *dot = strrchr(name, '.');
    return colon ? colon - name > 3 && strncmp(colon - 3, ".py", 3) == 0 && colon[1]
                 : dot && dot > name && dot[1] && !strchr(name, '/');
}

static enum ax_status make(struct ax_tool_child *c, const struct ax_tools_options *o,
                           const char *name) {
    const char *set = getenv("AXTRAIN_PYTHON");
    if (name)
        AX_TRY(ax_strdup(&c->name, name));
    AX_TRY(ax_strdup(&c->python, o->python ? o->python : set && *set ? set : "python3"));
    AX_TRY(ax_strdup(&c->program, o->program ? o->program : "/proc/self/exe"));
    AX_TRY(make_environment(c));
    c->seconds = o->timeout > 0 ? o->timeout : AX_TOOLS_TIMEOUT;
    c->child.what = "tools";
    c->child.envp = c->envp;
    return AX_OK;
}

enum ax_status ax_tool_host_open(struct ax_tool_host *h, const struct ax_tools_options *o,
                                 const char *name) {
    const size_t most = o->workers > 0 ? (size_t)o->workers : AX_TOOLS_WORKERS;
    *h = (struct ax_tool_host){0};
    if (most > AX_TOOLS_MOST_WORKERS)
        return ax_error(AX_ERR_CONFIG, "tool_workers: expected at most %d, got %" PRId64,
                        AX_TOOLS_MOST_WORKERS, o->workers);
    AX_TRY(ax_alloc(&h->children, most, sizeof *h->children));
    while (h->n < most) {
        struct ax_tool_child **c = &h->children[h->n];
        AX_TRY(ax_alloc(c, 1, sizeof **c));
        h->n++;
        AX_TRY(make(*c, o, name));
    }
    return AX_OK;
}

static const char *who(const struct ax_tool_child *c) {
    const char *slash = c->name ? strrchr(c->name, '/') : NULL;
    return slash ? slash + 1 : "python";
}

static void close_child(struct ax_tool_child *c, double seconds) {
    ax_child_end(&c->child, who(c), seconds);
    for (char **v = c->envp; v && *v; v++)
        ax_free(*v);
    ax_free(c->envp);
    ax_free(c->name);
    ax_free(c->python);
    ax_free(c->program);
    ax_free(c);
}

/* All processes of a host have the same seconds to end in. */
void ax_tool_host_close(struct ax_tool_host *h) {
    const double until = ax_clock_now() + AX_CHILD_END_SECONDS;
    for (size_t i = 0; i < h->n; i++)
        ax_child_end_input(&h->children[i]->child);
    for (size_t i = 0; i < h->n; i++)
        close_child(h->children[i], until - ax_clock_now());
    ax_free(h->children);
    *h = (struct ax_tool_host){0};
}

/* ---- a question ---- */

static enum ax_status start(struct ax_tool_child *c) {
    const char *const argv[] = {"axtrain", AX_REWARD_KEEPER, c->name, NULL};
    if (c->child.pid)
        return AX_OK;
    return c->name ? ax_child_start(&c->child, c->program, argv)
                   : ax_child_start_python(&c->child, c->program, c->python);
}

uint64_t ax_tool_child_process(const struct ax_tool_child *c) {
    return c->child.pid ? c->child.starts : 0;
}

enum ax_status ax_tool_child_ask(struct ax_tool_child *c, json_t *question, double seconds,
                                 struct ax_watch *watch, json_t **answer,
                                 char failure[AX_TOOL_ERROR]) {
    struct ax_reward_outcome outcome = {0};
    struct ax_buf line = {0};
    *answer = NULL;
    const bool new = c->child.pid == 0;
    enum ax_status st = start(c);
    char *text = json_dumps(question, JSON_COMPACT);
    json_decref(question);
    if (st == AX_OK && new && !c->name)
        st = ax_child_put_script(&line);
    if (st == AX_OK && !text)
        st = ax_error(AX_ERR_NOMEM, "out of memory for a call of a tool");
    if (st == AX_OK)
        st = ax_buf_printf(&line, "%s\n", text);
    ax_free_hook(text);
    const struct ax_question q = {.who = who(c),
                                  .text = line.data,
                                  .n = line.len,
                                  .max_answer = ANSWER_MAX,
                                  .seconds = seconds > 0 ? seconds : c->seconds,
                                  .watch = watch};
    if (st == AX_OK)
        st = ax_child_ask(&c->child, &q, &outcome);
    ax_buf_free(&line);
    AX_TRY(st);
    if (outcome.failure == AX_REWARD_FINE) {
        *answer = json_loadb(c->child.line.data, c->child.line.len, JSON_ALLOW_NUL, NULL);
        if (json_is_object(*answer))
            return AX_OK;
        json_decref(*answer);
        *answer = NULL;
        ax_child_end(&c->child, who(c), 0); /* who knows what its next line answers */
        ax_reward_fail(&outcome, AX_REWARD_RUBBISH, "a line that is no JSON object");
    }
    ax_fit(failure, AX_TOOL_ERROR, "%s: %s", ax_reward_failure_names[outcome.failure],
           outcome.text);
    return AX_OK;
}

/* ---- definitions ---- */

static enum ax_status refuse(const char *kind, const char *name, const json_t *answer,
                             const char *failure) {
    const char *why = json_string_value(json_object_get(answer, "error"));
    const char *at = json_string_value(json_object_get(answer, "at"));
    return ax_error(AX_ERR_CONFIG, "%s \"%s\": %s%s%s%s", kind, name, why ? why : failure,
                    at ? " (" : "", at ? at : "", at ? ")" : "");
}

enum ax_status ax_tool_child_first(struct ax_tool_child *c, const char *kind, const char *name,
                                   json_t *question, struct ax_watch *watch, json_t **answer) {
    char failure[AX_TOOL_ERROR] = "it answers an error without a text";
    enum ax_status st =
        ax_tool_child_ask(c, question, AX_TOOLS_START_TIMEOUT, watch, answer, failure);
    if (st == AX_ERR_CONFIG)
        return ax_error_prefix(st, "%s \"%s\"", kind, name);
    if (st == AX_OK && (!*answer || json_object_get(*answer, "error"))) {
        st = refuse(kind, name, *answer, failure);
        json_decref(*answer);
    }
    return st;
}

/* Has a process load a function of Python. */
static enum ax_status load(struct ax_tool *t, size_t worker, struct ax_watch *watch,
                           json_t **answer) {
    struct ax_tool_child *c = t->host->children[worker];
    AX_TRY(ax_tool_child_first(c, "tool", t->name, json_pack("{s:s}", "tool", t->name), watch,
                               answer));
    t->loaded[worker] = c->child.starts;
    return AX_OK;
}

enum ax_status ax_tool_load(struct ax_tool *t) {
    json_t *answer;
    AX_TRY(ax_alloc(&t->loaded, t->host->n, sizeof *t->loaded));
    AX_TRY(load(t, 0, NULL, &answer));
    t->definition = json_incref(json_object_get(answer, "schema"));
    t->late = json_is_true(json_object_get(answer, "late"));
    json_decref(answer);
    return t->definition ? AX_OK : refuse("tool", t->name, NULL, "it has no definition");
}

enum ax_status ax_tool_child_list(struct ax_tool_child *c, struct ax_watch *watch, json_t **out) {
    json_t *answer;
    AX_TRY(ax_tool_child_first(c, "tool", c->name, json_pack("{s:b}", "tools", 1), watch, &answer));
    *out = json_incref(json_object_get(answer, "tools"));
    json_decref(answer);
    if (json_array_size(*out) > 0)
        return AX_OK;
    json_decref(*out);
    return refuse("tool", c->name, NULL,
                  "expected {\"tools\": [definition, …]} as the answer to {\"tools\": true}");
}

/* ---- a call ---- */

static json_t *question_of(const struct ax_tool_child *c, const struct ax_tool *t,
                           const struct ax_tool_request *r) {
    const json_t *f = json_object_get(r->call, "function");
    json_t *arguments = json_object_get(f, "arguments");
    if (!c->name)
        return json_pack("{s:s, s:O}", "call", t->name, "arguments", arguments);
    return json_pack("{s:O, s:O, s:I, s:i}", "call", json_object_get(f, "name"), "arguments",
                     arguments, "rollout", (json_int_t)r->rollout, "turn", r->turn);
}

/* A result that is no text is JSON. */
enum ax_status ax_tool_take_answer(const json_t *answer, struct ax_tool_result *out) {
    const json_t *error = json_object_get(answer, "error"), *v = json_object_get(answer, "result");
    if (error)
        return ax_tool_result_fail(out, json_is_string(error) ? json_string_value(error) : "error");
    out->failed = json_is_true(json_object_get(answer, "failed"));
    if (json_is_true(json_object_get(answer, "refused"))) /* an async function has not begun */
        out->late = false;
    if (json_is_string(v))
        return ax_tool_result_set(out, json_string_value(v), json_string_length(v));
    char *text = json_dumps(v, JSON_ENCODE_ANY);
    if (!text)
        return ax_tool_result_fail(out, "the tool has not answered {\"result\": …}");
    const enum ax_status st = ax_tool_result_set(out, text, strlen(text));
    ax_free_hook(text);
    return st;
}

/* A child that has to be started has the time of a first start for it. */
static enum ax_status make_ready(struct ax_tool_child *c, struct ax_tool *t, size_t worker,
                                 struct ax_watch *watch) {
    json_t *ignored;
    if (c->child.pid && (c->name || t->loaded[worker] == c->child.starts))
        return AX_OK;
    AX_TRY(c->name ? ax_tool_child_list(c, watch, &ignored) : load(t, worker, watch, &ignored));
    json_decref(ignored);
    return AX_OK;
}

enum ax_status ax_tool_call_outside(struct ax_tool *t, const struct ax_tool_request *r,
                                    struct ax_watch *watch, struct ax_tool_result *out,
                                    char failure[AX_TOOL_ERROR]) {
    struct ax_tool_child *c = t->host->children[r->worker];
    json_t *answer = NULL;
    failure[0] = '\0';
    enum ax_status st = make_ready(c, t, r->worker, watch);
    if (st == AX_OK)
        st = ax_tool_child_ask(c, question_of(c, t, r), 0, watch, &answer, failure);
    if (st == AX_ERR_CONFIG) { /* it cannot be started any more */
        ax_fit(failure, AX_TOOL_ERROR, "%s", ax_error_text());
        ax_error_clear();
        return ax_tool_result_fail(out, failure);
    }
    AX_TRY(st);
    if (!answer)
        return ax_tool_result_fail(out, failure);
    st = ax_tool_take_answer(answer, out);
    json_decref(answer);
    return st;
}
