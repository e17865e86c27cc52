/* The only file that knows libmicrohttpd, which microhttpd.h declares. Read on_request, then ax_http_listen. */
#include "cmd/serve/http.h"

#include <netdb.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/dynlib.h"
#include "cmd/serve/deadline.h"
#include "cmd/serve/host.h"
#include "cmd/serve/microhttpd.h"

#define HEADER_BYTES   ((size_t)64 << 10)
#define STACK_BYTES    ((size_t)2 << 20)
#define SILENT_SECONDS 60U /* of a client, in headers, body, or between requests */
#define LAST_SECONDS   5   /* that answers on their way have when the server stops */
#define BACKLOG        128
#define STREAM_PIECE   ((size_t)16 << 10)

struct ax_http_server {
    struct ax_http_options o;
    struct ax_microhttpd lib;
    struct MHD_Daemon *daemon;
    int fd, port;
    bool local; /* only this machine reaches it */
    struct ax_deadlines *deadlines;
    _Atomic size_t bodies;
    _Atomic int exchanges; /* requests that have begun and not been answered */
    _Atomic uint64_t answers[6];
};

static enum ax_status open_library(struct ax_microhttpd *lib) {
    static const char *const names[] = {"libmicrohttpd.so.12", "libmicrohttpd.so", NULL};
    const struct ax_symbol symbols[] = {
        {"MHD_start_daemon", &lib->start_daemon},
        {"MHD_stop_daemon", &lib->stop_daemon},
        {"MHD_create_response_from_buffer", &lib->response_from_buffer},
        {"MHD_create_response_from_callback", &lib->response_from_callback},
        {"MHD_add_response_header", &lib->add_header},
        {"MHD_queue_response", &lib->queue_response},
        {"MHD_destroy_response", &lib->destroy_response},
        {"MHD_lookup_connection_value", &lib->lookup},
        {"MHD_get_connection_info", &lib->connection_info},
        {"MHD_set_connection_option", &lib->set_connection_option},
    };
    const enum ax_status st = ax_library_open(names, symbols, sizeof symbols / sizeof *symbols);
    return st == AX_OK ? st
                       : ax_error_prefix(st, "serving needs libmicrohttpd 0.9.71 or later, which "
                                             "cannot be opened (Debian: `apt-get install "
                                             "libmicrohttpd12`)");
}

/* ---- answers ---- */

static enum ax_status queue(struct ax_exchange *x, int status, struct MHD_Response *r,
                            const char *type) {
    const struct ax_microhttpd *lib = &x->server->lib;
    bool ok = r && lib->add_header(r, "Content-Type", type) == AX_MHD_YES;
    if (ok && status == 405)
        ok = lib->add_header(r, "Allow", x->route->method) == AX_MHD_YES;
    if (ok && (status == 429 || status == 503))
        ok = lib->add_header(r, "Retry-After", "1") == AX_MHD_YES;
    if (ok && status == 401)
        ok = lib->add_header(r, "WWW-Authenticate", "Bearer") == AX_MHD_YES;
    if (ok && strcmp(type, "text/event-stream") == 0)
        ok = lib->add_header(r, "Cache-Control", "no-cache") == AX_MHD_YES;
    lib->set_connection_option(x->connection, AX_MHD_CONNECTION_OPTION_TIMEOUT, SILENT_SECONDS);
    ok = ok && lib->queue_response(x->connection, (unsigned)status, r) == AX_MHD_YES;
    if (r)
        lib->destroy_response(r);
    if (!ok)
        return ax_error(AX_ERR_NOMEM, "out of memory for an answer");
    x->status = status;
    atomic_fetch_add(&x->server->answers[status / 100], 1);
    return AX_OK;
}

enum ax_status ax_reply_text(struct ax_exchange *x, int status, const char *type, const char *text,
                             size_t len) {
    return queue(
        x, status,
        x->server->lib.response_from_buffer(len, (void *)(uintptr_t)text, AX_MHD_RESPMEM_MUST_COPY),
        type);
}

enum ax_status ax_reply_json(struct ax_exchange *x, int status, json_t *json) {
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    if (!text)
        return ax_error(AX_ERR_NOMEM, "out of memory for an answer");
    const enum ax_status st = ax_reply_text(x, status, "application/json", text, strlen(text));
    ax_free_hook(text);
    return st;
}

/* A stream on its way: what has been made and not been sent. */
struct stream {
    struct ax_exchange *x;
    enum ax_status (*next)(struct ax_exchange *x, struct ax_buf *out, bool *more);
    struct ax_buf out;
    size_t sent;
    bool more;
};

