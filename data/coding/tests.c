/* Arguments that tell a specification from its neighbors, and their results. Read
 * ax_coding_draw_tests first. */
#include <stdio.h>
#include <string.h>

#include "data/coding/spec.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

enum { TRIES_PER_TEST = 40, TRIES = 6 };

/* ---- arguments ---- */

/* Near 0, near a number of the specification, or anywhere. */
static int64_t draw_int(struct ax_coding_draw *d, const struct ax_coding_spec *s) {
    const struct ax_coding_step *step = &s->step[ax_coding_below(d, s->level)];
    const int64_t near = step->k[ax_coding_below(d, AX_CODING_KS)].value;
    switch (ax_coding_below(d, 4)) {
    case 0:
        return ax_coding_below(d, 3) - 1;
    case 1:
        return (near < 32 ? near : 0) + ax_coding_below(d, 3) - 1;
    case 2:
        return ax_coding_below(d, 13);
    default:
        return ax_coding_below(d, 61) - 30;
    }
}

static void draw_list(struct ax_coding_draw *d, const struct ax_coding_spec *s,
                      struct ax_coding_value *out) {
    const int64_t n =
        ax_coding_below(d, 5) == 0 ? ax_coding_below(d, 2) : 2 + ax_coding_below(d, 6);
    for (out->n = 0; (int64_t)out->n < n; out->n++)
        out->items[out->n] = out->n > 0 && ax_coding_below(d, 5) == 0
                                 ? out->items[ax_coding_below(d, (int64_t)out->n)]
                                 : draw_int(d, s);
}

/* A letter of the specification, or nothing. */
static const char *draw_letter(struct ax_coding_draw *d, const struct ax_coding_spec *s,
                               char out[2]) {
    const struct ax_coding_step *step = &s->step[ax_coding_below(d, s->level)];
    const struct ax_coding_number *k = &step->k[ax_coding_below(d, AX_CODING_KS)];
    out[0] = k->kind == AX_CODING_LETTER ? (char)k->value : '\0';
    out[1] = '\0';
    return out;
}

/* Words, of which some have digits, capitals or spaces around them. */
static void draw_text(struct ax_coding_draw *d, const struct ax_coding_spec *s,
                      struct ax_coding_value *out) {
    static const char *const words[] = {
        "apple",  "banana",  "level",  "noon",   "Rome",    "tomato", "salt",   "orange",
        "Monday", "river",   "train",  "lemon",  "window",  "radar",  "a",      "mirror",
        "Alice",  "Bob",     "sesame", "toast",  "1984",    "room7",  "x2",     "OK",
        "NASA",   "summer",  "elf",    "island", "stones",  "anna",   "eel",    "moon",
        "raisin", "no5",     "i",      "b52",    "planet9", "o",      "assess", "nine",
        "seas",   "letters", "mama",   "30",     "teeth",   "s",      "Eve",    "a1b2"};
    static const char *const between[] = {" ", " ", " ", " ", "  ", ", ", "-"};
    const int64_t n =
        ax_coding_below(d, 3) == 0 ? ax_coding_below(d, 2) : 1 + ax_coding_below(d, 4);
    char letter[2];
    out->n = 0;
    for (int64_t i = 0; i < n; i++)
        out->n += (size_t)snprintf(out->text + out->n, sizeof out->text - out->n, "%s%s",
                                   i > 0 ? between[ax_coding_below(d, COUNT(between))]
                                         : draw_letter(d, s, letter),
                                   words[ax_coding_below(d, COUNT(words))]);
    const char *end = ax_coding_below(d, 8) == 0 ? " " : draw_letter(d, s, letter);
    out->n += (size_t)snprintf(out->text + out->n, sizeof out->text - out->n, "%s", end);
    AX_ASSERT(out->n <= AX_CODING_MAX_TEXT);
}

static void draw_args(struct ax_coding_draw *d, const struct ax_coding_spec *s,
                      struct ax_coding_value *args) {
    for (int i = 0; i < s->n_args; i++) {
        args[i] = (struct ax_coding_value){.type = i == 0 ? s->type : AX_CODING_INT};
        if (args[i].type == AX_CODING_INT)
            args[i].i = draw_int(d, s);
        else if (args[i].type == AX_CODING_LIST)
            draw_list(d, s, &args[i]);
        else
            draw_text(d, s, &args[i]);
    }
}

