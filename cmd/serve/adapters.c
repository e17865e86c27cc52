#include "cmd/serve/adapters.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/text/json.h"
#include "cmd/serve/serve.h"

#define NAME_BYTES 256

/* What a request says. */
struct wish {
    struct ax_json_doc doc;
    const char *name, *path;
    bool replaces;
};

static enum ax_status refuse(struct ax_exchange *x, int status, const char *param,
                             const char *why) {
    x->status = status;
    snprintf(x->param, sizeof x->param, "%s", param);
    return ax_error(AX_ERR_DATA, "%s: %s", param, why);
}

static enum ax_status take_text(struct ax_exchange *x, const json_t *v, const char *key,
                                size_t most, const char **out) {
    const size_t n = json_string_length(v);
    *out = json_string_value(v);
    return *out && n > 0 && n <= most && strlen(*out) == n
               ? AX_OK
               : refuse(x, 400, key, "expected a text, not empty");
}

static enum ax_status read_wish(struct ax_exchange *x, bool loads, struct wish *w) {
    static const char *const keys[] = {"lora_name", "lora_path", "load_inplace"};
    const char *key;
    json_t *v;
    AX_TRY(ax_json_parse(&w->doc, "body", x->body.len > 0 ? x->body.data : "", x->body.len));
    json_object_foreach(w->doc.root, key, v) {
        size_t i = 0;
        while (i < sizeof keys / sizeof *keys && strcmp(key, keys[i]) != 0)
            i++;
        if (i == sizeof keys / sizeof *keys)
            return refuse(x, 400, "body", "only lora_name, lora_path and load_inplace are read");
    }
    AX_TRY(take_text(x, json_object_get(w->doc.root, keys[0]), keys[0], NAME_BYTES, &w->name));
    const json_t *replaces = json_object_get(w->doc.root, keys[2]);
    if (replaces && !json_is_boolean(replaces) && !json_is_null(replaces))
        return refuse(x, 400, keys[2], "expected true or false");
    w->replaces = json_is_true(replaces);
    return loads ? take_text(x, json_object_get(w->doc.root, keys[1]), keys[1], SIZE_MAX, &w->path)
                 : AX_OK;
}

static enum ax_status check_allowed(const struct ax_serve *s, struct ax_exchange *x) {
    if (s->text)
        return AX_OK;
    x->status = 404;
    return ax_error(AX_ERR_UNSUPPORTED,
                    "%s: this server has no places for adapters; start it with --adapter-slots N",
                    x->route->path);
}

/* ---- loading ---- */

/* A name that is served belongs to the first model, or may be taken. */
static enum ax_status check_name(struct ax_serve_models *all, struct ax_exchange *x,
                                 const struct wish *w) {
    const struct ax_serve_model *m;
    if (ax_serve_models_take(all, w->name, &m) != AX_OK) {
        ax_error_clear();
        return AX_OK;
    }
    const bool first = m == all->list;
    ax_serve_models_release(all, m);
    if (first)
        return refuse(x, 400, "lora_name", "it is the name of the server's own model");
    return w->replaces ? AX_OK
                       : refuse(x, 400, "lora_name",
                                "an adapter of this name is served; \"load_inplace\": true "
                                "replaces it for new requests");
}

/* A place that is free and fits. */
static enum ax_status find_place(struct ax_serve *s, struct ax_exchange *x,
                                 const struct ax_peft *peft, int *place) {
    const struct ax_adapters *a = &s->text->adapters;
    bool any = false;
    for (*place = 0; *place < a->n; ++*place) {
        const bool fits = ax_adapters_match(a, *place, peft) == AX_OK;
        any = any || fits;
        if (fits && ax_serve_models_is_free(&s->engine.models, *place)) {
            ax_error_clear();
            return AX_OK;
        }
    }
    x->status = any ? 409 : 400;
    if (any)
        return ax_error(AX_ERR_FAILED,
                        "all places for adapters of this shape are in use: unload one, or start "
                        "the server with more --adapter-slots");
    return ax_adapters_match(a, a->n - 1, peft);
}

