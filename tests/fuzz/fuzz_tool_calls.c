/* Any bytes as a turn that calls tools, in each format, and as a result: a message with calls that have names, or an
 * error that says why there are none; a result that is text of a bounded length. The first byte chooses the
 * format, and whether the turn begins in a thought. */
#include <string.h>

#include "base/mem.h"
#include "base/text/unicode.h"
#include "data/tools/schema.h"
#include "data/tools/tools.h"

static const char definitions[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": \"d\", "
    "\"parameters\": {\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}, "
    "\"b\": {\"type\": [\"string\", \"null\"]}, \"c\": {\"type\": \"array\"}, \"d\": {}}, "
    "\"required\": [\"a\"]}}}]";

static void check_call(const json_t *tools, const json_t *call) {
    const json_t *f = json_object_get(call, "function");
    const char *name = json_string_value(json_object_get(f, "name"));
    const json_t *known = ax_tool_function(tools, name);
    struct ax_buf why = {0};
    AX_ASSERT(name && *name && json_object_get(f, "arguments"));
    if (known)
        AX_ASSERT(ax_tool_misfit(known, json_object_get(f, "arguments"), &why) == AX_OK);
    ax_buf_free(&why);
}

static void check_turn(const json_t *tools, const struct ax_tool_turn *t) {
    json_t *error = json_string(t->error); /* it is told to the model */
    AX_ASSERT(error);
    json_decref(error);
    AX_ASSERT(json_is_string(json_object_get(t->message, "content")));
    AX_ASSERT(!t->calls || (!t->error[0] && json_array_size(t->calls) > 0));
    for (size_t i = 0; i < json_array_size(t->calls); i++)
        check_call(tools, json_array_get(t->calls, i));
}

static void check_result(const char *s, size_t n) {
    struct ax_tool_result r = {0};
    struct ax_buf again = {0};
    AX_ASSERT(ax_tool_result_set(&r, s, n) == AX_OK);
    AX_ASSERT(r.n <= 3 * AX_TOOLS_RESULT + 100 && strlen(r.text) == r.n);
    AX_ASSERT(ax_utf8_repair(&again, r.text, r.n) == AX_OK && again.len == r.n);
    ax_buf_free(&again);
    ax_free(r.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct ax_buf text = {0};
    struct ax_tool_turn turn;
    int n = 0;
    if (size == 0)
        return 0;
    json_t *tools = json_loads(definitions, 0, NULL);
    while (ax_tool_format_at(n))
        n++;
    AX_ASSERT(n > 0);
    AX_ASSERT(ax_utf8_repair(&text, (const char *)data + 1, size - 1) == AX_OK &&
              ax_buf_puts(&text, "") == AX_OK);
    const struct ax_tool_text t = {.s = text.data, .n = text.len, .thinks = data[0] & 128};
    AX_ASSERT(ax_tool_read(ax_tool_format_at((data[0] & 127) % n), &t, tools, &turn) == AX_OK);
    check_turn(tools, &turn);
    check_result((const char *)data, size);
    ax_tool_turn_free(&turn);
    ax_buf_free(&text);
    json_decref(tools);
    return 0;
}
