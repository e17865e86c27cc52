/* A conversation with tools, turn by turn: each call is folded, with its result. */
#include <stdio.h>
#include <string.h>

#include "cmd/report/html.h"
#include "cmd/report/report.h"
#include "data/tools/format.h"

#define MAX_SHOWN 60 /* most bytes of a call's arguments while it is folded */

static const char *text_of(const json_t *v, const char *key) {
    const char *s = json_string_value(json_object_get(v, key));
    return s ? s : "";
}

static bool is_result(const json_t *message) {
    return strcmp(text_of(message, "role"), "tool") == 0;
}

/* ---- which result is a call's ---- */

/* Results follow their turn, in the order of calls but for tools that run on their own: of calls with one name, the
 * order is the same. NULL: the call has none. */
static const json_t *result_of(const json_t *messages, size_t turn, const json_t *calls, size_t i) {
    const char *name = text_of(json_object_get(json_array_get(calls, i), "function"), "name");
    size_t before = 0;
    for (size_t k = 0; k < i; k++)
        before += strcmp(text_of(json_object_get(json_array_get(calls, k), "function"), "name"),
                         name) == 0;
    for (size_t k = turn + 1; is_result(json_array_get(messages, k)); k++)
        if (strcmp(text_of(json_array_get(messages, k), "name"), name) == 0 && before-- == 0)
            return json_array_get(messages, k);
    return NULL;
}

/* ---- the page ---- */

static enum ax_status put_cut(struct ax_buf *out, const char *markup, const char *text) {
    char shown[AX_REPORT_MAX_TEXT + 8];
    snprintf(shown, sizeof shown, "%.*s%s", AX_REPORT_MAX_TEXT, text,
             strlen(text) > AX_REPORT_MAX_TEXT ? " \xe2\x80\xa6" : "");
    return ax_html_put(out, markup, shown);
}

/* "multiply {"a": 2, "b": 3}", and what is known of how it went */
static enum ax_status put_summary(struct ax_buf *out, const char *name, const char *arguments,
                                  const json_t *ran) {
    char all[MAX_SHOWN + 8], seconds[40] = "";
    const json_t *s = json_object_get(ran, "seconds");
    snprintf(all, sizeof all, "%.*s%s", MAX_SHOWN, arguments,
             strlen(arguments) > MAX_SHOWN ? " \xe2\x80\xa6" : "");
    if (json_is_number(s))
        snprintf(seconds, sizeof seconds, "%.2g s%s", json_number_value(s),
                 json_is_true(json_object_get(ran, "failed")) ? ", failed" : "");
    return ax_html_put(out, "<summary>% <small>% %</small></summary>", name, all, seconds);
}

static enum ax_status put_call(struct ax_buf *out, const json_t *call, const json_t *result,
                               const json_t *ran) {
    const json_t *f = json_object_get(call, "function");
    char *arguments = json_dumps(json_object_get(f, "arguments"), JSON_ENCODE_ANY);
    const char *shown = arguments ? arguments : "";
    enum ax_status st = ax_buf_puts(out, "<details class=\"call\">");
    if (st == AX_OK)
        st = put_summary(out, text_of(f, "name"), shown, ran);
    if (st == AX_OK)
        st = put_cut(out, "<pre>%</pre>", shown);
    if (st == AX_OK)
        st = put_cut(out, "<pre>\xe2\x86\x90 %</pre></details>",
                     result ? text_of(result, "content") : "no result");
    ax_free(arguments);
    return st;
}

/* An error that answers a turn whose calls cannot be read is a result without a call. */
static enum ax_status put_errors(struct ax_buf *out, const json_t *messages, size_t turn) {
    for (size_t k = turn + 1; is_result(json_array_get(messages, k)); k++)
        AX_TRY(put_cut(
            out, "<details class=\"call\"><summary>unread call</summary><pre>%</pre></details>",
            text_of(json_array_get(messages, k), "content")));
    return AX_OK;
}

static enum ax_status put_turn(struct ax_buf *out, const json_t *message) {
    const char *thought = ax_tool_thought(message);
    if (*thought)
        AX_TRY(put_cut(out,
                       "<details class=\"call\"><summary>thought</summary><pre>%</pre></details>",
                       thought));
    return put_cut(out, "<div>%</div>", text_of(message, "content"));
}

enum ax_status ax_report_put_turns(struct ax_buf *out, const json_t *messages,
                                   const json_t *calls) {
    size_t ran = 0;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *m = json_array_get(messages, i), *own = json_object_get(m, "tool_calls");
        if (is_result(m))
            continue;
        AX_TRY(put_turn(out, m));
        for (size_t k = 0; k < json_array_size(own); k++)
            AX_TRY(put_call(out, json_array_get(own, k), result_of(messages, i, own, k),
                            json_array_get(calls, ran++)));
        if (json_array_size(own) == 0)
            AX_TRY(put_errors(out, messages, i));
    }
    return AX_OK;
}
