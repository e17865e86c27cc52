/* Numbers the words of two texts: read ax_word_ids_make first. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "optim/evaluate/tasks/translation.h"
#include "data/text/jinja/unicode.h"

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
        const size_t cut = x.n == 1                   ? 0
                           : ax_is_sign(x.s[x.n - 1]) ? x.n - 1
                           : ax_is_sign(x.s[0])       ? 1
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

enum ax_status ax_word_ids_make(struct ax_word_ids *w, struct ax_translation_text target,
                                struct ax_translation_text answer, bool signs) {
    enum ax_status (*const f)(struct words *, struct ax_translation_text) =
        signs ? split_signs : split;
    struct words all = {0};
    uint32_t id = 0;
    enum ax_status st;
    *w = (struct ax_word_ids){0};
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

void ax_word_ids_free(struct ax_word_ids *w) {
    ax_free(w->ids);
    *w = (struct ax_word_ids){0};
}
