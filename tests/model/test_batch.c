/* The arrays of a micro-batch against a plain loop over its documents: uncut, and cut into parts as
 * context parallelism does, whose parts together have to say the same of every token. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "model/core/batch.h"
#include "tests/data/scratch.h"
#include "tests/kernels/harness.h"

/* Cut into runs of 6, 4 and 3 tokens, which documents go across. */
#define TOKENS 24
#define DOCS   4
#define ROOM   6 /* documents there is room for */
#define VOCAB  50
static const int64_t lengths[DOCS] = {7, 5, 1, 6};
#define USED 19

enum { NEXT_TOKEN, OWN_LABELS, OWN_WEIGHTS, FILLS };

/* All tokens of a row; ends[d + 1] is where document d ends. */
struct row {
    int32_t tokens[TOKENS], positions[TOKENS], labels[TOKENS];
    float weights[TOKENS];
    int32_t ends[ROOM + 1];
};

struct documents {
    int32_t tokens[TOKENS], labels[TOKENS];
    float weights[TOKENS];
    struct ax_document list[DOCS];
};

static void make_documents(struct documents *d, int fill) {
    int64_t at = 0;
    for (int i = 0; i < TOKENS; i++) {
        d->tokens[i] = 1 + i;
        d->labels[i] = i % 3 == 0 ? -1 : VOCAB - 1 - i;
        d->weights[i] = (float)(i % 4) / 2;
    }
    for (int k = 0; k < DOCS; k++) {
        d->list[k] = (struct ax_document){.n = lengths[k],
                                          .tokens = d->tokens + at,
                                          .labels = fill >= OWN_LABELS ? d->labels + at : NULL,
                                          .weight = fill == OWN_WEIGHTS ? d->weights + at : NULL,
                                          .first_position = k == 1 ? 30 : 0};
        at += lengths[k];
    }
}

/* What the header says of a row; returns Σ weight. */
static double expected(const struct documents *d, struct row *row, int64_t *trained) {
    double total = 0;
    int64_t t = 0;
    *row = (struct row){0};
    *trained = 0;
    for (int k = 0; k < ROOM; k++) {
        const struct ax_document *doc = &d->list[k];
        for (int64_t i = 0; k < DOCS && i < doc->n; i++, t++) {
            const int32_t next = i + 1 < doc->n ? doc->tokens[i + 1] : -1;
            const int32_t label = doc->labels ? doc->labels[i] : next;
            const float weight = label < 0 ? 0 : doc->weight ? doc->weight[i] : 1;
            row->tokens[t] = doc->tokens[i];
            row->positions[t] = (int32_t)(doc->first_position + i);
            row->labels[t] = weight > 0 ? label : -1;
            row->weights[t] = weight;
            total += (double)weight;
            *trained += weight > 0;
        }
        row->ends[k + 1] = (int32_t)t;
    }
    for (; t < TOKENS; t++)
        row->labels[t] = -1;
    return total;
}

static void read_column(struct machine *m, const struct ax_tensor *t, void *out) {
    assert_ok(ax_queue_read(m->q, t->data, out, ax_tensor_bytes(t), NULL));
}

/* The head's rows: those with a label first, each list in order, every token once. */
static void check_rows(const int32_t *rows, const int32_t *labels, int64_t n, int64_t n_tokens) {
    bool seen[TOKENS] = {false};
    for (int64_t i = 0; i < n; i++) {
        assert_in_range(rows[i], 0, n_tokens - 1);
        assert_false(seen[rows[i]]);
        seen[rows[i]] = true;
        const bool border = i > 0 && labels[i - 1] >= 0 && labels[i] < 0;
        if (i > 0 && !border)
            assert_true(rows[i] > rows[i - 1] && (labels[i] >= 0) == (labels[i - 1] >= 0));
    }
}

/* The token of the sequence in a row of a part: of head and tail, half of the rows each. */
static int64_t token_of(const struct ax_batch *b, int64_t row) {
    const int64_t half = b->T / 2, late = 2 * b->parts - 1 - b->part;
    if (b->parts == 1)
        return row;
    return row < half ? b->part * half + row : late * half + row - half;
}

