/* Communicators: what a group of one copies, and what the dry run counts for larger groups. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "parallel/fabric/comm.h"
#include "parallel/fabric/contract.h"
#include "parallel/fabric/reduce.h"

static struct ax_arena arena;
static struct ax_queue *ref, *meta;

static int open_queues(void **state) {
    (void)state;
    const struct ax_arena_plan plan = {.scratch[AX_PHASE_TRAIN] = 4096};
    return ax_arena_create(&arena, &plan, &ax_device_host) == AX_OK &&
                   ax_queue_create(&ref, "ref", NULL, 1, &arena.scratch) == AX_OK &&
                   ax_queue_create(&meta, "meta", "ref", 1, &arena.scratch) == AX_OK
               ? 0
               : -1;
}

static int close_queues(void **state) {
    (void)state;
    ax_queue_free(ref);
    ax_queue_free(meta);
    ax_arena_free(&arena);
    return 0;
}

static const int64_t four = 4, none = 0;

/* Every kind, from one buffer to another and in place. */
static void a_group_of_one_copies(void **state) {
    (void)state;
    for (enum ax_collective_kind kind = 0; kind < AX_COLLECTIVE_COUNT; kind++) {
        const float from[4] = {1, 2, 3, 4};
        float to[5] = {9, 9, 9, 9, 9}, both[4] = {5, 6, 7, 8};
        struct ax_comm c;
        ax_comm_self_init(&c, AX_ROLE_TP);
        assert_int_equal(c.role, AX_ROLE_TP);
        assert_int_equal(c.rank, 0);
        assert_int_equal(c.size, 1);
        struct ax_collective what = {.kind = kind,
                                     .dtype = AX_F32,
                                     .send = from,
                                     .recv = to,
                                     .count = kind == AX_ALL_TO_ALL_V ? 0 : 4,
                                     .send_counts = &four,
                                     .recv_counts = &four};
        assert_int_equal(ax_comm_run(&c, ref, &what), AX_OK);
        assert_memory_equal(to, from, sizeof from);
        assert_true(to[4] == 9);
        what.send = what.recv = both;
        assert_int_equal(ax_comm_run(&c, ref, &what), AX_OK);
        assert_true(both[0] == 5 && both[3] == 8);
        assert_int_equal(c.sequence, 2);
        assert_int_equal(c.calls[kind], 2);
        assert_true(c.bytes_sent[kind] == 0); /* nothing leaves the rank */
        ax_comm_free(&c);
        ax_comm_free(&c);
    }
}

static void a_broadcast_needs_no_send_buffer(void **state) {
    (void)state;
    struct ax_comm c;
    double x[2] = {1, 2};
    ax_comm_self_init(&c, AX_ROLE_WORLD);
    const struct ax_collective what = {
        .kind = AX_BROADCAST, .dtype = AX_F64, .recv = x, .count = 2};
    assert_int_equal(ax_comm_run(&c, ref, &what), AX_OK);
    assert_true(x[0] == 1 && x[1] == 2);
}

/* At the ends of a pipeline there is nobody to send to, whatever the pointers say. */
static void an_exchange_with_nobody_moves_nothing(void **state) {
    (void)state;
    struct ax_comm c;
    const float from = 1;
    float to = 9;
    ax_comm_self_init(&c, AX_ROLE_PP);
    const struct ax_collective what = {.kind = AX_SEND_RECV,
                                       .dtype = AX_F32,
                                       .send = &from,
                                       .recv = &to,
                                       .count = 1,
                                       .send_peer = -1,
                                       .recv_peer = -1};
    assert_int_equal(ax_comm_run(&c, ref, &what), AX_OK);
    assert_true(to == 9);
    assert_true(c.bytes_sent[AX_SEND_RECV] == 0);
}

