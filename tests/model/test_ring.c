/* Ring attention on ranks of cp against the gathered keys, and both against one attention call over the
 * row: forward, backward, packed documents, windows, caps, sinks, grouped heads; and which messages there
 * are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "kernels/transfer.h"
#include "model/parts/attend.h"
#include "tests/doubles/delay.h"

enum { T = 96, HQ = 6, HD = 8, VD = 5, DOCS = 8, RESULTS = 6 };

/* What is attended to. */
struct row {
    const char *name;
    int n;
    int64_t lengths[DOCS]; /* of documents; what is left is padding */
    int kv_heads;
    int64_t window;
    double softcap;
    bool sink;
};
static const struct row rows[] = {
    {"one document", 1, {96}, 2, 0, 0, false},
    {"one document, sink", 1, {96}, 6, 0, 0, true},
    {"packed", 5, {7, 40, 1, 11, 33}, 3, 0, 2.5, false},
    {"packed in short ones", 8, {12, 12, 12, 12, 12, 12, 12, 12}, 1, 0, 0, true},
    {"padding", 2, {5, 49}, 2, 0, 0, false},
    {"window", 1, {96}, 3, 10, 0, true},
    {"window of many runs", 2, {80, 16}, 2, 31, 2, false},
    {"window of two", 2, {60, 36}, 1, 2, 0, false},
};

struct result {
    double *data;
    int64_t width; /* of a token; dsink has one row */
};
struct run {
    const struct row *row;
    enum ax_dtype dtype;
    enum ax_cp_method method;
    int cp;
    struct result results[RESULTS]; /* out, lse, dq, dk, dv, dsink */
    uint64_t messages[16], gathers[16], sums[16];
    double sent[16];
};
enum { OUT, LSE, DQ, DK, DV, DSINK };

static struct ax_tensor take(struct ax_runtime *rt, enum ax_dtype dtype, int64_t n, int64_t heads,
                             int64_t dim) {
    struct ax_tensor t = ax_tensor_3d(dtype, NULL, n, heads, dim);
    t.data = ax_stack_push(&rt->arena.persistent, "test", ax_tensor_bytes(&t));
    return t;
}

/* Element e of token t of tensor `which` is the same number on any mesh. */
static enum ax_status draw(struct ax_runtime *rt, const struct ax_batch *b,
                           const struct ax_tensor *t, uint32_t which) {
    const int64_t width = ax_tensor_row_len(t);
    for (int64_t i = 0; i < t->shape[0] && !ax_runtime_planning(rt); i++) {
        const int64_t length = b->T / b->n_runs, token = b->runs[i / length].first + i % length;
        for (int64_t e = 0; e < width; e++)
            ax_store(t->dtype, t->data, i * width + e,
                     2 * (double)ax_rng_uniform((struct ax_rng_key){3, which, 0},
                                                (uint64_t)(token * width + e)) -
                         1);
    }
    return AX_OK;
}

/* Adds this rank's rows to the result, at their tokens. */
static void keep(struct ax_runtime *rt, const struct ax_batch *b, const struct ax_tensor *t,
                 struct result *out) {
    const int64_t width = ax_tensor_row_len(t);
    out->width = width;
    for (int64_t i = 0; i < t->shape[0] && !ax_runtime_planning(rt); i++) {
        const int64_t length = b->T / b->n_runs, token = b->runs[i / length].first + i % length;
        for (int64_t e = 0; e < width; e++)
            out->data[token * width + e] = ax_load(t->dtype, t->data, i * width + e);
    }
}

static enum ax_status fill(struct ax_batch *b, struct ax_queue *q, const struct row *row) {
    static const int32_t tokens[T];
    struct ax_document docs[DOCS];
    for (int d = 0; d < row->n; d++)
        docs[d] = (struct ax_document){.n = row->lengths[d], .tokens = tokens};
    return ax_batch_fill(b, q, 1, row->n, docs);
}

