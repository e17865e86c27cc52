#include "data/tools/episode.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/text/unicode.h"
#include "data/tools/schema.h"

static enum ax_status no_memory(void) {
    return ax_error(AX_ERR_NOMEM, "out of memory for a turn");
}

enum ax_status ax_episode_begin(struct ax_episode *x) {
    x->messages = json_array();
    x->log = json_array();
    x->programs = json_array();
    x->turn_rewards = json_array();
    return x->messages && x->log && x->programs && x->turn_rewards ? AX_OK : no_memory();
}

void ax_episode_free(struct ax_episode *x) {
    json_decref(x->messages);
    json_decref(x->calls);
    json_decref(x->log);
    json_decref(x->programs);
    json_decref(x->turn_rewards);
    *x = (struct ax_episode){0};
}

/* ---- a turn ---- */

/* The text of a turn whose calls cannot be read, or which can have none, as TRL has it: without special tokens. */
static enum ax_status put_plain(const struct ax_tool_chat *c, const int32_t *ids, size_t n,
                                json_t *message) {
    struct ax_buf text = {0};
    enum ax_status st = ax_tokenizer_decode(c->tokenizer, ids, n, true, &text);
    json_t *v = json_stringn(text.data ? text.data : "", text.len);
    ax_buf_free(&text);
    if (json_object_set_new(message, "content", v) != 0 && st == AX_OK)
        st = no_memory();
    return st;
}

static enum ax_status read_turn(const struct ax_tool_chat *c, const int32_t *ids, size_t n,
                                bool thinks, struct ax_tool_turn *out) {
    struct ax_buf text = {0}, owned = {0};
    if (!c->format) {
        out->message = json_pack("{s:s}", "role", "assistant");
        return put_plain(c, ids, n, out->message);
    }
    enum ax_status st = ax_tool_decode(c->tokenizer, ids, n, &text, &owned);
    if (st == AX_OK) {
        const struct ax_tool_text t = {.s = text.data,
                                       .n = text.len,
                                       .thinks = thinks,
                                       .tokenizer = c->tokenizer,
                                       .owned = (const unsigned char *)owned.data};
        st = ax_tool_read(c->format, &t, c->tools, out);
    }
    ax_buf_free(&text);
    ax_buf_free(&owned);
    return st;
}

/* A turn with an error is answered as a call of no tool. */
static enum ax_status answer_error(struct ax_episode *x, const char *why) {
    json_t *call = json_pack("{s:s, s:{s:s, s:{}}, s:s}", "type", "function", "function", "name",
                             "error", "arguments", "unread", why);
    x->calls = json_array();
    return x->calls && json_array_append_new(x->calls, call) == 0 ? AX_OK : no_memory();
}

static bool is_last_turn(const struct ax_episode *x, const struct ax_episode_rules *o) {
    return o->max_turns > 0 && x->turns >= o->max_turns;
}

enum ax_status ax_episode_ask(struct ax_episode *x, enum ax_ask ask, json_t *v) {
    x->ask = ask;
    x->calls = json_array();
    return v && x->calls && json_array_append_new(x->calls, v) == 0 ? AX_OK : no_memory();
}

/* What is to be run of a turn, or asked of the environment. A turn that length has ended makes no calls, whatever it
 * says, and is not answered. */
static enum ax_status take_calls(struct ax_episode *x, const struct ax_episode_rules *o,
                                 const struct ax_tool_turn *turn, bool stopped) {
    const bool more = (o->max_rounds < 0 || x->rounds < o->max_rounds) && !is_last_turn(x, o);
    x->n_unread += turn->error[0] != '\0';
    x->ask = AX_ASK_CALLS;
    if (!stopped || x->lost)
        return AX_OK;
    if (!turn->error[0] && !turn->calls)
        return o->answered ? ax_episode_ask(x, AX_ASK_STEP,
                                            json_incref(json_object_get(turn->message, "content")))
                           : AX_OK;
    if (!more)
        return AX_OK;
    if (turn->error[0])
        return o->ends ? AX_OK : answer_error(x, turn->error);
    x->calls = json_incref((json_t *)(uintptr_t)turn->calls);
    return AX_OK;
}

enum ax_status ax_episode_turn(struct ax_episode *x, const struct ax_episode_rules *o, int64_t n,
                               bool stopped) {
    const struct ax_tool_chat *c = o->chat;
    const int32_t *ids = x->ids + x->n;
    const size_t text = (size_t)(n - (stopped && n > 0 && ax_tool_chat_is_stop(c, ids[n - 1])));
    struct ax_tool_turn turn = {0};
    json_decref(x->calls);
    x->calls = NULL;
    x->truncated = !stopped;
    x->turns++;
    enum ax_status st = read_turn(c, ids, text, c->thinks, &turn);
    if (st == AX_OK && turn.error[0])
        st = put_plain(c, ids, text, turn.message);
    if (st == AX_OK && json_array_append(x->messages, turn.message) != 0)
        st = no_memory();
    if (st == AX_OK)
        st = take_calls(x, o, &turn, stopped);
    x->n += n;
    ax_tool_turn_free(&turn);
    return st;
}

