/* Packs documents into the buffers of a micro-batch. */
#include "model/core/batch.h"

#include <string.h>

#include "base/mem.h"

static struct ax_tensor take(struct ax_stack *stack, enum ax_dtype dtype, int64_t n) {
    return ax_tensor_1d(dtype, ax_stack_push(stack, "batch", (size_t)n * sizeof(int32_t)), n);
}

void ax_batch_allocate(struct ax_batch *b, struct ax_stack *stack, int64_t T, int64_t n_cap,
                       int64_t max_len, int parts, int part) {
    const int runs = parts > 1 ? 2 : 1;
    AX_ASSERT(T % (runs * parts) == 0);
    T /= parts;
    *b = (struct ax_batch){.T = T,
                           .cap = T,
                           .n_rows = T,
                           .n_cap = n_cap,
                           .max_len = max_len,
                           .max_queries = max_len < T / runs ? max_len : T / runs,
                           .parts = parts,
                           .part = part,
                           .n_runs = runs};
    b->tokens = take(stack, AX_I32, T);
    b->positions = take(stack, AX_I32, T);
    b->rows = b->row_order = take(stack, AX_I32, T);
    b->labels = take(stack, AX_I32, T);
    b->weight = take(stack, AX_F32, T);
    b->cu_seqlens = take(stack, AX_I32, n_cap + 1);
    b->runs[0] = (struct ax_batch_run){.cu_q = b->cu_seqlens, .cu_k = b->cu_seqlens};
    if (parts == 1)
        return;
    b->order = take(stack, AX_I32, T);
    b->row_order = take(stack, AX_I32, T);
    b->used = take(stack, AX_I32, 1);
    ax_reach_allocate(&b->reach, stack, parts, part);
    for (int r = 0; r < runs; r++) {
        b->runs[r].cu_q = take(stack, AX_I32, n_cap + 1);
        b->runs[r].cu_k = take(stack, AX_I32, n_cap + 1);
        b->runs[r].cu_halo = take(stack, AX_I32, n_cap + 1);
        b->runs[r].enters = take(stack, AX_I32, n_cap);
        b->runs[r].leaves = take(stack, AX_I32, n_cap);
    }
}

void ax_batch_share(struct ax_batch *b, struct ax_stack *stack, int64_t n_keys, int64_t most) {
    AX_ASSERT(b->parts == 1 && b->chunks.size == 0);
    struct ax_shared_prefix *s = &b->prefix;
    *s = (struct ax_shared_prefix){.most = most, .cap = n_keys};
    s->keys = take(stack, AX_I32, n_keys);
    s->cu_k = take(stack, AX_I32, b->n_cap + 1);
    s->users = ax_tensor_2d(AX_I32, take(stack, AX_I32, b->cap * most).data, b->cap, most);
}

/* At most this many chunks of T tokens of `docs` documents. */
static int64_t chunks_of(const struct ax_batch *b, int64_t T, int64_t docs) {
    return docs + T * b->parts / b->chunks.size;
}

void ax_batch_cut(struct ax_batch *b, struct ax_stack *stack, int64_t size) {
    struct ax_batch_chunks *c = &b->chunks;
    if (size == 0)
        return;
    AX_ASSERT(b->prefix.most == 0);
    c->size = size;
    c->cap = chunks_of(b, b->cap, b->n_cap);
    for (int r = 0; r < b->n_runs; r++) {
        c->cu_q[r] = take(stack, AX_I32, c->cap + 1);
        c->cu_k[r] = b->parts > 1 ? take(stack, AX_I32, c->cap + 1) : c->cu_q[r];
    }
    ax_reach_allocate(&c->reach, stack, b->parts, b->part);
}

