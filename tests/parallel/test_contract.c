/* Meshes on threads: groups hold the ranks they should (2^rank sums), a runtime runs on a fabric,
 * and a rank that departs from its dry run is stopped and named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/threads.h"
#include "parallel/fabric/comm_local.h"
#include "parallel/runtime.h"
#include "tests/comm_cases.h"

/* ---- membership ---- */

static enum ax_status sum_of(struct ax_comm *c, struct ax_queue *q, double mine, double *sum) {
    *sum = mine;
    const struct ax_collective what = {
        .kind = AX_ALL_REDUCE, .dtype = AX_F64, .send = sum, .recv = sum, .count = 1};
    return ax_comm_run(c, q, &what);
}

/* The ranks that share every coordinate a role does not vary, by division of the rank itself. */
static double expected_sum(const struct ax_mesh_sizes *s, int rank, enum ax_role role) {
    const int world = s->pp * s->dp_replicate * s->dp_shard * s->cp * s->tp;
    const int inner = s->dp_shard * s->cp * s->tp;
    double sum = 0;
    for (int other = 0; other < world; other++) {
        const bool tp = other % s->tp == rank % s->tp;
        const bool cp = other / s->tp % s->cp == rank / s->tp % s->cp;
        const bool shard =
            other / s->tp / s->cp % s->dp_shard == rank / s->tp / s->cp % s->dp_shard;
        const bool rep = other / inner % s->dp_replicate == rank / inner % s->dp_replicate;
        const bool pp = other / inner / s->dp_replicate == rank / inner / s->dp_replicate;
        const bool ep = other % inner % s->ep == rank % inner % s->ep;
        const bool efsdp = other % inner / s->ep == rank % inner / s->ep;
        const bool in[AX_ROLE_COUNT] = {
            [AX_ROLE_TP] = cp && shard && rep && pp,
            [AX_ROLE_CP] = tp && shard && rep && pp,
            [AX_ROLE_DP_SHARD] = tp && cp && rep && pp,
            [AX_ROLE_DP_REPLICATE] = tp && cp && shard && pp,
            [AX_ROLE_PP] = tp && cp && shard && rep,
            [AX_ROLE_EP] = efsdp && rep && pp,
            [AX_ROLE_EFSDP] = ep && rep && pp,
            [AX_ROLE_FSDP] = tp && rep && pp,
            [AX_ROLE_BATCH] = tp && cp && pp,
            [AX_ROLE_LOSS] = tp && pp,
            [AX_ROLE_WORLD] = true,
        };
        if (in[role])
            sum += (double)(1 << other);
    }
    return sum;
}

static enum ax_status sum_in_every_role(struct ax_runtime *rt, void *ctx) {
    const struct ax_mesh_sizes *sizes = ctx;
    for (enum ax_role role = 0; role < AX_ROLE_COUNT; role++) {
        struct ax_comm *c = &rt->comms[role];
        double sum, places;
        AX_TRY(sum_of(c, rt->q, (double)(1 << rt->mesh.rank), &sum));
        AX_TRY(sum_of(c, rt->q, (double)(1 << c->rank), &places));
        if (ax_runtime_planning(rt))
            continue;
        if (sum != expected_sum(sizes, rt->mesh.rank, role))
            return ax_error(AX_ERR_FAILED, "role %s: the sum of 2^rank is %g, not %g",
                            ax_role_name(role), sum, expected_sum(sizes, rt->mesh.rank, role));
        ENSURE(places == (double)((1 << c->size) - 1)); /* each coord once */
    }
    return AX_OK;
}

static enum ax_status run_sums(struct ax_fabric *f, void *ctx) {
    const struct ax_runtime_options o = {
        .backend = "ref", .threads = 1, .sizes = *(struct ax_mesh_sizes *)ctx, .fabric = f};
    return ax_runtime_run(&o, sum_in_every_role, ctx, NULL);
}

static void groups_hold_the_right_ranks(void **state) {
    (void)state;
    static struct ax_mesh_sizes meshes[] = {
        /* pp, dp_replicate, dp_shard, cp, tp, ep */
        {1, 1, 1, 1, 1, 1}, {2, 1, 1, 1, 1, 1}, {1, 3, 1, 1, 1, 1}, {1, 1, 4, 1, 1, 2},
        {1, 1, 1, 3, 1, 3}, {1, 1, 1, 1, 4, 4}, {2, 1, 2, 1, 2, 1}, {2, 1, 2, 1, 2, 2},
        {1, 2, 2, 2, 1, 4}, {1, 1, 2, 2, 2, 4}, {2, 2, 2, 1, 2, 2}, {1, 2, 2, 2, 2, 8},
        {2, 1, 2, 2, 2, 4}, {4, 2, 1, 1, 2, 2}, {2, 2, 1, 2, 2, 4}, {3, 1, 1, 2, 2, 2},
    };
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        struct ax_mesh_sizes *s = &meshes[i];
        const int world = s->pp * s->dp_replicate * s->dp_shard * s->cp * s->tp;
        if (ax_local_run(world, NULL, run_sums, s) != AX_OK)
            fail_msg("mesh %zu: %s", i, ax_error_text());
    }
}

