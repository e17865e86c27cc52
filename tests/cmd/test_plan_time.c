/* `axtrain plan --hardware` and --search, and plan_score: machines from a file, statistics, and the programs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/json.h"
#include "optim/plan/hardware.h"
#include "tests/bench/speeds.h"
#include "tests/cmd/program_case.h"
#include "tests/cmd/sft_case.h"

#define COLUMNS                                                                                    \
    "name\tbf16_fp16_dense_tflops\tfp8_dense_tflops\tmemory_gib\thbm_gb_s\t"                       \
    "nvlink_gb_s_per_direction_per_gpu\tinternode_gbit_s_per_gpu\n"
#define GIB 1073741824.0

/* ---- tables ---- */

static void cells_have_lines(void **state) {
    (void)state;
    struct ax_tsv t;
    double x;
    bool inferred;
    assert_int_equal(ax_tsv_read(&t, put_text("t.tsv", "a\tb\r\n1.5?\t\r\nx\ty")), AX_OK);
    assert_int_equal(t.n_rows, 2);
    assert_int_equal(ax_tsv_column(&t, "b"), 1);
    assert_int_equal(ax_tsv_column(&t, "c"), -1);
    assert_string_equal(ax_tsv_cell(&t, 0, 1), "");
    assert_string_equal(ax_tsv_cell(&t, 1, 1), "y");
    assert_string_equal(ax_tsv_cell(&t, 1, -1), "");
    assert_int_equal(ax_tsv_number(&t, 0, 0, &x, &inferred), AX_OK);
    assert_true(x == 1.5 && inferred);
    assert_int_equal(ax_tsv_number(&t, 1, 0, &x, NULL), AX_ERR_CONFIG);
    assert_non_null(strstr(ax_error_text(), "t.tsv:3: expected a number in column a, got \"x\""));
    ax_tsv_free(&t);
    assert_int_equal(ax_tsv_read(&t, put_text("t.tsv", "a\tb\n1\n")), AX_ERR_CONFIG);
    assert_non_null(strstr(ax_error_text(), "t.tsv:2: expected 2 columns"));
    const char *path = put_text("t.tsv", "");
    assert_int_equal(ax_write_file_atomic(path, "a\tb\n1\0\t2\n", 9), AX_OK);
    assert_int_equal(ax_tsv_read(&t, path), AX_ERR_CONFIG);
    assert_non_null(strstr(ax_error_text(), "t.tsv: expected text, got a zero byte"));
    assert_int_equal(ax_tsv_read(&t, put_text("t.tsv", "")), AX_ERR_CONFIG);
    assert_non_null(strstr(ax_error_text(), "t.tsv: the file is empty"));
}

static void refuses(const char *file, const char *said) {
    struct ax_hardware h;
    assert_int_equal(ax_plan_hardware(file, &h), AX_ERR_CONFIG);
    if (!strstr(ax_error_text(), said))
        fail_msg("%s", ax_error_text());
}

static void machines_come_from_files(void **state) {
    (void)state;
    struct ax_hardware h;
    char named[512];
    const char *path =
        put_text("h.tsv", COLUMNS "one\t989\t\t80\t3350\t450\t400\ntwo\t312?\t\t40\t1555\t0\t0\n");
    snprintf(named, sizeof named, "%s:two", path);
    assert_int_equal(ax_plan_hardware(named, &h), AX_OK);
    assert_true(h.bf16 == 312e12 && h.fp8 == 0 && h.bandwidth == 1555e9);
    assert_true(h.node_link > 0 && h.network == h.node_link); /* PCIe */
    snprintf(named, sizeof named, "%s:one", path);
    assert_int_equal(ax_plan_hardware(named, &h), AX_OK);
    assert_true(h.memory == 80 * GIB && h.node_link == 450e9 && h.network == 50e9);
    assert_true(h.host == 31e9);
    const char *own =
        put_text("g.tsv", "host_gb_s\t" COLUMNS "450\tone\t989\t\t80\t3350\t450\t400\n");
    assert_int_equal(ax_plan_hardware(own, &h), AX_OK);
    assert_true(h.host == 450e9);
    snprintf(named, sizeof named, "%s:three", path);
    refuses(named, "no row is called \"three\"; there are one, two");
    refuses(path, "which row? Add a colon and its name: there are one, two");
    refuses(put_text("h.tsv", "name\tmemory_gib\none\t80\n"),
            "columns are missing: bf16_fp16_dense_tflops fp8_dense_tflops hbm_gb_s "
            "nvlink_gb_s_per_direction_per_gpu internode_gbit_s_per_gpu");
    refuses(put_text("h.tsv", COLUMNS "one\t\t\t80\t3350\t450\t400\n"),
            "h.tsv:2: expected a number in column bf16_fp16_dense_tflops, got \"\"");
    refuses(put_text("h.tsv", COLUMNS "one\t0\t\t80\t3350\t450\t400\n"), "must be more than 0");
    refuses("h100", "no machine is called \"h100\"");
    refuses("h10", "no machine");
    refuses("h201", "did you mean h200?");
}

