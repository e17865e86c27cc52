#include "data/records/pipeline/examples.h"

#include <stdio.h>
#include <string.h>

#include "base/hash/hash.h"

static bool has_own_labels(const struct ax_example *x) {
    for (size_t t = 0; t < x->n; t++)
        if (x->labels[t] != AX_NO_LABEL && x->labels[t] != x->tokens[t])
            return true;
    return false;
}

/* Reserves n words in the last block or a new one. A block is not zeroed, as most data fill little
 * of it; what is left over of a full one is, since a cache contains it. */
static enum ax_status make_room(struct ax_examples *e, size_t n, uint32_t **words) {
    size_t at = (size_t)(e->n_words % AX_EXAMPLES_BLOCK);
    size_t block = (size_t)(e->n_words / AX_EXAMPLES_BLOCK);
    if (at != 0 && at + n > AX_EXAMPLES_BLOCK) {
        uint32_t *rest = (uint32_t *)(uintptr_t)e->blocks[block++] + at;
        memset(rest, 0, (AX_EXAMPLES_BLOCK - at) * sizeof *rest);
        e->n_words += AX_EXAMPLES_BLOCK - at;
        at = 0;
    }
    if (block == e->n_blocks) {
        uint32_t *fresh;
        AX_TRY(ax_regrow(&e->blocks, e->n_blocks, e->n_blocks + 1, sizeof *e->blocks));
        AX_TRY(ax_alloc_huge(&fresh, AX_EXAMPLES_BLOCK * sizeof *fresh));
        e->blocks[e->n_blocks++] = fresh;
    }
    *words = (uint32_t *)(uintptr_t)e->blocks[block] + at;
    return AX_OK;
}

static uint64_t hash_first(const struct ax_examples *e, size_t i, uint32_t n) {
    const struct ax_stored *x = &e->list[i];
    const uint32_t *words = ax_examples_words(e, i);
    uint64_t hash = ax_hash64(words, n * sizeof *words, 0);
    if (x->own_labels)
        hash = ax_hash64(words + x->n, n * sizeof *words, hash);
    for (int c = 0; c < ax_columns_count(e->columns); c++)
        hash = ax_hash64(ax_examples_column(e, i, c),
                         ax_column_words(e->columns, c, n) * sizeof *words, hash);
    const uint32_t *text = words + ax_stored_words(e, x);
    return x->has_text ? ax_hash64(text, ax_text_words(*text) * sizeof *text, hash) : hash;
}

enum ax_status ax_examples_add_file(struct ax_examples *e, const char *name) {
    AX_TRY(ax_regrow(&e->files, e->n_files, e->n_files + 1, sizeof *e->files));
    AX_TRY(ax_strdup(&e->files[e->n_files], name));
    e->n_files++;
    return AX_OK;
}

static void put_text(uint32_t *words, const char *text, size_t n) {
    words[ax_text_words(n) - 1] = 0;
    words[0] = (uint32_t)n;
    if (n > 0)
        memcpy(words + 1, text, n);
}

enum ax_status ax_examples_add(struct ax_examples *e, const struct ax_example *x) {
    const size_t n = x->n;
    const bool own = has_own_labels(x);
    const int n_columns = ax_columns_count(e->columns);
    AX_ASSERT(x->n_text <= AX_EXAMPLE_TEXT_MAX);
    const size_t n_text = x->text ? ax_text_words(x->n_text) : 0;
    const size_t n_words = (own ? 2 * n : n) + ax_columns_words(e->columns, n_columns, n) + n_text;
    if (n_words > AX_EXAMPLES_BLOCK)
        return ax_error(AX_ERR_DATA, "a document has %zu tokens; at most %zu are supported", n,
                        AX_EXAMPLES_BLOCK / (n_words / n));
    uint32_t *words;
    AX_TRY(ax_grow(&e->list, e->n, &e->cap, sizeof *e->list));
    AX_TRY(make_room(e, n_words, &words));
    uint32_t trained = 0;
    for (size_t t = 0; t < n; t++) {
        const bool train = x->labels[t] != AX_NO_LABEL;
        words[t] = (uint32_t)x->tokens[t] | (train && !own ? AX_WORD_TRAINED : 0);
        if (own)
            words[n + t] = (uint32_t)x->labels[t];
        trained += train;
    }
    e->list[e->n++] = (struct ax_stored){.start = e->n_words,
                                         .line = x->origin.line,
                                         .record = x->origin.record,
                                         .file = x->origin.file,
                                         .n = (uint32_t)n,
                                         .n_trained = trained,
                                         .own_labels = own,
                                         .joined = x->joined,
                                         .has_text = n_text > 0};
    words += own ? 2 * n : n;
    for (int c = 0; c < n_columns; words += ax_column_words(e->columns, c++, n))
        memcpy(words, x->columns[c], ax_column_words(e->columns, c, n) * sizeof *words);
    if (n_text > 0)
        put_text(words, x->text, x->n_text);
    e->list[e->n - 1].hash = hash_first(e, e->n - 1, (uint32_t)n);
    e->n_words += n_words;
    e->n_tokens += n;
    e->n_trained += trained;
    e->longest = n > e->longest ? (uint32_t)n : e->longest;
    return AX_OK;
}

