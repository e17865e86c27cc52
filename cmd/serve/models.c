#include "cmd/serve/models.h"

#include <string.h>

enum ax_status ax_serve_models_init(struct ax_serve_models *all) {
    *all = (struct ax_serve_models){0};
    return pthread_mutex_init(&all->template_lock, NULL) == 0
               ? AX_OK
               : ax_error(AX_ERR_NOMEM, "out of memory for a lock");
}

void ax_serve_models_close(struct ax_serve_models *all) {
    for (int i = 0; i < all->n; i++)
        if (all->list[i].grammars == &all->grammars[i])
            ax_serve_grammars_close(&all->grammars[i]);
    pthread_mutex_destroy(&all->template_lock);
}

static bool is_called(const struct ax_serve_model *m, const char *name) {
    return strcmp(name, m->name) == 0 || (m->given && strcmp(name, m->given) == 0);
}

enum ax_status ax_serve_models_add(struct ax_serve_models *all, const struct ax_serve_model *m) {
    const int n = all->n;
    struct ax_serve_model *own = &all->list[n];
    int same = 0;
    AX_ASSERT(n < AX_SERVE_MODELS);
    for (int i = 0; i < n; i++)
        if (is_called(&all->list[i], m->name))
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
        if (pthread_mutex_init(&all->grammars[n].lock, NULL) != 0)
            return ax_error(AX_ERR_NOMEM, "out of memory for a lock");
    }
    all->n++;
    return AX_OK;
}

static enum ax_status list_names(const struct ax_serve_models *all, struct ax_buf *out) {
    for (int i = 0; i < all->n; i++)
        AX_TRY(ax_buf_printf(out, "%s%s", i > 0 ? ", " : "", all->list[i].name));
    return AX_OK;
}

enum ax_status ax_serve_models_find(const struct ax_serve_models *all, const char *name,
                                    const struct ax_serve_model **out) {
    struct ax_buf names = {0};
    for (int i = 0; i < all->n; i++)
        if (is_called(&all->list[i], name)) {
            *out = &all->list[i];
            return AX_OK;
        }
    enum ax_status st = list_names(all, &names);
    if (st == AX_OK)
        st = ax_error(AX_ERR_DATA, "there is no model \"%.100s\"; available: %.600s", name,
                      names.data);
    ax_buf_free(&names);
    return st;
}
