/* What a step's record says of experts. (What it is computed from: test_router_bias.c.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "optim/metrics/metrics_text.h"

static void expect(const struct ax_step_figures *f, const char *text) {
    struct ax_buf b = {0};
    assert_int_equal(ax_metrics_put_step(&b, f, (struct ax_utilization){-1, -1}, NULL), AX_OK);
    assert_int_equal(ax_buf_puts(&b, ""), AX_OK);
    if (text && !strstr(b.data, text))
        fail_msg("%s has no %s", b.data, text);
    if (!text)
        assert_null(strstr(b.data, "moe/"));
    ax_buf_free(&b);
}

static void loads_are_in_the_record(void **state) {
    (void)state;
    struct ax_expert_balance b = {.violation = 0.75, .entropy = 0.5};
    struct ax_step_figures f = {.step = 1, .sequence_loss = 1.5};
    for (int i = 0; i < AX_BALANCE_LAYERS; i++) /* layers without experts are left out */
        b.layers[i] = i == 1 ? 0.25f : i == 4 ? 0.75f : NAN;
    expect(&f, NULL);
    f.experts = &b;
    expect(&f, ", \"moe/seq_aux_loss\": 1.5, \"moe/max_violation\": 0.75, \"moe/entropy\": 0.5, "
               "\"moe/max_violation_per_layer\": [0.25, 0.75]");
    f.aux_loss = 2;
    f.sequence_loss = 0;
    b.violation = b.entropy = b.layers[1] = b.layers[4] = NAN; /* no token went anywhere */
    expect(&f, ", \"moe/aux_loss\": 2, \"moe/max_violation\": null, \"moe/entropy\": null, "
               "\"moe/max_violation_per_layer\": []");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loads_are_in_the_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
