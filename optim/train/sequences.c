/* Puts the loader's sequences into a step's micro-batches. Every data rank reads all sequences of
 * the step and keeps its own, so that the order of the data does not depend on the mesh. */
#include "optim/train/sequences.h"

#include <string.h>

#include "optim/evaluate/evaluate.h"

enum ax_status ax_train_sequences_create(struct ax_train_sequences *r, const struct ax_step *s) {
    *r = (struct ax_train_sequences){
        .cap_tokens = s->o.tokens,
        .cap_docs = s->o.n_docs,
        .n_batches = s->o.n_microbatches,
        .ranks = s->rt->mesh.size[AX_ROLE_BATCH],
        .own = s->rt->mesh.coord[AX_ROLE_BATCH],
        .columns = s->o.objective->columns,
        .width =
            ax_columns_width(s->o.objective->columns, ax_columns_count(s->o.objective->columns)),
        .pairs_share = s->o.alike > 1 && s->o.objective->per == AX_PER_PAIR,
        .reference = -1};
    if (s->o.objective->documents)
        r->reference = s->o.objective->documents->reference;
    const size_t n = (size_t)r->n_batches, tokens = n * (size_t)r->cap_tokens;
    const size_t docs = n * (size_t)r->cap_docs;
    AX_TRY(ax_alloc(&r->tokens, tokens, sizeof *r->tokens));
    AX_TRY(ax_alloc(&r->labels, tokens, sizeof *r->labels));
    AX_TRY(ax_alloc(&r->values, r->width * tokens, sizeof *r->values));
    AX_TRY(ax_alloc(&r->docs, docs, sizeof *r->docs));
    const size_t ranks = (size_t)r->ranks;
    AX_TRY(ax_alloc(&r->origins, docs * ranks, sizeof *r->origins));
    AX_TRY(ax_alloc(&r->examples, docs * ranks, sizeof *r->examples));
    AX_TRY(ax_alloc(&r->all_docs, n * ranks, sizeof *r->all_docs));
    AX_TRY(ax_alloc(&r->longest, n, sizeof *r->longest));
    return ax_alloc(&r->n_docs, n, sizeof *r->n_docs);
}

void ax_train_sequences_free(struct ax_train_sequences *r) {
    ax_free(r->tokens);
    ax_free(r->labels);
    ax_free(r->values);
    ax_free(r->docs);
    ax_free(r->origins);
    ax_free(r->examples);
    ax_free(r->all_docs);
    ax_free(r->longest);
    ax_free(r->n_docs);
    *r = (struct ax_train_sequences){0};
}

static struct ax_train_origin origin_of(const struct ax_packed_sequence *s, int piece) {
    const struct ax_examples *set = ax_sequence_set(s, piece);
    const struct ax_stored *x = &set->list[ax_sequence_ref(s, piece)->index];
    return (struct ax_train_origin){x->file < set->n_files ? set->files[x->file] : "?", x->line};
}

uint32_t *ax_train_column_at(const struct ax_train_sequences *r, int m, int c, int64_t at) {
    const size_t cap = (size_t)r->cap_tokens;
    return r->values + ((size_t)m * r->width + ax_columns_width(r->columns, c)) * cap +
           (size_t)at * ax_column_width(r->columns, c);
}

/* Copies the columns of document i of s, without the tokens that it shares, to micro-batch m, where its
 * tokens start at `at`. A shifted label's has none for the last token. What examples do not have, others fill. */
static void copy_columns(struct ax_train_sequences *r, int m, int64_t at,
                         const struct ax_packed_sequence *s, int i, struct ax_document *to) {
    const struct ax_document *from = &s->docs[i];
    for (int c = 0; c < ax_columns_count(r->columns); c++) {
        const bool each = r->columns->list[c].of != AX_OF_EXAMPLE;
        const bool shifted = r->columns->list[c].of == AX_OF_LABEL && !s->labels_in_place;
        const size_t words = ax_column_words(r->columns, c, (size_t)to->n - shifted);
        const size_t skip = each ? (size_t)to->shared * ax_column_width(r->columns, c) : 0;
        uint32_t *values = ax_train_column_at(r, m, c, at);
        if (from->columns[c])
            memcpy(values, from->columns[c] + skip, words * sizeof *values);
        to->columns[c] = values;
    }
}

