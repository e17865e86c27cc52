/* Judges: models that a server has (OpenAI's API of chats). Each completion is a conversation of its own, whose answer
 * has a score somewhere: the last match of an expression ends in it. Scores from `lowest` to `highest` become rewards
 * from 0 to 1; a completion whose answer has none, or another, has no reward. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text/regex.h"
#include "base/text/unicode.h"
#include "data/reward/function.h"

#define MAX_ANSWER ((uint64_t)4 << 20)
#define MAX_PROMPT ((size_t)8 << 20)

const char AX_JUDGE_PROMPT[] =
    "You judge the answer to a request. Is it right, complete, and what was asked for? Reason "
    "briefly. Then write one last line of the form \"Score: N\", where N is a number from 0 "
    "(useless) "
    "to 10 (perfect).\n\nThe request:\n{prompt}\n\nThe answer:\n{completion}\n";

struct judge {
    struct ax_endpoint server;
    struct ax_judge_options o; /* texts are the judge's own */
    char *model, *system, *prompt;
    struct ax_regex *score;
    struct ax_regex_work work;
};

/* ---- what it is asked ---- */

/* The conversation as a text for a model that is no part of it. */
static enum ax_status put_messages(struct ax_buf *out, const json_t *list) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *m = json_array_get(list, i), *content = json_object_get(m, "content");
        const char *role = json_string_value(json_object_get(m, "role"));
        AX_TRY(ax_buf_printf(out, "%s%s: ", i > 0 ? "\n\n" : "", role ? role : "user"));
        if (json_is_string(content))
            AX_TRY(ax_buf_append(out, json_string_value(content), json_string_length(content)));
    }
    return AX_OK;
}

static enum ax_status put_prompt(struct ax_buf *out, const struct ax_reward_item *item) {
    const json_t *own = json_object_get(item->record, "prompt");
    if (item->chat)
        return put_messages(out, own ? own : json_object_get(item->record, "messages"));
    return json_is_string(own) ? ax_buf_append(out, json_string_value(own), json_string_length(own))
                               : ax_buf_puts(out, item->prompt);
}

/* The length of a name in braces, such as {answer}, at the beginning of s; 0: there is none. */
static size_t name_at(const char *s) {
    size_t n = 1;
    if (*s != '{' || (!isalpha((unsigned char)s[1]) && s[1] != '_'))
        return 0;
    while (isalnum((unsigned char)s[n]) || s[n] == '_')
        n++;
    return s[n] == '}' ? n - 1 : 0;
}

/* *found: the record has the column. */
static enum ax_status put_name(struct ax_buf *out, const struct ax_reward_item *item,
                               const char *name, bool *found) {
    *found = true;
    if (strcmp(name, "prompt") == 0)
        return put_prompt(out, item);
    if (strcmp(name, "completion") == 0)
        return ax_utf8_repair(out, item->completion, item->n);
    return ax_reward_column_text(item->record, name, out, found);
}

static enum ax_status put_question(struct ax_reward_fn *f, struct ax_buf *out,
                                   const struct ax_reward_item *item, bool *asked) {
    const struct judge *j = f->state;
    const char *s = j->o.prompt;
    *asked = true;
    while (*s && *asked) {
        char name[64];
        const size_t n = name_at(s), plain = n > 0 ? 0 : 1 + strcspn(s + 1, "{");
        AX_TRY(ax_buf_append(out, s, plain));
        s += plain;
        if (n == 0)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)n, s + 1);
        AX_TRY(put_name(out, item, name, asked));
        if (!*asked)
            ax_reward_tell(f, "judge.prompt: a record has no text or number in the column \"%s\"",
                           name);
        s += n + 2;
    }
    if (*asked && out->len > MAX_PROMPT) {
        ax_reward_tell(f, "judge.prompt: a question is longer than %d MiB",
                       (int)(MAX_PROMPT >> 20));
        *asked = false;
    }
    return AX_OK;
}

static json_t *message(const char *role, const char *text, size_t n) {
    return json_pack("{ss ss%}", "role", role, "content", text, n);
}

static char *write_body(const struct judge *j, const struct ax_buf *question) {
    json_t *messages = json_array();
    if (j->system)
        json_array_append_new(messages, message("system", j->system, strlen(j->system)));
    json_array_append_new(messages, message("user", question->data, question->len));
    json_t *body =
        json_pack("{ss so sf sI}", "model", j->model, "messages", messages, "temperature",
                  j->o.temperature, "max_tokens", (json_int_t)j->o.max_tokens);
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    return text;
}

