/* Questions to a model behind OpenAI's HTTP API: several at a time, asked again where that may help, and given up
 * when the caller is asked to stop.
 *
 * Failures: AX_ERR_IO for a server that does not answer, or is busy (status 408, 409, 429, 500 …), even when asked
 * again; AX_ERR_CONFIG for one that refuses (400, 401, 404 …); AX_ERR_DATA for an answer that is no JSON object. Errors
 * name the address; the key is in none. */
#ifndef AX_BASE_NET_ENDPOINT_H
#define AX_BASE_NET_ENDPOINT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct ax_endpoint_options {
    const char *url;     /* http or https, with or without /v1 at the end */
    const char *key;     /* bearer; NULL: none */
    double seconds;      /* for an answer */
    int64_t retries;     /* how often a question is asked again */
    int64_t concurrency; /* questions at a time, from 1 to 64 */
};

/* Asked about ten times a second while answers are awaited: another status than AX_OK ends all. */
struct ax_endpoint_look {
    enum ax_status (*look)(void *ctx);
    void *ctx;
};

/* Read by several threads at a time. */
struct ax_endpoint {
    struct ax_endpoint_options o; /* without url and key; concurrency is within its bounds */
    char *root;                   /* the URL without /v1 */
    char *key;
};

struct ax_endpoint_request {
    const char *path;   /* such as "/v1/models" */
    const char *body;   /* JSON text that is sent; NULL: GET */
    uint64_t max_bytes; /* the longest answer */
    bool may_refuse;    /* a refusal is no error: then answer is NULL */
    int status;         /* ax_endpoint_ask sets it: the last one; 0: the server did not answer */
    json_t *answer;     /* an object; ax_endpoint_ask sets it, the caller frees it */
};

bool ax_endpoint_is_url(const char *s);
/* Copies url and key. AX_ERR_CONFIG for a URL with a user or a query. */
enum ax_status ax_endpoint_open(struct ax_endpoint *e, const struct ax_endpoint_options *o);
void ax_endpoint_close(struct ax_endpoint *e);
/* Asks all n. The first failure ends the others; what was answered stays. look NULL: nobody is asked. */
enum ax_status ax_endpoint_ask(const struct ax_endpoint *e, int64_t n,
                               struct ax_endpoint_request *list,
                               const struct ax_endpoint_look *look);
/* *name: `wanted`, which must be among the server's models, or NULL, for its first. *max_len: tokens that it reads at
 * most; 0: it does not say. Free *name with ax_free. */
enum ax_status ax_endpoint_model(const struct ax_endpoint *e, const char *wanted, char **name,
                                 int64_t *max_len);

#endif