/* ---- statistics ---- */

static void statistics_by_hand(void **state) {
    (void)state;
    double odd[] = {3, 1, 2}, even[] = {4, 1, 3, 2};
    assert_true(ax_plan_median(odd, 3) == 2);
    assert_true(ax_plan_median(even, 4) == 2.5);
    assert_true(isnan(ax_plan_median(odd, 0)));
    const double a[] = {10, 20, 30, 40}, same[] = {1, 2, 3, 4}, back[] = {4, 3, 2, 1},
                 mixed[] = {1, 3, 2, 4}, ties[] = {1, 1, 2, 2}, flat[] = {5, 5, 5, 5};
    assert_true(fabs(ax_plan_rank_correlation(a, same, 4) - 1) < 1e-12);
    assert_true(fabs(ax_plan_rank_correlation(a, back, 4) + 1) < 1e-12);
    assert_true(fabs(ax_plan_rank_correlation(a, mixed, 4) - 0.8) < 1e-12); /* 1 − 6·2/(4·15) */
    assert_true(fabs(ax_plan_rank_correlation(a, ties, 4) - 4 / sqrt(20)) < 1e-12);
    assert_true(isnan(ax_plan_rank_correlation(a, flat, 4)));
    const struct ax_plan_row row = {.published = 100, .predicted = 130};
    assert_true(fabs(ax_plan_row_error(&row) - 0.3) < 1e-12);
}

/* ---- score ---- */

#define SCORE_COLUMNS                                                                              \
    "id\tsource\tmodel\tmethod\thardware\tgpus\tdp_shard\ttp\tpp\tmicro_batch\tglobal_batch\t"     \
    "seq_len\tprecision\trecompute\toffload\ttokens_per_s_per_gpu\n"

static void rows_are_predicted_or_left_out(void **state) {
    (void)state;
    struct ax_tsv t;
    static struct ax_plan_row r[5];
    const char *path = put_text(
        "s.tsv", SCORE_COLUMNS
        "a\tx\tllama-tiny\tpretrain\th100-sxm-80\t1\t1\t1\t1\t2\t4\t128\tbf16\tnone\t\t1000\n"
        "b\tx\tllama-tiny\tlora\th100-sxm-80\t2\t2\t1\t1\t1\t4\t128?\tbf16\tfull\t\t1000\n"
        "c\tx\tunknown-model\tpretrain\th100-sxm-80\t1\t1\t1\t1\t1\t1\t128\tbf16\t\t\t1000\n"
        "d\tx\tllama-tiny\tpretrain\tb200\t1\t1\t1\t1\t1\t1\t128\tfp8-tensor\t\tweights\t1000\n"
        "e\tx\tllama-tiny\tpretrain\ta100-80\t4\t2\t1\t1\t1\t4\t128\tbf16\t\t\t1000\n");
    assert_int_equal(ax_tsv_read(&t, path), AX_OK);
    for (int i = 0; i < 5; i++)
        assert_int_equal(ax_plan_row_predict(&t, i, &r[i]), AX_OK);
    assert_true(r[0].counts && !r[0].left_out[0] && r[0].predicted > 0 && r[0].published == 1000);
    assert_true(!r[1].counts && !r[1].left_out[0] && r[1].time.moved[AX_TIME_GATHERS] > 0);
    assert_string_equal(r[2].left_out, "no shape of that name");
    assert_true(!r[3].counts);
    assert_string_equal(r[3].left_out, "weights in the host's memory: not possible here");
    assert_non_null(strstr(r[4].left_out, "mesh: ")); /* 2 of 4 ranks */
    /* nothing of the published speed reaches the prediction */
    const double predicted = r[0].predicted;
    ax_tsv_free(&t);
    path = put_text(
        "s.tsv", SCORE_COLUMNS
        "a\tx\tllama-tiny\tpretrain\th100-sxm-80\t1\t1\t1\t1\t2\t4\t128\tbf16\tnone\t\t7\n");
    assert_int_equal(ax_tsv_read(&t, path), AX_OK);
    assert_int_equal(ax_plan_row_predict(&t, 0, &r[0]), AX_OK);
    assert_true(r[0].predicted == predicted);
    ax_tsv_free(&t);
}

