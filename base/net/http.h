/* HTTP through libcurl, which is opened at the first request (most commands make none).
 *
 * Redirects are followed here, not by libcurl, so that the caller sees the first server's headers
 * about the file, and the token goes only to that server's origin (scheme, host, port).
 * Environment: HTTPS_PROXY, HTTP_PROXY, NO_PROXY, SSL_CERT_FILE, SSL_CERT_DIR.
 *
 * Reading order: http_head.c (header lines), http.c (requests). */
#ifndef AX_BASE_NET_HTTP_H
#define AX_BASE_NET_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"

/* The headers in use; text longer than its field counts as absent. */
struct ax_http_head {
    int status;
    char location[8192]; /* as sent: may be relative */
    char next[2048];     /* Link: <…>; rel="next" */
    char etag[256];      /* without W/ and quotes, here and below */
    char linked_etag[256];
    char repo_commit[128];
    char error_code[64], error_message[512];
    int64_t length, linked_size; /* -1: not given */
    int64_t range_from, range_total;
    double retry_after; /* seconds; -1: not given */
};
/* Parses one line. A status line resets everything before it. */
void ax_http_head_line(struct ax_http_head *h, const char *line, size_t n);

struct ax_http_request {
    const char *url;
    const char *token;        /* bearer; NULL = none */
    uint64_t from;            /* > 0: request the bytes from here on */
    uint64_t max_bytes;       /* largest size of the body; more is an error */
    const _Atomic bool *stop; /* NULL, or: true ends the request */
    double silent_seconds;    /* without a byte, after which the connection is dead; 0: a minute */
    double seconds;           /* for all of the answer; 0: any */
    const char *post;         /* ax_http_post: JSON text that is sent */
    struct ax_buf *refusal;   /* NULL, or: gets the body for statuses from 400 on, up to 64 KiB */
    /* Receives the body in pieces, for status 200 and 206 only. An error ends the request. */
    enum ax_status (*body)(void *ctx, const struct ax_http_head *head, const void *data, size_t n);
    void *ctx;
};

struct ax_http_response {
    struct ax_http_head head;  /* headers of the last response */
    struct ax_http_head first; /* merged: what the responses from the URL's own origin said about
                                  the file (linked_etag, linked_size, repo_commit) */
    bool unreachable;          /* no answer from the network or the server */
    bool again;                /* the request failed, but a retry may succeed */
};

/* AX_OK if a complete response arrived, whatever its status. AX_ERR_IO for network failures;
 * AX_ERR_UNSUPPORTED if libcurl is missing; else what `body` returned. */
enum ax_status ax_http_get(const struct ax_http_request *r, struct ax_http_response *out);
/* The same for a POST, which follows no redirect. */
enum ax_status ax_http_post(const struct ax_http_request *r, struct ax_http_response *out);

#endif
