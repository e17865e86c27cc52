/* The stories of word problems, and the words in them; then stories → numbers → solutions → records. Read ax_problem_make first. */
#include "data/records/problems/problems.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash/hash.h"
#include "data/records/problems/text.h"

#define COUNT(a) (int)(sizeof(a) / sizeof *(a))
enum { N_WORDS = 2 * 11 };

/* clang-format off */
const struct ax_problem_story ax_problem_stories[] = {
    /* ---- one step ---- */
    {1, "a:3-60 b:2-40 c=a+b", "{P} has {a} {things}. On {day} {he} gets {b} more {things}. How many {things} does {P} have now?",
     "{P} has {a+b=c} {things} now."},
    {1, "a:10-90 b:2-a c=a-b", "{P} has {a} {things} and gives {b} of them to {Q}. How many {things} does {P} have left?",
     "{P} has {a-b=c} {things} left."},
    {1, "a:2-12 b:2-12 c=a*b", "There are {a} {boxes} on a shelf. Each {box} holds {b} {things}. How many {things} are there in all?",
     "There are {a*b=c} {things}."},
    {1, "c:2-12 b:2-9 a=b*c", "{P} shares {a} {things} equally among {b} friends. How many {things} does each friend get?",
     "Each friend gets {a/b=c} {things}."},
    {1, "a:2-15 b:2-9 c=a*b", "A {thing} costs ${a}. {P} buys {b} of them. How many dollars does {he} pay?",
     "{P} pays {a*b=c} dollars."},
    {1, "a:20-99 b:5-a c=a-b", "A book has {a} pages. By {day} {P} has read {b} of them. How many pages are left to read?",
     "There are {a-b=c} pages left."},
    {1, "a:2-9 b:10-60 c=a*b", "{P} rides {his} bike for {a} hours at {b} kilometers per hour. How many kilometers does {he} ride?",
     "{P} rides {a*b=c} kilometers."},
    {1, "c:3-12 b:2-8 a=b*c", "{P} packs {a} {things} into {boxes} of {b}. How many {boxes} does {he} fill?",
     "{P} fills {a/b=c} {boxes}."},
    /* ---- two steps ---- */
    {2, "a:2-10 b:2-9 c:2-20 d=a*b e=d+c", "{P} buys {a} {boxes} of {things}. Each {box} holds {b} {things}. Then {he} finds {c} more {things}. How many {things} does {P} have in all?",
     "The {boxes} hold {a*b=d} {things}.\nIn all {P} has {d+c=e} {things}."},
    {2, "a:2-10 b:3-9 d=a*b c:2-d e=d-c", "{P} has {a} {boxes} with {b} {things} each. {He} gives {c} {things} to {Q}. How many {things} does {P} have left?",
     "{P} has {a*b=d} {things} at first.\nThen {he} has {d-c=e} {things} left."},
    {2, "a:5-40 b:5-40 c:2-20 d=a+b e=d+c", "On Monday {P} sells {a} {things}, on Tuesday {b} and on Wednesday {c}. How many {things} does {he} sell in the three days?",
     "On Monday and Tuesday {P} sells {a+b=d} {things}.\nIn the three days {he} sells {d+c=e} {things}."},
    {2, "a:3-30 b:2-5 c=a*b d=a+c", "{P} has {a} {things}. {Q} has {b} times as many. How many {things} do they have together?",
     "{Q} has {a*b=c} {things}.\nTogether they have {a+c=d} {things}."},
    {2, "a:5-40 b:2-20 c=a+b d=a+c", "{P} has {a} {things}. {Q} has {b} more than {P}. How many {things} do they have together?",
     "{Q} has {a+b=c} {things}.\nTogether they have {a+c=d} {things}."},
    {2, "a:2-12 b:2-9 d=a*b e:1-40 c=d+e", "A {thing} costs ${a}. {P} has ${c} and buys {b} {things}. How many dollars does {he} have left?",
     "The {things} cost {a*b=d} dollars.\n{P} has {c-d=e} dollars left."},
    {2, "e:2-10 c:2-6 d=c*e b:2-20 a=d+b", "{P} has {a} {things}. {He} keeps {b} of them and shares the rest equally among {c} friends. How many {things} does each friend get?",
     "{P} shares {a-b=d} {things}.\nEach friend gets {d/c=e} {things}."},
    {2, "a:2-9 b:2-9 c:5-30 d=a*b e=c*d", "{P} works {a} hours a day for {b} days and earns ${c} an hour. How many dollars does {he} earn?",
     "{P} works {a*b=d} hours.\n{He} earns {c*d=e} dollars."},
    {2, "b:4-30 a=b*2 c=a+b", "{P} picks {a} {things} in the morning and half as many in the afternoon. How many {things} does {he} pick that day?",
     "In the afternoon {P} picks {a/2=b} {things}.\nThat day {he} picks {a+b=c} {things}."},
    {2, "a:2-9 b:2-9 d=a*b c:2-9 e=d*c", "A shop gets {a} {boxes} of {things} every day. There are {b} {things} in a {box}. How many {things} does the shop get in {c} days?",
     "The shop gets {a*b=d} {things} a day.\nIn {c} days it gets {d*c=e} {things}."},
    {2, "a:5-40 b:5-40 d=a+b e:2-8 c=d/e", "{P} has {a} red and {b} blue {things}. {He} puts them into {e} {boxes}, the same number in each. How many {things} are in a {box}?",
     "{P} has {a+b=d} {things}.\nIn a {box} there are {d/e=c} {things}."},
    /* ---- three steps ---- */
    {3, "a:2-9 b:2-12 c:2-9 d:2-12 e=a*b f=c*d g=e+f", "{P} buys {a} {things} for ${b} each and {c} tickets for ${d} each. How many dollars does {he} spend?",
     "The {things} cost {a*b=e} dollars.\nThe tickets cost {c*d=f} dollars.\n{P} spends {e+f=g} dollars."},
    {3, "a:2-9 b:3-9 d=a*b c:2-20 e=d+c f:2-e g=e-f", "{P} has {a} {boxes} with {b} {things} each. On {day} {he} gets {c} more {things}, and then gives {f} {things} to {Q}. How many {things} does {P} have now?",
     "{P} has {a*b=d} {things} at first.\nOn {day} {he} has {d+c=e} {things}.\nNow {he} has {e-f=g} {things}."},
    {3, "a:3-20 b:2-4 c=a*b d:2-20 e=c+d f=a+e", "{P} has {a} {things}. {Q} has {b} times as many as {P}, and then finds {d} more. How many {things} do they have together?",
     "{Q} has {a*b=c} {things} at first.\nThen {Q} has {c+d=e} {things}.\nTogether they have {a+e=f} {things}."},
    {3, "a:4-12 b:3-9 d=a*b c:2-d e=d-c f:2-6 g=e/f", "{P} bakes {a} trays of {b} cookies. {c} cookies are burnt. {He} shares the good ones equally among {f} friends. How many cookies does each friend get?",
     "{P} bakes {a*b=d} cookies.\nThere are {d-c=e} good cookies.\nEach friend gets {e/f=g} cookies."},
    {3, "a:4-20 b:4-20 c:2-9 d=a+b e=d*c f:2-30 g=e+f", "Every day {P} walks {a} minutes to school and {b} minutes back. {He} does so on {c} days, and on {day} {he} also walks {f} minutes to the lake. How many minutes does {he} walk in all?",
     "{P} walks {a+b=d} minutes a day.\nIn {c} days that is {d*c=e} minutes.\nIn all {he} walks {e+f=g} minutes."},
    {3, "b:2-6 c:2-12 d=b*c e:2-15 f=d+e g:2-40 a=f+g", "{P} has ${a}. {He} buys {b} {things} for ${c} each and a bag for ${e}. How many dollars does {he} have left?",
     "The {things} cost {b*c=d} dollars.\nWith the bag {he} pays {d+e=f} dollars.\n{P} has {a-f=g} dollars left."},
    {3, "b:5-30 a=b*2 c=a+b d:2-c e=c-d", "{P} finds {a} {things} on Saturday and half as many on Sunday. {He} loses {d} of them. How many {things} does {he} still have?",
     "On Sunday {P} finds {a/2=b} {things}.\n{He} has {a+b=c} {things}.\n{He} still has {c-d=e} {things}."},
    {3, "a:2-8 b:2-8 c:2-8 d=a*b e:2-8 f=c*e g=d-f", "{P} fills {a} {boxes} with {b} {things} each. {Q} fills {c} {boxes} with {e} {things} each. How many more {things} does {P} have than {Q}?",
     "{P} has {a*b=d} {things}.\n{Q} has {c*e=f} {things}.\n{P} has {d-f=g} more {things}."},
    {3, "a:2-12 b:2-9 c=a*b d:2-12 e:2-9 f=d*e g=c+f", "A bus makes {a} trips with {b} people each in the morning, and {d} trips with {e} people each in the evening. How many people ride the bus that day?",
     "In the morning {a*b=c} people ride the bus.\nIn the evening {d*e=f} people ride it.\nThat day {c+f=g} people ride the bus."},
    /* ---- four steps ---- */
    {4, "a:2-9 b:2-12 c:2-9 d:2-12 e=a*b f=c*d g=e+f h:2-50 i=g+h", "{P} sells {a} {things} for ${b} each and {c} cakes for ${d} each. {He} already had ${h}. How many dollars does {he} have now?",
     "The {things} bring {a*b=e} dollars.\nThe cakes bring {c*d=f} dollars.\nTogether that is {e+f=g} dollars.\nNow {P} has {g+h=i} dollars."},
    {4, "a:3-9 b:2-4 c=a*b d:2-12 e=c+d f=a+e g:2-6 h=f/g", "{P} has {a} {things}. {Q} has {b} times as many and {d} more. They put all of them into {g} {boxes}, the same number in each. How many {things} are in a {box}?",
     "{b} times as many are {a*b=c} {things}.\n{Q} has {c+d=e} {things}.\nTogether they have {a+e=f} {things}.\nIn a {box} there are {f/g=h} {things}."},
    {4, "a:3-9 b:3-9 c=a*b d:2-15 e=c+d f:2-e g=e-f h:2-9 i=g*h", "{P} picks {b} {things} an hour for {a} hours, and {Q} gives {him} {d} more. {He} keeps {f} and sells the rest for ${h} each. How many dollars does {he} get?",
     "{P} picks {a*b=c} {things}.\nWith those of {Q} {he} has {c+d=e} {things}.\n{He} sells {e-f=g} {things}.\n{He} gets {g*h=i} dollars."},
    {4, "b:4-20 a=b*2 c=a+b d:2-5 e=c*d f:2-e g=e-f", "A farmer picks {a} kilograms of fruit before noon and half as much after noon, every day for {d} days. Then {f} kilograms are sold. How many kilograms are left?",
     "After noon {a/2=b} kilograms are picked.\nA day gives {a+b=c} kilograms.\nIn {d} days that is {c*d=e} kilograms.\nThere are {e-f=g} kilograms left."},
    {4, "a:2-6 b:3-9 c=a*b d:2-6 e:3-9 f=d*e g=c+f h:2-6 i=g/h", "{P} has {a} {boxes} of {b} {things} and {Q} has {d} {boxes} of {e} {things}. They share all of them equally among {h} children. How many {things} does each child get?",
     "{P} has {a*b=c} {things}.\n{Q} has {d*e=f} {things}.\nTogether they have {c+f=g} {things}.\nEach child gets {g/h=i} {things}."},
};
static const struct {
    const char *name;
    bool she;
} people[] = {
    {"Ada", 1}, {"Ali", 0}, {"Amir", 0}, {"Anna", 1}, {"Ben", 0}, {"Carla", 1}, {"Chen", 0}, {"Clara", 1}, {"David", 0},
    {"Dina", 1}, {"Elena", 1}, {"Emil", 0}, {"Eva", 1}, {"Felix", 0}, {"Grace", 1}, {"Hana", 1}, {"Hugo", 0}, {"Ines", 1},
    {"Ivan", 0}, {"Jamal", 0}, {"Jonas", 0}, {"Julia", 1}, {"Karim", 0}, {"Kira", 1}, {"Leo", 0}, {"Lena", 1}, {"Lucas", 0},
    {"Maria", 1}, {"Mateo", 0}, {"Mei", 1}, {"Milo", 0}, {"Nadia", 1}, {"Noah", 0}, {"Olga", 1}, {"Omar", 0}, {"Paula", 1},
    {"Priya", 1}, {"Rafael", 0}, {"Rosa", 1}, {"Sam", 0}, {"Sara", 1}, {"Theo", 0}, {"Tomas", 0}, {"Uma", 1}, {"Vera", 1},
    {"Victor", 0}, {"Yusuf", 0}, {"Zoe", 1},
};
static const struct noun {
    const char *one, *many;
} things[] = {
    {"apple", "apples"}, {"ball", "balls"}, {"bead", "beads"}, {"book", "books"}, {"button", "buttons"}, {"candle", "candles"},
    {"card", "cards"}, {"coin", "coins"}, {"crayon", "crayons"}, {"cup", "cups"}, {"doll", "dolls"}, {"egg", "eggs"},
    {"flower", "flowers"}, {"kite", "kites"}, {"lemon", "lemons"}, {"marble", "marbles"}, {"muffin", "muffins"},
    {"notebook", "notebooks"}, {"orange", "oranges"}, {"peach", "peaches"}, {"pear", "pears"}, {"pen", "pens"},
    {"pencil", "pencils"}, {"photo", "photos"}, {"plum", "plums"}, {"postcard", "postcards"}, {"puzzle", "puzzles"},
    {"ribbon", "ribbons"}, {"rose", "roses"}, {"seed", "seeds"}, {"shell", "shells"}, {"stamp", "stamps"}, {"stone", "stones"},
    {"sticker", "stickers"}, {"tomato", "tomatoes"}, {"toy car", "toy cars"},
}, boxes[] = {
    {"bag", "bags"}, {"basket", "baskets"}, {"box", "boxes"}, {"bucket", "buckets"}, {"carton", "cartons"},
    {"crate", "crates"}, {"jar", "jars"}, {"tin", "tins"},
};
/* clang-format on */
static const char *const days[] = {"Monday", "Tuesday",  "Wednesday", "Thursday",
                                   "Friday", "Saturday", "Sunday"};