/* ---- a runtime on a fabric ---- */

static enum ax_status look(struct ax_runtime *rt, void *ctx) {
    const int *world = ctx;
    const int share = ax_cpu_count() / *world;
    ENSURE(ax_runtime_planning(rt) || rt->q->threads == (share > 1 ? share : 1));
    ENSURE(rt->mesh.world == *world);
    return AX_OK;
}

static enum ax_status run_look(struct ax_fabric *f, void *ctx) {
    const struct ax_runtime_options o = {.backend = "cpu", .sizes = {.dp_shard = -1}, .fabric = f};
    return ax_runtime_run(&o, look, ctx, NULL);
}

static void ranks_share_the_threads(void **state) {
    (void)state;
    for (int world = 1; world <= 3; world += 2)
        if (ax_local_run(world, NULL, run_look, &world) != AX_OK)
            fail_msg("%s", ax_error_text());
}

static void ranks_alone_can_only_plan(void **state) {
    (void)state;
    struct ax_runtime rt;
    const struct ax_runtime_options o = {
        .backend = "ref", .threads = 1, .sizes = {.tp = 2}, .world = 2};
    const struct ax_arena_plan plan = {.n_slots = 1};
    assert_int_equal(ax_runtime_open(&rt, &o, &plan, 0), AX_ERR_UNSUPPORTED);
    assert_non_null(strstr(ax_error_text(), "2 ranks can be planned"));
}

/* ---- departures from the dry run ---- */

enum departure {
    NONE,
    LEAVES_OUT,
    LEAVES_OUT_LAST,
    ONE_TOO_MANY,
    OTHER_COUNT,
    OTHER_ROLE,
    OTHER_PEER,
    UNPLANNED_NAME,
    SECOND_TIME,
};

static enum ax_status gather(struct ax_runtime *rt, enum ax_role role, int64_t count) {
    float send[4] = {0}, recv[8];
    const struct ax_collective what = {
        .kind = AX_ALL_GATHER, .dtype = AX_F32, .send = send, .recv = recv, .count = count};
    return ax_comm_run(&rt->comms[role], rt->q, &what);
}

static enum ax_status message(struct ax_runtime *rt, bool backwards) {
    struct ax_comm *c = &rt->comms[AX_ROLE_DP_SHARD];
    const int peer = 1 - c->rank;
    float x = 1;
    const bool sends = (c->rank == 0) != backwards;
    const struct ax_collective what = {.kind = AX_SEND_RECV,
                                       .dtype = AX_F32,
                                       .send = &x,
                                       .recv = &x,
                                       .count = 1,
                                       .send_peer = sends ? peer : -1,
                                       .recv_peer = sends ? -1 : peer};
    return ax_comm_run(c, rt->q, &what);
}

/* Sizes known only while running: the dry run names others. */
static enum ax_status exchange(struct ax_runtime *rt, int64_t each) {
    float send[16] = {0}, recv[16];
    const int64_t counts[2] = {each, each};
    const struct ax_collective what = {.kind = AX_ALL_TO_ALL_V,
                                       .dtype = AX_F32,
                                       .send = send,
                                       .recv = recv,
                                       .send_counts = counts,
                                       .recv_counts = counts};
    return ax_comm_run(&rt->comms[AX_ROLE_DP_SHARD], rt->q, &what);
}

static enum ax_status step(struct ax_runtime *rt, enum departure d) {
    double sum;
    const bool planning = ax_runtime_planning(rt);
    AX_TRY(ax_contract_enter(&rt->contracts, d == UNPLANNED_NAME ? "evaluate" : "step"));
    if (d != LEAVES_OUT)
        AX_TRY(
            gather(rt, d == OTHER_ROLE ? AX_ROLE_TP : AX_ROLE_DP_SHARD, d == OTHER_COUNT ? 2 : 3));
    AX_TRY(message(rt, d == OTHER_PEER));
    AX_TRY(exchange(rt, planning ? 4 : 5));
    AX_TRY(sum_of(&rt->comms[AX_ROLE_CP], rt->q, 1, &sum)); /* a group of one: no entry */
    if (d != LEAVES_OUT_LAST)
        AX_TRY(sum_of(&rt->comms[AX_ROLE_WORLD], rt->q, 1, &sum));
    if (d == ONE_TOO_MANY)
        AX_TRY(sum_of(&rt->comms[AX_ROLE_WORLD], rt->q, 1, &sum));
    return ax_contract_leave(&rt->contracts, rt->comms);
}

