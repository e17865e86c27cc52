/* Read the table at the end first. BLEU and chrF compare n-grams of words or characters. */
#include "optim/evaluate/tasks/translation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/text/jinja/unicode.h"
#include "optim/evaluate/tasks/python.h"

/* ---- words ---- */

/* True for !"#$%&'()*+,-./:;<=>?@[\]^_`{|}~ */
static bool is_punctuation(char c) {
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
}

/* The words of two texts as numbers; equal words have equal numbers. */
struct word_ids {
    uint32_t *ids; /* words of the target, then of the answer */
    size_t target, answer;
};

struct word {
    const char *s;
    size_t n, at;
};

struct words {
    struct word *list;
    size_t n, cap;
};

static enum ax_status add_word(struct words *w, const char *s, size_t n) {
    if (w->n == w->cap) {
        const size_t cap = w->cap > 0 ? 2 * w->cap : 64;
        AX_TRY(ax_regrow(&w->list, w->cap, cap, sizeof *w->list));
        w->cap = cap;
    }
    w->list[w->n] = (struct word){s, n, w->n};
    w->n++;
    return AX_OK;
}

/* As str.split() in Python. */
static enum ax_status split(struct words *w, struct ax_translation_text t) {
    size_t from = 0;
    for (size_t at = 0; at < t.n;) {
        const size_t here = at;
        if (!ax_python_is_space(ax_python_next(t.s, &at)))
            continue;
        if (here > from)
            AX_TRY(add_word(w, t.s + from, here - from));
        from = at;
    }
    return t.n > from ? add_word(w, t.s + from, t.n - from) : AX_OK;
}

/* As str.split(); then a sign at the end of a word, or else at its beginning, becomes a word. */
static enum ax_status split_signs(struct words *w, struct ax_translation_text t) {
    struct words plain = {0};
    enum ax_status st = split(&plain, t);
    for (size_t i = 0; i < plain.n && st == AX_OK; i++) {
        const struct word x = plain.list[i];
        const size_t cut = x.n == 1                       ? 0
                           : is_punctuation(x.s[x.n - 1]) ? x.n - 1
                           : is_punctuation(x.s[0])       ? 1
                                                          : 0;
        if (cut > 0)
            st = add_word(w, x.s, cut);
        if (st == AX_OK)
            st = add_word(w, x.s + cut, x.n - cut);
    }
    ax_free(plain.list);
    return st;
}

static int by_text(const void *a, const void *b) {
    const struct word *x = a, *y = b;
    const int c = memcmp(x->s, y->s, x->n < y->n ? x->n : y->n);
    return c != 0 ? c : (x->n > y->n) - (x->n < y->n);
}

/* White space separates words. `signs`: a sign at the end of a word, or else at its beginning,
 * becomes a word. */
static enum ax_status number_words(struct word_ids *w, struct ax_translation_text target,
                                   struct ax_translation_text answer, bool signs) {
    enum ax_status (*const f)(struct words *, struct ax_translation_text) =
        signs ? split_signs : split;
    struct words all = {0};
    uint32_t id = 0;
    enum ax_status st;
    *w = (struct word_ids){0};
    AX_TRY_GOTO(f(&all, target), st, done);
    w->target = all.n;
    AX_TRY_GOTO(f(&all, answer), st, done);
    w->answer = all.n - w->target;
    AX_TRY_GOTO(ax_alloc(&w->ids, all.n, sizeof *w->ids), st, done);
    if (all.n > 0)
        qsort(all.list, all.n, sizeof *all.list, by_text);
    for (size_t i = 0; i < all.n; i++) {
        id += i > 0 && by_text(&all.list[i - 1], &all.list[i]) != 0;
        w->ids[all.list[i].at] = id;
    }
done:
    ax_free(all.list);
    return st;
}

static void word_ids_free(struct word_ids *w) {
    ax_free(w->ids);
    *w = (struct word_ids){0};
}

/* ---- n-grams ---- */

#define BLEU_ORDER 4
#define CHAR_ORDER 6
#define WORD_ORDER 2
#define BETA       2
#define MAX_ORDER  CHAR_ORDER

