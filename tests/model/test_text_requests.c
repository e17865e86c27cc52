/* Texts → the tokens that a model scores or continues: those that lm-evaluation-harness has recorded with transformers
 * (tests/goldens/runs/lm_eval). What the model says of them is in tests/cmd/test_eval_harness.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/text/json.h"
#include "model/text/text_requests.h"
#include "tests/golden_files.h"

#define MAX_FILE ((size_t)16 << 20)

static struct ax_text_side side;

static struct ax_json_doc recording(const char *name) {
    struct ax_json_doc doc;
    char path[128];
    snprintf(path, sizeof path, "runs/lm_eval/llama/%s.json", name);
    assert_int_equal(ax_json_load(&doc, golden_path(path), MAX_FILE), AX_OK);
    return doc;
}

static struct ax_text_requests opened(struct ax_json root, const struct ax_text_generation *g) {
    struct ax_text_requests r;
    int64_t most, prefix;
    assert_int_equal(ax_json_i64(ax_json_get(root, "max_length"), 1, 4096, &most), AX_OK);
    assert_int_equal(ax_json_i64(ax_json_get(root, "prefix_token_id"), 0, 4096, &prefix), AX_OK);
    assert_int_equal(ax_text_requests_open(&r, &side, most, g), AX_OK);
    assert_int_equal(r.prefix, prefix);
    return r;
}

static struct ax_buf text(struct ax_json v) {
    struct ax_buf b = {0};
    assert_true(json_is_string(v.v));
    assert_int_equal(ax_buf_append(&b, json_string_value(v.v), json_string_length(v.v)), AX_OK);
    return b;
}

static void same_ids(struct ax_json want, const int32_t *ids, int64_t n) {
    assert_int_equal(ax_json_size(want), n);
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(json_integer_value(ax_json_at(want, (size_t)i).v), ids[i]);
}

static void same_parts(struct ax_json context, struct ax_json continuation,
                       const struct ax_text_requests *r, const struct ax_text_request *q) {
    const int32_t *ids = r->ids.ids + q->at;
    same_ids(context, ids, q->n_context);
    same_ids(continuation, ids + q->n_context, q->n_continuation);
}

static void pairs_are_the_recorded_ones(void **state) {
    (void)state;
    static const char *const names[] = {"mc", "mc_2shot", "mc_chat", "mc_chat_single"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        struct ax_json_doc doc = recording(names[k]);
        const struct ax_json rows = ax_json_get(ax_json_root(&doc), "rows");
        struct ax_text_requests r = opened(ax_json_root(&doc), NULL);
        assert_int_equal(ax_json_size(rows), 30);
        for (size_t i = 0; i < 30; i++) {
            const struct ax_json row = ax_json_at(rows, i), list = ax_json_get(row, "choices");
            struct ax_buf context = text(ax_json_get(row, "context"));
            assert_int_equal(ax_json_size(list), 4);
            for (size_t c = 0; c < 4; c++) {
                const struct ax_json choice = ax_json_at(list, c);
                struct ax_buf continuation = text(ax_json_get(choice, "continuation"));
                int64_t fed;
                assert_int_equal(ax_text_requests_add_pair(&r, i, &context, &continuation), AX_OK);
                const struct ax_text_request *q = &r.list[r.n - 1];
                assert_int_equal(q->item, i);
                same_parts(ax_json_get(row, "context_ids"), ax_json_get(choice, "continuation_ids"),
                           &r, q);
                (void)ax_text_requests_fed(&r, q, &fed);
                assert_int_equal(json_integer_value(ax_json_get(choice, "fed").v), fed);
                ax_buf_free(&continuation);
            }
            ax_buf_free(&context);
        }
        ax_text_requests_free(&r);
        ax_json_free(&doc);
    }
}

static void windows_are_the_recorded_ones(void **state) {
    (void)state;
    struct ax_json_doc doc = recording("rolling");
    const struct ax_json rows = ax_json_get(ax_json_root(&doc), "rows");
    struct ax_text_requests r = opened(ax_json_root(&doc), NULL);
    assert_int_equal(ax_json_size(rows), 10);
    for (size_t i = 0; i < 10; i++) {
        const struct ax_json row = ax_json_at(rows, i), windows = ax_json_get(row, "windows");
        const size_t first = r.n;
        struct ax_buf b = text(ax_json_get(row, "text"));
        assert_int_equal(ax_text_requests_add_windows(&r, i, b.data, b.len), AX_OK);
        assert_int_equal(ax_json_size(windows), r.n - first);
        for (size_t k = first; k < r.n; k++) {
            const struct ax_json w = ax_json_at(windows, k - first);
            same_parts(ax_json_get(w, "context_ids"), ax_json_get(w, "continuation_ids"), &r,
                       &r.list[k]);
        }
        ax_buf_free(&b);
    }
    assert_int_equal(r.n, 13);
    ax_text_requests_free(&r);
    ax_json_free(&doc);
}

/* The stop texts of a row but its last, which is the end of sequence. */
static struct ax_text_generation stops_of(struct ax_json row) {
    const struct ax_json stop = ax_json_get(row, "stop");
    struct ax_text_generation g = {.max_tokens = 64, .n_until = ax_json_size(stop) - 1};
    assert_int_equal(ax_alloc(&g.until, g.n_until, sizeof(char *)), AX_OK);
    for (size_t i = 0; i < g.n_until; i++)
        g.until[i] = (char *)(uintptr_t)json_string_value(ax_json_at(stop, i).v);
    return g;
}

