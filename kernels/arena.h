/* Memory by plan: one address range, stacks of named blocks in it, and high-water marks.
 *
 *   [ persistent | scratch | slot 0 | slot 1 | … ]     scratch and slots are laid out per phase
 *   [ host ]                                           the device's host tier, if it has one
 *
 * An arena holds a *persistent* stack (weights, gradients, optimizer state, tables) and, above it,
 * the working stacks of the current *phase*: `scratch` (temporaries and op workspaces) and one
 * stash per slot (activations kept from forward to backward). Disjoint phases share addresses. The
 * stack `host` is persistent, too; no op reads it, only copies do (ax_queue_copy). A slot may also be
 * filled from its end, so that one thing grows in the memory that another gives back.
 *
 * The same calls run twice. The planning run has no memory: addresses count up from a made-up base
 * and are never accessed, and the high-water marks become a struct ax_arena_plan. For the real run,
 * ax_arena_create maps exactly the plan's bytes, and any push beyond its stack's share is a bug
 * (AX_ASSERT). So plan and run agree by construction, and tests compare them to the byte. */
#ifndef AX_KERNELS_ARENA_H
#define AX_KERNELS_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/device.h"
#include "kernels/tensor.h"

#define AX_ARENA_ALIGN     64
#define AX_ARENA_MAX_SLOTS 64
#define AX_ARENA_MAX_NAMES 128
#define AX_ARENA_MAX_RUNS  (1 << 18) /* address space; memory is used only as touched */

/* The size of a block of `bytes` on a stack. */
static inline size_t ax_arena_round(size_t bytes) {
    return (bytes + AX_ARENA_ALIGN - 1) / AX_ARENA_ALIGN * AX_ARENA_ALIGN;
}

enum ax_phase { AX_PHASE_TRAIN, AX_PHASE_EVAL, AX_PHASE_ROLLOUT, AX_PHASE_SAVE, AX_PHASE_COUNT };

/* Bytes under one block name: now, and at the stack's high-water mark (persistent: the sum). Names
 * are compared by content and must outlive the arena (string literals). */
struct ax_arena_name {
    const char *name;
    size_t live;
    size_t at_peak;
};

/* Adjacent blocks of the same name on a stack form one run. */
struct ax_arena_run {
    size_t bytes;
    int name; /* index into names */
};

struct ax_stack {
    char AX_DEVICE *base;
    size_t cap; /* SIZE_MAX while planning */
    size_t top;
    size_t open;                 /* marks that were not released */
    size_t end;                  /* bytes taken from the stack's end */
    int end_name;                /* the name of the blocks at its end */
    size_t high[AX_PHASE_COUNT]; /* high-water marks of both ends together */
    struct ax_arena *arena;
    size_t n_runs;
    struct ax_arena_run *runs; /* from the bottom up; capacity AX_ARENA_MAX_RUNS */
    int n_names;
    struct ax_arena_name names[AX_ARENA_MAX_NAMES];
    size_t names_high; /* bytes at which at_peak was taken */
};

struct ax_arena_plan {
    size_t persistent;
    size_t host;
    size_t scratch[AX_PHASE_COUNT];
    int n_slots;
    size_t slot[AX_ARENA_MAX_SLOTS][AX_PHASE_COUNT];
};
/* Bytes of device memory: persistent + largest phase; and of one phase. */
size_t ax_arena_plan_total(const struct ax_arena_plan *plan);
size_t ax_arena_plan_phase(const struct ax_arena_plan *plan, enum ax_phase phase);

struct ax_arena {
    struct ax_stack persistent;
    struct ax_stack host;
    struct ax_stack scratch;
    int n_slots;
    struct ax_stack *slots;
    enum ax_phase phase;
    bool planning;
    struct ax_arena_plan plan;      /* the plan given to ax_arena_create (real mode) */
    const struct ax_device *device; /* the device that has the memory */
    struct ax_memory memory, host_memory;
    void *runs_map; /* the runs of all stacks */
    size_t runs_bytes;
};

enum ax_status ax_arena_create_planning(struct ax_arena *a, int n_slots);
/* Allocates the plan's total bytes on the device, in one piece, and those of the host tier in
 * another. AX_ERR_NOMEM says how many were requested. */
enum ax_status ax_arena_create(struct ax_arena *a, const struct ax_arena_plan *plan,
                               const struct ax_device *device);
/* Lets the device populate the persistent stack's memory in the background, once, for a caller that
 * will write all of it. Does nothing while planning. */
void ax_arena_populate(struct ax_arena *a);
void ax_arena_free(struct ax_arena *a);
/* The high-water marks so far, in either mode; in real mode they equal the plan after a full
 * step. */
void ax_arena_measure(const struct ax_arena *a, struct ax_arena_plan *out);
/* Switches phase; scratch and all slots must be empty. */
void ax_arena_enter(struct ax_arena *a, enum ax_phase phase);

/* Allocates `bytes` (rounded up to AX_ARENA_ALIGN) on top. Input can never make it fail: exceeding
 * the plan is our own bug. Memory keeps its old contents; only fresh persistent memory is zero. */
void AX_DEVICE *ax_stack_push(struct ax_stack *s, const char *name, size_t bytes);
/* `t`, whose data is not looked at, in a block of its size. */
struct ax_tensor ax_stack_take(struct ax_stack *s, const char *name, struct ax_tensor t);
/* To be released once, after the marks that were made later: in tests (ax_mem_is_guarded) another order ends
 * the program unless an error has cut it short. Not a number of bytes; 0 is the bottom. */
size_t ax_stack_mark(struct ax_stack *s);
/* Pops everything above the mark. */
void ax_stack_release(struct ax_stack *s, size_t mark);
/* The same at the stack's end, growing downwards: blocks of one name, which are released
 * together. */
void AX_DEVICE *ax_stack_push_end(struct ax_stack *s, const char *name, size_t bytes);
void ax_stack_release_end(struct ax_stack *s);

#endif
