/* Arenas: the layout of a phase's stacks, pushing and popping, and high-water marks.
 *
 * For a phase, the working area after the persistent stack is [scratch | slot 0 | slot 1 | …], each
 * with exactly the bytes in the plan, so every address follows from the plan alone. Offsets within
 * a stack come only from pushes and are the same in planning and in real mode. */
#include "kernels/arena.h"

#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/mem_guard.h"

#if defined(__SANITIZE_ADDRESS__)
#define AX_HAVE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define AX_HAVE_ASAN 1
#endif
#endif
#ifdef AX_HAVE_ASAN
#include <sanitizer/asan_interface.h>
/* Released stack memory and the padding after each block are poisoned, so that any use is found. */
#define POISON(p, n)   ASAN_POISON_MEMORY_REGION(p, n)
#define UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#else
#define POISON(p, n)   ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#endif

/* While planning, stack i starts at (i + 1)·16 TiB: never read, never NULL, aligned like real
 * ones. */
#define PLANNING_SPACE ((uintptr_t)1 << 44)

static size_t round_up(size_t bytes, size_t to) {
    AX_ASSERT(bytes <= SIZE_MAX - to);
    return (bytes + to - 1) / to * to;
}

size_t ax_arena_plan_phase(const struct ax_arena_plan *plan, enum ax_phase phase) {
    size_t bytes = plan->scratch[phase];
    for (int i = 0; i < plan->n_slots; i++)
        bytes += plan->slot[i][phase];
    return bytes;
}

size_t ax_arena_plan_total(const struct ax_arena_plan *plan) {
    size_t largest = 0;
    for (int p = 0; p < AX_PHASE_COUNT; p++) {
        size_t bytes = ax_arena_plan_phase(plan, (enum ax_phase)p);
        largest = bytes > largest ? bytes : largest;
    }
    return plan->persistent + largest;
}

