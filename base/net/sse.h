/* Server-sent events (HTML standard, 9.2), as chat completions are streamed: bytes in pieces → the data of each event.
 * Other fields than data, and comments, are skipped; so is a line `data` without a colon. */
#ifndef AX_BASE_NET_SSE_H
#define AX_BASE_NET_SSE_H

#include "base/mem.h"

#define AX_SSE_MAX ((size_t)16 << 20) /* bytes of an event's data and of the line being read */

struct ax_sse {
    struct ax_buf line, data; /* what has come of the line and of the event */
    bool any;                 /* the event has data */
    bool after_cr;            /* a line feed would belong to the last line's end */
};
/* An event's data, NUL-terminated; an error ends the feeding. */
typedef enum ax_status ax_sse_event(void *ctx, const char *data, size_t n);

/* Calls `event` for each that is complete. AX_ERR_DATA for one that is too long. Start from zeroes. */
enum ax_status ax_sse_feed(struct ax_sse *s, const void *bytes, size_t n, ax_sse_event *event,
                           void *ctx);
void ax_sse_free(struct ax_sse *s);

#endif