static void every_type_is_copied_whole(void **state) {
    (void)state;
    for (enum ax_dtype d = 0; d < AX_DTYPE_COUNT; d++) {
        struct ax_comm c;
        unsigned char from[24], to[25] = {0};
        const size_t bytes = 3 * ax_dtype_size(d);
        memset(from, 0xA5, sizeof from);
        ax_comm_self_init(&c, AX_ROLE_DP_SHARD);
        const struct ax_collective what = {
            .kind = AX_ALL_GATHER, .dtype = d, .send = from, .recv = to, .count = 3};
        assert_int_equal(ax_comm_run(&c, ref, &what), AX_OK);
        assert_memory_equal(to, from, bytes);
        assert_int_equal(to[bytes], 0);
    }
}

/* A dry run has addresses that nobody may touch. */
static void nothing_is_moved_while_planning(void **state) {
    (void)state;
    for (int size = 1; size <= 3; size++) {
        struct ax_comm c;
        if (size == 1)
            ax_comm_self_init(&c, AX_ROLE_CP);
        else
            ax_comm_meta_init(&c, AX_ROLE_CP, 1, size);
        const struct ax_collective what = {.kind = AX_REDUCE_SCATTER,
                                           .dtype = AX_F32,
                                           .send = (void *)0x1000,
                                           .recv = (void *)0x2000,
                                           .count = 1000};
        assert_int_equal(ax_comm_run(&c, meta, &what), AX_OK);
        assert_int_equal(c.calls[AX_REDUCE_SCATTER], 1);
        ax_comm_free(&c);
    }
}

/* Bytes that all ranks of a group send, one collective each. */
static double total_sent(int size, struct ax_collective what) {
    double total = 0;
    for (int rank = 0; rank < size; rank++) {
        int64_t counts[8];
        for (int r = 0; r < size; r++)
            counts[r] = 10 * rank + r; /* what rank sends to r, its own part included */
        what.send_counts = what.recv_counts = counts;
        what.send_peer = (rank + 1) % size;
        what.recv_peer = (rank + size - 1) % size;
        struct ax_comm c;
        ax_comm_meta_init(&c, AX_ROLE_TP, rank, size);
        assert_int_equal(ax_comm_run(&c, meta, &what), AX_OK);
        assert_true(c.bytes_sent[what.kind] >= 0);
        total += c.bytes_sent[what.kind];
        ax_comm_free(&c);
    }
    return total;
}

/* What must cross the wires at least, or a ring's worth, over the whole group. */
static void counted_bytes_are_those_of_a_ring(void **state) {
    (void)state;
    for (int n = 1; n <= 8; n++) {
        const double count = 840, bytes = 2 * count;
        struct ax_collective what = {.dtype = AX_BF16, .count = 840};
        what.kind = AX_ALL_GATHER;
        assert_true(total_sent(n, what) == n * (n - 1) * bytes);
        what.kind = AX_REDUCE_SCATTER;
        assert_true(total_sent(n, what) == n * (n - 1) * bytes);
        what.kind = AX_ALL_REDUCE;
        assert_true(total_sent(n, what) == 2 * (n - 1) * bytes);
        what.kind = AX_SEND_RECV;
        assert_true(total_sent(n, what) == (n > 1 ? n * bytes : 0));
        what.kind = AX_BROADCAST;
        for (what.root = 0; what.root < n; what.root++)
            assert_true(total_sent(n, what) == (n - 1) * bytes);
        what.root = 0;
        what.kind = AX_ALL_TO_ALL_V;
        double elements = 0;
        for (int from = 0; from < n; from++)
            for (int to = 0; to < n; to++)
                elements += from == to ? 0 : 10 * from + to;
        assert_true(total_sent(n, what) == 2 * elements);
    }
}