void ax_batch_look_ahead(struct ax_batch *b, struct ax_stack *stack) {
    AX_ASSERT(b->prefix.most == 0);
    struct ax_batch_ahead *a = &b->ahead;
    *a = (struct ax_batch_ahead){.on = true, .n_rows = b->cap};
    a->tokens = take(stack, AX_I32, b->cap);
    a->rows = a->row_order = take(stack, AX_I32, b->cap);
    a->labels = take(stack, AX_I32, b->cap);
    a->weight = take(stack, AX_F32, b->cap);
    if (b->parts > 1)
        a->row_order = take(stack, AX_I32, b->cap);
}

struct ax_batch ax_batch_ahead(const struct ax_batch *b) {
    struct ax_batch view = *b;
    view.n_rows = b->ahead.n_rows;
    view.rows = b->ahead.rows;
    view.row_order = b->ahead.row_order;
    view.labels = b->ahead.labels;
    view.weight = b->ahead.weight;
    return view;
}

int ax_batch_part_of(const struct ax_batch *b, int64_t t, int64_t *row) {
    const int64_t length = b->T / b->n_runs, run = t / length;
    const bool late = run >= b->parts;
    *row = t % length + (late ? length : 0);
    return (int)(late ? 2 * b->parts - 1 - run : run);
}

/* Values of column c for T tokens and n_rows of them. */
static int64_t column_length(const struct ax_batch *b, int c, int64_t T, int64_t n_rows) {
    const enum ax_column_of of = b->has->list[c].of;
    return of == AX_OF_EXAMPLE ? b->n_cap : of == AX_OF_TOKEN ? T : n_rows;
}

void ax_batch_add_columns(struct ax_batch *b, struct ax_stack *stack,
                          const struct ax_columns *columns) {
    b->has = columns;
    for (int c = 0; c < ax_columns_count(columns); c++) {
        const enum ax_dtype dtype = columns->list[c].is_float ? AX_F32 : AX_I32;
        const int64_t n = column_length(b, c, b->cap, b->cap), width = columns->list[c].width;
        struct ax_tensor *t = &b->columns[c];
        *t = ax_stack_take(stack, "batch",
                           width > 0 ? ax_tensor_2d(dtype, NULL, n, width)
                                     : ax_tensor_1d(dtype, NULL, n));
    }
}

static void set_ahead_rows(struct ax_batch_ahead *a, int64_t n_rows) {
    a->n_rows = a->rows.shape[0] = a->row_order.shape[0] = n_rows;
    a->labels.shape[0] = a->weight.shape[0] = n_rows;
}

/* All readers of the batch see T tokens of `docs` documents, the head n_rows of them. */
static void set_length(struct ax_batch *b, int64_t T, int64_t docs, int64_t n_rows) {
    for (int c = 0; c < ax_columns_count(b->has); c++)
        b->columns[c].shape[0] = column_length(b, c, T, n_rows);
    b->T = b->tokens.shape[0] = b->positions.shape[0] = T;
    b->cu_seqlens.shape[0] = docs + 1;
    for (int r = 0; r < b->n_runs; r++) {
        const int64_t length = T / b->n_runs;
        b->runs[r].first = length * (r == 0 ? b->part : 2 * b->parts - 1 - b->part);
        b->runs[r].cu_q.shape[0] = b->runs[r].cu_k.shape[0] = docs + 1;
        b->runs[r].cu_halo.shape[0] = docs + 1;
        b->runs[r].enters.shape[0] = b->runs[r].leaves.shape[0] = docs;
        if (b->chunks.size > 0)
            b->chunks.cu_q[r].shape[0] = b->chunks.cu_k[r].shape[0] = chunks_of(b, T, docs) + 1;
    }
    b->order.shape[0] = T;
    b->n_rows = b->rows.shape[0] = b->labels.shape[0] = b->weight.shape[0] = n_rows;
    b->row_order.shape[0] = n_rows;
    b->ahead.tokens.shape[0] = T;
    set_ahead_rows(&b->ahead, T);
}

/* Host images of the columns, filled and then copied to the device. row: ends of documents in the
 * sequence; ends: of their chunks; cu: likewise in a run, its queries or keys. label and weight are per token, the head_
 * ones per head row. The next_ ones are those of the tokens after, for `ahead`. */
