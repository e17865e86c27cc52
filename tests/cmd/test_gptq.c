/* GPTQ against PyTorch, on every backend and for any number of threads; and what `axtrain quantize
 * --gptq` says and refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <pthread.h>

#include "model/quantize/gptq.h"
#include "kernels/quant/scheme.h"
#include "tests/cmd/gptq_codes.h"
#include "tests/cmd/quantize_case.h"
#include "tests/kernels/harness.h"

/* ---- the algorithm ---- */

/* The numbers of tests/peers/gptq.py. */
static float next_number(uint32_t *state) {
    *state = (uint32_t)((*state * 1103515245ULL + 12345) % (1U << 31));
    return (float)(*state >> 16) / 16384 - 1;
}

static float x[TOKENS][INPUTS], w[ROWS][INPUTS];

static void make_numbers(void) {
    uint32_t state = 1;
    for (int t = 0; t < TOKENS; t++)
        for (int j = 0; j < INPUTS; j++)
            x[t][j] = next_number(&state);
    for (int j = 1; j < INPUTS; j++)
        for (int t = 0; t < TOKENS; t++)
            x[t][j] += 0.75F * x[t][j - 1];
    for (int t = 0; t < TOKENS; t++)
        for (int j = 0; j < INPUTS; j++)
            x[t][j] *= j == 5 ? 0 : 1 + (float)(j * 7 % 11) / 8;
    state = 2;
    for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < INPUTS; j++)
            w[r][j] = next_number(&state) / (j % GROUP == 0 ? 4.0F : 1);
}

static double error_of(struct machine *m, const struct ax_gptq *g, const float *value) {
    float e[ROWS * INPUTS];
    double error;
    for (int i = 0; i < ROWS * INPUTS; i++)
        e[i] = value[i] - (&w[0][0])[i];
    assert_int_equal(ax_gptq_error(m->q, g, ROWS, e, &error), AX_OK);
    return error;
}

static void compare_codes(const char *backend, bool act_order, int threads,
                          const char *const *codes, double error) {
    struct machine m;
    struct ax_gptq g;
    signed char got[ROWS * INPUTS];
    static float scale[ROWS * INPUTS / GROUP], value[ROWS * INPUTS];
    const struct ax_gptq_options o = {.damping = 0.01, .act_order = act_order};
    const struct ax_gptq_matrix round = {.rows = ROWS,
                                         .block = GROUP,
                                         .w = &w[0][0],
                                         .codes = got,
                                         .scale = scale,
                                         .value = value,
                                         .threads = threads};
    machine_open(&m, backend, threads);
    assert_int_equal(ax_gptq_open(&g, INPUTS), AX_OK);
    for (int at = 0, n; at < TOKENS; at += n) { /* in two parts */
        n = at == 0 ? 150 : TOKENS - at;
        const struct ax_tensor rows = ax_tensor_2d(AX_F32, x[at], n, INPUTS);
        assert_int_equal(ax_gptq_see(m.q, &g, &rows), AX_OK);
    }
    assert_int_equal(ax_gptq_factor(m.q, &g, &o), AX_OK);
    assert_int_equal(ax_gptq_round(m.q, &g, &o, &round), AX_OK);
    for (int i = 0; i < ROWS * INPUTS; i++) {
        assert_int_equal(got[i], codes[i / INPUTS][i % INPUTS] - 'a' - 8);
        assert_true(value[i] == scale[i / GROUP] * (float)got[i]);
    }
    assert_true(fabs(error_of(&m, &g, value) / error - 1) < 1e-5);
    ax_gptq_close(&g);
    machine_close(&m);
}

static void test_codes_are_those_of_pytorch(void **state) {
    (void)state;
    make_numbers();
    compare_codes("ref", false, 1, in_order_codes, in_order_error);
    compare_codes("ref", true, 3, by_size_codes, by_size_error);
    if (!have_cpu())
        return;
    compare_codes("cpu", false, 2, in_order_codes, in_order_error);
    compare_codes("cpu", true, 1, by_size_codes, by_size_error);
}

