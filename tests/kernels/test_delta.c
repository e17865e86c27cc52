/* The gated delta rule, with a decay per channel, too, and Mamba-2's recurrence: what PyTorch's autograd makes of them
 * (tests/goldens/ops/delta.safetensors, kda.safetensors, ssd.safetensors); the same
 * bits in pieces of any size and for a document alone; a document that is divided, with its state handed over. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/hash/hash.h"
#include "base/rng.h"
#include "tests/golden_files.h"
#include "tests/kernels/delta_case.h"
#include "tests/kernels/machines.h"
#include "tests/kernels/isa.h"

static void run_here(struct ax_case *c, struct machine *m) {
    case_run(c, m);
}

/* ---- against PyTorch ---- */

enum { TOKENS = 70, KEY_HEADS = 2, VALUE_HEADS = 4, KEY_DIM = 8, VALUE_DIM = 6 };
static const int32_t CU[] = {0, 3, 4, TOKENS};

/* The file: 8 bytes of header length, a JSON header, the tensors' bytes. */
static char goldens[3][1 << 17];
static const char *golden = goldens[0];

static const double *golden_of(const char *name, int64_t n) {
    char key[64];
    uint64_t header;
    snprintf(key, sizeof key, "\"%s\":{", name);
    const char *entry = strstr(golden + 8, key);
    assert_non_null(entry);
    const char *offsets = strstr(entry, "\"data_offsets\":[");
    assert_non_null(offsets);
    char *end;
    const size_t from = strtoul(offsets + strlen("\"data_offsets\":["), &end, 10);
    assert_int_equal(strtoul(end + 1, NULL, 10), from + (size_t)n * sizeof(double));
    memcpy(&header, golden, sizeof header);
    double *values = own((size_t)n * sizeof *values);
    memcpy(values, golden + 8 + header + from, (size_t)n * sizeof *values);
    return values;
}

static struct ax_tensor heads_of(enum ax_dtype dtype, int64_t heads, int64_t size) {
    const size_t bytes = (size_t)(TOKENS * heads * size) * ax_dtype_size(dtype);
    return size > 0 ? ax_tensor_3d(dtype, own(bytes), TOKENS, heads, size)
                    : ax_tensor_2d(dtype, own((size_t)(TOKENS * heads) * ax_dtype_size(dtype)),
                                   TOKENS, heads);
}

/* As tests/goldens/make/delta.py has it. */
static struct ax_tensor input(enum ax_dtype dtype, const char *name, int64_t heads, int64_t size,
                              double mean, double deviation) {
    struct ax_tensor t = heads_of(dtype, heads, size);
    const struct ax_rng_key key = {.seed = 7, .tensor = ax_hash32(name)};
    for (int64_t i = 0; i < ax_tensor_numel(&t); i++) {
        const double u = (double)ax_rng_uniform(key, (uint64_t)i);
        ax_store(dtype, t.data, i,
                 (double)(float)(mean + deviation * 1.7320508075688772 * (2 * u - 1)));
    }
    return t;
}

static void near(const char *what, const struct ax_tensor *got, double tolerance) {
    const double *want = golden_of(what, ax_tensor_numel(got));
    for (int64_t i = 0; i < ax_tensor_numel(got); i++)
        if (!(fabs(element(got, i) - want[i]) <= tolerance))
            fail_msg("%s[%lld] is %.15g, PyTorch says %.15g", what, (long long)i, element(got, i),
                     want[i]);
}

/* Memory of the test; b.a has forward's operands. */
static struct ax_delta_backward golden_case(enum ax_dtype dtype) {
    struct ax_delta_backward b = {
        .a = {.q = input(dtype, "delta.q", KEY_HEADS, KEY_DIM, 0, 0.5),
              .k = input(dtype, "delta.k", KEY_HEADS, KEY_DIM, 0, 0.5),
              .v = input(dtype, "delta.v", VALUE_HEADS, VALUE_DIM, 0, 0.5),
              .g = input(dtype, "delta.g", VALUE_HEADS, 0, -0.5, 0.25),
              .beta = input(dtype, "delta.beta", VALUE_HEADS, 0, 0.5, 0.25),
              .out = heads_of(dtype, VALUE_HEADS, VALUE_DIM),
              .cu = ax_tensor_1d(AX_I32, own(sizeof CU), 4),
              .scale = 1 / sqrt(KEY_DIM)},
        .dout = input(dtype, "delta.dout", VALUE_HEADS, VALUE_DIM, 0, 0.5),
        .dq = heads_of(dtype, KEY_HEADS, KEY_DIM),
        .dk = heads_of(dtype, KEY_HEADS, KEY_DIM),
        .dv = heads_of(dtype, VALUE_HEADS, VALUE_DIM),
        .dg = heads_of(dtype, VALUE_HEADS, 0),
        .dbeta = heads_of(dtype, VALUE_HEADS, 0),
    };
    memcpy(b.a.cu.data, CU, sizeof CU);
    return b;
}

