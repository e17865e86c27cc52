/* Built-ins that look at one completion and its record at a time. */
#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/text/json.h"
#include "base/text/regex.h"
#include "base/text/unicode.h"
#include "data/reward/final_answer.h"
#include "data/reward/function.h"

/* ---- parts of a completion and of a record that rewards compare ---- */

enum ax_status ax_reward_column_text(const json_t *record, const char *name, struct ax_buf *out,
                                     bool *found) {
    const json_t *v = json_object_get(record, name);
    char text[AX_REAL_TEXT];
    *found = v && !json_is_null(v) && !json_is_array(v) && !json_is_object(v);
    if (!*found)
        return AX_OK;
    if (json_is_string(v))
        return ax_buf_append(out, json_string_value(v), json_string_length(v));
    if (json_is_integer(v))
        return ax_buf_printf(out, "%lld", (long long)json_integer_value(v));
    if (json_is_real(v))
        return ax_buf_puts(out, ax_real_repr(json_real_value(v), text));
    return ax_buf_puts(out, json_is_true(v) ? "true" : "false");
}

/* ---- answers ---- */

/* "####" and text[n]; false if that is longer than any answer. */
static bool read_as_answer(const char *s, size_t n, char out[AX_FINAL_ANSWER_MAX]) {
    char marked[2 * AX_FINAL_ANSWER_MAX] = "####";
    if (n > sizeof marked - 4)
        return false;
    memcpy(marked + 4, s, n);
    return ax_final_answer(marked, n + 4, out);
}

/* ax_final_answer, or, if there is no "####" in it, all of it as if it followed one. */
static bool reference_answer(const char *s, size_t n, char out[AX_FINAL_ANSWER_MAX]) {
    if (memmem(s, n, "####", 4))
        return ax_final_answer(s, n, out);
    const struct ax_reward_text t = ax_reward_strip(s, n);
    return !memchr(t.s, '\n', t.n) && read_as_answer(t.s, t.n, out);
}

/* True if ax_final_answer normalized this answer as a number. */
static bool is_number(const char *answer) {
    answer += *answer == '-';
    return isdigit((unsigned char)*answer) && answer[strspn(answer, "0123456789.")] == '\0';
}

static bool is_digit(const char *s, size_t n, size_t i) {
    return i < n && isdigit((unsigned char)s[i]);
}

/* The end of the number whose first digit, or point before a digit, is s[i]. */
static size_t end_of_number(const char *s, size_t n, size_t i) {
    const size_t start = i;
    while (is_digit(s, n, i))
        i++;
    if (i - start <= 3)
        while (i < n && s[i] == ',' && is_digit(s, n, i + 1) && is_digit(s, n, i + 2) &&
               is_digit(s, n, i + 3) && !is_digit(s, n, i + 4))
            i += 4;
    if (i < n && s[i] == '.' && is_digit(s, n, i + 1))
        for (i++; is_digit(s, n, i);)
            i++;
    return i;
}

/* A minus between two operands is not a sign. */
static bool is_sign(const char *s, size_t i) {
    const unsigned char before = i > 0 ? (unsigned char)s[i - 1] : ' ';
    return (s[i] == '-' || s[i] == '+') && !isalnum(before) && !strchr(")]}", before);
}

bool ax_reward_last_number(const char *s, size_t n, char out[AX_FINAL_ANSWER_MAX]) {
    size_t start = 0, end = 0;
    for (size_t i = 0; i < n; i++) {
        if (!is_digit(s, n, i) && !(s[i] == '.' && is_digit(s, n, i + 1)))
            continue;
        start = i;
        i = end = end_of_number(s, n, i);
        i--;
    }
    if (end == 0)
        return false;
    const size_t sign = start > 0 && s[start - 1] == '$' ? start - 1 : start;
    if (sign > 0 && is_sign(s, sign - 1))
        start = sign - 1;
    return read_as_answer(s + start, end - start, out);
}

/* The first `what` in s[n] at or after `from`; n if there is none. */
static size_t find_text(const char *s, size_t n, size_t from, const char *what) {
    const char *at = memmem(s + from, n - from, what, strlen(what));
    return at ? (size_t)(at - s) : n;
}

/* "<think>", then "</think>" anywhere, and no second "<think>". */
static bool is_think_format(const char *s, size_t n) {
    static const char begin[] = "<think>";
    const size_t from = sizeof begin - 1;
    return n >= from && memcmp(s, begin, from) == 0 && find_text(s, n, from, begin) == n &&
           find_text(s, n, from, "</think>") < n;
}

/* What a built-in keeps. */
struct rule {
    const struct row *row;
    struct ax_regex *regex;
    struct ax_regex_work work;
    int64_t max, cache; /* tokens */
};

/* ---- compared with the column "answer", or another ---- */

typedef enum ax_status compare_with(struct ax_reward_fn *f, const struct ax_reward_item *item,
                                    struct ax_reward_text answer, double *out);

