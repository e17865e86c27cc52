/* The choice of an instruction set: what the processor has, lowered but never raised by
 * AXTRAIN_CPU, and a whole op table for it. Each choice is made in a process of its own, because it
 * is made once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "isa.h"
#include "kernels/cpu/isa.h"

static enum ax_cpu_isa least_isa(enum ax_cpu_isa a, enum ax_cpu_isa b) {
    return a < b ? a : b;
}

/* Every op of the list is in the table. */
static bool is_whole(const struct ax_ops *ops) {
    bool whole = ops->supports != NULL && ops->workspace != NULL;
#define HAS(op) whole = whole && ops->op != NULL;
    AX_OP_LIST(HAS)
#undef HAS
    return whole;
}

/* What a process with this AXTRAIN_CPU (NULL: unset) chooses; −1 if its table does not fit. */
static int choice(const char *mask) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (mask != NULL)
            setenv("AXTRAIN_CPU", mask, 1);
        else
            unsetenv("AXTRAIN_CPU");
        enum ax_cpu_isa isa = ax_cpu_isa();
        const struct ax_ops *ops = ax_ops_cpu();
        bool fits = isa == AX_CPU_NONE ? ops == NULL : ops != NULL && is_whole(ops);
        fits = fits && ax_cpu_has_bf16() == (isa == AX_CPU_AVX512BF16);
        _exit(fits ? (int)isa : 100);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status) == 100 ? -1 : WEXITSTATUS(status);
}

/* The compiler's own detection counts the same sets. */
static void test_detects(void **state) {
    (void)state;
    assert_int_equal(choice(NULL), isas_here());
    assert_int_equal(choice(""), isas_here());
}

static void test_mask_only_lowers(void **state) {
    (void)state;
    enum ax_cpu_isa here = (enum ax_cpu_isa)isas_here();
    for (enum ax_cpu_isa isa = AX_CPU_AVX2; isa <= AX_CPU_AVX512BF16; isa++)
        assert_int_equal(choice(ax_cpu_isa_name(isa)), least_isa(isa, here));
}

static void test_unknown_mask_changes_nothing(void **state) {
    (void)state;
    assert_int_equal(choice("AVX2"), isas_here());
    assert_int_equal(choice("none"), isas_here());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_detects),
        cmocka_unit_test(test_mask_only_lowers),
        cmocka_unit_test(test_unknown_mask_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