static void compare_golden(const struct ax_delta_backward *b, double tolerance) {
    near("out", &b->a.out, tolerance);
    near("dq", &b->dq, tolerance);
    near("dk", &b->dk, tolerance);
    near("dv", &b->dv, tolerance);
    near("dg", &b->dg, tolerance);
    near("dbeta", &b->dbeta, tolerance);
}

static void ref_agrees_with_autograd(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        const struct ax_delta_backward b = golden_case(i == 0 ? AX_F64 : AX_F32);
        assert_int_equal(ax_run_delta_forward(ref.q, &(struct ax_delta_forward){.a = b.a}), AX_OK);
        assert_int_equal(ax_run_delta_backward(ref.q, &b), AX_OK);
        compare_golden(&b, i == 0 ? 1e-12 : 1e-5);
        release();
    }
}

/* The workspace has its exact size, so that ASan sees what goes past it. */
static void check_isa(const struct isa *isa, enum ax_dtype real) {
    if (real != AX_F32)
        return;
    const struct ax_delta_backward b = golden_case(real);
    RUN_WORK(isa, 2, delta_forward, .a = b.a);
    RUN_WORK(isa, 2, delta_backward, .a = b.a, .dout = b.dout, .dq = b.dq, .dk = b.dk, .dv = b.dv,
             .dg = b.dg, .dbeta = b.dbeta);
    compare_golden(&b, 1e-5);
}

static void every_instruction_set_agrees_with_autograd(void **state) {
    (void)state;
    for_each_isa(check_isa);
}

/* ---- Mamba-2 ---- */

static struct ax_tensor of_heads(enum ax_dtype dtype, const char *name, double mean,
                                 double deviation) {
    return ax_tensor_1d(dtype, input(dtype, name, VALUE_HEADS, 0, mean, deviation).data,
                        VALUE_HEADS);
}
static struct ax_tensor zeros(enum ax_dtype dtype) {
    return of_heads(dtype, "", 0, 0);
}

struct ssd_case {
    struct ax_ssd_gates_forward gates;
    struct ax_delta_backward b;
    struct ax_ssd_gates_backward back;
};

static struct ssd_case ssd_case(enum ax_dtype dtype) {
    struct ssd_case s = {
        .gates = {.a = input(dtype, "ssd.dt", VALUE_HEADS, 0, 0, 1),
                  .log = of_heads(dtype, "ssd.log", -0.5, 0.5),
                  .bias = of_heads(dtype, "ssd.bias", 0, 0.5),
                  .g = heads_of(dtype, VALUE_HEADS, 0),
                  .step = heads_of(dtype, VALUE_HEADS, 0),
                  .low = 0.25,
                  .high = 1.5},
        .b = {.a = {.q = input(dtype, "ssd.c", KEY_HEADS, KEY_DIM, 0, 0.5),
                    .k = input(dtype, "ssd.b", KEY_HEADS, KEY_DIM, 0, 0.5),
                    .v = input(dtype, "ssd.x", VALUE_HEADS, VALUE_DIM, 0, 0.5),
                    .skip = of_heads(dtype, "ssd.skip", 1, 0.5),
                    .out = heads_of(dtype, VALUE_HEADS, VALUE_DIM),
                    .cu = ax_tensor_1d(AX_I32, own(sizeof CU), 4),
                    .scale = 1,
                    .additive = true},
              .dout = input(dtype, "ssd.dout", VALUE_HEADS, VALUE_DIM, 0, 0.5),
              .dq = heads_of(dtype, KEY_HEADS, KEY_DIM),
              .dk = heads_of(dtype, KEY_HEADS, KEY_DIM),
              .dv = heads_of(dtype, VALUE_HEADS, VALUE_DIM),
              .dg = heads_of(dtype, VALUE_HEADS, 0),
              .dbeta = heads_of(dtype, VALUE_HEADS, 0),
              .dskip = heads_of(dtype, VALUE_HEADS, 0)},
    };
    memcpy(s.b.a.cu.data, CU, sizeof CU);
    s.b.a.g = s.gates.g;
    s.b.a.beta = s.gates.step;
    s.back = (struct ax_ssd_gates_backward){.dg = s.b.dg,
                                            .dstep = s.b.dbeta,
                                            .shares = s.b.dskip,
                                            .a = s.gates.a,
                                            .log = s.gates.log,
                                            .bias = s.gates.bias,
                                            .da = heads_of(dtype, VALUE_HEADS, 0),
                                            .dlog = zeros(dtype),
                                            .dbias = zeros(dtype),
                                            .dskip = zeros(dtype),
                                            .low = s.gates.low,
                                            .high = s.gates.high};
    return s;
}