struct columns {
    int32_t *tokens, *positions, *label, *rows, *head_label, *order, *row_order, *cu, *row, *ends;
    int32_t *next_token, *next_label;
    float *weight, *head_weight, *next_weight;
    uint32_t *extra; /* of the objective: `stride` words for each value of a column, and as many as
                        for the widest once more */
    int64_t stride;
};

static uint32_t *column_of(const struct ax_batch *b, const struct columns *h, int c) {
    return h->extra + (int64_t)ax_columns_width(b->has, c) * h->stride;
}

/* Strides of `extra`. */
static int64_t extra_width(const struct ax_batch *b) {
    size_t widest = 0;
    for (int c = 0; c < ax_columns_count(b->has); c++)
        if (ax_column_width(b->has, c) > widest)
            widest = ax_column_width(b->has, c);
    return (int64_t)(ax_columns_width(b->has, ax_columns_count(b->has)) + widest);
}

/* Appends the tokens with a label, or those without; returns the new count. */
static int64_t list_rows(const struct ax_batch *b, const struct columns *c, bool labeled,
                         int64_t n) {
    for (int64_t t = 0; t < b->T; t++) {
        if ((c->label[t] >= 0) != labeled)
            continue;
        c->rows[n] = (int32_t)t;
        c->head_label[n] = c->label[t];
        c->head_weight[n++] = c->weight[t];
    }
    return n;
}

/* n as a multiple of `of`, at most `most`. */
static int64_t round_up(int64_t n, int64_t of, int64_t most) {
    n = of > 0 ? (n + of - 1) / of * of : n;
    return n < most ? n : most;
}

/* With several parts, each run has the rows that ranks gather of it for convolutions, as many as planned. */
static int64_t least_tokens(const struct ax_batch *b) {
    const int64_t run = b->parts > 1 ? AX_BATCH_HALO : 1, least = run * b->n_runs * b->parts;
    return b->longest > least ? b->longest : least;
}

/* Tokens of each part that n documents take. */
static int64_t length_for(const struct ax_batch *b, const struct ax_rounding *r, int n,
                          const struct ax_document *docs) {
    int64_t tokens = least_tokens(b), own = 0;
    if (b->round <= 0)
        return b->cap;
    for (int d = 0; d < n; d++)
        own += docs[d].n;
    tokens = own > tokens ? own : tokens;
    const int64_t of = r->tokens > b->round ? r->tokens : b->round;
    return round_up(tokens, of, b->cap * b->parts) / b->parts;
}

/* Sets the lengths, and lists the rows of the head: those after the labeled ones have no label. */
static void fit(struct ax_batch *b, const struct columns *c, const struct ax_rounding *r) {
    const int64_t labeled = list_rows(b, c, true, 0);
    int64_t docs = r->documents ? 1 : b->n_cap;
    while (docs < b->n_docs)
        docs *= 2;
    if (b->round > 0)
        set_length(b, b->T, docs < b->n_cap ? docs : b->n_cap,
                   round_up(labeled, r->head_rows, b->T));
    list_rows(b, c, false, labeled);
}

/* The columns of document `index`, which starts at token `first` of the sequence. */
static void put_columns(const struct ax_batch *b, const struct columns *h, int index, int64_t first,
                        const struct ax_document *doc) {
    for (int c = 0; c < ax_columns_count(b->has); c++) {
        const enum ax_column_of of = b->has->list[c].of;
        const int64_t width = (int64_t)ax_column_width(b->has, c);
        const size_t bytes = (size_t)width * sizeof(uint32_t);
        uint32_t *out = column_of(b, h, c);
        if (of == AX_OF_EXAMPLE)
            memcpy(out + index * width, doc->columns[c], bytes);
        for (int64_t i = 0; of != AX_OF_EXAMPLE && i < doc->n; i++) {
            int64_t t;
            if (ax_batch_part_of(b, first + i, &t) == b->part &&
                (of == AX_OF_TOKEN || h->label[t] >= 0))
                memcpy(out + t * width, doc->columns[c] + i * width, bytes);
        }
    }
}

