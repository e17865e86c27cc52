/* How the ops of this folder are split over threads without the number of threads affecting the
 * result: outputs are divided into pieces that do not depend on each other, which threads take
 * in turns (turns.h). (Sums over rows: see rowsum.h.) */
#ifndef AX_KERNELS_CPU_VEC_SPLIT_H
#define AX_KERNELS_CPU_VEC_SPLIT_H

#include <omp.h>

#include "kernels/cpu/turns.h"
#include "kernels/queue.h"

/* Threads to use for that many elements: one if waking the others would take longer. Always one or
 * all, because OpenMP rebuilds its pool when the number changes. */
static inline int team(const struct ax_queue *q, int64_t elements) {
    return elements < 32768 ? 1 : q->threads;
}

/* Before a statement: runs it for each i from 0 to count − 1, on `threads` threads. */
#define AX_PARALLEL_FOR(threads, i, count)                                                         \
    const int parallel_threads = (threads);                                                        \
    struct ax_turns parallel_turns;                                                                \
    ax_turns_start(&parallel_turns, count, parallel_threads);                                      \
    _Pragma("omp parallel num_threads(parallel_threads)")                                          \
        AX_TURNS_FOR (&parallel_turns, omp_get_thread_num(), i)

static inline int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* Elementwise work on tensors of one shape: pieces of at most PIECE elements within a row. If all
 * are dense, the full tensor is one row. */
#define PIECE 16384
struct pieces {
    int64_t len;     /* elements per row */
    int64_t per_row; /* pieces in a row */
    int64_t count;
    int64_t elements;
};

static inline struct pieces cut(const struct ax_tensor *t, bool all_dense) {
    int64_t numel = ax_tensor_numel(t);
    struct pieces p = {.len = all_dense ? numel : ax_tensor_row_len(t), .elements = numel};
    p.per_row = ceil_div(p.len, PIECE);
    p.count = (all_dense ? 1 : t->shape[0]) * p.per_row;
    return p;
}

struct piece {
    int64_t row, first, n; /* elements first … first + n − 1 of the row */
};

static inline struct piece piece_at(const struct pieces *p, int64_t i) {
    int64_t first = i % p->per_row * PIECE;
    return (struct piece){i / p->per_row, first, least(PIECE, p->len - first)};
}

/* Address of the piece's first element in t. */
static inline char *piece_of(const struct ax_tensor *t, const struct piece *p) {
    return (char *)t->data + (p->row * t->row_stride + p->first) * (int64_t)ax_dtype_size(t->dtype);
}

#endif
