/* The rate that shares are of: measured products, or a step that computes faster. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/text/json.h"
#include "kernels/dtype.h"
#include "kernels/queue.h"
#include "optim/metrics/metrics.h"
#include "optim/plan/peak.h"
#include "tests/ckpt/folder.h"

static void products_are_timed(void **state) {
    (void)state;
    struct ax_runtime_options ro = {.backend = "cpu", .threads = 1};
    struct ax_peak peak = {0};
    assert_int_equal(ax_measure_gemm_peak(&ro, AX_F32, AX_PEAK_SECONDS, &peak), AX_OK);
    print_message("%.1f GFLOP/s\n", peak.flops / 1e9);
    assert_true(peak.flops > 1e8 && peak.flops < 1e14 && peak.flops >= peak.slowest);
    ro.backend = "ref"; /* so slow that all rows would take a minute */
    const double start = ax_clock_now();
    assert_int_equal(ax_measure_gemm_peak(&ro, AX_F32, AX_PEAK_SECONDS, &peak), AX_OK);
    assert_true(peak.flops > 1e6 && ax_clock_now() - start < 30);
}

/* ---- what is multiplied ---- */

static struct ax_ops looking; /* the library's, with a product that looks at its operands */
static const struct ax_ops *shown;
static int equal; /* most numbers of an operand that are equal to its first */

static const struct ax_ops *of_library(void) {
    const struct ax_ops *(*next)(void);
    *(void **)&next = dlsym(RTLD_NEXT, "ax_ops_cpu");
    return next();
}

/* Stands before the library's, as this program is searched first. */
const struct ax_ops *ax_ops_cpu(void) {
    return shown ? shown : of_library();
}

static void look(const struct ax_tensor *t) {
    int n = 0;
    for (int64_t i = 0; i < ax_tensor_numel(t); i++)
        n += ax_load(t->dtype, t->data, i) == ax_load(t->dtype, t->data, 0);
    equal = n > equal ? n : equal;
}

static enum ax_status look_and_multiply(struct ax_queue *q, const struct ax_gemm *a, void *work) {
    if (equal == 0) {
        look(&a->a);
        look(&a->b);
    }
    return of_library()->gemm(q, a, work);
}

/* A GPU is faster where all are equal: it takes less power. */
static void products_are_of_different_numbers(void **state) {
    (void)state;
    const struct ax_runtime_options ro = {.backend = "cpu", .threads = 1};
    struct ax_peak peak;
    if (!of_library())
        skip();
    looking = *of_library();
    looking.gemm = look_and_multiply;
    shown = &looking;
    assert_int_equal(ax_measure_gemm_peak(&ro, AX_F32, AX_PEAK_SECONDS, &peak), AX_OK);
    shown = NULL;
    assert_in_range(equal, 1, 100);
}

static double pretended; /* time of the clock; 0: the library's */
static int readings;     /* of the clock */

/* The clock, which precedes the library's, too. */
double ax_clock_now(void) {
    double (*next)(void);
    *(void **)&next = dlsym(RTLD_NEXT, "ax_clock_now");
    readings++;
    return pretended > 0 ? pretended : next();
}

static int multiplied; /* products */
static int slow;       /* products to come that take as long as if something else were running */

static enum ax_status be_slow_at_first(struct ax_queue *q, const struct ax_gemm *a, void *work) {
    (void)q;
    (void)work;
    multiplied++;
    pretended += a->a.shape[0] == 384 && slow-- > 0 ? 20e-3 : 1e-3;
    return AX_OK;
}

