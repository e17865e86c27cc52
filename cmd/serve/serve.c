#include "cmd/serve/serve.h"

#include <string.h>
#include <time.h>

#include "base/io.h"
#include "base/io_path.h"
#include "base/log.h"
#include "base/text/unicode.h"
#include "cmd/api_key.h"

#define REQUEST_SECONDS 300
#define PING_SECONDS    15
#define ANSWER_BYTES    ((size_t)1 << 30)

enum ax_status ax_serve_set_name(struct ax_serve *s, const char *named, const char *given) {
    const char *name = named ? named : given;
    size_t n = strlen(name);
    if (!named && ax_path_exists(given))
        name = ax_path_last(given, &n);
    if (n == 0)
        return ax_error(AX_ERR_CONFIG,
                        "the name of a served model: expected text, got an empty one");
    return ax_utf8_repaired(&s->name, name, n);
}

enum ax_status ax_serve_init(struct ax_serve *s) {
    *s = (struct ax_serve){.created = (int64_t)time(NULL),
                           .large = PTHREAD_MUTEX_INITIALIZER,
                           .updates = PTHREAD_MUTEX_INITIALIZER};
    s->engine.most_bytes = ANSWER_BYTES;
    ax_serve_engine_init(&s->engine);
    return ax_serve_models_init(&s->engine.models);
}

enum ax_status ax_serve_listen(struct ax_serve *s, const struct ax_serve_options *o) {
    AX_TRY(o->key_file ? ax_api_key_read(o->key_file, &s->key) : ax_strdup(&s->key, ""));
    const struct ax_http_options ho = {.host = o->host,
                                       .port = (int)o->port,
                                       .key = s->key,
                                       .request_seconds = REQUEST_SECONDS,
                                       .routes = ax_serve_routes,
                                       .n_routes = ax_serve_n_routes,
                                       .ctx = s,
                                       .error = ax_serve_error};
    s->engine.most = o->most;
    s->engine.stop_seconds = o->stop_seconds;
    s->engine.ping_seconds = PING_SECONDS;
    return ax_http_listen(&s->http, &ho);
}

static enum ax_status check_template(const struct ax_serve_model *m) {
    struct ax_serve_request r = {0};
    json_t *messages = json_pack("[{ss ss}]", "role", "user", "content", "Hello");
    const enum ax_status st = ax_serve_read_messages(&r, m, messages);
    json_decref(messages);
    ax_serve_request_free(&r);
    if (st == AX_OK || m->side->template)
        return st;
    ax_log_warn("chats with %s are refused, as there is no template for them: %s", m->name,
                ax_error_text());
    ax_error_clear();
    return AX_OK;
}

enum ax_status ax_serve_check_templates(const struct ax_serve *s) {
    for (int i = 0; i < s->engine.models.n; i++)
        AX_TRY(check_template(&s->engine.models.list[i]));
    return AX_OK;
}

struct ax_generate_options ax_serve_generator(struct ax_serve *s, int64_t lanes, int64_t context,
                                              int64_t cache_tokens) {
    struct ax_generate_options o = {.n_seqs = (int)lanes,
                                    .max_prompt = 1,
                                    .max_new = context - 1,
                                    .long_prompts = true,
                                    .kv_tokens =
                                        cache_tokens > 0 ? cache_tokens : lanes * context / 4};
    ax_serve_engine_options(&s->engine, &o);
    return o;
}

enum ax_status ax_serve_start(struct ax_serve *s) {
    return ax_http_start(s->http);
}

void ax_serve_announce(const struct ax_serve *s, const char *host,
                       const struct ax_generate_options *o) {
    const struct ax_serve_model *m = &s->engine.models.list[0];
    const struct ax_sampling *d = &m->sampling;
    const bool v6 = strchr(host, ':') != NULL;
    ax_log_info(
        "serving model=%s url=http://%s%s%s:%d/v1 context=%lld parallel=%d cache_tokens=%lld "
        "temperature=%g top_k=%lld top_p=%g min_p=%g repetition_penalty=%g key=%s",
        m->name, v6 ? "[" : "", host, v6 ? "]" : "", ax_http_port(s->http), (long long)m->context,
        o->n_seqs, (long long)ax_generate_room(o), d->temperature, (long long)d->top_k,
        d->top_p > 0 ? d->top_p : 1, d->min_p, d->repetition_penalty, s->key[0] ? "yes" : "no");
}

void ax_serve_close(struct ax_serve *s) {
    ax_serve_engine_end(&s->engine);
    ax_http_stop(s->http);
    ax_serve_engine_free(&s->engine);
    ax_serve_models_close(&s->engine.models);
    ax_free(s->key);
    ax_free(s->name);
}