/* What columns say of a step reaches its plan: with each cell of a list it is smaller, or faster, than with
 * the one before. */
enum { MODEL, HARDWARE, NODE, GPUS, SHARD, PP, VIRTUAL, MICRO, ROWS, LEN, DTYPE, METHOD };
enum { STATES = METHOD + 1, RECOMPUTE, STAGE, NOTES, PUBLISHED, CELLS };
static const char columns[] = "model\thardware\tnodes_gpus\tgpus\tdp_shard\tpp\tvirtual_"
                              "stages\tmicro_batch\tglobal_batch\tseq_len\t"
                              "precision\tmethod\toptimizer_states\trecompute\tzero_stage\tcompile_"
                              "or_notes\ttokens_per_s_per_gpu";
static const char *const usual[CELLS] = {
    "llama-3.2-1b", "h100-sxm-80", "8",    "8", "8",    "",  "", "2", "16",
    "2048",         "bf16",        "full", "",  "none", "3", "", "9"};

/* With the usual cells where one is NULL. */
static const struct ax_plan_row *row_of(const char *const cells[CELLS]) {
    static struct ax_plan_row r;
    char text[1024];
    struct ax_tsv t;
    snprintf(text, sizeof text, "id\tsource\t%s\na\tx", columns);
    for (int c = 0; c < CELLS; c++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "\t%s",
                 cells[c] ? cells[c] : usual[c]);
    assert_int_equal(ax_tsv_read(&t, put_text("s.tsv", text)), AX_OK);
    assert_int_equal(ax_plan_row_predict(&t, 0, &r), AX_OK);
    assert_string_equal(r.left_out, "");
    ax_tsv_free(&t);
    return &r;
}

static const struct ax_plan_row *row_with(int column, const char *cell) {
    const char *cells[CELLS] = {NULL};
    if (column == VIRTUAL)
        cells[PP] = "4", cells[SHARD] = "2";
    cells[column] = cell;
    return row_of(cells);
}

/* Packed short samples are eight in a row: the step is that of eight times as many rows of an eighth. */
static void packed_samples_are_shorter_rows(void **state) {
    (void)state;
    const char *packed[CELLS] = {[NOTES] = "packed short samples"};
    const char *apart[CELLS] = {[MICRO] = "16", [ROWS] = "128", [LEN] = "256"};
    const struct ax_plan_time a = row_of(packed)->time, b = row_of(apart)->time;
    assert_true(a.step > 0 && a.step == b.step);
    assert_true(a.arena > 0 && a.arena == b.arena);
}

static void columns_change_the_plan(void **state) {
    (void)state;
    static const struct {
        int column;
        bool faster;
        const char *cells[3];
    } changes[] = {
        {STATES, false, {"fp32", "8bit?", "bf16"}},
        {RECOMPUTE, false, {"none", "selective", "full"}},
        {RECOMPUTE, false, {"", "op", "full?"}},
        {STAGE, false, {"1", "3"}},
        {METHOD, false, {"pretrain", "lora", "qlora"}},
        {NODE, true, {"1", "4", "8"}},
        {DTYPE, true, {"bf16", "fp8-row"}},
        {NOTES, true, {"", "packed short samples"}},
        {VIRTUAL, true, {"2", "1"}}, /* of so few micro-batches */
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        double before = INFINITY;
        for (int k = 0; k < 3 && changes[i].cells[k]; k++) {
            const struct ax_plan_row *r = row_with(changes[i].column, changes[i].cells[k]);
            const double now = changes[i].faster ? r->time.step : (double)r->time.arena;
            if (!(now < before))
                fail_msg("column %d, \"%s\": %g after %g", changes[i].column, changes[i].cells[k],
                         now, before);
            before = now;
        }
    }
}

