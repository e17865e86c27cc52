/* Streams of events from a server: the same events, whether the bytes come together or one by one. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/net/sse.h"

static enum ax_status take(void *ctx, const char *data, size_t n) {
    AX_ASSERT(data[n] == '\0');
    AX_TRY(ax_buf_append(ctx, data, n));
    return ax_buf_append(ctx, "|", 1);
}

static void feed(struct ax_buf *out, const uint8_t *data, size_t n, size_t piece) {
    struct ax_sse s = {0};
    for (size_t at = 0; at < n; at += piece)
        AX_ASSERT(ax_sse_feed(&s, data + at, n - at < piece ? n - at : piece, take, out) == AX_OK);
    ax_sse_free(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct ax_buf whole = {0}, parts = {0};
    feed(&whole, data, n, n > 0 ? n : 1);
    feed(&parts, data, n, 1);
    AX_ASSERT(whole.len == parts.len);
    AX_ASSERT(whole.len == 0 || memcmp(whole.data, parts.data, whole.len) == 0);
    ax_buf_free(&whole);
    ax_buf_free(&parts);
    return 0;
}
