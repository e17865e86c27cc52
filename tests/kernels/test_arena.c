/* Arenas: plan and reality agree to the byte and to the offset; phases share addresses; marks,
 * names and peaks; memory that was released is off limits under AddressSanitizer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "kernels/arena.h"
#include "tests/skip.h"

#if defined(__SANITIZE_ADDRESS__)
#define HAVE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAVE_ASAN 1
#endif
#endif
#ifndef HAVE_ASAN
#define HAVE_ASAN 0
#endif

#define MAX_BLOCKS 16

/* Where blocks came to lie, as offsets within their stacks. */
struct trace {
    int n;
    size_t offset[MAX_BLOCKS];
    char *address[MAX_BLOCKS];
};

static void push(struct trace *t, struct ax_stack *s, const char *name, size_t bytes) {
    char *p = ax_stack_push(s, name, bytes);
    assert_true(t->n < MAX_BLOCKS);
    assert_int_equal((uintptr_t)p % AX_ARENA_ALIGN, 0);
    t->address[t->n] = p;
    t->offset[t->n++] = (size_t)(p - s->base);
}

/* Persistent blocks, then a train phase and a save phase. */
static void life(struct ax_arena *a, struct trace *t) {
    t->n = 0;
    push(t, &a->persistent, "weights", 1000);
    push(t, &a->persistent, "gradients", 4000);
    ax_arena_enter(a, AX_PHASE_TRAIN);
    push(t, &a->slots[0], "layer input", 100);
    push(t, &a->slots[0], "q", 1);
    push(t, &a->slots[1], "layer input", 300);
    size_t mark = ax_stack_mark(&a->scratch);
    push(t, &a->scratch, "workspace", 5000);
    ax_stack_release(&a->scratch, mark);
    mark = ax_stack_mark(&a->scratch);
    push(t, &a->scratch, "logits", 200);
    push(t, &a->scratch, "workspace", 64);
    ax_stack_release(&a->scratch, mark);
    ax_stack_release(&a->slots[0], 0);
    ax_stack_release(&a->slots[1], 0);
    ax_arena_enter(a, AX_PHASE_SAVE);
    push(t, &a->scratch, "buffer", 7777);
    ax_stack_release(&a->scratch, 0);
    ax_arena_enter(a, AX_PHASE_TRAIN);
}

static void plan_and_reality_agree(void **state) {
    (void)state;
    struct ax_arena planning, real;
    struct ax_arena_plan plan, again;
    struct trace t1, t2;
    assert_int_equal(ax_arena_create_planning(&planning, 2), AX_OK);
    life(&planning, &t1);
    ax_arena_measure(&planning, &plan);
    assert_int_equal(plan.persistent, 1024 + 4032);
    assert_int_equal(plan.scratch[AX_PHASE_TRAIN], 5056);
    assert_int_equal(plan.scratch[AX_PHASE_SAVE], 7808);
    assert_int_equal(plan.slot[0][AX_PHASE_TRAIN], 128 + 64);
    assert_int_equal(plan.slot[1][AX_PHASE_TRAIN], 320);
    assert_int_equal(plan.slot[0][AX_PHASE_SAVE], 0);
    assert_int_equal(ax_arena_plan_phase(&plan, AX_PHASE_TRAIN), 5056 + 192 + 320);
    assert_int_equal(ax_arena_plan_phase(&plan, AX_PHASE_EVAL), 0);
    assert_int_equal(ax_arena_plan_total(&plan), 5056 + 7808);

    assert_int_equal(ax_arena_create(&real, &plan, &ax_device_host), AX_OK);
    assert_int_equal(real.memory.bytes, ax_arena_plan_total(&plan));
    life(&real, &t2);
    ax_arena_measure(&real, &again);
    assert_memory_equal(&plan, &again, sizeof(plan));
    assert_int_equal(t1.n, t2.n);
    assert_memory_equal(t1.offset, t2.offset, (size_t)t1.n * sizeof(t1.offset[0]));
    ax_arena_free(&planning);
    ax_arena_free(&real);
}