static void compare_ssd(const struct ssd_case *s, double tolerance) {
    golden = goldens[1];
    near("out", &s->b.a.out, tolerance);
    near("dc", &s->b.dq, tolerance);
    near("db", &s->b.dk, tolerance);
    near("dx", &s->b.dv, tolerance);
    near("ddt", &s->back.da, tolerance);
    near("dlog", &s->back.dlog, 10 * tolerance); /* sums over tokens */
    near("dbias", &s->back.dbias, 10 * tolerance);
    near("dskip", &s->back.dskip, 10 * tolerance);
    golden = goldens[0];
}

static void ref_agrees_with_autograd_of_ssd(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        const struct ssd_case s = ssd_case(i == 0 ? AX_F64 : AX_F32);
        assert_int_equal(ax_run_ssd_gates_forward(ref.q, &s.gates), AX_OK);
        assert_int_equal(ax_run_delta_forward(ref.q, &(struct ax_delta_forward){.a = s.b.a}),
                         AX_OK);
        assert_int_equal(ax_run_delta_backward(ref.q, &s.b), AX_OK);
        assert_int_equal(ax_run_ssd_gates_backward(ref.q, &s.back), AX_OK);
        compare_ssd(&s, i == 0 ? 1e-12 : 1e-5);
        release();
    }
}

static void check_ssd_isa(const struct isa *isa, enum ax_dtype real) {
    if (real != AX_F32)
        return;
    const struct ssd_case s = ssd_case(real);
    const struct ax_delta_backward *b = &s.b;
    const struct ax_ssd_gates_forward *g = &s.gates;
    const struct ax_ssd_gates_backward *k = &s.back;
    RUN(isa, 2, ssd_gates_forward, .a = g->a, .log = g->log, .bias = g->bias, .g = g->g,
        .step = g->step, .low = g->low, .high = g->high);
    RUN_WORK(isa, 2, delta_forward, .a = b->a);
    RUN_WORK(isa, 2, delta_backward, .a = b->a, .dout = b->dout, .dq = b->dq, .dk = b->dk,
             .dv = b->dv, .dg = b->dg, .dbeta = b->dbeta, .dskip = b->dskip);
    RUN_WORK(isa, 2, ssd_gates_backward, .dg = k->dg, .dstep = k->dstep, .shares = k->shares,
             .a = k->a, .log = k->log, .bias = k->bias, .da = k->da, .dlog = k->dlog,
             .dbias = k->dbias, .dskip = k->dskip, .low = k->low, .high = k->high);
    compare_ssd(&s, 1e-5);
}

static void every_instruction_set_agrees_with_autograd_of_ssd(void **state) {
    (void)state;
    for_each_isa(check_ssd_isa);
}

/* ---- a decay per channel, with its gates ---- */

struct kda_case {
    struct ax_delta_gates_forward gates;
    struct ax_delta_backward b;
    struct ax_delta_gates_backward back;
};

static struct ax_tensor vector(enum ax_dtype dtype, const char *name, int64_t n, double deviation) {
    return ax_tensor_1d(dtype, input(dtype, name, n, 0, 0, deviation).data, n);
}
/* [T][Hv][dk] as the gates have it. */
static struct ax_tensor as_rows(const struct ax_tensor *t) {
    return ax_tensor_2d(t->dtype, t->data, TOKENS, VALUE_HEADS * KEY_DIM);
}

