/* Groups → rows → arrays. Read ax_loader_next first. */
#include "data/pipeline/loader.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "data/rows/shuffle.h"

struct ax_loader {
    const struct ax_doc_source *source;
    struct ax_loader_options o;
    uint64_t fingerprint;
    /* the group at hand */
    struct ax_corpus docs;
    struct ax_pack pack;
    uint32_t *order; /* [pack.n_rows] */
    bool loaded;
    struct ax_source_place next; /* the group behind it */
    struct ax_loader_state at;
    /* the row at hand */
    int32_t *tokens, *labels;
    size_t cap_tokens;
    struct ax_document *row_docs;
    size_t cap_docs;
};

static uint64_t fingerprint(const struct ax_doc_source *source, const struct ax_loader_options *o) {
    const uint64_t v[] = {(uint64_t)o->pack.mode,
                          (uint64_t)o->pack.capacity,
                          (uint64_t)o->pack.max_docs,
                          (uint64_t)o->pack.group,
                          o->shuffle,
                          (uint64_t)o->by_length,
                          o->mixed,
                          o->seed};
    return ax_hash64(v, sizeof v, source->fingerprint);
}

enum ax_status ax_loader_new(struct ax_loader **out, const struct ax_doc_source *source,
                             const struct ax_loader_options *o) {
    struct ax_loader *l;
    AX_TRY(ax_alloc(&l, 1, sizeof *l));
    l->source = source;
    l->o = *o;
    l->fingerprint = l->at.fingerprint = fingerprint(source, o);
    *out = l;
    return AX_OK;
}

void ax_loader_free(struct ax_loader *l) {
    if (!l)
        return;
    ax_corpus_free(&l->docs);
    ax_pack_free(&l->pack);
    ax_free(l->order);
    ax_free(l->tokens);
    ax_free(l->labels);
    ax_free(l->row_docs);
    ax_free(l);
}

/* ---- a group ---- */

static int longest_first(const void *a, const void *b) {
    const struct ax_corpus_doc *x = a;
    const struct ax_corpus_doc *y = b;
    if (x->n != y->n)
        return x->n < y->n ? 1 : -1;
    if (x->set != y->set)
        return x->set < y->set ? -1 : 1;
    return x->doc < y->doc ? -1 : x->doc > y->doc;
}

static void sort_runs(struct ax_corpus *c, size_t run) {
    for (size_t i = 0; i < c->n; i += run)
        qsort(c->docs + i, c->n - i < run ? c->n - i : run, sizeof *c->docs, longest_first);
}

static enum ax_status order_rows(struct ax_loader *l, int64_t epoch, int64_t group) {
    ax_free(l->order);
    l->order = NULL;
    const size_t n = l->pack.n_rows;
    if (l->o.shuffle && l->o.pack.mode == AX_PACK_FIT) {
        const uint64_t seed = l->o.seed + (uint64_t)group * 0x9E3779B97F4A7C15U;
        return ax_shuffled(&l->order, n,
                           (struct ax_shuffle_key){seed, (uint32_t)epoch, "data.rows"});
    }
    AX_TRY(ax_alloc(&l->order, n, sizeof *l->order));
    for (size_t i = 0; i < n; i++)
        l->order[i] = (uint32_t)i;
    return AX_OK;
}

static enum ax_status load_group(struct ax_loader *l, int64_t epoch, int64_t group,
                                 struct ax_source_place place) {
    l->loaded = false;
    l->docs.n = 0;
    AX_TRY(l->source->group(l->source->ctx, epoch, group, place, &l->docs, &l->next));
    if (l->o.by_length > 0 && l->o.pack.mode == AX_PACK_PLAIN)
        sort_runs(&l->docs, (size_t)l->o.by_length);
    uint32_t *lengths;
    AX_TRY(ax_alloc(&lengths, l->docs.n, sizeof *lengths));
    for (size_t i = 0; i < l->docs.n; i++)
        lengths[i] = l->docs.docs[i].n;
    const enum ax_status st = ax_pack_group(&l->pack, &l->o.pack, lengths, l->docs.n);
    ax_free(lengths);
    AX_TRY(st);
    AX_TRY(order_rows(l, epoch, group));
    l->loaded = true;
    return AX_OK;
}

