/* Chunks → sequences → arrays. Read ax_loader_next first. */
#include "data/records/pipeline/loader.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash/hash.h"
#include "data/records/rows/shuffle.h"

struct ax_loader {
    const struct ax_example_source *source;
    struct ax_loader_options o;
    uint64_t fingerprint;
    /* the current chunk */
    struct ax_corpus examples;
    struct ax_pack pack;
    uint32_t *order; /* [pack.n] */
    bool loaded;
    struct ax_source_place next; /* the next chunk */
    struct ax_loader_state at;
    /* the current sequence */
    int32_t *tokens, *labels;
    size_t cap_tokens;
    struct ax_document *docs;
    size_t cap_docs;
};

static uint64_t fingerprint(const struct ax_example_source *source,
                            const struct ax_loader_options *o) {
    const uint64_t v[] = {(uint64_t)o->pack.mode | (uint64_t)(ax_pack_batch(&o->pack) - 1) << 32,
                          (uint64_t)o->pack.capacity,
                          (uint64_t)o->pack.max_docs,
                          (uint64_t)o->pack.chunk,
                          o->shuffle,
                          (uint64_t)o->by_length,
                          o->mixed | (uint64_t)o->pack.step << 1 |
                              (uint64_t)o->labels_in_place << 63,
                          o->seed};
    return ax_hash64(v, sizeof v, source->fingerprint);
}

enum ax_status ax_loader_new(struct ax_loader **out, const struct ax_example_source *source,
                             const struct ax_loader_options *o) {
    struct ax_loader *l;
    AX_TRY(ax_alloc(&l, 1, sizeof *l));
    l->source = source;
    l->o = *o;
    l->fingerprint = l->at.fingerprint = fingerprint(source, o);
    *out = l;
    return AX_OK;
}

uint64_t ax_loader_examples(const struct ax_loader *l) {
    return l->source->fingerprint;
}

void ax_loader_free(struct ax_loader *l) {
    if (!l)
        return;
    ax_corpus_free(&l->examples);
    ax_pack_free(&l->pack);
    ax_free(l->order);
    ax_free(l->tokens);
    ax_free(l->labels);
    ax_free(l->docs);
    ax_free(l);
}

/* ---- a chunk ---- */

/* Shuffles the units, whose sequences must stay together. */
static enum ax_status order_sequences(struct ax_loader *l, int64_t epoch, int64_t chunk) {
    const size_t per = (size_t)ax_pack_unit(&l->o.pack), n = l->pack.n / per;
    uint32_t *order = NULL;
    ax_free(l->order);
    l->order = NULL;
    if (l->o.shuffle && ax_pack_sorts(l->o.pack.mode)) {
        const uint64_t seed = l->o.seed + (uint64_t)chunk * 0x9E3779B97F4A7C15U;
        AX_TRY(ax_shuffled(&order, n, (struct ax_shuffle_key){seed, (uint32_t)epoch, "data.rows"}));
    }
    const enum ax_status st = ax_alloc(&l->order, l->pack.n, sizeof *l->order);
    for (size_t i = 0; st == AX_OK && i < l->pack.n; i++)
        l->order[i] = (uint32_t)(order ? order[i / per] * per + i % per : i);
    ax_free(order);
    return st;
}

static enum ax_status load_chunk(struct ax_loader *l, int64_t epoch, int64_t chunk,
                                 struct ax_source_place place) {
    l->loaded = false;
    l->examples.n = 0;
    AX_TRY(l->source->chunk(l->source->ctx, epoch, chunk, place, &l->examples, &l->next));
    if (l->o.by_length > 0 && l->o.pack.mode == AX_PACK_PLAIN)
        AX_TRY(ax_corpus_sort_runs(&l->examples, (size_t)l->o.by_length));
    AX_TRY(ax_pack_chunk(&l->pack, &l->o.pack, &l->examples));
    AX_TRY(order_sequences(l, epoch, chunk));
    l->loaded = true;
    return AX_OK;
}

/* Loads chunks until one has another sequence; *any = false at the end of the epoch. */
static enum ax_status find_sequence(struct ax_loader *l, bool *any) {
    for (;;) {
        if (!l->loaded)
            AX_TRY(load_chunk(l, l->at.epoch, l->at.chunk, l->at.place));
        *any = l->examples.n > 0;
        if (!*any || l->at.in_chunk < (int64_t)l->pack.n)
            return AX_OK;
        l->loaded = false;
        l->at.chunk++;
        l->at.in_chunk = 0;
        l->at.place = l->next;
    }
}