static struct kda_case kda_case(enum ax_dtype dtype) {
    const struct ax_tensor a = input(dtype, "kda.a", VALUE_HEADS, KEY_DIM, 0, 2);
    const struct ax_tensor g = heads_of(dtype, VALUE_HEADS, KEY_DIM),
                           dg = heads_of(dtype, VALUE_HEADS, KEY_DIM),
                           da = heads_of(dtype, VALUE_HEADS, KEY_DIM);
    struct kda_case s = {
        .gates = {.a = as_rows(&a),
                  .b = input(dtype, "kda.b", VALUE_HEADS, 0, 0, 1),
                  .log = vector(dtype, "kda.log", VALUE_HEADS, 1),
                  .bias = vector(dtype, "kda.bias", VALUE_HEADS * KEY_DIM, 0.5),
                  .g = as_rows(&g),
                  .beta = heads_of(dtype, VALUE_HEADS, 0),
                  .scale = 1},
        .b = {.a = {.q = input(dtype, "kda.q", KEY_HEADS, KEY_DIM, 0, 0.5),
                    .k = input(dtype, "kda.k", KEY_HEADS, KEY_DIM, 0, 0.5),
                    .v = input(dtype, "kda.v", VALUE_HEADS, VALUE_DIM, 0, 0.5),
                    .g = g,
                    .out = heads_of(dtype, VALUE_HEADS, VALUE_DIM),
                    .cu = ax_tensor_1d(AX_I32, own(sizeof CU), 4),
                    .scale = 1 / sqrt(KEY_DIM)},
              .dout = input(dtype, "kda.dout", VALUE_HEADS, VALUE_DIM, 0, 0.5),
              .dq = heads_of(dtype, KEY_HEADS, KEY_DIM),
              .dk = heads_of(dtype, KEY_HEADS, KEY_DIM),
              .dv = heads_of(dtype, VALUE_HEADS, VALUE_DIM),
              .dg = dg,
              .dbeta = heads_of(dtype, VALUE_HEADS, 0)},
    };
    memcpy(s.b.a.cu.data, CU, sizeof CU);
    s.b.a.beta = s.gates.beta;
    s.back = (struct ax_delta_gates_backward){.dg = as_rows(&dg),
                                              .dbeta = s.b.dbeta,
                                              .a = s.gates.a,
                                              .b = s.gates.b,
                                              .log = s.gates.log,
                                              .bias = s.gates.bias,
                                              .da = as_rows(&da),
                                              .db = heads_of(dtype, VALUE_HEADS, 0),
                                              .dlog = vector(dtype, "", VALUE_HEADS, 0),
                                              .dbias = vector(dtype, "", VALUE_HEADS * KEY_DIM, 0),
                                              .scale = 1};
    return s;
}

static void compare_kda(const struct kda_case *s, double tolerance) {
    golden = goldens[2];
    near("out", &s->b.a.out, tolerance);
    near("dq", &s->b.dq, tolerance);
    near("dk", &s->b.dk, tolerance);
    near("dv", &s->b.dv, tolerance);
    near("da", &s->back.da, tolerance);
    near("db", &s->back.db, tolerance);
    near("dlog", &s->back.dlog, 10 * tolerance); /* sums over tokens */
    near("dbias", &s->back.dbias, 10 * tolerance);
    golden = goldens[0];
}

static void ref_agrees_with_autograd_of_kda(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        const struct kda_case s = kda_case(i == 0 ? AX_F64 : AX_F32);
        assert_int_equal(ax_run_delta_gates_forward(ref.q, &s.gates), AX_OK);
        assert_int_equal(ax_run_delta_forward(ref.q, &(struct ax_delta_forward){.a = s.b.a}),
                         AX_OK);
        assert_int_equal(ax_run_delta_backward(ref.q, &s.b), AX_OK);
        assert_int_equal(ax_run_delta_gates_backward(ref.q, &s.back), AX_OK);
        compare_kda(&s, i == 0 ? 1e-12 : 1e-5);
        release();
    }
}