void ax_examples_cut(struct ax_examples *e, size_t n) {
    while (e->n > n) {
        const struct ax_stored *last = &e->list[--e->n];
        e->n_words = last->start;
        e->n_tokens -= last->n;
        e->n_trained -= last->n_trained;
    }
}

void ax_examples_clear(struct ax_examples *e) {
    ax_examples_cut(e, 0);
    e->longest = 0;
}

void ax_bad_records_free(struct ax_bad_records *b) {
    for (size_t i = 0; i < AX_BAD_RECORDS_LISTED; i++)
        ax_free(b->texts[i]);
    ax_free(b->first_empty);
    *b = (struct ax_bad_records){0};
}

void ax_examples_free(struct ax_examples *e) {
    for (size_t i = 0; i < e->n_files; i++)
        ax_free(e->files[i]);
    ax_free(e->files);
    if (e->list_map.data) {
        ax_unmap_file(&e->list_map);
        ax_unmap_file(&e->words_map);
    } else {
        for (size_t i = 0; i < e->n_blocks; i++)
            ax_free((void *)(uintptr_t)e->blocks[i]);
        ax_free(e->list);
    }
    ax_free(e->blocks);
    ax_bad_records_free(&e->info.bad);
    *e = (struct ax_examples){0};
}

const char *ax_examples_text(const struct ax_examples *e, size_t i, size_t *n) {
    const struct ax_stored *x = &e->list[i];
    const uint32_t *text = ax_examples_words(e, i) + ax_stored_words(e, x);
    *n = x->has_text ? *text : 0;
    return x->has_text ? (const char *)(text + 1) : NULL;
}

const char *ax_examples_where(const struct ax_examples *e, size_t i, char *buf, size_t size) {
    const struct ax_stored *x = &e->list[i];
    snprintf(buf, size, "%s:%llu", x->file < e->n_files ? e->files[x->file] : "?",
             (unsigned long long)x->line);
    return buf;
}

uint64_t ax_examples_hash(const struct ax_examples *e, size_t i, uint32_t n) {
    return n >= e->list[i].n ? e->list[i].hash : hash_first(e, i, n);
}

uint32_t ax_examples_trained(const struct ax_examples *e, size_t i, uint32_t from, uint32_t n) {
    const struct ax_stored *x = &e->list[i];
    const uint32_t *words = ax_examples_words(e, i);
    uint32_t trained = 0;
    if (from == 0 && n >= x->n)
        return x->n_trained;
    for (uint32_t t = from; t < from + n; t++)
        trained += ax_word_label(x, words, t) != AX_NO_LABEL;
    return trained;
}

bool ax_examples_equal(const struct ax_examples *a, size_t i, const struct ax_examples *b, size_t k,
                       uint32_t n) {
    const uint32_t *u = ax_examples_words(a, i);
    const uint32_t *v = ax_examples_words(b, k);
    for (uint32_t t = 0; t < n; t++)
        if (ax_word_token(u, t) != ax_word_token(v, t) ||
            ax_word_label(&a->list[i], u, t) != ax_word_label(&b->list[k], v, t))
            return false;
    for (int c = 0; c < ax_columns_count(a->columns); c++)
        if (memcmp(ax_examples_column(a, i, c), ax_examples_column(b, k, c),
                   ax_column_words(a->columns, c, n) * sizeof *u) != 0)
            return false;
    size_t n_text[2];
    const char *text = ax_examples_text(a, i, &n_text[0]);
    const char *other = ax_examples_text(b, k, &n_text[1]);
    return !text == !other && n_text[0] == n_text[1] &&
           (n_text[0] == 0 || memcmp(text, other, n_text[0]) == 0);
}
