/* Tercom's greedy search, with sacrebleu's limits: read ax_ter_edits first. Each round moves a
 * piece of the answer that also occurs in the target to its place there, choosing the shift that
 * lowers the edit distance most, until none lowers it. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "optim/evaluate/tasks/translation.h"

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

/* ---- edit distance ---- */

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

/* ---- shifts ---- */

struct shift {
    int32_t gain; /* reduction of the edit distance */
    int64_t start, n, to;
};

/* Moves words [start, start + n) to before word `to`; if that is inside the piece, by as many words
 * to the right. */
static void move(struct search *s, const struct shift *x, uint32_t *out) {
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

static bool any(const bool *v, int64_t n) {
    return memchr(v, true, (size_t)n) != NULL;
}

/* Tries all destinations for a piece that occurs in the target at `at`. */
static void try_goals(struct search *s, int32_t before, struct shift x, int64_t at,
                      struct shift *best) {
    int64_t last = -1;
    if (!any(s->wrong + x.start, x.n) || !any(s->wrong_target + at, x.n))
        return;
    if (s->align[at] >= x.start && s->align[at] < x.start + x.n)
        return;
    for (int64_t k = at - 1; k < at + x.n && k < s->n; k++) {
        x.to = k < 0 ? 0 : s->align[k] + 1;
        if (x.to == last)
            continue;
        last = x.to;
        move(s, &x, s->shifted);
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

/* ---- all ---- */

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

enum ax_status ax_ter_edits(const struct ax_word_ids *w, int64_t *edits) {
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