static void check_kda_isa(const struct isa *isa, enum ax_dtype real) {
    if (real != AX_F32)
        return;
    const struct kda_case s = kda_case(real);
    const struct ax_delta_backward *b = &s.b;
    const struct ax_delta_gates_forward *g = &s.gates;
    const struct ax_delta_gates_backward *k = &s.back;
    RUN(isa, 2, delta_gates_forward, .a = g->a, .b = g->b, .log = g->log, .bias = g->bias,
        .g = g->g, .beta = g->beta, .scale = g->scale);
    RUN_WORK(isa, 2, delta_forward, .a = b->a);
    RUN_WORK(isa, 2, delta_backward, .a = b->a, .dout = b->dout, .dq = b->dq, .dk = b->dk,
             .dv = b->dv, .dg = b->dg, .dbeta = b->dbeta);
    RUN_WORK(isa, 2, delta_gates_backward, .dg = k->dg, .dbeta = k->dbeta, .a = k->a, .b = k->b,
             .log = k->log, .bias = k->bias, .da = k->da, .db = k->db, .dlog = k->dlog,
             .dbias = k->dbias, .scale = k->scale);
    compare_kda(&s, 1e-5);
}

static void every_instruction_set_agrees_with_autograd_of_kda(void **state) {
    (void)state;
    for_each_isa(check_kda_isa);
}

/* Other sizes, states and pieces on each, with such a workspace, against ref. */
static void check_shapes(const struct isa *isa, enum ax_dtype real) {
    for (int op = AX_OP_delta_forward; op <= AX_OP_delta_backward; op++) {
        int n;
        const struct ax_shape *shapes = ax_op_shapes((enum ax_op)op, &n);
        for (int i = 0; i < n && !shapes[i].big; i++) {
            struct ax_case got, want;
            case_open(&got, (enum ax_op)op, &shapes[i], real, &ref);
            case_open(&want, (enum ax_op)op, &shapes[i], real, &ref);
            const struct ax_delta_forward *f = got.args;
            const struct ax_delta_backward *b = got.args;
            if (op == AX_OP_delta_forward)
                RUN_WORK(isa, 2, delta_forward, .a = f->a, .past = f->past, .keys = f->keys,
                         .updates = f->updates, .decays = f->decays);
            else
                RUN_WORK(isa, 2, delta_backward, .a = b->a, .dout = b->dout, .dq = b->dq,
                         .dk = b->dk, .dv = b->dv, .dg = b->dg, .dbeta = b->dbeta,
                         .dskip = b->dskip, .dstates = b->dstates);
            case_run(&want, &ref);
            compare_outputs(&got, &want);
            ax_case_free(&got);
            ax_case_free(&want);
        }
    }
}

static void every_instruction_set_agrees_with_ref(void **state) {
    (void)state;
    for_each_isa(check_shapes);
}

/* ---- bits ---- */

static void pieces_have_the_same_bits(void **state) {
    (void)state;
    for (size_t d = 0; d < sizeof REALS / sizeof *REALS; d++) {
        for (int kind = 0; kind < DELTA_KINDS; kind++) {
            delta_check_pieces(&ref, &ref, run_here, REALS[d], (enum delta_kind)kind);
            if (have_cpu() && REALS[d] != AX_F64)
                delta_check_pieces(&ref, &cpu, run_here, REALS[d], (enum delta_kind)kind);
        }
    }
}

static void packed_documents_are_as_if_alone(void **state) {
    (void)state;
    for (size_t d = 0; d < sizeof REALS / sizeof *REALS; d++) {
        for (int op = AX_OP_delta_forward; op <= AX_OP_delta_backward; op++) {
            delta_check_alone(&ref, &ref, run_here, (enum ax_op)op, REALS[d]);
            if (have_cpu() && REALS[d] != AX_F64)
                delta_check_alone(&ref, &cpu, run_here, (enum ax_op)op, REALS[d]);
        }
    }
}

/* Enough elements for several threads. */
static void threads_do_not_change_bits(void **state) {
    (void)state;
    static const struct ax_shape_document documents[] = {{300, 7}, {1, 70}, {260, 0}};
    static const struct ax_delta_options options[2][2] = {
        {{.pieces = true}, {.states = true}},
        {{.pieces = true, .channels = true}, {.states = true, .channels = true}}};
    if (!have_cpu())
        skip_because("hardware, AVX2");
    for (int i = 0; i < 4; i++) {
        const enum ax_op op = i % 2 == 0 ? AX_OP_delta_forward : AX_OP_delta_backward;
        const struct ax_shape shape = {.name = "threads",
                                       .rows = 570,
                                       .heads = 4,
                                       .kv_heads = 2,
                                       .head_dim = 24,
                                       .documents = documents,
                                       .n_documents = 3,
                                       .options = &options[i / 2][i % 2]};
        for (size_t d = 1; d < sizeof REALS / sizeof *REALS; d++) {
            struct ax_case first, c;
            case_open(&first, op, &shape, REALS[d], &ref);
            for (size_t n = 0; n < sizeof THREADS / sizeof *THREADS; n++) {
                struct machine m;
                machine_open(&m, "cpu", THREADS[n]);
                case_open(&c, op, &shape, REALS[d], &ref);
                case_run(n == 0 ? &first : &c, &m);
                assert_true(n == 0 || memcmp(first.memory, c.memory, c.bytes) == 0);
                ax_case_free(&c);
                machine_close(&m);
            }
            ax_case_free(&first);
        }
    }
}