struct gram {
    uint32_t s[MAX_ORDER]; /* 0 beyond the gram's order */
};

static int by_symbols(const void *a, const void *b) {
    return memcmp(a, b, sizeof(struct gram));
}

static enum ax_status sorted_grams(const uint32_t *s, size_t n, size_t order, struct gram **out) {
    const size_t count = n >= order ? n - order + 1 : 0;
    AX_TRY(ax_alloc(out, count, sizeof **out));
    for (size_t i = 0; i < count; i++)
        memcpy((*out)[i].s, s + i, order * sizeof *s);
    if (count > 0)
        qsort(*out, count, sizeof **out, by_symbols);
    return AX_OK;
}

/* Numbers of n-grams in the answer, in the target, and in both. */
struct matches {
    double answer, target, both;
};

static enum ax_status match(const struct word_ids *w, size_t order, struct matches *out) {
    const size_t n[2] = {w->target >= order ? w->target - order + 1 : 0,
                         w->answer >= order ? w->answer - order + 1 : 0};
    struct gram *target = NULL, *answer = NULL;
    enum ax_status st;
    *out = (struct matches){.answer = (double)n[1], .target = (double)n[0]};
    AX_TRY_GOTO(sorted_grams(w->ids, w->target, order, &target), st, done);
    AX_TRY_GOTO(sorted_grams(w->ids + w->target, w->answer, order, &answer), st, done);
    for (size_t i = 0, k = 0; i < n[0] && k < n[1];) {
        const int c = by_symbols(&target[i], &answer[k]);
        out->both += c == 0;
        i += c <= 0;
        k += c >= 0;
    }
done:
    ax_free(target);
    ax_free(answer);
    return st;
}

/* ---- BLEU: words of the answer, of the target; matches and n-grams by order ---- */

static enum ax_status replace(struct ax_buf *s, const char *from, const char *to) {
    struct ax_buf out = {0};
    const size_t n = strlen(from);
    size_t at = 0;
    enum ax_status st = ax_buf_append(&out, "", 0);
    while (st == AX_OK && at < s->len) {
        const char *hit = memmem(s->data + at, s->len - at, from, n);
        const size_t end = hit ? (size_t)(hit - s->data) : s->len;
        st = ax_buf_append(&out, s->data + at, end - at);
        if (st == AX_OK && hit)
            st = ax_buf_puts(&out, to);
        at = hit ? end + n : end;
    }
    ax_buf_free(s);
    *s = out;
    return st;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_stop(char c) {
    return c == '.' || c == ',';
}

/* Inserts spaces around one or two characters; one of the four passes of mteval-v13a. */
struct pass {
    bool (*first)(char c), (*second)(char c); /* second NULL: only one character */
    const char *form;                         /* a and b are the two characters */
};

static bool is_sign(char c) {
    return c == ' ' || (is_punctuation(c) && c != '\'' && c != '-' && !is_stop(c));
}
static bool no_digit(char c) {
    return !is_digit(c);
}
static bool is_dash(char c) {
    return c == '-';
}

static enum ax_status run_pass(const struct pass *p, struct ax_buf *s) {
    struct ax_buf out = {0};
    enum ax_status st = ax_buf_append(&out, "", 0);
    for (size_t at = 0; at < s->len && st == AX_OK;) {
        const bool two = p->second != NULL;
        const bool fits =
            p->first(s->data[at]) && (!two || (at + 1 < s->len && p->second(s->data[at + 1])));
        if (!fits) {
            st = ax_buf_append(&out, &s->data[at++], 1);
            continue;
        }
        for (const char *f = p->form; *f && st == AX_OK; f++)
            st = ax_buf_append(&out, *f == ' ' ? " " : &s->data[at + (*f == 'b')], 1);
        at += two ? 2 : 1;
    }
    ax_buf_free(s);
    *s = out;
    return st;
}

/* Splits a text as mteval-v13a does, into words separated by white space. */
static enum ax_status tokenize(struct ax_translation_text t, struct ax_buf *out) {
    static const char *const texts[][2] = {{"<skipped>", ""}, {"-\n", ""},    {"\n", " "},
                                           {"&quot;", "\""},  {"&amp;", "&"}, {"&lt;", "<"},
                                           {"&gt;", ">"}};
    static const struct pass passes[] = {{is_sign, NULL, " a "},
                                         {no_digit, is_stop, "a b "},
                                         {is_stop, no_digit, " a b"},
                                         {is_digit, is_dash, "a b "}};
    AX_TRY(ax_buf_append(out, " ", 1));
    AX_TRY(ax_buf_append(out, t.s, ax_python_rstrip(t.s, t.n)));
    AX_TRY(ax_buf_append(out, " ", 1));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        AX_TRY(replace(out, texts[i][0], texts[i][1]));
    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++)
        AX_TRY(run_pass(&passes[i], out));
    return AX_OK;
}

