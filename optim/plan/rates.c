/* The tables. None of their figures comes from a published training speed. */
#include "optim/plan/rates.h"

#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

/* Large products one after the other are limited by power: 10240³ takes 720 TFLOP/s on an H100 whose
 * best shape reaches 794.5 (XLA, table of cuBLAS on sm_90). */
#define SUSTAINED (720 / 794.5)

/* The best products of any shape, as shares of the data sheet (bf16, fp8): ml-engineering, maximum
 * achievable matmul FLOPS, 2026-08: A100 271 of 312, H100 and H200 794.5 of 989, fp8 1403 and 1453 of
 * 1979, B200 1745 of 2250 and 3432 of 4500, GB200 1822 of 2500, MI300X 668 and MI325X 785 of 1307,
 * MI355X 1565 of 2517. `sustained`: see above; times the clock that a lower limit leaves,
 * (limit / 700 W)^(1/3), since dynamic power grows with its third power. `attention`: FlashAttention reaches 834 of 2250 TFLOP/s on
 * B200 where it reaches 447 of 989 on H200 (ml-engineering, a step of an 8B model at 8192 tokens).
 * `grouped`: those of all experts in one launch, at 256 rows per expert, which do not fill tiles: 382 to 406 of 989 on
 * an H200 by wgmma, 275 by mma.sync (docs/results/gpu-speed.md). Blackwell has mma.sync alone here, and Ampere's and
 * Ada's reaches 1.6 times Hopper's share.
 * Workstation cards, means of many products: RTX 5060 Ti 47.0 of 47.4, and 184.6 in fp8 (BLACKWALL,
 * rooflines of sm_120); other Ada and Blackwell cards as the L20, whose cuBLAS reaches 105 to 115 of
 * 119.5 (CUDA-Learn-Notes). */
static const struct {
    const char *prefix;
    double bf16, fp8, sustained, attention, grouped;
} products[] = {
    {"a100", 0.869, 0, SUSTAINED, 1, 0.45},
    {"h100-sxm-96-500w", 0.803, 0.709, SUSTAINED * 0.894, 0.894, 0.40},
    {"h100", 0.803, 0.709, SUSTAINED, 1, 0.40},
    {"h200", 0.803, 0.734, SUSTAINED, 1, 0.40},
    {"h800", 0.803, 0.709, SUSTAINED, 1, 0.40},
    {"b200", 0.776, 0.763, SUSTAINED, 0.82, 0.28},
    {"b300", 0.776, 0.763, SUSTAINED, 0.82, 0.28},
    {"gb200", 0.729, 0.763, SUSTAINED, 0.82, 0.28},
    {"gb300", 0.729, 0.763, SUSTAINED, 0.82, 0.28},
    {"mi300", 0.511, 0.511, SUSTAINED, 0.64, 0.28},
    {"mi325", 0.600, 0.600, SUSTAINED, 0.75, 0.28},
    {"mi355", 0.622, 0.622, SUSTAINED, 0.78, 0.28},
    {"rtx5060ti", 0.992, 1.947, 1, 1, 0.45},
    {"rtx", 0.92, 0.92, 1, 1, 0.45},
    {"", 0.80, 0.71, SUSTAINED, 1, 0.28},
};

/* cuBLAS on an H100, XLA's table: 2048³ 632, 4096×512×512 239, 1024×1024×2048 350 TFLOP/s, which are 5 to 7 µs more
 * than their FLOPs at 794.5. */
#define PRODUCT_START 5.5e-6
/* Launch and the last wave of a kernel that streams memory: a fill of a few KB takes as long. */
#define START 3e-6
/* Of the memory's bandwidth: H100 3.0 to 3.1 of 3.35 TB/s (ml-engineering). Of norms: cuDNN 3.71 forward
 * and 3.80 TB/s backward of 4.8 on H200 (cudnn-frontend). */
#define STREAMED 0.91
#define NORMS    0.78
/* Float32 products as TF32, at half of bf16's peak; float64 at a sixteenth (data sheets). */
#define TF32 0.5
#define F64  (1.0 / 16)

/* Shares of the peak that causal attention reaches by length, head size 128, forward and backward:
 * cuDNN 9.19 on H200 from 2048 on (cudnn-frontend); FlashAttention-3 on H100 below, whose backward is
 * published without a mask and taken here as 0.74 of that, as at 2048. */
