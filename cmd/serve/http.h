/* HTTP for `axtrain serve`, by libmicrohttpd: a thread for each connection, which calls the route's
 * handler with a request whose body has arrived.
 *
 * Requests are refused before a handler sees them: 403 for another site's Host, 404, 405 with Allow, 401,
 * 413, 415, and 429 while the bodies of all connections are too large together. What a handler answers is JSON, a text, or
 * a stream of server-sent events. */
#ifndef AX_CMD_SERVE_HTTP_H
#define AX_CMD_SERVE_HTTP_H

#include <jansson.h>
#include <stdbool.h>

#include "base/mem.h"

#define AX_HTTP_MAX_BODY    ((size_t)64 << 20)
#define AX_HTTP_MAX_BODIES  ((size_t)256 << 20) /* those of all connections */
#define AX_HTTP_CONNECTIONS 1024

struct MHD_Connection;
struct ax_http_server;

/* A request, and what its handler keeps until it has been answered. */
struct ax_exchange {
    struct ax_http_server *server;
    struct MHD_Connection *connection;
    struct ax_deadline *deadline; /* its connection's */
    const struct ax_route *route;
    const char *path; /* behind the route's, for one with `prefix` */
    struct ax_buf body;
    size_t counted; /* bytes of AX_HTTP_MAX_BODIES */
    bool too_large, too_many;
    int refused;       /* status with which the head has been refused; 0: it has not */
    struct ax_buf why; /* and the reason */
    int status;        /* the answer's */
    char param[64];    /* the key that an error is about, or "", */
    const char *code;  /* and the error's code, or NULL */
    /* the handler's: freed by the route's `close` */
    void *state;
};

/* Answers, with ax_reply…, or fails: with x->status if it has set one, else 400 for
 * AX_ERR_DATA, AX_ERR_CONFIG and AX_ERR_UNSUPPORTED, else 500. */
typedef enum ax_status ax_route_handler(void *ctx, struct ax_exchange *x);

struct ax_route {
    const char *method, *path;
    bool prefix; /* any path that begins so */
    bool open;   /* without a key */
    bool bare;   /* a POST that needs no body, nor its type; not from pages of other sites */
    ax_route_handler *handle;
    void (*close)(void *state); /* NULL: there is no state */
};

struct ax_http_options {
    const char *host;
    int port;               /* 0: any free one */
    const char *key;        /* "" : none is asked for */
    double request_seconds; /* that a client has for a request, from the answer before on */
    const struct ax_route *routes;
    size_t n_routes;
    void *ctx; /* the handlers' */
    /* tells why a handler failed, as an object; `st` with the error text of this thread */
    json_t *(*error)(void *ctx, struct ax_exchange *x, int status, const char *message);
};

/* Binds and listens; nothing is answered yet. AX_ERR_CONFIG for a host that is not of this machine
 * or needs a key, AX_ERR_IO for a port in use, AX_ERR_UNSUPPORTED without the library. */
enum ax_status ax_http_listen(struct ax_http_server **out, const struct ax_http_options *o);
enum ax_status ax_http_start(struct ax_http_server *s);
/* Ends connections, when the answers on their way have been sent or have had five seconds. */
void ax_http_stop(struct ax_http_server *s); /* NULL is fine */
int ax_http_port(const struct ax_http_server *s);
/* How many answers had this status class: 2 to 5. */
uint64_t ax_http_answers(const struct ax_http_server *s, int hundreds);

/* Before the handler waits: the connection may be silent for as long as it takes. */
void ax_http_wait(struct ax_exchange *x);
/* A parameter behind the path's "?", or NULL. */
const char *ax_http_argument(const struct ax_exchange *x, const char *name);
/* True if the client has closed the connection. */
bool ax_http_gone(const struct ax_exchange *x);
/* json is consumed. */
enum ax_status ax_reply_json(struct ax_exchange *x, int status, json_t *json);
enum ax_status ax_reply_text(struct ax_exchange *x, int status, const char *type, const char *text,
                             size_t len);
/* Sends what `next` appends, as events; *more false: that was the last. An error ends the
 * connection. ctx is x. */
enum ax_status ax_reply_stream(struct ax_exchange *x,
                               enum ax_status (*next)(struct ax_exchange *x, struct ax_buf *out,
                                                      bool *more));

#endif