/* Adds what one part says to the row it is a part of. */
static void add_part(struct machine *m, const struct ax_batch *b, struct row *row) {
    int32_t tokens[TOKENS], positions[TOKENS], rows[TOKENS], labels[TOKENS], order[TOKENS];
    float weights[TOKENS];
    read_column(m, &b->tokens, tokens);
    read_column(m, &b->positions, positions);
    read_column(m, &b->rows, rows);
    read_column(m, &b->labels, labels);
    read_column(m, &b->weight, weights);
    read_column(m, &b->row_order, order);
    assert_int_equal(b->n_rows, b->T);
    check_rows(rows, labels, b->n_rows, b->T);
    for (int64_t t = 0; t < b->T; t++) {
        row->tokens[token_of(b, t)] = tokens[t];
        row->positions[token_of(b, t)] = positions[t];
    }
    for (int64_t i = 0; i < b->n_rows; i++) {
        row->labels[token_of(b, rows[i])] = labels[i];
        row->weights[token_of(b, rows[i])] = weights[i];
        assert_int_equal(order[i], token_of(b, rows[i]));
    }
}

/* Queries of a document are its tokens in the run, keys those from its begin to the run's end. */
static void check_run(struct machine *m, const struct ax_batch *b, int run, const int32_t *row) {
    const int64_t length = b->T / b->n_runs, begin = token_of(b, run * length),
                  end = begin + length;
    int32_t cu[ROOM + 1];
    int32_t keys[ROOM + 1];
    read_column(m, &b->runs[run].cu_q, cu);
    read_column(m, &b->runs[run].cu_k, keys);
    assert_int_equal(b->runs[run].first, begin);
    assert_int_equal(cu[0], 0);
    assert_int_equal(keys[0], 0);
    for (int k = 0; k < ROOM; k++) {
        int32_t n_queries = 0;
        int32_t n_keys = 0;
        for (int32_t t = row[k]; t < row[k + 1]; t++) {
            n_queries += t >= begin && t < end;
            n_keys += t < end;
        }
        assert_int_equal(cu[k + 1] - cu[k], n_queries);
        assert_int_equal(keys[k + 1] - keys[k], n_keys);
    }
}

static void check_places(struct machine *m, const struct ax_batch *b, const struct row *want) {
    int32_t row[ROOM + 1], order[TOKENS], used;
    read_column(m, &b->cu_seqlens, row);
    assert_memory_equal(row, want->ends, sizeof row);
    assert_int_equal(b->n_runs, b->parts > 1 ? 2 : 1);
    for (int run = 0; run < b->n_runs; run++)
        check_run(m, b, run, row);
    if (b->parts == 1)
        return;
    read_column(m, &b->order, order);
    read_column(m, &b->used, &used);
    for (int64_t t = 0; t < b->T; t++) {
        int64_t at;
        assert_int_equal(order[t], token_of(b, t));
        assert_int_equal(token_of(b, t) < USED, t < used);
        assert_int_equal(ax_batch_part_of(b, token_of(b, t), &at), b->part);
        assert_int_equal(at, t);
    }
}

/* Pairs of a query and a key that it attends to, in all runs of a part. */
static int64_t attention_pairs(struct machine *m, const struct ax_batch *b) {
    int32_t cu[ROOM + 1], keys[ROOM + 1];
    int64_t pairs = 0;
    for (int run = 0; run < b->n_runs; run++) {
        read_column(m, &b->runs[run].cu_q, cu);
        read_column(m, &b->runs[run].cu_k, keys);
        for (int k = 0; k < ROOM; k++) {
            const int64_t nq = cu[k + 1] - cu[k], nk = keys[k + 1] - keys[k];
            pairs += nq * (nk - nq) + nq * (nq + 1) / 2;
        }
    }
    return pairs;
}

/* A document as long as the sequence costs all ranks the same; with one run of the sequence for each,
 * the last would have (2·cp − 1) / cp of the mean, for long ones. */