/* Errors of either sign count, a source needs three rows for a rank correlation, and rows that were left
 * out or do not count are in no figure that they do not belong to. */
static void the_figures_of_a_table(void **state) {
    (void)state;
    static const struct ax_plan_row rows[] = {{.id = "a",
                                               .source = "x",
                                               .model = "m",
                                               .hardware = "h",
                                               .counts = true,
                                               .published = 100,
                                               .predicted = 120,
                                               .published_memory = 10,
                                               .predicted_memory = 15},
                                              {.id = "b",
                                               .source = "x",
                                               .model = "m",
                                               .hardware = "h",
                                               .counts = true,
                                               .published = 200,
                                               .predicted = 120,
                                               .published_memory = 10,
                                               .predicted_memory = 9},
                                              {.id = "c",
                                               .source = "x",
                                               .model = "m",
                                               .hardware = "h",
                                               .counts = true,
                                               .published = 300,
                                               .predicted = 330,
                                               .published_memory = 10,
                                               .predicted_memory = 8},
                                              {.id = "d",
                                               .source = "y",
                                               .model = "m",
                                               .hardware = "h",
                                               .counts = true,
                                               .published = 400,
                                               .predicted = 600},
                                              {.id = "e",
                                               .source = "y",
                                               .model = "m",
                                               .hardware = "h",
                                               .published = 100,
                                               .predicted = 25},
                                              {.id = "f",
                                               .source = "y",
                                               .model = "m",
                                               .hardware = "h",
                                               .counts = true,
                                               .published = 1,
                                               .left_out = "why",
                                               .published_memory = 1}};
    char text[8192] = "";
    FILE *to = tmpfile();
    const int old = dup(STDOUT_FILENO);
    assert_true(to && old >= 0);
    fflush(stdout);
    dup2(fileno(to), STDOUT_FILENO);
    assert_int_equal(ax_plan_score_print(rows, 6), AX_OK);
    fflush(stdout);
    dup2(old, STDOUT_FILENO);
    close(old);
    rewind(to);
    assert_true(fread(text, 1, sizeof text - 1, to) > 0);
    fclose(to);
    static const char *const lines[] = {
        " 4 rows: median error  30.0 %,  50 % of them within 30 %, rank correlation 0.949\n",
        " 3 rows: median error  20.0 %,  67 % of them within 30 %, rank correlation 0.866\n",
        " 1 rows: median error  50.0 %,   0 % of them within 30 %\n",
        " 5 rows: median error  40.0 %,  40 % of them within 30 %, rank correlation ",
        " 2 rows: median error  62.5 %,   0 % of them within 30 %\n",
        "median rank correlation within a source: 0.866\n",
        "memory, of other programs: 3 rows, median difference 20.0 %\n",
        "     120.0   -40.0 %  memory   10.0    9.0 GiB\n",
        " left out: why\n"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!strstr(text, lines[i]))
            fail_msg("%snot in it: %s", text, lines[i]);
    assert_null(strstr(text, "within a source: 0.9")); /* with the 1 of y's two rows */
}

static double speed_of_row(const char *row) {
    struct ax_tsv t;
    struct ax_plan_row r;
    char text[1024];
    snprintf(text, sizeof text, "compile_or_notes\t" SCORE_COLUMNS "%s\t7\n", row);
    assert_int_equal(ax_tsv_read(&t, put_text("s.tsv", text)), AX_OK);
    assert_int_equal(ax_plan_row_predict(&t, 0, &r), AX_OK);
    if (r.left_out[0])
        fail_msg("%s", r.left_out);
    ax_tsv_free(&t);
    return r.predicted;
}

static double speed_of(const char *source, const char *hardware, const char *offload,
                       const char *notes) {
    char row[512];
    snprintf(row, sizeof row,
             "%s\ta\t%s\tllama-3.2-1b\tpretrain\t%s\t2\t1\t2\t1\t1\t1\t4096\tbf16\tnone\t%s", notes,
             source, hardware, offload);
    return speed_of_row(row);
}