static void prompts_are_the_recorded_ones(void **state) {
    (void)state;
    static const char *const names[] = {"arith_2shot", "gsm8k_0shot", "gsm8k_2shot", "gsm8k_chat"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        struct ax_json_doc doc = recording(names[k]);
        const struct ax_json rows = ax_json_get(ax_json_root(&doc), "rows");
        const struct ax_json stop = ax_json_get(ax_json_at(rows, 0), "stop");
        const struct ax_text_generation g = stops_of(ax_json_at(rows, 0));
        struct ax_text_requests r = opened(ax_json_root(&doc), &g);
        assert_int_equal(r.n_until, ax_json_size(stop));
        for (size_t i = 0; i < r.n_until; i++)
            assert_string_equal(r.until[i], json_string_value(ax_json_at(stop, i).v));
        for (size_t i = 0; i < ax_json_size(rows); i++) {
            const struct ax_json row = ax_json_at(rows, i);
            struct ax_buf b = text(ax_json_get(row, "context"));
            int64_t fed;
            assert_int_equal(ax_text_requests_add_prompt(&r, i, b.data, b.len), AX_OK);
            const struct ax_text_request *q = &r.list[i];
            const int32_t *ids = ax_text_requests_fed(&r, q, &fed);
            assert_int_equal(json_integer_value(ax_json_get(row, "context_tokens").v),
                             q->n_context);
            same_ids(ax_json_get(row, "fed_ids"), ids, fed);
            ax_buf_free(&b);
        }
        ax_text_requests_free(&r);
        ax_free(g.until);
        ax_json_free(&doc);
    }
}

/* ---- what has no tokens, or too many ---- */

static void pair(int64_t most, const char *context, const char *continuation, const char *why) {
    struct ax_buf a = {0}, b = {0};
    struct ax_text_requests r;
    assert_int_equal(ax_buf_puts(&a, context), AX_OK);
    assert_int_equal(ax_buf_puts(&b, continuation), AX_OK);
    assert_int_equal(ax_text_requests_open(&r, &side, most, NULL), AX_OK);
    const enum ax_status st = ax_text_requests_add_pair(&r, 0, &a, &b);
    assert_int_equal(st, why ? AX_ERR_DATA : AX_OK);
    if (why)
        assert_non_null(strstr(ax_error_text(), why));
    ax_buf_free(&a);
    ax_buf_free(&b);
    ax_text_requests_free(&r);
}

static void mistakes(void **state) {
    (void)state;
    struct ax_text_generation g = {.max_tokens = 8};
    struct ax_text_requests r;
    pair(16, "a", "b", NULL);
    pair(16, "", "b", NULL);
    pair(16, "  ", "b", NULL);
    pair(16, "a", "", "the answer has no tokens of its own to score");
    pair(16, "", "", "the answer has no tokens of its own to score");
    pair(2, "a", " and something longer", "more than the 2 that the model can take");
    assert_int_equal(ax_text_requests_open(&r, &side, 8, &g), AX_ERR_CONFIG);
    assert_non_null(strstr(ax_error_text(), "max_gen_toks is 8, which leaves no tokens"));
    ax_text_requests_free(&r);
    assert_int_equal(ax_text_requests_open(&r, &side, 9, &g), AX_OK);
    ax_text_requests_free(&r);
}

static int setup(void **state) {
    (void)state;
    const char *folder = golden_path("models/llama");
    return ax_text_side_open(&side, folder, folder) == AX_OK ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    ax_text_side_close(&side);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_are_the_recorded_ones),
        cmocka_unit_test(windows_are_the_recorded_ones),
        cmocka_unit_test(prompts_are_the_recorded_ones),
        cmocka_unit_test(mistakes),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
