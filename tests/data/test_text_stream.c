/* Text as it comes: whole characters, and stop strings wherever tokens cut them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/text/words.h"
#include "data/text/text_stream.h"
#include "tests/data/scratch.h"

static struct ax_tokenizer *tokenizer;

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* A byte-level tokenizer without merges: a token is a byte, so every cut is tried. */
static int open_tokenizer(void **state) {
    (void)state;
    static char text[65536];
    size_t n = 0;
    n += (size_t)snprintf(text, sizeof text,
                          "{\"model\": {\"type\": \"BPE\", \"merges\": [], \"vocab\": {");
    for (unsigned b = 0, extra = 256; b < 256; b++) { /* GPT-2's letters for bytes */
        const bool plain = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        n += (size_t)snprintf(text + n, sizeof text - n, "%s\"\\u%04x\": %u", b ? ", " : "",
                              plain ? b : extra++, b);
    }
    snprintf(text + n, sizeof text - n,
             "}}, \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
             "\"use_regex\": false}, \"decoder\": {\"type\": \"ByteLevel\"}, "
             "\"added_tokens\": [{\"id\": 256, \"content\": \"<end>\", \"special\": true}]}");
    return ax_tokenizer_parse(&tokenizer, "bytes", text, strlen(text)) == AX_OK ? 0 : -1;
}

static int close_tokenizer(void **state) {
    (void)state;
    ax_tokenizer_free(tokenizer);
    return 0;
}

/* Feeds the bytes of `text`; each step's output, with | behind, and what finish adds. */
static const char *feed(const char *text, const struct ax_arg_list *stop) {
    static char steps[4096];
    struct ax_text_stream s;
    struct ax_buf all = {0};
    size_t shown = 0, n = 0;
    must(ax_text_stream_open(&s, tokenizer, stop->text, stop->n));
    for (size_t i = 0; text[i]; i++) {
        must(ax_text_stream_step(&s, (unsigned char)text[i], &all));
        n += (size_t)snprintf(steps + n, sizeof steps - n, "%.*s|", (int)(all.len - shown),
                              all.len > shown ? all.data + shown : "");
        shown = all.len;
    }
    must(ax_text_stream_finish(&s, &all));
    snprintf(steps + n, sizeof steps - n, "%.*s%s", (int)(all.len - shown),
             all.len > shown ? all.data + shown : "", s.stopped ? "#" : "");
    ax_text_stream_close(&s);
    ax_buf_free(&all);
    return steps;
}

static void whole_characters(void **state) {
    (void)state;
    const struct ax_arg_list none = {0};
    assert_string_equal(feed("abc", &none), "a|b|c|");
    assert_string_equal(feed("\xc3\xa9\xe2\x82\xac.\xf0\x9f\x98\x80", &none),
                        "|\xc3\xa9|||\xe2\x82\xac|.||||\xf0\x9f\x98\x80|");
    /* an end in the middle of a character shows what is missing */
    assert_string_equal(feed("a\xe2\x82", &none), "a|||\xef\xbf\xbd");
}

static void stop_strings(void **state) {
    (void)state;
    const struct ax_arg_list one = {.n = 1, .text = {"\n\n"}};
    assert_string_equal(feed("a\nb\n\nc", &one), "a||\nb|||"
                                                 "|#");
    assert_string_equal(feed("a\n", &one), "a||\n");
    const struct ax_arg_list two = {.n = 2, .text = {"END", "NDX"}};
    assert_string_equal(feed("xENDX", &two), "x|||||#");
    assert_string_equal(feed("xENxNDX", &two), "x|||ENx||||#");
    assert_string_equal(feed("EEND", &two), "|E|||#");
    /* begins within what looked like the start of one */
    const struct ax_arg_list self = {.n = 1, .text = {"aab"}};
    assert_string_equal(feed("aaaab", &self), "||a|a||#");
    const struct ax_arg_list euro = {.n = 1, .text = {"\xe2\x82\xac"}};
    assert_string_equal(feed("5\xe2\x82\xac!", &euro), "5|||||#");
    assert_string_equal(feed("5\xe2\x82\xa4", &euro), "5|||\xe2\x82\xa4|");
}

static void special_tokens_are_left_out(void **state) {
    (void)state;
    const struct ax_arg_list none = {0};
    struct ax_text_stream s;
    struct ax_buf out = {0};
    must(ax_text_stream_open(&s, tokenizer, none.text, none.n));
    must(ax_text_stream_step(&s, 'a', &out));
    must(ax_text_stream_step(&s, 256, &out));
    must(ax_text_stream_step(&s, 'b', &out));
    must(ax_text_stream_finish(&s, &out));
    assert_string_equal(out.data, "ab");
    ax_text_stream_close(&s);
    ax_buf_free(&out);
}

/* Hugging Face's stop criteria decode special tokens. */
static void special_tokens_stop(void **state) {
    (void)state;
    const struct ax_arg_list stop = {.n = 3, .text = {"ax", "<end>", "<end"}};
    struct ax_text_stream s;
    struct ax_buf out = {0};
    must(ax_text_stream_open(&s, tokenizer, stop.text, stop.n));
    must(ax_text_stream_step(&s, 'b', &out));
    must(ax_text_stream_step(&s, 'a', &out)); /* held back until it cannot be "ax" */
    assert_string_equal(out.data, "b");
    assert_false(s.stopped);
    must(ax_text_stream_step(&s, 256, &out));
    assert_true(s.stopped);
    assert_string_equal(s.by, "<end>");
    must(ax_text_stream_step(&s, 'c', &out));
    must(ax_text_stream_finish(&s, &out));
    assert_string_equal(out.data, "ba");
    ax_text_stream_close(&s);
    ax_buf_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_characters),
        cmocka_unit_test(stop_strings),
        cmocka_unit_test(special_tokens_are_left_out),
        cmocka_unit_test(special_tokens_stop),
    };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