const int ax_problem_n_stories = COUNT(ax_problem_stories);

static void draw_words(struct ax_problem_draw *d, const char *out[N_WORDS]) {
    const int64_t who = ax_problem_below(d, COUNT(people));
    const int64_t other = ax_problem_below(d, COUNT(people) - 1);
    const bool she = people[who].she;
    const struct noun *thing = &things[ax_problem_below(d, COUNT(things))];
    const struct noun *box = &boxes[ax_problem_below(d, COUNT(boxes))];
    const char *words[N_WORDS] = {"P",      people[who].name,
                                  "Q",      people[other + (other >= who)].name,
                                  "he",     she ? "she" : "he",
                                  "He",     she ? "She" : "He",
                                  "his",    she ? "her" : "his",
                                  "him",    she ? "her" : "him",
                                  "thing",  thing->one,
                                  "things", thing->many,
                                  "box",    box->one,
                                  "boxes",  box->many,
                                  "day",    days[ax_problem_below(d, COUNT(days))]};
    memcpy(out, words, sizeof words);
}

#define MAX_TRIES  10000                 /* far more than any story needs to get valid numbers */
#define MISTAKES   0x6D697374616B6573ULL /* they have a seed of their own */
#define TEST_SHARE 8

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

/* The end of a range at *s. */
static int64_t take_bound(const int64_t *values, const char **s, int64_t scale) {
    const bool is_number = isdigit((unsigned char)**s);
    return take_operand(values, s) * (is_number ? scale : 1);
}