static void ranks_attend_equally(void **state) {
    (void)state;
    enum { LONG = 960 };
    struct machine m;
    int32_t *tokens;
    machine_open(&m, "ref", 1);
    assert_ok(ax_alloc(&tokens, LONG, sizeof *tokens));
    const struct ax_document doc = {.n = LONG, .tokens = tokens};
    for (int parts = 1; parts <= 8; parts *= 2) {
        int64_t first = 0, all = 0;
        for (int part = 0; part < parts; part++) {
            struct ax_batch b;
            ax_batch_allocate(&b, &m.arena.scratch, LONG, ROOM, LONG, parts, part);
            assert_ok(ax_batch_fill(&b, m.q, VOCAB, 1, &doc));
            const int64_t pairs = attention_pairs(&m, &b);
            first = part == 0 ? pairs : first;
            all += pairs;
            assert_int_equal(pairs, first);
        }
        assert_int_equal(all, (int64_t)LONG * (LONG + 1) / 2);
        const double length = (double)LONG / parts,
                     last = length * (LONG - length) + length * (length + 1) / 2;
        print_message("cp %d: each rank attends to %lld pairs; the last of contiguous ones %.2f of "
                      "the mean\n",
                      parts, (long long)first, last * parts / (double)all);
    }
    ax_free(tokens);
    machine_close(&m);
}

static void parts_are_the_row(void **state) {
    (void)state;
    struct machine m;
    machine_open(&m, "ref", 1);
    for (int fill = 0; fill < FILLS; fill++) {
        struct documents d;
        struct row want;
        int64_t trained;
        make_documents(&d, fill);
        const double total = expected(&d, &want, &trained);
        for (int parts = 1; parts <= 4; parts++) {
            struct row got = {0};
            memcpy(got.ends, want.ends, sizeof got.ends);
            for (int part = 0; part < parts; part++) {
                struct ax_batch b;
                ax_batch_allocate(&b, &m.arena.scratch, TOKENS, ROOM, 7, parts, part);
                const int64_t run = TOKENS / (parts > 1 ? 2 * parts : 1);
                assert_int_equal(b.max_queries, run < 7 ? run : 7);
                assert_ok(ax_batch_fill(&b, m.q, VOCAB, DOCS, d.list));
                assert_int_equal(b.T, TOKENS / parts);
                assert_int_equal(b.n_docs, DOCS);
                assert_int_equal(b.n_tokens, USED);
                assert_int_equal(b.trained, trained);
                assert_true(b.weight_total == total);
                assert_int_equal(b.max_position, 34);
                add_part(&m, &b, &got);
                check_places(&m, &b, &want);
            }
            assert_memory_equal(got.tokens, want.tokens, sizeof got.tokens);
            assert_memory_equal(got.positions, want.positions, sizeof got.positions);
            assert_memory_equal(got.labels, want.labels, sizeof got.labels);
            assert_memory_equal(got.weights, want.weights, sizeof got.weights);
        }
    }
    machine_close(&m);
}

