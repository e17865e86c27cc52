/* The backend far: every op gives cpu's bits on memory that the host cannot touch; what is enqueued
 * happens in order, late, and its failure is told to whoever waits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <malloc.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/transfer.h"
#include "tests/kernels/harness.h"

static struct machine ref, cpu, far;

static int open_all(void **state) {
    (void)state;
    machine_open(&ref, "ref", 1);
    machine_open(&cpu, have_cpu() ? "cpu" : "ref", 2);
    machine_open(&far, "far", 2);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    machine_close(&far);
    machine_close(&cpu);
    machine_close(&ref);
    return 0;
}

/* ---- ops ---- */

static void run_far(struct ax_case *c) {
    const size_t mark = ax_stack_mark(&far.arena.scratch);
    assert_int_equal(ax_case_send(c, far.q), AX_OK);
    case_run(c, &far);
    assert_int_equal(ax_case_fetch(c, far.q), AX_OK);
    ax_stack_release(&far.arena.scratch, mark);
}

static void every_op_gives_the_bits_of_cpu(void **state) {
    (void)state;
    int n_cases = 0;
    for (int op = 0; op < AX_OP_COUNT; op++) {
        int n;
        const struct ax_shape *shapes = ax_op_shapes((enum ax_op)op, &n);
        for (int s = 0; s < n; s++)
            for (size_t d = 0; d < sizeof REALS / sizeof *REALS && !shapes[s].big; d++) {
                struct ax_case want, got;
                case_open(&want, (enum ax_op)op, &shapes[s], REALS[d], &ref);
                case_open(&got, (enum ax_op)op, &shapes[s], REALS[d], &ref);
                case_run(&want, &cpu);
                run_far(&got);
                if (memcmp(want.memory, got.memory, want.bytes) != 0)
                    fail_msg("%s \"%s\" %s differs", ax_op_name((enum ax_op)op), shapes[s].name,
                             ax_dtype_info(REALS[d])->name);
                ax_case_free(&want);
                ax_case_free(&got);
                n_cases++;
            }
    }
    assert_true(n_cases > 500);
}

/* ---- order ---- */

static struct ax_tensor take(int64_t n) {
    return ax_tensor_1d(AX_F32, ax_stack_push(&far.arena.scratch, "test", (size_t)n * 4), n);
}

struct note {
    int *at;
    int value;
    bool fails;
};

static enum ax_status put_note(struct ax_queue *q, const void *args, void *const *at) {
    const struct note *n = args;
    (void)q;
    (void)at;
    if (n->fails)
        return ax_error(AX_ERR_PEER, "note %d is lost", n->value);
    *n->at = n->value;
    return AX_OK;
}

/* Nothing is done before the host waits: neither ops nor calls; writes are in order, too. */
static void things_happen_late_and_in_order(void **state) {
    (void)state;
    const size_t mark = ax_stack_mark(&far.arena.scratch);
    struct ax_tensor x = take(4), y = take(4);
    float host[4] = {1, 2, 3, 4}, out[4];
    int noted = 0;
    assert_int_equal(ax_queue_write(far.q, x.data, host, sizeof host), AX_OK);
    host[0] = 100; /* it has been copied */
    assert_int_equal(ax_run_copy(far.q, &(struct ax_copy){y, x}), AX_OK);
    assert_int_equal(ax_run_add(far.q, &(struct ax_add){x, y, 10}), AX_OK);
    assert_int_equal(ax_queue_call(far.q, put_note, &(struct note){&noted, 7, false},
                                   sizeof(struct note), NULL, 0),
                     AX_OK);
    assert_int_equal(ax_queue_write(far.q, (char *)y.data + 8, ((float[]){-1, -2}), 8), AX_OK);
    usleep(20000);
    assert_int_equal(noted, 0);
    const uint64_t waits = far.q->counters.waits;
    assert_int_equal(ax_queue_read(far.q, x.data, out, sizeof out, NULL), AX_OK);
    assert_int_equal(far.q->counters.waits, waits + 1);
    assert_int_equal(noted, 7);
    assert_memory_equal(out, ((float[]){11, 22, 33, 44}), sizeof out);
    assert_int_equal(ax_queue_read(far.q, y.data, out, sizeof out, NULL), AX_OK);
    assert_memory_equal(out, ((float[]){1, 2, -1, -2}), sizeof out);
    /* more than the ring has room for */
    for (int i = 0; i < 1000; i++)
        assert_int_equal(ax_run_add(far.q, &(struct ax_add){x, y, 1}), AX_OK);
    assert_int_equal(ax_queue_read(far.q, x.data, out, sizeof out, NULL), AX_OK);
    assert_memory_equal(out, ((float[]){1011, 2022, -967, -1956}), sizeof out);
    ax_stack_release(&far.arena.scratch, mark);
}