/* "a:2-9 b=a*3"; false if a number is not valid, so that the caller draws again. */
static bool draw_numbers(struct ax_problem_draw *d, const char *s, int64_t scale, int64_t *values) {
    while (*s) {
        int64_t *to = &values[*s++ - 'a'];
        const char kind = *s++;
        const int64_t factor = kind == ':' ? scale : 1;
        const int64_t first = take_bound(values, &s, factor);
        const char op = *s++;
        const int64_t second = take_bound(values, &s, factor);
        AX_ASSERT(kind == '=' || (kind == ':' && op == '-'));
        if (kind == ':' ? second < first : !compute(first, op, second, to))
            return false;
        if (kind == ':')
            *to = first + ax_problem_below(d, second - first + 1);
        s += *s == ' ';
    }
    return true;
}

/* ---- a story is told ---- */

struct told {
    const struct ax_problem_story *story;
    int64_t values[26]; /* of the variables a … z */
    const char *words[N_WORDS];
};

static void tell(struct told *t, struct ax_problem_draw *d, struct ax_problem_kind kind) {
    int first = 0, last = ax_problem_n_stories, tries = 0;
    while (ax_problem_stories[first].level < kind.min_level)
        first++;
    while (ax_problem_stories[last - 1].level > kind.max_level)
        last--;
    *t = (struct told){.story = &ax_problem_stories[first + ax_problem_below(d, last - first)]};
    draw_words(d, t->words);
    while (!draw_numbers(d, t->story->numbers, kind.scale, t->values))
        AX_ASSERT(++tries < MAX_TRIES);
}