static enum ax_status depart(struct ax_runtime *rt, void *ctx) {
    const enum departure d = *(enum departure *)ctx;
    const bool departs = !ax_runtime_planning(rt) && rt->mesh.rank == 1;
    double sum;
    AX_TRY(step(rt, departs && d != SECOND_TIME ? d : NONE));
    AX_TRY(sum_of(&rt->comms[AX_ROLE_WORLD], rt->q, 1, &sum)); /* outside: anything goes */
    if (departs)
        return step(rt, d == SECOND_TIME ? LEAVES_OUT : NONE);
    return step(rt, NONE);
}

static enum ax_status run_depart(struct ax_fabric *f, void *ctx) {
    const struct ax_runtime_options o = {
        .backend = "ref", .threads = 1, .sizes = {.dp_shard = 2, .tp = 2}, .fabric = f};
    return ax_runtime_run(&o, depart, ctx, NULL);
}

static void departures_are_named(void **state) {
    (void)state;
    static const struct {
        enum departure d;
        const char *text[2];
    } cases[] = {
        {LEAVES_OUT, {"rank 1, collective 1 of 4 in \"step\"", "dp_shard all_gather of 3 float32"}},
        {LEAVES_OUT_LAST, {"rank 1 leaves \"step\" after 3 of 4", "world all_reduce sum of 1 f"}},
        {ONE_TOO_MANY, {"rank 1, collective 5 of 4 in \"step\"", "the plan has nothing more"}},
        {OTHER_COUNT, {"rank 1, collective 1 of 4", "starts dp_shard all_gather of 2 float32"}},
        {OTHER_ROLE, {"rank 1, collective 1 of 4", "starts tp all_gather of 3 float32"}},
        {OTHER_PEER, {"rank 1, collective 2 of 4", "starts dp_shard send_recv of 1 float32 to "}},
        {UNPLANNED_NAME, {"rank 1 enters \"evaluate\"", "dry run never entered"}},
        {SECOND_TIME, {"rank 1, collective 1 of 4 in \"step\"", "starts dp_shard send_recv"}},
    };
    enum departure none = NONE;
    if (ax_local_run(4, NULL, run_depart, &none) != AX_OK)
        fail_msg("%s", ax_error_text());
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum departure d = cases[i].d;
        const struct ax_local_options o = {.timeout = 20};
        assert_int_equal(ax_local_run(4, &o, run_depart, &d), AX_ERR_FAILED);
        for (int t = 0; t < 2; t++)
            if (!strstr(ax_error_text(), cases[i].text[t]))
                fail_msg("\"%s\" lacks \"%s\"", ax_error_text(), cases[i].text[t]);
    }
}

/* Without a fabric too: what a plan records, it checks the next time. */
static void a_dry_run_checks_itself(void **state) {
    (void)state;
    struct ax_runtime rt;
    const struct ax_runtime_options o = {
        .backend = "ref", .threads = 1, .sizes = {.dp_shard = 2, .tp = 2}, .world = 4, .rank = 3};
    assert_int_equal(ax_runtime_open_planning(&rt, &o), AX_OK);
    assert_int_equal(step(&rt, NONE), AX_OK);
    assert_int_equal(rt.contracts.list[0].n, 4);
    assert_int_equal(step(&rt, NONE), AX_OK);
    assert_int_equal(rt.contracts.list[0].n, 4);
    assert_int_equal(step(&rt, LEAVES_OUT), AX_ERR_FAILED);
    ax_runtime_close(&rt);
}

struct turns {
    int n;
    int64_t rows, scale; /* gathered; what the scale says, of 3 */
    bool skips;          /* a sum, in the last turn */
};