/* What is known ahead: of token t its document's next token, and what is to be predicted from that one. */
static void next_tokens_are_of_the_document(void **state) {
    (void)state;
    struct machine m;
    machine_open(&m, "ref", 1);
    for (int fill = 0; fill < FILLS; fill++)
        for (int parts = 1; parts <= 4; parts++) {
            struct documents d;
            struct row row, got = {0};
            int64_t trained, tokens = 0;
            int32_t next[TOKENS];
            make_documents(&d, fill);
            expected(&d, &row, &trained);
            for (int part = 0; part < parts; part++) {
                struct ax_batch b;
                ax_batch_allocate(&b, &m.arena.scratch, TOKENS, ROOM, 7, parts, part);
                ax_batch_look_ahead(&b, &m.arena.scratch);
                b.round = parts == 1 ? 4 : 0;
                assert_ok(ax_batch_fill(&b, m.q, VOCAB, DOCS, d.list));
                read_column(&m, &b.ahead.tokens, next);
                for (int64_t t = 0; t < b.T; t++)
                    got.tokens[token_of(&b, t)] = next[t];
                const struct ax_batch ahead = ax_batch_ahead(&b);
                int32_t rows[TOKENS], labels[TOKENS], order[TOKENS];
                float weights[TOKENS];
                read_column(&m, &ahead.rows, rows);
                read_column(&m, &ahead.labels, labels);
                read_column(&m, &ahead.weight, weights);
                read_column(&m, &ahead.row_order, order);
                check_rows(rows, labels, ahead.n_rows, b.T);
                tokens += ahead.n_rows;
                for (int64_t i = 0; i < ahead.n_rows; i++) {
                    got.labels[token_of(&b, rows[i])] = 1 + labels[i];
                    got.weights[token_of(&b, rows[i])] = weights[i];
                    assert_int_equal(order[i], token_of(&b, rows[i]));
                }
            }
            assert_true(parts == 1 ? tokens < USED : tokens == TOKENS);
            for (int k = 0; k < DOCS; k++)
                for (int32_t t = row.ends[k]; t < row.ends[k + 1]; t++) {
                    const bool any = t + 1 < row.ends[k + 1];
                    assert_int_equal(got.tokens[t], any ? row.tokens[t + 1] : 0);
                    assert_int_equal(got.labels[t], any ? 1 + row.labels[t + 1] : 0);
                    assert_true(got.weights[t] == (any ? row.weights[t + 1] : 0));
                }
        }
    machine_close(&m);
}

static void padding_predicts_nothing(void **state) {
    (void)state;
    struct machine m;
    machine_open(&m, "ref", 1);
    for (int parts = 1; parts <= 2; parts++) {
        struct ax_batch b;
        int32_t labels[TOKENS];
        ax_batch_allocate(&b, &m.arena.scratch, TOKENS, ROOM, 7, parts, 0);
        ax_batch_look_ahead(&b, &m.arena.scratch);
        assert_ok(ax_batch_fill(&b, m.q, VOCAB, 0, NULL));
        const struct ax_batch ahead = ax_batch_ahead(&b);
        const struct ax_tensor *const lists[] = {&b.labels, &ahead.labels};
        for (int k = 0; k < 2; k++) {
            assert_int_equal(lists[k]->shape[0], b.T);
            read_column(&m, lists[k], labels);
            for (int64_t t = 0; t < b.T; t++)
                assert_int_equal(labels[t], -1);
        }
    }
    machine_close(&m);
}

/* With `round` a batch is as long as its documents need and its head sees labels alone, whatever it
 * was before; without documents one round of padding is left. */
static void rounded(void **state) {
    (void)state;
    static const struct {
        int64_t round, room;
        int docs;
        int64_t T, n_rows;
    } cases[] = {
        {4, TOKENS, DOCS, 20, 15}, {5, 23, 3, 15, 10},   {1, TOKENS, 2, 12, 10},
        {8, 22, DOCS, 22, 15},     {4, TOKENS, 0, 4, 0}, {6, TOKENS, 2, 12, 10},
    };
    struct machine m;
    struct documents d;
    machine_open(&m, "ref", 1);
    make_documents(&d, NEXT_TOKEN);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_batch b;
        int32_t rows[TOKENS];
        int32_t labels[TOKENS];
        ax_batch_allocate(&b, &m.arena.scratch, cases[i].room, ROOM, 7, 1, 0);
        b.round = cases[i].round;
        assert_ok(ax_batch_fill(&b, m.q, VOCAB, 0, NULL));
        assert_ok(ax_batch_fill(&b, m.q, VOCAB, DOCS, d.list));
        assert_ok(ax_batch_fill(&b, m.q, VOCAB, cases[i].docs, d.list));
        assert_int_equal(b.T, cases[i].T);
        assert_int_equal(b.tokens.shape[0], b.T);
        assert_int_equal(b.positions.shape[0], b.T);
        assert_int_equal(b.n_rows, cases[i].n_rows);
        assert_int_equal(b.trained, b.n_rows);
        assert_int_equal(b.rows.shape[0], b.n_rows);
        assert_int_equal(b.weight.shape[0], b.n_rows);
        read_column(&m, &b.rows, rows);
        read_column(&m, &b.labels, labels);
        check_rows(rows, labels, b.n_rows, b.T);
        for (int64_t k = 0; k < b.n_rows; k++)
            assert_int_equal(labels[k], d.tokens[rows[k] + 1]);
    }
    machine_close(&m);
}