/* Makes sure that a row is at hand; *any = false at the end of the epoch. */
static enum ax_status find_row(struct ax_loader *l, bool *any) {
    for (;;) {
        if (!l->loaded)
            AX_TRY(load_group(l, l->at.epoch, l->at.group, l->at.place));
        *any = l->docs.n > 0;
        if (!*any || l->at.in_group < (int64_t)l->pack.n_rows)
            return AX_OK;
        l->loaded = false;
        l->at.group++;
        l->at.in_group = 0;
        l->at.place = l->next;
    }
}

/* ---- a row ---- */

static enum ax_status reserve(struct ax_loader *l, size_t tokens, size_t docs) {
    if (tokens > l->cap_tokens) {
        AX_TRY(ax_regrow(&l->tokens, 0, tokens, sizeof *l->tokens));
        AX_TRY(ax_regrow(&l->labels, 0, tokens, sizeof *l->labels));
        l->cap_tokens = tokens;
    }
    if (docs > l->cap_docs) {
        AX_TRY(ax_regrow(&l->row_docs, 0, docs, sizeof *l->row_docs));
        l->cap_docs = docs;
    }
    return AX_OK;
}

/* Writes a piece behind the `at` tokens that are there; the label of the token in front of it is
 * the piece's first one where they are one document. */
static void put_piece(struct ax_loader *l, const struct ax_pack_piece *p, size_t at, bool joined) {
    const struct ax_corpus_doc *c = &l->docs.docs[p->doc];
    const struct ax_docs *set = l->docs.sets[c->set];
    const struct ax_doc *doc = &set->list[c->doc];
    const uint32_t *words = ax_docs_words(set, c->doc);
    for (uint32_t i = 0; i < p->n; i++) {
        const int32_t label = ax_docs_label(doc, words, p->from + i);
        l->tokens[at + i] = ax_docs_id(words, p->from + i);
        l->labels[at + i] = -1;
        if (at + i > 0 && (i > 0 || joined))
            l->labels[at + i - 1] = label == AX_NO_LABEL ? -1 : label;
    }
}

static enum ax_status write_row(struct ax_loader *l, struct ax_loaded_row *row) {
    size_t tokens = 0;
    for (int i = 0; i < row->n_pieces; i++)
        tokens += row->pieces[i].n;
    AX_TRY(reserve(l, tokens, (size_t)row->n_pieces));
    size_t at = 0;
    for (int i = 0; i < row->n_pieces; i++) {
        const struct ax_pack_piece *p = &row->pieces[i];
        put_piece(l, p, at, l->o.mixed);
        l->row_docs[i] =
            (struct ax_document){.n = p->n, .tokens = l->tokens + at, .labels = l->labels + at};
        at += p->n;
    }
    row->n = row->n_pieces;
    if (l->o.mixed) {
        l->row_docs[0].n = (int64_t)tokens;
        row->n = 1;
    }
    row->docs = l->row_docs;
    row->n_tokens = (int64_t)tokens;
    row->n_trained = 0;
    for (size_t i = 0; i < tokens; i++)
        row->n_trained += l->labels[i] >= 0;
    return AX_OK;
}

enum ax_status ax_loader_next(struct ax_loader *l, struct ax_loaded_row *row, bool *got) {
    AX_TRY(find_row(l, got));
    if (!*got)
        return AX_OK;
    const size_t r = l->order[l->at.in_group];
    *row = (struct ax_loaded_row){.pieces = l->pack.pieces + l->pack.rows[r],
                                  .n_pieces = (int)(l->pack.rows[r + 1] - l->pack.rows[r]),
                                  .group = &l->docs,
                                  .epoch = l->at.epoch,
                                  .index = l->at.index};
    AX_TRY(write_row(l, row));
    l->at.in_group++;
    l->at.index++;
    return AX_OK;
}