/* ---- a sequence ---- */

static enum ax_status reserve(struct ax_loader *l, size_t tokens, size_t docs) {
    if (tokens > l->cap_tokens) {
        AX_TRY(ax_regrow(&l->tokens, 0, tokens, sizeof *l->tokens));
        AX_TRY(ax_regrow(&l->labels, 0, tokens, sizeof *l->labels));
        l->cap_tokens = tokens;
    }
    if (docs > l->cap_docs) {
        AX_TRY(ax_regrow(&l->docs, 0, docs, sizeof *l->docs));
        l->cap_docs = docs;
    }
    return AX_OK;
}

bool ax_loader_trains_first(const struct ax_loader *l, int piece) {
    return l->o.labels_in_place || (l->o.mixed && piece > 0);
}

/* Writes piece i after the first `at` tokens. Unless they are classes, labels are written to the
 * token before their own. */
static void put_piece(struct ax_loader *l, const struct ax_packed_sequence *s, int i, size_t at) {
    const struct ax_pack_piece *p = &s->pieces[i];
    const struct ax_examples *set = ax_sequence_set(s, i);
    const uint32_t index = ax_sequence_ref(s, i)->index;
    const struct ax_stored *x = &set->list[index];
    const uint32_t *words = ax_examples_words(set, index);
    for (uint32_t t = 0; t < p->n; t++) {
        const int32_t label = ax_word_label(x, words, p->from + t);
        l->tokens[at + t] = ax_word_token(words, p->from + t);
        const bool shifted = !l->o.labels_in_place;
        l->labels[at + t] = -1;
        if (t > 0 || ax_loader_trains_first(l, i))
            l->labels[at + t - shifted] = label == AX_NO_LABEL ? -1 : label;
    }
    l->docs[i] =
        (struct ax_document){.n = p->n, .tokens = l->tokens + at, .labels = l->labels + at};
    for (int c = 0; c < ax_columns_count(set->columns); c++) {
        const enum ax_column_of of = set->columns->list[c].of;
        const uint32_t first =
            of == AX_OF_EXAMPLE ? 0 : p->from + (of == AX_OF_LABEL && !l->o.labels_in_place);
        AX_ASSERT(!l->o.mixed);
        l->docs[i].columns[c] =
            ax_examples_column(set, index, c) + first * ax_column_width(set->columns, c);
    }
}

static enum ax_status write_sequence(struct ax_loader *l, struct ax_packed_sequence *s) {
    size_t tokens = 0;
    for (int i = 0; i < s->n_pieces; i++)
        tokens += s->pieces[i].n;
    AX_TRY(reserve(l, tokens, (size_t)s->n_pieces));
    size_t at = 0;
    for (int i = 0; i < s->n_pieces; at += s->pieces[i++].n)
        put_piece(l, s, i, at);
    s->n = s->n_pieces;
    if (l->o.mixed) {
        l->docs[0].n = (int64_t)tokens;
        s->n = 1;
    }
    s->docs = l->docs;
    s->n_tokens = (int64_t)tokens;
    s->n_trained = 0;
    for (size_t t = 0; t < tokens; t++)
        s->n_trained += l->labels[t] >= 0;
    return AX_OK;
}

enum ax_status ax_loader_next(struct ax_loader *l, struct ax_packed_sequence *out, bool *got) {
    AX_TRY(find_sequence(l, got));
    if (!*got)
        return AX_OK;
    const size_t *first = &l->pack.firsts[l->order[l->at.in_chunk]];
    *out = (struct ax_packed_sequence){.pieces = l->pack.pieces + first[0],
                                       .n_pieces = (int)(first[1] - first[0]),
                                       .chunk = &l->examples,
                                       .labels_in_place = l->o.labels_in_place,
                                       .epoch = l->at.epoch,
                                       .index = l->at.index};
    AX_TRY(write_sequence(l, out));
    l->at.in_chunk++;
    l->at.index++;
    return AX_OK;
}

