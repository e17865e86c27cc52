/* What a server says of documents becomes columns: where there are labels, and nowhere else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>

#include "base/stop.h"
#include "optim/evaluate/asked.h"
#include "tests/endpoint_stub.h"

enum { K = 3, MOST = 4, UNTOUCHED = 0x5a5a5a5a };

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* ---- the server ---- */

/* Of a token below 5: that 2, 0, 1 follow with 0.5, 0.25, 0.125. Of others: 1, 0, 7 with probabilities that rounding
 * has left above 1 in all. */
static const double some[K] = {0.5, 0.25, 0.125}, all[K] = {0.6, 0.3, 0.1000001};
static const int32_t after_some[K] = {2, 0, 1}, after_all[K] = {1, 0, 7};

static void put_token(struct ax_buf *out, int32_t id) {
    const double *p = id < 5 ? some : all;
    const int32_t *after = id < 5 ? after_some : after_all;
    bool among = false;
    ax_buf_puts(out, ",{");
    for (int j = 0; j < K; j++) {
        ax_buf_printf(out, "%s\"%d\":{\"logprob\":%.17g,\"rank\":%d}", j > 0 ? "," : "", after[j],
                      log(p[j]), j + 1);
        among = among || after[j] == id;
    }
    if (!among)
        ax_buf_printf(out, ",\"%d\":{\"logprob\":-9,\"rank\":50}", id);
    ax_buf_puts(out, "}");
}

static struct {
    char text[16][64];
    int n;
} asked;

static int answer(struct stub *s, const char *head, const char *body, struct ax_buf *out) {
    (void)s;
    if (strstr(head, "Authorization")) /* no key was given */
        return 400;
    if (strncmp(head, "GET", 3) == 0) {
        ax_buf_puts(out, "{\"data\":[{\"id\":\"m\"}]}");
        return 200;
    }
    if (!strstr(head, "/v1/completions"))
        return 404;
    json_t *v = json_loads(body, 0, NULL), *prompts = json_object_get(v, "prompt");
    ax_buf_puts(out, "{\"choices\":[");
    for (size_t p = 0; p < json_array_size(prompts); p++) {
        const json_t *ids = json_array_get(prompts, p);
        char *text = json_dumps(ids, JSON_COMPACT);
        if (asked.n < 16)
            snprintf(asked.text[asked.n++], sizeof *asked.text, "%s", text);
        ax_free_hook(text);
        ax_buf_printf(out, "%s{\"index\":%zu,\"prompt_logprobs\":[null", p > 0 ? "," : "", p);
        for (size_t i = 1; i < json_array_size(ids); i++)
            put_token(out, (int32_t)json_integer_value(json_array_get(ids, i)));
        ax_buf_puts(out, "]}");
    }
    ax_buf_puts(out, "]}");
    json_decref(v);
    return 200;
}

static struct stub stub = {.answer = answer};
static struct ax_remote_teacher *teacher;
static struct ax_runtime rt;

static void open_teacher(void) {
    const struct ax_remote_teacher_options o = {
        .server = {.url = stub.url, .seconds = 20, .concurrency = 1},
        .prompts = 8,
        .k = K,
        .vocab = 64,
        .longest = 16};
    must(ax_remote_teacher_open(&teacher, &o));
    asked.n = 0;
}

/* ---- documents ---- */

static struct columns {
    uint32_t ids[MOST][K], logits[MOST][K], tail_id[MOST], tail[MOST];
} columns[3];

static const int32_t tokens[3][MOST] = {{5, 6, 7, 8}, {3, 3, 3, 3}, {1, 2, 9, 4}},
                     labels[3][MOST] = {{-1, 7, -1, -1}, {-1, -1, -1, -1}, {2, -1, 4, -1}};