/* Appends n bytes of a story's text with its slots filled. */
static void put(struct ax_problem_text *out, const struct told *t, const char *text, size_t n) {
    ax_problem_fill(out, text, n, t->words, N_WORDS, t->values);
}

/* ---- mistakes ---- */

struct sum {
    int64_t a, b, result;
    char op;
};

/* Miscalculates. */
static bool slip(struct ax_problem_draw *d, struct sum *s) {
    static const int by[] = {-10, -2, -1, 1, 2, 10};
    s->result += by[ax_problem_below(d, COUNT(by))];
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

/* ---- programs ---- */

/* An operand at *s: a number, or in parentheses what an earlier step computes. */
static void put_operand(struct ax_problem_text *out, const struct told *t, const char **s) {
    const char result[] = {'=', **s, '}', '\0'};
    const char *step = islower((unsigned char)**s) ? strstr(t->story->steps, result) : NULL;
    const int64_t number = take_operand(t->values, s);
    if (!step) {
        ax_problem_put(out, "%lld", (long long)number);
        return;
    }
    while (step[-1] != '{')
        step--;
    ax_problem_put(out, "(");
    put_operand(out, t, &step);
    ax_problem_put(out, *step == '/' ? " // " : " %c ", *step);
    step++;
    put_operand(out, t, &step);
    ax_problem_put(out, ")");
}

/* "print((3 * 4) + 5)": a last step is an operand like those before it. */
static void put_program(struct ax_problem_text *out, const struct told *t) {
    const char *result = strrchr(t->story->steps, '=') + 1;
    ax_problem_put(out, "print");
    put_operand(out, t, &result);
}

void ax_problem_make(struct ax_problem *out, uint64_t seed, uint64_t index,
                     struct ax_problem_kind kind, int *mistake) {
    struct ax_problem_draw d = ax_problem_draw(seed, index);
    struct told t;
    int tries = 0;
    tell(&t, &d, kind);
    *out =
        (struct ax_problem){.level = t.story->level, .story = (int)(t.story - ax_problem_stories)};
    put(&out->question, &t, t.story->question, strlen(t.story->question));
    put_program(&out->program, &t);
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

json_t *ax_problem_tool_row(const struct ax_problem *p, json_t *python) {
    const struct ax_problem_text question = asked(p);
    struct ax_problem_text result = {.n = 0}, answer = {.n = 0};
    ax_problem_put(&result, "%lld", (long long)p->answer);
    put_line(&answer, p, p->level);
    return json_pack("{s[{ssss}{sssss[{sss{sss{ss}}}]}{ssssss}{ssss}]s[O]sisI}", "messages", "role",
                     "user", "content", question.s, "role", "assistant", "content", "",
                     "tool_calls", "type", "function", "function", "name", "python", "arguments",
                     "code", p->program.s, "role", "tool", "name", "python", "content", result.s,
                     "role", "assistant", "content", answer.s, "tools", python, "level", p->level,
                     "final_answer", (json_int_t)p->answer);
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
