/* What tests of the delta rule on the host and on the emulated GPU share: bits of documents in pieces, and alone.
 * Include after cmocka.h. */
#ifndef AX_TESTS_KERNELS_DELTA_CASE_H
#define AX_TESTS_KERNELS_DELTA_CASE_H

#include "kernels/ops/delta.h"
#include "tests/kernels/harness.h"

/* Runs a case on a backend; its results are in the case's memory. */
typedef void delta_run(struct ax_case *c, struct machine *m);

enum delta_kind { DELTA_RULE, DELTA_ADDITIVE, DELTA_CHANNELS, DELTA_KINDS };

#define DELTA_TOKENS 200
static const struct ax_shape_document DELTA_DOCUMENT[] = {{DELTA_TOKENS, 0}};
#define DELTA_SHAPE(label, ...)                                                                    \
    {                                                                                              \
        .name = (label), .documents = DELTA_DOCUMENT, .n_documents = 1, .rows = DELTA_TOKENS + 2,  \
        .heads = 4, .kv_heads = 2, .head_dim = 16, .pad = 3,                                       \
        .options = &(const struct ax_delta_options) {                                              \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

static inline struct ax_delta_rule *delta_of(const struct ax_case *c) {
    return c->op == AX_OP_delta_forward ? &((struct ax_delta_forward *)c->args)->a
                                        : &((struct ax_delta_backward *)c->args)->a;
}

/* Runs c, a case of generation, in pieces of up to `size` tokens. */
static inline void delta_run_pieces(struct ax_case *c, struct machine *m, delta_run *run,
                                    int64_t size) {
    struct ax_delta_forward *f = c->args;
    const struct ax_delta_forward all = *f;
    for (int64_t at = 0; at < DELTA_TOKENS; at += size) {
        const int64_t n = size < DELTA_TOKENS - at ? size : DELTA_TOKENS - at;
        struct ax_tensor *const rows[] = {&f->a.q, &f->a.k,    &f->a.v,
                                          &f->a.g, &f->a.beta, &f->a.out};
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            *rows[i] = ax_tensor_rows(rows[i], at, n);
        ((int32_t *)f->a.cu.data)[1] = (int32_t)n;
        ((int32_t *)f->past.data)[0] = (int32_t)at;
        run(c, m);
        *f = all;
    }
}

static inline void delta_same(const char *what, enum ax_dtype dtype, int64_t size,
                              const struct ax_tensor *got, const struct ax_tensor *want) {
    if (!same_bits(got, want))
        fail_msg("%s %s in pieces of %lld tokens: other bits", ax_dtype_info(dtype)->name, what,
                 (long long)size);
}

/* In pieces of any size out has the bits that delta_forward gives the whole, and slots those of one piece. */
static inline void delta_check_pieces(struct machine *ref, struct machine *m, delta_run *run,
                                      enum ax_dtype dtype, enum delta_kind kind) {
    const bool additive = kind == DELTA_ADDITIVE, channels = kind == DELTA_CHANNELS;
    const struct ax_shape plain =
        DELTA_SHAPE("plain", .value_dim = 24, .additive = additive, .channels = channels);
    const struct ax_shape pieces = DELTA_SHAPE("pieces", .value_dim = 24, .pieces = true,
                                               .additive = additive, .channels = channels);
    static const int64_t sizes[] = {1, 7, 64, 65, 130};
    struct ax_case whole, one, c;
    case_open(&whole, AX_OP_delta_forward, &plain, dtype, ref);
    case_open(&one, AX_OP_delta_forward, &pieces, dtype, ref);
    run(&whole, m);
    delta_run_pieces(&one, m, run, DELTA_TOKENS);
    const struct ax_delta_forward *w = one.args;
    const struct ax_tensor out = ax_tensor_rows(&delta_of(&whole)->out, 0, DELTA_TOKENS);
    for (size_t i = 0; i <= sizeof sizes / sizeof *sizes; i++) {
        const int64_t size = i > 0 ? sizes[i - 1] : DELTA_TOKENS;
        case_open(&c, AX_OP_delta_forward, &pieces, dtype, ref);
        delta_run_pieces(&c, m, run, size);
        const struct ax_delta_forward *f = c.args;
        const struct ax_tensor rows = ax_tensor_rows(&f->a.out, 0, DELTA_TOKENS);
        delta_same("out", dtype, size, &rows, &out);
        delta_same("states", dtype, size, &f->a.states, &w->a.states);
        delta_same("keys", dtype, size, &f->keys, &w->keys);
        delta_same("updates", dtype, size, &f->updates, &w->updates);
        delta_same("decays", dtype, size, &f->decays, &w->decays);
        ax_case_free(&c);
    }
    ax_case_free(&one);
    ax_case_free(&whole);
}

/* Compares what document d alone wrote with what it wrote among others. */
static inline void delta_same_document(const struct ax_case *packed, const struct ax_case *alone,
                                       int d) {
    const struct ax_delta_rule *a = delta_of(packed);
    const int32_t *cu = a->cu.data;
    for (const struct ax_operand *o = ax_op_operands(packed->op); o->name != NULL; o++) {
        const struct ax_tensor *x = ax_operand_tensor(o, packed->args);
        const struct ax_tensor *y = ax_operand_tensor(o, alone->args);
        const struct ax_tensor *slots = strcmp(o->name, "dstates") == 0 ? &a->enters : &a->leaves;
        int64_t first = cu[d], n = cu[d + 1] - cu[d];
        if (o->use == AX_OPERAND_IN || x->data == NULL)
            continue;
        if (o->use == AX_OPERAND_INOUT) {
            first = ((const int32_t *)slots->data)[d];
            n = first >= 0;
        }
        const struct ax_tensor got = ax_tensor_rows(x, n > 0 ? first : 0, n);
        const struct ax_tensor want = ax_tensor_rows(y, n > 0 ? first : 0, n);
        if (!same_bits(&got, &want))
            fail_msg("%s \"%s\" %s: document %d has another %s when it is alone",
                     ax_op_name(packed->op), packed->shape->name,
                     ax_dtype_info(packed->dtype)->name, d, o->name);
    }
}

/* Every document has the same bits alone, on all small shapes of the op. */
static inline void delta_check_alone(struct machine *ref, struct machine *m, delta_run *run,
                                     enum ax_op op, enum ax_dtype dtype) {
    int n;
    const struct ax_shape *shapes = ax_op_shapes(op, &n);
    for (int i = 0; i < n && !shapes[i].big; i++) {
        struct ax_case packed, alone;
        case_open(&packed, op, &shapes[i], dtype, ref);
        run(&packed, m);
        for (int d = 0; d < shapes[i].n_documents; d++) {
            case_open(&alone, op, &shapes[i], dtype, ref);
            struct ax_delta_rule *a = delta_of(&alone);
            const bool states = a->states.data != NULL;
            a->cu = ax_tensor_rows(&a->cu, d, 2);
            a->enters = states ? ax_tensor_rows(&a->enters, d, 1) : a->enters;
            a->leaves = states ? ax_tensor_rows(&a->leaves, d, 1) : a->leaves;
            if (op == AX_OP_delta_forward && ((struct ax_delta_forward *)alone.args)->past.data) {
                struct ax_tensor *past = &((struct ax_delta_forward *)alone.args)->past;
                *past = ax_tensor_rows(past, d, 1);
            }
            run(&alone, m);
            delta_same_document(&packed, &alone, d);
            ax_case_free(&alone);
        }
        ax_case_free(&packed);
    }
}

#endif
