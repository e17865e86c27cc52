/* profiler_steps: the timeline of some steps, of all ranks, is valid trace-event JSON that says what ran when; and
 * looking changes nothing. Of ranks that wait in vain the flight records are beside it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include <jansson.h>

#include "base/io.h"
#include "base/mem.h"
#include "kernels/ops.h"
#include "optim/metrics/trace.h"
#include "parallel/fabric/comm.h"
#include "parallel/fabric/comm_local.h"
#include "parallel/fabric/flight.h"
#include "tests/optim/train_runs.h"

enum { RANKS = 2, STEPS = 4 };

struct job {
    char out[64];
    int64_t steps, first;
    bool leaves; /* rank 1 is done two steps early */
    double loss;
};

static enum ax_status train_rank(struct ax_fabric *fabric, void *ctx) {
    struct job *j = ctx;
    struct train_case c;
    struct ax_train_result r;
    char out[80];
    AX_TRY(train_case_open(&c, AX_F32, true));
    snprintf(out, sizeof out, "%s/out", j->out);
    c.o.save.output_dir = out;
    c.o.runtime = (struct ax_runtime_options){
        .backend = "cpu", .threads = 1, .sizes = {.tp = fabric->world}, .fabric = fabric};
    c.o.max_steps = j->leaves && fabric->rank == 1 ? STEPS - 2 : STEPS;
    c.o.step.model.tp_overlap = true;
    c.o.eval.when = (struct ax_cadence){AX_NEVER, 0};
    c.o.profile_steps = j->steps;
    c.o.profile_first = j->first;
    ax_loader_start_epoch(c.loader, 0);
    const enum ax_status st = ax_train(&c.o, &r);
    if (fabric->rank == 0)
        j->loss = r.loss;
    train_case_close(&c);
    return st;
}

/* Runs the job; *trace = its timeline, NULL: none was written. */
static void run(struct job *j, int ranks, json_t **trace) {
    char path[96];
    snprintf(j->out, sizeof j->out, "/tmp/axtrain-timeline-XXXXXX");
    assert_non_null(mkdtemp(j->out));
    if (ax_local_run(ranks, NULL, train_rank, j) != AX_OK)
        fail_msg("%s", ax_error_text());
    snprintf(path, sizeof path, "%s/out/timeline.json", j->out);
    json_error_t error;
    *trace = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!*trace && ax_path_exists(path))
        fail_msg("%s: %s", path, error.text);
    assert_int_equal(ax_remove_tree(j->out), AX_OK);
}

static double number(const json_t *event, const char *key) {
    const json_t *v = json_object_get(event, key);
    assert_true(json_is_number(v));
    return json_number_value(v);
}

static bool is(const json_t *event, const char *key, const char *value) {
    const char *text = json_string_value(json_object_get(event, key));
    return text && strcmp(text, value) == 0;
}

/* The end of the transfer that event i begins. */
static const json_t *end_of(const json_t *events, size_t i) {
    const json_t *begin = json_array_get(events, i);
    const char *id = json_string_value(json_object_get(begin, "id"));
    assert_non_null(id);
    for (size_t k = i + 1; k < json_array_size(events); k++) {
        const json_t *e = json_array_get(events, k);
        if (is(e, "ph", "e") && is(e, "id", id))
            return e;
    }
    return NULL;
}

struct counted {
    int steps, products, waits, transfers, messages;
    double last, first; /* end of the last of the rank's thread; begin of the first */
};

