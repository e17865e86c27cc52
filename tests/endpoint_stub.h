/* A server in a thread, whose answers a test decides: one connection at a time. Include after cmocka.h. */
#ifndef AX_TESTS_ENDPOINT_STUB_H
#define AX_TESTS_ENDPOINT_STUB_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"

struct stub {
    int fd, port;
    pthread_t thread;
    /* Appends the body of the answer; returns its status, 0 to close the connection without one. head: all lines of
     * the request's head. */
    int (*answer)(struct stub *s, const char *head, const char *body, struct ax_buf *out);
    const char *lines;          /* more lines of the answers' head, each with \r\n; or NULL */
    _Atomic int requests, mood; /* mood: for the test */
    char url[64];
};

static inline bool stub_read(int fd, struct ax_buf *b, size_t want) {
    char piece[4096];
    while (b->len < want) {
        const ssize_t n = recv(fd, piece, sizeof piece, 0);
        if (n <= 0 || ax_buf_append(b, piece, (size_t)n) != AX_OK)
            return false;
        const char *end = strstr(b->data, "\r\n\r\n"),
                   *length = strcasestr(b->data, "content-length:");
        if (end && want == SIZE_MAX)
            want = (size_t)(end - b->data) + 4 +
                   (length && length < end ? strtoul(length + 15, NULL, 10) : 0);
    }
    return true;
}

static inline void stub_serve(struct stub *s, int fd) {
    struct ax_buf request = {0}, body = {0}, out = {0};
    if (stub_read(fd, &request, SIZE_MAX)) {
        char *end = strstr(request.data, "\r\n\r\n");
        end[2] = '\0';
        s->requests++;
        ax_buf_append(&body, "", 0);
        const int status = s->answer(s, request.data, end + 4, &body);
        if (status > 0 &&
            ax_buf_printf(&out,
                          "HTTP/1.1 %d Stub\r\nContent-Type: application/json\r\n"
                          "Connection: close\r\n%sContent-Length: %zu\r\n\r\n",
                          status, s->lines ? s->lines : "", body.len) == AX_OK &&
            ax_buf_append(&out, body.data, body.len) == AX_OK)
            for (size_t at = 0; at < out.len;) {
                const ssize_t n = send(fd, out.data + at, out.len - at, MSG_NOSIGNAL);
                if (n <= 0)
                    break;
                at += (size_t)n;
            }
    }
    ax_buf_free(&request);
    ax_buf_free(&body);
    ax_buf_free(&out);
    close(fd);
}

static inline void *stub_run(void *arg) {
    struct stub *s = arg;
    for (int fd; (fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC)) >= 0;)
        stub_serve(s, fd);
    return NULL;
}

static inline void stub_start(struct stub *s) {
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(s->fd, 64), 0);
    assert_int_equal(getsockname(s->fd, (struct sockaddr *)&a, &n), 0);
    s->port = ntohs(a.sin_port);
    snprintf(s->url, sizeof s->url, "http://127.0.0.1:%d", s->port);
    assert_int_equal(pthread_create(&s->thread, NULL, stub_run, s), 0);
}

static inline void stub_stop(struct stub *s) {
    shutdown(s->fd, SHUT_RDWR);
    pthread_join(s->thread, NULL);
    close(s->fd);
}

#endif
