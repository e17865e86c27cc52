/* Read next_chunk first. */
#include "data/records/pipeline/stream.h"

#include <math.h>
#include <string.h>

#include "base/hash/hash.h"
#include "base/log.h"
#include "data/records/format/tools.h"

/* One entry being read. */
struct reader {
    struct ax_prepare *prepare; /* NULL: closed */
    int64_t next;               /* index of the record to open at; mixed: number of the next one */
    struct ax_example pending;
    bool has_pending;
};

struct ax_stream {
    struct ax_stream_options o;
    struct ax_bad_records bad;
    bool told_empty, told_how_many; /* the log has the first empty record, and their number */
    struct ax_oddities (*oddities)[AX_ODDITIES]; /* [n] of each entry's examples */
    int told_lost; /* the log has what templates leave out: 1: of a buffer, 2: of an epoch */
    struct ax_corpus_report report;
    struct ax_examples examples; /* of the current chunk */
    uint32_t *first_file;        /* [n] of each entry, in examples.files */
    struct reader *readers;      /* [n] */
    /* the current position */
    struct ax_source_place place;
    int64_t epoch;
    size_t pick; /* mixed: the entry with record number place.record, */
    bool given;  /* and whether that record has given an example */
};

/* An example, its entry, and the position from which to continue with it. */
struct found {
    struct ax_example x;
    size_t entry;
    struct ax_source_place place;
};

static bool is_mixed(const struct ax_stream *s) {
    return s->o.n > 0 && s->o.entries[0].share > 0;
}

enum ax_status ax_stream_open(struct ax_stream **out, const struct ax_stream_options *o) {
    struct ax_stream *s;
    AX_TRY(ax_alloc(&s, 1, sizeof *s));
    s->o = *o;
    s->bad.allowed = o->max_bad_rows;
    s->epoch = -1;
    s->examples.columns = o->n > 0 ? ax_format_columns(o->entries[0].format) : NULL;
    if (is_mixed(s)) /* all entries are read at the same time */
        s->o.threads = o->threads / (int)o->n;
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&s->first_file, o->n, sizeof *s->first_file), st, fail);
    AX_TRY_GOTO(ax_alloc(&s->readers, o->n, sizeof *s->readers), st, fail);
    AX_TRY_GOTO(ax_alloc(&s->oddities, o->n, sizeof *s->oddities), st, fail);
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

static void close_readers(struct ax_stream *s) {
    for (size_t i = 0; s->readers && i < s->o.n; i++) {
        ax_prepare_close(s->readers[i].prepare);
        s->readers[i] = (struct reader){0};
    }
}

void ax_stream_close(struct ax_stream *s) {
    if (!s)
        return;
    close_readers(s);
    ax_examples_free(&s->examples);
    ax_bad_records_free(&s->bad);
    ax_free(s->first_file);
    ax_free(s->readers);
    ax_free(s->oddities);
    ax_free(s);
}

/* ---- one entry ---- */

/* Peeks at the next example of an entry. */
static enum ax_status look(struct ax_stream *s, size_t entry, bool *got) {
    const struct ax_stream_entry *e = &s->o.entries[entry];
    struct reader *r = &s->readers[entry];
    if (!r->prepare) {
        const bool numbered = is_mixed(s);
        AX_TRY(numbered ? ax_rows_seek_number(e->rows, r->next) : ax_rows_seek(e->rows, r->next));
        AX_TRY(ax_prepare_open(&r->prepare, &(struct ax_prepare_options){.rows = e->rows,
                                                                         .format = e->format,
                                                                         .numbered = numbered,
                                                                         .bad = &s->bad,
                                                                         .threads = s->o.threads}));
    }
    if (!r->has_pending)
        AX_TRY(ax_prepare_next(r->prepare, &r->pending, &r->has_pending));
    *got = r->has_pending;
    return AX_OK;
}

/* ---- one entry after the other ---- */

static enum ax_status look_in_turn(struct ax_stream *s, struct found *f, bool *got) {
    for (*got = false; s->place.set < (int64_t)s->o.n;) {
        const size_t entry = (size_t)s->place.set;
        struct reader *r = &s->readers[entry];
        AX_TRY(look(s, entry, got));
        if (*got) {
            *f = (struct found){r->pending, entry, {s->place.set, r->pending.origin.record}};
            return AX_OK;
        }
        ax_prepare_close(r->prepare);
        *r = (struct reader){0};
        s->place = (struct ax_source_place){s->place.set + 1, 0};
    }
    return AX_OK;
}

/* ---- entries mixed ----
 *
 * Record number n of an epoch is taken from the entry that is farthest below its share of n + 1
 * records, of those that its slice, skip and shard leave. So n alone determines how many records of each entry
 * precede it. The epoch ends when that entry has no records left. */

static size_t lagging(const struct ax_stream *s) {
    double total = 0, most = -INFINITY;
    size_t entry = 0;
    for (size_t i = 0; i < s->o.n; i++)
        total += s->o.entries[i].share;
    for (size_t i = 0; i < s->o.n; i++) {
        const double wanted = s->o.entries[i].share / total * (double)(s->place.record + 1);
        const double lag = wanted - (double)s->readers[i].next;
        entry = lag > most ? i : entry;
        most = lag > most ? lag : most;
    }
    return entry;
}

static void pick_next(struct ax_stream *s) {
    s->readers[s->pick].next++;
    s->place.record++;
    s->pick = lagging(s);
    s->given = false;
}