/* ---- states ---- */

enum { INITIAL = 1, FINAL = 0, BETWEEN = 2 }; /* slots */

/* Documents first … first + n − 1 of the case as one, forward or backward. */
static void run_joined(const struct ax_case *c, struct machine *m, bool backward, int first, int n,
                       int32_t enters, int32_t leaves) {
    struct ax_delta_backward b = *(struct ax_delta_backward *)c->args;
    const int32_t *cu = b.a.cu.data, bounds[] = {cu[first], cu[first + n]};
    const int64_t from = bounds[0], rows = bounds[1] - bounds[0];
    int32_t joined[] = {0, (int32_t)rows};
    struct ax_tensor *const all[] = {&b.a.q, &b.a.k, &b.a.v, &b.a.g, &b.a.beta, &b.a.out, &b.dout,
                                     &b.dq,  &b.dk,  &b.dv,  &b.dg,  &b.dbeta,  &b.dskip};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]->data)
            *all[i] = ax_tensor_rows(all[i], from, rows);
    b.a.cu = ax_tensor_1d(AX_I32, joined, 2);
    b.a.enters = ax_tensor_1d(AX_I32, &enters, 1);
    b.a.leaves = ax_tensor_1d(AX_I32, &leaves, 1);
    assert_int_equal(backward ? ax_run_delta_backward(m->q, &b)
                              : ax_run_delta_forward(m->q, &(struct ax_delta_forward){.a = b.a}),
                     AX_OK);
}

static void close_to(const char *what, const struct ax_tensor *got, const struct ax_tensor *want,
                     double tolerance) {
    for (int64_t i = 0; i < ax_tensor_numel(want); i++)
        if (!(fabs(element(got, i) - element(want, i)) <= tolerance))
            fail_msg("%s[%lld] is %.15g, and %.15g of the whole", what, (long long)i,
                     element(got, i), element(want, i));
}

static void check_divided(struct machine *m, enum ax_dtype dtype, int32_t at, enum delta_kind kind,
                          double tolerance) {
    const struct ax_shape_document documents[] = {{at, 0}, {150 - at, 0}};
    const struct ax_delta_options options = {.value_dim = 6,
                                             .states = true,
                                             .additive = kind == DELTA_ADDITIVE,
                                             .channels = kind == DELTA_CHANNELS};
    const struct ax_shape shape = {.name = "divided",
                                   .rows = 150,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .head_dim = 8,
                                   .documents = documents,
                                   .n_documents = 2,
                                   .options = &options};
    struct ax_case cases[2]; /* the whole, and in two parts */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ax_case_create(&cases[i], AX_OP_delta_backward, &shape, dtype, 11), AX_OK);
        struct ax_tensor *out = &delta_of(&cases[i])->out;
        *out = delta_of(&cases[i])->v;
        out->data = own(ax_tensor_bytes(out));
    }
    run_joined(&cases[0], m, false, 0, 2, INITIAL, FINAL);
    run_joined(&cases[0], m, true, 0, 2, INITIAL, FINAL);
    run_joined(&cases[1], m, false, 0, 1, INITIAL, BETWEEN);
    run_joined(&cases[1], m, false, 1, 1, BETWEEN, FINAL);
    run_joined(&cases[1], m, true, 1, 1, BETWEEN, FINAL);
    run_joined(&cases[1], m, true, 0, 1, INITIAL, BETWEEN);
    const struct ax_delta_backward *w = cases[0].args, *p = cases[1].args;
    const struct ax_tensor last[] = {ax_tensor_rows(&w->a.states, FINAL, 1),
                                     ax_tensor_rows(&p->a.states, FINAL, 1)};
    const struct ax_tensor start[] = {ax_tensor_rows(&w->dstates, INITIAL, 1),
                                      ax_tensor_rows(&p->dstates, INITIAL, 1)};
    close_to("out", &p->a.out, &w->a.out, tolerance);
    close_to("states", &last[1], &last[0], tolerance);
    close_to("dq", &p->dq, &w->dq, tolerance);
    close_to("dk", &p->dk, &w->dk, tolerance);
    close_to("dv", &p->dv, &w->dv, tolerance);
    close_to("dg", &p->dg, &w->dg, tolerance);
    close_to("dbeta", &p->dbeta, &w->dbeta, tolerance);
    if (kind == DELTA_ADDITIVE)
        close_to("dskip", &p->dskip, &w->dskip, tolerance);
    close_to("dstates", &start[1], &start[0], tolerance);
    ax_case_free(&cases[0]);
    ax_case_free(&cases[1]);
    release();
}