/* Its attention, whether activations move behind products, and what it keeps in the host's memory. */
static void programs_do_as_documented(void **state) {
    (void)state;
    const double h200 = speed_of("x", "h200", "none", ""), a100 = speed_of("x", "a100-80", "", "");
    assert_true(speed_of("torchtitan 2024", "h200", "", "") < 0.99 * h200);
    assert_true(speed_of("x", "h200", "", "FlashAttention-2") < 0.99 * h200);
    assert_true(speed_of("torchtitan 2024", "a100-80", "", "") == a100);
    assert_true(speed_of("x", "h200", "", "compile; async TP") > 1.01 * h200);
    assert_true(speed_of("Megatron-LM", "h200", "", "") > 1.01 * h200);
    assert_true(speed_of("NeMo Automodel", "h200", "", "") == h200);
    const double states = speed_of("x", "h200", "opt-m+opt-v+master", "");
    assert_true(states < 0.9 * h200);
    assert_true(speed_of("x", "h200", "optimizer?", "") == states);
    /* inputs of layers are behind them, where these take longer than PCIe */
    assert_true(speed_of("x", "h200", "optimizer+residual", "") > 0.999 * states);
    static const char alone[] =
        "\ta\tx\tllama-3.2-1b\tpretrain\tb200\t1\t1\t1\t1\t1\t4\t4096\tbf16\tnone";
    char away[sizeof alone + 16];
    snprintf(away, sizeof away, "%s\tresidual", alone);
    const double slowed = speed_of_row(away);
    snprintf(away, sizeof away, "%s\tnone", alone);
    assert_true(slowed < 0.99 * speed_of_row(away));
}

static void expect_score(int code, const char *said, const char *path) {
    char out[8192];
    const int got = run_beside(out, sizeof out, "tests/bench/plan_score", "'%s'", path);
    if (got != code || !strstr(out, said))
        fail_msg("exit code %d, expected %d and \"%s\":\n%s", got, code, said, out);
}

static void the_program_scores(void **state) {
    (void)state;
    need_binary();
    const char *path = put_text(
        "s.tsv", SCORE_COLUMNS
        "a\tx\tllama-tiny\tpretrain\th100-sxm-80\t1\t1\t1\t1\t2\t4\t128\tbf16\tnone\t\t1000\n"
        "b\tx\tnone\tpretrain\th100-sxm-80\t1\t1\t1\t1\t2\t4\t128\tbf16\tnone\t\t1000\n");
    expect_score(0, "left out: no shape of that name", path);
    expect_score(0, "   1 rows: median error", path);
    expect_score(2, "column id is missing", put_text("s.tsv", "a\tb\n1\t2\n"));
    expect_score(2, "expected a number in column seq_len, got \"long\"",
                 put_text("s.tsv", SCORE_COLUMNS
                          "a\tx\tllama-tiny\tpretrain\th100-sxm-80\t1\t1\t1\t1\t2\t4\tlong"
                          "\tbf16\tnone\t\t1000\n"));
    expect_score(1, "nothing.tsv: cannot open", in_scratch("nothing.tsv"));
    sft_command = "plan";
    EXPECT(2, "build/tests/bench/plan_score FILE.tsv", "score", path);
}

/* ---- a step, and the best mesh ---- */

static void the_command_times_a_step(void **state) {
    (void)state;
    need_binary();
    sft_command = "plan";
    EXPECT(0, "machine  h200 (", "--arch", "llama-tiny", "--seq", "64", "--hardware", "h200");
    EXPECT(0, "; 141 GiB free: it fits\n", "--arch", "llama-tiny", "--seq", "64", "--hardware",
           "h200");
    EXPECT(0, "gathers of weights", "--arch", "llama-tiny", "--seq", "64", "--mesh", "dp_shard=2",
           "--hardware", "h200");
    EXPECT(0, "waiting for other stages", "--arch", "llama-tiny", "--seq", "64", "--mesh", "pp=2",
           "--accumulate", "4", "--hardware", "a100-80");
    EXPECT(0, "machine  this machine (measured now)", "--arch", "llama-tiny", "--seq", "64",
           "--dtype", "float32", "--measured");
    EXPECT(0, "\"step_seconds\": ", "--arch", "llama-tiny", "--seq", "64", "--hardware", "h200",
           "--json");
    EXPECT(2, "no machine is called \"h2000\"; did you mean h200?", "--arch", "llama-tiny",
           "--hardware", "h2000");
    EXPECT(2, "either --hardware or --measured", "--arch", "llama-tiny", "--hardware", "h200",
           "--measured");
}