/* Columns of documents, tokens and labels, whole and in parts, all tokens and only those in use. */
enum { TOP = 3 };
static const struct ax_columns columns = {.list = {{"value", true, AX_OF_EXAMPLE, 0},
                                                   {"step", false, AX_OF_TOKEN, 0},
                                                   {"old", true, AX_OF_LABEL, 0},
                                                   {"top", true, AX_OF_LABEL, TOP}},
                                          .n = 4};

/* 100 + document; 200 + token; 300 + token, of the row; 400 + TOP·token + which of them. */
static uint32_t words[3][TOKENS], top[TOKENS * TOP];

static void add_columns(struct documents *d) {
    int64_t at = 0;
    for (int t = 0; t < TOKENS; t++) {
        words[0][t] = 100 + (uint32_t)t;
        words[1][t] = 200 + (uint32_t)t;
        words[2][t] = 300 + (uint32_t)t;
    }
    for (int t = 0; t < TOKENS * TOP; t++)
        top[t] = 400 + (uint32_t)t;
    for (int k = 0; k < DOCS; at += lengths[k++]) {
        d->list[k].columns[3] = &top[at * TOP];
        d->list[k].columns[0] = &words[0][k];
        d->list[k].columns[1] = &words[1][at];
        d->list[k].columns[2] = &words[2][at];
    }
}

static void check_columns(struct machine *m, const struct ax_batch *b, int n_docs, int64_t used) {
    uint32_t got[TOKENS * TOP];
    int32_t rows[TOKENS];
    int32_t labels[TOKENS];
    assert_int_equal(b->columns[0].dtype, AX_F32);
    assert_int_equal(b->columns[1].dtype, AX_I32);
    assert_int_equal(b->columns[0].shape[0], ROOM);
    assert_int_equal(b->columns[1].shape[0], b->T);
    assert_int_equal(b->columns[2].shape[0], b->n_rows);
    read_column(m, &b->columns[0], got);
    for (int k = 0; k < ROOM; k++)
        assert_int_equal(got[k], k < n_docs ? 100 + k : 0);
    read_column(m, &b->columns[1], got);
    for (int64_t t = 0; t < b->T; t++)
        assert_int_equal(got[t], token_of(b, t) < used ? 200 + token_of(b, t) : 0);
    read_column(m, &b->columns[2], got);
    read_column(m, &b->rows, rows);
    read_column(m, &b->labels, labels);
    for (int64_t i = 0; i < b->n_rows; i++)
        assert_int_equal(got[i], labels[i] >= 0 ? 300 + token_of(b, rows[i]) : 0);
    assert_int_equal(b->columns[3].shape[0], b->n_rows);
    assert_int_equal(b->columns[3].shape[1], TOP);
    read_column(m, &b->columns[3], got);
    for (int64_t i = 0; i < b->n_rows * TOP; i++)
        assert_int_equal(
            got[i], labels[i / TOP] >= 0 ? 400 + token_of(b, rows[i / TOP]) * TOP + i % TOP : 0);
}

static void with_columns(void **state) {
    (void)state;
    struct machine m;
    struct documents d;
    struct ax_batch b;
    machine_open(&m, "ref", 1);
    for (int fill = 0; fill < FILLS; fill++) {
        make_documents(&d, fill);
        add_columns(&d);
        for (int parts = 1; parts <= 4; parts++)
            for (int part = 0; part < parts; part++) {
                ax_batch_allocate(&b, &m.arena.scratch, TOKENS, ROOM, 7, parts, part);
                ax_batch_add_columns(&b, &m.arena.scratch, &columns);
                assert_ok(ax_batch_fill(&b, m.q, VOCAB, DOCS, d.list));
                check_columns(&m, &b, DOCS, USED);
                assert_ok(ax_batch_fill(&b, m.q, VOCAB, 2, d.list)); /* what was there is gone */
                check_columns(&m, &b, 2, 12);
            }
        ax_batch_allocate(&b, &m.arena.scratch, TOKENS, ROOM, 7, 1, 0);
        ax_batch_add_columns(&b, &m.arena.scratch, &columns);
        b.round = 5;
        for (int n = DOCS; n >= 0; n--) {
            const int64_t used[] = {0, 7, 12, 13, USED};
            assert_ok(ax_batch_fill(&b, m.q, VOCAB, n, d.list));
            check_columns(&m, &b, n, used[n]);
        }
    }
    machine_close(&m);
}