/* Pages that get memory only when touched; NULL if there is no address space. */
static void *map_pages(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

#define FIXED 3 /* stacks that are not slots */

static struct ax_stack *stack_at(struct ax_arena *a, size_t i) {
    struct ax_stack *const fixed[FIXED] = {&a->persistent, &a->scratch, &a->host};
    return i < FIXED ? fixed[i] : &a->slots[i - FIXED];
}

static size_t count_stacks(const struct ax_arena *a) {
    return FIXED + (size_t)a->n_slots;
}

/* What both modes need: the stacks themselves and the runs for their names. */
static enum ax_status create_stacks(struct ax_arena *a, int n_slots) {
    AX_ASSERT(n_slots >= 0 && n_slots <= AX_ARENA_MAX_SLOTS);
    memset(a, 0, sizeof(*a));
    a->n_slots = n_slots;
    size_t per_stack = AX_ARENA_MAX_RUNS * sizeof(struct ax_arena_run);
    const size_t n_stacks = count_stacks(a);
    AX_TRY(ax_alloc(&a->slots, (size_t)n_slots, sizeof(*a->slots)));
    a->runs_bytes = n_stacks * per_stack;
    a->runs_map = map_pages(a->runs_bytes);
    if (a->runs_map == NULL) {
        ax_arena_free(a);
        return ax_error(AX_ERR_NOMEM, "memory arena: no address space for its records.");
    }
    for (size_t i = 0; i < n_stacks; i++) {
        struct ax_stack *s = stack_at(a, i);
        s->arena = a;
        s->runs = (struct ax_arena_run *)((char *)a->runs_map + i * per_stack);
    }
    return AX_OK;
}

enum ax_status ax_arena_create_planning(struct ax_arena *a, int n_slots) {
    AX_TRY(create_stacks(a, n_slots));
    a->planning = true;
    for (size_t i = 0; i < count_stacks(a); i++) {
        struct ax_stack *s = stack_at(a, i);
        s->base = (char *)((i + 1) * PLANNING_SPACE); // NOLINT(performance-no-int-to-ptr)
        s->cap = SIZE_MAX;
    }
    return AX_OK;
}

static bool plan_is_aligned(const struct ax_arena_plan *plan) {
    size_t bits = plan->persistent | plan->host;
    for (int p = 0; p < AX_PHASE_COUNT; p++) {
        bits |= plan->scratch[p];
        for (int i = 0; i < plan->n_slots; i++)
            bits |= plan->slot[i][p];
    }
    return bits % AX_ARENA_ALIGN == 0;
}

static enum ax_status take(const struct ax_device *device, enum ax_tier tier, struct ax_memory *m,
                           size_t bytes) {
    if (bytes == 0)
        return AX_OK;
    device->allocate(m, tier, bytes);
    if (m->base == NULL) {
        char want[32];
        ax_format_bytes(want, sizeof(want), (double)bytes);
        return ax_error(AX_ERR_NOMEM,
                        "memory arena: the system refuses %s in one piece (is there a limit, "
                        "`ulimit -v`?). Use less memory: a smaller micro_batch_size or "
                        "sequence_len, or gradient_checkpointing.",
                        want);
    }
    POISON(m->base, bytes);
    return AX_OK;
}

enum ax_status ax_arena_create(struct ax_arena *a, const struct ax_arena_plan *plan,
                               const struct ax_device *device) {
    AX_ASSERT(plan_is_aligned(plan));
    AX_TRY(create_stacks(a, plan->n_slots));
    a->plan = *plan;
    a->device = device;
    enum ax_status st = take(device, AX_TIER_DEVICE, &a->memory, ax_arena_plan_total(plan));
    if (st == AX_OK)
        st = take(device, AX_TIER_HOST, &a->host_memory, plan->host);
    if (st != AX_OK) {
        ax_arena_free(a);
        return st;
    }
    a->persistent.base = a->memory.base;
    a->persistent.cap = plan->persistent;
    a->host.base = a->host_memory.base;
    a->host.cap = plan->host;
    ax_arena_enter(a, AX_PHASE_TRAIN);
    return AX_OK;
}

void ax_arena_populate(struct ax_arena *a) {
    if (!a->planning && a->device->populate && a->plan.persistent > 0)
        a->device->populate(&a->memory, a->plan.persistent);
}

static void give_back(const struct ax_device *device, enum ax_tier tier, struct ax_memory *m) {
    if (m->base == NULL)
        return;
    UNPOISON(m->base, m->bytes); /* the addresses may be reused */
    device->release(m, tier);
}

void ax_arena_free(struct ax_arena *a) {
    if (a == NULL)
        return;
    give_back(a->device, AX_TIER_DEVICE, &a->memory);
    give_back(a->device, AX_TIER_HOST, &a->host_memory);
    if (a->runs_map != NULL)
        munmap(a->runs_map, a->runs_bytes);
    ax_free(a->slots);
    memset(a, 0, sizeof(*a));
}

void ax_arena_measure(const struct ax_arena *a, struct ax_arena_plan *out) {
    memset(out, 0, sizeof(*out));
    out->n_slots = a->n_slots;
    for (int p = 0; p < AX_PHASE_COUNT; p++) {
        const size_t high = a->persistent.high[p], host = a->host.high[p];
        out->persistent = high > out->persistent ? high : out->persistent;
        out->host = host > out->host ? host : out->host;
        out->scratch[p] = a->scratch.high[p];
        for (int i = 0; i < a->n_slots; i++)
            out->slot[i][p] = a->slots[i].high[p];
    }
}

void ax_arena_enter(struct ax_arena *a, enum ax_phase phase) {
    AX_ASSERT(phase < AX_PHASE_COUNT && a->scratch.top == 0);
    a->phase = phase;
    char *at = (char *)a->memory.base + (a->planning ? 0 : a->plan.persistent);
    for (int i = -1; i < a->n_slots; i++) {
        struct ax_stack *s = i < 0 ? &a->scratch : &a->slots[i];
        AX_ASSERT(s->top == 0 && s->end == 0);
        if (!a->planning) {
            s->base = at;
            s->cap = i < 0 ? a->plan.scratch[phase] : a->plan.slot[i][phase];
            at += s->cap;
        }
    }
}

static int find_name(struct ax_stack *s, const char *name) {
    for (int i = 0; i < s->n_names; i++)
        if (strcmp(s->names[i].name, name) == 0)
            return i;
    AX_ASSERT(s->n_names < AX_ARENA_MAX_NAMES);
    s->names[s->n_names] = (struct ax_arena_name){.name = name};
    return s->n_names++;
}

static void add_run(struct ax_stack *s, int name, size_t bytes) {
    if (s->n_runs == 0 || s->runs[s->n_runs - 1].name != name) {
        AX_ASSERT(s->n_runs < AX_ARENA_MAX_RUNS);
        s->runs[s->n_runs++] = (struct ax_arena_run){.name = name};
    }
    s->runs[s->n_runs - 1].bytes += bytes;
    s->names[name].live += bytes;
}

static void note_high(struct ax_stack *s) {
    const size_t now = s->top + s->end;
    size_t *high = &s->high[s->arena->phase];
    *high = now > *high ? now : *high;
    if (now <= s->names_high)
        return;
    s->names_high = now;
    for (int i = 0; i < s->n_names; i++)
        s->names[i].at_peak = s->names[i].live;
}

void *ax_stack_push(struct ax_stack *s, const char *name, size_t bytes) {
    size_t rounded = round_up(bytes, AX_ARENA_ALIGN);
    AX_ASSERT(rounded <= s->cap - s->top - s->end);
    char *block = s->base + s->top;
    if (!s->arena->planning && bytes > 0)
        UNPOISON(block, bytes);
    add_run(s, find_name(s, name), rounded);
    s->top += rounded;
    note_high(s);
    return block;
}

struct ax_tensor ax_stack_take(struct ax_stack *s, const char *name, struct ax_tensor t) {
    t.data = ax_stack_push(s, name, ax_tensor_bytes(&t));
    t.range = NULL;
    return t;
}

/* Where a stack ends is not known while planning: its blocks are in the upper half of its space then. */
static char *from_end(const struct ax_stack *s) {
    return s->arena->planning ? s->base + PLANNING_SPACE / 2 + s->end : s->base + s->cap - s->end;
}

void *ax_stack_push_end(struct ax_stack *s, const char *name, size_t bytes) {
    const size_t rounded = round_up(bytes, AX_ARENA_ALIGN);
    const int of = find_name(s, name);
    AX_ASSERT(rounded <= s->cap - s->top - s->end && (s->end == 0 || s->end_name == of));
    s->end += rounded;
    s->end_name = of;
    s->names[of].live += rounded;
    note_high(s);
    char *block = from_end(s);
    if (!s->arena->planning && bytes > 0)
        UNPOISON(block, bytes);
    return block;
}

void ax_stack_release_end(struct ax_stack *s) {
    if (s->end == 0)
        return;
    if (!s->arena->planning)
        POISON(from_end(s), s->end);
    s->names[s->end_name].live -= s->end;
    s->end = 0;
}

/* A multiple of AX_ARENA_ALIGN, and below that how many marks were open. */
size_t ax_stack_mark(struct ax_stack *s) {
    return s->top | s->open++ % AX_ARENA_ALIGN;
}

static size_t close_mark(struct ax_stack *s, size_t mark) {
    if (mark == 0) {
        s->open = 0;
        return 0;
    }
    const size_t later = (s->open - 1 - mark) % AX_ARENA_ALIGN;
    AX_ASSERT(later == 0 || !ax_mem_is_guarded() || *ax_error_text());
    s->open -= 1 + later;
    return mark - mark % AX_ARENA_ALIGN;
}

void ax_stack_release(struct ax_stack *s, size_t mark) {
    mark = close_mark(s, mark);
    AX_ASSERT(mark <= s->top);
    if (!s->arena->planning && s->top > mark)
        POISON(s->base + mark, s->top - mark);
    while (s->top > mark) {
        struct ax_arena_run *run = &s->runs[s->n_runs - 1];
        size_t bytes = run->bytes < s->top - mark ? run->bytes : s->top - mark;
        run->bytes -= bytes;
        s->names[run->name].live -= bytes;
        s->top -= bytes;
        s->n_runs -= run->bytes == 0 ? 1 : 0;
    }
}