static const struct {
    double length, forward, backward;
} attention[] = {
    {512, 0.295, 0.236},  {1024, 0.428, 0.317},  {2048, 0.489, 0.374},  {4096, 0.598, 0.479},
    {8192, 0.651, 0.547}, {16384, 0.680, 0.585}, {32768, 0.696, 0.587},
};
#define N_ATTENTION     (sizeof attention / sizeof *attention)
#define LEAST_ATTENTION 0.01
/* Least share of the peak on a CPU, where calls cost little: 316 of 470 GFLOP/s (docs/results/step.md). */
#define CPU_ATTENTION 0.67
/* Head size 64 against 128: 473 against 616 TFLOP/s (FlashAttention-3). */
#define SMALL_HEADS (473.0 / 616)

/* Shares of NVLink: rings reach 367 of 450 GB/s, all-gather and reduce-scatter 362, all-reduce in the
 * switch 480 (H200, ml-engineering); A100 235 of 300. */
static const double links[AX_COLLECTIVE_COUNT] = {
    [AX_ALL_REDUCE] = 1.07,   [AX_ALL_GATHER] = 0.804, [AX_REDUCE_SCATTER] = 0.804,
    [AX_ALL_TO_ALL_V] = 0.80, [AX_SEND_RECV] = 0.80,   [AX_BROADCAST] = 0.80,
};
#define RING 0.80 /* all-reduce without a switch that adds */
/* Of the network: 16 nodes of H100 reach 320 to 350 of 400 GB/s per node (ml-engineering). */
#define NETWORK 0.84
/* All-reduce of 1 MiB on 4 nodes of 8 takes 406 µs, 62 steps (ml-engineering, 5 GB/s); on one node
 * about 30 µs, 14 steps. */
#define FAR_HOP        6.5e-6
#define HOP            2e-6
#define TRANSFER_START 5e-6
/* A PCIe packet has 256 bytes of payload and some 26 of headers and framing. */
#define PAYLOAD (256.0 / 282)
/* NCCL's kernels occupy 16 to 24 of 132 multiprocessors while they run; products lose about half of
 * that share, because they wait for memory, too. */
#define CONTENTION 0.06

/* ---- which op is what ---- */

/* Ops that compute more than they read, or stream what they read. */
static const struct kind {
    enum ax_op op;
    enum ax_time_kind kind;
} kinds[] = {
    {AX_OP_gemm, AX_TIME_PRODUCTS},
    {AX_OP_grouped_gemm, AX_TIME_PRODUCTS},
    {AX_OP_packed_gemm, AX_TIME_PRODUCTS},
    {AX_OP_fp8_gemm, AX_TIME_PRODUCTS},
    {AX_OP_attention_forward, AX_TIME_ATTENTION},
    {AX_OP_attention_backward, AX_TIME_ATTENTION},
    {AX_OP_top_keys, AX_TIME_ATTENTION},
    {AX_OP_index_target, AX_TIME_MEMORY},
    {AX_OP_index_scores, AX_TIME_MEMORY},
    {AX_OP_index_backward, AX_TIME_MEMORY},
    {AX_OP_delta_forward, AX_TIME_ATTENTION},
    {AX_OP_delta_backward, AX_TIME_ATTENTION},
    {AX_OP_sumsq, AX_TIME_UPDATES},
    {AX_OP_adamw, AX_TIME_UPDATES},
    {AX_OP_adamw_8bit, AX_TIME_UPDATES},
    {AX_OP_sgd, AX_TIME_UPDATES},
    {AX_OP_lion, AX_TIME_UPDATES},
    {AX_OP_adafactor, AX_TIME_UPDATES},
    {AX_OP_muon_momentum, AX_TIME_UPDATES},
    {AX_OP_muon_apply, AX_TIME_UPDATES},
    {AX_OP_fill, AX_TIME_MEMORY},
    {AX_OP_copy, AX_TIME_MEMORY},
    {AX_OP_add, AX_TIME_MEMORY},
    {AX_OP_transpose, AX_TIME_MEMORY},
    {AX_OP_scale, AX_TIME_MEMORY},
    {AX_OP_conv_forward, AX_TIME_MEMORY},
    {AX_OP_conv_backward, AX_TIME_MEMORY},
    {AX_OP_relu2_forward, AX_TIME_MEMORY},
    {AX_OP_relu2_backward, AX_TIME_MEMORY},
    {AX_OP_swiglu_forward, AX_TIME_MEMORY},
    {AX_OP_swiglu_backward, AX_TIME_MEMORY},
    {AX_OP_rope, AX_TIME_MEMORY},
    {AX_OP_fake_quantize, AX_TIME_MEMORY},
    {AX_OP_fp8_codes, AX_TIME_MEMORY},
    {AX_OP_quant_range, AX_TIME_MEMORY},
};