static void refused(void **state) {
    (void)state;
    struct machine m;
    struct documents d;
    struct ax_batch b;
    machine_open(&m, "ref", 1);
    make_documents(&d, OWN_LABELS);
    ax_batch_allocate(&b, &m.arena.scratch, USED, DOCS, 7, 1, 0);
    assert_ok(ax_batch_fill(&b, m.q, VOCAB, DOCS, d.list)); /* full to the last token */
    ax_batch_allocate(&b, &m.arena.scratch, USED - 1, DOCS, 7, 1, 0);
    assert_error(ax_batch_fill(&b, m.q, VOCAB, DOCS, d.list), AX_ERR_DATA,
                 "document 3 has 6 tokens; 5 are free, and a document can have at most 7");
    ax_batch_allocate(&b, &m.arena.scratch, TOKENS, DOCS - 1, 6, 1, 0);
    assert_error(ax_batch_fill(&b, m.q, VOCAB, DOCS, d.list), AX_ERR_DATA,
                 "4 documents, but at most 3 fit");
    assert_error(ax_batch_fill(&b, m.q, VOCAB, 1, d.list), AX_ERR_DATA, "document 0 has 7 tokens");
    ax_batch_allocate(&b, &m.arena.scratch, TOKENS, DOCS, 7, 1, 0);
    assert_ok(ax_batch_fill(&b, m.q, VOCAB - 1, DOCS, d.list)); /* label 48 is that of token 1 */
    assert_error(ax_batch_fill(&b, m.q, VOCAB - 2, DOCS, d.list), AX_ERR_DATA,
                 "document 0, token 1: id 48 is outside the vocabulary of 48");
    const int32_t pair[] = {4, 5}, none[] = {-1, -1}; /* tokens alone, without labels */
    const struct ax_document doc = {.n = 2, .tokens = pair, .labels = none};
    assert_ok(ax_batch_fill(&b, m.q, 6, 1, &doc));
    assert_error(ax_batch_fill(&b, m.q, 5, 1, &doc), AX_ERR_DATA,
                 "document 0, token 1: id 5 is outside the vocabulary of 5");
    const int32_t classes[] = {-1, 2};
    const struct ax_document classified = {.n = 2, .tokens = pair, .labels = classes};
    b.n_labels = 3;
    assert_ok(ax_batch_fill(&b, m.q, 6, 1, &classified));
    b.n_labels = 2;
    assert_error(ax_batch_fill(&b, m.q, 6, 1, &classified), AX_ERR_DATA,
                 "document 0, token 1: label 2 is not below the number of labels, 2");
    b.n_labels = 0;
    make_documents(&d, NEXT_TOKEN);
    assert_ok(ax_batch_fill(&b, m.q, USED + 1, DOCS, d.list));
    assert_error(ax_batch_fill(&b, m.q, USED, DOCS, d.list), AX_ERR_DATA,
                 "document 3, token 4: id 19 is outside");
    d.tokens[8] = -2;
    assert_error(ax_batch_fill(&b, m.q, VOCAB, DOCS, d.list), AX_ERR_DATA,
                 "document 1, token 1: id -2 is outside");
    machine_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_the_row),
        cmocka_unit_test(next_tokens_are_of_the_document),
        cmocka_unit_test(ranks_attend_equally),
        cmocka_unit_test(padding_predicts_nothing),
        cmocka_unit_test(rounded),
        cmocka_unit_test(with_columns),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
