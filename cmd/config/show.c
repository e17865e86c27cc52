/* `axtrain config show`: the resolved configuration with each value's origin. */
#include <stdio.h>
#include <string.h>

#include "cmd/config/build.h"

#define ORIGIN_COLUMN 48

struct show {
    const struct ax_config *cfg;
    struct ax_buf *out;
    size_t line; /* where the current line begins in out */
};

static enum ax_status end_line(struct show *s, const char *origin) {
    size_t width = s->out->len - s->line;
    size_t pad = width + 2 < ORIGIN_COLUMN ? ORIGIN_COLUMN - width : 2;
    const char *file = s->cfg->doc.name;
    const char *slash = strrchr(file, '/');
    if (origin != NULL && slash != NULL && strncmp(origin, file, strlen(file)) == 0)
        origin += slash + 1 - file; /* without the folder, which would be the same on every line */
    AX_TRY(origin != NULL ? ax_buf_printf(s->out, "%*s# %s\n", (int)pad, "", origin)
                          : ax_buf_puts(s->out, "\n"));
    s->line = s->out->len;
    return AX_OK;
}

static bool has_maps(const struct ax_yaml_node *list) {
    for (size_t i = 0; i < list->n; i++)
        if (list->entries[i].value->kind == AX_YAML_MAP && list->entries[i].value->n > 0)
            return true;
    return false;
}

/* A node of the tree to write. */
struct spot {
    const char *path, *name;
    const struct ax_yaml_node *node;
    int indent;
    const char *lead; /* "- " before the first key of a list's entry */
    bool dflt;
};

static enum ax_status put_spot(struct show *s, const struct spot *p);

static enum ax_status put_map(struct show *s, const struct spot *p, int indent, const char *lead) {
    struct ax_config_members it;
    ax_config_members_begin(&it, s->cfg, p->path, p->node);
    while (ax_config_members_next(&it)) {
        char path[AX_CONFIG_PATH];
        ax_config_join(path, sizeof path, p->path, it.name);
        struct spot inner = {path, it.name, it.node, indent, lead, p->dflt || it.dflt};
        AX_TRY(put_spot(s, &inner));
        lead = NULL;
    }
    return AX_OK;
}

static enum ax_status put_list(struct show *s, const struct spot *p) {
    for (size_t i = 0; i < p->node->n; i++) {
        const struct ax_yaml_node *value = p->node->entries[i].value;
        char path[AX_CONFIG_PATH + 24];
        char origin[512];
        snprintf(path, sizeof path, "%s.%zu", p->path, i);
        struct spot entry = {path, "", value, p->indent + 2, "- ", p->dflt};
        if (value->kind == AX_YAML_MAP && value->n > 0) {
            AX_TRY(put_map(s, &entry, p->indent + 4, "- "));
            continue;
        }
        AX_TRY(ax_buf_printf(s->out, "%*s- ", p->indent + 2, ""));
        AX_TRY(ax_config_put_flow(s->out, value, false));
        AX_TRY(end_line(
            s, ax_config_origin(s->cfg, path, p->dflt ? NULL : value, origin, sizeof origin)));
    }
    return AX_OK;
}

static enum ax_status put_spot(struct show *s, const struct spot *p) {
    char origin[512];
    const char *lead = p->lead != NULL ? p->lead : "";
    AX_TRY(ax_buf_printf(s->out, "%*s%s", p->indent - (int)strlen(lead), "", lead));
    AX_TRY(ax_config_put_word(s->out, p->name));
    AX_TRY(ax_buf_puts(s->out, ":"));
    bool block = p->node->n > 0 && (p->node->kind == AX_YAML_MAP || has_maps(p->node));
    if (!block) {
        AX_TRY(ax_buf_puts(s->out, " "));
        AX_TRY(ax_config_hides(p->path, p->node) ? ax_buf_puts(s->out, AX_CONFIG_HIDDEN)
                                                 : ax_config_put_flow(s->out, p->node, false));
        return end_line(
            s, ax_config_origin(s->cfg, p->path, p->dflt ? NULL : p->node, origin, sizeof origin));
    }
    AX_TRY(end_line(s, NULL));
    return p->node->kind == AX_YAML_MAP ? put_map(s, p, p->indent + 2, NULL) : put_list(s, p);
}

