/* A ring of batches. The caller's thread reads records from the files into batches; workers parse,
 * format and tokenize them; the caller takes examples from the oldest batch. Read ax_prepare_next
 * first. */
#include "data/records/pipeline/prepare.h"

#include <pthread.h>
#include <string.h>

#include "base/threads.h"

/* Large enough to make handing over a batch cheap, small enough that the first examples are
 * available soon. */
#define BATCH_ROWS       256
#define BATCH_BYTES      ((size_t)256 * 1024)
#define SLOTS_PER_THREAD 3
#define THREADS_MAX      64

struct batch {
    enum { EMPTY, FULL, TAKEN, DONE } state;
    struct ax_buf text;
    struct ax_raw_row rows[BATCH_ROWS]; /* their text is in `text`; the worker sets the pointers */
    size_t n_rows;
    struct ax_example_list examples;
    struct ax_buf bad; /* why records could not be used, in order, each with its NUL */
    size_t n_bad;
    int64_t n_empty;
    char *first_empty; /* why the first of them is empty */
    struct ax_oddities skipped[AX_ODDITIES];
    struct ax_error_record error; /* a failure that is not a record's fault */
};

struct ax_prepare {
    struct ax_prepare_options o;
    struct ax_worker workers[THREADS_MAX];
    struct batch *ring;
    size_t n_slots;
    pthread_mutex_t lock;
    pthread_cond_t filled, done;
    uint64_t fill_at, take_at, read_at; /* batches filled, started by workers, emptied */
    size_t item;                        /* next example of the batch at read_at */
    bool rows_ended, closing;
};

/* ---- workers ---- */

static enum ax_status work_record(const struct ax_prepare *p, struct batch *b, size_t row,
                                  struct ax_format_work *w) {
    const struct ax_raw_row *raw = &b->rows[row];
    const struct ax_origin origin = {raw->file, raw->line,
                                     p->o.numbered ? raw->number : raw->index};
    json_t *value = NULL;
    AX_TRY(ax_rows_parse(p->o.rows, raw, &value));
    enum ax_status st = ax_format_record(p->o.format, w, value, origin, &b->examples);
    json_decref(value);
    if (st == AX_ERR_DATA || st == AX_ERR_EMPTY)
        st = ax_error_prefix(st, "%s:%llu", ax_rows_file(p->o.rows, raw->file),
                             (unsigned long long)raw->line);
    return st;
}

static void work_batch(const struct ax_prepare *p, struct batch *b, struct ax_format_work *w) {
    size_t at = 0;
    for (size_t i = 0; i < b->n_rows; i++) {
        b->rows[i].text = b->text.data + at;
        at += b->rows[i].len;
        enum ax_status st = work_record(p, b, i, w);
        if (st == AX_ERR_EMPTY)
            ax_oddities_count(b->skipped, w->oddities,
                              &(struct ax_origin){b->rows[i].file, b->rows[i].line, 0});
        if (st == AX_ERR_EMPTY)
            st = b->n_empty++ == 0 ? ax_strdup(&b->first_empty, ax_error_text()) : AX_OK;
        if (st == AX_ERR_DATA) {
            st = ax_buf_append(&b->bad, ax_error_text(), strlen(ax_error_text()) + 1);
            b->n_bad++;
        }
        if (st != AX_OK) {
            ax_error_save(&b->error, st);
            return;
        }
    }
}

static enum ax_status worker(void *arg) {
    struct ax_prepare *p = arg;
    struct ax_format_work w = {0};
    pthread_mutex_lock(&p->lock);
    while (!p->closing) {
        if (p->take_at == p->fill_at) {
            pthread_cond_wait(&p->filled, &p->lock);
            continue;
        }
        struct batch *b = &p->ring[p->take_at++ % p->n_slots];
        b->state = TAKEN;
        pthread_mutex_unlock(&p->lock);
        work_batch(p, b, &w);
        pthread_mutex_lock(&p->lock);
        b->state = DONE;
        pthread_cond_signal(&p->done);
    }
    pthread_mutex_unlock(&p->lock);
    ax_format_work_free(&w);
    return AX_OK;
}

/* ---- filling ---- */

static enum ax_status fill(struct ax_prepare *p, struct batch *b) {
    b->text.len = b->bad.len = 0;
    b->n_rows = b->n_bad = 0;
    b->n_empty = 0;
    b->error.st = AX_OK;
    ax_example_list_cut(&b->examples, 0);
    while (b->n_rows < BATCH_ROWS && b->text.len < BATCH_BYTES && !p->rows_ended) {
        bool got;
        struct ax_raw_row *row = &b->rows[b->n_rows];
        AX_TRY(ax_rows_next(p->o.rows, row, &got));
        p->rows_ended = !got;
        if (!got)
            break;
        if (row->problem)
            row->len = 0;
        AX_TRY(ax_buf_append(&b->text, row->text, row->len));
        b->n_rows++;
    }
    return AX_OK;
}

