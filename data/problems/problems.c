/* Template → numbers → texts. Read ax_problem_make first. */
#include "data/problems/problems.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "data/problems/story.h"

#define MAX_TRIES  10000 /* far more than any template needs to get valid numbers */
#define TEST_SHARE 8

int64_t ax_problem_below(struct ax_problem_draw *d, uint64_t n) {
    return (int64_t)ax_rng_below(d->key, d->next++, n);
}

/* ---- numbers ---- */

/* The value of a variable or number at *s; *s moves past it. */
static int64_t operand(const struct ax_problem_numbers *n, const char **s) {
    int64_t v = 0;
    if (islower((unsigned char)**s))
        return n->value[*(*s)++ - 'a'];
    AX_ASSERT(isdigit((unsigned char)**s));
    while (isdigit((unsigned char)**s))
        v = v * 10 + (*(*s)++ - '0');
    return v;
}

bool ax_problem_compute(int64_t a, char op, int64_t b, int64_t *out) {
    switch (op) {
    case '+':
        *out = a + b;
        break;
    case '-':
        *out = a - b;
        break;
    case '*':
        *out = a * b;
        break;
    default:
        AX_ASSERT(op == '/' && b != 0);
        *out = a / b;
        return a % b == 0 && *out > 0;
    }
    return *out > 0;
}

/* "a:2-9 b=a*3"; false if a number is not valid, so that the caller draws again. */
static bool draw_numbers(struct ax_problem_draw *d, const char *s, struct ax_problem_numbers *n) {
    while (*s) {
        const int var = *s++ - 'a';
        const char kind = *s++;
        const int64_t first = operand(n, &s);
        const char op = *s++;
        const int64_t second = operand(n, &s);
        AX_ASSERT(var >= 0 && var < 26 && (kind == '=' || (kind == ':' && op == '-')));
        if (kind == ':' && second < first)
            return false;
        if (kind == ':')
            n->value[var] = first + ax_problem_below(d, (uint64_t)(second - first) + 1);
        else if (!ax_problem_compute(first, op, second, &n->value[var]))
            return false;
        s += *s == ' ';
    }
    return true;
}

/* ---- texts ---- */

/* The word for a {slot}; NULL for a number. */
static const char *word_of(const struct ax_problem_story *s, const char *slot, size_t n) {
    const bool she = s->who->she != 0;
    const struct {
        const char *slot, *word;
    } words[] = {
        {"P", s->who->name},
        {"Q", s->other->name},
        {"he", she ? "she" : "he"},
        {"He", she ? "She" : "He"},
        {"his", she ? "her" : "his"},
        {"him", she ? "her" : "him"},
        {"thing", s->thing->one},
        {"things", s->thing->many},
        {"box", s->box->one},
        {"boxes", s->box->many},
        {"day", s->day},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i].slot) == n && memcmp(words[i].slot, slot, n) == 0)
            return words[i].word;
    return NULL;
}

enum ax_status ax_problem_fill(struct ax_buf *out, const struct ax_problem_story *s,
                               const char *text, size_t n) {
    for (size_t i = 0; i < n;) {
        const char *open = memchr(text + i, '{', n - i);
        const size_t plain = open ? (size_t)(open - text) - i : n - i;
        AX_TRY(ax_buf_append(out, text + i, plain));
        i += plain;
        if (!open)
            break;
        const char *close = memchr(open, '}', n - i);
        AX_ASSERT(close != NULL);
        const size_t len = (size_t)(close - open) - 1;
        const char *word = word_of(s, open + 1, len);
        if (word) {
            AX_TRY(ax_buf_puts(out, word));
        } else {
            AX_ASSERT(len == 1 && islower((unsigned char)open[1]));
            AX_TRY(ax_buf_printf(out, "%lld", (long long)s->numbers.value[open[1] - 'a']));
        }
        i = (size_t)(close - text) + 1;
    }
    return AX_OK;
}

static enum ax_status fill_string(char **out, const struct ax_problem_story *s, const char *text,
                                  size_t n) {
    struct ax_buf b = {0};
    const enum ax_status st = ax_problem_fill(&b, s, text, n);
    if (st != AX_OK) {
        ax_buf_free(&b);
        return st;
    }
    *out = b.data;
    return AX_OK;
}