static ssize_t on_read(void *ctx, uint64_t at, char *to, size_t most) {
    struct stream *s = ctx;
    (void)at;
    while (s->sent == s->out.len) {
        s->sent = s->out.len = 0;
        if (!s->more)
            return AX_MHD_CONTENT_READER_END_OF_STREAM;
        if (s->next(s->x, &s->out, &s->more) != AX_OK)
            return AX_MHD_CONTENT_READER_END_WITH_ERROR;
    }
    const size_t left = s->out.len - s->sent, n = left < most ? left : most;
    memcpy(to, s->out.data + s->sent, n);
    s->sent += n;
    return (ssize_t)n;
}

static void free_stream(void *ctx) {
    struct stream *s = ctx;
    ax_buf_free(&s->out);
    ax_free(s);
}

enum ax_status ax_reply_stream(struct ax_exchange *x,
                               enum ax_status (*next)(struct ax_exchange *x, struct ax_buf *out,
                                                      bool *more)) {
    struct stream *s;
    AX_TRY(ax_alloc(&s, 1, sizeof *s));
    *s = (struct stream){.x = x, .next = next, .more = true};
    struct MHD_Response *r = x->server->lib.response_from_callback(
        AX_MHD_SIZE_UNKNOWN, STREAM_PIECE, on_read, s, free_stream);
    if (!r)
        free_stream(s);
    return queue(x, 200, r, "text/event-stream");
}

/* The error text of this thread, or another one. */
static enum ax_status reply_error(struct ax_exchange *x, int status, const char *message) {
    const struct ax_http_options *o = &x->server->o;
    return ax_reply_json(x, status, o->error(o->ctx, x, status, message));
}

/* ---- requests ---- */

void ax_http_wait(struct ax_exchange *x) {
    x->server->lib.set_connection_option(x->connection, AX_MHD_CONNECTION_OPTION_TIMEOUT, 0U);
}

const char *ax_http_argument(const struct ax_exchange *x, const char *name) {
    return x->server->lib.lookup(x->connection, AX_MHD_GET_ARGUMENT_KIND, name);
}

bool ax_http_gone(const struct ax_exchange *x) {
    const int *fd =
        x->server->lib.connection_info(x->connection, AX_MHD_CONNECTION_INFO_CONNECTION_FD);
    struct pollfd p = {.fd = fd ? *fd : -1, .events = POLLRDHUP};
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0;
}

/* In time that depends on the given key alone. */
static bool same_key(const char *given, const char *key) {
    const size_t n = strlen(given), m = strlen(key);
    unsigned different = n != m;
    for (size_t i = 0; i < n; i++)
        different |= (unsigned char)given[i] ^ (unsigned char)key[m > 0 ? i % m : 0];
    return different == 0;
}

static bool has_key(const struct ax_exchange *x) {
    static const char scheme[] = "Bearer ";
    const char *given = x->server->lib.lookup(x->connection, AX_MHD_HEADER_KIND, "Authorization");
    if (x->server->o.key[0] == '\0' || x->route->open)
        return true;
    return given && strncasecmp(given, scheme, sizeof scheme - 1) == 0 &&
           same_key(given + sizeof scheme - 1, x->server->o.key);
}

static bool is_json(const struct ax_exchange *x) {
    static const char json[] = "application/json";
    const char *type = x->server->lib.lookup(x->connection, AX_MHD_HEADER_KIND, "Content-Type");
    const size_t n = sizeof json - 1;
    return type && strncasecmp(type, json, n) == 0 && strchr("; \t", type[n]) != NULL;
}

/* The status with which the request's head is refused, with the reason in x->why; 0: it is not. */
static int refuse_head(struct ax_exchange *x, const char *method, const char *path) {
    struct ax_buf *why = &x->why;
    const struct ax_http_options *o = &x->server->o;
    const char *as = strcmp(method, "HEAD") == 0 ? "GET" : method;
    const struct ax_route *same_path = NULL;
    const char *host = x->server->lib.lookup(x->connection, AX_MHD_HEADER_KIND, "Host");
    if (x->server->local && host && !ax_serve_host_is_local(host, o->host)) {
        (void)ax_buf_printf(why,
                            "the request is for the host %.100s, but this server is that of %s "
                            "only; --host and --api-key-file let others in",
                            host, o->host);
        return 403;
    }
    for (size_t i = 0; i < o->n_routes && !x->route; i++) {
        const struct ax_route *r = &o->routes[i];
        const size_t n = strlen(r->path);
        if (r->prefix ? strncmp(path, r->path, n) != 0 : strcmp(path, r->path) != 0)
            continue;
        same_path = r;
        if (strcmp(as, r->method) != 0)
            continue;
        x->route = r;
        x->path = path + n;
    }
    if (!x->route && same_path) {
        x->route = same_path;
        (void)ax_buf_printf(why, "%s needs %s, not %.16s", same_path->path, same_path->method,
                            method);
        return 405;
    }
    if (!x->route) {
        (void)ax_buf_printf(why, "no route %.16s %.200s", method, path);
        return 404;
    }
    if (!has_key(x)) {
        (void)ax_buf_puts(why, "the key of this server is missing or wrong: send \"Authorization: "
                               "Bearer KEY\"");
        return 401;
    }
    if (x->route->bare && x->server->lib.lookup(x->connection, AX_MHD_HEADER_KIND, "Origin")) {
        (void)ax_buf_printf(why, "%s is not for pages of browsers", x->route->path);
        return 403;
    }
    if (strcmp(as, "POST") == 0 && !x->route->bare && !is_json(x)) {
        (void)ax_buf_puts(why, "expected Content-Type: application/json");
        return 415;
    }
    const char *length = x->server->lib.lookup(x->connection, AX_MHD_HEADER_KIND, "Content-Length");
    if (length && strtoull(length, NULL, 10) > AX_HTTP_MAX_BODY) {
        (void)ax_buf_printf(why, "the body has %.20s bytes; at most %zu are read", length,
                            AX_HTTP_MAX_BODY);
        return 413;
    }
    return 0;
}