static void count(const json_t *events, size_t i, struct counted *c) {
    const json_t *e = json_array_get(events, i);
    if (is(e, "ph", "M") || is(e, "ph", "e"))
        return;
    const double begin = number(e, "ts");
    assert_true(begin >= 0);
    if (is(e, "ph", "b")) {
        const json_t *end = end_of(events, i), *args = json_object_get(e, "args");
        assert_non_null(end);
        assert_true(number(end, "ts") >= begin && number(args, "bytes") >= 0);
        c->transfers++;
        c->messages += is(e, "name", "tp send_recv");
        return;
    }
    assert_true(is(e, "ph", "X"));
    const double length = number(e, "dur");
    c->steps += is(e, "name", "begin_step");
    c->products += is(e, "name", "gemm");
    assert_true(length >= 0);
    if (is(e, "cat", "wait")) {
        c->waits++;
        return; /* in the order of the transfers' starts */
    }
    assert_true(is(e, "cat", "op"));
    assert_true(begin >= c->last - 0.002); /* one after the other, as far as digits say */
    c->first = c->first < 0 ? begin : c->first;
    c->last = begin + length;
}

static void every_rank_is_in_the_timeline(void **state) {
    (void)state;
    struct job profiled = {.steps = 2, .first = 1}, plain = {0};
    json_t *trace, *none;
    run(&profiled, RANKS, &trace);
    run(&plain, RANKS, &none);
    assert_null(none);
    assert_true(plain.loss > 0 && profiled.loss == plain.loss);
    assert_non_null(trace);
    const json_t *events = json_object_get(trace, "traceEvents");
    struct counted c[RANKS];
    for (int r = 0; r < RANKS; r++)
        c[r] = (struct counted){.first = -1};
    for (size_t i = 0; i < json_array_size(events); i++) {
        const int rank = (int)number(json_array_get(events, i), "pid");
        assert_true(rank >= 0 && rank < RANKS);
        count(events, i, &c[rank]);
    }
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(c[r].steps, 2);
        assert_true(c[r].products > 10 && c[r].messages > 0);
        assert_int_equal(c[r].products, c[0].products);
        assert_int_equal(c[r].transfers, c[0].transfers);
        assert_int_equal(c[r].waits, c[r].transfers);
        assert_true(fabs(c[r].first - c[0].first) < 5e6); /* one clock */
    }
    json_decref(trace);
}

/* Also without others, and if the run ends before the steps do. */
static void one_rank_and_few_steps(void **state) {
    (void)state;
    struct job j = {.steps = 100, .first = STEPS - 1};
    json_t *trace;
    run(&j, 1, &trace);
    const json_t *events = json_object_get(trace, "traceEvents");
    struct counted c = {.first = -1};
    for (size_t i = 0; i < json_array_size(events); i++)
        count(events, i, &c);
    assert_true(c.steps == 1 && c.products > 10 && c.waits == 0 && c.transfers == 0);
    json_decref(trace);
    struct job first = {.steps = 1, .first = 0};
    run(&first, 1, &trace);
    events = json_object_get(trace, "traceEvents");
    const int products = c.products;
    c = (struct counted){.first = -1};
    for (size_t i = 0; i < json_array_size(events); i++)
        count(events, i, &c);
    assert_true(c.steps == 1 && c.products == products);
    json_decref(trace);
    struct job late = {.steps = 1, .first = STEPS};
    run(&late, 1, &trace);
    assert_null(trace);
}

/* Ranks that disagree leave in the run's folder what each did last. */
static void flights_of_a_job_that_fails(void **state) {
    (void)state;
    static const struct ax_local_options impatient = {.timeout = 1};
    struct job j = {.leaves = true};
    snprintf(j.out, sizeof j.out, "/tmp/axtrain-timeline-XXXXXX");
    assert_non_null(mkdtemp(j.out));
    assert_int_not_equal(ax_local_run(RANKS, &impatient, train_rank, &j), AX_OK);
    ax_flight_to(NULL);
    for (int r = 0; r < RANKS; r++) {
        char path[96], *text, want[32];
        size_t n;
        snprintf(path, sizeof path, "%s/out/flight/rank-%d.tsv", j.out, r);
        if (ax_read_file(path, 1 << 20, &text, &n) != AX_OK)
            fail_msg("%s", ax_error_text());
        snprintf(want, sizeof want, "flight\t1\t%d\t%d\t", r, RANKS);
        assert_memory_equal(text, want, strlen(want));
        assert_non_null(strstr(text, "\ntp\t"));
        ax_free(text);
    }
    assert_int_equal(ax_remove_tree(j.out), AX_OK);
}

