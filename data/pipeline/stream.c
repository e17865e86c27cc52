/* Read next_chunk first. */
#include "data/pipeline/stream.h"

#include "base/hash.h"

struct ax_stream {
    struct ax_stream_options o;
    struct ax_bad_records bad;
    struct ax_corpus_report report;
    struct ax_examples examples; /* of the chunk at hand */
    uint32_t *first_file;        /* [n] of each entry, among examples.files */
    /* where the reading is */
    struct ax_prepare *prepare; /* of entries[place.set]; NULL: closed */
    struct ax_source_place place;
    int64_t epoch;
    struct ax_example pending; /* the first of the next chunk */
    bool has_pending;
};

enum ax_status ax_stream_open(struct ax_stream **out, const struct ax_stream_options *o) {
    struct ax_stream *s;
    AX_TRY(ax_alloc(&s, 1, sizeof *s));
    s->o = *o;
    s->bad.allowed = o->max_bad_rows;
    s->epoch = -1;
    s->examples.columns = o->n > 0 ? ax_format_columns(o->entries[0].format) : NULL;
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&s->first_file, o->n, sizeof *s->first_file), st, fail);
    for (size_t i = 0; i < o->n; i++) {
        s->first_file[i] = (uint32_t)s->examples.n_files;
        for (size_t k = 0; k < ax_rows_n_files(o->entries[i].rows); k++)
            AX_TRY_GOTO(ax_examples_add_file(&s->examples, ax_rows_file(o->entries[i].rows, k)), st,
                        fail);
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
    ax_examples_free(&s->examples);
    ax_bad_records_free(&s->bad);
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
    AX_TRY(ax_rows_seek(e->rows, s->place.record));
    return ax_prepare_open(&s->prepare, &(struct ax_prepare_options){.rows = e->rows,
                                                                     .format = e->format,
                                                                     .bad = &s->bad,
                                                                     .threads = s->o.threads});
}

static enum ax_status go_to(struct ax_stream *s, int64_t epoch, struct ax_source_place place) {
    if (epoch == s->epoch && place.set == s->place.set && place.record == s->place.record)
        return AX_OK;
    if (epoch != s->epoch || (place.set == 0 && place.record == 0)) {
        const int64_t allowed = s->bad.allowed;
        ax_bad_records_free(&s->bad);
        s->bad.allowed = allowed;
        s->report = (struct ax_corpus_report){0};
    }
    s->epoch = epoch;
    s->place = place;
    return open_entry(s);
}

/* The next example, of the next entry where one has ended. */
static enum ax_status next_example(struct ax_stream *s, struct ax_example *x, bool *got) {
    if (s->has_pending) {
        *x = s->pending;
        s->has_pending = false;
        *got = true;
        return AX_OK;
    }
    for (*got = false; s->prepare;) {
        AX_TRY(ax_prepare_next(s->prepare, x, got));
        if (*got)
            return AX_OK;
        s->place = (struct ax_source_place){s->place.set + 1, 0};
        AX_TRY(open_entry(s));
    }
    return AX_OK;
}

static enum ax_status keep(struct ax_stream *s, struct ax_example x, struct ax_corpus *out) {
    x.origin.file += s->first_file[s->place.set];
    AX_TRY(ax_examples_add(&s->examples, &x));
    return ax_corpus_add(out, (struct ax_example_ref){.joined = x.joined,
                                                      .index = (uint32_t)(s->examples.n - 1),
                                                      .n = (uint32_t)x.n});
}

/* Applies the rule to the last group, which begins at out->refs[first]. */
static enum ax_status settle(struct ax_stream *s, struct ax_corpus *out, size_t first) {
    if (first == out->n)
        return AX_OK;
    const uint32_t index = out->refs[first].index;
    AX_TRY(ax_corpus_filter(out, first, &s->o.rule, &s->report));
    if (out->n == first)
        ax_examples_cut(&s->examples, index);
    return AX_OK;
}

/* Fills the buffer; the examples of a record, and so those of a group, are never parted by its end.
 */
static enum ax_status fill(struct ax_stream *s, struct ax_corpus *out) {
    int64_t last_record = -1;
    int64_t last_set = -1;
    size_t first = 0; /* of the last group */
    for (;;) {
        struct ax_example x;
        bool got;
        AX_TRY(next_example(s, &x, &got));
        if (!got || !x.joined) {
            AX_TRY(settle(s, out, first));
            first = out->n;
        }
        if (!got)
            return AX_OK;
        const bool same = x.origin.record == last_record && s->place.set == last_set;
        if ((int64_t)out->n >= s->o.buffer && !same) {
            s->pending = x;
            s->has_pending = true;
            s->place.record = x.origin.record;
            return AX_OK;
        }
        AX_TRY(keep(s, x, out));
        last_record = x.origin.record;
        last_set = s->place.set;
    }
}

static enum ax_status next_chunk(void *ctx, int64_t epoch, int64_t chunk,
                                 struct ax_source_place place, struct ax_corpus *out,
                                 struct ax_source_place *next) {
    struct ax_stream *s = ctx;
    AX_TRY(go_to(s, epoch, place));
    ax_examples_clear(&s->examples);
    out->sets = &s->examples;
    AX_TRY(fill(s, out));
    *next = s->place;
    const uint64_t seed = s->o.seed + (uint64_t)chunk * 0x9E3779B97F4A7C15U;
    return s->o.shuffle ? ax_corpus_shuffle(
                              out, 0, (struct ax_shuffle_key){seed, (uint32_t)epoch, "data.stream"})
                        : AX_OK;
}

void ax_stream_source(struct ax_stream *s, struct ax_example_source *out) {
    const struct ax_length_rule *r = &s->o.rule;
    const uint64_t v[] = {(uint64_t)s->o.buffer, s->o.shuffle,     s->o.seed,
                          (uint64_t)r->min,      (uint64_t)r->max, (uint64_t)r->excess,
                          r->drop_untrained,     s->o.options_hash};
    *out = (struct ax_example_source){
        .ctx = s, .chunk = next_chunk, .fingerprint = ax_hash64(v, sizeof v, s->o.n)};
}

const struct ax_bad_records *ax_stream_bad_records(const struct ax_stream *s) {
    return &s->bad;
}

const struct ax_corpus_report *ax_stream_report(const struct ax_stream *s) {
    return &s->report;
}
