#include "data/records/format/example.h"

#include <string.h>

#include "base/mem.h"

/* ---- oddities ---- */

static void add_oddities(struct ax_oddities *o, int64_t n, int64_t file, int64_t line) {
    if (o->n == 0 || file < o->file || (file == o->file && line < o->line)) {
        o->file = file;
        o->line = line;
    }
    o->n += n;
}

void ax_oddities_count(struct ax_oddities *o, unsigned oddities, const struct ax_origin *origin) {
    for (int i = 0; i < AX_ODDITIES; i++)
        if (oddities >> i & 1U)
            add_oddities(&o[i], 1, origin->file, (int64_t)origin->line);
}

void ax_oddities_add(struct ax_oddities *o, const struct ax_oddities *more) {
    for (int i = 0; i < AX_ODDITIES; i++)
        if (more[i].n > 0)
            add_oddities(&o[i], more[i].n, more[i].file, more[i].line);
}

/* ---- lists ---- */

static enum ax_status reserve(struct ax_example_list *l, size_t more) {
    if (l->n_tokens + more <= l->cap_tokens)
        return AX_OK;
    size_t cap = l->cap_tokens ? l->cap_tokens : 1024;
    while (cap < l->n_tokens + more)
        cap *= 2;
    AX_TRY(ax_regrow(&l->tokens, l->cap_tokens, cap, sizeof *l->tokens));
    AX_TRY(ax_regrow(&l->labels, l->cap_tokens, cap, sizeof *l->labels));
    l->cap_tokens = cap;
    for (size_t i = 0, at = 0; i < l->n; at += l->items[i++].n) {
        l->items[i].tokens = l->tokens + at;
        l->items[i].labels = l->labels + at;
    }
    return AX_OK;
}

enum ax_status ax_example_list_add(struct ax_example_list *l, const int32_t *tokens,
                                   const int32_t *labels, size_t n, bool trained) {
    AX_TRY(reserve(l, n));
    for (size_t i = 0; i < n; i++) {
        l->tokens[l->n_tokens + i] = tokens[i];
        l->labels[l->n_tokens + i] = labels ? labels[i] : trained ? tokens[i] : AX_NO_LABEL;
    }
    l->n_tokens += n;
    l->n_open += n;
    return AX_OK;
}

/* Words for the columns of an example of n tokens, all zero. */
static enum ax_status add_words(struct ax_example_list *l, size_t n) {
    const int n_columns = ax_columns_count(l->columns);
    const size_t more = ax_columns_words(l->columns, n_columns, n);
    if (l->n_words + more > l->cap_words) {
        const size_t cap = 2 * (l->n_words + more);
        AX_TRY(ax_regrow(&l->words, l->cap_words, cap, sizeof *l->words));
        l->cap_words = cap;
        uint32_t *at = l->words;
        for (size_t i = 0; i < l->n; i++)
            for (int c = 0; c < n_columns; at += ax_column_words(l->columns, c++, l->items[i].n))
                l->items[i].columns[c] = at;
    }
    if (more > 0)
        memset(l->words + l->n_words, 0, more * sizeof *l->words);
    l->n_words += more;
    return AX_OK;
}

size_t ax_score_position(const int32_t *tokens, size_t n, int32_t pad) {
    AX_ASSERT(n > 0);
    size_t at = n - 1;
    while (at > 0 && tokens[at] == pad)
        at--;
    return at;
}

enum ax_status ax_example_list_end(struct ax_example_list *l, struct ax_origin origin) {
    if (l->n_open == 0)
        return AX_OK;
    AX_TRY(ax_grow(&l->items, l->n, &l->cap, sizeof *l->items));
    const size_t start = l->n_tokens - l->n_open, words = l->n_words;
    AX_TRY(add_words(l, l->n_open));
    struct ax_example *x = &l->items[l->n++];
    *x = (struct ax_example){
        .tokens = l->tokens + start, .labels = l->labels + start, .n = l->n_open, .origin = origin};
    for (int c = 0; c < ax_columns_count(l->columns); c++)
        x->columns[c] = l->words + words + ax_columns_words(l->columns, c, x->n);
    l->n_open = 0;
    return AX_OK;
}

uint32_t *ax_example_list_words(struct ax_example_list *l, size_t i, int column) {
    AX_ASSERT(i < l->n && column < ax_columns_count(l->columns));
    return (uint32_t *)(uintptr_t)l->items[i].columns[column];
}

void ax_example_list_set(struct ax_example_list *l, size_t i, int column, const void *values) {
    memcpy(ax_example_list_words(l, i, column), values,
           ax_column_words(l->columns, column, l->items[i].n) * sizeof(uint32_t));
}

enum ax_status ax_example_list_text(struct ax_example_list *l, const char *text, size_t n) {
    AX_ASSERT(l->n > 0 && !l->items[l->n - 1].text && n <= AX_EXAMPLE_TEXT_MAX);
    if (l->n_text + n >= l->cap_text) {
        const size_t cap = 2 * (l->n_text + n) + 1;
        AX_TRY(ax_regrow(&l->text, l->cap_text, cap, 1));
        l->cap_text = cap;
        for (size_t i = 0, at = 0; i < l->n; at += l->items[i++].n_text)
            if (l->items[i].text)
                l->items[i].text = l->text + at;
    }
    struct ax_example *x = &l->items[l->n - 1];
    x->text = l->text + l->n_text;
    x->n_text = n;
    if (n > 0)
        memcpy(l->text + l->n_text, text, n);
    l->n_text += n;
    return AX_OK;
}

void ax_example_list_group(struct ax_example_list *l, size_t first) {
    for (size_t i = first + 1; i < l->n; i++)
        l->items[i].joined = true;
}

void ax_example_list_cut(struct ax_example_list *l, size_t n) {
    AX_ASSERT(n <= l->n);
    l->n_tokens -= l->n_open;
    l->n_open = 0;
    while (l->n > n) {
        const size_t tokens = l->items[--l->n].n;
        l->n_tokens -= tokens;
        l->n_text -= l->items[l->n].n_text;
        l->n_words -= ax_columns_words(l->columns, ax_columns_count(l->columns), tokens);
    }
}

void ax_example_list_free(struct ax_example_list *l) {
    ax_free(l->tokens);
    ax_free(l->labels);
    ax_free(l->items);
    ax_free(l->words);
    ax_free(l->text);
    *l = (struct ax_example_list){0};
}
