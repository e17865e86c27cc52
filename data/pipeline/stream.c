/* Read next_group first. */
#include "data/pipeline/stream.h"

#include "base/hash.h"
#include "data/rows/shuffle.h"

struct ax_stream {
    struct ax_stream_options o;
    struct ax_bad_rows bad;
    struct ax_corpus_report report;
    struct ax_docs docs; /* of the group at hand */
    const struct ax_docs *sets[1];
    uint32_t *first_file; /* [n] of each entry, among docs.files */
    /* where the reading is */
    struct ax_prepare *prepare; /* of entries[place.set]; NULL: closed */
    struct ax_source_place place;
    int64_t epoch;
    struct ax_prepared pending; /* first document of the next group */
    bool has_pending;
};

enum ax_status ax_stream_open(struct ax_stream **out, const struct ax_stream_options *o) {
    struct ax_stream *s;
    AX_TRY(ax_alloc(&s, 1, sizeof *s));
    s->o = *o;
    s->sets[0] = &s->docs;
    s->bad.allowed = o->max_bad_rows;
    s->epoch = -1;
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&s->first_file, o->n, sizeof *s->first_file), st, fail);
    for (size_t i = 0; i < o->n; i++) {
        s->first_file[i] = (uint32_t)s->docs.n_files;
        for (size_t k = 0; k < ax_rows_n_files(o->entries[i].rows); k++)
            AX_TRY_GOTO(ax_docs_add_file(&s->docs, ax_rows_file(o->entries[i].rows, k)), st, fail);
    }
    *out = s;
    return AX_OK;
fail:
    ax_stream_close(s);
    return st;
}

void ax_stream_close(struct ax_stream *s) {
    if (!s)
        return;
    ax_prepare_close(s->prepare);
    ax_docs_free(&s->docs);
    ax_bad_rows_free(&s->bad);
    ax_free(s->first_file);
    ax_free(s);
}

/* Opens the entry at s->place, if there is one. */
static enum ax_status open_entry(struct ax_stream *s) {
    ax_prepare_close(s->prepare);
    s->prepare = NULL;
    s->has_pending = false;
    if (s->place.set >= (int64_t)s->o.n)
        return AX_OK;
    const struct ax_stream_entry *e = &s->o.entries[s->place.set];
    AX_TRY(ax_rows_seek(e->rows, s->place.row));
    return ax_prepare_open(&s->prepare, &(struct ax_prepare_options){.rows = e->rows,
                                                                     .format = e->format,
                                                                     .bad = &s->bad,
                                                                     .threads = s->o.threads});
}

static enum ax_status go_to(struct ax_stream *s, int64_t epoch, struct ax_source_place place) {
    if (epoch == s->epoch && place.set == s->place.set && place.row == s->place.row)
        return AX_OK;
    if (epoch != s->epoch || (place.set == 0 && place.row == 0)) {
        const int64_t allowed = s->bad.allowed;
        ax_bad_rows_free(&s->bad);
        s->bad.allowed = allowed;
        s->report = (struct ax_corpus_report){0};
    }
    s->epoch = epoch;
    s->place = place;
    return open_entry(s);
}

/* The next document, of the next entry where one has ended. */
static enum ax_status next_document(struct ax_stream *s, struct ax_prepared *doc, bool *got) {
    if (s->has_pending) {
        *doc = s->pending;
        s->has_pending = false;
        *got = true;
        return AX_OK;
    }
    for (*got = false; s->prepare;) {
        AX_TRY(ax_prepare_next(s->prepare, doc, got));
        if (*got)
            return AX_OK;
        s->place = (struct ax_source_place){s->place.set + 1, 0};
        AX_TRY(open_entry(s));
    }
    return AX_OK;
}

static enum ax_status keep(struct ax_stream *s, const struct ax_prepared *doc,
                           struct ax_corpus *out) {
    struct ax_origin origin = doc->origin;
    origin.file += s->first_file[s->place.set];
    AX_TRY(ax_docs_add(&s->docs, doc->ids, doc->labels, doc->n, origin));
    struct ax_corpus_doc c = {.doc = (uint32_t)(s->docs.n - 1), .n = (uint32_t)doc->n};
    bool kept;
    AX_TRY(ax_corpus_admit(&s->o.rule, &s->docs, &c, &kept, &s->report));
    if (kept)
        return ax_corpus_add(out, c);
    ax_docs_drop_last(&s->docs);
    return AX_OK;
}

/* Fills the buffer; rows are never cut in two by its end. */
static enum ax_status fill(struct ax_stream *s, struct ax_corpus *out) {
    int64_t last_row = -1;
    int64_t last_set = -1;
    for (;;) {
        struct ax_prepared doc;
        bool got;
        AX_TRY(next_document(s, &doc, &got));
        if (!got)
            return AX_OK;
        const bool same = doc.origin.row == last_row && s->place.set == last_set;
        if ((int64_t)out->n >= s->o.buffer && !same) {
            s->pending = doc;
            s->has_pending = true;
            s->place.row = doc.origin.row;
            return AX_OK;
        }
        AX_TRY(keep(s, &doc, out));
        last_row = doc.origin.row;
        last_set = s->place.set;
    }
}

static enum ax_status shuffle_docs(const struct ax_stream *s, int64_t epoch, int64_t group,
                                   struct ax_corpus *c) {
    uint32_t *order;
    struct ax_corpus_doc *old;
    const uint64_t seed = s->o.seed + (uint64_t)group * 0x9E3779B97F4A7C15U;
    AX_TRY(
        ax_shuffled(&order, c->n, (struct ax_shuffle_key){seed, (uint32_t)epoch, "data.stream"}));
    const enum ax_status st = ax_alloc(&old, c->n, sizeof *old);
    for (size_t i = 0; st == AX_OK && i < c->n; i++)
        old[i] = c->docs[order[i]];
    ax_free(order);
    AX_TRY(st);
    ax_free(c->docs);
    c->docs = old;
    c->cap = c->n;
    return AX_OK;
}

static enum ax_status next_group(void *ctx, int64_t epoch, int64_t group,
                                 struct ax_source_place place, struct ax_corpus *out,
                                 struct ax_source_place *next) {
    struct ax_stream *s = ctx;
    AX_TRY(go_to(s, epoch, place));
    ax_docs_clear(&s->docs);
    out->sets = s->sets;
    out->n_sets = 1;
    AX_TRY(fill(s, out));
    *next = s->place;
    return s->o.shuffle ? shuffle_docs(s, epoch, group, out) : AX_OK;
}

void ax_stream_source(struct ax_stream *s, struct ax_doc_source *out) {
    const struct ax_length_rule *r = &s->o.rule;
    const uint64_t v[] = {(uint64_t)s->o.buffer, s->o.shuffle,     s->o.seed,
                          (uint64_t)r->min,      (uint64_t)r->max, (uint64_t)r->excess,
                          r->drop_untrained,     s->o.options_hash};
    *out = (struct ax_doc_source){
        .ctx = s, .group = next_group, .fingerprint = ax_hash64(v, sizeof v, s->o.n)};
}

const struct ax_bad_rows *ax_stream_bad_rows(const struct ax_stream *s) {
    return &s->bad;
}

const struct ax_corpus_report *ax_stream_report(const struct ax_stream *s) {
    return &s->report;
}
