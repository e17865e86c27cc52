/* Every op that the emulated backend cuda has, on every shape: against ref, under the sanitizers. Four
 * orders of streams and warps give the same bits, nothing is written that is no output, and what is
 * between operands or behind the workspace cannot be touched. Built with nvcc for `make gpu-check`, a GPU
 * runs each case twice. With names of ops: those alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/io.h"
#include "kernels/cuda/state.h"
#include "tests/cuda/device_case.h"
#include "tests/skip.h"
#include "tests/sweep.h"

static struct machine ref, cuda, own, old; /* own: without cuDNN; old: with 9.19 */
static struct machine plain;               /* without wgmma, too */
static enum ax_op chosen;                  /* the test's */
static int cases, bad;                     /* of it */

/* The other cases are run, too. */
#define COMPLAIN(...) (bad++, print_error(__VA_ARGS__))

#ifdef AX_CUDA_EMULATED
#define EMULATED true
#define SEEDS    4
#else
#define EMULATED               false
#define SEEDS                  2 /* a GPU has its own order */
#define ax_emulated_seed(seed) ((void)(seed))
#endif

/* Clears, in a byte map of the case's memory, what may change. */
static void clear_outputs(const struct ax_case *c, unsigned char *kept) {
    for (const struct ax_operand *o = ax_op_operands(c->op); o->name != NULL; o++) {
        const struct ax_tensor *t = ax_operand_tensor(o, c->args);
        const size_t row = (size_t)ax_tensor_row_len(t) * ax_dtype_size(t->dtype);
        for (int64_t r = 0; (o->use & AX_OPERAND_OUT) != 0 && t->data && r < t->shape[0]; r++)
            memset(kept + ((char *)ax_tensor_row(t, r) - c->memory), 0, row);
    }
    memset(kept, 0, sizeof *c->step);
}

static void only_outputs_changed(const struct ax_case *c, const char *before) {
    unsigned char *kept;
    assert_int_equal(ax_alloc(&kept, c->bytes, 1), AX_OK);
    memset(kept, 1, c->bytes);
    clear_outputs(c, kept);
    size_t i = 0;
    while (i < c->bytes && !(kept[i] && c->memory[i] != before[i]))
        i++;
    if (i < c->bytes)
        COMPLAIN("%s \"%s\" %s: wrote byte %zu of %zu, which is no output\n", ax_op_name(c->op),
                 c->shape->name, ax_dtype_info(c->dtype)->name, i, c->bytes);
    ax_free(kept);
}

static bool is_attention(enum ax_op op) {
    return op == AX_OP_attention_forward || op == AX_OP_attention_backward;
}

/* Of warps. Attention in bfloat16 has most to wait for; of the others each op's first shape and half of all cases have a
 * second order, and in a sweep all. */
static unsigned orders_of(const struct ax_case *c, const struct machine *m) {
    if (sweeping())
        return SEEDS;
    if (m->q->attention_varies) /* its bits are not compared */
        return 1;
    if (is_attention(c->op) && c->dtype == AX_BF16)
        return SEEDS;
    int n;
    const bool first = c->shape == ax_op_shapes(c->op, &n);
    return first || cases / 2 % 2 == 0 ? 2 : 1; /* of each dtype: two of them take turns */
}

/* Leaves the results of the first order in the case's memory. Returns how many there were. */
static unsigned run_in_orders(struct ax_case *c, struct machine *m) {
    const unsigned orders = orders_of(c, m);
    char *before, *first;
    assert_int_equal(ax_alloc(&before, c->bytes, 1), AX_OK);
    assert_int_equal(ax_alloc(&first, c->bytes, 1), AX_OK);
    memcpy(before, c->memory, c->bytes);
    for (unsigned i = 0; i < orders; i++) {
        const unsigned seed = i == 0 || orders == SEEDS ? i : 1 + (unsigned)cases % (SEEDS - 1);
        memcpy(c->memory, before, c->bytes);
        ax_emulated_seed(seed);
        case_run_there(c, m);
        if (seed == 0)
            memcpy(first, c->memory, c->bytes);
        else if (!m->q->attention_varies && memcmp(first, c->memory, c->bytes) != 0)
            COMPLAIN("%s \"%s\" %s: other bits in another order of warps (seed %u)\n",
                     ax_op_name(c->op), c->shape->name, ax_dtype_info(c->dtype)->name, seed);
    }
    only_outputs_changed(c, before);
    ax_free(before);
    ax_free(first);
    return orders;
}

