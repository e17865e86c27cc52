/* `axtrain serve`: options, and the order in which a server starts: what may be wrong first, then the
 * port, then the weights. */
#include "cmd/serve/serve.h"

#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/io.h"
#include "base/log.h"
#include "base/stop.h"
#include "cmd/commands.h"
#include "cmd/text_args.h"

#define CONTEXT_DEFAULT 4096
#define STOP_SECONDS    30
#define REQUEST_SECONDS 300
#define ANSWER_BYTES    ((size_t)1 << 30)
#define MAX_KEY         ((size_t)4096)

struct command {
    struct ax_text_args a;
    struct ax_ranks ranks;
    const char *host, *name, *key_file;
    int64_t port, context, lanes, queue, cache_tokens;
    char *key;
    struct ax_text_model model;
    struct ax_serve serve;
};

static enum ax_status read_key(struct command *c) {
    size_t len, n = 0;
    if (!c->key_file)
        return ax_strdup(&c->key, "");
    AX_TRY(ax_read_file(c->key_file, MAX_KEY, &c->key, &len));
    while (n < len && c->key[n] > ' ' && c->key[n] < 127)
        n++;
    if (n == 0 || strspn(c->key + n, "\r\n") != len - n)
        return ax_error(AX_ERR_CONFIG,
                        "%s: expected one line with a key of visible ASCII "
                        "characters, without blanks",
                        c->key_file);
    c->key[n] = '\0';
    return AX_OK;
}

/* The last part of a path, or a hub id. */
static const char *name_of(const char *given) {
    const char *slash = strrchr(given, '/');
    const bool path = ax_path_exists(given);
    return path && slash && slash[1] ? slash + 1 : given;
}

static enum ax_status add_model(struct command *c, const char *name, const char *given,
                                int adapter) {
    struct ax_serve_models *all = &c->serve.engine.models;
    const struct ax_text_model *t = &c->model;
    const int64_t wanted = c->context > 0 ? c->context : CONTEXT_DEFAULT;
    const struct ax_serve_model m = {
        .name = name,
        .given = given,
        .parent = all->n > 0 ? all->list[0].name : NULL,
        .adapter = adapter,
        .side = ax_text_model_side(t, adapter),
        .context = wanted < t->arch.max_positions ? wanted : t->arch.max_positions,
        .vocab_size = t->arch.vocab_size,
        .sampling = t->sampling,
        .max_new = t->max_new,
        .stop = &t->stop_strings};
    return ax_serve_models_add(all, &m);
}

/* What requests are read for. The folder's settings apply if it samples, as in `axtrain generate`; else
 * the protocol's. First comes what MODEL is, and then the adapters. */
static enum ax_status describe(struct command *c) {
    struct ax_text_model *t = &c->model;
    const char *name = c->name ? c->name : name_of(c->a.o.model);
    const int first = t->named || t->adapters.grown ? 0 : AX_ADAPTER_NONE;
    if (c->context > t->arch.max_positions)
        return ax_error(AX_ERR_CONFIG, "--context %lld: the model has only %lld positions",
                        (long long)c->context, (long long)t->arch.max_positions);
    if (t->sampling.temperature == 0)
        t->sampling.temperature = 1;
    AX_TRY(add_model(c, name, c->a.o.model, first));
    for (int i = first + 1; i < t->adapters.n; i++)
        AX_TRY(add_model(c, t->adapters.names[i], NULL, i));
    return AX_OK;
}

/* A conversation that any template can render, before anything is loaded. Without a template there are
 * completions. */
