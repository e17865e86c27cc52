#include "data/text/text_stream.h"

#include <string.h>

enum ax_status ax_text_stream_open(struct ax_text_stream *s, const struct ax_tokenizer *t,
                                   const char *const *stop, int n_stop) {
    *s = (struct ax_text_stream){.tokenizer = t, .stop = stop, .n_stop = n_stop};
    return ax_decode_stream_new(&s->decode, t, true);
}

/* Position of the first stop string in the held text, or the text's length. */
static size_t find_stop(struct ax_text_stream *s) {
    size_t first = s->held.len;
    for (int i = 0; i < s->n_stop; i++) {
        const char *at = memmem(s->held.data, s->held.len, s->stop[i], strlen(s->stop[i]));
        if (at && (size_t)(at - s->held.data) < first) {
            first = (size_t)(at - s->held.data);
            s->by = s->stop[i];
        }
    }
    return first;
}

/* Number of bytes at the end of the held text with which a stop string may begin. */
static size_t doubtful(const struct ax_text_stream *s) {
    size_t most = 0;
    for (int i = 0; i < s->n_stop; i++) {
        const char *stop = s->stop[i];
        size_t n = strlen(stop) - 1;
        n = n < s->held.len ? n : s->held.len;
        while (n > most && memcmp(s->held.data + s->held.len - n, stop, n) != 0)
            n--;
        most = n > most ? n : most;
    }
    return most;
}

/* Releases the part of the held text that is final. */
static enum ax_status let_go(struct ax_text_stream *s, bool last, struct ax_buf *out) {
    if (s->held.len == 0)
        return AX_OK;
    const size_t stop = find_stop(s);
    s->stopped = stop < s->held.len;
    const size_t n = s->stopped || last ? stop : s->held.len - doubtful(s);
    AX_TRY(ax_buf_append(out, s->held.data, n));
    memmove(s->held.data, s->held.data + n, s->held.len - n);
    s->held.len = s->stopped ? 0 : s->held.len - n;
    return AX_OK;
}

/* The stop string that is a special token's text; NULL: none. */
static enum ax_status find_special(const struct ax_text_stream *s, int32_t id, const char **by) {
    struct ax_buf text = {0};
    *by = NULL;
    if (s->n_stop == 0 || !ax_tokenizer_is_special(s->tokenizer, id))
        return AX_OK;
    const enum ax_status st = ax_tokenizer_decode(s->tokenizer, &id, 1, false, &text);
    for (int i = 0; st == AX_OK && i < s->n_stop && !*by; i++)
        if (strlen(s->stop[i]) == text.len && memcmp(s->stop[i], text.data, text.len) == 0)
            *by = s->stop[i];
    ax_buf_free(&text);
    return st;
}

enum ax_status ax_text_stream_step(struct ax_text_stream *s, int32_t id, struct ax_buf *out) {
    const char *by;
    if (s->stopped)
        return AX_OK;
    AX_TRY(find_special(s, id, &by));
    if (by) { /* what was held back is final */
        AX_TRY(ax_text_stream_finish(s, out));
        s->by = s->stopped ? s->by : by;
        s->stopped = true;
        return AX_OK;
    }
    AX_TRY(ax_decode_stream_step(s->decode, id, &s->held));
    return let_go(s, false, out);
}

enum ax_status ax_text_stream_finish(struct ax_text_stream *s, struct ax_buf *out) {
    if (s->stopped)
        return AX_OK;
    AX_TRY(ax_decode_stream_finish(s->decode, &s->held));
    return let_go(s, true, out);
}

void ax_text_stream_close(struct ax_text_stream *s) {
    ax_decode_stream_free(s->decode);
    ax_buf_free(&s->held);
    *s = (struct ax_text_stream){0};
}