/* Rows that no thread has rounded are not left to be written. */
static void test_threads_that_do_not_start_are_an_error(void **state) {
    (void)state;
    struct machine m;
    struct ax_gptq g;
    pthread_attr_t usual, huge;
    static signed char codes[ROWS * INPUTS];
    static float scale[ROWS * INPUTS / GROUP], value[ROWS * INPUTS];
    const struct ax_gptq_options o = {.damping = 0.01};
    const struct ax_gptq_matrix round = {.rows = ROWS,
                                         .block = GROUP,
                                         .w = &w[0][0],
                                         .codes = codes,
                                         .scale = scale,
                                         .value = value,
                                         .threads = 3};
    const struct ax_tensor rows = ax_tensor_2d(AX_F32, x, TOKENS, INPUTS);
    machine_open(&m, "ref", 1);
    assert_int_equal(ax_gptq_open(&g, INPUTS), AX_OK);
    assert_int_equal(ax_gptq_see(m.q, &g, &rows), AX_OK);
    assert_int_equal(ax_gptq_factor(m.q, &g, &o), AX_OK);
    assert_int_equal(pthread_getattr_default_np(&usual), 0);
    assert_int_equal(pthread_attr_init(&huge), 0);
    assert_int_equal(pthread_attr_setstacksize(&huge, (size_t)1 << 60),
                     0); /* of no address space */
    assert_int_equal(pthread_setattr_default_np(&huge), 0);
    const enum ax_status st = ax_gptq_round(m.q, &g, &o, &round);
    assert_int_equal(pthread_setattr_default_np(&usual), 0);
    assert_int_equal(st, AX_ERR_FAILED);
    assert_non_null(strstr(ax_error_text(), "cannot start a thread"));
    assert_int_equal(ax_gptq_round(m.q, &g, &o, &round), AX_OK);
    pthread_attr_destroy(&usual);
    pthread_attr_destroy(&huge);
    ax_gptq_close(&g);
    machine_close(&m);
}

static void test_error_is_that_of_the_outputs(void **state) {
    (void)state;
    struct machine m;
    struct ax_gptq g;
    float value[ROWS * INPUTS];
    const struct ax_gptq_options o = {.damping = 0.01};
    const struct ax_tensor rows = ax_tensor_2d(AX_F32, x, TOKENS, INPUTS);
    machine_open(&m, "ref", 1);
    assert_int_equal(ax_gptq_open(&g, INPUTS), AX_OK);
    assert_int_equal(ax_gptq_see(m.q, &g, &rows), AX_OK);
    assert_int_equal(ax_gptq_factor(m.q, &g, &o), AX_OK);
    const struct ax_fake_quantize f = {.x = ax_tensor_2d(AX_F32, w, ROWS, INPUTS),
                                       .y = ax_tensor_2d(AX_F32, value, ROWS, INPUTS),
                                       .block = GROUP,
                                       .kind = AX_QUANT_INT4};
    assert_int_equal(ax_run_fake_quantize(m.q, &f), AX_OK);
    assert_true(fabs(error_of(&m, &g, value) / nearest_error - 1) < 1e-5);
    g.tokens = 0;
    memset(g.h, 0, sizeof *g.h * INPUTS * INPUTS);
    g.h[1] = 1e6F; /* no XᵀX is like this */
    g.tokens = 1;
    assert_int_equal(ax_gptq_factor(m.q, &g, &o), AX_ERR_DATA);
    ax_gptq_close(&g);
    machine_close(&m);
}

/* ---- the command ---- */

static const char *rows_file(int n) {
    static char path[160];
    struct ax_buf b = {0};
    for (int i = 0; i < n; i++)
        assert_int_equal(ax_buf_printf(&b,
                                       "{\"text\": \"row %d of %d: %d and %d are %d, %d more\"}\n",
                                       i, n, i * 7, i * 3, i * 10, i % 13),
                         AX_OK);
    snprintf(path, sizeof path, "%s", put_bytes("text.jsonl", b.data, b.len));
    ax_buf_free(&b);
    return path;
}