static enum ax_status with_answer(struct ax_reward_fn *f, const struct ax_reward_item *item,
                                  double *out, compare_with *compare) {
    struct ax_buf answer = {0};
    bool found;
    const char *column = f->argument ? f->argument : "answer";
    enum ax_status st = ax_reward_column_text(item->record, column, &answer, &found);
    if (st == AX_OK && found)
        st = compare(f, item, (struct ax_reward_text){answer.data ? answer.data : "", answer.len},
                     out);
    else if (st == AX_OK)
        ax_reward_tell(f, "a record has no text or number in the column \"%s\"", column);
    ax_buf_free(&answer);
    return st;
}

static enum ax_status compare_exact(struct ax_reward_fn *f, const struct ax_reward_item *item,
                                    struct ax_reward_text answer, double *out) {
    const struct ax_reward_text got = ax_reward_strip(item->completion, item->n);
    const struct ax_reward_text want = ax_reward_strip(answer.s, answer.n);
    (void)f;
    *out = got.n == want.n && memcmp(got.s, want.s, got.n) == 0;
    return AX_OK;
}

static enum ax_status score_exact(struct ax_reward_fn *f, const struct ax_reward_item *item,
                                  double *out) {
    return with_answer(f, item, out, compare_exact);
}

static enum ax_status compare_final(struct ax_reward_fn *f, const struct ax_reward_item *item,
                                    struct ax_reward_text answer, double *out) {
    char got[AX_FINAL_ANSWER_MAX], want[AX_FINAL_ANSWER_MAX];
    if (!reference_answer(answer.s, answer.n, want))
        ax_reward_tell(f, "a record's \"answer\" is not one line of at most %d characters",
                       AX_FINAL_ANSWER_MAX - 1);
    else
        *out = ax_final_answer(item->completion, item->n, got) && strcmp(got, want) == 0;
    return AX_OK;
}

static enum ax_status score_final(struct ax_reward_fn *f, const struct ax_reward_item *item,
                                  double *out) {
    return with_answer(f, item, out, compare_final);
}

static enum ax_status compare_numeric(struct ax_reward_fn *f, const struct ax_reward_item *item,
                                      struct ax_reward_text answer, double *out) {
    char got[AX_FINAL_ANSWER_MAX], want[AX_FINAL_ANSWER_MAX];
    if (!reference_answer(answer.s, answer.n, want) || !is_number(want))
        ax_reward_tell(f, "a record's \"answer\" is not a number");
    else
        *out = ax_reward_last_number(item->completion, item->n, got) && strcmp(got, want) == 0;
    return AX_OK;
}

static enum ax_status score_numeric(struct ax_reward_fn *f, const struct ax_reward_item *item,
                                    double *out) {
    return with_answer(f, item, out, compare_numeric);
}

/* ---- the completion alone ---- */

static enum ax_status score_think(struct ax_reward_fn *f, const struct ax_reward_item *item,
                                  double *out) {
    (void)f;
    *out = is_think_format(item->completion, item->n);
    return AX_OK;
}

static enum ax_status search(struct ax_reward_fn *f, const char *s, size_t n, double *out) {
    struct rule *rule = f->state;
    struct ax_regex_iter it = ax_regex_search(rule->regex, &rule->work, s, n);
    size_t start, end;
    bool found;
    const enum ax_status st = ax_regex_next(&it, &found, &start, &end);
    if (st == AX_ERR_DATA) {
        ax_reward_tell(f, "a completion takes too many steps");
        ax_error_clear();
        return AX_OK;
    }
    if (st == AX_OK)
        *out = found;
    return st;
}

/* Generated tokens need not be UTF-8 together. */
static enum ax_status score_format(struct ax_reward_fn *f, const struct ax_reward_item *item,
                                   double *out) {
    struct ax_buf valid = {0};
    if (ax_utf8_check(item->completion, item->n) == item->n)
        return search(f, item->completion, item->n, out);
    enum ax_status st = ax_utf8_repair(&valid, item->completion, item->n);
    if (st == AX_OK)
        st = search(f, valid.data, valid.len, out);
    ax_buf_free(&valid);
    return st;
}

/* DAPO (Yu et al. 2025, arXiv 2503.14476), eq. 13. */
static enum ax_status score_overlong(struct ax_reward_fn *f, const struct ax_reward_item *item,
                                     double *out) {
    const struct rule *rule = f->state;
    const int64_t soft = rule->max - rule->cache;
    if (item->n_ids <= soft)
        *out = 0;
    else if (item->n_ids <= rule->max)
        *out = (double)(soft - item->n_ids) / (double)rule->cache;
    else
        *out = -1;
    return AX_OK;
}

/* ---- arguments ---- */

static enum ax_status read_column(struct ax_reward_fn *f) {
    return !f->argument || *f->argument
               ? AX_OK
               : ax_error(AX_ERR_CONFIG,
                          "reward function \"%s\": expected a column's name behind "
                          "the colon",
                          f->name);
}

