/* A plan of time: what is recorded is what runs, and the figures follow from it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text/json.h"
#include "model/arch/split.h"
#include "optim/plan/choose.h"
#include "optim/plan/plan_time.h"
#include "parallel/fabric/comm_local.h"
#include "tests/tiny.h"

static const int64_t lengths[] = {32, 0};

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

static struct ax_rates h100(void) {
    struct ax_hardware h;
    must(ax_hardware_find("H100-SXM-80", &h));
    return ax_rates_of(&h);
}

/* ---- the recording ---- */

struct counted {
    const struct ax_arch *arch;
    struct ax_step_options o;
    struct ax_mesh_sizes sizes;
    struct ax_queue_counters counters;
    uint64_t calls[AX_ROLE_COUNT][AX_COLLECTIVE_COUNT];
    double sent[AX_ROLE_COUNT];
};

/* What a real step counts, from when its batches are filled. */
static enum ax_status count_step(struct ax_runtime *rt, void *ctx) {
    struct counted *c = ctx;
    struct ax_step s;
    struct ax_step_result r;
    AX_TRY(ax_step_create(&s, rt, c->arch, &c->o));
    enum ax_status st = ax_model_init_random(&s.model, 1);
    if (st == AX_OK)
        st = tiny_fill(&s, lengths, 1);
    const struct ax_queue_counters before = rt->q->counters;
    if (st == AX_OK)
        st = ax_step_run(&s, 0, &r);
    if (rt->mesh.rank == 0 && !ax_runtime_planning(rt)) {
        c->counters = rt->q->counters;
        for (int op = 0; op < AX_OP_COUNT; op++) {
            c->counters.launches[op] -= before.launches[op];
            c->counters.flops[op] -= before.flops[op];
            c->counters.bytes[op] -= before.bytes[op];
        }
        for (int role = 0; role < AX_ROLE_COUNT; role++) {
            memcpy(c->calls[role], rt->comms[role].calls, sizeof c->calls[role]);
            for (int kind = 0; kind < AX_COLLECTIVE_COUNT; kind++)
                c->sent[role] += rt->comms[role].bytes_sent[kind];
        }
    }
    ax_step_free(&s);
    return st;
}

static enum ax_status run_rank(struct ax_fabric *fabric, void *ctx) {
    struct counted *c = ctx;
    const struct ax_runtime_options o = {
        .backend = "ref", .threads = 1, .sizes = c->sizes, .fabric = fabric};
    return ax_runtime_run(&o, count_step, ctx, NULL);
}

/* Launches, FLOPs and bytes of each op, and calls and bytes of each communicator. */
static void a_recording_is_what_runs(void **state) {
    (void)state;
    static const struct ax_mesh_sizes meshes[] = {
        {1, 1, 2, 1, 1, 1}, {1, 1, 1, 1, 2, 1}, {1, 1, 1, 2, 1, 1}, {1, 1, 1, 2, 1, 1}};
    struct ax_arch arch;
    must(tiny_arch(&arch, "qwen3", true, ""));
    for (size_t k = 0; k < sizeof meshes / sizeof *meshes; k++) {
        struct counted c = {.arch = &arch, .sizes = meshes[k]};
        c.o = tiny_options(AX_F32, AX_RECOMPUTE_SELECTIVE, 2, lengths);
        c.o.model.cp_method = k == 3 ? AX_CP_RING : AX_CP_GATHER;
        must(ax_local_run(2, NULL, run_rank, &c));
        struct ax_recording recording = {0};
        struct ax_plan plan;
        const struct ax_runtime_options o = {
            .backend = "ref", .threads = 1, .sizes = meshes[k], .world = 2};
        must(ax_plan_record(&plan, &recording, &o, &arch, &c.o));
        struct ax_queue_counters seen = {0};
        uint64_t starts[AX_ROLE_COUNT][AX_COLLECTIVE_COUNT] = {0}, waits = 0, all = 0;
        double sent[AX_ROLE_COUNT] = {0};
        for (size_t i = 0; i < recording.n; i++) {
            const struct ax_event *e = &recording.events[i];
            if (e->kind == AX_EVENT_OP) {
                seen.launches[e->op.op]++;
                seen.flops[e->op.op] += e->op.flops;
                seen.bytes[e->op.op] += e->op.bytes;
            } else if (e->kind == AX_EVENT_START) {
                starts[e->transfer.lane][e->transfer.kind]++;
                if (e->transfer.to >= 0 || e->transfer.from < 0) /* not of what is only received */
                    sent[e->transfer.lane] += e->transfer.bytes;
                all++;
            } else {
                waits++;
            }
        }
        assert_true(all > 0 && all == waits);
        for (int op = 0; op < AX_OP_COUNT; op++) {
            assert_int_equal(seen.launches[op], c.counters.launches[op]);
            assert_true(fabs(seen.flops[op] - c.counters.flops[op]) <= 1e-12 * seen.flops[op]);
            assert_true(fabs(seen.bytes[op] - c.counters.bytes[op]) <= 1e-12 * seen.bytes[op]);
        }
        const struct ax_mesh_sizes *m = &meshes[k];
        const int role = m->tp > 1 ? AX_ROLE_TP : m->cp > 1 ? AX_ROLE_CP : AX_ROLE_FSDP;
        for (int kind = 0; kind < AX_COLLECTIVE_COUNT; kind++)
            assert_int_equal(starts[role][kind], c.calls[role][kind]);
        assert_true(sent[role] > 0 && fabs(sent[role] - c.sent[role]) < 1);
        ax_recording_free(&recording);
    }
    ax_arch_free(&arch);
}