/* Some products that agree are not the peak, and the text says that it was not reached all the time. */
static void a_slow_beginning_is_not_the_peak(void **state) {
    (void)state;
    const struct ax_runtime_options ro = {.backend = "cpu", .threads = 1};
    const double flops = 2.0 * 384 * 1536 * 1536;
    struct ax_peak peak = {.kernels = "pretended"};
    char text[AX_PEAK_TEXT];
    if (!of_library())
        skip();
    looking = *of_library();
    looking.gemm = be_slow_at_first;
    shown = &looking;
    slow = 3; /* one warms up, and two are rounds */
    readings = multiplied = 0;
    pretended = 1;
    assert_int_equal(ax_measure_gemm_peak(&ro, AX_F32, AX_PEAK_SECONDS, &peak), AX_OK);
    shown = NULL;
    pretended = 0;
    /* before and after each; planning, in which a product takes no time, has one for the first rows and one for all */
    assert_int_equal(readings, 2 * (multiplied + 2));
    assert_in_range(-slow, 30, 33); /* three rounds; a sum of thousandths may need one more each */
    assert_true(fabs(peak.flops * 1e-3 / flops - 1) < 1e-6);
    assert_true(fabs(peak.slowest * 20e-3 / flops - 1) < 1e-6);
    assert_non_null(strstr(ax_peak_text(&peak, text, sizeof text), "GFLOP/s: is something else"));
    peak.flops = 3e11;
    peak.slowest = 2.9e11;
    assert_string_equal(ax_peak_text(&peak, text, sizeof text), "300 GFLOP/s (float32, pretended)");
}

/* Without time, two products of the first rows at least, and two of all. */
static void a_limit_ends_the_rounds(void **state) {
    (void)state;
    const struct ax_runtime_options ro = {.backend = "cpu", .threads = 1};
    struct ax_peak peak;
    if (!of_library())
        skip();
    looking = *of_library();
    looking.gemm = be_slow_at_first;
    shown = &looking;
    slow = multiplied = 0;
    pretended = 1;
    assert_int_equal(ax_measure_gemm_peak(&ro, AX_F32, 0, &peak), AX_OK);
    shown = NULL;
    pretended = 0;
    assert_int_equal(-slow, 2);
    assert_in_range(multiplied - 2, 3, 4); /* thousandths, until there are two */
    assert_true(fabs(peak.flops * 1e-3 / (2.0 * 384 * 1536 * 1536) - 1) < 1e-6);
}

/* Something else ran while the products were measured: a share never exceeds 1, and the highest rate
 * of a step stays. */
static void a_step_above_the_peak(void **state) {
    (void)state;
    static const double flops[] = {1.25e11, 2.5e10, 1.25e11}, shares[] = {1, 0.2, 1};
    const struct ax_metrics_options o = {
        .total_steps = 3, .logging_steps = 3, .peak_flops = 5e10, .devices = 2};
    struct ax_metrics *m = NULL;
    char *text;
    size_t n;
    int steps = 0, events = 0;
    assert_int_equal(ax_metrics_open(&m, dir, &o), AX_OK);
    for (int i = 0; i < 3; i++)
        ax_metrics_step(
            m, &(struct ax_step_figures){.step = i + 1, .flops = flops[i], .seconds = 0.5});
    ax_metrics_close(m);
    assert_int_equal(ax_read_file(in_dir("metrics.jsonl"), 1 << 20, &text, &n), AX_OK);
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        json_t *v = json_loadb(line, (size_t)(end - line), 0, NULL);
        assert_non_null(v);
        if (json_object_get(v, "event")) {
            assert_string_equal(json_string_value(json_object_get(v, "text")),
                                "500 GFLOP/s, in a step: more than was measured");
            assert_int_equal(steps, 0);
            events++;
        } else {
            assert_true(json_number_value(json_object_get(v, "hfu")) == shares[steps++]);
        }
        json_decref(v);
    }
    assert_int_equal(steps, 3);
    assert_int_equal(events, 1);
    ax_free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_timed),
        cmocka_unit_test(products_are_of_different_numbers),
        cmocka_unit_test(a_slow_beginning_is_not_the_peak),
        cmocka_unit_test(a_limit_ends_the_rounds),
        cmocka_unit_test_setup_teardown(a_step_above_the_peak, make_dir, remove_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