/* ---- programs ---- */

/* The text that a call of python has; NULL: it is none. */
static json_t *program_of(const json_t *call) {
    const json_t *f = json_object_get(call, "function");
    const char *name = json_string_value(json_object_get(f, "name"));
    json_t *code = json_object_get(json_object_get(f, "arguments"), "code");
    return name && strcmp(name, "python") == 0 && json_is_string(code) ? code : NULL;
}

enum ax_status ax_episode_earlier(const struct ax_episode *x, const struct ax_episode_rules *o,
                                  size_t i, json_t **out) {
    *out = NULL;
    if (!o->keeps)
        return AX_OK;
    *out = json_copy(x->programs);
    bool ok = *out != NULL;
    for (size_t k = 0; ok && k < i; k++) {
        json_t *code = program_of(json_array_get(x->calls, k));
        ok = !code || json_array_append(*out, code) == 0;
    }
    return ok ? AX_OK : no_memory();
}

/* One that a limit has ended would end all later ones. */
static enum ax_status keep_program(struct ax_episode *x, const json_t *call,
                                   const struct ax_tool_result *r) {
    json_t *code = r->ran ? program_of(call) : NULL;
    return !code || json_array_append(x->programs, code) == 0 ? AX_OK : no_memory();
}

/* ---- results ---- */

/* As a message; what a result holds of bytes that are no text becomes U+FFFD. */
static json_t *result_message(const json_t *call, const struct ax_tool_result *r) {
    const json_t *name = json_object_get(json_object_get(call, "function"), "name");
    struct ax_buf text = {0};
    json_t *v = NULL;
    if (ax_utf8_repair(&text, r->text, r->n) == AX_OK)
        v = json_pack("{s:s, s:O, s:s%}", "role", "tool", "name", name, "content",
                      text.data ? text.data : "", text.len);
    ax_buf_free(&text);
    return v;
}

/* The results, and in *calls the calls in the same order. */
static enum ax_status list_results(const struct ax_episode *x, const struct ax_tool_result *r,
                                   json_t **calls, json_t **results) {
    const size_t n = json_array_size(x->calls);
    bool ok = true;
    *calls = json_array();
    *results = json_array();
    for (int late = 0; late < 2; late++)
        for (size_t i = 0; ok && i < n; i++) {
            json_t *call = json_array_get(x->calls, i);
            if (r[i].late == (late > 0))
                ok = json_array_append(*calls, call) == 0 &&
                     json_array_append_new(*results, result_message(call, &r[i])) == 0;
        }
    return ok ? AX_OK : no_memory();
}

/* Appends the tokens if they fit. */
static void append(struct ax_episode *x, const struct ax_encoding *suffix) {
    const int64_t n = (int64_t)suffix->n;
    memcpy(x->ids + x->n, suffix->ids, suffix->n * sizeof *x->ids);
    for (int64_t i = x->n; i < x->n + n; i++)
        x->inserted[i] = true;
    x->n += n;
}

static enum ax_status add_results(struct ax_episode *x, const struct ax_episode_rules *o,
                                  const json_t *calls, json_t *results, bool *goes_on) {
    struct ax_encoding suffix = {0};
    enum ax_status st = ax_tool_chat_suffix(o->chat, calls, results, x->ids[x->n - 1], &suffix);
    const bool fits = st == AX_OK && x->n + (int64_t)suffix.n <= x->cap;
    if (fits) {
        append(x, &suffix);
        x->rounds += x->ask == AX_ASK_CALLS;
        x->truncated = x->n == x->cap; /* its last token is no end */
        *goes_on = x->n < x->cap;
        st = json_array_extend(x->messages, results) == 0 ? AX_OK : no_memory();
    }
    ax_encoding_free(&suffix);
    return st;
}

static enum ax_status count_call(struct ax_episode *x, const json_t *call,
                                 const struct ax_tool_result *r) {
    const json_t *f = json_object_get(call, "function");
    json_t *v = json_pack("{s:I, s:O, s:O, s:f, s:b}", "turn", (json_int_t)x->turns, "name",
                          json_object_get(f, "name"), "arguments", json_object_get(f, "arguments"),
                          "seconds", r->seconds, "failed", r->failed);
    x->n_calls++;
    x->n_failed += r->failed;
    x->seconds += r->seconds;
    return v && json_array_append_new(x->log, v) == 0 ? AX_OK : no_memory();
}

static bool is_late(const struct ax_episode *x, const struct ax_episode_rules *o) {
    return o->max_seconds > 0 && x->seconds > o->max_seconds;
}

/* What comes between the turns and is no result: the environment's, as a message of the user. */
static enum ax_status add_observation(struct ax_episode *x, const struct ax_episode_rules *o,
                                      const struct ax_tool_result *r, bool *goes_on) {
    json_t *calls = json_array();
    json_t *list = json_pack("[{s:s, s:s%}]", "role", "user", "content", r->text, r->n);
    const enum ax_status st = calls && list ? add_results(x, o, calls, list, goes_on) : no_memory();
    json_decref(calls);
    json_decref(list);
    return st;
}

