#include "model/parallel/reach.h"

#include "base/mem.h"

void ax_reach_allocate(struct ax_reach *r, struct ax_stack *stack, int parts, int part) {
    *r = (struct ax_reach){.own = {part, 2 * parts - 1 - part}};
    if (parts == 1 || 2 * parts > AX_REACH_RUNS)
        return;
    const int64_t shape[] = {2, 2 * parts + 1, 3};
    r->runs = 2 * parts;
    r->ends = ax_stack_take(stack, "batch", ax_tensor_nd(AX_I32, NULL, 3, shape));
}

void ax_reach_plan(struct ax_reach *r, int64_t length, int64_t max_len) {
    r->length = length;
    for (int run = 0; run < r->runs; run++) {
        const int64_t first = run * length, begin = first - max_len + 1;
        r->begins[run] = max_len < 1 ? first : begin > 0 ? begin : 0;
    }
}

static int64_t at_least(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* The three ends of a table, of which the last `n` of `of` tokens are of the document. */
static void put(int32_t *table, int64_t n, int64_t of) {
    table[0] = 0;
    table[1] = (int32_t)(of - n);
    table[2] = (int32_t)of;
}

/* The tables of own run i, whose first document ends at token `end`. */
static void put_run(const struct ax_reach *r, int32_t *tables, int i, int64_t end) {
    const int run = r->own[i];
    const int64_t first = run * r->length, last = first + r->length;
    const int64_t queries = at_least(0, (end < last ? end : last) - first);
    put(tables, queries, queries);
    for (int k = 0; k < r->runs; k++) {
        const int64_t keys_end = (k + 1) * r->length;
        const int64_t from = at_least(r->begins[run], k * r->length);
        put(tables + 3 * (k + 1), k < run ? at_least(0, keys_end - from) : 0, r->length);
    }
}

enum ax_status ax_reach_fill(struct ax_reach *r, struct ax_queue *q, int64_t length, int64_t n,
                             const int32_t *ends) {
    int32_t *tables;
    int64_t d = 0;
    if (r->runs == 0)
        return AX_OK;
    r->length = length;
    AX_TRY(ax_alloc(&tables, (size_t)ax_tensor_numel(&r->ends), sizeof *tables));
    for (int run = 0; run < r->runs; run++) {
        const int64_t first = run * length;
        while (d < n && ends[d + 1] <= first)
            d++;
        r->begins[run] = d < n ? ends[d] : first;
        for (int i = 0; i < 2; i++)
            if (run == r->own[i])
                put_run(r, tables + (int64_t)i * r->ends.row_stride, i, d < n ? ends[d + 1] : 0);
    }
    const enum ax_status st = ax_queue_write(q, r->ends.data, tables, ax_tensor_bytes(&r->ends));
    ax_free(tables);
    return st;
}

bool ax_reach_sees(const struct ax_reach *r, int run, int earlier, int64_t window) {
    return earlier < run && r->begins[run] < (earlier + 1) * r->length &&
           (window == 0 || ax_reach_ahead(r, run, earlier) < window);
}

static struct ax_tensor table(const struct ax_reach *r, int i, int row) {
    const int64_t at = (int64_t)i * r->ends.row_stride + 3 * (int64_t)row;
    int32_t AX_DEVICE *ends = r->ends.data;
    return ax_tensor_1d(AX_I32, ends + at, 3);
}

struct ax_tensor ax_reach_queries(const struct ax_reach *r, int i) {
    return table(r, i, 0);
}

struct ax_tensor ax_reach_keys(const struct ax_reach *r, int i, int earlier) {
    return table(r, i, 1 + earlier);
}

int64_t ax_reach_ahead(const struct ax_reach *r, int run, int earlier) {
    return (run - earlier - 1) * r->length + 1;
}
