/* Stories → numbers → solutions → records. Read ax_problem_make first. */
#include "data/records/problems/problems.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash/hash.h"
#include "data/records/problems/text.h"

#define MAX_TRIES  10000                 /* far more than any story needs to get valid numbers */
#define MISTAKES   0x6D697374616B6573ULL /* they have a seed of their own */
#define TEST_SHARE 8
#define N_OF(a)    (sizeof(a) / sizeof *(a))

const char ax_problem_instruction[] =
    "Think step by step and end with the answer as a number behind \"####\".";

/* ---- numbers ---- */

/* The value of a variable or number at *s; *s moves past it. */
static int64_t take_operand(const int64_t *values, const char **s) {
    char *end;
    if (islower((unsigned char)**s))
        return values[*(*s)++ - 'a'];
    AX_ASSERT(isdigit((unsigned char)**s));
    const int64_t v = strtoll(*s, &end, 10);
    *s = end;
    return v;
}

/* a op b; false if the result is not a positive integer. */
static bool compute(int64_t a, char op, int64_t b, int64_t *out) {
    if (op == '/') {
        *out = b > 0 ? a / b : 0;
        return b > 0 && a % b == 0 && *out > 0;
    }
    AX_ASSERT(op == '+' || op == '-' || op == '*');
    *out = op == '+' ? a + b : op == '-' ? a - b : a * b;
    return *out > 0;
}

/* "a:2-9 b=a*3"; false if a number is not valid, so that the caller draws again. */
static bool draw_numbers(struct ax_problem_draw *d, const char *s, int64_t *values) {
    while (*s) {
        int64_t *to = &values[*s++ - 'a'];
        const char kind = *s++;
        const int64_t first = take_operand(values, &s);
        const char op = *s++;
        const int64_t second = take_operand(values, &s);
        AX_ASSERT(kind == '=' || (kind == ':' && op == '-'));
        if (kind == ':' ? second < first : !compute(first, op, second, to))
            return false;
        if (kind == ':')
            *to = first + ax_problem_below(d, second - first + 1);
        s += *s == ' ';
    }
    return true;
}

/* ---- stories ---- */

struct told {
    const struct ax_problem_story *story;
    int64_t values[26]; /* of the variables a … z */
    const char *words[AX_PROBLEM_WORDS];
};

static void tell(struct told *t, struct ax_problem_draw *d, int min_level, int max_level) {
    int first = 0, last = ax_problem_n_stories, tries = 0;
    while (ax_problem_stories[first].level < min_level)
        first++;
    while (ax_problem_stories[last - 1].level > max_level)
        last--;
    *t = (struct told){.story = &ax_problem_stories[first + ax_problem_below(d, last - first)]};
    ax_problem_draw_words(d, t->words);
    while (!draw_numbers(d, t->story->numbers, t->values))
        AX_ASSERT(++tries < MAX_TRIES);
}

/* Appends n bytes of a story's text with its slots filled. */
static void put(struct ax_problem_text *out, const struct told *t, const char *text, size_t n) {
    ax_problem_fill(out, text, n, t->words, AX_PROBLEM_WORDS, t->values);
}

/* ---- mistakes ---- */

struct sum {
    int64_t a, b, result;
    char op;
};

/* Miscalculates. */
static bool slip(struct ax_problem_draw *d, struct sum *s) {
    static const int by[] = {-10, -2, -1, 1, 2, 10};
    s->result += by[ax_problem_below(d, N_OF(by))];
    return s->result > 0;
}

/* Calculates something else with the same numbers. */
static bool confuse(struct ax_problem_draw *d, struct sum *s) {
    s->op = "+-*/"[ax_problem_below(d, 4)];
    return compute(s->a, s->op, s->b, &s->result);
}

/* Takes another number of the question. */
static bool mistake_number(struct ax_problem_draw *d, const struct told *t, struct sum *s) {
    char variables[26];
    int n = 0;
    for (const char *c = t->story->question; (c = strchr(c, '{')) != NULL; c++)
        if (c[2] == '}' && islower((unsigned char)c[1]) && n < 26)
            variables[n++] = c[1];
    const int64_t other = t->values[variables[ax_problem_below(d, n)] - 'a'];
    *(ax_problem_below(d, 2) ? &s->a : &s->b) = other;
    return compute(s->a, s->op, s->b, &s->result);
}

/* Makes one of the mistakes; false if it cannot be made here, or changes nothing. */
static bool spoil(struct ax_problem_draw *d, const struct told *t, struct sum *s) {
    const int64_t right = s->result, kind = ax_problem_below(d, 3);
    const bool made = kind == 0 ? slip(d, s) : kind == 1 ? confuse(d, s) : mistake_number(d, t, s);
    return made && s->result != right;
}

/* ---- solutions ---- */

/* One step: its equation with the numbers that earlier steps gave, spoiled if d is not NULL. */
static bool solve_step(struct ax_problem_text *out, struct told *t, struct ax_problem_draw *d,
                       const char *line, size_t n, int64_t *result) {
    const char *open = memchr(line, '=', n), *s;
    while (*open != '{')
        open--;
    s = open + 1;
    struct sum sum = {.a = take_operand(t->values, &s)};
    sum.op = *s++;
    sum.b = take_operand(t->values, &s);
    if (!compute(sum.a, sum.op, sum.b, &sum.result) || (d && !spoil(d, t, &sum)))
        return false;
    t->values[s[1] - 'a'] = *result = sum.result;
    *out = (struct ax_problem_text){.n = 0};
    put(out, t, line, (size_t)(open - line));
    ax_problem_put(out, "%lld %c %lld = %lld", (long long)sum.a, sum.op, (long long)sum.b,
                   (long long)sum.result);
    put(out, t, s + 3, n - (size_t)(s + 3 - line));
    return true;
}

