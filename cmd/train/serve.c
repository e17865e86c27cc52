#include "cmd/train/serve.h"

#include "cmd/train/mesh.h"
#include "model/core/adapters.h"

/* Short, as a job that is asked to stop has little time to save. */
#define STOP_SECONDS 5

/* Names the key's place in errors about its values. */
static enum ax_status about_key(const struct ax_config *cfg, enum ax_status st) {
    char where[256];
    if (st == AX_OK)
        return AX_OK;
    return ax_error_prefix(st, "serve (%s)", ax_config_where(cfg, where, sizeof where, "serve"));
}

static enum ax_status open_serve(struct ax_setup_serve *s, bool leads) {
    AX_TRY(ax_serve_init(&s->serve));
    s->open = true;
    s->listens = leads;
    return leads ? ax_serve_listen(&s->serve, &s->keys.o) : AX_OK;
}

enum ax_status ax_setup_serve_open(struct ax_setup_serve *s, const struct ax_config *cfg,
                                   bool planning, bool leads) {
    *s = (struct ax_setup_serve){.on = ax_config_holds(cfg, "serve")};
    if (!s->on)
        return AX_OK;
    AX_FILL(cfg, "", struct ax_serve_keys, &s->keys);
    if (s->keys.o.port > 65535)
        return ax_config_error(cfg, "serve.port", "expected 0 to 65535");
    s->keys.o.stop_seconds = STOP_SECONDS;
    return planning ? AX_OK : about_key(cfg, open_serve(s, leads));
}

/* Without a template, chats are refused. */
static enum ax_status open_side(struct ax_setup_serve *s, const struct ax_config *cfg,
                                struct ax_setup_data *d, const char *base) {
    struct ax_text_side *side = &s->side;
    AX_TRY(ax_strdup(&side->folder, base));
    side->tokenizer = d->tok.tokenizer;
    side->tokens = d->tok.tokens;
    if (ax_setup_template(&side->template, &side->tool_use, cfg, &d->tok, "") != AX_OK)
        ax_error_clear();
    return ax_setup_stops(&side->stop, base, d);
}

static enum ax_status add_model(struct ax_setup_serve *s, const struct ax_config *cfg,
                                const struct ax_train_options *o, int64_t context) {
    const char *base = ax_config_str(cfg, "base_model");
    AX_TRY(ax_serve_set_name(&s->serve, s->keys.name, base));
    const struct ax_serve_model m = {.name = s->serve.name,
                                     .given = base,
                                     .adapter = AX_ADAPTER_NONE,
                                     .side = &s->side,
                                     .context = context,
                                     .vocab_size = o->arch->vocab_size,
                                     .sampling = {.temperature = 1, .repetition_penalty = 1},
                                     .stop = &s->stop};
    AX_TRY(ax_serve_models_add(&s->serve.engine.models, &m));
    return ax_serve_check_templates(&s->serve);
}

static bool is_pending(void *ctx, bool last) {
    struct ax_setup_serve *s = ctx;
    const bool any = ax_serve_engine_pending(&s->serve.engine, last);
    if (s->listens && !s->announced)
        ax_serve_announce(&s->serve, s->keys.o.host, &s->generator);
    s->announced = true;
    return any;
}

static enum ax_status answer(void *ctx, struct ax_generator *g, struct ax_team *team,
                             int64_t step) {
    struct ax_setup_serve *s = ctx;
    return ax_serve_engine_answer(&s->serve.engine, g, team, step);
}

enum ax_status ax_setup_serve_read(struct ax_setup_serve *s, const struct ax_config *cfg,
                                   struct ax_setup_data *d, const char *base,
                                   struct ax_train_options *o) {
    const struct ax_mesh_sizes *mesh = &o->runtime.sizes;
    const int64_t most = o->arch->max_positions;
    int64_t context = s->keys.context > 0 ? s->keys.context : AX_SERVE_CONTEXT;
    if (!s->on)
        return AX_OK;
    if (s->keys.context > most)
        return ax_config_error(cfg, "serve.context", "the model has only %lld positions",
                               (long long)most);
    context = context < most ? context : most;
    if (base) {
        AX_TRY(open_side(s, cfg, d, base));
        AX_TRY(about_key(cfg, add_model(s, cfg, o, context)));
    }
    s->serve.engine.most =
        s->keys.lanes * mesh->dp_replicate * mesh->dp_shard * mesh->cp + s->keys.queue;
    s->serve.engine.in_rounds = true;
    s->serve.engine.shared = ax_train_mesh_ranks(mesh) > 1;
    s->serve.engine.follows = !s->listens;
    s->generator = ax_serve_generator(&s->serve, s->keys.lanes, context, s->keys.cache_tokens);
    o->requests = (struct ax_train_requests){
        .o = s->generator, .pending = is_pending, .answer = answer, .ctx = s};
    return AX_OK;
}

enum ax_status ax_setup_serve_start(struct ax_setup_serve *s) {
    return s->listens ? ax_serve_start(&s->serve) : AX_OK;
}

void ax_setup_serve_close(struct ax_setup_serve *s) {
    if (s->open)
        ax_serve_close(&s->serve);
    ax_template_free(s->side.template);
    ax_template_free(s->side.tool_use);
    ax_free(s->side.folder);
    *s = (struct ax_setup_serve){0};
}