static void test_command(void **state) {
    (void)state;
    char src[600], one[160], two[160], three[160];
    need_binary();
    snprintf(src, sizeof src, "%s", golden_llama());
    snprintf(one, sizeof one, "%s", in_scratch("one"));
    snprintf(two, sizeof two, "%s", in_scratch("two"));
    snprintf(three, sizeof three, "%s", in_scratch("three"));
    const char *rows = rows_file(900);
    sft_command = "quantize";
    EXPECT(0, "21 matrices as int4 by GPTQ, relative error 0.", src, one, "--scheme", "int4",
           "--gptq", "--calibrate", rows, "--type", "completion", "--rows", "16", "--threads", "1");
    for (int layer = 0; layer < 3; layer++)
        assert_true(written_over_nearest(layer) < 0.8);
    const double before = number_after("tokens): ");
    EXPECT(0, "perplexity of 2 sequences (", src, two, "--scheme", "int4", "--gptq", "--calibrate",
           rows, "--type", "completion", "--rows", "16", "--threads", "3");
    assert_true(same_files("one", "two"));
    EXPECT(0, " rounded to nearest", src, three, "--scheme", "int4", "--gptq", "--act-order",
           "--calibrate", rows, "--type", "completion", "--rows", "16");
    assert_true(written_over_nearest(2) < 0.8);
    assert_false(same_files("one", "three"));
    assert_true(number_after("tokens): ") == before);
}

/* SCRATCH/mixtral, and n rows of its vocabulary. */
static void make_mixture(int n) {
    assert_int_equal(ax_mkdir_parents(in_scratch("mixtral")), AX_OK);
    copy_golden("models/mixtral", "config.json", "mixtral");
    copy_golden("models/mixtral", "model.safetensors", "mixtral");
    copy_golden("models/llama", "tokenizer.json", "mixtral");
    copy_golden("models/llama", "tokenizer_config.json", "mixtral");
    put_id_rows(n, 1, 300);
}

/* Each expert sees the rows that are sent to it; one that hardly any are sent to goes to nearest. */
static void test_experts(void **state) {
    (void)state;
    char src[160], one[160], two[160], few[160], rows[160];
    need_binary();
    make_mixture(60);
    snprintf(src, sizeof src, "%s", in_scratch("mixtral"));
    snprintf(one, sizeof one, "%s", in_scratch("experts"));
    snprintf(two, sizeof two, "%s", in_scratch("threads"));
    snprintf(few, sizeof few, "%s", in_scratch("few"));
    snprintf(rows, sizeof rows, "%s", in_scratch("ids.jsonl"));
    sft_command = "quantize";
    EXPECT(0, "56 matrices as int4 by GPTQ, relative error 0.", src, one, "--scheme", "int4",
           "--group", "8", "--gptq", "--calibrate", rows, "--type", "", "--threads", "1");
    for (int layer = 0; layer < 2; layer++)
        assert_true(written_over_nearest(layer) < 0.9);
    EXPECT(0, "after, ", src, two, "--scheme", "int4", "--group", "8", "--gptq", "--calibrate",
           rows, "--type", "", "--threads", "3");
    assert_true(same_files("experts", "threads"));
    make_mixture(1);
    EXPECT(0, "matrices of experts to nearest, as too few rows read them", src, few, "--scheme",
           "int4", "--group", "8", "--gptq", "--calibrate", rows, "--type", "");
    assert_false(same_files("experts", "few"));
}

/* What is left of a row takes no part: sequences of 60 tokens are alone in rows of 64 and of 100. */
static void test_padding(void **state) {
    (void)state;
    static const int lengths[] = {64, 100};
    char src[600], dst[160], said[2][64];
    need_binary();
    make_mixture(30);
    snprintf(src, sizeof src, "%s", golden_llama());
    sft_command = "quantize";
    for (int i = 0; i < 2; i++) {
        struct ax_buf b = {0};
        assert_int_equal(ax_buf_printf(&b,
                                       "base_model: %s\ndatasets:\n  - path: %s/ids.jsonl\n"
                                       "    type: ''\nsequence_len: %d\n",
                                       src, scratch, lengths[i]),
                         AX_OK);
        const char *config = put_bytes("rows.yaml", b.data, b.len);
        snprintf(dst, sizeof dst, "%s", in_scratch(i == 0 ? "short" : "long"));
        EXPECT(0, "21 matrices as int4 by GPTQ", src, dst, "--scheme", "int4", "--gptq",
               "--calibrate", config, "--rows", "16");
        snprintf(said[i], sizeof said[i], "%.4f %.4f", number_after("tokens): "),
                 number_after("before, "));
        ax_buf_free(&b);
    }
    assert_string_equal(said[0], said[1]);
    assert_true(same_files("short", "long"));
}