/* Of document i of the sequence, whose tokens start at `at` in micro-batch m. */
static void put_reference(struct ax_train_sequences *r, int m, int64_t at,
                          const struct ax_packed_sequence *s, int i) {
    const float logprob =
        ax_references_get(r->references, ax_sequence_set(s, i), ax_sequence_ref(s, i)->index);
    memcpy(ax_train_column_at(r, m, r->reference, at), &logprob, sizeof logprob);
}

static int64_t shared_tokens(const struct ax_train_sequences *r, const struct ax_packed_sequence *s,
                             int i) {
    return r->pairs_share ? ax_pair_shared(s, i) : 0;
}

/* Appends the sequence's documents to micro-batch m. */
static void append_sequence(struct ax_train_sequences *r, int m,
                            const struct ax_packed_sequence *s) {
    int64_t at = 0;
    struct ax_document *docs = r->docs + m * r->cap_docs;
    for (int i = 0; i < r->n_docs[m]; i++)
        at += docs[i].n;
    AX_ASSERT(r->n_docs[m] + s->n <= r->cap_docs);
    for (int i = 0; i < s->n; i++) {
        const int64_t shared = shared_tokens(r, s, i), n = s->docs[i].n - shared;
        int32_t *tokens = r->tokens + m * r->cap_tokens + at;
        int32_t *labels = r->labels + m * r->cap_tokens + at;
        AX_ASSERT(at + n <= r->cap_tokens);
        memcpy(tokens, s->docs[i].tokens + shared, (size_t)n * sizeof *tokens);
        memcpy(labels, s->docs[i].labels + shared, (size_t)n * sizeof *labels);
        docs[r->n_docs[m]] = (struct ax_document){.n = n,
                                                  .tokens = tokens,
                                                  .labels = labels,
                                                  .first_position = shared,
                                                  .shared = shared,
                                                  .shared_with = r->n_docs[m] - (shared > 0)};
        copy_columns(r, m, at, s, i, &docs[r->n_docs[m]]);
        if (r->reference >= 0)
            put_reference(r, m, at, s, i);
        r->n_docs[m]++;
        at += n;
    }
}

/* What a micro-batch computes of the sequence. */
static int64_t computed_tokens(const struct ax_train_sequences *r,
                               const struct ax_packed_sequence *s) {
    int64_t n = s->n_tokens;
    for (int i = 0; i < s->n; i++)
        n -= shared_tokens(r, s, i);
    return n;
}

/* Micro-batch m of data rank d gets sequences_per_batch sequences, starting with the step's number
 * (m·ranks + d)·sequences_per_batch. */
static enum ax_status read_step(struct ax_train_sequences *r, const struct ax_train_data *d,
                                int64_t want) {
    int64_t in_batch = 0; /* tokens */
    memset(r->n_docs, 0, (size_t)r->n_batches * sizeof *r->n_docs);
    memset(r->longest, 0, (size_t)r->n_batches * sizeof *r->longest);
    memset(r->all_docs, 0, (size_t)(r->n_batches * r->ranks) * sizeof *r->all_docs);
    r->n_tokens = r->n_trained = r->n_computed = 0;
    for (r->n = 0; r->n < want; r->n++) {
        struct ax_packed_sequence s;
        bool got;
        AX_TRY(ax_loader_next(d->train, &s, &got));
        if (!got)
            return AX_OK;
        if (r->n == 0) {
            r->epoch = s.epoch;
            r->index = s.index;
        }
        const int64_t computed = computed_tokens(r, &s);
        r->n_tokens += s.n_tokens;
        r->n_computed += computed;
        r->n_trained += s.n_trained;
        const int64_t batch = r->n / d->sequences_per_batch;
        in_batch = r->n % d->sequences_per_batch == 0 ? computed : in_batch + computed;
        if (in_batch > r->longest[batch / r->ranks])
            r->longest[batch / r->ranks] = in_batch;
        for (int i = 0; i < s.n; i++) {
            const int64_t at = batch * r->cap_docs + r->all_docs[batch]++;
            r->origins[at] = origin_of(&s, i);
            r->examples[at] =
                (struct ax_mismatch_of){ax_sequence_set(&s, i), ax_sequence_ref(&s, i)->index};
        }
        if (batch % r->ranks == r->own)
            append_sequence(r, (int)(batch / r->ranks), &s);
    }
    return AX_OK;
}