/* [persistent | scratch | slot 0 | slot 1] */
static void addresses_follow_from_the_plan(void **state) {
    (void)state;
    struct ax_arena_plan plan = {
        .persistent = 128, .scratch = {[AX_PHASE_TRAIN] = 256, [AX_PHASE_EVAL] = 64}, .n_slots = 2};
    plan.slot[0][AX_PHASE_TRAIN] = 192;
    plan.slot[1][AX_PHASE_TRAIN] = 64;
    plan.slot[0][AX_PHASE_EVAL] = 64;
    struct ax_arena a;
    assert_int_equal(ax_arena_create(&a, &plan, &ax_device_host), AX_OK);
    char *map = a.memory.base;
    assert_ptr_equal(a.persistent.base, map);
    assert_ptr_equal(a.scratch.base, map + 128);
    assert_ptr_equal(a.slots[0].base, map + 128 + 256);
    assert_ptr_equal(a.slots[1].base, map + 128 + 256 + 192);
    ax_arena_enter(&a, AX_PHASE_EVAL);
    assert_ptr_equal(a.scratch.base, map + 128);
    assert_int_equal(a.scratch.cap, 64);
    assert_ptr_equal(a.slots[0].base, map + 128 + 64);
    assert_int_equal(a.slots[1].cap, 0);
    ax_arena_free(&a);
}

static const struct ax_arena_name *named(const struct ax_stack *s, const char *name) {
    for (int i = 0; i < s->n_names; i++)
        if (strcmp(s->names[i].name, name) == 0)
            return &s->names[i];
    fail_msg("no block is called %s", name);
    return NULL;
}

static void names_count_bytes_now_and_at_the_peak(void **state) {
    (void)state;
    struct ax_arena a;
    assert_int_equal(ax_arena_create_planning(&a, 1), AX_OK);
    struct ax_stack *s = &a.slots[0];
    char same_text[] = "x"; /* another address: names are equal by content */
    ax_stack_push(s, "x", 64);
    ax_stack_push(s, same_text, 64);
    size_t mark = ax_stack_mark(s);
    ax_stack_push(s, "x", 64);
    ax_stack_push(s, "y", 640);
    assert_int_equal(s->n_names, 2);
    assert_int_equal(named(s, "x")->live, 192);
    ax_stack_release(s, mark); /* in the middle of a run of x */
    assert_int_equal(named(s, "x")->live, 128);
    assert_int_equal(named(s, "y")->live, 0);
    mark = ax_stack_mark(s);
    ax_stack_push(s, "z", 6400);
    ax_stack_release(s, mark);
    ax_stack_push(s, "y", 64);
    assert_int_equal(named(s, "x")->at_peak, 128);
    assert_int_equal(named(s, "y")->at_peak, 0);
    assert_int_equal(named(s, "z")->at_peak, 6400);
    assert_int_equal(named(s, "y")->live, 64);
    ax_stack_release(s, 0);
    for (int i = 0; i < s->n_names; i++)
        assert_int_equal(s->names[i].live, 0);
    ax_arena_free(&a);
}

/* What a stack releases at its top, its end may take: the high-water mark is of both. */
static void a_stack_fills_from_both_ends(void **state) {
    (void)state;
    struct ax_arena a;
    struct ax_arena_plan plan = {0};
    for (int run = 0; run < 2; run++) {
        assert_int_equal(run == 0 ? ax_arena_create_planning(&a, 1)
                                  : ax_arena_create(&a, &plan, &ax_device_host),
                         AX_OK);
        ax_arena_enter(&a, AX_PHASE_TRAIN);
        struct ax_stack *s = &a.slots[0];
        char *low = ax_stack_push(s, "low", 100);
        const size_t mark = ax_stack_mark(s);
        char *more = ax_stack_push(s, "low", 256);
        char *high = ax_stack_push_end(s, "high", 60); /* 128 + 256 + 64 */
        ax_stack_release(s, mark);
        char *lower = ax_stack_push_end(s, "high", 200); /* 128 + 320 */
        assert_true(low < more && lower != high);
        assert_int_equal(named(s, "high")->live, 64 + 256);
        if (run == 1) {
            memset(low, 1, 100);
            memset(high, 2, 60);
            memset(lower, 3, 200);
            assert_ptr_equal(high, s->base + s->cap - 64);
            assert_ptr_equal(lower, high - 256);
            assert_true(low[99] == 1 && high[0] == 2 && high[59] == 2 && lower[199] == 3);
            assert_memory_equal(plan.slot, a.plan.slot, sizeof plan.slot);
        }
        ax_stack_release_end(s);
        ax_stack_release(s, 0);
        assert_int_equal(named(s, "high")->live, 0);
        ax_arena_measure(&a, &plan);
        assert_int_equal(plan.slot[0][AX_PHASE_TRAIN], 128 + 64 + 256);
        ax_arena_free(&a);
    }
}

