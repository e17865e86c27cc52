#include "cmd/serve/models.h"

#include <string.h>

#include "model/core/adapters.h"

enum ax_status ax_serve_models_init(struct ax_serve_models *all) {
    *all = (struct ax_serve_models){0};
    return (pthread_mutex_init(&all->template_lock, NULL) | pthread_mutex_init(&all->lock, NULL)) ==
                   0
               ? AX_OK
               : ax_error(AX_ERR_NOMEM, "out of memory for a lock");
}

void ax_serve_models_close(struct ax_serve_models *all) {
    for (int i = 0; i < all->n; i++) {
        if (all->list[i].grammars == &all->grammars[i])
            ax_serve_grammars_close(&all->grammars[i]);
        ax_serve_loaded_close(all->loaded[i]);
    }
    pthread_mutex_destroy(&all->template_lock);
    pthread_mutex_destroy(&all->lock);
}

enum ax_status ax_serve_loaded_open(struct ax_serve_loaded **out, const char *name, const char *dir,
                                    const char *base) {
    struct ax_serve_loaded *l;
    enum ax_status st;
    *out = NULL;
    AX_TRY(ax_alloc(&l, 1, sizeof *l));
    AX_TRY_GOTO(ax_strdup(&l->name, name), st, fail);
    if (dir) {
        AX_TRY_GOTO(ax_text_side_open(&l->side, dir, base), st, fail);
        AX_TRY_GOTO(ax_serve_tools_open(&l->tools, &l->side), st, fail);
        AX_TRY_GOTO(ax_serve_grammars_open(&l->grammars), st, fail);
    }
    *out = l;
    return AX_OK;
fail:
    ax_text_side_close(&l->side);
    ax_free(l->name);
    ax_free(l);
    return st;
}

void ax_serve_loaded_close(struct ax_serve_loaded *l) {
    if (!l)
        return;
    if (l->side.folder)
        ax_serve_grammars_close(&l->grammars);
    ax_text_side_close(&l->side);
    ax_free(l->name);
    ax_free(l);
}

static bool is_called(const struct ax_serve_model *m, const char *name) {
    return strcmp(name, m->name) == 0 || (m->given && strcmp(name, m->given) == 0);
}

/* The model that is served under this name; −1: none is. NULL: the first. */
static int find(const struct ax_serve_models *all, const char *name) {
    for (int i = 0; i < all->n; i++)
        if (all->served[i] && (!name || is_called(&all->list[i], name)))
            return i;
    return -1;
}

enum ax_status ax_serve_models_add(struct ax_serve_models *all, const struct ax_serve_model *m) {
    const int n = all->n;
    struct ax_serve_model *own = &all->list[n];
    int same = 0;
    AX_ASSERT(n < AX_SERVE_MODELS);
    if (find(all, m->name) >= 0)
        return ax_error(AX_ERR_CONFIG,
                        "two models are named \"%s\"; name them otherwise: --name NAME, "
                        "--adapter NAME=DIR",
                        m->name);
    while (same < n && all->list[same].side != m->side)
        same++;
    *own = *m;
    own->tools = same < n ? all->list[same].tools : &all->tools[n];
    own->grammars = same < n ? all->list[same].grammars : &all->grammars[n];
    own->template_lock = &all->template_lock;
    if (same == n) {
        AX_TRY(ax_serve_tools_open(&all->tools[n], m->side));
        AX_TRY(ax_serve_grammars_open(&all->grammars[n]));
    }
    all->served[n] = true;
    all->n++;
    return AX_OK;
}

static enum ax_status list_names(const struct ax_serve_models *all, struct ax_buf *out) {
    for (int i = 0; i < all->n; i++)
        if (all->served[i])
            AX_TRY(ax_buf_printf(out, "%s%s", out->len > 0 ? ", " : "", all->list[i].name));
    return AX_OK;
}

static enum ax_status no_such_model(const struct ax_serve_models *all, const char *name) {
    struct ax_buf names = {0};
    enum ax_status st = list_names(all, &names);
    if (st == AX_OK)
        st = ax_error(AX_ERR_DATA, "there is no model \"%.100s\"; available: %.600s", name,
                      names.data);
    ax_buf_free(&names);
    return st;
}

enum ax_status ax_serve_models_take(struct ax_serve_models *all, const char *name,
                                    const struct ax_serve_model **out) {
    enum ax_status st = AX_OK;
    pthread_mutex_lock(&all->lock);
    const int i = find(all, name);
    if (i < 0) {
        st = no_such_model(all, name);
    } else {
        all->users[i]++;
        *out = &all->list[i];
    }
    pthread_mutex_unlock(&all->lock);
    return st;
}

/* With the lock: what nobody can find or holds any more. */
static void forget_unused(struct ax_serve_models *all, int i) {
    if (all->served[i] || all->users[i] > 0)
        return;
    ax_serve_loaded_close(all->loaded[i]);
    all->loaded[i] = NULL;
}

void ax_serve_models_release(struct ax_serve_models *all, const struct ax_serve_model *m) {
    if (!m)
        return;
    const int i = (int)(m - all->list);
    pthread_mutex_lock(&all->lock);
    all->users[i]--;
    forget_unused(all, i);
    pthread_mutex_unlock(&all->lock);
}

/* ---- adapters that come and go ---- */

/* With the lock: the place of an adapter in the list; n: it has none yet. */
static int place_of(const struct ax_serve_models *all, int adapter) {
    int i = 0;
    while (i < all->n && all->list[i].adapter != adapter)
        i++;
    return i;
}

bool ax_serve_models_is_free(struct ax_serve_models *all, int adapter) {
    pthread_mutex_lock(&all->lock);
    const int i = place_of(all, adapter);
    const bool is_free = i == all->n || (!all->served[i] && all->users[i] == 0);
    pthread_mutex_unlock(&all->lock);
    return is_free;
}

void ax_serve_models_serve(struct ax_serve_models *all, int adapter,
                           const struct ax_text_side *side, struct ax_serve_loaded *l) {
    pthread_mutex_lock(&all->lock);
    const int i = place_of(all, adapter), old = find(all, l->name);
    int same = 0;
    AX_ASSERT(i < AX_SERVE_MODELS);
    if (old >= 0) {
        all->served[old] = false;
        forget_unused(all, old);
    }
    while (same < all->n && (all->loaded[same] || all->list[same].side != side))
        same++;
    AX_ASSERT(same < all->n || l->side.folder);
    struct ax_serve_model m = all->list[0]; /* in all else they are alike */
    m.parent = m.adapter == AX_ADAPTER_NONE ? m.name : NULL;
    m.name = l->name;
    m.given = NULL;
    m.adapter = adapter;
    m.side = l->side.folder ? &l->side : side;
    m.tools = l->side.folder ? &l->tools : all->list[same].tools;
    m.grammars = l->side.folder ? &l->grammars : all->list[same].grammars;
    all->list[i] = m;
    all->loaded[i] = l;
    all->served[i] = true;
    all->n += i == all->n;
    pthread_mutex_unlock(&all->lock);
}

enum ax_status ax_serve_models_drop(struct ax_serve_models *all, const char *name) {
    enum ax_status st = AX_OK;
    pthread_mutex_lock(&all->lock);
    const int i = find(all, name);
    if (i < 0)
        st = no_such_model(all, name);
    else if (i == 0)
        st = ax_error(AX_ERR_CONFIG, "%s is served as long as the server runs", name);
    else
        all->served[i] = false;
    if (st == AX_OK)
        forget_unused(all, i);
    pthread_mutex_unlock(&all->lock);
    return st;
}