/* *body NULL: the record lacks what the prompt names. Free it with ax_free_hook. */
static enum ax_status ask_about(struct ax_reward_fn *f, const struct ax_reward_item *item,
                                char **body) {
    struct ax_buf question = {0};
    bool asked;
    *body = NULL;
    enum ax_status st = put_question(f, &question, item, &asked);
    if (st == AX_OK && asked && !(*body = write_body(f->state, &question)))
        st = ax_error(AX_ERR_NOMEM, "out of memory for a judge's question");
    ax_buf_free(&question);
    return st;
}

/* ---- what it answers ---- */

/* The last match of judge.score; false: there is none, or it takes too many steps. */
static enum ax_status find_match(struct ax_reward_fn *f, const char *text, size_t len, bool *any,
                                 struct ax_reward_text *out) {
    struct judge *j = f->state;
    struct ax_regex_iter it = ax_regex_search(j->score, &j->work, text, len);
    bool found = true;
    *any = false;
    for (size_t a, b; found;) {
        const enum ax_status st = ax_regex_next(&it, &found, &a, &b);
        if (st == AX_ERR_DATA) {
            ax_reward_tell(f, "judge.score takes too many steps in an answer of the judge");
            ax_error_clear();
            *any = false;
            return AX_OK;
        }
        AX_TRY(st);
        if (found) {
            *out = (struct ax_reward_text){text + a, b - a};
            *any = true;
        }
    }
    return AX_OK;
}

/* The number at the end of the match. */
static enum ax_status find_score(struct ax_reward_fn *f, const char *text, size_t len,
                                 double *out) {
    const struct judge *j = f->state;
    struct ax_reward_text match;
    char number[AX_FINAL_ANSWER_MAX];
    bool any;
    AX_TRY(find_match(f, text, len, &any, &match));
    if (!any || !ax_reward_last_number(match.s, match.n, number))
        return AX_OK;
    const double score = strtod(number, NULL);
    if (score >= j->o.lowest && score <= j->o.highest)
        *out = (score - j->o.lowest) / (j->o.highest - j->o.lowest);
    return AX_OK;
}

static enum ax_status read_answer(struct ax_reward_fn *f, const json_t *answer, double *out) {
    const json_t *choice = json_array_get(json_object_get(answer, "choices"), 0),
                 *content = json_object_get(json_object_get(choice, "message"), "content");
    if (!json_is_string(content))
        return AX_OK;
    return find_score(f, json_string_value(content), json_string_length(content), out);
}

/* ---- a call ---- */

/* Without any score, the call has failed. */
static void fail_call(const struct judge *j, int64_t n, int64_t refused, int status,
                      struct ax_reward_outcome *outcome) {
    outcome->failure = refused == n ? AX_REWARD_EXCEPTION : AX_REWARD_RUBBISH;
    if (refused == n)
        snprintf(outcome->text, sizeof outcome->text,
                 "%s: \"%s\" has refused every question (status %d)", j->server.root, j->model,
                 status);
    else
        snprintf(outcome->text, sizeof outcome->text,
                 "%s: no answer of \"%s\" has a score from %g to %g (judge.prompt, judge.score)",
                 j->server.root, j->model, j->o.lowest, j->o.highest);
}

/* Answers to the completions that it was asked about, in order; one that is too long for the judge is refused. */
static enum ax_status read_answers(struct ax_reward_fn *f, const struct ax_endpoint_request *list,
                                   int64_t n, const size_t *items, double *out,
                                   struct ax_reward_outcome *outcome) {
    const struct judge *j = f->state;
    int64_t none = 0, refused = 0;
    int status = 0;
    for (int64_t i = 0; i < n; i++) {
        AX_TRY(read_answer(f, list[i].answer, &out[items[i]]));
        none += isnan(out[items[i]]);
        if (!list[i].answer) {
            refused++;
            status = list[i].status;
        }
    }
    if (n > 0 && none == n)
        fail_call(j, n, refused, status, outcome);
    else if (refused > 0)
        ax_reward_tell(f, "the judge refuses questions (status %d)", status);
    else if (none > 0)
        ax_reward_tell(f, "answers of the judge have no score from %g to %g", j->o.lowest,
                       j->o.highest);
    return AX_OK;
}

/* A server's failure is the function's. */
static enum ax_status note_failure(enum ax_status st, struct ax_reward_outcome *outcome) {
    if (st != AX_ERR_IO && st != AX_ERR_DATA && st != AX_ERR_CONFIG)
        return st;
    outcome->failure = st == AX_ERR_DATA ? AX_REWARD_RUBBISH : AX_REWARD_EXCEPTION;
    snprintf(outcome->text, sizeof outcome->text, "%s", ax_error_text());
    ax_error_clear();
    return AX_OK;
}

static enum ax_status look(void *ctx) {
    return ax_watch_look(ctx);
}

