/* Fault specs and when they fire. */
#include "base/fault.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"

static void the_kth_call_fails_once(void **state) {
    (void)state;
    assert_int_equal(ax_fault_configure("write:3:enospc,rename:1:eio,write:4:short"), AX_OK);
    assert_false(ax_fault_fired());
    assert_int_equal(ax_fault_point(AX_FAULT_WRITE), AX_FAULT_NONE);
    assert_int_equal(ax_fault_point(AX_FAULT_WRITE), AX_FAULT_NONE);
    assert_int_equal(ax_fault_point(AX_FAULT_READ), AX_FAULT_NONE);
    assert_false(ax_fault_fired());
    assert_int_equal(ax_fault_point(AX_FAULT_WRITE), AX_FAULT_ENOSPC);
    assert_true(ax_fault_fired());
    assert_int_equal(ax_fault_point(AX_FAULT_WRITE), AX_FAULT_SHORT);
    assert_int_equal(ax_fault_point(AX_FAULT_WRITE), AX_FAULT_NONE);
    assert_int_equal(ax_fault_point(AX_FAULT_RENAME), AX_FAULT_EIO);
    assert_int_equal(ax_fault_count(AX_FAULT_WRITE), 5);
    assert_int_equal(ax_fault_count(AX_FAULT_READ), 1);
    assert_int_equal(ax_fault_configure(""), AX_OK);
    assert_int_equal(ax_fault_count(AX_FAULT_WRITE), 0);
    assert_false(ax_fault_fired());
    assert_int_equal(ax_fault_point(AX_FAULT_WRITE), AX_FAULT_NONE);
}

static void every_op_and_kind_has_a_name(void **state) {
    (void)state;
    static const char *const kinds[] = {"eio", "enospc", "enomem", "eintr"};
    for (int op = 0; op <= AX_FAULT_MALLOC; op++) {
        for (size_t i = 0; i < 4; i++) {
            char spec[64];
            snprintf(spec, sizeof spec, "%s:1:%s", ax_fault_op_name((enum ax_fault_op)op),
                     kinds[i]);
            assert_int_equal(ax_fault_configure(spec), AX_OK);
            assert_int_not_equal(ax_fault_point((enum ax_fault_op)op), AX_FAULT_NONE);
        }
    }
    assert_int_equal(ax_fault_configure(NULL), AX_OK);
}

static void a_rule_may_be_for_one_rank(void **state) {
    (void)state;
    unsetenv("RANK"); /* as in a launcher */
    assert_int_equal(ax_fault_configure("write:1:eio@0"), AX_OK);
    assert_int_equal(ax_fault_point(AX_FAULT_WRITE), AX_FAULT_NONE);
    setenv("RANK", "1", 1);
    assert_int_equal(
        ax_fault_configure("write:1:eio@11,write:2:eio@1,write:3:eio@0,write:4:enomem"), AX_OK);
    assert_int_equal(ax_fault_point(AX_FAULT_WRITE), AX_FAULT_NONE);
    assert_int_equal(ax_fault_point(AX_FAULT_WRITE), AX_FAULT_EIO);
    assert_int_equal(ax_fault_point(AX_FAULT_WRITE), AX_FAULT_NONE);
    assert_int_equal(ax_fault_point(AX_FAULT_WRITE), AX_FAULT_ENOMEM);
    unsetenv("RANK");
    assert_int_equal(ax_fault_configure(NULL), AX_OK);
}

static void wrong_specs_are_refused_and_change_nothing(void **state) {
    (void)state;
    static const char *const wrong[] = {
        "write",           "write:1",          "write:0:eio",    "write:-1:eio",
        "write:x:eio",     "write::eio",       "fly:1:eio",      ":1:eio",
        "write:1:",        "write:1:fail",     "write:1:eio,,",  "open:1:short",
        "write:1:eio:eio", "write:1:eio,open", "malloc:1:short", "write:99999999999999999:eio",
        "write:1:EIO",     "writes:1:eio",     "write:1:eio@",   "write:1:eio@x",
        "write:1:eio@-1",
    };
    assert_int_equal(ax_fault_configure("read:1:eio"), AX_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(ax_fault_configure(wrong[i]), AX_ERR_CONFIG);
        assert_non_null(strstr(ax_error_text(), "AX_FAULT"));
    }
    assert_int_equal(ax_fault_point(AX_FAULT_READ), AX_FAULT_EIO);
    assert_int_equal(ax_fault_configure(NULL), AX_OK);
}

static void kill_kills(void **state) {
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        if (ax_fault_configure("fsync:2:kill") != AX_OK)
            _exit(9);
        ax_fault_point(AX_FAULT_FSYNC);
        ax_fault_point(AX_FAULT_FSYNC);
        _exit(0);
    }
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how));
    assert_int_equal(WTERMSIG(how), SIGKILL);
}

static void delay_waits_and_goes_on(void **state) {
    (void)state;
    assert_int_equal(ax_fault_configure("send:1:delay"), AX_OK);
    double start = ax_clock_now();
    assert_int_equal(ax_fault_point(AX_FAULT_SEND), AX_FAULT_NONE);
    assert_true(ax_clock_now() - start >= 0.19);
    assert_true(ax_fault_fired());
    assert_int_equal(ax_fault_configure(NULL), AX_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_kth_call_fails_once),
        cmocka_unit_test(every_op_and_kind_has_a_name),
        cmocka_unit_test(a_rule_may_be_for_one_rank),
        cmocka_unit_test(wrong_specs_are_refused_and_change_nothing),
        cmocka_unit_test(kill_kills),
        cmocka_unit_test(delay_waits_and_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