/* A label's values go where `rows` puts the label. */
static enum ax_status send_columns(const struct ax_batch *b, struct ax_queue *q,
                                   const struct columns *h) {
    for (int c = 0; c < ax_columns_count(b->has); c++) {
        const bool of_label = b->has->list[c].of == AX_OF_LABEL;
        const int64_t width = (int64_t)ax_column_width(b->has, c);
        const uint32_t *values = column_of(b, h, c);
        uint32_t *in_order = column_of(b, h, b->has->n);
        for (int64_t k = 0; of_label && k < b->n_rows; k++)
            memcpy(in_order + k * width, values + h->rows[k] * width,
                   (size_t)width * sizeof *values);
        AX_TRY(ax_queue_write(q, b->columns[c].data, of_label ? in_order : values,
                              ax_tensor_bytes(&b->columns[c])));
    }
    return AX_OK;
}

/* What token i of a document is to predict; −1: nothing. */
static int32_t label_of(const struct ax_document *doc, int64_t i) {
    if (i >= doc->n)
        return -1;
    return doc->labels ? doc->labels[i] : i + 1 < doc->n ? doc->tokens[i + 1] : -1;
}

static float weight_of(const struct ax_document *doc, int64_t i) {
    return label_of(doc, i) < 0 ? 0 : doc->weight ? doc->weight[i] : 1;
}

/* For token i of a document, in row t. */
static void put_next(const struct columns *c, const struct ax_document *doc, int64_t i, int64_t t) {
    const float weight = weight_of(doc, i + 1);
    c->next_token[t] = i + 1 < doc->n ? doc->tokens[i + 1] : 0;
    c->next_label[t] = weight > 0 ? label_of(doc, i + 1) : -1;
    c->next_weight[t] = weight;
}

/* Of token i of document `index`. */
static enum ax_status check_ids(const struct ax_batch *b, int64_t vocab, int index, int64_t i,
                                int32_t token, int32_t label) {
    const int64_t labels = b->n_labels > 0 ? b->n_labels : vocab;
    if (token >= 0 && token < vocab && label < labels)
        return AX_OK;
    const bool of_class = label >= labels && b->n_labels > 0;
    return ax_error(AX_ERR_DATA,
                    of_class
                        ? "batch: document %d, token %lld: label %d is not below the number of "
                          "labels, %lld"
                        : "batch: document %d, token %lld: id %d is outside the vocabulary of %lld",
                    index, (long long)i, label >= labels ? label : token,
                    (long long)(of_class ? labels : vocab));
}

static enum ax_status put_document(struct ax_batch *b, struct columns *c, int64_t vocab, int index,
                                   const struct ax_document *doc) {
    const int64_t first = b->n_tokens, row = b->T * b->parts;
    if (doc->shared + doc->n > b->max_len || first + doc->n > row)
        return ax_error(AX_ERR_DATA,
                        "batch: document %d has %lld tokens; %lld are free, and a document can "
                        "have at most %lld",
                        index, (long long)doc->n, (long long)(row - first), (long long)b->max_len);
    AX_ASSERT(b->chunks.size == 0 || doc->first_position == 0);
    for (int64_t i = 0; i < doc->n; i++) {
        int64_t t;
        const bool here = ax_batch_part_of(b, first + i, &t) == b->part;
        const int32_t token = doc->tokens[i];
        const int32_t label = label_of(doc, i);
        const float weight = weight_of(doc, i);
        AX_TRY(check_ids(b, vocab, index, i, token, label));
        if (here) {
            c->tokens[t] = token;
            c->positions[t] = (int32_t)(doc->first_position + i);
            c->label[t] = weight > 0 ? label : -1;
            c->weight[t] = weight;
            if (c->next_label)
                put_next(c, doc, i, t);
        }
        b->weight_total += (double)weight;
        b->trained += weight > 0;
        b->side_trained[index % 2] += weight > 0;
    }
    if (doc->first_position + doc->n - 1 > b->max_position)
        b->max_position = doc->first_position + doc->n - 1;
    b->n_tokens += doc->n;
    b->n_docs++;
    return AX_OK;
}