static double number_in(const json_t *v, const char *key) {
    const json_t *x = json_object_get(json_object_get(v, "memory"), key);
    assert_true(json_is_integer(x));
    return (double)json_integer_value(x);
}

/* On a machine of `gib` of memory; *need of it, bytes, are used. */
static bool fits(double gib, double *need) {
    char out[1 << 15], table[256];
    snprintf(table, sizeof table, COLUMNS "one\t989\t\t%.17g\t3350\t450\t400\n", gib);
    if (run(out, sizeof out, "plan --arch llama-tiny --seq 64 --json --hardware %s:one",
            put_text("m.tsv", table)) != 0)
        fail_msg("%s", out);
    json_t *v = json_loads(out, 0, NULL);
    assert_non_null(v);
    const json_t *said = json_object_get(json_object_get(v, "memory"), "fits");
    assert_true(json_is_boolean(said));
    const bool is = json_is_true(said);
    *need = number_in(v, "arena_bytes") + number_in(v, "other_bytes");
    assert_true(number_in(v, "available_bytes") == gib * GIB);
    json_decref(v);
    return is;
}

/* To the byte; where it does not fit with less recompute, it may with more. */
static void a_step_fits_its_machine(void **state) {
    (void)state;
    double need, again;
    need_binary();
    assert_true(fits(80, &need));
    for (int mode = AX_RECOMPUTE_OFF; mode <= AX_RECOMPUTE_ON; mode++) {
        const double bytes = need;
        assert_true(fits(bytes / GIB, &again) && again == bytes);
        assert_true(fits((bytes - 1) / GIB, &need) == (mode < AX_RECOMPUTE_ON));
        assert_true((need < bytes) == (mode < AX_RECOMPUTE_ON));
    }
}

static void the_command_searches(void **state) {
    (void)state;
    char said[4096];
    need_binary();
    sft_command = "plan";
    /* on any number of threads */
    for (int threads = 1; threads <= 2; threads++) {
        assert_int_equal(setenv("OMP_NUM_THREADS", threads == 1 ? "1" : "2", 1), 0);
        EXPECT(0, "best 1   dp_shard4, micro-batches of 8, recompute off", "--arch", "llama-tiny",
               "--seq", "64", "--accumulate", "8", "--world", "4", "--hardware", "h200",
               "--search");
    }
    assert_int_equal(unsetenv("OMP_NUM_THREADS"), 0);
    EXPECT(0, "best 3   ", "--arch", "llama-tiny", "--seq", "64", "--accumulate", "8", "--world",
           "4", "--hardware", "h200", "--search");
    EXPECT(0, ": slower", "--arch", "llama-tiny", "--seq", "64", "--accumulate", "8", "--world",
           "4", "--hardware", "h200", "--search");
    assert_int_equal(
        sft(said, sizeof said, 10,
            (const char *const[]){"--arch", "llama-tiny", "--seq", "64", "--accumulate", "8",
                                  "--world", "4", "--hardware=h200", "--search"}),
        0);
    assert_non_null(strstr(said, "left out 5: cp leaves less"));
    assert_null(strstr(said, " 0: ")); /* reasons that have left out none */
    EXPECT(2, "--search needs --hardware", "--arch", "llama-tiny", "--world", "4", "--search");
    EXPECT(2, "--search needs --world", "--arch", "llama-tiny", "--hardware", "h200", "--search");
    /* 405 billion parameters on two ranks of 24 GiB */
    EXPECT(2, "no mesh of 2 ranks of rtx4090 fits", "--arch", "llama-3.1-405b", "--seq", "64",
           "--world", "2", "--hardware", "rtx4090", "--search");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cells_have_lines),
        cmocka_unit_test(machines_come_from_files),
        cmocka_unit_test(statistics_by_hand),
        cmocka_unit_test(rows_are_predicted_or_left_out),
        cmocka_unit_test(packed_samples_are_shorter_rows),
        cmocka_unit_test(columns_change_the_plan),
        cmocka_unit_test(the_figures_of_a_table),
        cmocka_unit_test(the_program_scores),
        cmocka_unit_test(the_command_times_a_step),
        cmocka_unit_test(programs_do_as_documented),
        cmocka_unit_test(a_step_fits_its_machine),
        cmocka_unit_test(the_command_searches),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