static void many_blocks(void **state) {
    (void)state;
    static const char *const names[] = {"a", "b", "c"};
    struct ax_arena a;
    assert_int_equal(ax_arena_create_planning(&a, 0), AX_OK);
    ax_stack_push(&a.scratch, "a", 64);
    const size_t mark = ax_stack_mark(&a.scratch);
    for (int i = 1; i < 100000; i++)
        ax_stack_push(&a.scratch, names[i % 3], 64);
    assert_int_equal(a.scratch.top, 6400000);
    ax_stack_release(&a.scratch, mark);
    assert_int_equal(named(&a.scratch, "a")->live, 64);
    assert_int_equal(named(&a.scratch, "b")->live, 0);
    ax_arena_free(&a);
}

/* Bytes of a mapping that are in memory, as the kernel counts. */
static size_t resident(const void *map, size_t bytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = bytes / page;
    unsigned char *in = malloc(pages);
    size_t n = 0;
    assert_non_null(in);
    assert_int_equal(mincore((void *)(uintptr_t)map, bytes, in), 0);
    for (size_t i = 0; i < pages; i++)
        n += in[i] & 1;
    free(in);
    return n * page;
}

/* A large arena is aligned for huge pages, zero, and only what is touched becomes memory. */
static void large_arenas_are_lazy(void **state) {
    (void)state;
    const size_t huge = (size_t)2 << 20;
    struct rlimit space, data;
    assert_int_equal(getrlimit(RLIMIT_AS, &space), 0);
    assert_int_equal(getrlimit(RLIMIT_DATA, &data), 0);
    const bool any = space.rlim_cur == RLIM_INFINITY && data.rlim_cur == RLIM_INFINITY;
    const size_t most = (size_t)(any ? 64 : 4) << 30;
    const size_t bytes = HAVE_ASAN ? 16 * huge : most; /* AddressSanitizer's shadow is not lazy */
    struct ax_arena_plan plan = {.persistent = bytes};
    struct ax_arena a;
    assert_int_equal(ax_arena_create(&a, &plan, &ax_device_host), AX_OK);
    assert_int_equal((uintptr_t)a.memory.base % huge, 0);
    char *p = ax_stack_push(&a.persistent, "weights", bytes);
    assert_int_equal(resident(a.memory.base, bytes), 0);
    assert_int_equal(p[0], 0);
    assert_int_equal(p[bytes - 1], 0);
    p[bytes / 2] = 1;
    assert_in_range(resident(a.memory.base, bytes), 1, 3 * huge);
    ax_arena_free(&a);
}

static void wait_for_memory(const struct ax_arena *a, size_t bytes) {
    for (int tries = 0; tries < 1000 && resident(a->memory.base, bytes) < bytes; tries++)
        usleep(10000);
    assert_int_equal(resident(a->memory.base, bytes), bytes);
}

/* Linux since 5.14; qemu says it did and does nothing. */
static bool can_populate(void) {
    void *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(p, MAP_FAILED);
    (void)madvise(p, 4096, MADV_POPULATE_WRITE);
    const bool did = resident(p, 4096) > 0;
    munmap(p, 4096);
    return did;
}

/* The persistent stack's memory is taken in the background and nothing else; what is written meanwhile
 * stays; freeing does not wait for all of it. */