static enum ax_status attend(struct ax_runtime *rt, void *ctx) {
    struct run *run = ctx;
    const struct row *row = run->row;
    const enum ax_dtype dtype = run->dtype, accum = ax_dtype_accum(dtype);
    struct ax_model m = {.rt = rt, .dtype = dtype, .accum = accum, .cp_method = run->method};
    struct ax_batch b;
    const int rank = rt->mesh.coord[AX_ROLE_CP];
    ax_batch_allocate(&b, &rt->arena.persistent, T, DOCS, T, run->cp, rank);
    AX_TRY(fill(&b, rt->q, row));
    struct ax_pass p = {.model = &m, .batch = &b};
    const int64_t n = b.T, hk = row->kv_heads;
    struct ax_attention a = {.q = take(rt, dtype, n, HQ, HD),
                             .k = take(rt, dtype, n, hk, HD),
                             .v = take(rt, dtype, n, hk, VD),
                             .out = take(rt, dtype, n, HQ, VD),
                             .window = row->window,
                             .softcap = row->softcap,
                             .scale = 1.3 / sqrt(HD)};
    const struct ax_tensor lse = take(rt, accum, n, HQ, 1), sink = take(rt, accum, 1, HQ, 1),
                           dsink = take(rt, accum, 1, HQ, 1);
    a.lse = ax_tensor_2d(accum, lse.data, n, HQ);
    struct ax_attention_backward back = {.dout = take(rt, dtype, n, HQ, VD),
                                         .dq = take(rt, dtype, n, HQ, HD),
                                         .dk = take(rt, dtype, n, hk, HD),
                                         .dv = take(rt, dtype, n, hk, VD)};
    AX_TRY(draw(rt, &b, &a.q, 1));
    AX_TRY(draw(rt, &b, &a.k, 2));
    AX_TRY(draw(rt, &b, &a.v, 3));
    AX_TRY(draw(rt, &b, &back.dout, 4));
    for (int64_t h = 0; h < HQ && !ax_runtime_planning(rt); h++)
        ax_store(accum, sink.data, h, 0.3 * (double)h - 1);
    if (row->sink) {
        a.sink = ax_tensor_1d(accum, sink.data, HQ);
        back.dsink = ax_tensor_1d(accum, dsink.data, HQ);
        AX_TRY(ax_run_fill(rt->q, &(struct ax_fill){back.dsink, 0}));
    }
    static const struct ax_layer layer = {0};
    AX_TRY(ax_attend_forward(&p, &layer, &a));
    back.a = a;
    AX_TRY(ax_attend_backward(&p, &layer, &back));
    struct ax_comm *c = &rt->comms[AX_ROLE_CP];
    if (!ax_runtime_planning(rt)) {
        run->messages[rank] = c->calls[AX_SEND_RECV];
        run->sent[rank] = c->bytes_sent[AX_SEND_RECV];
        run->gathers[rank] = c->calls[AX_ALL_GATHER];
        run->sums[rank] = c->calls[AX_REDUCE_SCATTER];
    }
    if (row->sink && run->cp > 1)
        AX_TRY(ax_comm_sum(c, rt->q, accum, dsink.data, HQ));
    const struct ax_tensor *const all[] = {
        [OUT] = &a.out, [LSE] = &lse, [DQ] = &back.dq, [DK] = &back.dk, [DV] = &back.dv};
    for (int i = 0; i < DSINK; i++)
        keep(rt, &b, all[i], &run->results[i]);
    run->results[DSINK].width = row->sink ? HQ : 0;
    for (int64_t h = 0; h < HQ && row->sink && rank == 0 && !ax_runtime_planning(rt); h++)
        run->results[DSINK].data[h] = ax_load(accum, dsink.data, h);
    return AX_OK;
}

static enum ax_status rank_body(struct ax_fabric *fabric, void *ctx) {
    struct run *run = ctx;
    const struct ax_runtime_options o = {.backend = run->dtype == AX_F64 ? "ref" : "cpu",
                                         .threads = 1,
                                         .sizes = {1, 1, 1, run->cp, 1, 1},
                                         .fabric = fabric};
    return ax_runtime_run(&o, attend, run, NULL);
}

static void run_row(struct run *run, double latency) {
    for (int i = 0; i < RESULTS; i++)
        assert_int_equal(ax_alloc(&run->results[i].data, (size_t)T * HQ * HD, sizeof(double)),
                         AX_OK);
    if (ax_delay_run(run->cp, (struct ax_delay_link){.latency = latency}, false, rank_body, run) !=
        AX_OK)
        fail_msg("%s: %s", run->row->name, ax_error_text());
}

static void drop(struct run *run) {
    for (int i = 0; i < RESULTS; i++)
        ax_free(run->results[i].data);
}