static void test_only_measured(void **state) {
    (void)state;
    char src[600], dst[160], plain[160];
    need_binary();
    snprintf(src, sizeof src, "%s", golden_llama());
    snprintf(dst, sizeof dst, "%s", in_scratch("measured"));
    snprintf(plain, sizeof plain, "%s", in_scratch("plain"));
    const char *rows = rows_file(40);
    sft_command = "quantize";
    EXPECT(0, " before, ", src, dst, "--scheme", "int8", "--calibrate", rows, "--type",
           "completion");
    const double before = number_after("tokens): "), after = number_after("before, ");
    assert_true(before != after && fabs(after / before - 1) < 0.02);
    EXPECT(0, "21 matrices as int8, relative error 0.00", src, plain, "--scheme", "int8");
    assert_true(same_files("measured", "plain"));
}

/* The perplexities that are printed are those of the folders as they run: `axtrain eval` says the same. */
static void test_perplexity_is_that_of_the_folder(void **state) {
    (void)state;
    static const struct {
        bool mixture;
        const char *scheme, *flag, *said;
    } cases[] = {
        {false, "int8", "--head", "perplexity of 1 sequence ("},
        {false, "int8-int8", "--head", "perplexity of 1 sequence ("},
        {false, "fp8", "--embedding", "perplexity of 1 sequence ("},
        {false, "int4", "--gptq", "perplexity of 1 sequence, the calibration's ("},
        {false, "int4-int8", "--gptq", "perplexity of 1 sequence, the calibration's ("},
        {true, "int8", "--head", "perplexity of 4 sequences ("},
        {true, "int8-int8", "--head", "perplexity of 4 sequences ("},
    };
    char models[2][600], rows[2][160], dst[160];
    need_binary();
    make_mixture(30);
    snprintf(models[0], sizeof models[0], "%s", golden_llama());
    snprintf(models[1], sizeof models[1], "%s", in_scratch("mixtral"));
    snprintf(rows[0], sizeof rows[0], "%s", rows_file(10));
    snprintf(rows[1], sizeof rows[1], "%s", in_scratch("ids.jsonl"));
    snprintf(dst, sizeof dst, "%s", in_scratch("as-it-runs"));
    const double originals[] = {evaluated(models[0], rows[0], "completion"),
                                evaluated(models[1], rows[1], "")};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *file = rows[cases[i].mixture], *type = cases[i].mixture ? "" : "completion";
        assert_int_equal(ax_remove_tree(dst), AX_OK);
        sft_command = "quantize";
        EXPECT(0, cases[i].said, models[cases[i].mixture], dst, "--scheme", cases[i].scheme,
               "--calibrate", file, "--type", type, cases[i].flag);
        const double before = number_after("tokens): "), after = number_after("before, ");
        const double original = originals[cases[i].mixture], now = evaluated(dst, file, type);
        if (before != original || after != now)
            fail_msg("%s: %.4f before, %.4f after; eval says %.4f, %.4f", cases[i].scheme, before,
                     after, original, now);
    }
}

static void test_refusals(void **state) {
    (void)state;
    char src[600], dst[160];
    need_binary();
    snprintf(src, sizeof src, "%s", golden_llama());
    snprintf(dst, sizeof dst, "%s", in_scratch("refused"));
    const char *rows = rows_file(1);
    sft_command = "quantize";
    EXPECT(2, "--gptq: needs rows", src, dst, "--scheme", "int4", "--gptq");
    EXPECT(2, "scheme fp8 has other weights. Nearest: int4.", src, dst, "--scheme", "fp8", "--gptq",
           "--calibrate", rows, "--type", "completion");
    EXPECT(2, "are of --gptq", src, dst, "--scheme", "int4", "--calibrate", rows, "--act-order");
    EXPECT(2, "--damping: expected", src, dst, "--scheme", "int4", "--gptq", "--calibrate", rows,
           "--damping", "0");
    EXPECT(2, "--type: is of --calibrate", src, dst, "--scheme", "int4", "--type", "completion");
    EXPECT(3, "no such file", src, dst, "--scheme", "int4", "--gptq", "--calibrate", "no.jsonl",
           "--type", "completion");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes_are_those_of_pytorch),
        cmocka_unit_test(test_threads_that_do_not_start_are_an_error),
        cmocka_unit_test(test_error_is_that_of_the_outputs),
        cmocka_unit_test(test_command),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_padding),
        cmocka_unit_test(test_only_measured),
        cmocka_unit_test(test_perplexity_is_that_of_the_folder),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