/* The ends of n documents, or chunks, in the sequence. */
struct ends {
    const int32_t *at;
    int64_t n;
};

/* Sends where their pieces end in tokens [begin, end) of the sequence, counted from `begin`. */
static enum ax_status send_pieces(struct ax_queue *q, const struct ends *e, int32_t *host,
                                  int64_t begin, int64_t end, const struct ax_tensor *cu) {
    for (int64_t d = 0; d <= e->n; d++) {
        const int64_t at = e->at[d] < end ? e->at[d] : end;
        host[d] = (int32_t)(at < begin ? 0 : at - begin);
    }
    return ax_queue_write(q, cu->data, host, (size_t)(e->n + 1) * sizeof *host);
}

/* Sends which document crosses a border of the sequence, as number `slot`. */
static enum ax_status send_crossing(const struct ax_batch *b, struct ax_queue *q,
                                    const struct columns *c, int64_t border, int32_t slot,
                                    const struct ax_tensor *out) {
    for (int64_t d = 0; d < b->n_cap; d++)
        c->cu[d] = c->row[d] < border && border < c->row[d + 1] ? slot : -1;
    return ax_queue_write(q, out->data, c->cu, (size_t)b->n_cap * sizeof *c->cu);
}

/* What a part says of its place in the sequence. */
static enum ax_status send_place(const struct ax_batch *b, struct ax_queue *q,
                                 const struct columns *c) {
    const int64_t length = b->T / b->n_runs;
    int32_t used = 0;
    if (b->parts == 1)
        return AX_OK;
    for (int64_t t = 0; t < b->T; t++) {
        c->order[t] = (int32_t)(b->runs[t / length].first + t % length);
        used += c->order[t] < b->n_tokens;
    }
    for (int64_t k = 0; k < b->n_rows; k++)
        c->row_order[k] = c->order[c->rows[k]];
    AX_TRY(ax_queue_write(q, b->order.data, c->order, (size_t)b->T * sizeof *c->order));
    AX_TRY(ax_queue_write(q, b->row_order.data, c->row_order,
                          (size_t)b->n_rows * sizeof *c->row_order));
    AX_TRY(ax_queue_write(q, b->used.data, &used, sizeof used));
    const struct ends e = {c->row, b->n_cap};
    for (int r = 0; r < b->n_runs; r++) {
        const struct ax_batch_run *run = &b->runs[r];
        const int64_t first = run->first, end = first + length;
        AX_TRY(send_pieces(q, &e, c->cu, first, end, &run->cu_q));
        AX_TRY(send_pieces(q, &e, c->cu, 0, end, &run->cu_k));
        AX_TRY(send_pieces(q, &e, c->cu, first - AX_BATCH_HALO, end, &run->cu_halo));
        AX_TRY(send_crossing(b, q, c, first, 0, &run->enters));
        AX_TRY(send_crossing(b, q, c, end, 1, &run->leaves));
    }
    return AX_OK;
}

