/* `axtrain serve`: options, and the order in which a server starts: what may be wrong first, then the
 * port, then the weights. */
#include "cmd/serve/serve.h"

#include "base/stop.h"
#include "cmd/commands.h"
#include "cmd/args/text_args.h"

#define STOP_SECONDS      30
#define MOST_STOP_SECONDS 86400

struct command {
    struct ax_text_args a;
    struct ax_ranks ranks;
    const char *name;
    int64_t context, lanes, queue, cache_tokens, stop_seconds;
    bool control;
    struct ax_text_model model;
    struct ax_serve_options o;
    struct ax_serve serve;
};

static enum ax_status add_model(struct command *c, const char *name, const char *given,
                                int adapter) {
    struct ax_serve_models *all = &c->serve.engine.models;
    const struct ax_text_model *t = &c->model;
    const int64_t wanted = c->context > 0 ? c->context : AX_SERVE_CONTEXT;
    const struct ax_serve_model m = {
        .name = name,
        .given = given,
        .parent = all->n > 0 && all->list[0].adapter == AX_ADAPTER_NONE ? all->list[0].name : NULL,
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
    const int first = t->named || t->adapters.grown ? 0 : AX_ADAPTER_NONE;
    if (c->context > t->arch.max_positions)
        return ax_error(AX_ERR_CONFIG, "--context %lld: the model has only %lld positions",
                        (long long)c->context, (long long)t->arch.max_positions);
    if (t->arch.max_positions < 2)
        return ax_error(AX_ERR_CONFIG,
                        "%s: max_position_embeddings of its config.json is 1, which leaves no "
                        "position for an answer",
                        c->a.o.model);
    if (t->sampling.temperature == 0)
        t->sampling.temperature = 1;
    AX_TRY(ax_serve_set_name(&c->serve, c->name, c->a.o.model));
    AX_TRY(add_model(c, c->serve.name, c->a.o.model, first));
    for (int i = first + 1; i < t->adapters.n - t->adapters.n_slots; i++)
        AX_TRY(add_model(c, t->adapters.names[i], NULL, i));
    return AX_OK;
}

static enum ax_status body(struct ax_generator *g, void *ctx) {
    struct command *c = ctx;
    ax_stop_watch();
    ax_serve_engine_open(&c->serve.engine, g);
    if (ax_ranks_lead(&c->ranks))
        ax_serve_announce(&c->serve, c->o.host, &g->o);
    const enum ax_status st = ax_serve_engine_run(&c->serve.engine);
    ax_stop_unwatch();
    return st;
}

/* Other ranks hear from the first what is asked. */
static enum ax_status listen_to_all(struct command *c) {
    if (!ax_ranks_lead(&c->ranks))
        return AX_OK;
    AX_TRY(ax_serve_listen(&c->serve, &c->o));
    return ax_serve_start(&c->serve);
}

/* What a client changes between two passes is changed on the rank that it has asked. */
static enum ax_status check_alone(const struct command *c) {
    const char *given = c->control                 ? "--allow-control"
                        : c->a.o.adapter_slots > 0 ? "--adapter-slots"
                                                   : NULL;
    return given && c->ranks.world.env.world > 1
               ? ax_error(AX_ERR_CONFIG, "serve: %s is for a server on one rank", given)
               : AX_OK;
}

/* Data ranks tell each other the results of each pass, and not which drafts were accepted. */
static enum ax_status check_drafts(const struct command *c) {
    const struct ax_mesh_sizes *m = &c->ranks.sizes;
    return c->a.o.drafts && m->dp_replicate * m->dp_shard > 1
               ? ax_error(AX_ERR_CONFIG, "serve: --drafts is for a server on one rank, or on ranks "
                                         "of tp alone; remove it, or change --mesh")
               : AX_OK;
}

/* Clients that wait while the server is paused must leave a connection for /resume. */
static enum ax_status check_room(const struct command *c) {
    const int64_t most = AX_HTTP_CONNECTIONS - 16;
    return c->control && c->lanes + c->queue > most
               ? ax_error(AX_ERR_CONFIG,
                          "serve: with --allow-control, --parallel and --queue can be %lld "
                          "together: clients that wait for /resume hold their connections",
                          (long long)most)
               : AX_OK;
}

static enum ax_status run(struct command *c) {
    const struct ax_mesh_sizes *mesh = &c->ranks.sizes;
    AX_TRY(check_alone(c));
    AX_TRY(check_drafts(c));
    AX_TRY(check_room(c));
    c->o.most = c->lanes * mesh->dp_replicate * mesh->dp_shard + c->queue;
    c->serve.engine.shared = c->ranks.world.env.world > 1;
    c->serve.engine.follows = !ax_ranks_lead(&c->ranks);
    c->serve.engine.team = &c->ranks.team;
    AX_TRY(ax_text_args_open(&c->model, &c->a, &c->ranks));
    AX_TRY(describe(c));
    c->serve.control = c->control;
    c->serve.text = c->model.adapters.n_slots > 0 ? &c->model : NULL;
    AX_TRY(ax_serve_check_templates(&c->serve));
    if (c->model.adapters.n > 0)
        AX_TRY(ax_text_model_check(&c->model));
    AX_TRY(listen_to_all(c));
    const struct ax_generate_options o = ax_serve_generator(
        &c->serve, c->lanes, c->serve.engine.models.list[0].context, c->cache_tokens);
    return ax_text_model_run(&c->model, &o, true, body, c);
}

enum ax_status ax_cmd_serve(int argc, char **argv) {
    struct command c = {.o = AX_SERVE_OPTIONS,
                        .lanes = AX_SERVE_LANES,
                        .queue = AX_SERVE_QUEUE,
                        .stop_seconds = STOP_SECONDS};
    struct ax_arg all[AX_TEXT_ARGS_COUNT];
    ax_text_args_table(&c.a, all);
    const struct ax_arg args[] = {
        {"--model", AX_ARG_STRING, &c.a.o.model, 0, 0},
        {"--adapter", AX_ARG_LIST, &c.a.o.adapters, 0, 0},
        {"--adapter-slots", AX_ARG_INT, &c.a.o.adapter_slots, 0, AX_ARG_LIST_MAX},
        {"--allow-control", AX_ARG_FLAG, &c.control, 0, 0},
        {"--name", AX_ARG_STRING, &c.name, 0, 0},
        {"--host", AX_ARG_STRING, &c.o.host, 0, 0},
        {"--port", AX_ARG_INT, &c.o.port, 0, 65535},
        {"--api-key-file", AX_ARG_STRING, &c.o.key_file, 0, 0},
        {"--context", AX_ARG_INT, &c.context, 16, 1 << 24},
        {"--parallel", AX_ARG_INT, &c.lanes, 1, 4096},
        {"--queue", AX_ARG_INT, &c.queue, 0, 1 << 20},
        {"--cache-tokens", AX_ARG_INT, &c.cache_tokens, 1, INT64_MAX},
        {"--drafts", AX_ARG_FLAG, &c.a.o.drafts, 0, 0},
        {"--stop-seconds", AX_ARG_INT, &c.stop_seconds, 0, MOST_STOP_SECONDS},
        {"--base", AX_ARG_STRING, &c.a.o.base, 0, 0},
        {"--dtype", AX_ARG_STRING, &c.a.dtype, 0, 0},
        {"--threads", AX_ARG_INT, &c.a.threads, 1, 1024},
        {"--mesh", AX_ARG_STRING, &c.a.mesh, 0, 0},
        {"--device", AX_ARG_STRING, &c.a.device, 0, 0},
    };
    const enum ax_status parsed =
        ax_args_parse_model(argc, argv, sizeof args / sizeof *args, args, &c.a.o.model);
    const struct ax_ranks_options o = {.command = "serve",
                                       .mesh = c.a.mesh,
                                       .device = c.a.device,
                                       .meets = true,
                                       .argc = argc,
                                       .argv = argv};
    AX_TRY(ax_ranks_open(&c.ranks, &o, parsed));
    c.o.stop_seconds = (double)c.stop_seconds;
    enum ax_status st = ax_serve_init(&c.serve);
    if (st == AX_OK)
        st = run(&c);
    struct ax_error_record record;
    ax_error_save(&record, st);
    ax_serve_close(&c.serve);
    st = ax_error_restore(&record);
    ax_ranks_close(&c.ranks, st);
    ax_text_model_close(&c.model);
    return st;
}