static void drop_body(struct ax_exchange *x) {
    atomic_fetch_sub(&x->server->bodies, x->counted);
    x->counted = 0;
    ax_buf_free(&x->body);
}

/* False ends the connection. */
static bool take_body(struct ax_exchange *x, const char *data, size_t n) {
    x->too_large = x->too_large || x->body.len + n > AX_HTTP_MAX_BODY;
    if (x->too_large || x->too_many || x->refused) { /* the rest is not kept */
        drop_body(x);
        return true;
    }
    x->counted += n;
    x->too_many = atomic_fetch_add(&x->server->bodies, n) + n > AX_HTTP_MAX_BODIES;
    return ax_buf_append(&x->body, data, n) == AX_OK;
}

static int status_of(const struct ax_exchange *x, enum ax_status st) {
    if (x->status > 0)
        return x->status;
    return st == AX_ERR_DATA || st == AX_ERR_CONFIG || st == AX_ERR_UNSUPPORTED ? 400 : 500;
}

static enum ax_status handle(struct ax_exchange *x) {
    const struct ax_http_server *s = x->server;
    if (x->refused)
        return reply_error(x, x->refused, x->why.data ? x->why.data : "");
    if (x->too_large)
        return reply_error(x, 413, "the body is too large; at most 64 MiB are read");
    if (x->too_many)
        return reply_error(x, 429, "the bodies of all requests are too large together");
    const enum ax_status st = x->route->handle(s->o.ctx, x);
    return st == AX_OK ? st : reply_error(x, status_of(x, st), ax_error_text());
}