/* Products of values in 8 bits are known from what made their operands; the head's are not. */
static void fp8_products_are_known(void **state) {
    (void)state;
    struct ax_arch arch;
    struct ax_plan plan;
    struct ax_scheme fp8;
    struct ax_recording recording = {0};
    must(tiny_arch(&arch, "llama", false, ""));
    must(ax_fp8_recipe("tensorwise", false, &fp8));
    struct ax_step_options o = tiny_options(AX_BF16, AX_RECOMPUTE_OFF, 1, lengths);
    const struct ax_runtime_options ro = {.backend = "sheet", .threads = 1};
    int products[2] = {0, 0};
    o.model.qat = &fp8;
    must(ax_plan_record(&plan, &recording, &ro, &arch, &o));
    for (size_t i = 0; i < recording.n; i++) {
        const struct ax_op_event *e = &recording.events[i].op;
        if (recording.events[i].kind == AX_EVENT_OP && e->op == AX_OP_gemm)
            products[e->fp8]++;
    }
    /* per layer q, k, v as one, output, gate and up as one, down; each three times; and the head's */
    assert_int_equal(products[1], 4 * 3 * (int)arch.n_layers);
    assert_int_equal(products[0], 3);
    ax_recording_free(&recording);
    ax_arch_free(&arch);
}

static double copied(const struct ax_arch *arch, struct ax_offload offload, const char *backend) {
    struct ax_plan plan;
    struct ax_recording recording = {0};
    struct ax_step_options o = tiny_options(AX_BF16, AX_RECOMPUTE_OFF, 2, lengths);
    const struct ax_runtime_options ro = {.backend = backend, .threads = 1};
    uint64_t last[AX_TIERS] = {0}, awaited[AX_TIERS] = {0};
    double bytes = 0;
    o.model.offload = offload;
    must(ax_plan_record(&plan, &recording, &ro, arch, &o));
    for (size_t i = 0; i < recording.n; i++) {
        const struct ax_event *e = &recording.events[i];
        if (e->kind != AX_EVENT_COPY && e->kind != AX_EVENT_AFTER)
            continue;
        assert_true(e->copy.ticket > 0);
        (e->kind == AX_EVENT_COPY ? last : awaited)[ax_queue_into(e->copy.ticket)] = e->copy.ticket;
        bytes += e->copy.bytes;
    }
    assert_memory_equal(last, awaited, sizeof last);
    ax_recording_free(&recording);
    return bytes;
}

/* Masters and two moments in float32 come and go once per step, and in each micro-batch the residuals of
 * layers but the last two. All of that is beside ops, which wait for it. Where the device's memory is the
 * host's, nothing moves. */
static void copies_of_the_host_are_recorded(void **state) {
    (void)state;
    struct ax_arch arch;
    must(tiny_arch(&arch, "llama", true, ""));
    const double states = 3 * 4 * (double)ax_arch_parameters(&arch),
                 rows = 32 * 4 * (double)arch.hidden_size;
    const struct ax_offload both = {.optimizer = true, .activations = true};
    const double moved = copied(&arch, (struct ax_offload){.optimizer = true}, "sheet"),
                 away = copied(&arch, (struct ax_offload){.activations = true}, "sheet");
    assert_true(moved >= 2 * states && moved < 2.1 * states);
    assert_true(away > 0 && away == 2 * rows * floor(away / (2 * rows)));
    assert_true(copied(&arch, both, "sheet") == moved + away);
    assert_true(copied(&arch, both, "ref") == 0);
    ax_arch_free(&arch);
    struct ax_rates r = h100();
    assert_true(fabs(ax_rates_copy(&r, 63e9) - 282.0 / 256) < 1e-4);
}

/* ---- rates ---- */

static struct ax_op_event product(int64_t m, int64_t n, int64_t k) {
    return (struct ax_op_event){.op = AX_OP_gemm,
                                .dtype = AX_BF16,
                                .m = m,
                                .n = n,
                                .k = k,
                                .flops = 2.0 * (double)(m * n) * (double)k,
                                .bytes = 2.0 * (double)(m * k + n * k + m * n)};
}