static enum ax_status loop(struct ax_runtime *rt, struct turns t) {
    double sum;
    AX_TRY(ax_contract_enter(&rt->contracts, "loop"));
    ax_contract_scale(&rt->contracts, t.scale, 3);
    AX_TRY(gather(rt, AX_ROLE_DP_SHARD, t.rows));
    AX_TRY(sum_of(&rt->comms[AX_ROLE_WORLD], rt->q, 1, &sum)); /* not scaled */
    ax_contract_scale(&rt->contracts, 1, 1);
    ax_contract_loop(&rt->contracts);
    for (int i = 0; i < t.n; i++) {
        AX_TRY(ax_contract_turn(&rt->contracts, t.scale, 3));
        AX_TRY(gather(rt, AX_ROLE_TP, t.rows));
        if (!t.skips || i + 1 < t.n)
            AX_TRY(sum_of(&rt->comms[AX_ROLE_DP_SHARD], rt->q, 1, &sum));
    }
    AX_TRY(ax_contract_end(&rt->contracts));
    AX_TRY(sum_of(&rt->comms[AX_ROLE_WORLD], rt->q, 1, &sum));
    return ax_contract_leave(&rt->contracts, rt->comms);
}

/* A shorter batch has fewer turns and smaller counts than the dry run's, but in each turn all
 * collectives, and counts in proportion. */
static void loops_and_counts_follow_the_data(void **state) {
    (void)state;
    static const struct {
        struct turns t;
        const char *text; /* NULL: accepted */
    } cases[] = {
        {{2, 3, 3, false}, NULL},
        {{1, 1, 1, false}, NULL},
        {{0, 2, 2, false}, NULL},
        {{5, 3, 3, false}, NULL},
        {{2, 1, 2, false},
         "dp_shard all_gather of 3 float32, but it starts dp_shard all_gather "
         "of 1"},
        {{2, 2, 1, false}, "all_gather of 2"},
        {{2, 3, 3, true},
         "leaves \"loop\" after 3 of 5 collectives; the plan has dp_shard "
         "all_reduce"},
        {{1, 1, 1, true}, "the plan has dp_shard all_reduce"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_runtime rt;
        const struct ax_runtime_options o = {
            .backend = "ref", .threads = 1, .sizes = {.dp_shard = 2, .tp = 2}, .world = 4};
        assert_int_equal(ax_runtime_open_planning(&rt, &o), AX_OK);
        assert_int_equal(loop(&rt, cases[0].t), AX_OK);
        assert_int_equal(rt.contracts.list[0].n, 5);
        const enum ax_status st = loop(&rt, cases[i].t);
        assert_int_equal(st, cases[i].text ? AX_ERR_FAILED : AX_OK);
        if (cases[i].text && !strstr(ax_error_text(), cases[i].text))
            fail_msg("\"%s\" lacks \"%s\"", ax_error_text(), cases[i].text);
        ax_runtime_close(&rt);
    }
}

static enum ax_status send_and_receive(struct ax_runtime *rt, int to, int from) {
    float x = 1, y;
    const struct ax_collective what = {.kind = AX_SEND_RECV,
                                       .dtype = AX_F32,
                                       .send = &x,
                                       .recv = &y,
                                       .count = 1,
                                       .send_peer = to,
                                       .recv_peer = from};
    AX_TRY(ax_contract_enter(&rt->contracts, "step"));
    AX_TRY(ax_comm_run(&rt->comms[AX_ROLE_DP_SHARD], rt->q, &what));
    return ax_contract_leave(&rt->contracts, rt->comms);
}

/* Of a message both ends count. */
static void another_peer_is_a_departure(void **state) {
    (void)state;
    static const int others[][2] = {{2, 2}, {1, 1}, {2, 1}, {1, -1}, {-1, 2}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct ax_runtime rt;
        const struct ax_runtime_options o = {
            .backend = "ref", .threads = 1, .sizes = {.dp_shard = 3}, .world = 3};
        assert_int_equal(ax_runtime_open_planning(&rt, &o), AX_OK);
        assert_int_equal(send_and_receive(&rt, 1, 2), AX_OK);
        assert_int_equal(send_and_receive(&rt, 1, 2), AX_OK);
        assert_int_equal(send_and_receive(&rt, others[i][0], others[i][1]), AX_ERR_FAILED);
        assert_non_null(strstr(ax_error_text(), "float32 to 1, from 2, but"));
        ax_runtime_close(&rt);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_hold_the_right_ranks),
        cmocka_unit_test(ranks_share_the_threads),
        cmocka_unit_test(ranks_alone_can_only_plan),
        cmocka_unit_test(departures_are_named),
        cmocka_unit_test(a_dry_run_checks_itself),
        cmocka_unit_test(loops_and_counts_follow_the_data),
        cmocka_unit_test(another_peer_is_a_departure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
