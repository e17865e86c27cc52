/* The stash: what forward keeps for backward, and what is recomputed.
 *
 * A part of a layer (norms, attention, MLP …) declares its intermediate tensors once, each with a
 * class that says whether it may be dropped. A frame holds them for one layer of one micro-batch.
 * Forward allocates the kept ones on the slot's stack and the others in scratch; backward allocates
 * the dropped ones again and calls the same forward code, which computes exactly what is missing.
 * Recompute cannot differ from forward because it is forward. */
#ifndef AX_MODEL_CORE_STASH_H
#define AX_MODEL_CORE_STASH_H

#include "kernels/queue.h"

enum ax_recompute {
    AX_RECOMPUTE_OFF,       /* keep everything */
    AX_RECOMPUTE_SELECTIVE, /* recompute norms, rope and swiglu; keep GEMM and attention results */
    AX_RECOMPUTE_ON,        /* keep only the layer's input */
    AX_RECOMPUTE_INFERENCE, /* no backward: keep nothing */
};
const char *ax_recompute_name(enum ax_recompute mode);
enum ax_status ax_recompute_parse(const char *name,
                                  enum ax_recompute *out); /* off, on, selective */

enum ax_keep {
    AX_KEEP_COSTLY, /* result of a GEMM or of attention */
    AX_KEEP_CHEAP,  /* norm, rope, swiglu: memory-bound */
    AX_KEEP_ALWAYS, /* small, and not to be recomputed: a decision (routing), values of tokens that the head has */
};

#define AX_FRAME_MAX 64

struct ax_saved {
    const char *name; /* its name in the memory plan */
    enum ax_keep keep;
    bool kept;   /* in the slot, else in scratch */
    bool ready;  /* contains this micro-batch's value */
    bool ranged; /* memory for the range of t is beside it (t.range) */
    struct ax_tensor t;
};

struct ax_frame {
    int n; /* tensors, declared or not */
    struct ax_saved saved[AX_FRAME_MAX];
    size_t mark; /* mark of the slot's stack below this frame */
};

/* Starts a frame of n tensors, none declared yet; undeclared tensors take no memory. */
void ax_frame_begin(struct ax_frame *f, int n);
/* Declares a tensor (dtype and shape in t; push sets data). */
void ax_saved_declare(struct ax_saved *s, const char *name, enum ax_keep keep, struct ax_tensor t);
/* Adds n tensors, none declared yet, and returns the first. */
struct ax_saved *ax_frame_extend(struct ax_frame *f, int n);
/* Forward: allocates kept tensors from slot, the rest from scratch (released by the caller's
 * scratch mark). */
void ax_frame_push(struct ax_frame *f, struct ax_stack *slot, struct ax_stack *scratch,
                   enum ax_recompute mode);
/* Backward: allocates dropped tensors in scratch again, to be computed again. */
void ax_frame_restore(struct ax_frame *f, struct ax_stack *scratch);
/* Releases the slot's memory. */
void ax_frame_pop(struct ax_frame *f, struct ax_stack *slot);

/* True if the tensor has yet to be computed, and marks it as computed: `if (ax_saved_make(&s[H1]))
 * run norm`. */
bool ax_saved_make(struct ax_saved *s);

#endif
