/* Adds events, and derives what an op's time depends on besides its cost. */
#include "kernels/recording.h"

#include "base/mem.h"
#include "kernels/operands.h"

static enum ax_status add(struct ax_recording *r, const struct ax_event *e) {
    AX_TRY(ax_grow(&r->events, r->n, &r->capacity, sizeof *r->events));
    r->events[r->n] = *e;
    r->events[r->n++].unit = r->unit;
    return AX_OK;
}

/* ---- which values have 8 bits ---- */

static bool is_fp8(const struct ax_recording *r, const struct ax_tensor *t) {
    for (int i = 0; i < AX_RECORDED_OUTPUTS; i++)
        if (t->data && r->in_fp8[i] == t->data)
            return true;
    return false;
}

static bool makes_fp8(enum ax_op op, const void *args) {
    const enum ax_quant kind =
        op == AX_OP_fake_quantize ? ((const struct ax_fake_quantize *)args)->kind : AX_QUANT_COUNT;
    return kind == AX_QUANT_FP8 || kind == AX_QUANT_E5M2 || kind == AX_QUANT_MXFP8 ||
           kind == AX_QUANT_MXFP8_UP;
}

/* Whatever an op writes is no longer what fake_quantize left there. */
static void note_outputs(struct ax_recording *r, enum ax_op op, const void *args) {
    for (const struct ax_operand *o = ax_op_operands(op); o->name; o++) {
        const struct ax_tensor *t = (const struct ax_tensor *)((const char *)args + o->offset);
        for (int i = 0; o->use != AX_OPERAND_IN && i < AX_RECORDED_OUTPUTS; i++)
            if (r->in_fp8[i] == t->data)
                r->in_fp8[i] = NULL;
    }
    if (!makes_fp8(op, args))
        return;
    const struct ax_fake_quantize *q = args;
    r->in_fp8[r->next_fp8] = q->y.data;
    r->next_fp8 = (r->next_fp8 + 1) % AX_RECORDED_OUTPUTS;
}

/* ---- shapes ---- */

static void describe_gemm(const struct ax_recording *r, const struct ax_gemm *g,
                          struct ax_op_event *e) {
    e->dtype = g->a.dtype;
    e->fp8 = is_fp8(r, &g->a) && is_fp8(r, &g->b);
    e->m = g->c.shape[0];
    e->n = g->c.shape[1];
    e->k = g->a.shape[g->trans_a ? 0 : 1];
}

/* y and dx: all rows, of any group. dW: the groups' matrices one below the other. */
static void describe_grouped(const struct ax_recording *r, const struct ax_grouped_gemm *g,
                             struct ax_op_event *e) {
    e->dtype = g->a.dtype;
    e->fp8 = is_fp8(r, &g->a) && is_fp8(r, &g->b);
    e->m = g->trans_a ? g->c.shape[0] * g->c.shape[1] : g->expected_rows;
    e->n = g->trans_a ? g->c.shape[2] : g->c.shape[1];
    e->k = g->trans_a ? g->expected_rows / g->c.shape[0] : g->a.shape[1];
    if (g->a.dtype != AX_BF16 || ax_grouped_gemm_is_large(g))
        e->products = g->offsets.shape[0] - 1;
}

static void describe_packed(const struct ax_packed_gemm *g, struct ax_op_event *e) {
    e->dtype = g->a.dtype;
    e->m = g->c.shape[0];
    e->n = g->c.shape[1];
    e->k = g->a.shape[1];
}

static void describe_fp8(const struct ax_fp8_gemm *g, struct ax_op_event *e) {
    e->dtype = AX_U8;
    e->fp8 = true;
    e->m = g->c.shape[0];
    e->n = g->c.shape[1];
    e->k = g->a.shape[1];
}

/* FLOPs are `dims` sums of products per query, head and key: kernels/ops/attention.c. */
static void describe_attention(const struct ax_attention *a, double dims, struct ax_op_event *e) {
    const double queries = (double)a->q.shape[0] * (double)a->q.shape[1];
    e->dtype = a->q.dtype;
    e->m = a->q.shape[0];
    e->n = a->q.shape[2];
    e->k = queries > 0 ? (int64_t)(e->flops / (2 * dims * queries)) : 0;
}

static void describe(const struct ax_recording *r, const void *args, struct ax_op_event *e) {
    if (e->op == AX_OP_gemm) {
        describe_gemm(r, args, e);
    } else if (e->op == AX_OP_grouped_gemm) {
        describe_grouped(r, args, e);
    } else if (e->op == AX_OP_packed_gemm) {
        describe_packed(args, e);
    } else if (e->op == AX_OP_fp8_gemm) {
        describe_fp8(args, e);
    } else if (e->op == AX_OP_attention_forward) {
        const struct ax_attention *a = &((const struct ax_attention_forward *)args)->a;
        describe_attention(a, (double)(a->q.shape[2] + a->v.shape[2]), e);
    } else if (e->op == AX_OP_attention_backward) {
        const struct ax_attention *a = &((const struct ax_attention_backward *)args)->a;
        describe_attention(a, (double)(3 * a->q.shape[2] + 2 * a->v.shape[2]), e);
    } else {
        e->fp8 = makes_fp8(e->op, args);
    }
}

enum ax_status ax_record_op(struct ax_recording *r, enum ax_op op, const void *args,
                            struct ax_op_cost cost) {
    struct ax_event e = {.kind = AX_EVENT_OP,
                         .op = {.op = op, .flops = cost.flops, .bytes = cost.bytes}};
    describe(r, args, &e.op);
    note_outputs(r, op, args);
    return add(r, &e);
}

enum ax_status ax_record_copy(struct ax_recording *r, size_t bytes, uint64_t ticket) {
    const struct ax_event e = {.kind = AX_EVENT_COPY, .copy = {(double)bytes, ticket}};
    return add(r, &e);
}

enum ax_status ax_record_after(struct ax_recording *r, uint64_t ticket) {
    const struct ax_event e = {.kind = AX_EVENT_AFTER, .copy = {.ticket = ticket}};
    return add(r, &e);
}

enum ax_status ax_record_start(struct ax_recording *r, const struct ax_transfer_event *t) {
    const struct ax_event e = {.kind = AX_EVENT_START, .transfer = *t};
    return add(r, &e);
}

enum ax_status ax_record_wait(struct ax_recording *r, int lane, uint64_t ticket) {
    const struct ax_event e = {.kind = AX_EVENT_WAIT, .transfer = {.lane = lane, .ticket = ticket}};
    return add(r, &e);
}

void ax_recording_free(struct ax_recording *r) {
    ax_free(r->events);
    *r = (struct ax_recording){0};
}
