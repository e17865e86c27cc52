/* Every instruction set of this machine, chosen by AXTRAIN_CPU: golden files hold, `env` names it,
 * and what the machine lacks is an error. And threads without work do not spin for long. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/cpu/isa.h"
#include "program_case.h"
#include "tests/golden_files.h"
#include "tests/skip.h"

static char said[1 << 16];

static void golden_files_hold_with_every_set(void **state) {
    (void)state;
    const char *model = golden_path("models/llama");
    for (enum ax_cpu_isa isa = AX_CPU_AVX2; isa < AX_CPU_ISAS; isa++) {
        if (!ax_cpu_has(isa)) {
            print_message("this machine has no %s\n", ax_cpu_isa_name(isa));
            continue;
        }
        setenv("AXTRAIN_CPU", ax_cpu_isa_name(isa), 1);
        const int code =
            run_beside(said, sizeof said, "tests/goldens/replay", "'%s' --dtype bfloat16", model);
        if (code != 0)
            fail_msg("%s: %s", ax_cpu_isa_name(isa), said);
        assert_non_null(strstr(said, " ok "));
    }
}

static void env_names_the_set(void **state) {
    (void)state;
    for (enum ax_cpu_isa isa = AX_CPU_AVX2; isa < AX_CPU_ISAS; isa++) {
        if (!ax_cpu_has(isa))
            continue;
        char line[64];
        snprintf(line, sizeof line, "instruction_set    %s\n", ax_cpu_isa_name(isa));
        setenv("AXTRAIN_CPU", ax_cpu_isa_name(isa), 1);
        assert_int_equal(run(said, sizeof said, "env"), 0);
        assert_non_null(strstr(said, line));
    }
}

/* As the kernel's own count of pages. */
static void env_names_the_memory(void **state) {
    (void)state;
    unsetenv("AXTRAIN_CPU");
    assert_int_equal(run(said, sizeof said, "env"), 0);
    const double bytes = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    const char *line = strstr(said, "\nmemory             ");
    assert_non_null(line);
    char *unit;
    const double told = strtod(line + 20, &unit);
    assert_true(strncmp(unit, " GiB\n", 5) == 0 || strncmp(unit, " MiB\n", 5) == 0);
    assert_true(fabs(told * (unit[1] == 'G' ? 1 << 30 : 1 << 20) / bytes - 1) < 0.02);
}

static void a_set_that_the_machine_lacks_is_an_error(void **state) {
    (void)state;
    const char *lacks = ax_cpu_has(AX_CPU_AMX) ? "sse9" : "amx";
    setenv("AXTRAIN_CPU", lacks, 1);
    assert_int_equal(run(said, sizeof said, "env"), 2);
    assert_non_null(strstr(said, "AXTRAIN_CPU: expected an instruction set of this machine ("));
    assert_non_null(strstr(said, ax_cpu_has(AX_CPU_NEON)   ? "(neon)"
                                 : ax_cpu_has(AX_CPU_AVX2) ? "(avx2"
                                                           : "(none)"));
    char got[16];
    snprintf(got, sizeof got, "got \"%s\"", lacks);
    assert_non_null(strstr(said, got));
    assert_int_equal(run(said, sizeof said, "env --help"), 0);
}

/* Only builds with libgomp.a bound spinning. */
#if defined __clang__ || defined __SANITIZE_THREAD__
enum { BOUNDS_SPINNING = 0 };
#else
enum { BOUNDS_SPINNING = 1 };
#endif

/* What libgomp says it has read. */
static void threads_without_work_soon_sleep(void **state) {
    (void)state;
    setenv("OMP_DISPLAY_ENV", "verbose", 1);
    unsetenv("OMP_WAIT_POLICY");
    unsetenv("GOMP_SPINCOUNT");
    assert_int_equal(run(said, sizeof said, "--version"), 0);
    assert_non_null(strstr(said, "GOMP_SPINCOUNT = '16000'"));
    setenv("GOMP_SPINCOUNT", "5", 1); /* the user's choice */
    assert_int_equal(run(said, sizeof said, "--version"), 0);
    assert_non_null(strstr(said, "GOMP_SPINCOUNT = '5'"));
    unsetenv("GOMP_SPINCOUNT");
    setenv("OMP_WAIT_POLICY", "passive", 1);
    assert_int_equal(run(said, sizeof said, "--version"), 0);
    assert_non_null(strstr(said, "GOMP_SPINCOUNT = '0'"));
    unsetenv("OMP_DISPLAY_ENV");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_files_hold_with_every_set),
        cmocka_unit_test(env_names_the_set),
        cmocka_unit_test(env_names_the_memory),
        unit_test_if(BOUNDS_SPINNING, threads_without_work_soon_sleep),
        cmocka_unit_test(a_set_that_the_machine_lacks_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
