/* Read the table at the end first. BLEU and chrF compare n-grams of words or characters. */
#include "optim/evaluate/tasks/translation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "optim/evaluate/tasks/python.h"
#include "data/text/jinja/unicode.h"

#define BLEU_ORDER 4
#define CHAR_ORDER 6
#define WORD_ORDER 2
#define BETA       2
#define MAX_ORDER  CHAR_ORDER

/* ---- n-grams ---- */

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

static enum ax_status match(const struct ax_word_ids *w, size_t order, struct matches *out) {
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
    return c == ' ' || (ax_is_sign(c) && c != '\'' && c != '-' && !is_stop(c));
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
    struct ax_word_ids w = {0};
    enum ax_status st;
    AX_TRY_GOTO(tokenize(target, &a), st, done);
    AX_TRY_GOTO(tokenize(answer, &b), st, done);
    AX_TRY_GOTO(ax_word_ids_make(&w, (struct ax_translation_text){a.data, a.len},
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
    ax_word_ids_free(&w);
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

static enum ax_status count_orders(const struct ax_word_ids *w, size_t orders, double *counts) {
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
    struct ax_word_ids w = {0};
    AX_TRY(ax_alloc(&w.ids, target.n + answer.n, sizeof *w.ids));
    w.target = characters(target, w.ids);
    w.answer = characters(answer, w.ids + w.target);
    const enum ax_status st = count_orders(&w, CHAR_ORDER, counts);
    ax_word_ids_free(&w);
    return st;
}

static enum ax_status count_chrf_words(struct ax_translation_text target,
                                       struct ax_translation_text answer, double *counts) {
    struct ax_word_ids w;
    AX_TRY(count_chrf(target, answer, counts));
    enum ax_status st = ax_word_ids_make(&w, target, answer, true);
    if (st == AX_OK)
        st = count_orders(&w, WORD_ORDER, counts + (size_t)3 * CHAR_ORDER);
    ax_word_ids_free(&w);
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

static enum ax_status count_ter(struct ax_translation_text target,
                                struct ax_translation_text answer, double *counts) {
    struct ax_buf a = {0}, b = {0};
    struct ax_word_ids w = {0};
    int64_t edits;
    enum ax_status st;
    AX_TRY_GOTO(ax_buf_append(&a, target.s, target.n), st, done);
    AX_TRY_GOTO(ax_buf_append(&b, answer.s, answer.n), st, done);
    AX_TRY_GOTO(ax_python_case(&a, false), st, done);
    AX_TRY_GOTO(ax_python_case(&b, false), st, done);
    AX_TRY_GOTO(ax_word_ids_make(&w, (struct ax_translation_text){a.data, a.len},
                                 (struct ax_translation_text){b.data, b.len}, false),
                st, done);
    AX_TRY_GOTO(ax_ter_edits(&w, &edits), st, done);
    counts[0] = (double)edits;
    counts[1] = (double)w.target;
done:
    ax_word_ids_free(&w);
    ax_buf_free(&a);
    ax_buf_free(&b);
    return st;
}

static double score_ter(const double *sums) {
    return 100 * (sums[1] > 0 ? sums[0] / sums[1] : sums[0] > 0 ? 1 : 0);
}

/* ---- all ---- */

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