/* With a mistake in line `at`, or in the last result if there is no such line; none if d is NULL. */
static bool solve(struct ax_problem *out, struct told t, struct ax_problem_draw *d, int at) {
    const char *line = t.story->steps;
    for (int i = 0; i < out->level; i++) {
        const size_t n = strcspn(line, "\n");
        if (!solve_step(&out->steps[i], &t, i == at ? d : NULL, line, n, &out->answer))
            return false;
        line += n + 1;
    }
    struct sum last = {.result = out->answer};
    const bool right = at < out->level || !d || slip(d, &last);
    out->answer = last.result;
    return right;
}

void ax_problem_make(struct ax_problem *out, uint64_t seed, uint64_t index, int min_level,
                     int max_level, int *mistake) {
    struct ax_problem_draw d = ax_problem_draw(seed, index);
    struct told t;
    int tries = 0;
    tell(&t, &d, min_level, max_level);
    *out =
        (struct ax_problem){.level = t.story->level, .story = (int)(t.story - ax_problem_stories)};
    put(&out->question, &t, t.story->question, strlen(t.story->question));
    const bool solved = solve(out, t, NULL, -1);
    const int64_t right = out->answer;
    AX_ASSERT(solved);
    if (!mistake)
        return;
    d = ax_problem_draw(seed ^ MISTAKES, index);
    do {
        AX_ASSERT(++tries < MAX_TRIES);
        *mistake = (int)ax_problem_below(&d, out->level + 1);
    } while (!solve(out, t, &d, *mistake) || out->answer == right);
}

int64_t ax_problem_largest_number(const struct ax_problem *p) {
    int64_t most = p->answer;
    for (int i = -1; i < p->level; i++)
        for (const char *s = i < 0 ? p->question.s : p->steps[i].s;
             *(s += strcspn(s, "0123456789"));) {
            char *end;
            const int64_t v = strtoll(s, &end, 10);
            most = v > most ? v : most;
            s = end;
        }
    return most;
}

bool ax_problem_is_test(const char *question) {
    return ax_hash64(question, strlen(question), 0) % TEST_SHARE == 0;
}

/* ---- records ---- */

static struct ax_problem_text asked(const struct ax_problem *p) {
    struct ax_problem_text t = {.n = 0};
    ax_problem_put(&t, "%s %s", p->question.s, ax_problem_instruction);
    return t;
}

/* Line i of the solution: its steps, then the answer. */
static void put_line(struct ax_problem_text *out, const struct ax_problem *p, int i) {
    if (i < p->level)
        ax_problem_put(out, "%s", p->steps[i].s);
    else
        ax_problem_put(out, "#### %lld", (long long)p->answer);
}

static struct ax_problem_text solution(const struct ax_problem *p) {
    struct ax_problem_text t = {.n = 0};
    for (int i = 0; i <= p->level; i++) {
        ax_problem_put(&t, i > 0 ? "\n" : "");
        put_line(&t, p, i);
    }
    return t;
}

json_t *ax_problem_row(const struct ax_problem *p) {
    const struct ax_problem_text question = asked(p), answer = solution(p);
    return json_pack("{s[{ssss}{ssss}]sisI}", "messages", "role", "user", "content", question.s,
                     "role", "assistant", "content", answer.s, "level", p->level, "final_answer",
                     (json_int_t)p->answer);
}

json_t *ax_problem_pair_row(const struct ax_problem *right, const struct ax_problem *wrong) {
    const struct ax_problem_text question = asked(right), chosen = solution(right),
                                 rejected = solution(wrong);
    return json_pack("{s[{ssss}]s[{ssss}]s[{ssss}]si}", "prompt", "role", "user", "content",
                     question.s, "chosen", "role", "assistant", "content", chosen.s, "rejected",
                     "role", "assistant", "content", rejected.s, "level", right->level);
}

json_t *ax_problem_steps_row(const struct ax_problem *p, int mistake) {
    json_t *lines = json_array(), *labels = json_array();
    bool ok = true;
    for (int i = 0; i <= p->level; i++) {
        struct ax_problem_text line = {.n = 0};
        put_line(&line, p, i);
        ok = ok && json_array_append_new(lines, json_string(line.s)) == 0 &&
             json_array_append_new(labels, json_boolean(i < mistake)) == 0;
    }
    const struct ax_problem_text question = asked(p);
    json_t *row = json_pack("{sssososi}", "prompt", question.s, "completions", lines, "labels",
                            labels, "level", p->level);
    if (!ok)
        json_decref(row);
    return ok ? row : NULL;
}

enum ax_status ax_problem_put_row(struct ax_buf *out, json_t *row) {
    char *text = row ? json_dumps(row, JSON_COMPACT) : NULL;
    json_decref(row);
    if (!text)
        return ax_error(AX_ERR_NOMEM, "out of memory for a record");
    const enum ax_status st = ax_buf_printf(out, "%s\n", text);
    ax_free(text);
    return st;
}
