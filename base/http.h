/* HTTP GET through libcurl, which is opened at the first request (most commands make none).
 *
 * Redirects are followed here, not by libcurl, so that the caller sees what the first server said
 * about the file, and so that the token goes to that server's origin (scheme, host, port) only.
 * Environment: HTTPS_PROXY, HTTP_PROXY, NO_PROXY, SSL_CERT_FILE, SSL_CERT_DIR.
 *
 * Read on: http_head.c (header lines), http.c (requests). */
#ifndef AX_BASE_HTTP_H
#define AX_BASE_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* The headers that are looked at; text that is longer than its field counts as absent. */
struct ax_http_head {
    int status;
    char location[8192]; /* as sent: may be relative */
    char next[2048];     /* Link: <…>; rel="next" */
    char etag[256];      /* without W/ and quotes, here and below */
    char linked_etag[256];
    char repo_commit[128];
    char error_code[64], error_message[512];
    int64_t length, linked_size; /* -1: not told */
    int64_t range_from, range_total;
    double retry_after; /* seconds; -1: not told */
};
/* Takes one line in. A status line forgets all that was there before. */
void ax_http_head_line(struct ax_http_head *h, const char *line, size_t n);

struct ax_http_request {
    const char *url;
    const char *token;        /* bearer; NULL = none */
    uint64_t from;            /* > 0: ask for the bytes from here on */
    uint64_t max_bytes;       /* of the body; more is an error */
    const _Atomic bool *stop; /* NULL, or: true ends the request */
    /* The body in pieces, for status 200 and 206 only. What it returns ends the request. */
    enum ax_status (*body)(void *ctx, const struct ax_http_head *head, const void *data, size_t n);
    void *ctx;
};

struct ax_http_response {
    struct ax_http_head head;  /* of the last answer */
    struct ax_http_head first; /* joined: what the answers of the url's own origin told about the
                                  file (linked_etag, linked_size, repo_commit) */
    bool again;                /* the request failed, but the next one may succeed */
};

/* AX_OK when an answer came in whole, whatever its status. AX_ERR_IO for what the network did;
 * AX_ERR_UNSUPPORTED where libcurl is not there; else what `body` returned. */
enum ax_status ax_http_get(const struct ax_http_request *r, struct ax_http_response *out);

#endif