/* A value that is asked for is what it was then; for it the host waits, and for nothing after it. */
static void a_value_is_read_later(void **state) {
    (void)state;
    struct machine *const machines[] = {&cpu, &far};
    for (int i = 0; i < 2; i++) {
        struct machine *m = machines[i];
        const size_t mark = ax_stack_mark(&m->arena.scratch);
        const struct ax_tensor x =
            ax_tensor_1d(AX_F32, ax_stack_push(&m->arena.scratch, "test", 16), 4);
        const uint64_t waits = m->q->counters.waits;
        const struct note note[2] = {{&(int){0}, 1, false}, {&(int){0}, 2, false}};
        uint64_t first, second;
        float out[4];
        assert_int_equal(ax_queue_is_late(m->q), m == &far);
        assert_int_equal(ax_run_fill(m->q, &(struct ax_fill){x, 2}), AX_OK);
        assert_int_equal(ax_queue_call(m->q, put_note, &note[0], sizeof *note, NULL, 0), AX_OK);
        assert_int_equal(ax_queue_read_later(m->q, x.data, 16, NULL, &first), AX_OK);
        assert_int_equal(ax_run_fill(m->q, &(struct ax_fill){x, 3}), AX_OK);
        assert_int_equal(ax_queue_call(m->q, put_note, &note[1], sizeof *note, NULL, 0), AX_OK);
        assert_int_equal(ax_queue_read_later(m->q, (char *)x.data + 8, 8, NULL, &second), AX_OK);
        usleep(20000);
        assert_int_equal(*note[0].at, m == &far ? 0 : 1);
        assert_int_equal(m->q->counters.waits, waits);
        assert_int_equal(ax_queue_settle(m->q, first, out, 16), AX_OK);
        assert_int_equal(m->q->counters.waits, waits + 1);
        assert_memory_equal(out, ((float[]){2, 2, 2, 2}), 16);
        assert_int_equal(*note[0].at, 1);
        usleep(20000);
        assert_int_equal(*note[1].at, m == &far ? 0 : 2);
        assert_int_equal(ax_queue_settle(m->q, second, out, 8), AX_OK);
        assert_memory_equal(out, ((float[]){3, 3, 2, 2}), 16);
        assert_int_equal(*note[1].at, 2);
        ax_stack_release(&m->arena.scratch, mark);
    }
}

static enum ax_status sleep_there(struct ax_queue *q, const void *args, void *const *at) {
    (void)q;
    (void)at;
    usleep(*(const useconds_t *)args);
    return AX_OK;
}

/* ---- views ---- */

static enum ax_status change_views(struct ax_queue *q, const void *args, void *const *at) {
    float *read = at[0], *written = at[1], *updated = at[2];
    const int n = *(const int *)args;
    (void)q;
    if (at[3])
        return ax_error(AX_ERR_FAILED, "a view of nothing");
    for (int i = 0; i < n; i++) {
        written[i] = 10 * read[i];
        updated[i] += read[i];
        read[i] = -1;
    }
    return AX_OK;
}

