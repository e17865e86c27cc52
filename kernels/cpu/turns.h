/* How threads divide the iterations of a loop: in turns. Each owns a range of iterations and
 * takes turns from its front, so that it reads neighboring memory and, from op to op, the same
 * half of a tensor. A thread that has finished its range takes turns from the others' ranges. A
 * turn is an eighth of what its range has left, at the end a single iteration: a thread that
 * another program keeps off its core delays only the turn that it holds. Each iteration runs
 * once; results may not depend on which thread ran it. */
#ifndef AX_KERNELS_CPU_TURNS_H
#define AX_KERNELS_CPU_TURNS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define AX_TURNS_RANGES 64 /* if there are more threads, several share a range */
#define AX_TURNS_PART   8  /* a turn is 1/8 of its range's remaining iterations, rounded up */

struct ax_turns {
    int64_t count;
    int ranges;
    struct {
        _Alignas(64) _Atomic int64_t next;
    } range[AX_TURNS_RANGES];
};

/* A thread's current turn: iterations `from` … `to` − 1 of `range`; it has `others` more ranges to
 * try. */
struct ax_turn {
    int64_t from, to;
    int range, others;
};

static inline int64_t ax_turns_first(const struct ax_turns *t, int range) {
    return t->count / t->ranges * range +
           (t->count % t->ranges < range ? t->count % t->ranges : range);
}

static inline void ax_turns_start(struct ax_turns *t, int64_t count, int threads) {
    t->count = count;
    t->ranges = threads < AX_TURNS_RANGES ? threads : AX_TURNS_RANGES;
    for (int r = 0; r < t->ranges; r++)
        atomic_init(&t->range[r].next, ax_turns_first(t, r));
}

/* Starts the turns of thread 0, 1, …; there may be more or fewer threads than ax_turns_start was
 * told. */
static inline struct ax_turn ax_turns_enter(const struct ax_turns *t, int thread) {
    return (struct ax_turn){.range = thread % t->ranges, .others = t->ranges - 1};
}

/* The thread's next turn, or false: all iterations are taken. */
static inline bool ax_turns_take(struct ax_turns *t, struct ax_turn *turn) {
    const int64_t part = t->ranges > 1 ? AX_TURNS_PART : 1;
    for (;;) {
        _Atomic int64_t *next = &t->range[turn->range].next;
        const int64_t end = ax_turns_first(t, turn->range + 1);
        int64_t at = atomic_load_explicit(next, memory_order_relaxed);
        while (at < end) {
            const int64_t to = at + (end - at + part - 1) / part;
            if (atomic_compare_exchange_weak_explicit(next, &at, to, memory_order_relaxed,
                                                      memory_order_relaxed)) {
                turn->from = at;
                turn->to = to;
                return true;
            }
        }
        if (turn->others-- == 0)
            return false;
        turn->range = (turn->range + 1) % t->ranges;
    }
}

/* Runs what follows for each iteration i that this thread takes. */
#define AX_TURNS_FOR(turns, thread, i)                                                             \
    for (struct ax_turn i##_turn = ax_turns_enter(turns, thread);                                  \
         ax_turns_take(turns, &i##_turn);)                                                         \
        for (int64_t i = i##_turn.from; i < i##_turn.to; i++)

#endif
