/* Wrong solutions: one mistake in one line, and what follows from it computed with the wrong number.
 * Read ax_problem_make_wrong first. */
#include <ctype.h>
#include <string.h>

#include "data/problems/story.h"

#define STREAM    0x6D697374616B6573ULL /* a seed of its own for mistakes */
#define MAX_TRIES 10000                 /* far more than it takes to find one that can be made */

/* ---- equations ---- */

/* "{a} * {b} = {c}" in a line of a template. */
struct equation {
    size_t start, end; /* its place in the line */
    int a, b, result;  /* variables from 0; -1: a number */
    int64_t number_a, number_b;
    char op;
};

/* The operand that ends before *end, which moves to its start. */
static void read_operand(const char *line, size_t *end, int *var, int64_t *number) {
    size_t i = *end;
    *var = -1;
    *number = 0;
    if (line[i - 1] == '}') {
        *var = line[i - 2] - 'a';
        *end = i - 3;
        return;
    }
    for (int64_t digit = 1; i > 0 && isdigit((unsigned char)line[i - 1]); i--, digit *= 10)
        *number += digit * (line[i - 1] - '0');
    AX_ASSERT(i < *end);
    *end = i;
}

static struct equation read_equation(const char *line, size_t n) {
    const char *equals = memchr(line, '=', n);
    struct equation e;
    AX_ASSERT(equals && equals[2] == '{'); /* " = {c}" in every step of the tables */
    const size_t at = (size_t)(equals - line);
    e.result = equals[3] - 'a';
    e.end = at + 5;
    e.start = at - 1;
    read_operand(line, &e.start, &e.b, &e.number_b);
    e.op = line[e.start - 2];
    e.start -= 3;
    read_operand(line, &e.start, &e.a, &e.number_a);
    return e;
}

/* ---- mistakes ---- */

struct sum {
    int64_t a, b, result;
    char op;
};

/* Miscalculates. */
static bool slip(struct ax_problem_draw *d, struct sum *s) {
    static const int by[] = {-10, -2, -1, 1, 2, 10};
    s->result += by[ax_problem_below(d, sizeof by / sizeof *by)];
    return s->result > 0;
}

/* Calculates something else with the same numbers. */
static bool confuse(struct ax_problem_draw *d, struct sum *s) {
    static const char ops[] = "+-*/";
    s->op = ops[ax_problem_below(d, 4)];
    return s->b > 0 && ax_problem_compute(s->a, s->op, s->b, &s->result);
}

/* Takes another number of the question. */
static bool mistake_number(struct ax_problem_draw *d, const struct ax_problem_story *story,
                           struct sum *s) {
    const char *slots[26];
    size_t n = 0;
    for (const char *c = story->template->question; (c = strchr(c, '{')) != NULL; c++)
        if (c[2] == '}' && islower((unsigned char)c[1]) && n < 26)
            slots[n++] = c + 1;
    AX_ASSERT(n > 0);
    const int64_t other = story->numbers.value[*slots[ax_problem_below(d, n)] - 'a'];
    int64_t *operand = ax_problem_below(d, 2) ? &s->a : &s->b;
    *operand = other;
    return ax_problem_compute(s->a, s->op, s->b, &s->result);
}

/* Makes one of the mistakes; false if it cannot be made here, or changes nothing. */
static bool spoil(struct ax_problem_draw *d, const struct ax_problem_story *story, struct sum *s) {
    const int64_t right = s->result;
    const int64_t kind = ax_problem_below(d, 3);
    const bool made = kind == 0   ? slip(d, s)
                      : kind == 1 ? confuse(d, s)
                                  : mistake_number(d, story, s);
    return made && s->result != right;
}

/* ---- a solution ---- */

/* The lines of a solution with a mistake in line `at`, or in the last result if there is no such
 * line. */
struct attempt {
    struct ax_problem_draw *d;
    struct ax_problem_story story; /* its numbers become those that the solution computes */
    int at;
    struct sum sums[AX_PROBLEM_MAX_STEPS];
    int64_t answer;
};

static bool try(struct attempt *t) {
    int i = 0;
    for (const char *line = t->story.template->steps; *line; i++) {
        const size_t n = strcspn(line, "\n");
        const struct equation e = read_equation(line, n);
        int64_t *values = t->story.numbers.value;
        struct sum *s = &t->sums[i];
        *s = (struct sum){.a = e.a < 0 ? e.number_a : values[e.a],
                          .b = e.b < 0 ? e.number_b : values[e.b],
                          .op = e.op};
        if (!ax_problem_compute(s->a, s->op, s->b, &s->result) ||
            (i == t->at && !spoil(t->d, &t->story, s)))
            return false;
        values[e.result] = s->result;
        t->answer = s->result;
        line += n + (line[n] == '\n');
    }
    if (t->at < i)
        return true;
    struct sum last = {.result = t->answer};
    const bool changed = slip(t->d, &last);
    t->answer = last.result;
    return changed;
}

/* The steps with the attempt's sums in place of the template's equations. */
static enum ax_status write_steps(struct ax_problem *out, const struct attempt *t) {
    const char *line = t->story.template->steps;
    for (int i = 0; i < out->n_steps; i++) {
        const size_t n = strcspn(line, "\n");
        const struct equation e = read_equation(line, n);
        const struct sum *s = &t->sums[i];
        struct ax_buf text = {0};
        enum ax_status st = ax_problem_fill(&text, &t->story, line, e.start);
        if (st == AX_OK)
            st = ax_buf_printf(&text, "%lld %c %lld = %lld", (long long)s->a, s->op,
                               (long long)s->b, (long long)s->result);
        if (st == AX_OK)
            st = ax_problem_fill(&text, &t->story, line + e.end, n - e.end);
        if (st != AX_OK) {
            ax_buf_free(&text);
            return st;
        }
        ax_free(out->steps[i]);
        out->steps[i] = text.data;
        line += n + (line[n] == '\n');
    }
    return AX_OK;
}

enum ax_status ax_problem_make_wrong(struct ax_problem *out, uint64_t seed, uint64_t index,
                                     int min_level, int max_level, int *first) {
    struct ax_problem_draw d = {.key = {seed ^ STREAM, (uint32_t)(index >> 32), (uint32_t)index}};
    struct ax_problem_story story;
    ax_problem_draw_story(&story, seed, index, min_level, max_level);
    enum ax_status st = ax_problem_make(out, seed, index, min_level, max_level);
    struct attempt t;
    int tries = 0;
    if (st != AX_OK)
        return st;
    const int64_t right = out->answer;
    do {
        AX_ASSERT(++tries < MAX_TRIES);
        t = (struct attempt){
            .d = &d, .story = story, .at = (int)ax_problem_below(&d, (uint64_t)out->n_steps + 1)};
    } while (!try(&t) || t.answer == right);
    *first = t.at;
    out->answer = t.answer;
    st = write_steps(out, &t);
    if (st != AX_OK)
        ax_problem_free(out);
    return st;
}
