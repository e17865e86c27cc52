/* Results of benchmarks: their JSON there and back, verdicts both ways, and what a comparison says.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cmd/bench/bench.h"
#include "tests/data/scratch.h"

static struct ax_bench_figure rate(double value) {
    return (struct ax_bench_figure){value, "tokens/s", false, 0.5};
}
static struct ax_bench_figure cost(double value) {
    return (struct ax_bench_figure){value, "ms", true, -1};
}

static void set_machine(struct ax_bench_list *l, const char *cpu) {
    l->machine = json_pack("{ss si ss}", "cpu", cpu, "cpus", 2, "instruction_set", "avx512");
    l->threads = 2;
    assert_non_null(l->machine);
}

static void put(struct ax_bench_list *l, const char *name, struct ax_bench_figure f) {
    assert_ok(ax_bench_list_add(l, name, &f));
}

static void test_json_there_and_back(void **state) {
    (void)state;
    struct ax_bench_list a = {0}, b;
    json_t *json;
    char *text;
    size_t len;
    set_machine(&a, "one");
    for (int i = 0; i < 100; i++) {
        char name[32];
        snprintf(name, sizeof name, "figure/%d", i);
        put(&a, name, i % 2 ? rate(i / 3.0) : cost(i));
    }
    assert_ok(ax_bench_list_json(&a, &json));
    assert_string_equal(json_string_value(json_object_get(json, "version")), AX_VERSION);
    assert_int_equal(strlen(json_string_value(json_object_get(json, "date"))), 20);
    const json_t *first = json_array_get(json_object_get(json, "results"), 0);
    assert_true(json_is_null(json_object_get(first, "share_of_peak")));
    assert_string_equal(json_string_value(json_object_get(first, "better")), "lower");
    assert_ok(ax_json_dump(json, &text, &len));
    json_decref(json);
    assert_ok(ax_bench_list_parse(&b, "b.json", text, len));
    ax_free(text);
    assert_int_equal(b.n, a.n);
    assert_int_equal(b.threads, 2);
    assert_true(json_equal(a.machine, b.machine));
    for (size_t i = 0; i < a.n; i++) {
        const struct ax_bench_result *x = &a.list[i], *y = &b.list[i];
        assert_string_equal(x->name, y->name);
        assert_string_equal(x->unit, y->unit);
        assert_true(x->figure.value == y->figure.value && x->figure.share == y->figure.share);
        assert_int_equal(x->figure.lower_is_better, y->figure.lower_is_better);
    }
    const struct ax_bench_figure again = rate(1);
    assert_error(ax_bench_list_add(&a, "figure/3", &again), AX_ERR_FAILED, "figure/3");
    ax_bench_list_free(&a);
    ax_bench_list_free(&b);
}

static void test_bad_files(void **state) {
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"[1]", "results: expected a list; is this what `axtrain bench -o` wrote?"},
        {"{\"results\": []", "old.json:1:"},
        {"{\"results\": []}", "machine: expected an object"},
        {"{\"machine\": {}, \"results\": [7]}", "results[0].name"},
        {"{\"machine\": {}, \"results\": [{\"name\": \"a\", \"unit\": \"s\", \"better\": "
         "\"lower\", \"value\": \"7\"}]}",
         "results[0].value"},
        {"{\"machine\": {}, \"results\": [{\"name\": \"a\", \"unit\": \"s\", \"better\": "
         "\"lower\", \"value\": -1}]}",
         "expected 0 or more, got -1"},
        {"{\"machine\": {}, \"results\": [{\"name\": \"a\", \"unit\": \"s\", \"better\": "
         "\"faster\", \"value\": 1}]}",
         "expected \"higher\" or \"lower\", got \"faster\""},
        {"{\"machine\": {}, \"results\": [{\"name\": \"a\\u001b[2J\", \"unit\": \"s\", "
         "\"better\": \"lower\", \"value\": 1}]}",
         "contains a control character"},
        {"{\"machine\": {\"cpu\": \"\\u0007\"}, \"results\": []}",
         "machine.cpu: contains a control"},
        {"{\"machine\": {}, \"results\": [{\"name\": \"a\", \"unit\": \"s\", \"better\": "
         "\"lower\", \"value\": 1}, {\"name\": \"a\", \"unit\": \"s\", \"better\": \"lower\", "
         "\"value\": 1}]}",
         "\"a\" appears twice"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_bench_list l;
        const char *path = put_text("old.json", cases[i].text);
        assert_error(ax_bench_list_load(&l, path), AX_ERR_DATA, cases[i].part);
        assert_error(ax_bench_list_load(&l, path), AX_ERR_DATA, "--compare: ");
        assert_int_equal(l.n, 0);
        assert_null(l.machine);
    }
    struct ax_bench_list l;
    assert_error(ax_bench_list_load(&l, in_scratch("none.json")), AX_ERR_CONFIG, "none.json");
}

static void test_tolerances(void **state) {
    (void)state;
    static const char *const bad[] = {"", "5", "%", "5 %", "-1%", "101%", "nan%", "five%", "5%%"};
    double t;
    assert_ok(ax_bench_tolerance_parse("5%", &t));
    assert_true(t == 0.05);
    assert_ok(ax_bench_tolerance_parse("0%", &t));
    assert_true(t == 0);
    assert_ok(ax_bench_tolerance_parse("2.5%", &t));
    assert_true(t == 0.025);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_error(ax_bench_tolerance_parse(bad[i], &t), AX_ERR_CONFIG, "such as 5%");
}

static void test_verdicts(void **state) {
    (void)state;
    static const struct {
        double old, now;
        enum ax_bench_verdict if_higher, if_lower; /* is better; at 10 % */
    } cases[] = {
        {100, 100, AX_BENCH_SAME, AX_BENCH_SAME},    {100, 91, AX_BENCH_SAME, AX_BENCH_SAME},
        {100, 109, AX_BENCH_SAME, AX_BENCH_SAME},    {100, 89, AX_BENCH_WORSE, AX_BENCH_BETTER},
        {100, 111, AX_BENCH_BETTER, AX_BENCH_WORSE}, {0, 0, AX_BENCH_SAME, AX_BENCH_SAME},
        {0, 1, AX_BENCH_BETTER, AX_BENCH_WORSE},     {1, 0, AX_BENCH_WORSE, AX_BENCH_BETTER},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ax_bench_figure old = rate(cases[i].old), now = rate(cases[i].now);
        assert_int_equal(ax_bench_judge(&old, &now, 0.1), cases[i].if_higher);
        old = cost(cases[i].old);
        now = cost(cases[i].now);
        assert_int_equal(ax_bench_judge(&old, &now, 0.1), cases[i].if_lower);
    }
    const struct ax_bench_figure old = rate(100), now = rate(99.999);
    assert_int_equal(ax_bench_judge(&old, &now, 0), AX_BENCH_WORSE);
}