static int begin(struct ax_http_server *s, struct MHD_Connection *c, const char *path,
                 const char *method, void **state) {
    struct ax_exchange *x;
    if (ax_alloc(&x, 1, sizeof *x) != AX_OK)
        return AX_MHD_NO;
    struct ax_deadline *const *deadline =
        s->lib.connection_info(c, AX_MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    *x =
        (struct ax_exchange){.server = s, .connection = c, .deadline = deadline ? *deadline : NULL};
    *state = x;
    atomic_fetch_add(&s->exchanges, 1);
    x->refused = refuse_head(x, method, path);
    /* before a large body has come; others are read, so that the connection lives on */
    return x->refused != 413 || handle(x) == AX_OK ? AX_MHD_YES : AX_MHD_NO;
}

/* Called for the head, for each piece of the body, and at its end. */
static int on_request(void *ctx, struct MHD_Connection *c, const char *path, const char *method,
                      const char *version, const char *data, size_t *n, void **state) {
    struct ax_http_server *s = ctx;
    struct ax_exchange *x = *state;
    (void)version;
    if (!x)
        return begin(s, c, path, method, state);
    if (*n > 0) {
        const bool goes_on = take_body(x, data, *n);
        *n = 0;
        return goes_on ? AX_MHD_YES : AX_MHD_NO;
    }
    ax_error_clear();
    ax_deadline_wait(x->deadline, false);
    return handle(x) == AX_OK ? AX_MHD_YES : AX_MHD_NO;
}

static void on_completed(void *ctx, struct MHD_Connection *c, void **state, int why) {
    struct ax_exchange *x = *state;
    (void)ctx;
    (void)c;
    (void)why;
    if (!x)
        return;
    if (x->state)
        x->route->close(x->state);
    drop_body(x);
    ax_deadline_wait(x->deadline, true);
    ax_buf_free(&x->why);
    atomic_fetch_sub(&x->server->exchanges, 1);
    ax_free(x);
    *state = NULL;
}

static void on_connection(void *ctx, struct MHD_Connection *c, void **state, int what) {
    struct ax_http_server *s = ctx;
    const int *fd = s->lib.connection_info(c, AX_MHD_CONNECTION_INFO_CONNECTION_FD);
    if (what == AX_MHD_CONNECTION_NOTIFY_CLOSED)
        ax_deadline_remove(*state);
    else
        *state = fd ? ax_deadline_add(s->deadlines, *fd) : NULL;
}

/* ---- a server ---- */

static bool is_loopback(const struct sockaddr *a) {
    const struct sockaddr_in *v4 = (const void *)a;
    const struct sockaddr_in6 *v6 = (const void *)a;
    return a->sa_family == AF_INET
               ? ntohl(v4->sin_addr.s_addr) >> 24 == 127
               : a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

static enum ax_status bind_to(struct ax_http_server *s, const struct addrinfo *a) {
    const int yes = 1;
    struct sockaddr_storage bound;
    socklen_t n = sizeof bound;
    char port[16];
    if (!is_loopback(a->ai_addr) && s->o.key[0] == '\0')
        return ax_error(AX_ERR_CONFIG,
                        "--host %s: others can reach it, so it needs a key: write one into a file "
                        "that only you can read, and give --api-key-file FILE",
                        s->o.host);
    s->local = is_loopback(a->ai_addr);
    s->fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s->fd < 0 || setsockopt(s->fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
        bind(s->fd, a->ai_addr, a->ai_addrlen) != 0 || listen(s->fd, BACKLOG) != 0)
        return ax_error(AX_ERR_IO, "--host %s --port %d: %m. Choose another --port, or 0 for any",
                        s->o.host, s->o.port);
    if (getsockname(s->fd, (struct sockaddr *)&bound, &n) != 0 ||
        getnameinfo((struct sockaddr *)&bound, n, NULL, 0, port, sizeof port, NI_NUMERICSERV) != 0)
        return ax_error(AX_ERR_IO, "--host %s: %m", s->o.host);
    s->port = (int)strtol(port, NULL, 10);
    return AX_OK;
}

static enum ax_status bind_socket(struct ax_http_server *s) {
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *list;
    char port[16];
    snprintf(port, sizeof port, "%d", s->o.port);
    const int failed = getaddrinfo(s->o.host, port, &hints, &list);
    if (failed)
        return ax_error(AX_ERR_CONFIG, "--host %s: %s", s->o.host, gai_strerror(failed));
    const enum ax_status st = bind_to(s, list);
    freeaddrinfo(list);
    return st;
}

enum ax_status ax_http_listen(struct ax_http_server **out, const struct ax_http_options *o) {
    struct ax_http_server *s;
    *out = NULL;
    AX_TRY(ax_alloc(&s, 1, sizeof *s));
    s->o = *o;
    s->fd = -1;
    enum ax_status st = open_library(&s->lib);
    if (st == AX_OK)
        st = bind_socket(s);
    if (st != AX_OK)
        ax_http_stop(s);
    else
        *out = s;
    return st;
}

enum ax_status ax_http_start(struct ax_http_server *s) {
    AX_TRY(ax_deadlines_start(&s->deadlines, s->o.request_seconds));
    s->daemon = s->lib.start_daemon(
        AX_MHD_USE_THREAD_PER_CONNECTION | AX_MHD_USE_INTERNAL_POLLING_THREAD | AX_MHD_USE_POLL |
            AX_MHD_USE_ITC,
        0, NULL, NULL, (void *)(uintptr_t)on_request, s, AX_MHD_OPTION_LISTEN_SOCKET, s->fd,
        AX_MHD_OPTION_CONNECTION_MEMORY_LIMIT, HEADER_BYTES, AX_MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)AX_HTTP_CONNECTIONS, AX_MHD_OPTION_CONNECTION_TIMEOUT, SILENT_SECONDS,
        AX_MHD_OPTION_NOTIFY_COMPLETED, on_completed, s, AX_MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, s, AX_MHD_OPTION_THREAD_STACK_SIZE, STACK_BYTES, AX_MHD_OPTION_END);
    if (!s->daemon)
        return ax_error(AX_ERR_IO, "--port %d: libmicrohttpd failed to start: %m", s->port);
    s->fd = -1; /* the daemon's */
    return AX_OK;
}

void ax_http_stop(struct ax_http_server *s) {
    if (!s)
        return;
    for (const double until = ax_clock_now() + LAST_SECONDS;
         s->exchanges > 0 && ax_clock_now() < until;)
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    if (s->daemon)
        s->lib.stop_daemon(s->daemon);
    ax_deadlines_stop(s->deadlines);
    if (s->fd >= 0)
        close(s->fd);
    ax_free(s);
}

int ax_http_port(const struct ax_http_server *s) {
    return s->port;
}

uint64_t ax_http_answers(const struct ax_http_server *s, int hundreds) {
    return s->answers[hundreds];
}