enum ax_status ax_train_sequences_fill(const struct ax_train_sequences *r, struct ax_step *s) {
    for (int m = 0; m < r->n_batches; m++) {
        s->batches[m].longest = r->longest[m];
        AX_TRY(ax_batch_fill(&s->batches[m], s->rt->q, s->model.arch.vocab_size, r->n_docs[m],
                             r->docs + m * r->cap_docs));
    }
    return AX_OK;
}

/* Reads as many of an epoch's last sequences as there are full micro-batches for all ranks. */
static enum ax_status read_full_batches(struct ax_train_sequences *r, const struct ax_train_data *d,
                                        int64_t want) {
    const int64_t unit = r->ranks * d->sequences_per_batch;
    struct ax_loader_state at;
    ax_loader_save(d->train, &at);
    AX_TRY(read_step(r, d, want));
    if (!d->drop_partial || r->n % unit == 0)
        return AX_OK;
    AX_TRY(ax_loader_restore(d->train, &at));
    return read_step(r, d, r->n / unit * unit);
}

enum ax_status ax_train_sequences_ask(const struct ax_train_sequences *r, const struct ax_step *s,
                                      const struct ax_remote_teacher *teacher, bool *stopped) {
    const struct ax_document **docs;
    int64_t n = 0;
    AX_TRY(ax_alloc(&docs, (size_t)(r->n_batches * r->cap_docs), sizeof *docs));
    for (int m = 0; m < r->n_batches; m++)
        for (int i = 0; i < r->n_docs[m]; i++)
            docs[n++] = &r->docs[m * r->cap_docs + i];
    const enum ax_status st =
        ax_asked_fill(s->rt, teacher, s->o.objective->head.distill, n, docs, stopped);
    ax_free(docs);
    return st;
}

/* Starts the next epoch when this one has no more steps. */
static enum ax_status read_next(struct ax_train_sequences *r, const struct ax_train_data *d) {
    const int64_t want = (int64_t)r->n_batches * r->ranks * d->sequences_per_batch;
    for (int tries = 0;; tries++) {
        AX_TRY(read_full_batches(r, d, want));
        const bool is_epoch = r->n > 0 && r->index == 0;
        if (r->n == want || (r->n > 0 && !d->drop_last) || (is_epoch && d->keeps_short))
            break;
        if (tries > 0)
            return ax_error(AX_ERR_DATA,
                            "datasets: an epoch has only %lld rows, but a step takes %lld; lower "
                            "micro_batch_size or gradient_accumulation_steps",
                            (long long)r->n, (long long)want);
        struct ax_loader_state at;
        ax_loader_save(d->train, &at);
        ax_loader_start_epoch(d->train, at.epoch + 1);
    }
    return AX_OK;
}

enum ax_status ax_train_sequences_next(struct ax_train_sequences *r, struct ax_step *s,
                                       const struct ax_train_data *d,
                                       const struct ax_remote_teacher *teacher, bool *stopped) {
    struct ax_loader_state at;
    ax_loader_save(d->train, &at);
    AX_TRY(read_next(r, d));
    if (teacher)
        AX_TRY(ax_train_sequences_ask(r, s, teacher, stopped));
    return *stopped ? ax_loader_restore(d->train, &at) : ax_train_sequences_fill(r, s);
}
