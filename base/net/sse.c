#include "base/net/sse.h"

#include <string.h>

static enum ax_status add(struct ax_sse *s, struct ax_buf *to, const char *text, size_t n) {
    if (s->line.len + s->data.len + n > AX_SSE_MAX)
        return ax_error(AX_ERR_DATA, "an event of the stream has more than %zu bytes", AX_SSE_MAX);
    return ax_buf_append(to, text, n);
}

/* Lines of data are joined by line feeds; a blank one ends the event. */
static enum ax_status end_line(struct ax_sse *s, ax_sse_event *event, void *ctx) {
    static const char field[] = "data:";
    const size_t name = sizeof field - 1, n = s->line.len;
    const char *text = s->line.data;
    enum ax_status st = AX_OK;
    s->line.len = 0;
    if (n == 0) {
        if (s->any)
            st = event(ctx, s->data.data, s->data.len);
        s->data.len = 0;
        s->any = false;
        return st;
    }
    if (n < name || memcmp(text, field, name) != 0)
        return AX_OK;
    const size_t skip = n > name && text[name] == ' ' ? name + 1 : name;
    if (s->any)
        st = add(s, &s->data, "\n", 1);
    s->any = true;
    return st == AX_OK ? add(s, &s->data, text + skip, n - skip) : st;
}

enum ax_status ax_sse_feed(struct ax_sse *s, const void *bytes, size_t n, ax_sse_event *event,
                           void *ctx) {
    const char *at = bytes, *end = at + n;
    while (at < end) {
        if (s->after_cr && *at == '\n') {
            s->after_cr = false;
            at++;
            continue;
        }
        const char *stop = at;
        while (stop < end && *stop != '\n' && *stop != '\r')
            stop++;
        s->after_cr = stop < end && *stop == '\r';
        AX_TRY(add(s, &s->line, at, (size_t)(stop - at)));
        if (stop < end)
            AX_TRY(end_line(s, event, ctx));
        at = stop < end ? stop + 1 : end;
    }
    return AX_OK;
}

void ax_sse_free(struct ax_sse *s) {
    ax_buf_free(&s->line);
    ax_buf_free(&s->data);
}