/* Fills every free slot. */
static enum ax_status fill_all(struct ax_prepare *p) {
    while (!p->rows_ended && p->fill_at - p->read_at < p->n_slots) {
        struct batch *b = &p->ring[p->fill_at % p->n_slots];
        AX_TRY(fill(p, b));
        pthread_mutex_lock(&p->lock);
        b->state = FULL;
        p->fill_at++;
        pthread_cond_signal(&p->filled);
        pthread_mutex_unlock(&p->lock);
    }
    return AX_OK;
}

/* ---- the caller's side ---- */

static enum ax_status count_bad(struct ax_bad_records *bad, const struct batch *b) {
    const char *text = b->bad.data;
    for (size_t i = 0; i < b->n_bad; i++, text += strlen(text) + 1) {
        if (bad->n < AX_BAD_RECORDS_LISTED)
            AX_TRY(ax_strdup(&bad->texts[bad->n], text));
        bad->n++;
        if (bad->n > bad->allowed && bad->allowed > 0)
            return ax_error(AX_ERR_DATA, "%lld bad records, but max_bad_rows is %lld; the last: %s",
                            (long long)bad->n, (long long)bad->allowed, text);
        if (bad->n > bad->allowed)
            return ax_error(AX_ERR_DATA, "%s (set max_bad_rows: 1 to skip one such record)", text);
    }
    return AX_OK;
}

static void count_empty(struct ax_bad_records *bad, struct batch *b) {
    if (!bad->first_empty) {
        bad->first_empty = b->first_empty;
        b->first_empty = NULL;
    }
    ax_free(b->first_empty);
    b->first_empty = NULL;
    bad->n_empty += b->n_empty;
    b->n_empty = 0;
    ax_oddities_add(bad->skipped, b->skipped);
    memset(b->skipped, 0, sizeof b->skipped);
}

static void await(struct ax_prepare *p, const struct batch *b) {
    pthread_mutex_lock(&p->lock);
    while (b->state != DONE)
        pthread_cond_wait(&p->done, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

enum ax_status ax_prepare_next(struct ax_prepare *p, struct ax_example *out, bool *got) {
    for (;;) {
        struct batch *b = &p->ring[p->read_at % p->n_slots];
        if (p->read_at == p->fill_at) {
            AX_TRY(fill_all(p));
            *got = p->read_at < p->fill_at;
            if (!*got)
                return AX_OK;
        }
        await(p, b);
        if (p->item == 0) {
            if (b->error.st != AX_OK)
                return ax_error_restore(&b->error);
            AX_TRY(count_bad(p->o.bad, b));
            count_empty(p->o.bad, b);
        }
        if (p->item < b->examples.n) {
            *out = b->examples.items[p->item++];
            *got = true;
            return AX_OK;
        }
        p->item = 0;
        p->read_at++;
        AX_TRY(fill_all(p));
    }
}

enum ax_status ax_prepare_open(struct ax_prepare **out, const struct ax_prepare_options *o) {
    struct ax_prepare *p;
    AX_TRY(ax_alloc(&p, 1, sizeof *p));
    p->o = *o;
    const int threads = o->threads < 1 ? 1 : o->threads > THREADS_MAX ? THREADS_MAX : o->threads;
    p->n_slots = (size_t)threads * SLOTS_PER_THREAD;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->filled, NULL);
    pthread_cond_init(&p->done, NULL);
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&p->ring, p->n_slots, sizeof *p->ring), st, fail);
    for (size_t i = 0; i < p->n_slots; i++)
        p->ring[i].examples.columns = ax_format_columns(o->format);
    for (int i = 0; i < threads; i++)
        AX_TRY_GOTO(ax_worker_start(&p->workers[i], worker, p), st, fail);
    *out = p;
    return AX_OK;
fail:
    ax_prepare_close(p);
    return st;
}

void ax_prepare_close(struct ax_prepare *p) {
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->closing = true;
    pthread_cond_broadcast(&p->filled);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < THREADS_MAX; i++)
        (void)ax_worker_join(&p->workers[i]); /* a worker always returns AX_OK */
    for (size_t i = 0; p->ring && i < p->n_slots; i++) {
        ax_buf_free(&p->ring[i].text);
        ax_buf_free(&p->ring[i].bad);
        ax_free(p->ring[i].first_empty);
        ax_example_list_free(&p->ring[i].examples);
    }
    ax_free(p->ring);
    pthread_cond_destroy(&p->filled);
    pthread_cond_destroy(&p->done);
    pthread_mutex_destroy(&p->lock);
    ax_free(p);
}
