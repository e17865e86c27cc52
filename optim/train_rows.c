/* Rows of the loader into the micro-batches of a step. Every data rank reads all rows of the step
 * and keeps its own, so that the order of the data does not depend on the mesh. */
#include <string.h>

#include "optim/train_state.h"

enum ax_status ax_train_rows_create(struct ax_train_rows *r, const struct ax_step *s) {
    *r = (struct ax_train_rows){
        .cap_tokens = s->o.tokens, .cap_docs = s->o.n_docs, .n_batches = s->o.n_microbatches};
    const size_t n = (size_t)r->n_batches, tokens = n * (size_t)r->cap_tokens;
    const size_t docs = n * (size_t)r->cap_docs;
    AX_TRY(ax_alloc(&r->tokens, tokens, sizeof *r->tokens));
    AX_TRY(ax_alloc(&r->labels, tokens, sizeof *r->labels));
    AX_TRY(ax_alloc(&r->docs, docs, sizeof *r->docs));
    AX_TRY(ax_alloc(&r->origins, docs, sizeof *r->origins));
    return ax_alloc(&r->n_docs, n, sizeof *r->n_docs);
}

void ax_train_rows_free(struct ax_train_rows *r) {
    ax_free(r->tokens);
    ax_free(r->labels);
    ax_free(r->docs);
    ax_free(r->origins);
    ax_free(r->n_docs);
    *r = (struct ax_train_rows){0};
}

static struct ax_train_origin origin(const struct ax_loaded_row *row, int piece) {
    const struct ax_corpus_doc *c = &row->group->docs[row->pieces[piece].doc];
    const struct ax_docs *set = row->group->sets[c->set];
    const struct ax_doc *doc = &set->list[c->doc];
    return (struct ax_train_origin){doc->file < set->n_files ? set->files[doc->file] : "?",
                                    doc->line};
}

/* Behind what micro-batch m holds already. */
static void append(struct ax_train_rows *r, int m, const struct ax_loaded_row *row) {
    int64_t at = 0;
    struct ax_document *docs = r->docs + m * r->cap_docs;
    for (int i = 0; i < r->n_docs[m]; i++)
        at += docs[i].n;
    AX_ASSERT(at + row->n_tokens <= r->cap_tokens && r->n_docs[m] + row->n <= r->cap_docs);
    for (int i = 0; i < row->n; i++) {
        const size_t bytes = (size_t)row->docs[i].n * sizeof(int32_t);
        int32_t *tokens = r->tokens + m * r->cap_tokens + at;
        int32_t *labels = r->labels + m * r->cap_tokens + at;
        memcpy(tokens, row->docs[i].tokens, bytes);
        memcpy(labels, row->docs[i].labels, bytes);
        docs[r->n_docs[m]] =
            (struct ax_document){.n = row->docs[i].n, .tokens = tokens, .labels = labels};
        r->origins[m * r->cap_docs + r->n_docs[m]] = origin(row, i);
        r->n_docs[m]++;
        at += row->docs[i].n;
    }
}

/* Micro-batch m of data rank d takes rows (m·ranks + d)·rows_per_batch and on. *got = rows read. */
static enum ax_status read_rows(struct ax_train_rows *r, const struct ax_train_data *d,
                                const struct ax_mesh *mesh, int64_t *got) {
    const int64_t ranks = mesh->size[AX_ROLE_BATCH], own = mesh->coord[AX_ROLE_BATCH];
    const int64_t want = r->n_batches * ranks * d->rows_per_batch;
    memset(r->n_docs, 0, (size_t)r->n_batches * sizeof *r->n_docs);
    r->n_tokens = r->n_trained = 0;
    for (*got = 0; *got < want; ++*got) {
        struct ax_loaded_row row;
        bool any;
        AX_TRY(ax_loader_next(d->train, &row, &any));
        if (!any)
            return AX_OK;
        if (*got == 0) {
            r->epoch = row.epoch;
            r->index = row.index;
        }
        r->n_tokens += row.n_tokens;
        r->n_trained += row.n_trained;
        const int64_t batch = *got / d->rows_per_batch;
        if (batch % ranks == own)
            append(r, (int)(batch / ranks), &row);
    }
    return AX_OK;
}

enum ax_status ax_train_rows_next(struct ax_train_rows *r, struct ax_step *s,
                                  const struct ax_train_data *d, const struct ax_mesh *mesh) {
    const int64_t want = r->n_batches * mesh->size[AX_ROLE_BATCH] * d->rows_per_batch;
    for (int tries = 0;; tries++) {
        AX_TRY(read_rows(r, d, mesh, &r->rows));
        if (r->rows == want || (r->rows > 0 && !d->drop_last))
            break;
        if (tries > 0)
            return ax_error(AX_ERR_DATA,
                            "datasets: an epoch has only %lld rows, but a step takes %lld; lower "
                            "micro_batch_size or gradient_accumulation_steps",
                            (long long)r->rows, (long long)want);
        struct ax_loader_state at;
        ax_loader_save(d->train, &at);
        ax_loader_start_epoch(d->train, at.epoch + 1);
    }
    for (int m = 0; m < r->n_batches; m++)
        AX_TRY(ax_batch_fill(&s->batches[m], s->rt->q, s->model.arch.vocab_size, r->n_docs[m],
                             r->docs + m * r->cap_docs));
    return AX_OK;
}
