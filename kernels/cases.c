/* Creates and runs cases. An op's build runs twice: first without memory, to count bytes, then to
 * lay the operands out and fill them, with the helpers of kernels/ops/family.c. */
#include "kernels/cases.h"

#include <string.h>

#include "base/hash/hash.h"
#include "base/mem.h"
#include "kernels/ops/family.h"

/* A step in the middle of training. Large lr: makes the update's last bits worth checking. */
static struct ax_step_scalars scalars_of(const struct ax_case_builder *b) {
    bool skip = ax_case_has(b, AX_SHAPE_SKIP);
    return (struct ax_step_scalars){.lr = 0.1,
                                    .weight = skip ? 0 : 8,
                                    .tokens = 32,
                                    .inv_weight = skip ? 0 : 0.125,
                                    .max_norm = 1,
                                    .sumsq = 7.5,
                                    .clip = 0.6,
                                    .loss = 0.25,
                                    .aux_loss = 0.5,
                                    .sequence_loss = 0.75,
                                    .index_loss = 1.25,
                                    .step = ax_case_has(b, AX_SHAPE_FIRST_STEP) ? 1 : 5,
                                    .skip = skip ? 1 : 0};
}

/* Sums that have begun, each another one. */
static struct ax_step_measures measures_of(void) {
    struct ax_step_measures m = {.tokens = 32};
    for (int i = 0; i < AX_MEASURES; i++) {
        m.sum[i] = 1 + i;
        m.of[i] = 2 + 3 * i;
    }
    return m;
}

enum ax_status ax_case_create(struct ax_case *c, enum ax_op op, const struct ax_shape *shape,
                              enum ax_dtype dtype, uint64_t seed) {
    struct ax_case_builder b = {.shape = shape,
                                .real = dtype,
                                .accum = ax_dtype_accum(dtype),
                                .key = {.seed = seed, .step = ax_hash32(ax_op_name(op))}};
    const size_t step_room =
        AX_CASE_GAP * ((sizeof(struct ax_case_step) + AX_CASE_GAP - 1) / AX_CASE_GAP);
    *c = (struct ax_case){.op = op, .shape = shape, .dtype = dtype};
    AX_TRY(ax_alloc(&c->args, 1, ax_op_args_size(op)));
    ax_op_info(op)->build(&b, c->args);
    c->bytes = step_room + b.used;
    enum ax_status st = ax_alloc(&c->memory, c->bytes, 1);
    if (st != AX_OK) {
        ax_case_free(c);
        return st;
    }
    memset(c->memory, 0xff, c->bytes);
    memset(c->args, 0, ax_op_args_size(op));
    c->step = (struct ax_case_step *)(void *)c->memory;
    *c->step = (struct ax_case_step){scalars_of(&b), measures_of()};
    b.key.tensor = 0;
    b.memory = c->memory + step_room;
    b.used = 0;
    b.scalars = &c->step->scalars;
    b.measures = &c->step->measures;
    ax_op_info(op)->build(&b, c->args);
    return AX_OK;
}

void ax_case_free(struct ax_case *c) {
    ax_free(c->args);
    ax_free(c->memory);
    *c = (struct ax_case){.op = c->op};
}

enum ax_status ax_case_prepare(const struct ax_case *c, struct ax_queue *q) {
    if (c->op != AX_OP_attention_backward)
        return AX_OK;
    const struct ax_attention_backward *b = c->args;
    return ax_run_attention_forward(q, &(struct ax_attention_forward){b->a});
}

/* Words of the arguments that point into `from` point as far into `to`. */
static void move_args(struct ax_case *c, const char AX_DEVICE *from, char AX_DEVICE *to) {
    for (size_t at = 0; at + sizeof(char *) <= ax_op_args_size(c->op); at += sizeof(char *)) {
        char AX_DEVICE *word;
        memcpy(&word, (char *)c->args + at, sizeof word);
        if (word >= from && word < from + c->bytes) {
            word = to + (word - from);
            memcpy((char *)c->args + at, &word, sizeof word);
        }
    }
}

enum ax_status ax_case_send(struct ax_case *c, struct ax_queue *q) {
    if (!ax_queue_has_host_tier(q))
        return AX_OK;
    char AX_DEVICE *there = ax_stack_push(q->scratch, "case", c->bytes);
    if (ax_queue_is_meta(q))
        return AX_OK;
    AX_TRY(ax_queue_write(q, there, c->memory, c->bytes));
    move_args(c, c->memory, there);
    c->sent = there;
    return AX_OK;
}

enum ax_status ax_case_fetch(struct ax_case *c, struct ax_queue *q) {
    if (c->sent == NULL)
        return AX_OK;
    AX_TRY(ax_queue_read(q, c->sent, c->memory, c->bytes, NULL));
    move_args(c, c->sent, c->memory);
    c->sent = NULL;
    return AX_OK;
}

enum ax_status ax_case_run(const struct ax_case *c, struct ax_queue *q) {
    return ax_run_op(q, c->op, c->args);
}