static enum ax_status score_all(struct ax_reward_fn *f, const struct ax_reward_call *call,
                                struct ax_endpoint_request *list, size_t *items, double *out,
                                struct ax_reward_outcome *outcome) {
    const struct judge *j = f->state;
    const struct ax_endpoint_look watch = {look, f->shared->watch};
    int64_t n = 0;
    for (size_t i = 0; i < call->n; i++) {
        char *body;
        AX_TRY(ask_about(f, &call->items[i], &body));
        if (!body)
            continue;
        items[n] = i;
        list[n++] = (struct ax_endpoint_request){.path = "/v1/chat/completions",
                                                 .body = body,
                                                 .max_bytes = MAX_ANSWER,
                                                 .may_refuse = true};
    }
    const enum ax_status st = ax_endpoint_ask(&j->server, n, list, &watch);
    return st == AX_OK ? read_answers(f, list, n, items, out, outcome) : note_failure(st, outcome);
}

static enum ax_status score_judge(struct ax_reward_fn *f, const struct ax_reward_call *call,
                                  double *out, struct ax_reward_outcome *outcome) {
    struct ax_endpoint_request *list;
    size_t *items = NULL;
    AX_TRY(ax_alloc(&list, call->n, sizeof *list));
    enum ax_status st = ax_alloc(&items, call->n, sizeof *items);
    if (st == AX_OK)
        st = score_all(f, call, list, items, out, outcome);
    for (size_t i = 0; i < call->n; i++) {
        json_decref(list[i].answer);
        ax_free_hook((char *)(uintptr_t)list[i].body);
    }
    ax_free(items);
    ax_free(list);
    return st;
}

/* ---- opening and closing ---- */

static enum ax_status check(const struct ax_judge_options *o) {
    if (!strstr(o->prompt, "{completion}"))
        return ax_error(AX_ERR_CONFIG,
                        "judge.prompt: {completion} is missing in it, the place of what is judged");
    return o->lowest < o->highest
               ? AX_OK
               : ax_error(AX_ERR_CONFIG, "judge.lowest: expected a number below judge.highest");
}

/* Its name in metrics is the last part of the model's, as a reward model's. */
static enum ax_status rename_function(struct ax_reward_fn *f, const char *model) {
    const char *slash = strrchr(model, '/');
    ax_free(f->name);
    f->name = NULL;
    f->argument = NULL;
    return ax_strdup(&f->name, slash && slash[1] ? slash + 1 : model);
}

static enum ax_status read_score(struct judge *j, const char *expression) {
    const enum ax_status st = ax_regex_compile_python(&j->score, expression, strlen(expression));
    if (st != AX_ERR_DATA)
        return st;
    (void)ax_error_prefix(st, "judge.score");
    return ax_error(AX_ERR_CONFIG, "%s", ax_error_text());
}

static enum ax_status open_parts(struct ax_reward_fn *f, struct judge *j) {
    int64_t ignored;
    AX_TRY(ax_strdup(&j->prompt, j->o.prompt ? j->o.prompt : AX_JUDGE_PROMPT));
    if (j->o.system)
        AX_TRY(ax_strdup(&j->system, j->o.system));
    j->o.prompt = j->prompt;
    AX_TRY(check(&j->o));
    AX_TRY(read_score(j, j->o.score ? j->o.score : AX_JUDGE_SCORE));
    AX_TRY(ax_endpoint_open(&j->server, &j->o.server));
    j->o.server = j->server.o;
    AX_TRY(ax_endpoint_model(&j->server, j->o.model, &j->model, &ignored));
    return rename_function(f, j->model);
}

static enum ax_status open_judge(struct ax_reward_fn *f, const struct ax_rewards_options *o) {
    struct judge *j;
    AX_TRY(ax_alloc(&j, 1, sizeof *j));
    f->state = j;
    j->o = o->judge;
    j->o.server.url = f->name;
    const enum ax_status st = open_parts(f, j);
    const bool hidden = strpbrk(f->own.name, "@?#") != NULL; /* it may have a key */
    return st == AX_OK ? AX_OK : ax_error_prefix(st, "judge \"%s\"", hidden ? "URL" : f->own.name);
}

static void close_judge(struct ax_reward_fn *f) {
    struct judge *j = f->state;
    if (!j)
        return;
    ax_endpoint_close(&j->server);
    ax_regex_free(j->score);
    ax_regex_work_free(&j->work);
    ax_free(j->model);
    ax_free(j->system);
    ax_free(j->prompt);
    ax_free(j);
    f->state = NULL;
}

const struct ax_reward_kind ax_reward_judge = {open_judge, score_judge, close_judge};
