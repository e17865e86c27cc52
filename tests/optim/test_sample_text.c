/* Samples as records and as lines: cut between characters, nothing that moves the cursor. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <jansson.h>
#include <string.h>

#include "optim/metrics/metrics_text.h"

static struct ax_buf text_of(const char *s, size_t n) {
    struct ax_buf b = {0};
    assert_int_equal(ax_buf_append(&b, s, n), AX_OK);
    return b;
}

/* n times "é", after `before`. */
static struct ax_buf many(const char *before, int n) {
    struct ax_buf b = text_of(before, strlen(before));
    for (int i = 0; i < n; i++)
        assert_int_equal(ax_buf_puts(&b, "\xc3\xa9"), AX_OK);
    return b;
}

static json_t *record(const struct ax_buf *prompt, const struct ax_buf *answer) {
    struct ax_buf out = {0};
    assert_int_equal(ax_metrics_put_sample(&out, 7, prompt, answer), AX_OK);
    assert_true(out.len > 0 && out.data[out.len - 1] == '\n');
    assert_memory_equal(out.data, "{\"step\": 7, \"event\": \"sample\"", 29);
    json_t *v = json_loads(out.data, 0, NULL);
    assert_non_null(v);
    ax_buf_free(&out);
    return v;
}

static void records_are_whole(void **state) {
    (void)state;
    struct ax_buf prompt = text_of("a\n\"b\"", 5), answer = {0};
    json_t *v = record(&prompt, &answer);
    assert_string_equal(json_string_value(json_object_get(v, "prompt")), "a\n\"b\"");
    assert_string_equal(json_string_value(json_object_get(v, "text")), "");
    json_decref(v);
    ax_buf_free(&prompt);
    /* of a long prompt the end, from a character on, whatever precedes it */
    for (int lead = 0; lead < 2; lead++) {
        prompt = many(lead ? "x" : "", 3000);
        v = record(&prompt, &answer);
        const char *kept = json_string_value(json_object_get(v, "prompt"));
        assert_int_equal(strlen(kept), 2000);
        assert_string_equal(kept, prompt.data + prompt.len - 2000);
        json_decref(v);
        ax_buf_free(&prompt);
        prompt = many("", 3000);
        assert_int_equal(ax_buf_puts(&prompt, "y"), AX_OK); /* the cut is inside a character */
        v = record(&prompt, &answer);
        assert_int_equal(json_string_length(json_object_get(v, "prompt")), 1999);
        json_decref(v);
        ax_buf_free(&prompt);
    }
    /* not UTF-8: no text, but a record */
    prompt = text_of("\xff", 1);
    v = record(&prompt, &prompt);
    assert_true(json_is_null(json_object_get(v, "text")));
    json_decref(v);
    ax_buf_free(&prompt);
}

static void lines_are_short(void **state) {
    (void)state;
    struct ax_buf prompt = text_of("say\r\x1b[2J no", 11), answer = text_of("no\n\x7fyes", 7);
    struct ax_buf out = {0};
    assert_int_equal(ax_metrics_put_sample_line(&out, 20, 3, &prompt, &answer), AX_OK);
    assert_string_equal(out.data, "sample 3 at step 20: say  [2J no \xe2\x86\x92 no  yes");
    ax_buf_free(&out);
    ax_buf_free(&prompt);
    ax_buf_free(&answer);
    for (int lead = 0; lead < 2; lead++) {
        prompt = many(lead ? "x" : "", 200);
        answer = many(lead ? "x" : "", 200);
        assert_int_equal(ax_metrics_put_sample_line(&out, 1, 1, &prompt, &answer), AX_OK);
        assert_true(out.len < 200);
        assert_non_null(strstr(out.data, ": \xe2\x80\xa6\xc3\xa9"));
        assert_string_equal(out.data + out.len - 5, "\xc3\xa9\xe2\x80\xa6");
        json_t *v = json_stringn(out.data, out.len); /* fails if not UTF-8 */
        assert_non_null(v);
        json_decref(v);
        ax_buf_free(&out);
        ax_buf_free(&prompt);
        ax_buf_free(&answer);
    }
    const struct ax_buf none = {0};
    assert_int_equal(ax_metrics_put_sample_line(&out, 1, 1, &none, &none), AX_OK);
    assert_string_equal(out.data, "sample 1 at step 1:  \xe2\x86\x92 ");
    ax_buf_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(records_are_whole),
                                       cmocka_unit_test(lines_are_short)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
