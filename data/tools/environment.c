#include "data/tools/environment.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fit.h"
#include "base/hash/hash.h"
#include "base/io.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/records/format/tools.h"

#define MOST_TITLE 64

/* What an episode was asked, and hashes of what was answered. */
struct past {
    int64_t rollout;
    uint64_t start; /* of the process that has it */
    json_t *questions, *answers;
};

/* Episodes of one process. */
struct plays {
    struct ax_tool_child *child;
    struct past *pasts; /* [n] */
    size_t n;
};

static enum ax_status no_memory(void) {
    return ax_error(AX_ERR_NOMEM, "out of memory for an environment");
}

/* ---- opening ---- */

static enum ax_status load(struct ax_environment *e, struct ax_tool_child *c,
                           struct ax_watch *watch, json_t **answer) {
    const bool python = ax_tool_is_function(e->name);
    json_t *name = python ? json_string(e->name) : json_true();
    return ax_tool_child_first(c, "environment", e->name, json_pack("{s:o}", "environment", name),
                               watch, answer);
}

static enum ax_status describe(struct ax_environment *e) {
    json_t *answer;
    AX_TRY(load(e, e->host.children[0], NULL, &answer));
    const char *slash = strrchr(e->name, '/'), *file = slash ? slash + 1 : e->name;
    const char *title = json_string_value(json_object_get(answer, "title"));
    e->steps = json_is_true(json_object_get(answer, "steps"));
    e->tools = json_incref(json_object_get(answer, "tools"));
    e->late = json_incref(json_object_get(answer, "late"));
    enum ax_status st = ax_strdup(&e->title, title ? title : file);
    if (st == AX_OK && title && (*title == '\0' || strlen(title) > MOST_TITLE))
        st = ax_error(AX_ERR_CONFIG,
                      "environment \"%s\": its title, which metrics are named by, has %zu bytes; "
                      "expected 1 to %d",
                      e->name, strlen(title), MOST_TITLE);
    if (st == AX_OK && !e->steps && json_array_size(e->tools) == 0)
        st = ax_error(AX_ERR_CONFIG,
                      "environment \"%s\": expected {\"steps\": true}, or \"tools\" with a list of "
                      "definitions, as the answer to {\"environment\": true}",
                      e->name);
    json_decref(answer);
    return st;
}

static enum ax_status open_host(struct ax_environment *e, const struct ax_tools_options *o,
                                size_t k) {
    AX_TRY(ax_strdup(&e->name, o->environments[k]));
    if (o->keys)
        AX_TRY(ax_strdup(&e->key, o->keys[k]));
    if (ax_tool_is_function(e->name))
        return ax_tool_host_open(&e->host, o, NULL);
    if (!strchr(e->name, '/'))
        return ax_error(AX_ERR_CONFIG,
                        "environment \"%s\": expected module.Class or file.py:Class, or the path "
                        "of a program, with a slash",
                        e->name);
    if (access(e->name, X_OK) != 0 || ax_path_is_dir(e->name))
        return ax_error(AX_ERR_CONFIG,
                        "environment \"%s\": there is no such program that can be executed",
                        e->name);
    return ax_tool_host_open(&e->host, o, e->name);
}

static enum ax_status open_plays(struct ax_environment *e) {
    e->host.binds = true;
    AX_TRY(ax_alloc(&e->plays, e->host.n, sizeof *e->plays));
    for (size_t i = 0; i < e->host.n; i++)
        e->plays[i].child = e->host.children[i];
    return AX_OK;
}

enum ax_status ax_environment_open(struct ax_environment **out, const struct ax_tools_options *o,
                                   size_t k) {
    struct ax_environment *e;
    AX_TRY(ax_alloc(&e, 1, sizeof *e));
    enum ax_status st = open_host(e, o, k);
    if (st == AX_OK)
        st = open_plays(e);
    if (st == AX_OK)
        st = describe(e);
    if (st == AX_OK)
        *out = e;
    else
        ax_environment_close(e);
    return st;
}

/* ---- episodes ---- */

static struct past *find(struct plays *all, int64_t rollout) {
    for (size_t i = 0; i < all->n; i++)
        if (all->pasts[i].rollout == rollout)
            return &all->pasts[i];
    return NULL;
}

static void forget(struct plays *all, struct past *p) {
    json_decref(p->questions);
    json_decref(p->answers);
    *p = all->pasts[--all->n];
}

void ax_environment_close(struct ax_environment *e) {
    if (!e)
        return;
    for (size_t i = 0; e->plays && i < e->host.n; i++) {
        while (e->plays[i].n > 0)
            forget(&e->plays[i], &e->plays[i].pasts[0]);
        ax_free(e->plays[i].pasts);
    }
    ax_free(e->plays);
    ax_tool_host_close(&e->host);
    json_decref(e->tools);
    json_decref(e->late);
    ax_free(e->name);
    ax_free(e->title);
    ax_free(e->key);
    ax_free(e);
}