static void divided_documents_are_the_whole(void **state) {
    (void)state;
    static const int32_t at[] = {1, 37, 64, 70, 149};
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        for (int kind = 0; kind < DELTA_KINDS; kind++) {
            check_divided(&ref, AX_F64, at[i], (enum delta_kind)kind, 1e-12);
            if (have_cpu())
                check_divided(&cpu, AX_F32, at[i], (enum delta_kind)kind, 1e-5);
        }
    }
}

/* ---- numbers that are hard ---- */

/* Decays that leave nothing, or all; beta 0 and 1; keys of zeros: ref and cpu agree, and all is finite. */
static void extremes_are_finite(void **state) {
    (void)state;
    static const struct ax_shape_document documents[] = {{100, 0}};
    static const struct ax_delta_options options[] = {{0}, {.channels = true}};
    const struct ax_shape shape = {.name = "extremes",
                                   .rows = 100,
                                   .heads = 2,
                                   .kv_heads = 1,
                                   .head_dim = 8,
                                   .documents = documents,
                                   .n_documents = 1};
    if (!have_cpu())
        skip_because("hardware, AVX2");
    for (int n = 0; n < 4; n++) {
        const enum ax_op op = n % 2 == 0 ? AX_OP_delta_forward : AX_OP_delta_backward;
        struct ax_case c[2];
        struct ax_shape kind = shape;
        kind.options = &options[n / 2];
        for (int i = 0; i < 2; i++) {
            case_open(&c[i], op, &kind, AX_F32, &ref);
            struct ax_delta_rule *a = delta_of(&c[i]);
            for (int64_t t = 0; t < 100; t++) {
                /* of one head; of each channel at its own times, and of one that keeps all */
                for (int64_t j = 0, count = n / 2 == 0 ? 1 : 7; j < count; j++)
                    ((float *)ax_tensor_row(&a->g, t))[j] = (t + j) % 3 == 0   ? -1000
                                                            : (t + j) % 3 == 1 ? 0
                                                                               : -20;
                ((float *)a->beta.data)[2 * t + 1] = (float)(t % 2);
                if (t % 10 == 0)
                    memset(ax_tensor_row(&a->k, t), 0, 8 * sizeof(float));
            }
            case_run(&c[i], i == 0 ? &cpu : &ref);
        }
        compare_outputs(&c[0], &c[1]);
        ax_case_free(&c[0]);
        ax_case_free(&c[1]);
    }
}

/* ---- the contract ---- */