static void expect_same(const struct run *a, const struct run *b, double tolerance) {
    static const char *const names[] = {"out", "lse", "dq", "dk", "dv", "dsink"};
    for (int i = 0; i < RESULTS; i++) {
        const struct result *x = &a->results[i], *y = &b->results[i];
        double most = 0, worst = 0;
        assert_int_equal(x->width, y->width);
        for (int64_t k = 0; k < x->width * (i == DSINK ? 1 : T); k++) {
            if (!isfinite(y->data[k])) { /* lse of padding */
                assert_true(x->data[k] == y->data[k]);
                continue;
            }
            most = fmax(most, fabs(y->data[k]));
            worst = fmax(worst, fabs(x->data[k] - y->data[k]));
        }
        assert_true(x->width == 0 || most > 1e-3);
        if (!(worst <= tolerance * most))
            fail_msg("%s, cp %d: %s differs by %g of %g", a->row->name, a->cp, names[i], worst,
                     most);
    }
}

/* In double precision, in float32 and bfloat16; messages late, so that they are waited for. */
static void ring_gather_and_one_call_agree(void **state) {
    (void)state;
    static const struct {
        enum ax_dtype dtype;
        double tolerance;
    } kinds[] = {{AX_F64, 1e-11}, {AX_F32, 1e-5}, {AX_BF16, 2e-2}};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            struct run one = {.row = &rows[i], .dtype = kinds[k].dtype, .cp = 1};
            run_row(&one, 0);
            for (int cp = 2; cp <= 4; cp++) {
                struct run ring = one, gather = one;
                ring.cp = gather.cp = cp;
                ring.method = AX_CP_RING;
                run_row(&ring, 2e-4);
                run_row(&gather, 0);
                expect_same(&ring, &one, kinds[k].tolerance);
                expect_same(&gather, &one, kinds[k].tolerance);
                expect_same(&ring, &gather, kinds[k].tolerance);
                for (int r = 0; r < cp; r++) {
                    assert_true(ring.gathers[r] == 0 && ring.sums[r] == 0);
                    assert_true(gather.messages[r] == 0 && gather.gathers[r] > 0);
                }
                drop(&ring);
                drop(&gather);
            }
            drop(&one);
        }
}

/* Starts of messages of all ranks, in forward and backward: each travels forward, forward again in
 * backward, and its gradients home; two starts each. */
static uint64_t messages_of(const char *name, int cp) {
    struct run run = {.dtype = AX_F32, .method = AX_CP_RING, .cp = cp};
    uint64_t all = 0;
    double sent = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, name) == 0)
            run.row = &rows[i];
    run_row(&run, 0);
    for (int r = 0; r < cp; r++) {
        all += run.messages[r];
        sent += run.sent[r];
    }
    const double bytes = 4.0 * T / (2 * cp) * run.row->kv_heads * (HD + VD);
    assert_true(fabs(sent - (double)all / 2 * bytes) < 1e-9);
    drop(&run);
    assert_int_equal(all % 6, 0);
    return all / 6;
}

/* A head run is read by all other ranks, a tail one by those whose tail is later: cp·(cp − 1)·3/2. */
static void only_what_is_seen_travels(void **state) {
    (void)state;
    assert_int_equal(messages_of("one document", 2), 3);
    assert_int_equal(messages_of("one document", 3), 9);
    assert_int_equal(messages_of("one document", 4), 18);
    /* documents that end with each run */
    assert_int_equal(messages_of("packed in short ones", 4), 0);
    /* a window within two runs: the run before, except one's own */
    assert_int_equal(messages_of("window", 4), 6);
    /* runs of 16; the second document begins in the first and ends in the fourth, of ranks 0, 1, 2, 2 */
    assert_int_equal(messages_of("padding", 3), 3);
}

/* A rank more than a batch has tables for is refused. */
static void too_many_ranks_are_refused(void **state) {
    (void)state;
    struct ax_mesh mesh = {.size = {[AX_ROLE_CP] = AX_REACH_RUNS / 2}};
    assert_int_equal(ax_cp_check(AX_CP_RING, &mesh), AX_OK);
    mesh.size[AX_ROLE_CP]++;
    assert_int_equal(ax_cp_check(AX_CP_GATHER, &mesh), AX_OK);
    assert_int_equal(ax_cp_check(AX_CP_RING, &mesh), AX_ERR_CONFIG);
    assert_non_null(strstr(ax_error_text(), "Nearest: gather, or cp 128"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring_gather_and_one_call_agree),
        cmocka_unit_test(only_what_is_seen_travels),
        cmocka_unit_test(too_many_ranks_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
