#include "optim/evaluate/score/steps.h"

#include <string.h>

#include "base/mem.h"
#include "data/records/format/format.h"

static enum ax_status no_memory(void) {
    return ax_error(AX_ERR_NOMEM, "out of memory for an answer");
}

static enum ax_status join(const json_t *messages, json_t **out) {
    struct ax_buf text = {0};
    enum ax_status st = ax_buf_puts(&text, "");
    for (size_t i = 0; i < json_array_size(messages) && st == AX_OK; i++) {
        const json_t *content = json_object_get(json_array_get(messages, i), "content");
        if (!json_is_string(content)) {
            st = ax_error(AX_ERR_DATA, "message %zu of the prompt has no text for the scorer", i);
            break;
        }
        if (i > 0)
            st = ax_buf_puts(&text, "\n");
        if (st == AX_OK)
            st = ax_buf_append(&text, json_string_value(content), json_string_length(content));
    }
    if (st == AX_OK && !(*out = json_stringn(text.data, text.len)))
        st = no_memory();
    ax_buf_free(&text);
    return st;
}

enum ax_status ax_steps_prompt(const json_t *prompt, json_t **out) {
    if (json_is_array(prompt))
        return join(prompt, out);
    *out = json_deep_copy(prompt);
    return *out ? AX_OK : no_memory();
}

enum ax_status ax_steps_split(const char *text, size_t len, const char *separator, json_t **out) {
    const size_t width = strlen(separator);
    json_t *steps = json_array();
    for (size_t at = 0; at <= len;) {
        const char *end = memmem(text + at, len - at, separator, width);
        const size_t n = end ? (size_t)(end - text) - at : len - at;
        if (!ax_text_is_blank(text + at, n) &&
            json_array_append_new(steps, json_stringn(text + at, n)) != 0) {
            json_decref(steps);
            return no_memory();
        }
        at += n + width;
    }
    *out = steps;
    return steps ? AX_OK : no_memory();
}