static enum ax_status no_argument(struct ax_reward_fn *f) {
    if (f->argument)
        return ax_error(AX_ERR_CONFIG, "reward function \"%s\": \"%.*s\" takes no argument",
                        f->name, (int)(f->argument - 1 - f->name), f->name);
    return AX_OK;
}

static enum ax_status read_regex(struct ax_reward_fn *f) {
    struct rule *rule = f->state;
    const char *s = f->argument;
    if (!s || !*s)
        return ax_error(AX_ERR_CONFIG,
                        "reward function \"%s\": expected a regular expression: format:REGEX",
                        f->name);
    const enum ax_status st = ax_regex_compile_python(&rule->regex, s, strlen(s));
    if (st != AX_ERR_DATA)
        return st;
    (void)ax_error_prefix(st, "reward function \"%s\"", f->name);
    return ax_error(AX_ERR_CONFIG, "%s", ax_error_text());
}

/* A number of tokens up to the next colon; false: there is none. */
static bool read_tokens(const char **s, int64_t *out) {
    char *end;
    errno = 0;
    if (**s < '0' || **s > '9')
        return false;
    *out = strtoll(*s, &end, 10);
    *s = end;
    return errno == 0 && *out <= INT32_MAX;
}

static enum ax_status read_length(struct ax_reward_fn *f) {
    struct rule *rule = f->state;
    const char *s = f->argument ? f->argument : "";
    if (!read_tokens(&s, &rule->max) || *s || rule->max < 1)
        return ax_error(AX_ERR_CONFIG,
                        "reward function \"%s\": expected a number of tokens: length:MAX", f->name);
    return AX_OK;
}

static enum ax_status read_overlong(struct ax_reward_fn *f) {
    struct rule *rule = f->state;
    const char *s = f->argument ? f->argument : "";
    if (!read_tokens(&s, &rule->max) || *s++ != ':' || !read_tokens(&s, &rule->cache) || *s ||
        rule->max < 1 || rule->cache > rule->max)
        return ax_error(AX_ERR_CONFIG,
                        "reward function \"%s\": expected two numbers of tokens, the second not "
                        "above the first: soft_overlong:MAX:CACHE",
                        f->name);
    return AX_OK;
}

/* ---- the table ---- */

static const struct row {
    const char *name, *usage;
    enum ax_status (*score)(struct ax_reward_fn *f, const struct ax_reward_item *item, double *out);
    enum ax_status (*read)(struct ax_reward_fn *f); /* the argument */
    double most;                                    /* the highest that it gives */
} rows[] = {
    {"exact", "exact[:COLUMN]", score_exact, read_column, 1},
    {"final_answer", "final_answer[:COLUMN]", score_final, read_column, 1},
    {"numeric", "numeric[:COLUMN]", score_numeric, read_column, 1},
    {"format", "format:REGEX", score_format, read_regex, 1},
    {"length", "length:MAX", score_overlong, read_length, 0},
    {"soft_overlong", "soft_overlong:MAX:CACHE", score_overlong, read_overlong, 0},
    {"think_format", "think_format", score_think, no_argument, 1},
    {"code", "code", NULL, NULL, 1}, /* code.c */
};
enum { ROWS = sizeof rows / sizeof *rows };

static const struct row *find_row(const char *name, size_t n) {
    for (int i = 0; i < ROWS; i++)
        if (strlen(rows[i].name) == n && memcmp(rows[i].name, name, n) == 0)
            return &rows[i];
    return NULL;
}

static enum ax_status open_rule(struct ax_reward_fn *f, const struct ax_rewards_options *o) {
    struct rule *rule;
    (void)o;
    AX_TRY(ax_alloc(&rule, 1, sizeof *rule));
    f->state = rule;
    rule->row = find_row(f->name, strcspn(f->name, ":"));
    f->most = rule->row->most;
    return rule->row->read(f);
}

static enum ax_status score_rule(struct ax_reward_fn *f, const struct ax_reward_call *call,
                                 double *out, struct ax_reward_outcome *outcome) {
    const struct rule *rule = f->state;
    (void)outcome;
    for (size_t i = 0; i < call->n; i++)
        AX_TRY(rule->row->score(f, &call->items[i], &out[i]));
    return AX_OK;
}

static void close_rule(struct ax_reward_fn *f) {
    struct rule *rule = f->state;
    if (!rule)
        return;
    ax_regex_free(rule->regex);
    ax_regex_work_free(&rule->work);
    ax_free(rule);
}

static const struct ax_reward_kind rule_kind = {open_rule, score_rule, close_rule};

const struct ax_reward_kind *ax_reward_builtin(const char *name, size_t n) {
    const struct row *row = find_row(name, n);
    return !row ? NULL : row->score ? &rule_kind : &ax_reward_code;
}

const char *ax_reward_builtin_name(int i, const char **usage) {
    *usage = i < ROWS ? rows[i].usage : NULL;
    return i < ROWS ? rows[i].name : NULL;
}
