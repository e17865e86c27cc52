/* Quoting for shells. */
#include <string.h>

#include "cmd/help/help.h"

enum ax_status ax_completion_quote(struct ax_buf *out, const char *text, const char *quote,
                                   const char *also) {
    AX_TRY(ax_buf_puts(out, "'"));
    for (; *text; text++)
        if (*text == '\'')
            AX_TRY(ax_buf_puts(out, quote));
        else
            AX_TRY(ax_buf_printf(out, "%s%c", strchr(also, *text) ? "\\" : "", *text));
    return ax_buf_puts(out, "'");
}

enum ax_status ax_quote_word(struct ax_buf *out, const char *text) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./,:=@%+";
    if (*text && text[strspn(text, plain)] == '\0')
        return ax_buf_puts(out, text);
    return ax_completion_quote(out, text, "'\\''", "");
}