static void expect_line(const struct ax_buf *table, const char *name, const char *end) {
    const char *line = strstr(table->data, name);
    char text[256];
    if (!line)
        fail_msg("no %s in:\n%s", name, table->data);
    snprintf(text, sizeof text, "%.*s", (int)strcspn(line, "\n"), line);
    if (!strstr(text, end))
        fail_msg("no \"%s\" in: %s", end, text);
}

static void test_comparison(void **state) {
    (void)state;
    struct ax_bench_list old = {0}, now = {0};
    struct ax_buf table = {0};
    int worse;
    set_machine(&old, "one");
    set_machine(&now, "one");
    put(&old, "step/speed", rate(200));
    put(&now, "step/speed", rate(150));
    put(&old, "step/time", cost(10));
    put(&now, "step/time", cost(20));
    put(&old, "step/more", rate(100));
    put(&now, "step/more", rate(300));
    put(&old, "step/same", rate(100));
    put(&now, "step/same", rate(99));
    put(&old, "step/unit", rate(1));
    put(&now, "step/unit", cost(1));
    put(&old, "gone", rate(1));
    put(&now, "fresh", rate(1));
    assert_ok(ax_bench_compare(&table, "old.json", &old, &now, 0.05, &worse));
    assert_int_equal(worse, 2);
    assert_null(strstr(table.data, "warning"));
    expect_line(&table, "step/speed", "200.0      150.0 tokens/s     0.750  WORSE");
    expect_line(&table, "step/time", "2.000  WORSE");
    expect_line(&table, "step/more", "3.000  better");
    expect_line(&table, "step/same", "0.990  ");
    expect_line(&table, "step/unit", "cannot be compared: tokens/s became ms");
    expect_line(&table, "not measured this time", "not measured this time: gone");
    expect_line(&table, "new: ", "new: fresh");
    expect_line(&table, "2 worse", "2 worse by more than 5%");
    ax_buf_free(&table);

    assert_ok(ax_bench_compare(&table, "old.json", &old, &now, 1, &worse));
    assert_int_equal(worse, 0);
    ax_buf_free(&table);
    ax_bench_list_free(&old);
    ax_bench_list_free(&now);
}