static enum ax_status send_chunks(struct ax_batch *b, struct ax_queue *q, const struct columns *c) {
    struct ax_batch_chunks *k = &b->chunks;
    const int64_t length = b->T / b->n_runs;
    int64_t n = 0;
    if (k->size == 0)
        return AX_OK;
    for (int64_t d = 0; d < b->n_docs; d++)
        for (int64_t at = c->row[d]; at < c->row[d + 1]; at += k->size)
            c->ends[++n] = (int32_t)(at + k->size < c->row[d + 1] ? at + k->size : c->row[d + 1]);
    AX_TRY(ax_reach_fill(&k->reach, q, length, n, c->ends));
    for (int64_t i = n + 1; i <= k->cap; i++)
        c->ends[i] = c->ends[n];
    const struct ends e = {c->ends, k->cap};
    if (b->parts == 1)
        return send_pieces(q, &e, c->cu, 0, b->T, &k->cu_q[0]);
    for (int r = 0; r < b->n_runs; r++) {
        const int64_t first = b->runs[r].first, end = first + length;
        AX_TRY(send_pieces(q, &e, c->cu, first, end, &k->cu_q[r]));
        AX_TRY(send_pieces(q, &e, c->cu, 0, end, &k->cu_k[r]));
    }
    return AX_OK;
}

static void begin_ahead(struct columns *c, int64_t T, int32_t *host) {
    c->next_token = host;
    c->next_label = host + T;
    c->next_weight = (float *)(host + 2 * T);
    for (int64_t t = 0; t < T; t++)
        c->next_label[t] = -1;
}

/* After all else has been sent: the lists of rows are made again. */
static enum ax_status send_ahead(struct ax_batch *b, struct ax_queue *q, const struct columns *c) {
    struct columns next = *c;
    struct ax_batch_ahead *a = &b->ahead;
    if (!c->next_label)
        return AX_OK;
    next.label = c->next_label;
    next.weight = c->next_weight;
    const int64_t labeled = list_rows(b, &next, true, 0);
    list_rows(b, &next, false, labeled);
    set_ahead_rows(a, b->round > 0 ? round_up(labeled, q->model->rounding.head_rows, b->T) : b->T);
    const size_t rows = (size_t)a->n_rows * sizeof(int32_t);
    AX_TRY(ax_queue_write(q, a->tokens.data, c->next_token, (size_t)b->T * sizeof(int32_t)));
    AX_TRY(ax_queue_write(q, a->rows.data, c->rows, rows));
    AX_TRY(ax_queue_write(q, a->labels.data, c->head_label, rows));
    AX_TRY(ax_queue_write(q, a->weight.data, c->head_weight, rows));
    if (b->parts == 1)
        return AX_OK;
    for (int64_t k = 0; k < a->n_rows; k++)
        c->row_order[k] = c->order[c->rows[k]];
    return ax_queue_write(q, a->row_order.data, c->row_order, rows);
}

static enum ax_status send(struct ax_batch *b, struct ax_queue *q, const struct columns *c) {
    const size_t column = (size_t)b->T * sizeof(int32_t);
    const size_t rows = (size_t)b->n_rows * sizeof(int32_t);
    AX_TRY(ax_queue_write(q, b->tokens.data, c->tokens, column));
    AX_TRY(ax_queue_write(q, b->positions.data, c->positions, column));
    AX_TRY(ax_queue_write(q, b->rows.data, c->rows, rows));
    AX_TRY(ax_queue_write(q, b->labels.data, c->head_label, rows));
    AX_TRY(ax_queue_write(q, b->weight.data, c->head_weight, rows));
    const size_t cu = (size_t)(b->n_cap + 1) * sizeof(int32_t);
    AX_TRY(ax_queue_write(q, b->cu_seqlens.data, c->row, cu));
    AX_TRY(send_place(b, q, c));
    AX_TRY(ax_reach_fill(&b->reach, q, b->T / b->n_runs, b->n_docs, c->row));
    AX_TRY(send_chunks(b, q, c));
    AX_TRY(send_columns(b, q, c));
    return send_ahead(b, q, c);
}

/* ---- documents that share a prefix: which keys they read ---- */

static void set_prefix_size(struct ax_shared_prefix *s, int64_t T, int64_t docs, int64_t n_keys) {
    s->any = true;
    s->keys.shape[0] = n_keys;
    s->users.shape[0] = T;
    s->cu_k.shape[0] = docs + 1;
}