static void calls_are_counted_by_kind(void **state) {
    (void)state;
    struct ax_comm c;
    ax_comm_meta_init(&c, AX_ROLE_EP, 2, 4);
    assert_int_equal(c.rank, 2);
    assert_int_equal(c.size, 4);
    struct ax_collective what = {.dtype = AX_F32, .count = 0, .recv_peer = -1, .send_peer = -1};
    for (int i = 0; i < AX_COLLECTIVE_COUNT * 2; i++) {
        const int64_t counts[4] = {none, none, none, none};
        what.kind = (enum ax_collective_kind)(i % AX_COLLECTIVE_COUNT);
        what.send_counts = what.recv_counts = counts;
        struct ax_ticket t;
        assert_int_equal(ax_comm_start(&c, meta, &what, &t), AX_OK);
        assert_int_equal(ax_comm_wait(&c, meta, t), AX_OK);
        assert_int_equal(c.sequence, i + 1);
        assert_int_equal(c.calls[what.kind], i / AX_COLLECTIVE_COUNT + 1);
    }
    for (enum ax_collective_kind k = 0; k < AX_COLLECTIVE_COUNT; k++)
        assert_true(c.bytes_sent[k] == 0 && strlen(ax_collective_name(k)) > 0);
}

/* Signs, widths, and sums that wrap. */
static void whole_numbers_are_reduced(void **state) {
    (void)state;
    const int8_t i8[][3] = {{-3, 100, -128}, {2, 100, 127}};
    const uint8_t u8[][3] = {{253, 200, 0}, {2, 100, 127}};
    const int16_t i16[][3] = {{-5, 300, INT16_MIN}, {4, 300, INT16_MAX}};
    const int32_t i32[][2] = {{-5, INT32_MIN}, {4, INT32_MAX}};
    const int64_t i64[][2] = {{-5, INT64_MIN}, {(int64_t)1 << 40, INT64_MAX}};
    int8_t o8[3];
    uint8_t ou8[3];
    int16_t o16[3];
    int32_t o32[2];
    int64_t o64[2];
    ax_reduce_ordered(AX_MAX, AX_I8, o8, (const void *[]){i8[0], i8[1]}, 2, 3);
    assert_true(o8[0] == 2 && o8[1] == 100 && o8[2] == 127);
    ax_reduce_ordered(AX_SUM, AX_I8, o8, (const void *[]){i8[0], i8[1]}, 2, 3);
    assert_true(o8[0] == -1 && o8[1] == -56 && o8[2] == -1);
    ax_reduce_ordered(AX_MAX, AX_U8, ou8, (const void *[]){u8[0], u8[1]}, 2, 3);
    assert_true(ou8[0] == 253 && ou8[1] == 200 && ou8[2] == 127);
    ax_reduce_ordered(AX_MAX, AX_I16, o16, (const void *[]){i16[0], i16[1]}, 2, 3);
    assert_true(o16[0] == 4 && o16[1] == 300 && o16[2] == INT16_MAX);
    ax_reduce_ordered(AX_SUM, AX_I16, o16, (const void *[]){i16[0], i16[1]}, 2, 3);
    assert_true(o16[0] == -1 && o16[1] == 600 && o16[2] == -1);
    ax_reduce_ordered(AX_MAX, AX_I32, o32, (const void *[]){i32[0], i32[1]}, 2, 2);
    assert_true(o32[0] == 4 && o32[1] == INT32_MAX);
    ax_reduce_ordered(AX_SUM, AX_I32, o32, (const void *[]){i32[0], i32[1]}, 2, 2);
    assert_true(o32[0] == -1 && o32[1] == -1);
    ax_reduce_ordered(AX_MAX, AX_I64, o64, (const void *[]){i64[0], i64[1]}, 2, 2);
    assert_true(o64[0] == (int64_t)1 << 40 && o64[1] == INT64_MAX);
    ax_reduce_ordered(AX_SUM, AX_I64, o64, (const void *[]){i64[0], i64[1]}, 2, 2);
    assert_true(o64[0] == ((int64_t)1 << 40) - 5 && o64[1] == -1);
}

