#include "ckpt/hf/renamed.h"

#include <string.h>

#include "base/mem.h"
#include "ckpt/hf/experts.h"

/* Ends of names below a layer. A renamed tensor's layer lacks the published name. */
static const struct name {
    const char *saved, *published;
} all[] = {
    /* Kimi Linear's layers without experts */
    {".block_sparse_moe.gate_proj.weight", ".mlp.gate_proj.weight"},
    {".block_sparse_moe.up_proj.weight", ".mlp.up_proj.weight"},
    {".block_sparse_moe.down_proj.weight", ".mlp.down_proj.weight"},
};

/* The row of a name that is not always a published one, or NULL. */
static const struct name *row_of(const char *name) {
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(ax_hf_below_layer(name), all[i].saved) == 0)
            return &all[i];
    return NULL;
}

/* *yes: the layer that `name` is in has a tensor. */
static enum ax_status has(const struct ax_hf_renamed *x, const char *name, const char *end,
                          bool *yes) {
    char *other;
    AX_TRY(ax_sprintf(&other, "%.*s%s", (int)(ax_hf_below_layer(name) - name), name, end));
    *yes = ax_st_find(x->entries, x->n, other) != NULL;
    ax_free(other);
    return AX_OK;
}

static bool is_head(const char *name, const char *head) {
    return head && strcmp(name, head) == 0;
}

/* *out = its published name, to be freed, if that is another; else NULL. */
static enum ax_status published(const struct ax_hf_renamed *x, const char *name, const char *head,
                                char **out) {
    const struct name *row = row_of(name);
    bool here = true;
    *out = NULL;
    if (is_head(name, head))
        return ax_strdup(out, AX_HF_EMBEDDING);
    if (row)
        AX_TRY(has(x, name, row->published, &here));
    return here ? AX_OK
                : ax_sprintf(out, "%.*s%s", (int)(ax_hf_below_layer(name) - name), name,
                             row->published);
}

enum ax_status ax_hf_renamed_open(struct ax_hf_renamed *x, int n,
                                  const struct ax_st_entry *const *given, const char *head) {
    bool any = head != NULL;
    *x = (struct ax_hf_renamed){0};
    for (int i = 0; i < n && !any; i++)
        any = row_of(given[i]->name) != NULL;
    if (!any)
        return AX_OK;
    AX_TRY(ax_alloc(&x->names, (size_t)n, sizeof *x->names));
    AX_TRY(ax_alloc(&x->entries, (size_t)n, sizeof *x->entries));
    x->n = n;
    for (int i = 0; i < n; i++)
        x->entries[i] = *given[i];
    ax_st_sort(x->entries, n);
    for (int i = 0; i < n; i++)
        AX_TRY(published(x, x->entries[i].name, head, &x->names[i]));
    for (int i = 0; i < n; i++)
        if (x->names[i])
            x->entries[i].name = x->names[i];
    ax_st_sort(x->entries, n);
    return AX_OK;
}

void ax_hf_renamed_close(struct ax_hf_renamed *x) {
    for (int i = 0; i < x->n; i++)
        ax_free(x->names[i]);
    ax_free(x->names);
    ax_free(x->entries);
    *x = (struct ax_hf_renamed){0};
}