/* A call works on copies: what it only reads stays, the rest is there when the next op runs. */
static void calls_have_views(void **state) {
    (void)state;
    const size_t mark = ax_stack_mark(&far.arena.scratch);
    const struct ax_tensor x = take(4), y = take(4), z = take(4), sum = take(4);
    const float ones[4] = {1, 1, 1, 1}, host[4] = {1, 2, 3, 4};
    float out[4];
    const int n = 4;
    const struct ax_view views[] = {ax_view_of(&x, AX_VIEW_READ),
                                    ax_view_of(&y, AX_VIEW_WRITE),
                                    ax_view_of(&z, AX_VIEW_UPDATE),
                                    {NULL, 0, AX_VIEW_READ}};
    assert_int_equal(ax_queue_write(far.q, x.data, host, sizeof host), AX_OK);
    assert_int_equal(ax_queue_write(far.q, z.data, ones, sizeof ones), AX_OK);
    assert_int_equal(ax_queue_call(far.q, change_views, &n, sizeof n, views, 4), AX_OK);
    assert_int_equal(ax_run_copy(far.q, &(struct ax_copy){sum, x}), AX_OK);
    assert_int_equal(ax_run_add(far.q, &(struct ax_add){sum, y, 1}), AX_OK);
    assert_int_equal(ax_run_add(far.q, &(struct ax_add){sum, z, 1}), AX_OK);
    assert_int_equal(ax_queue_read(far.q, sum.data, out, sizeof out, NULL), AX_OK);
    for (int i = 0; i < 4; i++)
        assert_true(out[i] == host[i] + 10 * host[i] + (1 + host[i]));
    ax_stack_release(&far.arena.scratch, mark);
}

/* Seconds between the naps of the device: the first one is before the start, and the host's is none. */
static double time_of_naps(struct machine *m) {
    const useconds_t naps[] = {300000, 20000, 40000};
    const size_t mark = ax_stack_mark(&m->arena.scratch);
    struct ax_times none = {0}, got, *t = ax_stack_push(&m->arena.scratch, "test", sizeof *t);
    assert_int_equal(ax_queue_write(m->q, t, &none, sizeof none), AX_OK);
    for (int k = 0; k < 3; k++) { /* −1, 2, 2 */
        assert_int_equal(ax_queue_call(m->q, sleep_there, &naps[k], sizeof *naps, NULL, 0), AX_OK);
        assert_int_equal(ax_queue_time(m->q, t, k == 0 ? -1 : 2), AX_OK);
    }
    usleep(300000);
    assert_int_equal(ax_queue_read(m->q, t, &got, sizeof got, NULL), AX_OK);
    assert_true(got.seconds[0] == 0 && got.seconds[1] == 0);
    ax_stack_release(&m->arena.scratch, mark);
    return got.seconds[2];
}

/* The device measures what happens between two calls, not when they were made. On a busy machine a nap
 * may be long, but not every time. */
static void the_device_keeps_time(void **state) {
    (void)state;
    struct machine *const machines[] = {&cpu, &far};
    for (int i = 0; i < 2; i++) {
        double least = INFINITY;
        for (int tries = 0; tries < 10 && least >= 0.3; tries++) {
            const double seconds = time_of_naps(machines[i]);
            assert_true(seconds >= 0.06);
            least = seconds < least ? seconds : least;
        }
        assert_true(least < 0.3);
    }
}

/* A piece is read after all that was enqueued, and where memory is the host's it is not copied. */
static void pieces_are_read_in_order(void **state) {
    (void)state;
    struct machine *const machines[] = {&cpu, &far};
    for (int i = 0; i < 2; i++) {
        struct machine *m = machines[i];
        const size_t mark = ax_stack_mark(&m->arena.scratch);
        const struct ax_tensor x =
            ax_tensor_1d(AX_F32, ax_stack_push(&m->arena.scratch, "test", 12), 3);
        const void *host;
        assert_int_equal(ax_run_fill(m->q, &(struct ax_fill){x, 2.5}), AX_OK);
        assert_int_equal(ax_queue_begin_read(m->q, x.data, 12, &host), AX_OK);
        assert_memory_equal(host, ((float[]){2.5, 2.5, 2.5}), 12);
        assert_int_equal(host == x.data, m == &cpu);
        ax_queue_end_read(m->q, host);
        ax_stack_release(&m->arena.scratch, mark);
    }
}

/* Pieces that the host fills, from several threads, arrive at their end and not before; tensors are
 * converted on the way. On the host's devices a piece is the memory itself. */