/* The op's row; NULL: it gathers rows or sums along them, as norms do. */
static const struct kind *kind_of(enum ax_op op) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].op == op)
            return &kinds[i];
    return NULL;
}

enum ax_time_kind ax_rates_kind(enum ax_op op) {
    const struct kind *k = kind_of(op);
    return k ? k->kind : AX_TIME_MEMORY;
}

double ax_rates_dtype_share(enum ax_dtype dtype) {
    return dtype == AX_F64 ? F64 : dtype == AX_F32 ? TF32 : 1;
}

struct ax_rates ax_rates_of(const struct ax_hardware *h) {
    size_t i = 0;
    while (strncasecmp(h->name, products[i].prefix, strlen(products[i].prefix)) != 0)
        i++;
    struct ax_rates r = {.hardware = *h,
                         .bf16 = h->bf16 * products[i].bf16 * products[i].sustained,
                         .fp8 = h->fp8 * products[i].fp8 * products[i].sustained,
                         .grouped = h->bf16 * products[i].grouped,
                         .source = "shares of the data sheet that others have published",
                         .backend = "sheet",
                         .least_attention = LEAST_ATTENTION,
                         .product_start = PRODUCT_START,
                         .start = START,
                         .network = NETWORK,
                         .hop = HOP,
                         .far_hop = FAR_HOP,
                         .transfer_start = TRANSFER_START,
                         .contention = CONTENTION};
    memcpy(r.links, links, sizeof r.links);
    for (int op = 0; op < AX_OP_COUNT; op++)
        r.ops[op].bytes = kind_of((enum ax_op)op) ? STREAMED : NORMS;
    for (int backward = 0; backward < 2; backward++) {
        r.attention[backward][0] = products[i].attention;
        r.attention[backward][1] = products[i].attention * SMALL_HEADS;
    }
    if (h->bf16 < 900e12 || h->node_link < 100e9 || strncasecmp(h->name, "mi3", 3) == 0)
        r.links[AX_ALL_REDUCE] = RING; /* no switch that adds: before Hopper, over PCIe, of AMD */
    if (r.fp8 == 0)
        r.fp8 = r.bf16;
    return r;
}

struct ax_rates ax_rates_measured(const struct ax_hardware *h, enum ax_dtype dtype) {
    struct ax_rates r = ax_rates_of(h);
    r.source = "products and memory as measured";
    r.hardware.bf16 = h->bf16 / ax_rates_dtype_share(dtype);
    r.bf16 = r.fp8 = r.grouped = r.hardware.bf16;
    for (int op = 0; op < AX_OP_COUNT; op++)
        r.ops[op].bytes = 1;
    r.product_start = r.start = 1e-6;
    r.least_attention = CPU_ATTENTION;
    r.contention = 0;
    return r;
}

/* docs/results/gemm.md; ranks share the memory. */
static const struct ax_hardware two_cores = {.name = "two cores of a Zen 4",
                                             .bf16 = 430e9,
                                             .bandwidth = 35e9,
                                             .node_link = 17e9,
                                             .network = 17e9,
                                             .host = 17e9,
                                             .node = 65536};

struct ax_rates ax_rates_agreed(const char *backend) {
    struct ax_hardware gpu;
    const bool is_gpu = strcmp(backend, "cuda") == 0 || strcmp(backend, "sheet") == 0;
    if (!is_gpu || ax_hardware_find("h100-sxm-80", &gpu) != AX_OK)
        return ax_rates_measured(&two_cores, AX_BF16);
    return ax_rates_of(&gpu);
}

/* ---- seconds of an op ---- */

/* Between the table's rows by the logarithm of the length; of shorter ones in proportion. */
static double attention_share(double length, bool backward) {
    size_t i = 0;
    while (i < N_ATTENTION && attention[i].length <= length)
        i++;
    const double last =
        backward ? attention[i ? i - 1 : 0].backward : attention[i ? i - 1 : 0].forward;
    if (i == 0)
        return last * length / attention[0].length;
    if (i == N_ATTENTION)
        return last;
    const double next = backward ? attention[i].backward : attention[i].forward;
    const double at = log2(length / attention[i - 1].length) /
                      log2(attention[i].length / attention[i - 1].length);
    return last + at * (next - last);
}

