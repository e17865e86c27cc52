/* What the model sees of a call, and failures in a row. */
#include "base/log.h"
#include "base/mem.h"
#include "base/text/unicode.h"
#include "data/tools/schema.h"
#include "data/tools/tools.h"

/* Of a text that is too long, the beginning and the end are kept; NULs become U+FFFD. */
static enum ax_status put_cut(struct ax_buf *out, const char *s, size_t n) {
    const size_t half = AX_TOOLS_RESULT / 2;
    if (n <= AX_TOOLS_RESULT)
        return ax_buf_append(out, s, n);
    AX_TRY(ax_buf_append(out, s, half));
    AX_TRY(ax_buf_printf(out, "\n[... %zu bytes are left out ...]\n", n - 2 * half));
    return ax_buf_append(out, s + n - half, half);
}

enum ax_status ax_tool_result_set(struct ax_tool_result *out, const char *text, size_t n) {
    struct ax_buf cut = {0}, whole = {0};
    enum ax_status st = put_cut(&cut, text, n);
    if (st == AX_OK)
        st = ax_utf8_repair(&whole, cut.data ? cut.data : "", cut.len);
    cut.len = 0;
    for (size_t i = 0; st == AX_OK && i < whole.len; i++)
        st = whole.data[i] ? ax_buf_append(&cut, &whole.data[i], 1)
                           : ax_buf_puts(&cut, "\xef\xbf\xbd");
    if (st == AX_OK)
        st = ax_buf_puts(&cut, "");
    ax_free(out->text);
    out->text = NULL;
    if (st == AX_OK)
        st = ax_strndup(&out->text, cut.data, cut.len);
    out->n = st == AX_OK ? cut.len : 0;
    ax_buf_free(&cut);
    ax_buf_free(&whole);
    return st;
}

enum ax_status ax_tool_result_fail(struct ax_tool_result *out, const char *why) {
    struct ax_buf text = {0};
    out->failed = true;
    enum ax_status st = ax_tool_error_text(&text, why);
    if (st == AX_OK)
        st = ax_tool_result_set(out, text.data, text.len);
    ax_buf_free(&text);
    return st;
}

enum ax_status ax_tool_strike(atomic_int *in_a_row, const char *kind, const char *name,
                              const char *why) {
    if (!why[0]) {
        atomic_store(in_a_row, 0);
        return AX_OK;
    }
    const int n = atomic_fetch_add(in_a_row, 1) + 1;
    ax_log_warn("%ss: %s: %s (failure %d in a row)", kind, name, why, n);
    if (n < AX_TOOLS_STRIKES)
        return AX_OK;
    return ax_error(AX_ERR_DATA, "%s \"%s\" failed %d times in a row; the last: %s", kind, name, n,
                    why);
}