/* The text side of the folder, unless it has none or the base's. */
static enum ax_status open_text(struct ax_serve *s, const struct wish *w,
                                struct ax_serve_loaded **out) {
    const struct ax_text_side *base = ax_text_model_side(s->text, AX_ADAPTER_NONE);
    struct ax_serve_models *all = &s->engine.models;
    bool same = true, known = false;
    if (ax_text_side_is_in(w->path))
        AX_TRY(ax_text_side_same(w->path, s->text->folder, &same));
    pthread_mutex_lock(&all->lock);
    for (int i = 0; i < all->n; i++)
        known = known || (!all->loaded[i] && all->list[i].side == base);
    pthread_mutex_unlock(&all->lock);
    return ax_serve_loaded_open(out, w->name,
                                !same   ? w->path
                                : known ? NULL
                                        : s->text->folder,
                                s->text->folder);
}

struct filling {
    struct ax_serve *s;
    struct ax_peft peft;
    int place;
};

/* Between two passes: what lanes keep of the adapter before is of no use. */
static enum ax_status fill(void *ctx, struct ax_generator *g) {
    struct filling *f = ctx;
    ax_generator_forget_idle(g, &f->place);
    return ax_adapters_replace(&f->s->text->adapters, g->model, f->place, &f->peft);
}

static enum ax_status load(struct ax_serve *s, struct ax_exchange *x, const struct wish *w) {
    struct filling f = {.s = s};
    struct ax_serve_loaded *loaded = NULL;
    enum ax_status st;
    AX_TRY(check_name(&s->engine.models, x, w));
    x->status = 400; /* what is wrong below is the folder */
    AX_TRY(ax_adapter_open(&f.peft, w->path, s->text->folder));
    AX_TRY_GOTO(find_place(s, x, &f.peft, &f.place), st, done);
    AX_TRY_GOTO(open_text(s, w, &loaded), st, done);
    struct ax_serve_call call = {.run = fill, .ctx = &f};
    AX_TRY_GOTO(ax_serve_engine_call(&s->engine, &call), st, done);
    ax_serve_models_serve(&s->engine.models, f.place, ax_text_model_side(s->text, AX_ADAPTER_NONE),
                          loaded);
    loaded = NULL;
    x->status = 0;
done:
    if (st == AX_ERR_FAILED && x->status == 400)
        x->status = 503;
    if (st == AX_ERR_NOMEM)
        x->status = 500;
    ax_serve_loaded_close(loaded);
    ax_peft_close(&f.peft);
    return st;
}

/* Adapters come one after the other. */
static enum ax_status update(struct ax_serve *s, struct ax_exchange *x, bool loads) {
    struct wish w = {0};
    enum ax_status st = read_wish(x, loads, &w);
    if (st == AX_OK) {
        ax_http_wait(x);
        pthread_mutex_lock(&s->updates);
        if (loads)
            st = load(s, x, &w);
        else if ((st = ax_serve_models_drop(&s->engine.models, w.name)) == AX_ERR_DATA)
            x->status = 404;
        pthread_mutex_unlock(&s->updates);
    }
    if (st == AX_OK) {
        ax_log_info("adapter %s: %s", w.name, loads ? w.path : "unloaded");
        st = ax_reply_json(
            x, 200,
            json_pack("{ss ss}", "status", loads ? "loaded" : "unloaded", "lora_name", w.name));
    }
    ax_json_free(&w.doc);
    return st;
}

enum ax_status ax_serve_load_adapter(void *ctx, struct ax_exchange *x) {
    AX_TRY(check_allowed(ctx, x));
    return update(ctx, x, true);
}

enum ax_status ax_serve_unload_adapter(void *ctx, struct ax_exchange *x) {
    AX_TRY(check_allowed(ctx, x));
    return update(ctx, x, false);
}