#define BREAKS(op, c, field, value, text)                                                          \
    do {                                                                                           \
        struct ax_##op broken = *(const struct ax_##op *)(c)->args;                                \
        broken.field = (value);                                                                    \
        const char *rule = ax_op_broken_rule(AX_OP_##op, &broken);                                 \
        if (rule == NULL || strstr(rule, text) == NULL)                                            \
            fail_msg("%s: the broken rule is %s", #field, rule ? rule : "none");                   \
    } while (0)

static void contract_is_checked(void **state) {
    (void)state;
    int n;
    struct ax_case f, c, b;
    const struct ax_shape *shapes = ax_op_shapes(AX_OP_delta_forward, &n);
    while (strcmp(shapes->name, "pieces") != 0)
        shapes++;
    case_open(&f, AX_OP_delta_forward, shapes, AX_BF16, &ref);
    while (strcmp(shapes->name, "pieces of channels") != 0)
        shapes++;
    case_open(&c, AX_OP_delta_forward, shapes, AX_BF16, &ref);
    shapes = ax_op_shapes(AX_OP_delta_backward, &n);
    while (strcmp(shapes->name, "strided") != 0)
        shapes++;
    case_open(&b, AX_OP_delta_backward, shapes, AX_BF16, &ref);
    assert_null(ax_op_broken_rule(f.op, f.args));
    assert_null(ax_op_broken_rule(c.op, c.args));
    assert_null(ax_op_broken_rule(b.op, b.args));
    BREAKS(delta_forward, &f, a.k.shape[1], 1, "a->k");
    BREAKS(delta_forward, &f, a.v.shape[1], 3, "values % keys");
    BREAKS(delta_forward, &f, a.g.dtype, AX_BF16, "a->g");
    BREAKS(delta_forward, &f, a.beta.shape[1], 3, "a->beta");
    BREAKS(delta_forward, &f, a.out.shape[2], 3, "a->out");
    BREAKS(delta_forward, &f, a.out.dtype, AX_F32, "a->out.dtype");
    BREAKS(delta_forward, &f, a.states.shape[2], 3, "a->states");
    BREAKS(delta_forward, &f, a.states.data, NULL, "a->states");
    BREAKS(delta_forward, &f, a.leaves.data, f.memory, "a->leaves.data");
    BREAKS(delta_forward, &f, a.cu.dtype, AX_F32, "a->cu");
    BREAKS(delta_forward, &f, past.shape[0], 3, "f->past");
    BREAKS(delta_forward, &f, keys.shape[1], 63, "f->keys");
    BREAKS(delta_forward, &f, updates.dtype, AX_BF16, "f->updates");
    BREAKS(delta_forward, &f, decays.shape[2], 3, "f->decays");
    BREAKS(delta_forward, &f, a.skip, ((struct ax_delta_forward *)f.args)->a.beta, "a->additive");
    BREAKS(delta_forward, &c, a.g.shape[2], 3, "a->g");
    BREAKS(delta_forward, &c, a.additive, true, "ax_delta_by_channel");
    BREAKS(delta_forward, &c, decays.shape[3], 3, "f->decays");
    BREAKS(delta_forward, &c, decays.ndim, 3, "f->decays");
    BREAKS(delta_backward, &b, dskip, ((struct ax_delta_backward *)b.args)->dg, "a->skip");
    BREAKS(delta_backward, &b, dout.dtype, AX_F32, "b->dout");
    BREAKS(delta_backward, &b, dk.shape[0], 3, "b->dk");
    BREAKS(delta_backward, &b, dg.dtype, AX_BF16, "b->dg");
    BREAKS(delta_backward, &b, dstates.shape[0], 1, "b->dstates");
    BREAKS(delta_backward, &b, a.states.data, NULL, "b->dstates");
    ax_case_free(&f);
    ax_case_free(&c);
    ax_case_free(&b);
}

static int open_all(void **state) {
    static const char *const files[] = {"ops/delta.safetensors", "ops/ssd.safetensors",
                                        "ops/kda.safetensors"};
    for (int i = 0; i < 3; i++) {
        FILE *f = fopen(golden_path(files[i]), "rb");
        assert_non_null(f);
        assert_true(fread(goldens[i], 1, sizeof goldens[i] - 1, f) > 8);
        fclose(f);
    }
    return open_machines(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ref_agrees_with_autograd),
        cmocka_unit_test(every_instruction_set_agrees_with_autograd),
        cmocka_unit_test(ref_agrees_with_autograd_of_ssd),
        cmocka_unit_test(every_instruction_set_agrees_with_autograd_of_ssd),
        cmocka_unit_test(ref_agrees_with_autograd_of_kda),
        cmocka_unit_test(every_instruction_set_agrees_with_autograd_of_kda),
        cmocka_unit_test(every_instruction_set_agrees_with_ref),
        cmocka_unit_test(pieces_have_the_same_bits),
        cmocka_unit_test(packed_documents_are_as_if_alone),
        cmocka_unit_test(threads_do_not_change_bits),
        cmocka_unit_test(divided_documents_are_the_whole),
        cmocka_unit_test(extremes_are_finite),
        cmocka_unit_test(contract_is_checked),
    };
    return cmocka_run_group_tests(tests, open_all, close_machines);
}