/* A record may give several examples or none. */
static enum ax_status look_mixed(struct ax_stream *s, struct found *f, bool *got) {
    for (;; pick_next(s)) {
        struct reader *r = &s->readers[s->pick];
        AX_TRY(look(s, s->pick, got));
        if (!*got && !s->given)
            return AX_OK;
        if (*got && r->pending.origin.record == r->next) {
            *f = (struct found){r->pending, s->pick, s->place};
            return AX_OK;
        }
    }
}

/* ---- chunks ---- */

static enum ax_status look_on(struct ax_stream *s, struct found *f, bool *got) {
    return is_mixed(s) ? look_mixed(s, f, got) : look_in_turn(s, f, got);
}

static void go_to(struct ax_stream *s, int64_t epoch, struct ax_source_place place) {
    if (epoch == s->epoch && place.set == s->place.set && place.record == s->place.record)
        return;
    const int64_t allowed = s->bad.allowed;
    ax_bad_records_free(&s->bad); /* what is read again is not counted twice */
    s->bad.allowed = allowed;
    s->report = (struct ax_corpus_report){0};
    memset(s->oddities, 0, s->o.n * sizeof *s->oddities);
    close_readers(s);
    s->epoch = epoch;
    s->place = place;
    if (is_mixed(s)) {
        s->place.record = 0;
        s->given = false;
        for (s->pick = lagging(s); s->place.record < place.record;)
            pick_next(s);
    } else if (place.set < (int64_t)s->o.n) {
        s->readers[place.set].next = place.record;
    }
}

/* Adds the example that was found. */
static enum ax_status keep(struct ax_stream *s, const struct found *f, struct ax_corpus *out) {
    struct ax_example x = f->x;
    x.origin.file += s->first_file[f->entry];
    AX_TRY(ax_examples_add(&s->examples, &x));
    ax_oddities_count(s->oddities[f->entry], x.oddities, &x.origin);
    s->readers[f->entry].has_pending = false;
    s->given = true;
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

/* The first empty record is reported as it is found, since an epoch may be longer than a run. */
static void tell_empty(struct ax_stream *s, bool epoch_ends) {
    const int64_t n = s->bad.n_empty;
    if (n > 0 && !s->told_empty)
        ax_log_warn(
            "streamed data: records with nothing to learn from are skipped; the first is %s",
            s->bad.first_empty);
    s->told_empty = s->told_empty || n > 0;
    if (n > 0 && epoch_ends && !s->told_how_many) {
        ax_log_warn(
            "streamed data: %lld record%s of this epoch skipped, with nothing to learn from",
            (long long)n, n == 1 ? "" : "s");
        s->told_how_many = true;
    }
}

/* What chat templates leave out of tools, at the end of the first buffer with such a record, and of the
 * epoch. */
static enum ax_status tell_lost(struct ax_stream *s, bool epoch_ends) {
    const int now = epoch_ends ? 2 : 1, before = s->told_lost;
    enum ax_status st = AX_OK;
    for (size_t i = 0; i < s->o.n && before < now && st == AX_OK; i++) {
        const struct ax_template *t = ax_format_template(s->o.entries[i].format);
        struct ax_buf text = {0};
        if (t)
            st =
                ax_tools_put_lost(&text, t, s->oddities[i], s->examples.files, s->examples.n_files);
        if (st == AX_OK && text.len > 0) {
            ax_log_warn("streamed data: %s%s; " AX_TOOLS_REMEDY, epoch_ends ? "" : "so far, ",
                        text.data);
            s->told_lost = now;
        }
        ax_buf_free(&text);
    }
    return st;
}

/* Fills the buffer. All examples of a record, and therefore of a group, stay in one chunk. */
static enum ax_status fill(struct ax_stream *s, struct ax_corpus *out) {
    struct ax_source_place last = {-1, -1};
    size_t first = 0; /* of the last group */
    for (;;) {
        struct found f = {0};
        bool got;
        AX_TRY(look_on(s, &f, &got));
        tell_empty(s, !got);
        if (!got || !f.x.joined) {
            AX_TRY(settle(s, out, first));
            first = out->n;
        }
        if (!got)
            return tell_lost(s, true);
        const bool same = f.place.set == last.set && f.place.record == last.record;
        if ((int64_t)out->n >= s->o.buffer && !same) {
            s->place = f.place;
            return tell_lost(s, false);
        }
        AX_TRY(keep(s, &f, out));
        last = f.place;
    }
}

static enum ax_status next_chunk(void *ctx, int64_t epoch, int64_t chunk,
                                 struct ax_source_place place, struct ax_corpus *out,
                                 struct ax_source_place *next) {
    struct ax_stream *s = ctx;
    go_to(s, epoch, place);
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
    uint64_t hash = ax_hash64(v, sizeof v, s->o.n);
    for (size_t i = 0; is_mixed(s) && i < s->o.n; i++)
        hash = ax_hash64(&s->o.entries[i].share, sizeof s->o.entries[i].share, hash);
    *out = (struct ax_example_source){.ctx = s, .chunk = next_chunk, .fingerprint = hash};
}

const struct ax_bad_records *ax_stream_bad_records(const struct ax_stream *s) {
    return &s->bad;
}

const struct ax_corpus_report *ax_stream_report(const struct ax_stream *s) {
    return &s->report;
}
