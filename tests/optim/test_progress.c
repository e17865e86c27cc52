/* The progress bar at every width, and the line for logs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "optim/metrics/progress.h"

static struct ax_progress_view view(void) {
    return (struct ax_progress_view){.step = 123,
                                     .total_steps = 1000,
                                     .epoch = 0.37,
                                     .loss = 1.23456,
                                     .grad_norm = 0.987,
                                     .learning_rate = 2e-5,
                                     .tokens_per_second = 2345,
                                     .mfu = 0.456,
                                     .devices = 1,
                                     .memory = 1.5 * (1 << 30),
                                     .eta = 754};
}

static void fits_every_width(void **state) {
    (void)state;
    struct ax_progress_view v = view();
    size_t before = 0;
    for (int width = 20; width <= 200; width++) {
        struct ax_buf b = {0};
        assert_int_equal(ax_progress_bar(&b, &v, width, false), AX_OK);
        assert_true(b.len <= (size_t)width);
        assert_non_null(strstr(b.data, "123/1000"));
        assert_null(strchr(b.data, '\x1b'));
        if (width == 59) {
            print_message("%s\n", b.data);
            assert_non_null(strstr(b.data, "loss 1.235"));
            assert_non_null(strstr(b.data, "ETA 12m 34s"));
            assert_non_null(strstr(b.data, "tok/s"));
        }
        before = b.len;
        ax_buf_free(&b);
    }
    assert_true(before > 100);
}

static void everything_on_a_wide_terminal(void **state) {
    (void)state;
    struct ax_progress_view v = view();
    struct ax_buf b = {0};
    v.devices = 4;
    v.doing = "evaluating";
    v.done = 3;
    v.of = 12;
    assert_int_equal(ax_progress_bar(&b, &v, 200, false), AX_OK);
    print_message("%s\n", b.data);
    assert_string_equal(b.data,
                        " 12 % [#####...................................]  123/1000  evaluating "
                        "3/12  loss 1.235  lr 2e-05  norm 0.987  2.35 k tok/s (586 each)  MFU 46 "
                        "%  1.50 GiB  ETA 12m 34s");
    ax_buf_free(&b);
    assert_int_equal(ax_progress_bar(&b, &v, 200, true), AX_OK);
    assert_non_null(strstr(b.data, "[\x1b[32m#####\x1b[0m..."));
    ax_buf_free(&b);
}

static void ends_and_unknowns(void **state) {
    (void)state;
    struct ax_progress_view v = view();
    struct ax_buf b = {0};
    v.step = v.total_steps;
    assert_int_equal(ax_progress_bar(&b, &v, 200, true), AX_OK);
    assert_non_null(strstr(b.data, "########################################\x1b[0m]"));
    ax_buf_free(&b);
    v.total_steps = 0;
    v.mfu = v.eta = -1;
    assert_int_equal(ax_progress_bar(&b, &v, 200, false), AX_OK);
    assert_string_equal(b.data, "step 1000  loss 1.235  lr 2e-05  norm 0.987  2.35 k tok/s  1.50 "
                                "GiB");
    ax_buf_free(&b);
    v = (struct ax_progress_view){.total_steps = 10,
                                  .mfu = -1,
                                  .eta = -1,
                                  .doing = "reference",
                                  .done = 3,
                                  .of = 12,
                                  .doing_eta = 95};
    assert_int_equal(ax_progress_bar(&b, &v, 60, false), AX_OK);
    assert_string_equal(b.data, "  0 % [.................]  0/10  reference 3/12, 1m 35s left");
    ax_buf_free(&b);
    v = (struct ax_progress_view){.total_steps = 10, .mfu = -1, .eta = -1, .doing = "loading"};
    assert_int_equal(ax_progress_bar(&b, &v, 40, false), AX_OK);
    assert_string_equal(b.data, "  0 % [.................]  0/10  loading");
    ax_buf_free(&b);
}

static void lines_for_logs(void **state) {
    (void)state;
    struct ax_progress_view v = view();
    struct ax_buf b = {0};
    assert_int_equal(ax_progress_line(&b, &v), AX_OK);
    assert_string_equal(b.data, "step=123/1000 epoch=0.37 loss=1.2346 grad_norm=0.987 "
                                "learning_rate=2e-05 tokens_per_second=2345 eta_s=754\n");
    ax_buf_free(&b);
    v.devices = 4;
    v.mfu = v.eta = -1;
    assert_int_equal(ax_progress_line(&b, &v), AX_OK);
    assert_non_null(strstr(b.data, " tokens_per_second_per_device=586\n"));
    ax_buf_free(&b);
}

/* Figures of answers as a step of GRPO has them; a later step on the same answers has none, nor a KL divergence,
 * and the one after has answers of which a function knows nothing. */
static void watched_figures(void **state) {
    (void)state;
    static const char *const measures[] = {"entropy", "kl", NULL};
    struct ax_figures figures = {.n = 5,
                                 .names = {"completions/mean_length", "rewards/short/mean",
                                           "rewards/right/mean", "rewards/right/std", "reward"},
                                 .values = {120, 0.25, 0.5, 0.1, 0.75}};
    struct ax_step_figures f = {.measures = {2, 0.01}, .figures = &figures};
    struct ax_progress_view v = view();
    struct ax_buf b = {0};
    ax_progress_watch(&v, &f, measures);
    assert_int_equal(ax_progress_line(&b, &v), AX_OK);
    assert_non_null(strstr(b.data, " kl=0.01 "));
    ax_buf_free(&b);
    f.figures = NULL;
    f.measures[1] = NAN;
    ax_progress_watch(&v, &f, measures);
    assert_int_equal(ax_progress_line(&b, &v), AX_OK);
    assert_string_equal(b.data,
                        "step=123/1000 epoch=0.37 loss=1.2346 reward=0.75 rewards/short/mean=0.25 "
                        "rewards/right/mean=0.5 completions/mean_length=120 "
                        "grad_norm=0.987 learning_rate=2e-05 tokens_per_second=2345 eta_s=754\n");
    ax_buf_free(&b);
    assert_int_equal(ax_progress_bar(&b, &v, 60, false), AX_OK);
    assert_string_equal(b.data, "123/1000  loss 1.235  reward 0.75  short 0.25  ETA 12m 34s");
    ax_buf_free(&b);
    f.figures = &(struct ax_figures){
        .n = 2, .names = {"completions/mean_length", "reward"}, .values = {40, 0.5}};
    ax_progress_watch(&v, &f, measures);
    assert_int_equal(ax_progress_line(&b, &v), AX_OK);
    assert_non_null(
        strstr(b.data, " loss=1.2346 reward=0.5 completions/mean_length=40 grad_norm="));
    ax_buf_free(&b);
    figures.n = 2; /* of one function the mean is the reward */
    f.figures = &figures;
    v = view();
    ax_progress_watch(&v, &f, (const char *const[]){"rewards/accuracies", NULL});
    assert_int_equal(ax_progress_bar(&b, &v, 200, false), AX_OK);
    assert_non_null(strstr(b.data, "loss 1.235  length 120  accuracy 200 %  lr 2e-05"));
    ax_buf_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fits_every_width),  cmocka_unit_test(everything_on_a_wide_terminal),
        cmocka_unit_test(ends_and_unknowns), cmocka_unit_test(lines_for_logs),
        cmocka_unit_test(watched_figures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