enum ax_status ax_problem_write(struct ax_problem *out, const struct ax_problem_story *s) {
    const struct ax_problem_template *t = s->template;
    *out = (struct ax_problem){.level = t->level, .template = (int)(t - ax_problem_templates)};
    AX_TRY(fill_string(&out->question, s, t->question, strlen(t->question)));
    for (const char *line = t->steps; *line;) {
        const size_t n = strcspn(line, "\n");
        AX_ASSERT(out->n_steps < AX_PROBLEM_MAX_STEPS);
        AX_TRY(fill_string(&out->steps[out->n_steps++], s, line, n));
        line += n + (line[n] == '\n');
    }
    return AX_OK;
}

/* ---- problems ---- */

static int pick_template(struct ax_problem_draw *d, int min_level, int max_level) {
    int first = -1;
    int n = 0;
    for (int i = 0; i < (int)ax_n_problem_templates; i++) {
        const int level = ax_problem_templates[i].level;
        if (level >= min_level && level <= max_level) {
            first = first < 0 ? i : first;
            n++;
        }
    }
    AX_ASSERT(n > 0); /* the table is sorted by level */
    return first + (int)ax_problem_below(d, (uint64_t)n);
}

static void pick_words(struct ax_problem_draw *d, struct ax_problem_story *s) {
    const int64_t who = ax_problem_below(d, ax_n_problem_people);
    const int64_t other = ax_problem_below(d, ax_n_problem_people - 1);
    s->who = &ax_problem_people[who];
    s->other = &ax_problem_people[other + (other >= who)];
    s->thing = &ax_problem_things[ax_problem_below(d, ax_n_problem_things)];
    s->box = &ax_problem_boxes[ax_problem_below(d, ax_n_problem_boxes)];
    s->day = ax_problem_days[ax_problem_below(d, 7)];
}

void ax_problem_draw_story(struct ax_problem_story *s, uint64_t seed, uint64_t index, int min_level,
                           int max_level) {
    struct ax_problem_draw d = {.key = {seed, (uint32_t)(index >> 32), (uint32_t)index}};
    int tries = 0;
    *s = (struct ax_problem_story){
        .template = &ax_problem_templates[pick_template(&d, min_level, max_level)]};
    pick_words(&d, s);
    while (!draw_numbers(&d, s->template->numbers, &s->numbers))
        AX_ASSERT(++tries < MAX_TRIES);
}

enum ax_status ax_problem_make(struct ax_problem *out, uint64_t seed, uint64_t index, int min_level,
                               int max_level) {
    struct ax_problem_story s;
    ax_problem_draw_story(&s, seed, index, min_level, max_level);
    const enum ax_status st = ax_problem_write(out, &s);
    if (st != AX_OK) {
        ax_problem_free(out);
        return st;
    }
    const char *last = out->steps[out->n_steps - 1];
    const char *result = last ? strrchr(last, '=') : NULL;
    AX_ASSERT(result != NULL); /* every template's last step has a result */
    out->answer = strtoll(result + 1, NULL, 10);
    return AX_OK;
}

void ax_problem_free(struct ax_problem *p) {
    ax_free(p->question);
    for (int i = 0; i < p->n_steps; i++)
        ax_free(p->steps[i]);
    *p = (struct ax_problem){0};
}

static int64_t largest_in(const char *text, int64_t most) {
    while (*(text += strcspn(text, "0123456789"))) {
        char *end;
        const int64_t v = strtoll(text, &end, 10);
        most = v > most ? v : most;
        text = end;
    }
    return most;
}

int64_t ax_problem_largest_number(const struct ax_problem *p) {
    int64_t most = largest_in(p->question, p->answer);
    for (int i = 0; i < p->n_steps; i++)
        most = largest_in(p->steps[i], most);
    return most;
}

bool ax_problem_is_test(const struct ax_problem *p) {
    return ax_hash64(p->question, strlen(p->question), 0) % TEST_SHARE == 0;
}