/* As many keys as there is memory for. */
static void plan_prefix(struct ax_shared_prefix *s, int64_t T) {
    if (s->most > 0)
        set_prefix_size(s, T, s->cu_k.shape[0] - 1, s->cap);
}

/* Host images of the tables. */
struct key_lists {
    int32_t *keys, *users, *cu;
    int64_t n; /* keys */
};

static void add_key(struct key_lists *l, int64_t most, int64_t row) {
    int32_t *users = l->users + row * most;
    int64_t k = 0;
    while (k < most && users[k] >= 0)
        k++;
    AX_ASSERT(k < most);
    users[k] = (int32_t)l->n;
    l->keys[l->n++] = (int32_t)row;
}

static void list_keys(const struct ax_shared_prefix *s, struct key_lists *l, int64_t n,
                      const struct ax_document *docs, const int32_t *first) {
    for (int64_t d = 0; d < n; d++) {
        for (int64_t i = 0; i < docs[d].shared; i++)
            add_key(l, s->most, first[docs[d].shared_with] + i);
        for (int64_t i = 0; i < docs[d].n; i++)
            add_key(l, s->most, first[d] + i);
        l->cu[d + 1] = (int32_t)l->n;
    }
}

static enum ax_status count_keys(const struct ax_shared_prefix *s, int64_t n,
                                 const struct ax_document *docs, int64_t *n_keys) {
    *n_keys = 0;
    for (int64_t d = 0; d < n; d++) {
        const struct ax_document *with = docs + docs[d].shared_with;
        AX_ASSERT(docs[d].shared == 0 ||
                  (docs[d].shared_with < d && with->shared == 0 && docs[d].shared <= with->n));
        *n_keys += docs[d].shared + docs[d].n;
    }
    if (*n_keys > s->cap)
        return ax_error(AX_ERR_DATA, "batch: documents of %lld tokens in all, but %lld fit",
                        (long long)*n_keys, (long long)s->cap);
    return AX_OK;
}

static bool any_shares(int64_t n, const struct ax_document *docs) {
    for (int64_t d = 0; d < n; d++)
        if (docs[d].shared > 0)
            return true;
    return false;
}

static enum ax_status send_keys(const struct ax_shared_prefix *s, struct ax_queue *q,
                                const struct key_lists *l) {
    AX_TRY(ax_queue_write(q, s->keys.data, l->keys, ax_tensor_bytes(&s->keys)));
    AX_TRY(ax_queue_write(q, s->users.data, l->users, ax_tensor_bytes(&s->users)));
    return ax_queue_write(q, s->cu_k.data, l->cu, ax_tensor_bytes(&s->cu_k));
}

/* Fills the tables for T rows and n documents, document d from row first[d] on; n_docs: number of
 * documents in cu_seqlens, which repeats its end. AX_ERR_DATA if the keys do not fit. */
static enum ax_status fill_prefix(struct ax_shared_prefix *s, struct ax_queue *q, int64_t T,
                                  int64_t n_docs, int64_t n, const struct ax_document *docs,
                                  const int32_t *first) {
    int64_t n_keys;
    int32_t *host;
    s->any = false;
    if (!any_shares(n, docs))
        return AX_OK;
    AX_TRY(count_keys(s, n, docs, &n_keys));
    set_prefix_size(s, T, n_docs, n_keys);
    const int64_t users = T * s->most;
    AX_TRY(ax_alloc(&host, (size_t)(n_keys + users + n_docs + 1), sizeof *host));
    struct key_lists l = {.keys = host, .users = host + n_keys, .cu = host + n_keys + users};
    for (int64_t i = 0; i < users; i++)
        l.users[i] = -1;
    list_keys(s, &l, n, docs, first);
    for (int64_t d = n; d < n_docs; d++)
        l.cu[d + 1] = (int32_t)n_keys;
    const enum ax_status st = send_keys(s, q, &l);
    ax_free(host);
    return st;
}

