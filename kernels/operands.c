/* Information about any op, by number, from the families' tables (kernels/ops/). */
#include "kernels/operands.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/ops/family.h"
#include "kernels/panels.h"

/* An op without an AX_OP_INFO does not link. */
static const struct ax_op_info *const OPS[AX_OP_COUNT] = {
#define ROW(op) [AX_OP_##op] = &ax_op_info_##op,
    AX_OP_LIST(ROW)
#undef ROW
};

const struct ax_op_info *ax_op_info(enum ax_op op) {
    AX_ASSERT(op < AX_OP_COUNT);
    return OPS[op];
}

const char *ax_op_name(enum ax_op op) {
    return ax_op_info(op)->name;
}

void ax_op_family(enum ax_op op, char *out, size_t size) {
    const char *file = ax_op_info(op)->file, *slash = strrchr(file, '/');
    const char *name = slash ? slash + 1 : file;
    snprintf(out, size, "%.*s", (int)strcspn(name, "."), name);
}

const struct ax_operand *ax_op_operands(enum ax_op op) {
    return ax_op_info(op)->operands();
}

size_t ax_op_args_size(enum ax_op op) {
    return ax_op_info(op)->args_size;
}

struct ax_op_cost ax_op_cost(enum ax_op op, const void *args) {
    return ax_op_info(op)->cost(args);
}

const struct ax_shape *ax_op_shapes(enum ax_op op, int *n) {
    const struct ax_op_info *info = ax_op_info(op);
    *n = info->n_shapes;
    while (*n > 0 && info->shapes[*n - 1].huge)
        --*n;
    return info->shapes;
}

const struct ax_shape *ax_op_huge_shapes(enum ax_op op, int *n) {
    int others;
    const struct ax_shape *shapes = ax_op_shapes(op, &others);
    *n = ax_op_info(op)->n_shapes - others;
    return shapes + others;
}

struct ax_tensor *ax_operand_tensor(const struct ax_operand *operand, void *args) {
    return (struct ax_tensor *)((char *)args + operand->offset);
}

static const struct ax_tensor *tensor_of(const struct ax_operand *operand, const void *args) {
    return (const struct ax_tensor *)((const char *)args + operand->offset);
}

const char *ax_op_broken_rule(enum ax_op op, const void *args) {
    for (const struct ax_operand *o = ax_op_operands(op); o->name != NULL; o++) {
        tensor t = tensor_of(o, args);
        if (given(t) && t->panels) {
            NEED((o->flags & AX_OPERAND_PANELS) != 0);
            NEED(ax_tensor_is_dense(t) && (t->ndim == 1 || ax_panels_fit(t)));
        }
    }
    return ax_op_info(op)->check(args);
}

/* snprintf that appends and stays within size. */
#define APPEND(...)                                                                                \
    do {                                                                                           \
        if (used < size) {                                                                         \
            used += (size_t)snprintf(buf + used, size - used, __VA_ARGS__);                        \
        }                                                                                          \
    } while (0)

const char *ax_op_describe(enum ax_op op, const void *args, char *buf, size_t size) {
    size_t used = 0;
    buf[0] = '\0';
    for (const struct ax_operand *o = ax_op_operands(op); o->name != NULL; o++) {
        const struct ax_tensor *t = tensor_of(o, args);
        if (t->data == NULL)
            continue;
        APPEND("%s%s %s ", used > 0 ? ", " : "", o->name, ax_dtype_info(t->dtype)->name);
        for (int i = 0; i < t->ndim; i++)
            APPEND("[%" PRId64 "]", t->shape[i]);
        if (!ax_tensor_is_dense(t))
            APPEND(" (row stride %" PRId64 ")", t->row_stride);
    }
    return buf;
}