/* Twelve names of figures that one side lacks; of others it says how many. */
static void test_names_of_one_side(void **state) {
    (void)state;
    for (int n = 11; n <= 14; n++) {
        struct ax_bench_list old = {0}, now = {0};
        struct ax_buf table = {0};
        int worse, named = 0;
        char more[32];
        for (int i = 0; i < n; i++) {
            char name[32];
            snprintf(name, sizeof name, "only/%d", i);
            put(&now, name, rate(1));
        }
        assert_ok(ax_bench_compare(&table, "old.json", &old, &now, 0.05, &worse));
        for (const char *at = table.data; (at = strstr(at, "new: only/")) != NULL; at++)
            named++;
        assert_int_equal(named, n < 12 ? n : 12);
        snprintf(more, sizeof more, "new: %d more\n", n - 12);
        assert_true((strstr(table.data, more) != NULL) == (n > 12));
        assert_true((strstr(table.data, " more\n") != NULL) == (n > 12));
        ax_buf_free(&table);
        ax_bench_list_free(&old);
        ax_bench_list_free(&now);
    }
}

static void test_other_machine(void **state) {
    (void)state;
    struct ax_bench_list old = {0}, now = {0};
    struct ax_buf table = {0};
    int worse;
    set_machine(&old, "one");
    set_machine(&now, "another");
    now.threads = 1;
    for (int i = 0; i < 20; i++) {
        char name[32];
        snprintf(name, sizeof name, "only/%d", i);
        put(&old, name, rate(1));
    }
    assert_ok(ax_bench_compare(&table, "old.json", &old, &now, 0.05, &worse));
    assert_int_equal(worse, 0);
    expect_line(&table, "warning: old.json is from a different machine", "cpu was one, is another");
    expect_line(&table, "warning: old.json used", "2 threads, this run uses 1");
    expect_line(&table, "only/11", "only/11");
    assert_null(strstr(table.data, "only/12"));
    expect_line(&table, "not measured this time: 8", "8 more");
    ax_buf_free(&table);
    ax_bench_list_free(&old);
    ax_bench_list_free(&now);
}

static void test_medians(void **state) {
    (void)state;
    double one[] = {7}, two[] = {4, 1}, odd[] = {5, 1, 9}, even[] = {8, 1, 2, 5};
    assert_true(ax_bench_median(one, 1) == 7);
    assert_true(ax_bench_median(two, 2) == 2.5);
    assert_true(ax_bench_median(odd, 3) == 5);
    assert_true(ax_bench_median(even, 4) == 3.5);
}

static void test_numbers(void **state) {
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {0, "0"},          {49152, "49152"}, {1234.5, "1234"},     {999.96, "1000.0"},
        {12.346, "12.35"}, {1, "1.000"},     {0.01234, "0.01234"}, {0.0000012, "0.00000120"}};
    char buf[32];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(ax_bench_format(buf, sizeof buf, cases[i].value), cases[i].text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_there_and_back),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_tolerances),
        cmocka_unit_test(test_verdicts),
        cmocka_unit_test(test_comparison),
        cmocka_unit_test(test_other_machine),
        cmocka_unit_test(test_names_of_one_side),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_medians),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