static enum ax_status count_bleu(struct ax_translation_text target,
                                 struct ax_translation_text answer, double *counts) {
    struct ax_buf a = {0}, b = {0};
    struct word_ids w = {0};
    enum ax_status st;
    AX_TRY_GOTO(tokenize(target, &a), st, done);
    AX_TRY_GOTO(tokenize(answer, &b), st, done);
    AX_TRY_GOTO(number_words(&w, (struct ax_translation_text){a.data, a.len},
                             (struct ax_translation_text){b.data, b.len}, false),
                st, done);
    counts[0] = (double)w.answer;
    counts[1] = (double)w.target;
    for (size_t n = 0; n < BLEU_ORDER; n++) {
        struct matches m;
        AX_TRY_GOTO(match(&w, n + 1, &m), st, done);
        counts[2 + n] = m.both;
        counts[2 + BLEU_ORDER + n] = m.answer;
    }
done:
    word_ids_free(&w);
    ax_buf_free(&a);
    ax_buf_free(&b);
    return st;
}

/* The geometric mean of the precisions. Instead of zero matches, the first such order counts a
 * half, the next a quarter, and so on. */
static double score_bleu(const double *sums) {
    const double *both = sums + 2, *all = sums + 2 + BLEU_ORDER;
    double logs = 0, half = 1, matches = 0;
    for (int n = 0; n < BLEU_ORDER; n++)
        matches += both[n];
    if (!(matches > 0))
        return 0;
    for (int n = 0; n < BLEU_ORDER; n++) {
        if (!(all[n] > 0))
            return 0; /* all texts are shorter than n + 1 words */
        if (!(both[n] > 0))
            half /= 2;
        logs += log(100 * (both[n] > 0 ? both[n] : half) / all[n]);
    }
    return (sums[0] < sums[1] ? exp(1 - sums[1] / sums[0]) : 1) * exp(logs / BLEU_ORDER);
}

/* ---- chrF: for each order n-grams of the answer, of the target, and matches ---- */

/* Writes the characters other than white space; returns their number. */
static size_t characters(struct ax_translation_text t, uint32_t *out) {
    size_t n = 0;
    for (size_t at = 0; at < t.n;) {
        const uint32_t c = ax_python_next(t.s, &at);
        if (!ax_python_is_space(c))
            out[n++] = c;
    }
    return n;
}

static enum ax_status count_orders(const struct word_ids *w, size_t orders, double *counts) {
    for (size_t n = 0; n < orders; n++) {
        struct matches m;
        AX_TRY(match(w, n + 1, &m));
        counts[3 * n] = m.target > 0 ? m.answer : 0;
        counts[3 * n + 1] = m.target;
        counts[3 * n + 2] = m.both;
    }
    return AX_OK;
}

static enum ax_status count_chrf(struct ax_translation_text target,
                                 struct ax_translation_text answer, double *counts) {
    struct word_ids w = {0};
    AX_TRY(ax_alloc(&w.ids, target.n + answer.n, sizeof *w.ids));
    w.target = characters(target, w.ids);
    w.answer = characters(answer, w.ids + w.target);
    const enum ax_status st = count_orders(&w, CHAR_ORDER, counts);
    word_ids_free(&w);
    return st;
}

