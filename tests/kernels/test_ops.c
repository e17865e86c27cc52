/* Every op on every shape and dtype: the cpu backend against ref; nothing written that is not an
 * output; the same bits for any number of threads; no more workspace than was asked for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "kernels/cpu/isa.h"
#include "tests/kernels/harness.h"
#include "tests/skip.h"

#define MOST_THREADS 5
#define BEHIND       65536 /* bytes */

static struct machine ref, cpu, by_threads[MOST_THREADS];

/* Bytes after what the op asks for: one that uses more than it asks for gives wrong results without a word. */
static unsigned char *fill_behind_workspace(const struct ax_case *c) {
    struct ax_queue *q = cpu.q;
    const struct ax_ops *ops = q->ops->supports(q, c->op, c->args) ? q->ops : q->fallback;
    const size_t asked = ops->workspace ? ops->workspace(q, c->op, c->args) : 0;
    unsigned char *behind =
        (unsigned char *)q->scratch->base + q->scratch->top + ax_arena_round(asked);
    memset(behind, 0x3c, BEHIND);
    return behind;
}

static void compare_with_reference(enum ax_op op, const struct ax_shape *shape,
                                   enum ax_dtype dtype) {
    struct ax_case got, want;
    case_open(&got, op, shape, dtype, &ref);
    case_open(&want, op, shape, dtype, &ref);
    const unsigned char *behind = fill_behind_workspace(&got);
    case_run(&got, &cpu);
    case_run(&want, &ref);
    for (size_t i = 0; i < BEHIND; i++)
        if (behind[i] != 0x3c)
            fail_msg("%s \"%s\" %s: wrote %zu bytes behind its workspace", ax_op_name(op),
                     shape->name, ax_dtype_info(dtype)->name, i);
    compare_outputs(&got, &want);
    ax_case_free(&got);
    ax_case_free(&want);
}

static void cpu_agrees_with_ref(void **state) {
    (void)state;
    if (!have_cpu())
        skip_because("hardware, AVX2");
    for_each_case(false, compare_with_reference);
}

/* Clears, in a byte map of the case's memory, the operands that are used so (in, out, or any). */
static void clear_operands(const struct ax_case *c, unsigned use, unsigned char *guarded) {
    for (const struct ax_operand *o = ax_op_operands(c->op); o->name != NULL; o++) {
        const struct ax_tensor *t = ax_operand_tensor(o, c->args);
        if ((o->use & use) == 0 || t->data == NULL)
            continue;
        size_t row = (size_t)ax_tensor_row_len(t) * ax_dtype_size(t->dtype);
        for (int64_t r = 0; r < t->shape[0]; r++)
            memset(guarded + ((char *)ax_tensor_row(t, r) - c->memory), 0, row);
    }
    memset(guarded, 0, sizeof *c->step);
}

static void check_only_outputs_change(struct machine *m, enum ax_op op,
                                      const struct ax_shape *shape, enum ax_dtype dtype) {
    struct ax_case c;
    case_open(&c, op, shape, dtype, &ref);
    unsigned char *guarded;
    char *before;
    assert_int_equal(ax_alloc(&guarded, c.bytes, 1), AX_OK);
    assert_int_equal(ax_alloc(&before, c.bytes, 1), AX_OK);
    memset(guarded, 1, c.bytes);
    clear_operands(&c, AX_OPERAND_IN | AX_OPERAND_OUT, guarded);
    for (size_t i = 0; i < c.bytes; i++) /* numbers between them: of NaNs, a sum is the same NaN */
        if (guarded[i])
            c.memory[i] = 0x3c;
    memset(guarded, 1, c.bytes);
    memcpy(before, c.memory, c.bytes);
    clear_operands(&c, AX_OPERAND_OUT, guarded);
    case_run(&c, m);
    for (size_t i = 0; i < c.bytes; i++) {
        if (guarded[i] && c.memory[i] != before[i]) {
            fail_msg("%s \"%s\" %s on %s: wrote byte %zu of %zu, which is no output",
                     ax_op_name(op), shape->name, ax_dtype_info(dtype)->name, m->q->ops->name, i,
                     c.bytes);
        }
    }
    ax_free(guarded);
    ax_free(before);
    ax_case_free(&c);
}

