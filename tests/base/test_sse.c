/* Server-sent events, whatever the pieces that their bytes come in. The streams are the examples of the HTML
 * standard's section on interpreting an event stream. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/net/sse.h"

static const struct {
    const char *bytes, *events; /* each event's data, and a bar behind it */
} streams[] = {
    {"data: YHOO\ndata: +2\ndata: 10\n\n", "YHOO\n+2\n10|"},
    {": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n",
     "first event|second event| third event|"},
    {"data\n\ndata\ndata\n\ndata:", ""}, /* fields without a colon are skipped */
    {"data:test\n\ndata: test\n\n", "test|test|"},
    {"data: a\r\n\r\ndata: b\r\rdata: c\n\r\n", "a|b|c|"},
    {"event: x\nretry: 5\ndata:\ndata: {}\n\n: ping\n\ndata: [DONE]\n\n", "\n{}|[DONE]|"},
    {"data: unfinished\n", ""},
};

static enum ax_status take(void *ctx, const char *data, size_t n) {
    assert_int_equal(strlen(data), n);
    AX_TRY(ax_buf_append(ctx, data, n));
    return ax_buf_puts(ctx, "|");
}

static void streams_in_pieces(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
        const size_t n = strlen(streams[i].bytes);
        for (size_t piece = 1; piece <= n; piece++) {
            struct ax_sse s = {0};
            struct ax_buf all = {0};
            for (size_t at = 0; at < n; at += piece)
                assert_int_equal(ax_sse_feed(&s, streams[i].bytes + at,
                                             n - at < piece ? n - at : piece, take, &all),
                                 AX_OK);
            assert_string_equal(all.data ? all.data : "", streams[i].events);
            ax_buf_free(&all);
            ax_sse_free(&s);
        }
    }
}

static enum ax_status refuse(void *ctx, const char *data, size_t n) {
    (void)ctx, (void)data, (void)n;
    return ax_error(AX_ERR_DATA, "no");
}

static void what_ends_a_stream(void **state) {
    (void)state;
    struct ax_sse s = {0};
    assert_int_equal(ax_sse_feed(&s, "data: a\n\n", 9, refuse, NULL), AX_ERR_DATA);
    ax_sse_free(&s);
    s = (struct ax_sse){0};
    char *piece;
    const size_t n = 1 << 20;
    assert_int_equal(ax_alloc(&piece, n, 1), AX_OK);
    memset(piece, 'x', n);
    enum ax_status st = ax_sse_feed(&s, "data:", 5, refuse, NULL);
    size_t fed = 0; /* of two lines of data: one that has ended, and one that goes on */
    for (; st == AX_OK && fed < 2 * AX_SSE_MAX; fed += n) {
        if (fed == AX_SSE_MAX / 2)
            assert_int_equal(ax_sse_feed(&s, "\n", 1, refuse, NULL), AX_OK);
        st = ax_sse_feed(&s, piece, n, refuse, NULL);
    }
    assert_int_equal(st, AX_ERR_DATA);
    assert_int_equal(fed, AX_SSE_MAX + n);
    ax_free(piece);
    ax_sse_free(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(streams_in_pieces),
                                       cmocka_unit_test(what_ends_a_stream)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