/* ---- a batch ---- */

/* Document d starts at row first[d]. One that shares needs a batch that can. */
static enum ax_status share(struct ax_batch *b, struct ax_queue *q, int n,
                            const struct ax_document *docs, const int32_t *first) {
    for (int d = 0; d < n; d++)
        AX_ASSERT(docs[d].shared == 0 || b->prefix.most > 0);
    if (b->prefix.most == 0)
        return AX_OK;
    AX_TRY(fill_prefix(&b->prefix, q, b->T, b->cu_seqlens.shape[0] - 1, n, docs, first));
    b->runs[0].cu_k = b->prefix.any ? b->prefix.cu_k : b->cu_seqlens;
    return AX_OK;
}

enum ax_status ax_batch_fill(struct ax_batch *b, struct ax_queue *q, int64_t vocab, int n,
                             const struct ax_document *docs) {
    b->n_docs = b->n_tokens = b->trained = b->max_position = 0;
    b->side_trained[0] = b->side_trained[1] = 0;
    b->weight_total = 0;
    const bool planning = ax_queue_is_meta(q);
    const int64_t T = planning ? b->cap : length_for(b, &q->model->rounding, n, docs);
    set_length(b, T, b->n_cap, T);
    if (planning) {
        plan_prefix(&b->prefix, T);
        ax_reach_plan(&b->reach, T / b->n_runs, b->max_len);
        ax_reach_plan(&b->chunks.reach, T / b->n_runs,
                      b->chunks.size < b->max_len ? b->chunks.size : b->max_len);
        b->n_docs = b->n_cap;
        b->n_tokens = b->trained = b->T * b->parts;
        b->weight_total = (double)b->n_tokens;
        return AX_OK;
    }
    if (n > b->n_cap)
        return ax_error(AX_ERR_DATA, "batch: %d documents, but at most %lld fit", n,
                        (long long)b->n_cap);
    const int64_t stride = b->cap > b->n_cap ? b->cap : b->n_cap;
    const int64_t pieces = (b->n_cap > b->chunks.cap ? b->n_cap : b->chunks.cap) + 1;
    const int64_t tables = 9 * b->T + 2 * pieces + b->n_cap + 1;
    const int64_t own = tables + (b->ahead.on ? 3 * b->T : 0);
    int32_t *host;
    AX_TRY(ax_alloc(&host, (size_t)(own + extra_width(b) * stride), sizeof *host));
    struct columns c = {.tokens = host,
                        .positions = host + b->T,
                        .label = host + 2 * b->T,
                        .weight = (float *)(host + 3 * b->T),
                        .rows = host + 4 * b->T,
                        .head_label = host + 5 * b->T,
                        .head_weight = (float *)(host + 6 * b->T),
                        .order = host + 7 * b->T,
                        .row_order = host + 8 * b->T,
                        .cu = host + 9 * b->T,
                        .ends = host + 9 * b->T + pieces,
                        .row = host + 9 * b->T + 2 * pieces,
                        .extra = (uint32_t *)host + own,
                        .stride = stride};
    for (int64_t t = 0; t < b->T; t++)
        c.label[t] = -1;
    if (b->ahead.on)
        begin_ahead(&c, b->T, host + tables);
    enum ax_status st = AX_OK;
    for (int d = 0; d < n; d++) {
        const int64_t first = b->n_tokens;
        AX_TRY_GOTO(put_document(b, &c, vocab, d, &docs[d]), st, done);
        put_columns(b, &c, d, first, &docs[d]);
        c.row[d + 1] = (int32_t)b->n_tokens;
    }
    for (int64_t d = n; d < b->n_cap; d++)
        c.row[d + 1] = (int32_t)b->n_tokens;
    fit(b, &c, &q->model->rounding);
    AX_TRY_GOTO(share(b, q, n, docs, c.row), st, done);
    st = send(b, q, &c);
done:
    ax_free(host);
    return st;
}