static void check_writes(enum ax_op op, const struct ax_shape *shape, enum ax_dtype dtype) {
    check_only_outputs_change(&ref, op, shape, dtype);
    if (have_cpu())
        check_only_outputs_change(&cpu, op, shape, dtype);
}

static void only_outputs_are_written(void **state) {
    (void)state;
    for_each_case(false, check_writes);
}

/* Outputs start as NaN, so an element that was forgotten shows (argmax's index starts as −1). */
static void check_all_written(enum ax_op op, const struct ax_shape *shape, enum ax_dtype dtype) {
    struct ax_case c;
    case_open(&c, op, shape, dtype, &ref);
    case_run(&c, &ref);
    const unsigned some = AX_SHAPE_SKIP | AX_SHAPE_PADDING | AX_SHAPE_NAN;
    const bool partial = (shape->flags & some) != 0;
    for (const struct ax_operand *o = ax_op_operands(op); o->name != NULL && !partial; o++) {
        const struct ax_tensor *t = ax_operand_tensor(o, c.args);
        const bool full = (o->use & AX_OPERAND_OUT) != 0 && (o->flags & AX_OPERAND_SOME) == 0;
        for (int64_t i = 0; t->data != NULL && i < ax_tensor_numel(t); i++) {
            double x = element(t, i);
            if (full && (isnan(x) || (t->dtype == AX_I32 && x < 0))) {
                fail_msg("%s \"%s\": %s[%lld] was not written", ax_op_name(op), shape->name,
                         o->name, (long long)i);
            }
        }
    }
    ax_case_free(&c);
}

static void ref_writes_every_output(void **state) {
    (void)state;
    for_each_case(false, check_all_written);
}

static void check_threads(enum ax_op op, const struct ax_shape *shape, enum ax_dtype dtype) {
    struct ax_case c[MOST_THREADS];
    for (int i = 0; i < MOST_THREADS; i++) {
        case_open(&c[i], op, shape, dtype, &ref);
        case_run(&c[i], &by_threads[i]);
        if (memcmp(c[i].memory, c[0].memory, c[0].bytes) != 0) {
            fail_msg("%s \"%s\" %s: %d threads give other bits than one", ax_op_name(op),
                     shape->name, ax_dtype_info(dtype)->name, i + 1);
        }
    }
    for (int i = 0; i < MOST_THREADS; i++)
        ax_case_free(&c[i]);
}

static void threads_do_not_change_bits(void **state) {
    (void)state;
    if (!have_cpu())
        skip_because("hardware, AVX2");
    for_each_case(false, check_threads);
}

static void check_float32(enum ax_op op, const struct ax_shape *shape, enum ax_dtype dtype) {
    struct ax_case c;
    case_open(&c, op, shape, dtype, &ref);
    const size_t without = ax_cpu_ops(AX_CPU_AVX512BF16)->workspace(by_threads[1].q, op, c.args);
    const size_t with = ax_cpu_ops(AX_CPU_AMX_EMULATED)->workspace(by_threads[1].q, op, c.args);
    if (dtype == AX_F32 && with != without)
        fail_msg(
            "%s \"%s\": %zu bytes of workspace, and %zu with tiles, which float32 does not use",
            ax_op_name(op), shape->name, without, with);
    ax_case_free(&c);
}

static void tiles_leave_float32_to_the_set_without(void **state) {
    (void)state;
    if (!ax_cpu_has(AX_CPU_AVX512BF16))
        skip_because("hardware, AVX-512 with BF16");
    for_each_case(false, check_float32);
}

static int open_machines(void **state) {
    (void)state;
    machine_open(&ref, "ref", 1);
    if (have_cpu()) {
        machine_open(&cpu, "cpu", 1);
        for (int i = 0; i < MOST_THREADS; i++)
            machine_open(&by_threads[i], "cpu", i + 1);
    }
    return 0;
}

static int close_machines(void **state) {
    (void)state;
    machine_close(&ref);
    if (have_cpu()) {
        machine_close(&cpu);
        for (int i = 0; i < MOST_THREADS; i++)
            machine_close(&by_threads[i]);
    }
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ref_writes_every_output),
        cmocka_unit_test(only_outputs_are_written),
        cmocka_unit_test(cpu_agrees_with_ref),
        cmocka_unit_test(threads_do_not_change_bits),
        cmocka_unit_test(tiles_leave_float32_to_the_set_without),
    };
    return cmocka_run_group_tests(tests, open_machines, close_machines);
}
