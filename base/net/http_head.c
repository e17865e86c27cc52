/* Header lines → struct ax_http_head. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/net/http.h"

/* Copies text without control bytes, or empties the field if it does not fit. */
static void put(char *field, size_t size, const char *text, size_t n) {
    field[0] = '\0';
    if (n >= size)
        return;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7F)
            return;
    memcpy(field, text, n);
    field[n] = '\0';
}

static void put_etag(char *field, size_t size, const char *text, size_t n) {
    if (n > 2 && strncmp(text, "W/", 2) == 0) {
        text += 2;
        n -= 2;
    }
    if (n >= 2 && text[0] == '"' && text[n - 1] == '"') {
        text++;
        n -= 2;
    }
    put(field, size, text, n);
}

/* An integer, or -1. *used = its digits. */
static int64_t number(const char *text, size_t n, size_t *used) {
    int64_t v = 0;
    size_t i = 0;
    for (; i < n && text[i] >= '0' && text[i] <= '9'; i++) {
        if (v > (INT64_MAX - 9) / 10)
            return -1;
        v = 10 * v + (text[i] - '0');
    }
    *used = i;
    return i > 0 ? v : -1;
}

static int64_t whole(const char *text, size_t n) {
    size_t used = 0;
    const int64_t v = number(text, n, &used);
    return used == n ? v : -1;
}

/* bytes FROM-TO/TOTAL */
static void put_range(struct ax_http_head *h, const char *text, size_t n) {
    const char *dash = memchr(text, '-', n), *slash = memchr(text, '/', n);
    if (n < 6 || strncasecmp(text, "bytes ", 6) != 0 || !dash || !slash)
        return;
    h->range_from = whole(text + 6, (size_t)(dash - text) - 6);
    h->range_total = whole(slash + 1, n - (size_t)(slash - text) - 1);
}

/* <URL>; rel="next", <URL>; … */
static void put_link(struct ax_http_head *h, const char *text, size_t n) {
    const char *end = text + n;
    while (text < end) {
        const char *open = memchr(text, '<', (size_t)(end - text));
        const char *close = open ? memchr(open, '>', (size_t)(end - open)) : NULL;
        if (!close)
            return;
        const char *stop = memchr(close, '<', (size_t)(end - close));
        text = stop ? stop : end;
        const size_t rest = (size_t)(text - close);
        if (memmem(close, rest, "rel=\"next\"", 10) || memmem(close, rest, "rel=next", 8))
            put(h->next, sizeof h->next, open + 1, (size_t)(close - open) - 1);
    }
}

static bool is_name(const char *line, size_t n, const char *name) {
    return n == strlen(name) && strncasecmp(line, name, n) == 0;
}

static void put_value(struct ax_http_head *h, const char *name, size_t n, const char *v, size_t m) {
    if (is_name(name, n, "location"))
        put(h->location, sizeof h->location, v, m);
    else if (is_name(name, n, "link"))
        put_link(h, v, m);
    else if (is_name(name, n, "etag"))
        put_etag(h->etag, sizeof h->etag, v, m);
    else if (is_name(name, n, "x-linked-etag"))
        put_etag(h->linked_etag, sizeof h->linked_etag, v, m);
    else if (is_name(name, n, "x-repo-commit"))
        put(h->repo_commit, sizeof h->repo_commit, v, m);
    else if (is_name(name, n, "x-error-code"))
        put(h->error_code, sizeof h->error_code, v, m);
    else if (is_name(name, n, "x-error-message"))
        put(h->error_message, sizeof h->error_message, v, m);
    else if (is_name(name, n, "x-linked-size"))
        h->linked_size = whole(v, m);
    else if (is_name(name, n, "content-length"))
        h->length = whole(v, m);
    else if (is_name(name, n, "content-range"))
        put_range(h, v, m);
    else if (is_name(name, n, "retry-after"))
        h->retry_after = (double)whole(v, m); /* a date counts as not given */
}

/* HTTP/1.1 206 Partial Content */
static void begin(struct ax_http_head *h, const char *line, size_t n) {
    const char *space = memchr(line, ' ', n);
    size_t used = 0;
    *h = (struct ax_http_head){
        .length = -1, .linked_size = -1, .range_from = -1, .range_total = -1, .retry_after = -1};
    const int64_t status = space ? number(space + 1, n - (size_t)(space - line) - 1, &used) : -1;
    h->status = used == 3 ? (int)status : 0;
}

void ax_http_head_line(struct ax_http_head *h, const char *line, size_t n) {
    while (n > 0 && (line[n - 1] == '\r' || line[n - 1] == '\n' || line[n - 1] == ' '))
        n--;
    if (n >= 5 && strncmp(line, "HTTP/", 5) == 0) {
        begin(h, line, n);
        return;
    }
    const char *colon = memchr(line, ':', n);
    if (!colon)
        return;
    const char *v = colon + 1;
    while (v < line + n && (*v == ' ' || *v == '\t'))
        v++;
    put_value(h, line, (size_t)(colon - line), v, (size_t)(line + n - v));
}