/* TFLOP/s of cuBLAS on an H100 (XLA's table for sm_90). */
static void products_take_what_was_measured(void **state) {
    (void)state;
    static const struct {
        int64_t m, n, k;
        double tflops;
    } measured[] = {{10240, 10240, 10240, 720},
                    {2048, 2048, 2048, 632},
                    {1024, 1024, 2048, 350},
                    {4096, 4096, 256, 392},
                    {4096, 512, 512, 239}};
    const struct ax_rates r = h100();
    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++) {
        const struct ax_op_event e = product(measured[i].m, measured[i].n, measured[i].k);
        const double tflops = e.flops / ax_rates_seconds(&r, &e) / 1e12;
        assert_true(fabs(tflops / measured[i].tflops - 1) < 0.25);
    }
    struct ax_op_event e = product(8192, 8192, 8192);
    const double bf16 = ax_rates_seconds(&r, &e);
    e.fp8 = true;
    assert_true(ax_rates_seconds(&r, &e) < 0.6 * bf16);
}

/* Operands of 8 bits are half of those of bfloat16, and a result is what it was. */
static void bytes_of_8_bits(void **state) {
    (void)state;
    const struct ax_rates r = h100();
    enum { M = 4096, N = 1024, K = 2048 };
    struct ax_op_event e = {.op = AX_OP_gemm,
                            .dtype = AX_BF16,
                            .m = M,
                            .n = N,
                            .k = K,
                            .bytes = 2 * ((double)M * K + (double)N * K + (double)M * N)};
    const double two = ax_rates_seconds(&r, &e), start = r.product_start;
    e.fp8 = true;
    const double one = ax_rates_seconds(&r, &e),
                 bytes = (double)M * K + (double)N * K + 2.0 * M * N;
    assert_true(fabs((one - start) / (two - start) - bytes / e.bytes) < 1e-9);
}

/* Speeds that were measured are reached, whatever the dtype in which products were. */
static void measured_speeds_are_reached(void **state) {
    (void)state;
    static const enum ax_dtype dtypes[] = {AX_BF16, AX_F32, AX_F64};
    static const enum ax_op ops[] = {AX_OP_copy, AX_OP_rmsnorm_forward, AX_OP_adamw};
    const struct ax_hardware h = {.name = "x", .bf16 = 4e11, .bandwidth = 3e10, .node = 8};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        const struct ax_rates r = ax_rates_measured(&h, dtypes[i]);
        struct ax_op_event e = product(8192, 8192, 8192);
        e.dtype = dtypes[i];
        assert_true(fabs(e.flops / ax_rates_seconds(&r, &e) / h.bf16 - 1) < 1e-4);
        const double peak = r.hardware.bf16 * ax_rates_dtype_share(dtypes[i]);
        assert_true(fabs(peak / h.bf16 - 1) < 1e-12);
        for (size_t k = 0; k < sizeof ops / sizeof *ops; k++) {
            e = (struct ax_op_event){.op = ops[k], .dtype = dtypes[i], .bytes = 3e10};
            assert_true(fabs(ax_rates_seconds(&r, &e) - 1) < 1e-4);
        }
    }
}

/* Rates of axtrain's kernels are of Hopper: by a row's capability, or the name of a row of a file. */
static void hopper_has_its_rates(void **state) {
    (void)state;
    static const struct {
        struct ax_hardware h;
        bool hopper;
    } machines[] = {
        {{.name = "h200", .gpu = 90}, true},  {{.name = "H100-PCIe"}, true},
        {{.name = "gh200", .gpu = 90}, true}, {{.name = "h800"}, true},
        {{.name = "hgx-a100"}, false},        {{.name = "hgx-b200", .gpu = 100}, false},
    };
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        struct ax_hardware h = machines[i].h;
        h.bf16 = 989e12;
        h.bandwidth = 3.35e12;
        h.node = 8;
        const struct ax_rates cuda = ax_rates_cuda(&h), sheet = ax_rates_of(&h);
        assert_int_equal(strcmp(cuda.source, sheet.source) != 0, machines[i].hopper);
        assert_true(sheet.fp8 == sheet.bf16 && cuda.fp8 == cuda.bf16); /* without FP8 */
        h.fp8 = 1979e12;
        assert_true(ax_rates_cuda(&h).fp8 > 1.1e15);
    }
}