/* A transfer lasts from its start to the end of the wait for it, of the same lane and ticket; one that nobody has
 * waited for is left out. */
static void spans_become_events(void **state) {
    (void)state;
    enum { TP = AX_ROLE_TP, OTHER = AX_ROLE_CP };
    struct ax_timeline_span list[] = {
        {AX_SPAN_START, AX_ALL_REDUCE, TP, 7, 10.5, 10.5, 640, 0},
        {AX_SPAN_START, AX_ALL_GATHER, TP, 8, 10.625, 10.625, 32, 0},
        {AX_SPAN_OP, AX_OP_gemm, 0, 0, 10.75, 11, 96, 2048},
        {AX_SPAN_WAIT, 0, OTHER, 7, 11, 11.5, 0, 0},
        {AX_SPAN_WAIT, 0, TP, 9, 11.5, 11.75, 0, 0},
        {AX_SPAN_WAIT, 0, TP, 7, 12, 12.25, 0, 0},
    };
    const struct ax_timeline spans = {.n = sizeof list / sizeof *list, .spans = list};
    char want[1024];
    snprintf(want, sizeof want,
             "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n"
             "{\"ph\": \"M\", \"pid\": 3, \"tid\": 0, \"name\": \"process_name\", \"args\": "
             "{\"name\": \"rank 3\"}},\n"
             "{\"ph\": \"M\", \"pid\": 3, \"tid\": 0, \"name\": \"thread_name\", \"args\": "
             "{\"name\": \"ops and waits\"}},\n"
             "{\"ph\": \"b\", \"pid\": 3, \"tid\": 0, \"ts\": 500000.000, \"cat\": \"tp\", "
             "\"id\": \"3.%d.7\", \"name\": \"tp all_reduce\", \"args\": {\"role\": \"tp\", "
             "\"bytes\": 640}},\n"
             "{\"ph\": \"e\", \"pid\": 3, \"tid\": 0, \"ts\": 2250000.000, \"cat\": \"tp\", "
             "\"id\": \"3.%d.7\", \"name\": \"tp all_reduce\"},\n"
             "{\"ph\": \"X\", \"pid\": 3, \"tid\": 0, \"ts\": 2000000.000, \"dur\": 250000.000, "
             "\"cat\": \"wait\", \"name\": \"wait: tp all_reduce\", \"args\": {\"role\": \"tp\", "
             "\"bytes\": 640}},\n"
             "{\"ph\": \"X\", \"pid\": 3, \"tid\": 0, \"ts\": 750000.000, \"dur\": 250000.000, "
             "\"cat\": \"op\", \"name\": \"gemm\", \"args\": {\"flops\": 2048, \"bytes\": 96}}"
             "\n]}\n",
             TP, TP);
    struct ax_trace t;
    assert_int_equal(ax_trace_begin(&t), AX_OK);
    assert_int_equal(ax_trace_timeline(&t, 3, &spans, 10), AX_OK);
    assert_int_equal(ax_trace_join(&t, "", 0), AX_OK); /* of a rank without any */
    assert_int_equal(ax_trace_end(&t), AX_OK);
    assert_string_equal(t.text.data, want);
    ax_trace_free(&t);
    assert_int_equal(ax_trace_begin(&t), AX_OK);
    for (int rank = 0; rank < 2; rank++)
        assert_int_equal(ax_trace_join(&t, "1", 1), AX_OK);
    assert_int_equal(ax_trace_end(&t), AX_OK);
    json_t *v = json_loads(t.text.data, 0, NULL);
    assert_int_equal(json_array_size(json_object_get(v, "traceEvents")), 2);
    json_decref(v);
    ax_trace_free(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(every_rank_is_in_the_timeline, quiet),
        cmocka_unit_test_setup(one_rank_and_few_steps, quiet),
        cmocka_unit_test_setup(flights_of_a_job_that_fails, quiet),
        cmocka_unit_test(spans_become_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