static enum ax_status count_chrf_words(struct ax_translation_text target,
                                       struct ax_translation_text answer, double *counts) {
    struct word_ids w;
    AX_TRY(count_chrf(target, answer, counts));
    enum ax_status st = number_words(&w, target, answer, true);
    if (st == AX_OK)
        st = count_orders(&w, WORD_ORDER, counts + (size_t)3 * CHAR_ORDER);
    word_ids_free(&w);
    return st;
}

/* The F-score of mean precision and mean recall, over the orders that both texts have. */
static double f_score(const double *sums, int orders) {
    const double factor = BETA * BETA;
    double precision = 0, recall = 0;
    int n = 0;
    for (int i = 0; i < orders; i++) {
        const double answer = sums[3 * i], target = sums[3 * i + 1], both = sums[3 * i + 2];
        if (!(answer > 0 && target > 0))
            continue;
        precision += both / answer;
        recall += both / target;
        n++;
    }
    if (!(precision + recall > 0))
        return 0;
    precision /= n;
    recall /= n;
    return 100 * ((1 + factor) * precision * recall / (factor * precision + recall));
}

static double score_chrf(const double *sums) {
    return f_score(sums, CHAR_ORDER);
}

static double score_chrf_words(const double *sums) {
    return f_score(sums, CHAR_ORDER + WORD_ORDER);
}

/* ---- TER: edits, and words of the target ---- */

/* Tercom's greedy search, with sacrebleu's limits: read ter_edits first. Each round moves a piece of the
 * answer that also occurs in the target to its place there, choosing the shift that lowers the edit
 * distance most, until none lowers it. */

#define MAX_SHIFT_SIZE 10
#define MAX_SHIFT_DIST 50
#define MAX_CANDIDATES 1000 /* in all rounds */
#define BEAM           25   /* cells on each side of the diagonal */
#define FAR            (INT32_MAX / 2)

enum { UNKNOWN, INSERT, DELETE, EQUAL, REPLACE };

struct cell {
    int32_t cost;
    uint8_t op; /* last operation on the way to this cell */
};

struct search {
    const uint32_t *target;
    int64_t n, m;                     /* words of target and answer */
    struct cell *cells;               /* [m + 1][n + 1] */
    uint32_t *words, *shifted, *best; /* [m]: the answer; a candidate; the best candidate */
    int64_t *align; /* [n]: the last word of the answer aligned with each word of the target */
    bool *wrong_target, *wrong; /* [n], [m]: whether the word is changed */
    int64_t candidates;
};

/* Only cells within `beam` of the diagonal are computed; the others stay FAR. */
static void fill_row(struct search *s, const uint32_t *words, int64_t i, double ratio,
                     int64_t beam) {
    const int64_t width = s->n + 1, diagonal = (int64_t)floor((double)i * ratio);
    const int64_t from = diagonal > beam ? diagonal - beam : 0;
    int64_t to = diagonal + beam < width ? diagonal + beam : width;
    struct cell *row = s->cells + i * width, *above = row - width;
    for (int64_t j = 0; j < width; j++)
        row[j] = (struct cell){FAR, UNKNOWN};
    if (i == s->m)
        to = width;
    for (int64_t j = from; j < to; j++) {
        struct cell c = {above[j].cost + 1, DELETE};
        if (j > 0) {
            const bool same = words[i - 1] == s->target[j - 1];
            const int32_t across = above[j - 1].cost + !same;
            if (across <= c.cost)
                c = (struct cell){across, same ? EQUAL : REPLACE};
            if (row[j - 1].cost + 1 < c.cost)
                c = (struct cell){row[j - 1].cost + 1, INSERT};
        }
        if (c.cost < FAR)
            row[j] = c;
    }
}