/* One that a stopped generation has left is begun anew. */
static enum ax_status begin(struct plays *all, int64_t rollout, struct past **out) {
    *out = find(all, rollout);
    if (*out)
        forget(all, *out);
    AX_TRY(ax_regrow(&all->pasts, all->n, all->n + 1, sizeof *all->pasts));
    *out = &all->pasts[all->n++];
    **out = (struct past){.rollout = rollout, .questions = json_array(), .answers = json_array()};
    return (*out)->questions && (*out)->answers ? AX_OK : no_memory();
}

/* ---- a question ---- */

/* How a question went. */
struct outcome {
    json_t *answer; /* owned; NULL: there is none */
    char why[AX_TOOL_ERROR];
    bool unlike; /* the episode could not be played again: another one's fault */
};

static enum ax_status hash_of(const json_t *answer, json_t **out) {
    char *text = json_dumps(answer, JSON_COMPACT | JSON_SORT_KEYS);
    *out = text ? json_integer((json_int_t)ax_hash64(text, strlen(text), 0)) : NULL;
    ax_free_hook(text);
    return *out ? AX_OK : no_memory();
}

/* A process that has to be started has the time of a first start for it. */
static enum ax_status make_ready(struct ax_environment *e, struct ax_tool_child *c,
                                 struct ax_watch *watch, struct outcome *x) {
    json_t *answer;
    if (ax_tool_child_process(c))
        return AX_OK;
    const enum ax_status st = load(e, c, watch, &answer);
    if (st == AX_OK)
        json_decref(answer);
    if (st != AX_ERR_CONFIG)
        return st;
    ax_fit(x->why, sizeof x->why, "%s", ax_error_text());
    ax_error_clear();
    return AX_OK;
}

static enum ax_status repeat(struct ax_tool_child *c, const struct past *p, size_t i,
                             struct ax_watch *watch, struct outcome *x) {
    json_t *answer, *hash;
    AX_TRY(ax_tool_child_ask(c, json_incref(json_array_get(p->questions, i)), 0, watch, &answer,
                             x->why));
    if (!answer)
        return AX_OK;
    const enum ax_status st = hash_of(answer, &hash);
    json_decref(answer);
    AX_TRY(st);
    x->unlike = !json_equal(hash, json_array_get(p->answers, i));
    json_decref(hash);
    if (x->unlike)
        ax_fit(x->why, sizeof x->why,
               "it answers otherwise when an episode is played again, after another one has ended "
               "its process: let it depend on the record and `seed` alone");
    return AX_OK;
}

/* Plays the episode again, if its process is gone. */
static enum ax_status catch_up(struct ax_environment *e, struct ax_tool_child *c, struct past *p,
                               struct ax_watch *watch, struct outcome *x) {
    AX_TRY(make_ready(e, c, watch, x));
    const uint64_t now = ax_tool_child_process(c);
    for (size_t i = 0; p->start != now && !x->why[0] && i < json_array_size(p->questions); i++)
        AX_TRY(repeat(c, p, i, watch, x));
    p->start = now;
    return AX_OK;
}

static enum ax_status remember(struct past *p, json_t *question, const json_t *answer) {
    json_t *hash;
    AX_TRY(hash_of(answer, &hash));
    const bool ok = json_array_append_new(p->answers, hash) == 0 &&
                    json_array_append(p->questions, question) == 0;
    return ok ? AX_OK : no_memory();
}

/* Takes `question`. */
static enum ax_status ask(struct ax_environment *e, struct ax_tool_child *c, struct past *p,
                          json_t *question, struct ax_watch *watch, struct outcome *x) {
    enum ax_status st = question ? catch_up(e, c, p, watch, x) : no_memory();
    if (st == AX_OK && !x->why[0])
        st = ax_tool_child_ask(c, json_incref(question), 0, watch, &x->answer, x->why);
    if (st == AX_OK && x->answer)
        st = remember(p, question, x->answer);
    json_decref(question);
    return st;
}

/* The column that chooses the environment is not passed to it, as in TRL. */
static json_t *record_for(const struct ax_environment *e, const json_t *record) {
    json_t *own = json_copy((json_t *)(uintptr_t)record);
    if (own && e->key)
        (void)json_object_del(own, AX_TOOLS_CHOICE);
    return own;
}

static json_t *question_of(const struct ax_environment *e, const struct ax_tool_request *r) {
    const json_int_t rollout = (json_int_t)r->rollout;
    const json_t *f = json_object_get(r->call, "function");
    switch (r->ask) {
    case AX_ASK_RESET:
        return json_pack("{s:o, s:I, s:I}", "reset", record_for(e, r->call), "seed",
                         (json_int_t)r->seed, "rollout", rollout);
    case AX_ASK_STEP:
        return json_pack("{s:O, s:I}", "step", r->call, "rollout", rollout);
    case AX_ASK_CLOSE:
        return json_pack("{s:I}", "close", rollout);
    case AX_ASK_CALLS:
        break;
    }
    return json_pack("{s:O, s:O, s:I, s:i}", "call", json_object_get(f, "name"), "arguments",
                     json_object_get(f, "arguments"), "rollout", rollout, "turn", r->turn);
}

/* ---- answers ---- */

