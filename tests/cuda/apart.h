/* A case whose operands lie apart on the device: each in memory of its own by cudaMalloc, of exactly its bytes,
 * and so do its scalars and measures, and the workspace. What an op only writes is not written before, nor are gaps between
 * rows and the workspace. So compute-sanitizer knows where each ends, and what nobody wrote. Include after
 * cmocka.h. */
#ifndef AX_TESTS_CUDA_APART_H
#define AX_TESTS_CUDA_APART_H

#include "kernels/cuda/cuda.h"
#include "tests/kernels/harness.h"

struct apart {
    int n;
    struct {
        char *here, *there; /* in the case's memory, and on the device */
        size_t bytes;
    } blocks[AX_MAX_OPERANDS + 1];
};

static inline char *apart_malloc(size_t bytes) {
    void *at;
    assert_int_equal(cudaMalloc(&at, bytes > 0 ? bytes : 1), cudaSuccess);
    return at;
}

/* The block of `here`, or n. An op in place has two operands in one, the second of which may be narrower. */
static inline int apart_find(const struct apart *a, const char *here) {
    int i = 0;
    while (i < a->n && here != a->blocks[i].here &&
           !(here > a->blocks[i].here && here < a->blocks[i].here + a->blocks[i].bytes))
        i++;
    return i;
}

static inline void apart_add(struct apart *a, char *here, size_t bytes) {
    const int i = apart_find(a, here);
    if (i < a->n) {
        assert_ptr_equal(here, a->blocks[i].here);
        assert_true(bytes <= a->blocks[i].bytes);
        return;
    }
    a->blocks[a->n].here = here;
    a->blocks[a->n].there = apart_malloc(bytes);
    a->blocks[a->n++].bytes = bytes;
}

static inline void apart_copy(const struct apart *a, struct machine *m, char *here, size_t bytes,
                              bool back) {
    const int i = apart_find(a, here);
    char *there = a->blocks[i].there + (here - a->blocks[i].here);
    assert_int_equal(cudaMemcpyAsync(back ? here : there, back ? there : here, bytes,
                                     cudaMemcpyDefault, ax_cuda_stream(m->q)),
                     cudaSuccess);
}

/* Those of an operand, 0 if it is not given; all rows of a dense one are one. */
static inline int64_t apart_rows(const struct ax_tensor *t, size_t *bytes) {
    const bool dense = t->shape[0] == 0 || ax_tensor_is_dense(t);
    *bytes = dense ? ax_tensor_bytes(t) : (size_t)ax_tensor_row_len(t) * ax_dtype_size(t->dtype);
    return t->data == NULL ? 0 : dense ? 1 : t->shape[0];
}

/* False if the op only writes it, and all of it: then nothing but the pattern of cases is there. */
static inline bool apart_is_read(const struct ax_case *c, const struct ax_operand *o,
                                 const char *row, size_t bytes) {
    bool blank = o->use == AX_OPERAND_OUT && (o->flags & AX_OPERAND_SOME) == 0 &&
                 (c->shape->flags & (AX_SHAPE_SKIP | AX_SHAPE_PADDING)) == 0;
    for (size_t i = 0; blank && i < bytes; i++)
        blank = (unsigned char)row[i] == 0xff;
    return !blank;
}

static inline void apart_copy_operands(const struct apart *a, struct machine *m,
                                       const struct ax_case *c, bool back) {
    for (const struct ax_operand *o = ax_op_operands(c->op); o->name != NULL; o++) {
        const struct ax_tensor *t = ax_operand_tensor(o, c->args);
        size_t bytes;
        const int64_t rows = apart_rows(t, &bytes);
        for (int64_t r = 0; r < rows; r++)
            if (back || apart_is_read(c, o, ax_tensor_row(t, r), bytes))
                apart_copy(a, m, ax_tensor_row(t, r), bytes, back);
    }
    apart_copy(a, m, (char *)c->step, sizeof *c->step, back);
    assert_int_equal(ax_queue_finish(m->q), AX_OK);
}

/* Words of the arguments that point into the case's memory point to the device's. */
static inline void apart_point(const struct apart *a, const struct ax_case *c, char *args) {
    for (size_t at = 0; at + sizeof(char *) <= ax_op_args_size(c->op); at += sizeof(char *)) {
        char *word;
        memcpy(&word, args + at, sizeof word);
        if (word < c->memory || word >= c->memory + c->bytes)
            continue;
        const int i = apart_find(a, word);
        assert_true(i < a->n);
        word = a->blocks[i].there + (word - a->blocks[i].here);
        memcpy(args + at, &word, sizeof word);
    }
}

/* Copies what the case reads to the device, runs it there, and copies its operands back. */
static inline void case_run_apart(const struct ax_case *c, struct machine *m) {
    struct apart a = {0};
    struct ax_case there = *c;
    struct ax_stack *s = &m->arena.scratch;
    const struct ax_stack arena = *s;
    apart_add(&a, (char *)c->step, sizeof *c->step);
    for (const struct ax_operand *o = ax_op_operands(c->op); o->name != NULL; o++) {
        const struct ax_tensor *t = ax_operand_tensor(o, c->args);
        size_t row;
        const int64_t rows = apart_rows(t, &row);
        if (rows > 0)
            apart_add(&a, t->data,
                      (size_t)((rows - 1) * t->row_stride) * ax_dtype_size(t->dtype) + row);
    }
    apart_copy_operands(&a, m, c, false);
    assert_int_equal(ax_alloc(&there.args, 1, ax_op_args_size(c->op)), AX_OK);
    memcpy(there.args, c->args, ax_op_args_size(c->op));
    apart_point(&a, c, there.args);
    const size_t bytes = m->q->ops->workspace(m->q, c->op, there.args);
    s->base = apart_malloc(bytes);
    s->cap = ax_arena_round(bytes);
    assert_true(s->top == 0);
    case_run(&there, m);
    apart_copy_operands(&a, m, c, true);
    assert_int_equal(cudaFree(s->base), cudaSuccess);
    s->base = arena.base;
    s->cap = arena.cap;
    for (int i = 0; i < a.n; i++)
        assert_int_equal(cudaFree(a.blocks[i].there), cudaSuccess);
    ax_free(there.args);
}

#endif