static double greater(double a, double b) {
    return a > b ? a : b;
}

/* True of an op of 8-bit floats that the machine has as such. */
static bool is_fp8(const struct ax_rates *r, const struct ax_op_event *e) {
    return e->fp8 && (e->op == AX_OP_fp8_gemm || !r->emulates);
}

/* Bytes where values of 8 bits have one: of a product's operands, and of what fake_quantize writes. */
static double bytes_of(const struct ax_rates *r, const struct ax_op_event *e) {
    const double size = (double)ax_dtype_size(e->dtype);
    if (is_fp8(r, e) && e->op == AX_OP_gemm)
        return e->bytes - (size - 1) * (double)(e->m + e->n) * (double)e->k;
    return is_fp8(r, e) && e->op == AX_OP_fake_quantize ? 0.75 * e->bytes : e->bytes;
}

double ax_rates_seconds(const struct ax_rates *r, const struct ax_op_event *e) {
    const struct ax_op_rate *rate = &r->ops[e->op];
    const double moved = bytes_of(r, e) / (r->hardware.bandwidth * rate->bytes);
    const enum ax_time_kind kind = ax_rates_kind(e->op);
    if (kind == AX_TIME_PRODUCTS) {
        const bool grouped = e->op == AX_OP_grouped_gemm && e->products == 0;
        const double speed =
            is_fp8(r, e) ? r->fp8
                         : (grouped ? r->grouped : r->bf16) * ax_rates_dtype_share(e->dtype);
        return r->product_start * greater((double)e->products, 1) +
               greater(e->flops / speed, moved);
    }
    if (rate->flops > 0)
        return r->start + greater(e->flops / (r->hardware.bf16 * rate->flops), moved);
    if (kind == AX_TIME_ATTENTION) {
        const bool backward = e->op == AX_OP_attention_backward;
        /* a causal query has half of the length as keys, on average */
        const double share = attention_share(2 * (double)e->k, backward) *
                             r->attention[backward][e->n <= 64] * ax_rates_dtype_share(e->dtype);
        return r->product_start +
               greater(e->flops / (r->hardware.bf16 * greater(share, r->least_attention)), moved);
    }
    return r->start + moved;
}

double ax_rates_copy(const struct ax_rates *r, double bytes) {
    return r->start + bytes / (r->hardware.host * PAYLOAD);
}

/* ---- transfers ---- */

enum ax_status ax_rates_group_of(const struct ax_rates *r, const struct ax_mesh *mesh,
                                 enum ax_role role, struct ax_rates_group *out) {
    const int node = r->hardware.node;
    int *ranks;
    *out = (struct ax_rates_group){.size = mesh->size[role]};
    AX_TRY(ax_alloc(&ranks, (size_t)out->size, sizeof *ranks));
    ax_mesh_group(mesh, role, ranks);
    for (int i = 0; i < out->size; i++)
        out->local += ranks[i] / node == mesh->rank / node;
    ax_free(ranks);
    return AX_OK;
}

void ax_rates_transfer(const struct ax_rates *r, const struct ax_rates_group *g, bool far,
                       const struct ax_transfer_event *t, struct ax_sim_item *item) {
    const double link = r->hardware.node_link * r->links[t->kind],
                 network = r->hardware.network * r->network;
    item->seconds = r->transfer_start;
    item->links[AX_SIM_NODE] = item->links[AX_SIM_NETWORK] = 0;
    if (t->kind == AX_SEND_RECV) {
        item->seconds += far ? r->far_hop : r->hop;
        item->links[far ? AX_SIM_NETWORK : AX_SIM_NODE] = t->bytes / (far ? network : link);
        return;
    }
    const int away = g->size - g->local;
    if (t->kind == AX_ALL_TO_ALL_V) { /* each peer gets its own */
        const double each = t->bytes / (g->size - 1);
        item->seconds += away > 0 ? r->far_hop : r->hop;
        item->links[AX_SIM_NODE] = each * (g->local - 1) / link;
        item->links[AX_SIM_NETWORK] = each * away / network;
        return;
    }
    const int steps = t->kind == AX_ALL_REDUCE ? 2 * (g->size - 1) : g->size - 1;
    item->seconds += steps * (away > 0 ? r->far_hop : r->hop);
    if (g->local > 1)
        item->links[AX_SIM_NODE] = t->bytes / link;
    item->links[AX_SIM_NETWORK] = t->bytes / (g->size - 1) * away / g->local / network;
}