/* What no document has of a cache is large numbers. */
static void spoil_unread_keys(struct ax_case *c) {
    const struct ax_attention *a =
        c->op == AX_OP_attention_forward ? &((struct ax_attention_forward *)c->args)->a : NULL;
    if (!a || !a->block_table.data)
        return;
    bool *read;
    assert_int_equal(ax_alloc(&read, (size_t)a->k.shape[0], sizeof *read), AX_OK);
    for (int64_t d = 0; d < a->block_table.shape[0]; d++) {
        const int32_t *cu = a->cu_k.data, *table = ax_tensor_row(&a->block_table, d);
        for (int64_t j = 0; j < cu[d + 1] - cu[d]; j++)
            read[table[j / a->block_size] * a->block_size + j % a->block_size] = true;
    }
    for (int64_t r = 0; r < a->k.shape[0]; r++) {
        if (read[r])
            continue;
        memset(ax_tensor_row(&a->k, r), 0x42,
               (size_t)ax_tensor_row_len(&a->k) * ax_dtype_size(a->k.dtype));
        memset(ax_tensor_row(&a->v, r), 0x42,
               (size_t)ax_tensor_row_len(&a->v) * ax_dtype_size(a->v.dtype));
    }
    ax_free(read);
}

/* Attention in bfloat16, forward and backward, that our own kernels compute: forward, one query a document;
 * heads of other than 8, 16, … 256 elements, blocks of other than 1, 2, 4, … keys, keys of an earlier piece or
 * chosen ones, and backward, queries of other documents than the keys'. */
#define CHOSEN "chosen", "chosen of earlier keys", "chosen, tiles", "chosen, small values"
static const char *const our_own[2][26] = {
    {"one",
     "packed",
     "small values",
     "decoding",
     "decoding, many keys",
     "decoding, many heads",
     "decoding, window",
     "decoding, not causal",
     "paged",
     "paged, small values",
     "paged, many keys",
     "paged, 35 parts",
     "paged, blocks of 3",
     "paged, sink",
     "paged, latents",
     "earlier keys",
     "earlier keys, window",
     "earlier keys, out of sight",
     "earlier tiles, window",
     CHOSEN},
    {"one", "packed", "small values", "soft cap", "sink", "no keys", "large values", "earlier keys",
     "earlier keys, window", "earlier keys, out of sight", "earlier tiles, window", CHOSEN}};

static bool is_our_own(enum ax_op op, const struct ax_shape *shape) {
    const char *const *name = our_own[op == AX_OP_attention_backward];
    while (*name && strcmp(*name, shape->name) != 0)
        name++;
    return *name != NULL;
}

static int calls_of(const struct machine *m) {
    const struct ax_dnn *d = ax_cuda_state(m->q)->dnn;
    return ax_dnn_calls(d, false) + ax_dnn_calls(d, true);
}

static void check_on(struct machine *m, enum ax_op op, const struct ax_shape *shape,
                     enum ax_dtype dtype) {
    struct ax_case got, want;
    case_open(&got, op, shape, dtype, &ref);
    case_open(&want, op, shape, dtype, &ref);
    spoil_unread_keys(&got);
    cases += ax_ops_cuda.supports(m->q, op, got.args);
    if (ax_ops_cuda.supports(m->q, op, got.args)) {
        struct ax_case_difference d = {.by_library = true};
        run_in_orders(&got, m);
        case_run(&want, &ref);
        ax_case_compare(&got, &want, &d);
        if (!(d.worst <= 1))
            COMPLAIN("%s%s\n", d.where,
                     m == &own     ? ", by our own kernel"
                     : m == &plain ? ", by our own kernel without wgmma"
                                   : "");
    }
    ax_case_free(&got);
    ax_case_free(&want);
}

static void check_case(enum ax_op op, const struct ax_shape *shape, enum ax_dtype dtype) {
    if (op != chosen)
        return;
    const int calls = calls_of(&cuda);
    check_on(&cuda, op, shape, dtype);
    if (!is_attention(op) || dtype != AX_BF16)
        return;
    if (EMULATED && (calls_of(&cuda) > calls) == is_our_own(op, shape))
        COMPLAIN("%s \"%s\": %d calls of cuDNN\n", ax_op_name(op), shape->name,
                 calls_of(&cuda) - calls);
    check_on(&own, op, shape, dtype);
    if (op != AX_OP_attention_backward)
        return;
    check_on(&plain, op, shape, dtype);
    cuda.q->attention_varies = true;
    check_on(&cuda, op, shape, dtype);
    cuda.q->attention_varies = false;
}

static void agrees_with_ref(void **state) {
    const int calls = calls_of(&cuda);
    chosen = (enum ax_op)(intptr_t)*state;
    cases = bad = 0;
    for_each_case(false, check_case);
    if (is_attention(chosen))
        print_message("cuDNN took %d calls of it\n", calls_of(&cuda) - calls);
    assert_int_equal(calls_of(&own), 0);
    assert_true(cases > 0);
    assert_int_equal(bad, 0);
}

/* Before 9.25, cuDNN has products of all lengths in memory: of what is too long for that, our own kernel
 * computes. Documents may be of `longest` tokens. */