static enum ax_status put_section(struct show *s, const struct ax_config_section *section) {
    bool titled = false;
    for (size_t i = 0; section->keys[i].path != NULL; i++) {
        const struct ax_config_key *key = &section->keys[i];
        const struct ax_yaml_node *node = ax_yaml_get(s->cfg->doc.root, key->path);
        bool set = node != NULL && node->kind != AX_YAML_NULL;
        if (!set && strchr(key->path, '.') == NULL)
            node = ax_config_acting_default(s->cfg, key);
        if (node == NULL || node->kind == AX_YAML_NULL)
            continue;
        if (!titled) {
            AX_TRY(ax_buf_printf(s->out, "%s# %s\n", s->out->len > 0 ? "\n" : "", section->title));
            s->line = s->out->len;
            titled = true;
        }
        struct spot top = {key->path, key->path, node, 0, NULL, !set};
        AX_TRY(put_spot(s, &top));
    }
    return AX_OK;
}

static const char *const note_titles[AX_NOTE_KINDS] = {
    [AX_NOTE_RENAMED] = "read under another name",
    [AX_NOTE_NO_EFFECT] = "no effect here",
    [AX_NOTE_UNUSED] = "not used in this run",
    [AX_NOTE_IGNORED] = "ignored keys",
    [AX_NOTE_APPROXIMATED] = "approximated",
    [AX_NOTE_NOT_YET] = "not supported yet: training stops before it starts",
};

/* Writes several keys without effect on one line. */
static enum ax_status put_folded(const struct ax_config *cfg, struct ax_buf *out, bool *folded) {
    struct ax_buf names = {0};
    size_t n;
    enum ax_status st = ax_config_put_noted(cfg, AX_NOTE_NO_EFFECT, &names, &n);
    *folded = n > 1;
    if (st == AX_OK && *folded)
        st = ax_buf_printf(out, "\n# NOTE no effect here: %zu keys, explained with --all\n#   %s\n",
                           n, names.data);
    ax_buf_free(&names);
    return st;
}

static enum ax_status put_notes(const struct ax_config *cfg, bool all, struct ax_buf *out) {
    for (int kind = 0; kind < AX_NOTE_KINDS; kind++) {
        bool any = false, folded = false;
        if (kind == AX_NOTE_NO_EFFECT && !all)
            AX_TRY(put_folded(cfg, out, &folded));
        if (folded)
            continue;
        for (size_t i = 0; i < cfg->n_notes; i++) {
            const struct ax_config_note *note = &cfg->notes[i];
            if ((int)note->kind != kind)
                continue;
            if (!any) {
                AX_TRY(ax_buf_printf(out, "\n# NOTE %s\n", note_titles[kind]));
                any = true;
            }
            if (kind != AX_NOTE_NOT_YET) {
                AX_TRY(
                    ax_buf_printf(out, "#   %s: %s (%s)\n", note->path, note->text, note->where));
            }
        }
        if (any && kind == AX_NOTE_NOT_YET)
            AX_TRY(ax_config_put_not_yet(cfg, false, "#   ", "\n", out));
    }
    return AX_OK;
}

enum ax_status ax_config_show(const struct ax_config *cfg, bool all, struct ax_buf *out) {
    struct show s = {.cfg = cfg, .out = out, .line = out->len};
    for (size_t i = 0; i < ax_config_n_sections; i++)
        AX_TRY(put_section(&s, &ax_config_sections[i]));
    return put_notes(cfg, all, out);
}
