/* A model folder whose answer to any conversation is "#### " and two calls, in Qwen3's format and with
 * its template: the counting model with other text for a token. Include after cmocka.h. */
#ifndef AX_TESTS_CMD_CALLING_MODEL_H
#define AX_TESTS_CMD_CALLING_MODEL_H

#include "tests/cmd/counting_model.h"
#include "tests/golden_files.h"

#define CALL(name, x)                                                                              \
    "<tool_call>\u010A{\\\"name\\\":\u0120\\\"" name "\\\",\u0120\\\"arguments\\\":\u0120{"        \
    "\\\"a\\\":\u01202,\u0120\\\"b\\\":\u0120\\\"" x "\\\"}}\u010A</tool_call>"

/* Replaces the only place where `from` is. */
static inline void put_instead(struct ax_buf *b, const char *from, const char *to) {
    struct ax_buf out = {0};
    char *at = memmem(b->data, b->len, from, strlen(from));
    assert_non_null(at);
    assert_int_equal(ax_buf_append(&out, b->data, (size_t)(at - b->data)), AX_OK);
    assert_int_equal(ax_buf_puts(&out, to), AX_OK);
    at += strlen(from);
    assert_int_equal(ax_buf_append(&out, at, b->len - (size_t)(at - b->data)), AX_OK);
    ax_buf_free(b);
    *b = out;
}

static inline void put_calling_model(const char *dir) {
    struct ax_buf tokenizer = {0}, config = {0};
    char path[400], *template;
    size_t len;
    put_counting_model(dir);
    put_counting_tokenizer(&tokenizer);
    put_instead(&tokenizer, "\"7\": 55",
                "\"" CALL("add", "x") "\u010A" CALL("look", "\\\\\\\"{") "\": 55");
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    assert_int_equal(ax_write_file_atomic(path, tokenizer.data, tokenizer.len), AX_OK);
    assert_int_equal(ax_buf_puts(&config, counting_config), AX_OK);
    put_instead(&config, "\"max_position_embeddings\": 256", "\"max_position_embeddings\": 8192");
    snprintf(path, sizeof path, "%s/config.json", dir);
    assert_int_equal(ax_write_file_atomic(path, config.data, config.len), AX_OK);
    assert_int_equal(ax_read_file(golden_path("runs/models/tools_qwen3/chat_template.jinja"),
                                  1 << 20, &template, &len),
                     AX_OK);
    snprintf(path, sizeof path, "%s/chat_template.jinja", dir);
    assert_int_equal(ax_write_file_atomic(path, template, len), AX_OK);
    ax_free(template);
    ax_buf_free(&tokenizer);
    ax_buf_free(&config);
}

#endif