/* On an H200, kernels take what docs/results/gpu-speed.md and hybrids.md say: GB/s or TFLOP/s, starts aside. */
static void an_h200_takes_what_was_measured(void **state) {
    (void)state;
    static const struct {
        enum ax_op op;
        double gb_s, tflops;
        int64_t length, head;
    } want[] = {
        {AX_OP_copy, 4100, 0, 0, 0},
        {AX_OP_add, 4100, 0, 0, 0}, /* not measured */
        {AX_OP_rmsnorm_backward, 3160, 0, 0, 0},
        {AX_OP_swiglu_forward, 3762, 0, 0, 0},
        {AX_OP_softmax_stats, 4056, 0, 0, 0},
        {AX_OP_adamw, 2587, 0, 0, 0},
        {AX_OP_adamw_8bit, 1841, 0, 0, 0},
        {AX_OP_conv_backward, 525, 0, 0, 0},
        {AX_OP_delta_forward, 0, 34, 0, 0},
        {AX_OP_delta_backward, 0, 38.2, 0, 0},
        {AX_OP_attention_forward, 0, 507, 4096, 128},
        {AX_OP_attention_forward, 0, 320, 4096, 64},
        {AX_OP_attention_backward, 0, 365, 4096, 128},
        {AX_OP_attention_backward, 0, 250, 4096, 64},
    };
    struct ax_hardware h;
    must(ax_hardware_find("h200", &h));
    const struct ax_rates r = ax_rates_cuda(&h);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const struct ax_op_event e = {.op = want[i].op,
                                      .dtype = AX_BF16,
                                      .bytes = want[i].gb_s * 1e9,
                                      .flops = want[i].tflops * 1e12,
                                      .k = want[i].length / 2,
                                      .n = want[i].head};
        const double seconds = ax_rates_seconds(&r, &e);
        if (fabs(seconds - 1) > 2e-3)
            fail_msg("%s: %g s", ax_op_name(e.op), seconds);
    }
}

/* … of all that there are. */
static void other_names_are_refused(void **state) {
    (void)state;
    struct ax_hardware h;
    char want[600] = "";
    for (size_t i = 0; ax_hardware_name(i); i++)
        snprintf(want + strlen(want), sizeof want - strlen(want), "%s%s",
                 i > 0 ? ", " : "there are ", ax_hardware_name(i));
    strcat(want, ". A path");
    assert_int_equal(ax_hardware_find("a machine of another kind", &h), AX_ERR_CONFIG);
    if (!strstr(ax_error_text(), want))
        fail_msg("%s", ax_error_text());
    ax_error_clear();
}

/* A switch that adds is NVIDIA's. */
static void amd_adds_along_a_ring(void **state) {
    (void)state;
    struct ax_hardware nvidia, amd;
    must(ax_hardware_find("h200", &nvidia));
    must(ax_hardware_find("mi300x", &amd));
    assert_true(ax_rates_of(&nvidia).links[AX_ALL_REDUCE] > 1);
    const struct ax_rates r = ax_rates_of(&amd);
    assert_true(r.links[AX_ALL_REDUCE] == r.links[AX_BROADCAST]);
}

static struct ax_sim_item gather(const struct ax_rates *r, int size, int local, double bytes) {
    const struct ax_rates_group g = {.size = size, .local = local};
    const struct ax_transfer_event t = {
        .kind = AX_ALL_GATHER, .to = -1, .from = -1, .bytes = bytes};
    struct ax_sim_item item = {0};
    ax_rates_transfer(r, &g, false, &t, &item);
    return item;
}

/* A ring's bytes pass each link of a node; what comes from other nodes passes all its adapters. */
static void transfers_follow_the_topology(void **state) {
    (void)state;
    const struct ax_rates r = h100();
    const double link = r.hardware.node_link * r.links[AX_ALL_GATHER],
                 network = r.hardware.network * r.network;
    struct ax_sim_item item = gather(&r, 8, 8, 7e9);
    assert_true(fabs(item.links[AX_SIM_NODE] - 7e9 / link) < 1e-12);
    assert_true(item.links[AX_SIM_NETWORK] == 0);
    item = gather(&r, 32, 8, 31e9); /* 24 GB from other nodes, by 8 adapters */
    assert_true(fabs(item.links[AX_SIM_NETWORK] - 3e9 / network) < 1e-12);
    assert_true(item.links[AX_SIM_NODE] > item.links[AX_SIM_NETWORK]); /* as measured: 4 nodes */
    item = gather(&r, 4, 1, 3e9);
    assert_true(item.links[AX_SIM_NODE] == 0);
    assert_true(fabs(item.links[AX_SIM_NETWORK] - 3e9 / network) < 1e-12);
}

/* Latencies are the first byte's: a hop, or one per step of a ring. Bytes are those of the links that are passed. */
static void transfers_take_their_hops(void **state) {
    (void)state;
    struct ax_rates r = h100();
    r.hop = 1;
    r.far_hop = 100;
    r.transfer_start = 0.25;
    static const struct {
        enum ax_collective_kind kind;
        bool far;
        int size, local;
        double seconds, node, network; /* shares of the bytes */
    } cases[] = {
        {AX_SEND_RECV, false, 4, 4, 1.25, 1, 0},
        {AX_SEND_RECV, true, 4, 4, 100.25, 0, 1},
        {AX_ALL_TO_ALL_V, false, 5, 5, 1.25, 1, 0},
        {AX_ALL_TO_ALL_V, false, 5, 4, 100.25, 3 / 4., 1 / 4.},
        {AX_ALL_GATHER, false, 5, 5, 4.25, 1, 0},
        {AX_ALL_GATHER, false, 9, 8, 800.25, 1, 1 / 64.},
        {AX_REDUCE_SCATTER, false, 5, 1, 400.25, 0, 1},
        {AX_ALL_REDUCE, false, 5, 5, 8.25, 1, 0},
        {AX_ALL_REDUCE, false, 8, 4, 1400.25, 1, 1 / 7.},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct ax_rates_group g = {.size = cases[i].size, .local = cases[i].local};
        const struct ax_transfer_event t = {.kind = cases[i].kind, .bytes = 1e9};
        const double link = r.hardware.node_link * r.links[t.kind];
        const double network = r.hardware.network * r.network;
        struct ax_sim_item item = {.links = {7, 7}};
        ax_rates_transfer(&r, &g, cases[i].far, &t, &item);
        if (fabs(item.seconds - cases[i].seconds) > 1e-9 ||
            fabs(item.links[AX_SIM_NODE] * link / 1e9 - cases[i].node) > 1e-9 ||
            fabs(item.links[AX_SIM_NETWORK] * network / 1e9 - cases[i].network) > 1e-9)
            fail_msg("case %zu: %g s, %g of the node's, %g of the network's", i, item.seconds,
                     item.links[AX_SIM_NODE] * link / 1e9,
                     item.links[AX_SIM_NETWORK] * network / 1e9);
    }
}