static void what_the_host_fills_arrives(void **state) {
    (void)state;
    enum { PIECES = 200, PIECE = 16 };
    const size_t mark = ax_stack_mark(&far.arena.scratch), bytes = PIECE * sizeof(float);
    struct ax_tensor x = take(PIECES * PIECE);
    float out[PIECES * PIECE], *at = x.data;
    int failed = 0;
    assert_int_equal(ax_run_fill(far.q, &(struct ax_fill){x, 5}), AX_OK);
#pragma omp parallel for num_threads(4) reduction(+ : failed)
    for (int i = 0; i < PIECES; i++) {
        struct ax_queue_piece to[] = {{at + i * PIECE, bytes / 2, NULL},
                                      {NULL, 0, NULL},
                                      {at + i * PIECE + PIECE / 2, bytes / 2, NULL}};
        failed += ax_queue_begin_write(far.q, 3, to) != AX_OK || to[1].host != NULL;
        for (int k = 0; k < PIECE; k++) {
            float *host = (float *)to[k < PIECE / 2 ? 0 : 2].host + k % (PIECE / 2);
            failed += *host != 0;
            *host = (float)(i * PIECE + k);
        }
        if (i < PIECES - 1)
            failed += ax_queue_end_write(far.q, 3, to) != AX_OK; /* the last one never ends */
    }
    assert_int_equal(failed, 0);
    assert_int_equal(ax_queue_read(far.q, x.data, out, sizeof out, NULL), AX_OK);
    for (int i = 0; i < PIECES * PIECE; i++)
        assert_true(out[i] == (float)(i < (PIECES - 1) * PIECE ? i : 5));

    const struct ax_tensor half = ax_tensor_1d(AX_BF16, x.data, 3);
    double values[3];
    assert_int_equal(ax_tensor_write(far.q, &half, AX_F64, (double[]){1, -2.5, 1.0001}), AX_OK);
    assert_int_equal(ax_tensor_read(far.q, &half, AX_F64, values), AX_OK);
    assert_memory_equal(values, ((double[]){1, -2.5, 1}), sizeof values);

    struct ax_queue_piece same = {out, 8, NULL};
    assert_int_equal(ax_queue_begin_write(cpu.q, 1, &same), AX_OK);
    assert_ptr_equal(same.host, out);
    assert_int_equal(ax_queue_end_write(cpu.q, 1, &same), AX_OK);
    ax_stack_release(&far.arena.scratch, mark);
}

/* What is written waits in the ring for the device, which is late: a slot is used again when its
 * copies are done, and only that waits. The ring is all the memory that writing takes. */
static void a_slot_is_used_again_when_it_is_done(void **state) {
    (void)state;
    enum { PARTS = 5 };
    const size_t mark = ax_stack_mark(&far.arena.scratch);
    const size_t n = 3 * AX_QUEUE_RING / sizeof(int32_t), part = AX_QUEUE_STAGE + 4096;
    char *there = ax_stack_push(&far.arena.scratch, "written", n * sizeof(int32_t));
    int32_t *host, *back;
    assert_int_equal(ax_alloc(&host, n, sizeof *host), AX_OK);
    assert_int_equal(ax_alloc(&back, n, sizeof *back), AX_OK);
    for (size_t i = 0; i < n; i++)
        host[i] = (int32_t)i;
    assert_int_equal(ax_queue_finish(far.q), AX_OK);
    uint64_t waits = far.q->counters.waits;
    const struct mallinfo2 before = mallinfo2();
    for (size_t k = 0; k < PARTS; k++)
        assert_int_equal(ax_queue_write(far.q, there + k * part, (char *)host + k * part, part),
                         AX_OK);
    assert_int_equal(far.q->counters.waits, waits); /* the ring has room for these */
    for (size_t at = PARTS * part; at < n * sizeof(int32_t); at += part) {
        const size_t left = n * sizeof(int32_t) - at;
        assert_int_equal(
            ax_queue_write(far.q, there + at, (char *)host + at, left < part ? left : part), AX_OK);
    }
    const struct mallinfo2 after = mallinfo2();
    assert_true(after.uordblks + after.hblkhd <= before.uordblks + before.hblkhd);
    assert_true(far.q->counters.waits > waits);
    assert_true(far.q->counters.waits - waits <= n * sizeof *host / AX_QUEUE_STAGE);
    assert_int_equal(ax_queue_read(far.q, there, back, n * sizeof *back, NULL), AX_OK);
    assert_memory_equal(back, host, n * sizeof *host);

    /* more threads than slots, each with more than half a slot */
    const size_t piece = AX_QUEUE_STAGE / 16 * 9, pieces = n * sizeof *host / piece;
    int failed = 0;
#pragma omp parallel for num_threads(12) schedule(static, 1) reduction(+ : failed)
    for (size_t i = 0; i < pieces; i++) {
        struct ax_queue_piece to = {there + i * piece, piece, NULL};
        failed += ax_queue_begin_write(far.q, 1, &to) != AX_OK;
        memset(to.host, (int)i + 1, piece);
        failed += ax_queue_end_write(far.q, 1, &to) != AX_OK;
    }
    assert_int_equal(failed, 0);
    assert_int_equal(ax_queue_read(far.q, there, back, n * sizeof *back, NULL), AX_OK);
    for (size_t i = 0; i < pieces * piece; i++)
        if (((char *)back)[i] != (char)(i / piece + 1))
            fail_msg("byte %zu of piece %zu", i % piece, i / piece);

    /* no slot waits for what is done */
    waits = far.q->counters.waits;
    for (int k = 0; k < 100; k++)
        assert_int_equal(ax_queue_write(far.q, there, host, 64), AX_OK);
    assert_int_equal(far.q->counters.waits, waits);
    struct ax_queue_piece wide = {there, AX_QUEUE_STAGE + 1, NULL};
    assert_int_equal(ax_queue_begin_write(far.q, 1, &wide), AX_ERR_UNSUPPORTED);
    ax_free(back);
    ax_free(host);
    ax_stack_release(&far.arena.scratch, mark);
}

