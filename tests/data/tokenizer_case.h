/* What the tokenizer tests share: golden rows as JSON, and comparing with them. Include after
 * cmocka.h. */
#ifndef AX_TESTS_DATA_TOKENIZER_CASE_H
#define AX_TESTS_DATA_TOKENIZER_CASE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/text/json.h"
#include "base/log.h"
#include "data/text/tokenizer/tokenizer.h"

#define MUST(call)                                                                                 \
    do {                                                                                           \
        if ((call) != AX_OK)                                                                       \
            fail_msg("%s:%d: %s [%s]", __FILE__, __LINE__, ax_error_text(), ax_error_trace());     \
    } while (0)

/* The call fails with this status and a text that has `part` in it. */
#define MUST_FAIL(call, status, part)                                                              \
    do {                                                                                           \
        enum ax_status got_ = (call);                                                              \
        if (got_ != (status) || strstr(ax_error_text(), (part)) == NULL)                           \
            fail_msg("%s:%d: status %d, \"%s\"; expected %d, \"%s\"", __FILE__, __LINE__, got_,    \
                     ax_error_text(), (status), (part));                                           \
    } while (0)

static inline void assert_ids(const struct ax_encoding *e, const json_t *want, const char *what) {
    bool same = e->n == json_array_size(want);
    for (size_t i = 0; same && i < e->n; i++)
        same = e->ids[i] == json_integer_value(json_array_get(want, i));
    if (same)
        return;
    fprintf(stderr, "%s\ngot ", what);
    for (size_t i = 0; i < e->n; i++)
        fprintf(stderr, " %d", e->ids[i]);
    fprintf(stderr, "\nwant");
    for (size_t i = 0; i < json_array_size(want); i++)
        fprintf(stderr, " %d", (int)json_integer_value(json_array_get(want, i)));
    fprintf(stderr, "\n");
    fail_msg("ids differ: %s", what);
}

/* Encodes a JSON string and compares the ids with a JSON list. */
static inline void assert_encodes(const struct ax_tokenizer *t, const json_t *text,
                                  const json_t *want, bool add_special_tokens) {
    struct ax_encoding e = {0};
    const struct ax_encode_options opt = {.add_special_tokens = add_special_tokens};
    const char *s = json_string_value(text);
    size_t len = json_string_length(text);
    MUST(ax_tokenizer_encode(t, s, len, &opt, &e));
    assert_ids(&e, want, s);
    ax_encoding_free(&e);
}

/* Decodes ids, in one call and one by one, and compares with a JSON string. */
static inline void assert_decodes(const struct ax_tokenizer *t, const json_t *ids,
                                  const json_t *want, bool skip_special) {
    struct ax_buf whole = {0}, parts = {0};
    struct ax_decode_stream *stream;
    size_t n = json_array_size(ids);
    int32_t *list;
    MUST(ax_alloc(&list, n, sizeof *list));
    MUST(ax_decode_stream_new(&stream, t, skip_special));
    for (size_t i = 0; i < n; i++) {
        list[i] = (int32_t)json_integer_value(json_array_get(ids, i));
        MUST(ax_decode_stream_step(stream, list[i], &parts));
    }
    MUST(ax_decode_stream_finish(stream, &parts));
    MUST(ax_tokenizer_decode(t, list, n, skip_special, &whole));
    assert_int_equal(whole.len, json_string_length(want));
    assert_memory_equal(whole.data, json_string_value(want), whole.len);
    assert_int_equal(parts.len, whole.len);
    assert_memory_equal(parts.data, whole.data, whole.len);
    ax_decode_stream_free(stream);
    ax_free(list);
    ax_buf_free(&whole);
    ax_buf_free(&parts);
}

#endif