static bool expected(char why[AX_TOOL_ERROR], const char *key, const char *what,
                     const json_t *got) {
    char *text = json_dumps(got, JSON_ENCODE_ANY);
    ax_fit(why, AX_TOOL_ERROR, "\"%s\": expected %s, got %.80s", key, what, text ? text : "?");
    ax_free_hook(text);
    return false;
}

static bool read_reward(const json_t *answer, struct ax_tool_result *out, char why[AX_TOOL_ERROR]) {
    const json_t *v = json_object_get(answer, "reward");
    out->rewarded = json_is_number(v);
    out->reward = out->rewarded ? json_number_value(v) : 0;
    return !v || json_is_null(v) || out->rewarded ||
           expected(why, "reward", "a finite number or null", v);
}

/* A step without an observation is the last one. */
static bool read_observation(enum ax_ask ask, const json_t *answer, struct ax_tool_result *out,
                             char why[AX_TOOL_ERROR]) {
    const json_t *text = json_object_get(answer, "observation"),
                 *done = json_object_get(answer, "done");
    if (text && !json_is_null(text) && !json_is_string(text))
        return expected(why, "observation", "a text or null", text);
    if (ask == AX_ASK_STEP && done && !json_is_boolean(done))
        return expected(why, "done", "true or false", done);
    out->done = ask == AX_ASK_STEP && (json_is_true(done) || !json_is_string(text));
    return true;
}

bool ax_environment_read(enum ax_ask ask, const json_t *answer, struct ax_tool_result *out,
                         char why[AX_TOOL_ERROR]) {
    const json_t *error = json_object_get(answer, "error");
    const char *at = json_string_value(json_object_get(answer, "at"));
    if (error) {
        ax_fit(why, AX_TOOL_ERROR, "%s%s%s%s",
               json_is_string(error) ? json_string_value(error) : "error", at ? " (" : "",
               at ? at : "", at ? ")" : "");
        return false;
    }
    return (ask == AX_ASK_CLOSE || read_observation(ask, answer, out, why)) &&
           (ask == AX_ASK_RESET || read_reward(answer, out, why));
}

static enum ax_status take(const struct ax_tool_request *r, struct outcome *x,
                           struct ax_tool_result *out) {
    const json_t *text = json_object_get(x->answer, "observation");
    if (r->ask == AX_ASK_CALLS)
        return ax_tool_take_answer(x->answer, out);
    if (!ax_environment_read(r->ask, x->answer, out, x->why))
        text = NULL;
    return ax_tool_result_set(out, json_is_string(text) ? json_string_value(text) : "",
                              json_string_length(text));
}

/* ---- all of a question ---- */

/* Lets a process that goes on put away what belongs to an episode; what it says to that does not matter. */
static enum ax_status abandon(struct ax_tool_child *c, const struct past *p,
                              struct ax_watch *watch) {
    char ignored[AX_TOOL_ERROR] = "";
    json_t *answer = NULL;
    if (p->start == 0 || p->start != ax_tool_child_process(c))
        return AX_OK;
    AX_TRY(ax_tool_child_ask(c, json_pack("{s:I}", "close", (json_int_t)p->rollout), 0, watch,
                             &answer, ignored));
    json_decref(answer);
    return AX_OK;
}

static enum ax_status lose(struct ax_environment *e, const struct outcome *x,
                           struct ax_tool_result *out) {
    *out = (struct ax_tool_result){.text = out->text, .n = out->n, .failed = true, .lost = true};
    if (x->unlike) {
        ax_log_warn("environment: %s: %s. The answer has no reward", e->name, x->why);
        return AX_OK;
    }
    return ax_tool_strike(&e->in_a_row, "environment", e->name, x->why);
}

static enum ax_status ask_and_take(struct ax_environment *e, const struct ax_tool_request *r,
                                   struct ax_watch *watch, struct ax_tool_result *out) {
    struct plays *all = &e->plays[r->worker];
    struct outcome x = {0};
    struct past *p = find(all, r->rollout);
    if (r->ask == AX_ASK_RESET)
        AX_TRY(begin(all, r->rollout, &p));
    if (!p) {
        out->lost = true; /* as said before */
        return ax_tool_result_set(out, "", 0);
    }
    enum ax_status st = ask(e, all->child, p, question_of(e, r), watch, &x);
    if (st == AX_OK)
        st = take(r, &x, out);
    json_decref(x.answer);
    AX_TRY(st);
    if (x.why[0]) {
        if (r->ask != AX_ASK_CLOSE)
            AX_TRY(abandon(all->child, p, watch));
        forget(all, p);
        return lose(e, &x, out);
    }
    if (r->ask == AX_ASK_CLOSE)
        forget(all, p);
    return ax_tool_strike(&e->in_a_row, "environment", e->name, "");
}

enum ax_status ax_environment_ask(struct ax_environment *e, const struct ax_tool_request *r,
                                  struct ax_watch *watch, struct ax_tool_result *out) {
    const double start = ax_clock_now();
    const enum ax_status st = ask_and_take(e, r, watch, out);
    out->seconds = ax_clock_now() - start;
    return st;
}