static void check_long(const struct ax_shape *shape, int64_t longest, int calls) {
    struct ax_case got, want;
    case_open(&got, AX_OP_attention_backward, shape, AX_BF16, &ref);
    case_open(&want, AX_OP_attention_backward, shape, AX_BF16, &ref);
    struct ax_attention *a = &((struct ax_attention_backward *)got.args)->a;
    a->max_q = a->max_k = longest;
    const int before = calls_of(&old);
    const unsigned orders = run_in_orders(&got, &old);
    assert_int_equal(calls_of(&old) - before, (int)orders * calls);
    case_run(&want, &ref);
    compare_outputs(&got, &want);
    ax_case_free(&got);
    ax_case_free(&want);
}

static void long_documents_are_our_own(void **state) {
    int n, s = 0;
    const struct ax_shape *shapes = ax_op_shapes(AX_OP_attention_backward, &n);
    (void)state;
    while (s < n && strcmp(shapes[s].name, "tiles, window") != 0)
        s++;
    assert_true(s < n);
    check_long(&shapes[s], 256, 1);
    check_long(&shapes[s], 8192, 0);
    old.q->attention_varies = true;
    check_long(&shapes[s], 8192, 1);
    old.q->attention_varies = false;
}

/* More kinds of calls than plans are kept of, none of them computed when the last one is planned. */
static void plans_outlive_their_calls(void **state) {
    int n;
    struct ax_case c;
    (void)state;
    case_open(&c, AX_OP_attention_forward, &ax_op_shapes(AX_OP_attention_forward, &n)[2], AX_BF16,
              &ref);
    assert_string_equal(c.shape->name, "strided");
    struct ax_attention *a = &((struct ax_attention_forward *)c.args)->a;
    const size_t mark = ax_stack_mark(&cuda.arena.scratch);
    const int calls = calls_of(&cuda);
    assert_int_equal(ax_case_send(&c, cuda.q), AX_OK);
    for (int i = 0; i < 300; i++) {
        a->scale = 1 + i;
        case_run(&c, &cuda);
    }
    assert_int_equal(ax_queue_finish(cuda.q), AX_OK);
    assert_int_equal(calls_of(&cuda) - calls, 300);
    ax_stack_release(&cuda.arena.scratch, mark);
    ax_case_free(&c);
}

/* Where the repository is; a bundle for a machine with a GPU has its tests alone. */
#ifdef AX_CUDA_EMULATED
enum { IN_REPOSITORY = 1 };
#else
enum { IN_REPOSITORY = 0 };
#endif

/* docs/results/gpu-status.md says what no GPU has run, or what has: no op is left out. */
static void the_status_names_every_op(void **state) {
    (void)state;
    char *text, name[64];
    size_t len;
    assert_int_equal(ax_read_file("docs/results/gpu-status.md", 1 << 20, &text, &len), AX_OK);
    for (int op = 0; op < AX_OP_COUNT; op++) {
        snprintf(name, sizeof name, "`%s`", ax_op_name((enum ax_op)op));
        if (!strstr(text, name))
            fail_msg("docs/results/gpu-status.md does not name %s", name);
    }
    ax_free(text);
}

static int open_machines(void **state) {
    (void)state;
    machine_open(&ref, "ref", 1);
    machine_open(&cuda, "cuda", 1);
    setenv("AXTRAIN_CUDNN", "off", 1);
    machine_open(&own, "cuda", 1);
    setenv("AXTRAIN_WGMMA", "off", 1);
    machine_open(&plain, "cuda", 1);
    unsetenv("AXTRAIN_WGMMA");
    unsetenv("AXTRAIN_CUDNN");
    setenv("AXTRAIN_EMULATED_CUDNN", "91900", 1);
    machine_open(&old, "cuda", 1);
    unsetenv("AXTRAIN_EMULATED_CUDNN");
    return 0;
}

static int close_machines(void **state) {
    (void)state;
    machine_close(&old);
    machine_close(&plain);
    machine_close(&own);
    machine_close(&cuda);
    machine_close(&ref);
    return 0;
}

static bool is_wished(enum ax_op op, int n, char **names) {
    bool wished = n == 0;
    for (int i = 0; i < n; i++)
        wished |= strcmp(names[i], ax_op_name(op)) == 0;
    return wished;
}

int main(int argc, char **argv) {
    struct CMUnitTest tests[3 + AX_OP_COUNT] = {
        unit_test_if(IN_REPOSITORY, the_status_names_every_op),
        unit_test_if(EMULATED, long_documents_are_our_own),
        unit_test_if(EMULATED, plans_outlive_their_calls)};
    size_t n = argc > 1 ? 0 : 3;
    for (int op = 0; op < AX_OP_COUNT; op++)
        if (is_wished((enum ax_op)op, argc - 1, argv + 1))
            tests[n++] = (struct CMUnitTest){.name = ax_op_name((enum ax_op)op),
                                             .test_func = agrees_with_ref,
                                             .initial_state = (void *)(intptr_t)op};
    const int failed = _cmocka_run_group_tests("cuda ops", tests, n, open_machines, close_machines);
    return argc > 1 && n + 1 < (size_t)argc ? 2 : failed; /* a name that is no op's */
}
