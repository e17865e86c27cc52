/* `axtrain serve`: the HTTP API of OpenAI for a model.
 *
 * Read cmd/serve.c (options, and the order in which things start), routes.c (what each route does),
 * request.c (what a request may say), engine.h (who computes), answer.c; http.h is below them. */
#ifndef AX_CMD_SERVE_SERVE_H
#define AX_CMD_SERVE_SERVE_H

#include "cmd/serve/engine.h"
#include "cmd/serve/http.h"

struct ax_serve {
    struct ax_serve_engine engine;
    struct ax_http_server *http;
    int64_t created;       /* seconds since 1970 */
    pthread_mutex_t large; /* held while a large request is read */
};

/* The table of routes. */
extern const struct ax_route ax_serve_routes[];
extern const size_t ax_serve_n_routes;
/* An error as an object of the protocol; ctx is a struct ax_serve. */
json_t *ax_serve_error(void *ctx, struct ax_exchange *x, int status, const char *message);

#endif
