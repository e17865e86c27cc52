/* The backend of dry runs: every op is accepted and nothing is computed or read, because the
 * addresses are made up. The dispatcher counts FLOPs and bytes and takes the workspace that the
 * planned backend (q->model) needs, so the arena's high-water marks equal those of a real run. */
#include "kernels/queue.h"

#define DEFINE_META(op)                                                                            \
    static enum ax_status meta_##op(struct ax_queue *q, const struct ax_##op *args, void *work) {  \
        (void)q;                                                                                   \
        (void)args;                                                                                \
        (void)work;                                                                                \
        return AX_OK;                                                                              \
    }
AX_OP_LIST(DEFINE_META)
#undef DEFINE_META

const struct ax_ops ax_ops_meta = {.name = "meta",
                                   .device = &ax_device_meta,
#define ENTRY(op) .op = meta_##op,
                                   AX_OP_LIST(ENTRY)
#undef ENTRY
};

/* A GPU by its data sheet, which can only be planned for: it has every op, without workspace, a host
 * tier, and wants long chunks in the head, because each adds to the gradient of the entire matrix. */
static const struct ax_device sheet = {.has_host_tier = true};
const struct ax_ops ax_ops_sheet = {.name = "sheet",
                                    .device = &sheet,
                                    .rounding = {.head_chunk = 2048},
#define ENTRY(op) .op = meta_##op,
                                    AX_OP_LIST(ENTRY)
#undef ENTRY
};
