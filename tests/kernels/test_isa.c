/* The choice of an instruction set: the best that the processor has or the one that AXTRAIN_CPU names,
 * and a full op table for it. Each choice is made in a process of its own, because it is made
 * once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "isa.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/tile_check.h"

/* Every op of the list is in the table. */
static bool is_whole(const struct ax_ops *ops) {
    bool whole = ops->supports != NULL && ops->workspace != NULL;
#define HAS(op) whole = whole && ops->op != NULL;
    AX_OP_LIST(HAS)
#undef HAS
    return whole;
}

/* What a process with this AXTRAIN_CPU (NULL: unset) chooses; −1 if its table does not fit or there is
 * no error although the machine lacks the set; −2 if the error does not name it and `has`. */
static int choice(const char *name, bool fails, const char *has) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (name != NULL)
            setenv("AXTRAIN_CPU", name, 1);
        else
            unsetenv("AXTRAIN_CPU");
        enum ax_cpu_isa isa = ax_cpu_isa();
        const struct ax_ops *ops = ax_ops_cpu();
        bool fits = isa == AX_CPU_NONE ? ops == NULL : ops == ax_cpu_ops(isa) && is_whole(ops);
        fits = fits && ax_cpu_has_bf16() == (isa >= AX_CPU_AVX512BF16 && isa != AX_CPU_NEON);
        fits = fits && ax_cpu_check() == (fails ? AX_ERR_CONFIG : AX_OK);
        if (fits && fails && !(strstr(ax_error_text(), name) && strstr(ax_error_text(), has)))
            _exit(101);
        _exit(fits ? (int)isa : 100);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status) >= 100 ? 99 - WEXITSTATUS(status) : WEXITSTATUS(status);
}

static unsigned sets_here; /* bit i: this machine has set i */
static bool right_tiles;

/* In a process of its own, too. */
static int find_sets(void **state) {
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        unsigned sets = 0;
        for (enum ax_cpu_isa isa = AX_CPU_AVX2; isa < AX_CPU_ISAS; isa++)
            sets |= (unsigned)ax_cpu_has(isa) << isa;
        _exit((int)sets);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
        return 1;
    sets_here = (unsigned)WEXITSTATUS(status);
#if defined(__x86_64__)
    if (sets_here >> AX_CPU_AMX & 1) {
        child = fork();
        if (child == 0) /* permission for tiles comes with ax_cpu_has */
            _exit(
                ax_cpu_has(AX_CPU_AMX) &&
                ax_tile_products_agree(ax_cpu_tile_product_amx, ax_cpu_tile_product_amx_emulated));
        if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
            return 1;
        right_tiles = WEXITSTATUS(status) == 1;
    }
#endif
    return 0;
}

static bool here(enum ax_cpu_isa isa) {
    return (sets_here >> isa & 1) != 0;
}

#if defined(__x86_64__)
#define X86 1
#else
#define X86 0
#endif

/* By default: tiles only if they are right. */
static enum ax_cpu_isa best_here(void) {
    if (!X86)
        return AX_CPU_NEON;
    return here(AX_CPU_AMX) && right_tiles ? AX_CPU_AMX : (enum ax_cpu_isa)isas_here();
}

static void test_tiles_are_the_default_if_they_are_right(void **state) {
    (void)state;
    static const struct {
        enum ax_cpu_isa best;
        bool right;
        enum ax_cpu_isa standard;
    } cases[] = {
        {AX_CPU_AMX, true, AX_CPU_AMX},
        {AX_CPU_AMX, false, AX_CPU_AVX512BF16},
        {AX_CPU_AVX512BF16, false, AX_CPU_AVX512BF16},
        {AX_CPU_AVX512, false, AX_CPU_AVX512},
        {AX_CPU_AVX2, false, AX_CPU_AVX2},
        {AX_CPU_NONE, false, AX_CPU_NONE},
        {AX_CPU_NEON, false, AX_CPU_NEON},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(ax_cpu_standard_isa(cases[i].best, cases[i].right), cases[i].standard);
}

/* The compiler's own detection counts the same sets. */
static void test_detects(void **state) {
    (void)state;
    assert_int_equal(choice(NULL, false, ""), best_here());
    assert_int_equal(choice("", false, ""), best_here());
    for (enum ax_cpu_isa isa = AX_CPU_AVX2; isa <= AX_CPU_AVX512BF16; isa++)
        assert_int_equal(here(isa), X86 && (int)isa <= isas_here());
    assert_int_equal(here(AX_CPU_AMX_EMULATED), X86 && isas_here() >= AX_CPU_AVX512BF16);
    assert_int_equal(here(AX_CPU_NEON), !X86);
    assert_false(!X86 && here(AX_CPU_AMX));
}

static void test_chooses_what_the_machine_has(void **state) {
    (void)state;
    const char *name = !X86 ? "neon" : isas_here() > 0 ? "avx2" : "none";
    for (enum ax_cpu_isa isa = AX_CPU_AVX2; isa < AX_CPU_ISAS; isa++)
        if (here(isa))
            assert_int_equal(choice(ax_cpu_isa_name(isa), false, ""), isa);
        else
            assert_int_equal(choice(ax_cpu_isa_name(isa), true, name), best_here());
}

static void test_unknown_names_are_errors(void **state) {
    (void)state;
    const char *name = ax_cpu_isa_name(best_here());
    assert_int_equal(choice("AVX2", true, name), best_here());
    assert_int_equal(choice("none", true, name), best_here());
    assert_int_equal(choice("avx512 ", true, name), best_here());
}

/* Intel multiplies pairs of BF16 slower than float32 unless it has tiles; what is not in the table is
 * not faster. */
static void test_bf16_only_where_it_is_faster(void **state) {
    (void)state;
    static const struct {
        const char *vendor;
        enum ax_cpu_isa isa;
        bool faster;
    } cases[] = {
        {"AuthenticAMD", AX_CPU_AVX512BF16, true}, {"GenuineIntel", AX_CPU_AVX512BF16, false},
        {"GenuineIntel", AX_CPU_AMX, true},        {"AuthenticAMD", AX_CPU_AVX512, false},
        {"AuthenticAMD", AX_CPU_AVX2, false},      {"", AX_CPU_AVX512BF16, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(ax_cpu_bf16_is_faster(cases[i].vendor, cases[i].isa), cases[i].faster);
#if defined(__x86_64__)
    /* this machine's vendor, read another way */
    const char *vendor = __builtin_cpu_is("amd")     ? "AuthenticAMD"
                         : __builtin_cpu_is("intel") ? "GenuineIntel"
                                                     : "";
#else
    const char *vendor = "";
#endif
    for (enum ax_cpu_isa isa = AX_CPU_AVX2; isa < AX_CPU_ISAS; isa++)
        assert_int_equal(ax_cpu_prefers_bf16(isa), ax_cpu_bf16_is_faster(vendor, isa));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_detects),
        cmocka_unit_test(test_tiles_are_the_default_if_they_are_right),
        cmocka_unit_test(test_chooses_what_the_machine_has),
        cmocka_unit_test(test_unknown_names_are_errors),
        cmocka_unit_test(test_bf16_only_where_it_is_faster),
    };
    return cmocka_run_group_tests(tests, find_sets, NULL);
}