static enum ax_status hear_step(struct ax_episode *x, const struct ax_episode_rules *o,
                                const struct ax_tool_result *r, bool *goes_on) {
    json_t *reward = r->rewarded ? json_real(r->reward) : json_null();
    if (json_array_append_new(x->turn_rewards, reward) != 0)
        return no_memory();
    if (x->lost || r->done || is_last_turn(x, o))
        return AX_OK;
    x->late = x->truncated = is_late(x, o);
    return x->late ? AX_OK : add_observation(x, o, r, goes_on);
}

/* After a reset the first turn follows, whatever has happened. */
static enum ax_status hear(struct ax_episode *x, const struct ax_episode_rules *o,
                           const struct ax_tool_result *r, bool *goes_on) {
    json_decref(x->calls);
    x->calls = NULL;
    x->seconds += r->seconds;
    x->lost = x->lost || r->lost;
    x->reward += r->reward;
    x->rewarded = x->rewarded || r->rewarded;
    *goes_on = x->ask == AX_ASK_RESET;
    return x->ask == AX_ASK_STEP ? hear_step(x, o, r, goes_on) : AX_OK;
}

enum ax_status ax_episode_answer(struct ax_episode *x, const struct ax_episode_rules *o,
                                 const struct ax_tool_result *results, bool *goes_on) {
    const size_t n = json_array_size(x->calls);
    const bool unread = json_object_get(json_array_get(x->calls, 0), "unread") != NULL;
    json_t *calls = NULL, *list = NULL;
    if (x->ask != AX_ASK_CALLS)
        return hear(x, o, results, goes_on);
    *goes_on = false;
    enum ax_status st = AX_OK;
    for (size_t i = 0; i < n; i++)
        x->lost = x->lost || results[i].lost;
    for (size_t i = 0; st == AX_OK && !unread && i < n; i++)
        st = count_call(x, json_array_get(x->calls, i), &results[i]);
    for (size_t i = 0; st == AX_OK && o->keeps && i < n; i++)
        st = keep_program(x, json_array_get(x->calls, i), &results[i]);
    if (st == AX_OK)
        st = list_results(x, results, &calls, &list);
    x->late = x->truncated = is_late(x, o);
    if (st == AX_OK && !x->late && !x->lost)
        st = add_results(x, o, calls, list, goes_on);
    json_decref(calls);
    json_decref(list);
    json_decref(x->calls);
    x->calls = NULL;
    return st;
}

const char *ax_episode_last(const json_t *messages) {
    const char *last = "";
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *m = json_array_get(messages, i);
        if (strcmp(json_string_value(json_object_get(m, "role")), "assistant") == 0)
            last = json_string_value(json_object_get(m, "content"));
    }
    return last;
}

/* ---- between ranks ---- */

enum ax_status ax_episode_to_json(const struct ax_episode *x, json_t **out) {
    *out = json_pack("{s:O, s:O, s:O, s:[I, I, I, I, I], s:[b, b, b, b], s:[f, f]}", "messages",
                     x->messages, "log", x->log, "turn_rewards", x->turn_rewards, "counts",
                     (json_int_t)x->rounds, (json_int_t)x->n_calls, (json_int_t)x->n_failed,
                     (json_int_t)x->n_unread, (json_int_t)x->turns, "is", x->truncated, x->late,
                     x->rewarded, x->lost, "sums", x->seconds, x->reward);
    return *out ? AX_OK : no_memory();
}

enum ax_status ax_episode_from_json(struct ax_episode *x, json_t *v) {
    json_t *messages, *log, *turn_rewards;
    json_int_t n[5];
    int is[4];
    double sums[2];
    if (json_unpack(v, "{s:o, s:o, s:o, s:[I, I, I, I, I], s:[b, b, b, b], s:[f, f]}", "messages",
                    &messages, "log", &log, "turn_rewards", &turn_rewards, "counts", &n[0], &n[1],
                    &n[2], &n[3], &n[4], "is", &is[0], &is[1], &is[2], &is[3], "sums", &sums[0],
                    &sums[1]) != 0)
        return ax_error(AX_ERR_FAILED, "another rank's turns cannot be read");
    const struct ax_episode before = *x;
    *x = (struct ax_episode){.ids = before.ids,
                             .inserted = before.inserted,
                             .n = before.n,
                             .cap = before.cap,
                             .messages = json_incref(messages),
                             .log = json_incref(log),
                             .turn_rewards = json_incref(turn_rewards),
                             .programs = before.programs,
                             .rounds = n[0],
                             .n_calls = n[1],
                             .n_failed = n[2],
                             .n_unread = n[3],
                             .turns = n[4],
                             .truncated = is[0],
                             .late = is[1],
                             .rewarded = is[2],
                             .lost = is[3],
                             .seconds = sums[0],
                             .reward = sums[1]};
    json_decref(before.messages);
    json_decref(before.log);
    json_decref(before.turn_rewards);
    json_decref(before.calls);
    return AX_OK;
}