/* Ranks of TP are neighbors, those of a pipeline are far from each other. */
static void groups_know_their_node(void **state) {
    (void)state;
    static const struct ax_mesh_sizes sizes = {4, 1, 2, 1, 4, 1};
    static const struct {
        enum ax_role role;
        int size, local;
    } want[] = {{AX_ROLE_TP, 4, 4}, {AX_ROLE_DP_SHARD, 2, 2}, {AX_ROLE_PP, 4, 1}};
    struct ax_rates r = h100();
    struct ax_rates_group g;
    assert_int_equal(r.hardware.node, 8);
    for (int rank = 0; rank < 32; rank++)
        for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
            struct ax_mesh mesh;
            must(ax_mesh_create(&mesh, sizes, 32, rank));
            must(ax_rates_group_of(&r, &mesh, want[i].role, &g));
            assert_true(g.size == want[i].size && g.local == want[i].local);
        }
    struct ax_mesh mesh;
    must(ax_mesh_create(&mesh, sizes, 32, 9));
    r.hardware.node = 16; /* two stages */
    must(ax_rates_group_of(&r, &mesh, AX_ROLE_PP, &g));
    assert_true(g.size == 4 && g.local == 2);
    r.hardware.node = 2;
    must(ax_rates_group_of(&r, &mesh, AX_ROLE_TP, &g));
    assert_true(g.size == 4 && g.local == 2);
}

/* ---- a step ---- */

static struct ax_plan_time timed(const struct ax_arch *arch, struct ax_mesh_sizes sizes, int world,
                                 int n_micro, bool shorten) {
    const struct ax_rates rates = h100();
    const struct ax_plan_time_options o = {.rates = &rates, .shorten = shorten};
    const struct ax_runtime_options ro = {
        .backend = "sheet", .threads = 1, .sizes = sizes, .world = world};
    const struct ax_step_options so = tiny_options(AX_BF16, AX_RECOMPUTE_OFF, n_micro, lengths);
    struct ax_plan_time t;
    must(ax_plan_time(&t, &o, &ro, arch, &so));
    return t;
}

static double busy(const struct ax_plan_time *t) {
    double all = t->idle;
    for (int i = 0; i < AX_TIME_KINDS; i++)
        all += t->work[i];
    for (int i = 0; i < AX_TIME_ROLES; i++)
        all += t->exposed[i];
    return all;
}

/* A rank computes, waits for transfers, or is done. */
static void the_parts_are_the_step(void **state) {
    (void)state;
    static const struct ax_mesh_sizes meshes[] = {{1, 1, 1, 1, 1, 1},
                                                  {1, 1, 2, 1, 1, 1},
                                                  {1, 1, 1, 1, 2, 1},
                                                  {2, 1, 1, 1, 1, 1},
                                                  {2, 1, 2, 1, 2, 1}};
    struct ax_arch arch;
    must(tiny_arch(&arch, "llama", false, ""));
    for (size_t k = 0; k < sizeof meshes / sizeof *meshes; k++) {
        const struct ax_mesh_sizes *m = &meshes[k];
        const struct ax_plan_time t = timed(&arch, *m, m->pp * m->dp_shard * m->tp, 4, false);
        assert_true(t.step > 0 && fabs(busy(&t) / t.step - 1) < 1e-6);
        double ops = 0, work = 0;
        for (int i = 0; i < AX_OP_COUNT; i++) {
            assert_true((t.ops[i].seconds > 0) == (t.ops[i].calls > 0));
            ops += t.ops[i].seconds;
        }
        for (int i = 0; i < AX_TIME_KINDS; i++)
            work += t.work[i];
        assert_true(fabs(ops / work - 1) < 1e-4);
        assert_true(t.tokens == 4.0 * 32 * m->dp_shard);
        assert_true((t.moved[AX_TIME_TP] > 0) == (m->tp > 1));
        assert_true((t.moved[AX_TIME_PP] > 0) == (m->pp > 1));
        assert_true((t.moved[AX_TIME_GATHERS] > 0) == (m->dp_shard > 1));
        assert_true(t.mfu > 0 && t.mfu < t.mfu_full && t.mfu_full < 1);
    }
    ax_arch_free(&arch);
}