static int32_t distance(struct search *s, const uint32_t *words) {
    const double ratio = s->m > 0 ? (double)s->n / (double)s->m : 1;
    const int64_t beam = BEAM < ratio / 2 ? (int64_t)ceil(ratio / 2 + BEAM) : BEAM;
    for (int64_t j = 0; j <= s->n; j++)
        s->cells[j] = (struct cell){(int32_t)j, INSERT};
    for (int64_t i = 1; i <= s->m; i++)
        fill_row(s, words, i, ratio, beam);
    return s->cells[(s->m + 1) * (s->n + 1) - 1].cost;
}

/* Follows the operations backward from the last cell. */
static void align(struct search *s) {
    for (int64_t i = s->m, j = s->n; i > 0 || j > 0;) {
        const int op = s->cells[i * (s->n + 1) + j].op;
        AX_ASSERT(op != UNKNOWN); /* the beam is wider than a step of the diagonal */
        if (op != INSERT)
            s->wrong[--i] = op != EQUAL;
        if (op == DELETE)
            continue;
        s->wrong_target[--j] = op != EQUAL;
        s->align[j] = op == INSERT ? i - 1 : i;
    }
}

struct shift {
    int32_t gain; /* reduction of the edit distance */
    int64_t start, n, to;
};

/* Moves words [start, start + n) to before word `to`; if that is inside the piece, by as many words
 * to the right. */
static void move_words(struct search *s, const struct shift *x, uint32_t *out) {
    const int64_t end = x->start + x->n, most = s->m - x->n;
    int64_t at = x->to > end ? x->to - x->n : x->to, from = 0;
    at = at < most ? at : most;
    for (int64_t k = 0; k < s->m; k++) {
        if (k >= at && k < at + x->n) {
            out[k] = s->words[x->start + (k - at)];
            continue;
        }
        if (from == x->start)
            from = end;
        out[k] = s->words[from++];
    }
}

/* Prefers more gain, then the longer piece, then the earlier one, then the earlier destination. */
static bool is_better(const struct shift *a, const struct shift *b) {
    if (a->gain != b->gain)
        return a->gain > b->gain;
    if (a->n != b->n)
        return a->n > b->n;
    return a->start != b->start ? a->start < b->start : a->to < b->to;
}

static bool any_wrong(const bool *v, int64_t n) {
    return memchr(v, true, (size_t)n) != NULL;
}

/* Tries all destinations for a piece that occurs in the target at `at`. */
static void try_goals(struct search *s, int32_t before, struct shift x, int64_t at,
                      struct shift *best) {
    int64_t last = -1;
    if (!any_wrong(s->wrong + x.start, x.n) || !any_wrong(s->wrong_target + at, x.n))
        return;
    if (s->align[at] >= x.start && s->align[at] < x.start + x.n)
        return;
    for (int64_t k = at - 1; k < at + x.n && k < s->n; k++) {
        x.to = k < 0 ? 0 : s->align[k] + 1;
        if (x.to == last)
            continue;
        last = x.to;
        move_words(s, &x, s->shifted);
        x.gain = before - distance(s, s->shifted);
        s->candidates++;
        if (best->n == 0 || is_better(&x, best)) {
            *best = x;
            memcpy(s->best, s->shifted, (size_t)s->m * sizeof *s->best);
        }
    }
}

static struct shift best_shift(struct search *s) {
    const int32_t before = distance(s, s->words);
    struct shift best = {0};
    align(s);
    for (int64_t i = 0; i < s->m; i++) {
        for (int64_t j = 0; j < s->n; j++) {
            if (j - i > MAX_SHIFT_DIST || i - j > MAX_SHIFT_DIST)
                continue;
            for (int64_t n = 0; n < MAX_SHIFT_SIZE && i + n < s->m && j + n < s->n &&
                                s->words[i + n] == s->target[j + n];
                 n++) {
                const int64_t tried = s->candidates;
                try_goals(s, before, (struct shift){.start = i, .n = n + 1}, j, &best);
                if (s->candidates > tried && s->candidates >= MAX_CANDIDATES)
                    return best;
            }
        }
    }
    return best;
}