static void memory_is_taken_early(void **state) {
    (void)state;
    const size_t bytes = 48 << 20;
    const struct ax_arena_plan plan = {
        .persistent = bytes, .scratch = {[AX_PHASE_TRAIN] = bytes}, .n_slots = 1};
    struct ax_arena a;
    if (!can_populate())
        skip_because("kernel, MADV_POPULATE_WRITE");
    for (int writes = 0; writes < 2; writes++) {
        assert_int_equal(ax_arena_create(&a, &plan, &ax_device_host), AX_OK);
        assert_int_equal(resident(a.memory.base, 2 * bytes), 0);
        ax_arena_populate(&a);
        char *data = ax_stack_push(&a.persistent, "all", bytes);
        for (size_t i = 0; i < bytes && writes; i += 4096)
            data[i] = 'x';
        wait_for_memory(&a, bytes); /* that nobody has touched, if nobody writes */
        assert_true(resident(a.memory.base, 2 * bytes) <=
                    bytes + (2 << 20)); /* a page may be a large one */
        for (size_t i = 0; i < bytes; i += 4096)
            assert_int_equal(data[i], writes ? 'x' : 0);
        ax_arena_free(&a);
    }
    assert_int_equal(
        ax_arena_create(&a, &(struct ax_arena_plan){.persistent = (size_t)8 << 30, .n_slots = 1},
                        &ax_device_host),
        AX_OK);
    ax_arena_populate(&a);
    ax_arena_free(&a);

    ax_arena_create_planning(&a, 1);
    ax_arena_populate(&a);
    ax_arena_free(&a);
}

static void refusal_says_how_much(void **state) {
    (void)state;
    struct ax_arena_plan plan = {.persistent = (size_t)1 << 60};
    struct ax_arena a;
    assert_int_equal(ax_arena_create(&a, &plan, &ax_device_host), AX_ERR_NOMEM);
    assert_non_null(strstr(ax_error_text(), "1.00 EiB"));
    ax_arena_free(&a); /* harmless after a failure */
}

/* Without address space for its records it leaves nothing behind. (AddressSanitizer needs some itself.) */
static void records_need_address_space(void **state) {
    (void)state;
    struct ax_arena a;
    struct rlimit space, none;
    const uint64_t live = ax_mem_live_blocks();
    assert_int_equal(getrlimit(RLIMIT_AS, &space), 0);
    none = space;
    none.rlim_cur = 0;
    free(malloc(1 << 16)); /* the heap has enough for the rest */
    assert_int_equal(setrlimit(RLIMIT_AS, &none), 0);
    assert_int_equal(getrlimit(RLIMIT_AS, &none), 0);
    if (none.rlim_cur != 0) /* qemu does not keep them */
        skip_because("kernel, limits of address space");
    const enum ax_status st = ax_arena_create_planning(&a, 2);
    assert_int_equal(setrlimit(RLIMIT_AS, &space), 0);
    assert_int_equal(st, AX_ERR_NOMEM);
    assert_string_equal(ax_error_text(), "memory arena: no address space for its records.");
    assert_int_equal(ax_mem_live_blocks(), live);
    ax_arena_free(&a);
}

static void empty_plan(void **state) {
    (void)state;
    struct ax_arena_plan plan = {0};
    struct ax_arena a;
    assert_int_equal(ax_arena_create(&a, &plan, &ax_device_host), AX_OK);
    assert_int_equal(a.memory.bytes, 0);
    ax_stack_push(&a.scratch, "nothing", 0);
    assert_int_equal(a.scratch.top, 0);
    ax_stack_release(&a.scratch, 0);
    ax_arena_free(&a);
}