static bool is_old(const struct ax_coding_spec *s, const struct ax_coding_test *tests, int n) {
    for (int i = 0; i < n; i++) {
        bool same = true;
        for (int a = 0; a < s->n_args; a++)
            same = same && ax_coding_same(&tests[i].args[a], &tests[n].args[a]);
        if (same)
            return true;
    }
    return false;
}

/* Test n, whose arguments differ from those before it. */
static bool draw_test(struct ax_coding_draw *d, const struct ax_coding_spec *s,
                      struct ax_coding_test *tests, int n) {
    for (int i = 0; i < TRIES_PER_TEST; i++) {
        draw_args(d, s, tests[n].args);
        if (!is_old(s, tests, n) && ax_coding_compute(s, tests[n].args, &tests[n].result))
            return true;
    }
    return false;
}

/* ---- neighbors ---- */

/* Does a test tell the other specification from that of the tests? */
static bool tell(const struct ax_coding_spec *other, const struct ax_coding_test *tests, int n) {
    for (int i = 0; i < n; i++) {
        struct ax_coding_value result;
        if (!ax_coding_compute(other, tests[i].args, &result) ||
            !ax_coding_same(&result, &tests[i].result))
            return true;
    }
    return false;
}

static bool tell_step_left_out(const struct ax_coding_spec *s, int step,
                               const struct ax_coding_test *tests, int n) {
    struct ax_coding_spec other = *s;
    if (s->step[step].op->in != s->step[step].op->out)
        return true;
    other.level--;
    for (int i = step; i < other.level; i++)
        other.step[i] = s->step[i + 1];
    return tell(&other, tests, n);
}

static bool tell_numbers(const struct ax_coding_spec *s, int step,
                         const struct ax_coding_test *tests, int n) {
    for (int k = 0; k < AX_CODING_KS; k++)
        for (int by = -1; by <= 1; by += 2) {
            struct ax_coding_spec other = *s;
            other.step[step].k[k].value += by;
            if (s->step[step].k[k].kind != AX_CODING_NONE && !tell(&other, tests, n))
                return false;
        }
    return true;
}

static bool tell_cases(const struct ax_coding_spec *s, int step, const struct ax_coding_test *tests,
                       int n) {
    struct ax_coding_spec first = *s, second = *s;
    struct ax_coding_step *a = &first.step[step], *b = &second.step[step];
    if (!a->otherwise)
        return true;
    a->otherwise = a->to;
    a->k[AX_CODING_ELSE_K] = a->k[AX_CODING_TO_K];
    b->to = b->otherwise;
    b->k[AX_CODING_TO_K] = b->k[AX_CODING_ELSE_K];
    return tell(&first, tests, n) && tell(&second, tests, n);
}

/* A constant passes at most half of the tests, or two thirds of those that ask whether. */
static bool results_differ(const struct ax_coding_test *tests, int n) {
    for (int i = 0; i < n; i++) {
        int same = 0;
        for (int k = 0; k < n; k++)
            same += ax_coding_same(&tests[i].result, &tests[k].result);
        if (tests[i].result.type == AX_CODING_BOOL ? 3 * same > 2 * n : 2 * same > n + 1)
            return false;
    }
    return true;
}

static bool are_sharp(const struct ax_coding_spec *s, const struct ax_coding_test *tests, int n) {
    for (int i = 0; i < s->level; i++)
        if (!tell_step_left_out(s, i, tests, n) || !tell_numbers(s, i, tests, n) ||
            !tell_cases(s, i, tests, n))
            return false;
    return results_differ(tests, n);
}

bool ax_coding_draw_tests(struct ax_coding_draw *d, const struct ax_coding_spec *s,
                          struct ax_coding_test *out, int *n) {
    *n = AX_CODING_MIN_TESTS +
         (int)ax_coding_below(d, AX_CODING_MAX_TESTS - AX_CODING_MIN_TESTS + 1);
    for (int i = 0; i < TRIES; i++) {
        int made = 0;
        while (made <= *n && draw_test(d, s, out, made))
            made++;
        if (made > *n && are_sharp(s, out, *n))
            return true;
    }
    return false;
}