enum ax_status ax_loader_skip(struct ax_loader *l, int64_t n, int64_t *passed) {
    for (*passed = 0; *passed < n;) {
        bool any;
        AX_TRY(find_row(l, &any));
        if (!any)
            return AX_OK;
        const int64_t left = (int64_t)l->pack.n_rows - l->at.in_group;
        const int64_t step = n - *passed < left ? n - *passed : left;
        l->at.in_group += step;
        l->at.index += step;
        *passed += step;
    }
    return AX_OK;
}

void ax_loader_start_epoch(struct ax_loader *l, int64_t epoch) {
    l->loaded = false;
    l->at = (struct ax_loader_state){.epoch = epoch, .fingerprint = l->fingerprint};
}

enum ax_status ax_loader_count_epoch(struct ax_loader *l, int64_t epoch, int64_t pad,
                                     struct ax_loader_count *out) {
    *out = (struct ax_loader_count){0};
    if (!l->source->countable)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "the number of rows of streamed data is not known; set max_steps");
    for (int64_t group = 0;; group++) {
        AX_TRY(load_group(l, epoch, group, (struct ax_source_place){0}));
        if (l->docs.n == 0)
            break;
        for (size_t r = 0; r < l->pack.n_rows; r++) {
            int64_t used = 0;
            for (size_t i = l->pack.rows[r]; i < l->pack.rows[r + 1]; i++)
                used += l->pack.pieces[i].n;
            out->tokens += used;
            out->padded += ax_pack_padded(used, pad);
        }
        out->rows += (int64_t)l->pack.n_rows;
        out->docs += (int64_t)l->docs.n;
    }
    l->loaded = false; /* the group of the next row is loaded again */
    return AX_OK;
}

/* ---- state ---- */

void ax_loader_save(const struct ax_loader *l, struct ax_loader_state *st) {
    *st = l->at;
}

enum ax_status ax_loader_restore(struct ax_loader *l, const struct ax_loader_state *st) {
    if (st->fingerprint != l->fingerprint)
        return ax_error(AX_ERR_DATA,
                        "the saved place in the data does not fit: the data sets, their options, "
                        "the seed or the packing are not those of the checkpoint");
    l->at = *st;
    l->loaded = false;
    return AX_OK;
}

enum ax_status ax_loader_state_to_json(const struct ax_loader_state *st, json_t **out) {
    char fingerprint_text[32];
    snprintf(fingerprint_text, sizeof fingerprint_text, "%016llx",
             (unsigned long long)st->fingerprint);
    *out = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:s}", "epoch", (json_int_t)st->epoch, "index",
                     (json_int_t)st->index, "group", (json_int_t)st->group, "in_group",
                     (json_int_t)st->in_group, "set", (json_int_t)st->place.set, "row",
                     (json_int_t)st->place.row, "fingerprint", fingerprint_text);
    return *out ? AX_OK : ax_error(AX_ERR_NOMEM, "out of memory for the place in the data");
}

enum ax_status ax_loader_state_from_json(struct ax_loader_state *st, const json_t *v) {
    const char *text;
    json_int_t n[6];
    if (json_unpack((json_t *)(uintptr_t)v, "{s:I, s:I, s:I, s:I, s:I, s:I, s:s}", "epoch", &n[0],
                    "index", &n[1], "group", &n[2], "in_group", &n[3], "set", &n[4], "row", &n[5],
                    "fingerprint", &text) != 0 ||
        strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return ax_error(AX_ERR_DATA, "the saved place in the data is damaged");
    for (int i = 0; i < 6; i++)
        if (n[i] < 0)
            return ax_error(AX_ERR_DATA, "the saved place in the data is damaged");
    *st = (struct ax_loader_state){.epoch = n[0],
                                   .index = n[1],
                                   .group = n[2],
                                   .in_group = n[3],
                                   .place = {n[4], n[5]},
                                   .fingerprint = strtoull(text, NULL, 16)};
    return AX_OK;
}