/* Counts that ranks 10, 11, … gave for an all-gather; the rank named as odd, and one of most. */
static void the_odd_rank_is_named(void **state) {
    (void)state;
    static const struct {
        int64_t counts[5];
        int n, odd, usual;
    } cases[] = {{{7}, 1, -1, 0},           {{7, 7, 7}, 3, -1, 0},      {{7, 8}, 2, 1, 0},
                 {{8, 7, 7}, 3, 0, 1},      {{7, 8, 7}, 3, 1, 0},       {{7, 7, 8}, 3, 2, 0},
                 {{8, 7, 7, 7}, 4, 0, 1},   {{8, 7, 8, 7, 7}, 5, 0, 1}, {{6, 7, 8, 8, 9}, 5, 0, 2},
                 {{8, 8, 7, 7}, 4, 2, 0},   {{1, 2, 3}, 3, 1, 0},       {{9, 9, 8, 9, 8}, 5, 2, 0},
                 {{6, 7, 7, 8, 8}, 5, 0, 1}};
    const int ranks[] = {10, 11, 12, 13, 14};
    const struct ax_comm_place place = {.role = AX_ROLE_TP, .number = 4, .from = -1};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_comm_part parts[5];
        const int odd = cases[i].odd, usual = cases[i].usual;
        for (int r = 0; r < cases[i].n; r++) {
            const struct ax_collective what = {
                .kind = AX_ALL_GATHER, .dtype = AX_F32, .count = cases[i].counts[r]};
            parts[r] = ax_comm_part_of(&what);
        }
        const enum ax_status st = ax_comm_check_parts(&place, parts, ranks, cases[i].n);
        assert_int_equal(st, odd < 0 ? AX_OK : AX_ERR_PEER);
        if (odd < 0)
            continue;
        char want[256];
        snprintf(want, sizeof want,
                 "tp: collective 4: rank %d started all_gather of %d float32, but rank %d "
                 "all_gather of %d float32. All ranks",
                 ranks[odd], (int)cases[i].counts[odd], ranks[usual], (int)cases[i].counts[usual]);
        if (strncmp(ax_error_text(), want, strlen(want)) != 0)
            fail_msg("%s, expected %s", ax_error_text(), want);
    }
}

/* Ranks are listed as in a sentence, and a message names both of its ends. */
static void missing_ranks_are_listed(void **state) {
    (void)state;
    static const char *const lists[] = {"rank 3", "ranks 3 and 0", "ranks 3, 0 and 12"};
    const int ranks[] = {3, 0, 12};
    const struct ax_comm_part part = {.kind = AX_SEND_RECV, .dtype = AX_BF16, .count = 6};
    const struct ax_comm_place message = {.role = AX_ROLE_PP, .number = 2, .from = 0, .to = 3};
    const struct ax_comm_place group = {.role = AX_ROLE_WORLD, .number = 2, .from = -1};
    for (int n = 1; n <= 3; n++) {
        char want[256], name[128];
        ax_comm_part_text(name, sizeof name, &part);
        assert_int_equal(ax_comm_missing(&message, &part, ranks, n, "left"), AX_ERR_PEER);
        snprintf(want, sizeof want, "pp: message 2 from rank 0 to rank 3 (%s): %s left", name,
                 lists[n - 1]);
        assert_string_equal(ax_error_text(), want);
        assert_int_equal(ax_comm_missing(&group, &part, ranks, n, "left"), AX_ERR_PEER);
        snprintf(want, sizeof want, "world: collective 2 (%s): %s left", name, lists[n - 1]);
        assert_string_equal(ax_error_text(), want);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_of_one_copies),
        cmocka_unit_test(a_broadcast_needs_no_send_buffer),
        cmocka_unit_test(an_exchange_with_nobody_moves_nothing),
        cmocka_unit_test(every_type_is_copied_whole),
        cmocka_unit_test(nothing_is_moved_while_planning),
        cmocka_unit_test(counted_bytes_are_those_of_a_ring),
        cmocka_unit_test(calls_are_counted_by_kind),
        cmocka_unit_test(whole_numbers_are_reduced),
        cmocka_unit_test(the_odd_rank_is_named),
        cmocka_unit_test(missing_ranks_are_listed),
    };
    return cmocka_run_group_tests(tests, open_queues, close_queues);
}
