#include "data/pipeline/docs.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"

static bool has_own_labels(const int32_t *ids, const int32_t *labels, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (labels[i] != AX_NO_LABEL && labels[i] != ids[i])
            return true;
    return false;
}

/* A place for n words, in the last block or a new one. */
static enum ax_status make_room(struct ax_docs *d, size_t n, uint32_t **words) {
    size_t at = (size_t)(d->n_words % AX_DOCS_BLOCK);
    if (at != 0 && at + n > AX_DOCS_BLOCK) {
        d->n_words += AX_DOCS_BLOCK - at;
        at = 0;
    }
    const size_t block = (size_t)(d->n_words / AX_DOCS_BLOCK);
    if (block == d->n_blocks) {
        uint32_t *fresh;
        AX_TRY(ax_regrow(&d->blocks, d->n_blocks, d->n_blocks + 1, sizeof *d->blocks));
        AX_TRY(ax_alloc(&fresh, AX_DOCS_BLOCK, sizeof *fresh));
        d->blocks[d->n_blocks++] = fresh;
    }
    *words = (uint32_t *)(uintptr_t)d->blocks[block] + at;
    return AX_OK;
}

static enum ax_status reserve_item(struct ax_docs *d) {
    if (d->n < d->cap)
        return AX_OK;
    const size_t cap = d->cap ? 2 * d->cap : 256;
    AX_TRY(ax_regrow(&d->list, d->cap, cap, sizeof *d->list));
    d->cap = cap;
    return AX_OK;
}

static uint64_t hash_words(const uint32_t *words, const uint32_t *labels, size_t n) {
    const uint64_t hash = ax_hash64(words, n * sizeof *words, 0);
    return labels ? ax_hash64(labels, n * sizeof *labels, hash) : hash;
}

enum ax_status ax_docs_add_file(struct ax_docs *d, const char *name) {
    AX_TRY(ax_regrow(&d->files, d->n_files, d->n_files + 1, sizeof *d->files));
    AX_TRY(ax_strdup(&d->files[d->n_files], name));
    d->n_files++;
    return AX_OK;
}

enum ax_status ax_docs_add(struct ax_docs *d, const int32_t *ids, const int32_t *labels, size_t n,
                           struct ax_origin origin) {
    const bool own = has_own_labels(ids, labels, n);
    const size_t n_words = own ? 2 * n : n;
    if (n_words > AX_DOCS_BLOCK)
        return ax_error(AX_ERR_DATA, "a document of %zu tokens; the limit is %zu", n,
                        own ? AX_DOCS_BLOCK / 2 : AX_DOCS_BLOCK);
    uint32_t *words;
    AX_TRY(reserve_item(d));
    AX_TRY(make_room(d, n_words, &words));
    uint32_t trained = 0;
    for (size_t i = 0; i < n; i++) {
        const bool train = labels[i] != AX_NO_LABEL;
        words[i] = (uint32_t)ids[i] | (train && !own ? AX_DOC_TRAINED : 0);
        if (own)
            words[n + i] = (uint32_t)labels[i];
        trained += train;
    }
    d->list[d->n++] = (struct ax_doc){.start = d->n_words,
                                      .line = origin.line,
                                      .file = origin.file,
                                      .n = (uint32_t)n,
                                      .n_trained = trained,
                                      .own_labels = own};
    d->list[d->n - 1].hash = hash_words(words, own ? words + n : NULL, n);
    d->n_words += n_words;
    d->n_tokens += n;
    d->n_trained += trained;
    d->longest = n > d->longest ? (uint32_t)n : d->longest;
    return AX_OK;
}

void ax_docs_drop_last(struct ax_docs *d) {
    const struct ax_doc *doc = &d->list[--d->n];
    d->n_words = doc->start;
    d->n_tokens -= doc->n;
    d->n_trained -= doc->n_trained;
}

void ax_docs_clear(struct ax_docs *d) {
    d->n = 0;
    d->n_words = d->n_tokens = d->n_trained = 0;
    d->longest = 0;
}

void ax_docs_free(struct ax_docs *d) {
    for (size_t i = 0; i < d->n_files; i++)
        ax_free(d->files[i]);
    ax_free(d->files);
    if (d->list_map.data) {
        ax_unmap_file(&d->list_map);
        ax_unmap_file(&d->words_map);
    } else {
        for (size_t i = 0; i < d->n_blocks; i++)
            ax_free((void *)(uintptr_t)d->blocks[i]);
        ax_free(d->list);
    }
    ax_free(d->blocks);
    *d = (struct ax_docs){0};
}

const char *ax_docs_where(const struct ax_docs *d, size_t doc, char *buf, size_t size) {
    const struct ax_doc *item = &d->list[doc];
    snprintf(buf, size, "%s:%llu", item->file < d->n_files ? d->files[item->file] : "?",
             (unsigned long long)item->line);
    return buf;
}

uint64_t ax_docs_hash(const struct ax_docs *d, size_t doc, uint32_t n) {
    const struct ax_doc *item = &d->list[doc];
    const uint32_t *words = ax_docs_words(d, doc);
    return n >= item->n ? item->hash
                        : hash_words(words, item->own_labels ? words + item->n : NULL, n);
}

uint32_t ax_docs_trained(const struct ax_docs *d, size_t doc, uint32_t n) {
    const struct ax_doc *item = &d->list[doc];
    const uint32_t *words = ax_docs_words(d, doc);
    uint32_t trained = 0;
    if (n >= item->n)
        return item->n_trained;
    for (uint32_t i = 0; i < n; i++)
        trained += ax_docs_label(item, words, i) != AX_NO_LABEL;
    return trained;
}

bool ax_docs_equal(const struct ax_docs *a, size_t doc_a, const struct ax_docs *b, size_t doc_b,
                   uint32_t n) {
    const struct ax_doc *x = &a->list[doc_a];
    const struct ax_doc *y = &b->list[doc_b];
    const uint32_t *u = ax_docs_words(a, doc_a);
    const uint32_t *v = ax_docs_words(b, doc_b);
    for (uint32_t i = 0; i < n; i++)
        if (ax_docs_id(u, i) != ax_docs_id(v, i) ||
            ax_docs_label(x, u, i) != ax_docs_label(y, v, i))
            return false;
    return true;
}
