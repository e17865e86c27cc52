/* Frames: where each intermediate tensor is stored, and which must still be computed. */
#include "model/core/stash.h"

#include <string.h>

static const char *const mode_names[] = {
    [AX_RECOMPUTE_OFF] = "off",
    [AX_RECOMPUTE_SELECTIVE] = "selective",
    [AX_RECOMPUTE_ON] = "on",
    [AX_RECOMPUTE_INFERENCE] = "inference",
};

const char *ax_recompute_name(enum ax_recompute mode) {
    return mode_names[mode];
}

enum ax_status ax_recompute_parse(const char *name, enum ax_recompute *out) {
    for (int mode = AX_RECOMPUTE_OFF; mode <= AX_RECOMPUTE_ON; mode++) {
        if (strcmp(name, mode_names[mode]) != 0)
            continue;
        *out = (enum ax_recompute)mode;
        return AX_OK;
    }
    return ax_error(AX_ERR_CONFIG, "--recompute: \"%s\" is not one of off, selective, on", name);
}

void ax_frame_begin(struct ax_frame *f, int n) {
    AX_ASSERT(n <= AX_FRAME_MAX);
    memset(f->saved, 0, (size_t)n * sizeof *f->saved);
    f->n = n;
}

struct ax_saved *ax_frame_extend(struct ax_frame *f, int n) {
    struct ax_saved *first = f->saved + f->n;
    AX_ASSERT(f->n + n <= AX_FRAME_MAX);
    memset(first, 0, (size_t)n * sizeof *first);
    f->n += n;
    return first;
}

void ax_saved_declare(struct ax_saved *s, const char *name, enum ax_keep keep, struct ax_tensor t) {
    t.data = NULL;
    *s = (struct ax_saved){.name = name, .keep = keep, .t = t};
}

static bool keeps(enum ax_recompute mode, enum ax_keep keep) {
    if (mode == AX_RECOMPUTE_OFF || (mode != AX_RECOMPUTE_INFERENCE && keep == AX_KEEP_ALWAYS))
        return true;
    return mode == AX_RECOMPUTE_SELECTIVE && keep == AX_KEEP_COSTLY;
}

static void take(struct ax_saved *s, struct ax_stack *stack) {
    s->t = ax_stack_take(stack, s->name, s->t);
    if (s->ranged)
        s->t.range = ax_stack_push(stack, "quantization ranges", 2 * sizeof *s->t.range);
    s->ready = false;
}

void ax_frame_push(struct ax_frame *f, struct ax_stack *slot, struct ax_stack *scratch,
                   enum ax_recompute mode) {
    f->mark = ax_stack_mark(slot);
    for (int i = 0; i < f->n; i++) {
        struct ax_saved *s = &f->saved[i];
        s->kept = keeps(mode, s->keep);
        if (s->name)
            take(s, s->kept ? slot : scratch);
    }
}

void ax_frame_restore(struct ax_frame *f, struct ax_stack *scratch) {
    for (int i = 0; i < f->n; i++)
        if (f->saved[i].name && !f->saved[i].kept)
            take(&f->saved[i], scratch);
}

void ax_frame_pop(struct ax_frame *f, struct ax_stack *slot) {
    ax_stack_release(slot, f->mark);
    f->n = 0;
}

bool ax_saved_make(struct ax_saved *s) {
    AX_ASSERT(s->name);
    const bool make = !s->ready;
    s->ready = true;
    return make;
}