static void make(struct ax_document *docs) {
    memset(columns, UNTOUCHED & 0xff, sizeof columns);
    for (int i = 0; i < 3; i++)
        docs[i] = (struct ax_document){.n = MOST,
                                       .tokens = tokens[i],
                                       .labels = labels[i],
                                       .columns = {[AX_DISTILL_IDS] = &columns[i].ids[0][0],
                                                   [AX_DISTILL_LOGITS] = &columns[i].logits[0][0],
                                                   [AX_DISTILL_TAIL_ID] = columns[i].tail_id,
                                                   [AX_DISTILL_TAIL] = columns[i].tail}};
}

static double number(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

/* after NULL: the place has no label. */
static void expect_place(int doc, int at, bool with_tail, const int32_t *after, const double *p,
                         uint32_t tail_id, double tail) {
    const struct columns *c = &columns[doc];
    for (int j = 0; j < K; j++) {
        assert_int_equal(c->ids[at][j], after ? (uint32_t)after[j] : UNTOUCHED);
        if (after)
            assert_true(fabs(number(c->logits[at][j]) - log(p[j])) < 1e-6);
        else
            assert_int_equal(c->logits[at][j], UNTOUCHED);
    }
    assert_int_equal(c->tail_id[at], after && with_tail ? tail_id : UNTOUCHED);
    if (after && with_tail)
        assert_true(fabs(number(c->tail[at]) - tail) < 1e-6);
    else
        assert_int_equal(c->tail[at], UNTOUCHED);
}

static void fill(bool with_tail) {
    struct ax_document docs[3];
    const struct ax_document *list[] = {&docs[0], &docs[1], &docs[2]};
    const struct ax_distill_options o = {.stored = K, .asked = true, .tail = with_tail};
    bool stopped = false;
    make(docs);
    asked.n = 0;
    must(ax_asked_fill(&rt, teacher, &o, 3, list, &stopped));
    assert_false(stopped);
    assert_int_equal(asked.n, 2); /* up to the token that the last label names */
    assert_string_equal(asked.text[0], "[5,6,7]");
    assert_string_equal(asked.text[1], "[1,2,9,4]");
    for (int doc = 0; doc < 3; doc++)
        for (int at = 0; at < MOST; at++)
            if (doc == 0 && at == 1) /* nothing is left of 1: as little as TRL takes for it */
                expect_place(doc, at, with_tail, after_all, all, 2, log(1e-7));
            else if (doc == 2 && (at == 0 || at == 2))
                expect_place(doc, at, with_tail, after_some, some, 3, log(0.125));
            else
                expect_place(doc, at, with_tail, NULL, NULL, 0, 0);
}

static void columns_of_labels(void **state) {
    (void)state;
    fill(false);
    fill(true);
}

/* ---- what stops it ---- */

/* Columns stay as they are. */
static void asked_to_stop(void **state) {
    (void)state;
    struct ax_document docs[3];
    const struct ax_document *list[] = {&docs[0], &docs[1], &docs[2]};
    const struct ax_distill_options o = {.stored = K, .asked = true};
    bool stopped = false;
    make(docs);
    ax_stop_watch();
    assert_int_equal(raise(SIGTERM), 0);
    must(ax_asked_fill(&rt, teacher, &o, 3, list, &stopped));
    ax_stop_unwatch();
    assert_true(stopped);
    for (int doc = 0; doc < 3; doc++)
        for (int at = 0; at < MOST; at++)
            expect_place(doc, at, false, NULL, NULL, 0, 0);
}

static int begin(void **state) {
    (void)state;
    unsetenv("http_proxy");
    unsetenv("HTTP_PROXY");
    stub_start(&stub);
    if (ax_runtime_open_planning(&rt, &(struct ax_runtime_options){.backend = "ref"}) != AX_OK)
        return -1;
    open_teacher();
    return 0;
}

static int end(void **state) {
    (void)state;
    ax_remote_teacher_close(teacher);
    ax_runtime_close(&rt);
    stub_stop(&stub);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(columns_of_labels),
                                       cmocka_unit_test(asked_to_stop)};
    return cmocka_run_group_tests(tests, begin, end);
}