/* Runs `bug` in a child, whose output goes nowhere: it must not end well. */
static void expect_death(void (*bug)(struct ax_arena *)) {
    struct ax_arena_plan plan = {.persistent = 64, .scratch = {[AX_PHASE_TRAIN] = 256}};
    pid_t child = fork();
    if (child == 0) {
        struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        if (freopen("/dev/null", "w", stderr) == NULL)
            _exit(0);
        struct ax_arena a;
        if (ax_arena_create(&a, &plan, &ax_device_host) != AX_OK)
            _exit(0);
        bug(&a);
        _exit(0);
    }
    int status = 0;
    assert_true(child > 0 && waitpid(child, &status, 0) == child);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void push_too_much(struct ax_arena *a) {
    ax_stack_push(&a->scratch, "x", 192);
    ax_stack_push(&a->scratch, "x", 65);
}

static void push_endless(struct ax_arena *a) {
    ax_stack_push(&a->scratch, "x", SIZE_MAX - 3);
}

static void enter_while_busy(struct ax_arena *a) {
    ax_stack_push(&a->scratch, "x", 1);
    ax_arena_enter(a, AX_PHASE_EVAL);
}

static void release_upwards(struct ax_arena *a) {
    ax_stack_release(&a->scratch, 64);
}

static void beyond_the_plan_is_a_bug(void **state) {
    (void)state;
    expect_death(push_too_much);
    expect_death(push_endless);
    expect_death(enter_while_busy);
    expect_death(release_upwards);
}

static void leave_a_mark(struct ax_arena *a) {
    const size_t mark = (ax_stack_push(&a->scratch, "x", 64), ax_stack_mark(&a->scratch));
    (void)ax_stack_mark(&a->scratch);
    ax_stack_release(&a->scratch, mark);
}

static void release_twice(struct ax_arena *a) {
    const size_t mark = (ax_stack_push(&a->scratch, "x", 64), ax_stack_mark(&a->scratch));
    ax_stack_release(&a->scratch, mark);
    ax_stack_release(&a->scratch, mark);
}

/* An error leaves marks as they are, and the next one begins in order. */
static void marks_are_released_in_order(void **state) {
    (void)state;
    struct ax_arena a;
    ax_error_clear();
    expect_death(leave_a_mark);
    expect_death(release_twice);
    assert_int_equal(ax_arena_create_planning(&a, 0), AX_OK);
    for (int i = 0; i < 100; i++) {
        ax_stack_push(&a.scratch, "x", 64);
        const size_t mark = ax_stack_mark(&a.scratch);
        for (int k = 0; k < i; k++)
            (void)ax_stack_mark(&a.scratch);
        (void)ax_error(AX_ERR_IO, "cut short");
        ax_stack_release(&a.scratch, mark);
        ax_error_clear();
        ax_stack_release(&a.scratch, ax_stack_mark(&a.scratch));
        assert_int_equal(a.scratch.top, 64 * (i + 1));
    }
    ax_arena_free(&a);
}

static void use_after_release(struct ax_arena *a) {
    volatile char *p = ax_stack_push(&a->scratch, "x", 64);
    ax_stack_release(&a->scratch, 0);
    p[3] = 1;
}

static void use_beyond_block(struct ax_arena *a) {
    volatile char *p = ax_stack_push(&a->scratch, "x", 50);
    ax_stack_push(&a->scratch, "y", 64);
    p[50] = 1;
}

static void stale_memory_is_off_limits(void **state) {
    (void)state;
    expect_death(use_after_release);
    expect_death(use_beyond_block);
}

int main(void) {
    setenv("AX_CHECK_MEMORY", "1", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_and_reality_agree),
        cmocka_unit_test(addresses_follow_from_the_plan),
        cmocka_unit_test(names_count_bytes_now_and_at_the_peak),
        cmocka_unit_test(a_stack_fills_from_both_ends),
        cmocka_unit_test(many_blocks),
        cmocka_unit_test(large_arenas_are_lazy),
        cmocka_unit_test(memory_is_taken_early),
        cmocka_unit_test(refusal_says_how_much),
        unit_test_if(!HAVE_ASAN, records_need_address_space),
        cmocka_unit_test(empty_plan),
        cmocka_unit_test(beyond_the_plan_is_a_bug),
        unit_test_if(!HAVE_ASAN, marks_are_released_in_order),
        unit_test_if(HAVE_ASAN, stale_memory_is_off_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
