/* Sums of bfloat16 over ranks, against exact ones: on GPUs rounded at each hop of a ring, as the stand-in for NCCL
 * models it, and on the host's fabrics (local; Gloo has its bits) once. Prints how far each is off. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "parallel/fabric/comm_local.h"
#include "parallel/fabric/comm_nccl.h"
#include "tests/comm_cases.h"
#include "tests/kernels/harness.h"

enum { MOST = 8, COUNT = 1 << 14 }; /* ranks; elements of a sum */

/* What ranks bring: independent numbers, or ones that have a part in common, as gradients of one model have. */
struct sums {
    double common;
    bool scatters; /* reduce-scatter, else all-reduce */
    uint16_t out[COUNT];
};

static double normal(int stream, int64_t i) {
    return (double)ax_rng_normal((struct ax_rng_key){11, (uint32_t)stream, 1}, (uint64_t)i);
}

static uint16_t brought(const struct sums *s, int rank, int64_t i) {
    return ax_f32_to_bf16((float)(s->common * normal(MOST, i) + normal(rank, i)));
}

/* This rank's part of the sum, or on rank 0 all of it, goes to s->out. */
static enum ax_status sum(struct ax_fabric *f, struct ax_queue *q, struct sums *s) {
    static _Thread_local uint16_t send[COUNT], recv[COUNT];
    const int64_t n = s->scatters ? COUNT / f->world : COUNT;
    const size_t bytes = (size_t)n * 2, mark = q->scratch ? ax_stack_mark(q->scratch) : 0;
    struct ax_comm c;
    void AX_DEVICE *from = send, *to = recv;
    for (int64_t i = 0; i < COUNT; i++)
        send[i] = brought(s, f->rank, i);
    if (q->scratch) {
        from = ax_stack_push(q->scratch, "brought", sizeof send);
        to = ax_stack_push(q->scratch, "sum", sizeof recv);
        AX_TRY(ax_queue_write(q, from, send, sizeof send));
    }
    AX_TRY(comm_cases_open(f, AX_ROLE_TP, &c));
    AX_TRY(
        ax_comm_run(&c, q,
                    &(struct ax_collective){.kind = s->scatters ? AX_REDUCE_SCATTER : AX_ALL_REDUCE,
                                            .dtype = AX_BF16,
                                            .send = from,
                                            .recv = to,
                                            .count = n}));
    AX_TRY(ax_queue_read(q, to, recv, bytes, NULL));
    if (s->scatters || f->rank == 0)
        memcpy(s->out + (s->scatters ? f->rank * n : 0), recv, bytes);
    ax_comm_free(&c);
    if (q->scratch)
        ax_stack_release(q->scratch, mark);
    return AX_OK;
}

static enum ax_status on_host(struct ax_fabric *f, void *ctx) {
    return sum(f, &host_queue, ctx);
}

static enum ax_status on_gpus(struct ax_fabric *host, void *ctx) {
    struct ax_fabric f;
    struct machine m;
    machine_open(&m, "cuda", 1);
    enum ax_status st = ax_nccl_fabric_open(&f, host, &m.arena.memory, 0);
    if (st == AX_OK) {
        st = sum(&f, m.q, ctx);
        f.ops->free(&f);
    }
    machine_close(&m);
    return st;
}

static void run(int ranks, ax_local_body body, struct sums *s) {
    if (ax_local_run(ranks, NULL, body, s) != AX_OK)
        fail_msg("%d ranks: %s", ranks, ax_error_text());
}

struct errors {
    double mean, most; /* of |error| ÷ |exact sum| */
    double norm;       /* ‖errors‖ ÷ ‖exact sums‖ */
    double bound;      /* most |error| ÷ Σ |what ranks bring| */
};

static struct errors measure(int ranks, const struct sums *s) {
    struct errors e = {0};
    double squares = 0, exact_squares = 0;
    for (int64_t i = 0; i < COUNT; i++) {
        double exact = 0, magnitude = 0;
        for (int r = 0; r < ranks; r++) {
            const double x = (double)ax_bf16_to_f32(brought(s, r, i));
            exact += x;
            magnitude += fabs(x);
        }
        const double error = fabs((double)ax_bf16_to_f32(s->out[i]) - exact);
        e.mean += exact != 0 ? error / fabs(exact) / COUNT : 0;
        e.most = fmax(e.most, exact != 0 ? error / fabs(exact) : 0);
        e.bound = fmax(e.bound, error / magnitude);
        squares += error * error;
        exact_squares += exact * exact;
    }
    e.norm = sqrt(squares / exact_squares);
    return e;
}

/* 2⁻⁸ of what is rounded, at each rounding: once of the sum, or of n − 1 partial sums, none of which is larger than
 * what all bring. */
static void measure_both(int ranks, double common) {
    static struct sums host, gpus, parts;
    const double half = 0x1p-8;
    host = gpus = parts = (struct sums){.common = common};
    parts.scatters = true;
    run(ranks, on_host, &host);
    run(ranks, on_gpus, &gpus);
    run(ranks, on_gpus, &parts);
    assert_memory_equal(gpus.out, parts.out, sizeof gpus.out);
    const struct errors once = measure(ranks, &host), hops = measure(ranks, &gpus);
    print_message("%d ranks, %s: mean %.2e, %.2e; most %.2e, %.2e; of what is added %.2e, %.2e; "
                  "norm %.2e, %.2e\n",
                  ranks, common > 0 ? "alike" : "independent", once.mean, hops.mean, once.most,
                  hops.most, once.bound, hops.bound, once.norm, hops.norm);
    assert_true(once.most <= half && once.norm > 0);
    assert_true(hops.bound <= (ranks - 1) * half * 1.01);
    if (ranks == 2)
        assert_memory_equal(gpus.out, host.out, sizeof gpus.out);
    else
        assert_true(hops.mean > 1.2 * once.mean && hops.norm > 1.2 * once.norm);
}

static void sums_are_rounded_at_each_hop(void **state) {
    (void)state;
    for (int ranks = 2; ranks <= MOST; ranks *= 2) {
        measure_both(ranks, 0);
        measure_both(ranks, 2);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_are_rounded_at_each_hop)};
    return cmocka_run_group_tests_name("sums of bfloat16", tests, NULL, NULL);
}
