/* The HTTP API of OpenAI for a model: of `axtrain serve`, and of a model in training.
 *
 * Read cmd/serve.c (options, and the order in which things start) and cmd/train/serve.c, routes.c (what each
 * route does), request.c (what a request may say), engine.h (who computes), answer.c; adapters.c and control.c have the
 * routes that change the server; http.h is below them. */
#ifndef AX_CMD_SERVE_SERVE_H
#define AX_CMD_SERVE_SERVE_H

#include "cmd/serve/engine.h"
#include "cmd/serve/http.h"
#include "model/text/text_model.h"

struct ax_serve {
    struct ax_serve_engine engine;
    struct ax_http_server *http;
    char *key, *name;      /* the name of the first model */
    int64_t created;       /* seconds since 1970 */
    pthread_mutex_t large; /* held while a large request is read */
    bool control;          /* clients may pause the engine (control.h) */
    struct ax_text_model
        *text; /* whose places for adapters clients may fill (adapters.h); NULL: they may not */
    pthread_mutex_t updates; /* held while an adapter is loaded or unloaded */
};

struct ax_serve_options {
    const char *host, *key_file; /* key_file NULL: no key */
    int64_t port;                /* 0: any free one */
    int64_t most;                /* sequences that may be pending at a time */
    double stop_seconds;         /* how long answers may go on after a request to stop */
};
#define AX_SERVE_OPTIONS                                                                           \
    { .host = "127.0.0.1", .port = 8000 }
#define AX_SERVE_LANES   16
#define AX_SERVE_QUEUE   256
#define AX_SERVE_CONTEXT 4096

/* Sets s->name, of a model that is given as a path or a hub id: `named`, or else the last part of a path. */
enum ax_status ax_serve_set_name(struct ax_serve *s, const char *named, const char *given);

/* Zeroes it. _close is safe after an error. */
enum ax_status ax_serve_init(struct ax_serve *s);
/* Takes the port; nothing is answered yet. Then models are added. */
enum ax_status ax_serve_listen(struct ax_serve *s, const struct ax_serve_options *o);
/* AX_ERR_DATA for a model whose chat template renders no conversation; one without a template gets a
 * warning. */
enum ax_status ax_serve_check_templates(const struct ax_serve *s);
/* Options of the generator, whose sequences have up to `context` tokens. cache_tokens 0: a quarter of what all
 * lanes could fill. */
struct ax_generate_options ax_serve_generator(struct ax_serve *s, int64_t lanes, int64_t context,
                                              int64_t cache_tokens);
enum ax_status ax_serve_start(struct ax_serve *s);
/* Logs where it is reached, and what requests get that say nothing. */
void ax_serve_announce(const struct ax_serve *s, const char *host,
                       const struct ax_generate_options *o);
/* What is pending has failed. */
void ax_serve_close(struct ax_serve *s);

/* The table of routes. */
extern const struct ax_route ax_serve_routes[];
extern const size_t ax_serve_n_routes;
/* An error as an object of the protocol; ctx is a struct ax_serve. */
json_t *ax_serve_error(void *ctx, struct ax_exchange *x, int status, const char *message);

#endif