/* A queue of the host beside a far one: its ops run immediately, on the host's memory. */
static void the_host_computes_beside_it(void **state) {
    (void)state;
    struct ax_queue *host, *own;
    float x[2] = {1, 2}, y[2] = {10, 20};
    assert_int_equal(ax_host_queue_open(far.q, &host), AX_OK);
    assert_ptr_not_equal(host, far.q);
    assert_int_equal(ax_run_add(host, &(struct ax_add){ax_tensor_1d(AX_F32, x, 2),
                                                       ax_tensor_1d(AX_F32, y, 2), 2}),
                     AX_OK);
    assert_memory_equal(x, ((float[]){21, 42}), sizeof x);
    ax_host_queue_close(far.q, host);
    assert_int_equal(ax_host_queue_open(cpu.q, &own), AX_OK);
    assert_ptr_equal(own, cpu.q);
    ax_host_queue_close(cpu.q, own);
    assert_int_equal(ax_queue_finish(cpu.q), AX_OK); /* still open */
}

/* The first failure is told by every wait from then on, and nothing else is done. */
static void a_failure_is_told_to_who_waits(void **state) {
    (void)state;
    struct machine m;
    int noted = 0;
    machine_open(&m, "far", 1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(ax_queue_call(m.q, put_note, &(struct note){&noted, i, i == 1},
                                       sizeof(struct note), NULL, 0),
                         AX_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ax_queue_finish(m.q), AX_ERR_PEER);
        assert_string_equal(ax_error_text(), "note 1 is lost");
    }
    assert_int_equal(noted, 0);
    machine_close(&m);
}

/* ---- memory ---- */

static void child_touches(volatile char *at) {
    signal(SIGSEGV, SIG_DFL);
    *at = 1;
    _exit(0);
}

static void the_host_cannot_touch_it(void **state) {
    (void)state;
    struct machine m;
    machine_open(&m, "far", 1);
    char *block = ax_stack_push(&m.arena.scratch, "block", 64);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0)
        child_touches(block);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    ax_stack_release(&m.arena.scratch, 0);
    machine_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_gives_the_bits_of_cpu),
        cmocka_unit_test(calls_have_views),
        cmocka_unit_test(things_happen_late_and_in_order),
        cmocka_unit_test(a_value_is_read_later),
        cmocka_unit_test(the_device_keeps_time),
        cmocka_unit_test(pieces_are_read_in_order),
        cmocka_unit_test(what_the_host_fills_arrives),
        cmocka_unit_test(a_slot_is_used_again_when_it_is_done),
        cmocka_unit_test(the_host_computes_beside_it),
        cmocka_unit_test(a_failure_is_told_to_who_waits),
        cmocka_unit_test(the_host_cannot_touch_it),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