static const char eight_layers[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 1024, \"hidden_size\": 2048, "
    "\"intermediate_size\": 8192, \"num_hidden_layers\": 8, \"num_attention_heads\": 16, "
    "\"num_key_value_heads\": 4, \"head_dim\": 128, \"max_position_embeddings\": 8192, "
    "\"tie_word_embeddings\": false}";

static struct ax_plan_time offloaded(const struct ax_arch *arch, struct ax_offload offload) {
    const struct ax_rates rates = h100();
    const struct ax_plan_time_options o = {.rates = &rates};
    const struct ax_runtime_options ro = {.backend = "sheet", .threads = 1, .world = 1};
    const int64_t n[] = {8192, 0};
    struct ax_step_options so = tiny_options(AX_BF16, AX_RECOMPUTE_ON, 2, n);
    struct ax_plan_time t;
    so.model.offload = offload;
    must(ax_plan_time(&t, &o, &ro, arch, &so));
    assert_true(fabs(busy(&t) / t.step - 1) < 1e-6);
    return t;
}

/* A layer computes longer than its input takes to the host's memory or back. States are not behind anything,
 * but come while others leave. */
static void copies_are_behind_layers(void **state) {
    (void)state;
    struct ax_json_doc doc;
    struct ax_arch arch;
    must(ax_json_parse(&doc, "eight", eight_layers, strlen(eight_layers)));
    must(ax_arch_parse(&arch, ax_json_root(&doc)));
    ax_json_free(&doc);
    const double here = offloaded(&arch, (struct ax_offload){0}).step;
    const struct ax_plan_time away = offloaded(&arch, (struct ax_offload){.activations = true}),
                              states = offloaded(&arch, (struct ax_offload){.optimizer = true});
    assert_true(away.moved[AX_TIME_HOST] > 0.05 * here && away.work[AX_TIME_COPIES] == 0);
    assert_true(away.step < here + 0.1 * away.moved[AX_TIME_HOST]);
    assert_true(states.step > here + 0.5 * states.moved[AX_TIME_HOST]);
    assert_true(states.step < here + 0.6 * states.moved[AX_TIME_HOST]);
    ax_arch_free(&arch);
}

/* What a pipeline repeats may be left out. */
static void a_shorter_step_says_the_same(void **state) {
    (void)state;
    static const struct ax_mesh_sizes meshes[] = {{1, 1, 2, 1, 1, 1}, {2, 1, 1, 1, 1, 1}};
    struct ax_arch arch;
    must(tiny_arch(&arch, "llama", false, ""));
    for (size_t k = 0; k < sizeof meshes / sizeof *meshes; k++) {
        const struct ax_plan_time all = timed(&arch, meshes[k], 2, 24, false),
                                  some = timed(&arch, meshes[k], 2, 24, true);
        assert_true(all.tokens == some.tokens && all.arena == some.arena);
        assert_true(all.beside == some.beside);
        assert_true(fabs(some.step / all.step - 1) < 0.005);
        assert_true(fabs(some.mfu / all.mfu - 1) < 0.005);
        assert_true(fabs(some.mfu_full / all.mfu_full - 1) < 0.005);
        assert_true(fabs(some.tokens_per_second / all.tokens_per_second - 1) < 0.005);
        assert_true(fabs(some.idle - all.idle) < 0.005 * all.step);
        assert_true(fabs(busy(&some) / some.step - 1) < 0.005);
        for (int i = 0; i < AX_TIME_KINDS; i++)
            assert_true(fabs(some.work[i] - all.work[i]) <= 0.005 * all.work[i]);
        for (int i = 0; i < AX_OP_COUNT; i++) {
            assert_true(fabs(some.ops[i].seconds - all.ops[i].seconds) <=
                        0.005 * all.ops[i].seconds);
            assert_true(fabs(some.ops[i].calls - all.ops[i].calls) <= 1e-6 * all.ops[i].calls);
        }
        for (int i = 0; i < AX_TIME_ROLES; i++) {
            assert_true(fabs(some.moved[i] - all.moved[i]) <= 0.005 * all.moved[i]);
            assert_true(fabs(some.exposed[i] - all.exposed[i]) < 0.005 * all.step);
        }
    }
    ax_arch_free(&arch);
}

/* What is chosen is faster, or as fast and smaller; and it is the same on any backend. */
static void the_faster_way_to_keys_is_chosen(void **state) {
    (void)state;
    const struct ax_rates rates = h100();
    const struct ax_plan_time_options po = {.rates = &rates};
    const struct ax_mesh_sizes sizes = {1, 1, 1, 4, 1, 1};
    enum ax_cp_method chosen[2];
    for (int many = 0; many < 2; many++) { /* heads of keys: few travel soon */
        struct ax_arch arch;
        must(tiny_arch(&arch, "llama", true, ""));
        arch.head_dim = arch.v_head_dim = 128;
        arch.n_heads = 32;
        arch.n_kv_heads = many ? 32 : 1;
        const int64_t n[] = {65536, 0};
        struct ax_step_options so = tiny_options(AX_BF16, AX_RECOMPUTE_OFF, 1, n);
        struct ax_runtime_options ro = {.backend = "sheet", .sizes = sizes, .world = 4};
        struct ax_plan_time t[AX_CP_METHODS];
        must(ax_step_choose(&so, &ro, &arch));
        chosen[many] = so.model.cp_method;
        for (int k = AX_CP_GATHER; k < AX_CP_METHODS; k++) {
            so.model.cp_method = (enum ax_cp_method)k;
            must(ax_step_choose(&so, &ro, &arch));
            assert_int_equal(so.model.cp_method, k);
            must(ax_plan_time(&t[k], &po, &ro, &arch, &so));
        }
        const struct ax_plan_time *ring = &t[AX_CP_RING], *gather = &t[AX_CP_GATHER];
        assert_true((chosen[many] == AX_CP_RING) == (ring->step < 0.99 * gather->step) ||
                    fabs(ring->step - gather->step) < 0.02 * gather->step);
        assert_true(ring->exposed[AX_TIME_CP] < 0.2 * gather->exposed[AX_TIME_CP]);
        so.model.cp_method = AX_CP_AUTO;
        ro.backend = "cpu";
        must(ax_step_choose(&so, &ro, &arch));
        assert_int_equal(so.model.cp_method, chosen[many]);
        so.model.cp_method = AX_CP_AUTO;
        must(ax_step_choose(&so, &(struct ax_runtime_options){0}, &arch));
        assert_int_equal(so.model.cp_method, AX_CP_GATHER);
        ax_arch_free(&arch);
    }
    assert_int_equal(chosen[0], AX_CP_GATHER);
    assert_int_equal(chosen[1], AX_CP_RING);
}

/* Many rows repay a product per chunk; few do not, and other ranks' rows are waited for. */
static void chunks_over_tp_are_chosen(void **state) {
    (void)state;
    const struct ax_rates rates = h100();
    const struct ax_plan_time_options po = {.rates = &rates};
    const struct ax_runtime_options ro = {
        .backend = "sheet", .sizes = {1, 1, 1, 1, 4, 1}, .world = 4};
    const int64_t rows[] = {64, 16384};
    for (int many = 0; many < 2; many++) {
        const int64_t n[] = {rows[many], 0};
        struct ax_arch arch;
        struct ax_plan_time t[2];
        must(tiny_arch(&arch, "llama", false, ""));
        arch.hidden_size = 2048;
        arch.intermediate_size = 4096;
        struct ax_step_options so = tiny_options(AX_BF16, AX_RECOMPUTE_OFF, 1, n);
        for (int on = 0; on < 2; on++) {
            so.model.tp_overlap = on;
            must(ax_step_choose(&so, &ro, &arch));
            assert_int_equal(so.model.tp_overlap, on); /* nobody asked */
            must(ax_plan_time(&t[on], &po, &ro, &arch, &so));
        }
        so.tp_auto = true;
        must(ax_step_choose(&so, &ro, &arch));
        assert_int_equal(so.model.tp_overlap, many);
        assert_true(t[many].step < t[!many].step);
        ax_arch_free(&arch);
    }
}

/* ---- the stages ---- */

#define UNITS 10

/* Of one micro-batch on one stage, without transfers: the ops' own seconds, by unit. */
static void price_units(const struct ax_arch *arch, const struct ax_step_options *o,
                        const struct ax_rates *r, double seconds[UNITS]) {
    struct ax_recording recording = {0};
    struct ax_plan plan;
    struct ax_step_options one = *o;
    const struct ax_runtime_options ro = {.backend = "sheet", .threads = 1};
    one.n_microbatches = 1;
    must(ax_plan_record(&plan, &recording, &ro, arch, &one));
    memset(seconds, 0, UNITS * sizeof *seconds);
    for (size_t i = 0; i < recording.n; i++)
        if (recording.events[i].unit > 0 && recording.events[i].kind == AX_EVENT_OP)
            seconds[recording.events[i].unit - 1] += ax_rates_seconds(r, &recording.events[i].op);
    ax_recording_free(&recording);
}

/* The slowest of `ranges` ranges at best, by trying all. */
static double best_of(const double *seconds, int n, int ranges) {
    double best = INFINITY, last = 0;
    if (ranges == 1) {
        for (int u = 0; u < n; u++)
            last += seconds[u];
        return last;
    }
    for (int end = n - 1; end >= ranges - 1; end--) {
        last += seconds[end];
        best = fmin(best, fmax(last, best_of(seconds, end, ranges - 1)));
    }
    return best;
}

/* The units of a stage in a plan. */
static struct ax_chunks planned_units(const struct ax_arch *arch, const struct ax_step_options *o,
                                      const char *backend, int stages, int stage) {
    struct ax_runtime rt;
    struct ax_step s;
    struct ax_runtime_options ro = {.backend = backend,
                                    .threads = 1,
                                    .sizes = {stages, 1, 2, 1, 1, 1},
                                    .world = 2 * stages,
                                    .rank = 2 * stage + 1};
    must(ax_step_slots(o, stage, stages, &ro.n_slots));
    must(ax_runtime_open_planning(&rt, &ro));
    must(ax_step_create(&s, &rt, arch, o));
    const struct ax_chunks units = s.model.chunks;
    ax_step_free(&s);
    ax_runtime_close(&rt);
    return units;
}

/* A head of several layers' time; of eight layers, some of another kind. */
static enum ax_status head_arch(struct ax_arch *arch, bool mixture) {
    char text[600];
    struct ax_json_doc doc;
    snprintf(text, sizeof text,
             "{\"model_type\": \"%s\", \"vocab_size\": 1500, \"hidden_size\": 48, "
             "\"intermediate_size\": 80, \"num_hidden_layers\": 8, \"num_attention_heads\": 4, "
             "\"num_key_value_heads\": 2, \"head_dim\": 16, \"max_position_embeddings\": 64%s}",
             mixture ? "qwen3_moe" : "qwen3",
             mixture ? ", \"num_experts\": 8, \"num_experts_per_tok\": 2, "
                       "\"moe_intermediate_size\": 160, \"mlp_only_layers\": [0, 1, 5]"
                     : "");
    AX_TRY(ax_json_parse(&doc, "head", text, strlen(text)));
    const enum ax_status st = ax_arch_parse(arch, ax_json_root(&doc));
    ax_json_free(&doc);
    return st;
}

/* A head of several layers' time, recompute, which it has not, and adapters, which make layers slower and spare
 * the head a product: no other stages are faster, by seconds that are added up here. */
static void no_split_is_faster(void **state) {
    (void)state;
    static const struct ax_peft_config lora = {.r = 3, .alpha = 6, .all_linear = true};
    static const char *const backends[] = {"cpu", "sheet"};
    int other = 0;
    for (int k = 0; k < 16; k++) {
        struct ax_arch arch;
        must(head_arch(&arch, k / 8));
        struct ax_step_options o =
            tiny_options(AX_F32, k & 1 ? AX_RECOMPUTE_ON : AX_RECOMPUTE_OFF, 6, lengths);
        o.model.adapter = k & 2 ? &lora : NULL;
        o.pipeline = k & 1 ? AX_PIPELINE_ZERO_BUBBLE : AX_PIPELINE_INTERLEAVED;
        o.virtual_stages = k & 1 ? 0 : 2;
        const int stages = 2 + k / 4 % 2, ranges = stages * (k & 1 ? 1 : 2);
        for (int b = 0; b < 2; b++) {
            const struct ax_rates r = ax_rates_agreed(backends[b]);
            double seconds[UNITS], slowest = 0;
            int units = 0;
            price_units(&arch, &o, &r, seconds);
            for (int stage = 0; stage < stages; stage++) {
                const struct ax_chunks mine = planned_units(&arch, &o, backends[b], stages, stage);
                struct ax_chunks flops;
                must(ax_split_units(&arch, NULL, ax_step_positions(&o), stages, mine.n, stage,
                                    &flops));
                other += memcmp(&flops, &mine, sizeof mine) != 0;
                for (int c = 0; c < mine.n; c++) {
                    double range = 0;
                    for (int u = mine.list[c].first; u < mine.list[c].end; u++, units++)
                        range += seconds[u];
                    slowest = fmax(slowest, range);
                }
            }
            assert_int_equal(units, UNITS);
            assert_true(slowest <= best_of(seconds, UNITS, ranges) * (1 + 1e-5));
        }
        ax_arch_free(&arch);
    }
    assert_true(other > 0); /* FLOPs of a forward pass say something else */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_recording_is_what_runs),
        cmocka_unit_test(the_faster_way_to_keys_is_chosen),
        cmocka_unit_test(chunks_over_tp_are_chosen),
        cmocka_unit_test(fp8_products_are_known),
        cmocka_unit_test(copies_of_the_host_are_recorded),
        cmocka_unit_test(products_take_what_was_measured),
        cmocka_unit_test(bytes_of_8_bits),
        cmocka_unit_test(measured_speeds_are_reached),
        cmocka_unit_test(hopper_has_its_rates),
        cmocka_unit_test(an_h200_takes_what_was_measured),
        cmocka_unit_test(other_names_are_refused),
        cmocka_unit_test(amd_adds_along_a_ring),
        cmocka_unit_test(transfers_follow_the_topology),
        cmocka_unit_test(transfers_take_their_hops),
        cmocka_unit_test(groups_know_their_node),
        cmocka_unit_test(the_parts_are_the_step),
        cmocka_unit_test(copies_are_behind_layers),
        cmocka_unit_test(a_shorter_step_says_the_same),
        cmocka_unit_test(no_split_is_faster),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