enum ax_status ax_loader_skip(struct ax_loader *l, int64_t n, int64_t *passed) {
    for (*passed = 0; *passed < n;) {
        bool any;
        AX_TRY(find_sequence(l, &any));
        if (!any)
            return AX_OK;
        const int64_t left = (int64_t)l->pack.n - l->at.in_chunk;
        const int64_t step = n - *passed < left ? n - *passed : left;
        l->at.in_chunk += step;
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
                        "the number of records of streamed data is unknown; set max_steps");
    for (int64_t chunk = 0;; chunk++) {
        AX_TRY(load_chunk(l, epoch, chunk, (struct ax_source_place){0}));
        if (l->examples.n == 0)
            break;
        for (size_t r = 0; r < l->pack.n; r++) {
            int64_t used = 0;
            for (size_t i = l->pack.firsts[r]; i < l->pack.firsts[r + 1]; i++)
                used += l->pack.pieces[i].n;
            out->tokens += used;
            out->padded += ax_pack_padded(used, pad);
        }
        out->sequences += (int64_t)l->pack.n;
        out->examples += (int64_t)l->examples.n;
    }
    l->loaded = false; /* makes the next call reload its chunk */
    return AX_OK;
}

enum ax_status ax_loader_count_trained(struct ax_loader *l, int64_t epoch, int64_t *out) {
    *out = 0;
    AX_ASSERT(l->source->countable);
    for (int64_t chunk = 0;; chunk++) {
        AX_TRY(load_chunk(l, epoch, chunk, (struct ax_source_place){0}));
        if (l->examples.n == 0)
            break;
        for (size_t r = 0; r < l->pack.n; r++)
            for (size_t i = l->pack.firsts[r]; i < l->pack.firsts[r + 1]; i++) {
                const struct ax_pack_piece *p = &l->pack.pieces[i];
                const struct ax_example_ref *ref = &l->examples.refs[p->example];
                const struct ax_examples *set = &l->examples.sets[ref->set];
                const bool first = ax_loader_trains_first(l, (int)(i - l->pack.firsts[r]));
                *out += ax_examples_trained(set, ref->index, p->from, p->n) -
                        (first ? 0 : ax_examples_trained(set, ref->index, p->from, 1));
            }
    }
    l->loaded = false; /* makes the next call reload its chunk */
    return AX_OK;
}

/* ---- state ---- */

void ax_loader_save(const struct ax_loader *l, struct ax_loader_state *st) {
    *st = l->at;
}

enum ax_status ax_loader_restore(struct ax_loader *l, const struct ax_loader_state *st) {
    if (st->fingerprint != l->fingerprint)
        return ax_error(AX_ERR_DATA, "cannot resume the data: the data sets, their options, the "
                                     "seed or the packing differ from those of the checkpoint");
    l->at = *st;
    l->loaded = false;
    return AX_OK;
}

enum ax_status ax_loader_state_to_json(const struct ax_loader_state *st, json_t **out) {
    char fingerprint_text[32];
    snprintf(fingerprint_text, sizeof fingerprint_text, "%016llx",
             (unsigned long long)st->fingerprint);
    *out = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:s}", "epoch", (json_int_t)st->epoch, "index",
                     (json_int_t)st->index, "group", (json_int_t)st->chunk, "in_group",
                     (json_int_t)st->in_chunk, "set", (json_int_t)st->place.set, "row",
                     (json_int_t)st->place.record, "fingerprint", fingerprint_text);
    return *out ? AX_OK : ax_error(AX_ERR_NOMEM, "out of memory for the position in the data");
}

enum ax_status ax_loader_state_from_json(struct ax_loader_state *st, const json_t *v) {
    const char *text;
    json_int_t n[6];
    if (json_unpack((json_t *)(uintptr_t)v, "{s:I, s:I, s:I, s:I, s:I, s:I, s:s}", "epoch", &n[0],
                    "index", &n[1], "group", &n[2], "in_group", &n[3], "set", &n[4], "row", &n[5],
                    "fingerprint", &text) != 0 ||
        strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return ax_error(AX_ERR_DATA, "the saved position in the data is corrupted");
    for (int i = 0; i < 6; i++)
        if (n[i] < 0)
            return ax_error(AX_ERR_DATA, "the saved position in the data is corrupted");
    *st = (struct ax_loader_state){.epoch = n[0],
                                   .index = n[1],
                                   .chunk = n[2],
                                   .in_chunk = n[3],
                                   .place = {n[4], n[5]},
                                   .fingerprint = strtoull(text, NULL, 16)};
    return AX_OK;
}