static int64_t search_edits(struct search *s) {
    int64_t shifts = 0;
    for (;;) {
        const struct shift best = best_shift(s);
        if (s->candidates >= MAX_CANDIDATES || best.n == 0 || best.gain <= 0)
            return shifts + distance(s, s->words);
        memcpy(s->words, s->best, (size_t)s->m * sizeof *s->words);
        shifts++;
    }
}

/* The fewest insertions, deletions, substitutions and shifts found by Tercom's search that turn the
 * answer into the target. */
static enum ax_status ter_edits(const struct word_ids *w, int64_t *edits) {
    struct search s = {.target = w->ids, .n = (int64_t)w->target, .m = (int64_t)w->answer};
    enum ax_status st;
    *edits = s.m;
    if (s.n == 0)
        return AX_OK;
    size_t cells;
    if (ax_mul_overflow(w->target + 1, w->answer + 1, &cells))
        return ax_error(AX_ERR_DATA, "ter: texts of %zu and %zu words are too long", w->target,
                        w->answer);
    AX_TRY_GOTO(ax_alloc(&s.cells, cells, sizeof *s.cells), st, done);
    AX_TRY_GOTO(ax_alloc(&s.words, w->answer, sizeof *s.words), st, done);
    AX_TRY_GOTO(ax_alloc(&s.shifted, w->answer, sizeof *s.shifted), st, done);
    AX_TRY_GOTO(ax_alloc(&s.best, w->answer, sizeof *s.best), st, done);
    AX_TRY_GOTO(ax_alloc(&s.align, w->target, sizeof *s.align), st, done);
    AX_TRY_GOTO(ax_alloc(&s.wrong_target, w->target, sizeof(bool)), st, done);
    AX_TRY_GOTO(ax_alloc(&s.wrong, w->answer, sizeof(bool)), st, done);
    memcpy(s.words, w->ids + w->target, w->answer * sizeof *s.words);
    *edits = search_edits(&s);
done:
    ax_free(s.cells);
    ax_free(s.words);
    ax_free(s.shifted);
    ax_free(s.best);
    ax_free(s.align);
    ax_free(s.wrong_target);
    ax_free(s.wrong);
    return st;
}

static enum ax_status count_ter(struct ax_translation_text target,
                                struct ax_translation_text answer, double *counts) {
    struct ax_buf a = {0}, b = {0};
    struct word_ids w = {0};
    int64_t edits;
    enum ax_status st;
    AX_TRY_GOTO(ax_buf_append(&a, target.s, target.n), st, done);
    AX_TRY_GOTO(ax_buf_append(&b, answer.s, answer.n), st, done);
    AX_TRY_GOTO(ax_python_case(&a, false), st, done);
    AX_TRY_GOTO(ax_python_case(&b, false), st, done);
    AX_TRY_GOTO(number_words(&w, (struct ax_translation_text){a.data, a.len},
                             (struct ax_translation_text){b.data, b.len}, false),
                st, done);
    AX_TRY_GOTO(ter_edits(&w, &edits), st, done);
    counts[0] = (double)edits;
    counts[1] = (double)w.target;
done:
    word_ids_free(&w);
    ax_buf_free(&a);
    ax_buf_free(&b);
    return st;
}

static double score_ter(const double *sums) {
    return 100 * (sums[1] > 0 ? sums[0] / sums[1] : sums[0] > 0 ? 1 : 0);
}

/* ---- the table ---- */

const struct ax_translation *ax_translation(enum ax_task_aggregation how) {
    static const struct ax_translation list[] = {
        [AX_AGGREGATE_BLEU] = {2 + 2 * BLEU_ORDER, count_bleu, score_bleu},
        [AX_AGGREGATE_CHRF] = {3 * CHAR_ORDER, count_chrf, score_chrf},
        [AX_AGGREGATE_CHRF_WORDS] = {3 * (CHAR_ORDER + WORD_ORDER), count_chrf_words,
                                     score_chrf_words},
        [AX_AGGREGATE_TER] = {2, count_ter, score_ter},
    };
    return list[how].n > 0 ? &list[how] : NULL;
}
