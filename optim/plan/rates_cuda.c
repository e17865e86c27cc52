/* What our own kernels and NVIDIA's libraries reached in axtrain on an H200 with cuDNN 9.19: docs/results/gpu-speed.md and
 * hybrids.md, which have the commands. */
#include "optim/plan/rates.h"

/* Of H200's data sheet. */
#define OF_MEMORY(gb_s) ((gb_s) / 4800.0)
#define OF_PEAK(tflops) ((tflops) / 989.0)
/* A copy reaches 4.1 TB/s; ops without a row of their own are taken to be as fast. */
#define COPY OF_MEMORY(4100)

static const struct {
    enum ax_op op;
    struct ax_op_rate rate;
} measured[] = {
    {AX_OP_rmsnorm_forward, {OF_MEMORY(3160), 0}}, /* as backward */
    {AX_OP_rmsnorm_backward, {OF_MEMORY(3160), 0}},
    {AX_OP_swiglu_forward, {OF_MEMORY(3762), 0}},
    {AX_OP_swiglu_backward, {OF_MEMORY(3340), 0}},
    {AX_OP_softmax_stats, {OF_MEMORY(4056), 0}},
    {AX_OP_softmax_backward, {OF_MEMORY(4008), 0}}, /* beside the logits, not over them */
    {AX_OP_fp8_codes, {OF_MEMORY(3273), 0}},
    {AX_OP_quant_range, {OF_MEMORY(2000), 0}}, /* what is left of a step's 0.144 s for both */
    {AX_OP_dequantize, {OF_MEMORY(3750), 0}},
    {AX_OP_router_forward, {OF_MEMORY(270), 0}},
    {AX_OP_adamw, {OF_MEMORY(2587), 0}},
    {AX_OP_adamw_8bit, {OF_MEMORY(1841), 0}},
    {AX_OP_adafactor, {OF_MEMORY(1310), 0}},
    {AX_OP_conv_forward, {OF_MEMORY(910), 0}},
    {AX_OP_conv_backward, {OF_MEMORY(525), 0}},
    {AX_OP_delta_gates_backward, {OF_MEMORY(13.6), 0}},
    {AX_OP_delta_forward, {COPY, OF_PEAK(34)}},
    {AX_OP_delta_backward, {COPY, OF_PEAK(38.2)}},
};

/* Attention of documents of 4,096 tokens, as shares of what the table has at that length: forward by cuDNN 507 and 320
 * TFLOP/s with heads of 128 and 64 elements, where the table has 591 TFLOP/s; backward by our own kernel 365 and 250 of
 * 474. The latter of both are of a step of Llama 3.2 1B. */
static const double attention[2][2] = {{507.0 / 591, 320.0 / 591}, {365.0 / 474, 250.0 / 474}};

/* 8-bit products within a step, 1,227 TFLOP/s, with a scale for each operand; with scales of rows they are taken to be as
 * fast, which no GPU has run. */
#define FP8 (1227.0 / 1979)

struct ax_rates ax_rates_cuda(const struct ax_hardware *h) {
    struct ax_rates r = ax_rates_of(h);
    r.backend = "cuda";
    r.emulates = true;
    if (!ax_hardware_is_hopper(h))
        return r;
    r.source = "shares of the data sheet that axtrain's kernels reached on an H200";
    if (h->fp8 > 0)
        r.fp8 = h->fp8 * FP8;
    for (int op = 0; op < AX_OP_COUNT; op++)
        r.ops[op].bytes = COPY;
    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++)
        r.ops[measured[i].op] = measured[i].rate;
    for (int i = 0; i < 4; i++)
        r.attention[i / 2][i % 2] = attention[i / 2][i % 2];
    return r;
}