static enum ax_status try_template(const struct ax_serve_model *m) {
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

static enum ax_status body(struct ax_generator *g, void *ctx) {
    struct command *c = ctx;
    const struct ax_serve_model *m = &c->serve.engine.models.list[0];
    const struct ax_sampling *s = &m->sampling;
    const bool v6 = strchr(c->host, ':') != NULL;
    ax_stop_watch();
    ax_serve_engine_open(&c->serve.engine, g);
    ax_log_info(
        "serving model=%s url=http://%s%s%s:%d/v1 context=%lld parallel=%d cache_tokens=%lld "
        "temperature=%g top_k=%lld top_p=%g min_p=%g repetition_penalty=%g key=%s",
        m->name, v6 ? "[" : "", c->host, v6 ? "]" : "", ax_http_port(c->serve.http),
        (long long)m->context, g->o.n_seqs, (long long)ax_generate_room(&g->o), s->temperature,
        (long long)s->top_k, s->top_p > 0 ? s->top_p : 1, s->min_p, s->repetition_penalty,
        c->key[0] ? "yes" : "no");
    const enum ax_status st = ax_serve_engine_run(&c->serve.engine);
    ax_stop_unwatch();
    return st;
}

static enum ax_status serve(struct command *c) {
    struct ax_serve_engine *e = &c->serve.engine;
    const struct ax_http_options ho = {.host = c->host,
                                       .port = (int)c->port,
                                       .key = c->key,
                                       .request_seconds = REQUEST_SECONDS,
                                       .routes = ax_serve_routes,
                                       .n_routes = ax_serve_n_routes,
                                       .ctx = &c->serve,
                                       .error = ax_serve_error};
    struct ax_generate_options o = {.n_seqs = (int)c->lanes,
                                    .max_prompt = 1,
                                    .max_new = e->models.list[0].context - 1,
                                    .long_prompts = true,
                                    .kv_tokens = c->cache_tokens > 0
                                                     ? c->cache_tokens
                                                     : c->lanes * e->models.list[0].context / 4};
    ax_serve_engine_options(e, &o);
    AX_TRY(ax_http_listen(&c->serve.http, &ho));
    enum ax_status st = ax_http_start(c->serve.http);
    if (st == AX_OK)
        st = ax_text_model_run(&c->model, &o, true, body, c);
    struct ax_error_record record;
    ax_error_save(&record, st);
    ax_serve_engine_end(e);
    ax_http_stop(c->serve.http);
    return ax_error_restore(&record);
}

static enum ax_status run(struct command *c) {
    struct ax_serve_engine *e = &c->serve.engine;
    if (c->ranks.world.env.world > 1)
        return ax_error(AX_ERR_UNSUPPORTED, "serve supports only one rank so far");
    AX_TRY(read_key(c));
    AX_TRY(ax_text_args_open(&c->model, &c->a, &c->ranks));
    AX_TRY(describe(c));
    for (int i = 0; i < e->models.n; i++)
        AX_TRY(try_template(&e->models.list[i]));
    if (c->model.adapters.n > 0)
        AX_TRY(ax_text_model_check(&c->model));
    e->most = c->lanes + c->queue;
    e->most_bytes = ANSWER_BYTES;
    e->stop_seconds = STOP_SECONDS;
    c->serve.created = (int64_t)time(NULL);
    AX_TRY(ax_serve_engine_init(e));
    const enum ax_status st = serve(c);
    ax_serve_engine_free(e);
    return st;
}

enum ax_status ax_cmd_serve(int argc, char **argv) {
    struct command c = {.host = "127.0.0.1",
                        .port = 8000,
                        .lanes = 16,
                        .queue = 256,
                        .serve.large = PTHREAD_MUTEX_INITIALIZER};
    struct ax_arg all[AX_TEXT_ARGS_COUNT];
    ax_text_args_table(&c.a, all);
    const struct ax_arg args[] = {
        {"--model", AX_ARG_STRING, &c.a.o.model, 0, 0},
        {"--adapter", AX_ARG_LIST, &c.a.o.adapters, 0, 0},
        {"--name", AX_ARG_STRING, &c.name, 0, 0},
        {"--host", AX_ARG_STRING, &c.host, 0, 0},
        {"--port", AX_ARG_INT, &c.port, 0, 65535},
        {"--api-key-file", AX_ARG_STRING, &c.key_file, 0, 0},
        {"--context", AX_ARG_INT, &c.context, 16, 1 << 24},
        {"--parallel", AX_ARG_INT, &c.lanes, 1, 4096},
        {"--queue", AX_ARG_INT, &c.queue, 0, 1 << 20},
        {"--cache-tokens", AX_ARG_INT, &c.cache_tokens, 1, INT64_MAX},
        {"--base", AX_ARG_STRING, &c.a.o.base, 0, 0},
        {"--dtype", AX_ARG_STRING, &c.a.dtype, 0, 0},
        {"--threads", AX_ARG_INT, &c.a.threads, 1, 1024},
        {"--device", AX_ARG_STRING, &c.a.device, 0, 0},
    };
    const enum ax_status parsed =
        ax_args_parse_model(argc, argv, sizeof args / sizeof *args, args, &c.a.o.model);
    const struct ax_ranks_options o = {
        .command = "serve", .device = c.a.device, .one_answer = true, .argc = argc, .argv = argv};
    AX_TRY(ax_ranks_open(&c.ranks, &o, parsed));
    enum ax_status st = ax_serve_models_init(&c.serve.engine.models);
    if (st == AX_OK)
        st = run(&c);
    ax_ranks_close(&c.ranks, st);
    ax_serve_models_close(&c.serve.engine.models);
    ax_text_model_close(&c.model);
    ax_free(c.key);
    return st;
}
