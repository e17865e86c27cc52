/* `axtrain config show --json`: {"file", "config", "origins", "notes"}. */
#include <stdio.h>
#include <string.h>

#include "cmd/config/build.h"

static const char *const kind_names[AX_NOTE_KINDS] = {
    [AX_NOTE_RENAMED] = "renamed",
    [AX_NOTE_NO_EFFECT] = "no_effect",
    [AX_NOTE_UNUSED] = "unused",
    [AX_NOTE_IGNORED] = "ignored",
    [AX_NOTE_APPROXIMATED] = "approximated",
    [AX_NOTE_NOT_YET] = "not_supported_yet",
};

/* Writes `"name": `, with a comma before all but the first. */
static enum ax_status put_name(struct ax_buf *out, const char *indent, const char *name,
                               bool *first) {
    AX_TRY(ax_buf_printf(out, "%s\n%s", *first ? "" : ",", indent));
    *first = false;
    AX_TRY(ax_config_put_json(out, name));
    return ax_buf_puts(out, ": ");
}

static bool has_rows(const char *path) {
    char pattern[AX_CONFIG_PATH];
    return ax_config_pattern(path, pattern, sizeof pattern) && strchr(pattern, ']') == NULL &&
           ax_config_has_children(pattern);
}

/* A map whose keys are in the table gets their defaults too; everything else is written
 * unchanged. */
static enum ax_status put_values(const struct ax_config *cfg, struct ax_buf *out, const char *path,
                                 const struct ax_yaml_node *node) {
    if (ax_config_hides(path, node))
        return ax_config_put_json(out, AX_CONFIG_HIDDEN);
    if (node->kind != AX_YAML_MAP || !has_rows(path))
        return ax_config_put_flow(out, node, true);
    struct ax_config_members it;
    bool first = true;
    AX_TRY(ax_buf_puts(out, "{"));
    ax_config_members_begin(&it, cfg, path, node);
    while (ax_config_members_next(&it)) {
        char sub[AX_CONFIG_PATH];
        ax_config_join(sub, sizeof sub, path, it.name);
        if (path[0] == '\0' && ax_config_find(sub) == NULL)
            continue; /* an ignored key */
        AX_TRY(put_name(out, path[0] == '\0' ? "    " : "      ", it.name, &first));
        AX_TRY(put_values(cfg, out, sub, it.node));
    }
    return ax_buf_puts(out, path[0] == '\0' ? "\n  }" : "}");
}

static enum ax_status put_origins(const struct ax_config *cfg, struct ax_buf *out, const char *path,
                                  const struct ax_yaml_node *node, bool dflt, bool *first) {
    struct ax_config_members it;
    char sub[AX_CONFIG_PATH];
    if (node->n == 0 && path[0] != '\0') {
        char where[512];
        AX_TRY(put_name(out, "    ", path, first));
        return ax_config_put_json(
            out, ax_config_origin(cfg, path, dflt ? NULL : node, where, sizeof where));
    }
    for (size_t i = 0; node->kind == AX_YAML_LIST && i < node->n; i++) {
        char index[24];
        snprintf(index, sizeof index, "%zu", i);
        ax_config_join(sub, sizeof sub, path, index);
        AX_TRY(put_origins(cfg, out, sub, node->entries[i].value, dflt, first));
    }
    ax_config_members_begin(&it, cfg, path, node);
    while (node->kind == AX_YAML_MAP && ax_config_members_next(&it)) {
        ax_config_join(sub, sizeof sub, path, it.name);
        if (path[0] != '\0' || ax_config_find(sub) != NULL)
            AX_TRY(put_origins(cfg, out, sub, it.node, dflt || it.dflt, first));
    }
    return AX_OK;
}

static enum ax_status put_note(struct ax_buf *out, const struct ax_config_note *note) {
    AX_TRY(ax_buf_printf(out, "{\"kind\": \"%s\", \"key\": ", kind_names[note->kind]));
    AX_TRY(ax_config_put_json(out, note->path));
    AX_TRY(ax_buf_puts(out, ", \"text\": "));
    AX_TRY(ax_config_put_json(out, note->text));
    AX_TRY(ax_buf_puts(out, ", \"where\": "));
    AX_TRY(ax_config_put_json(out, note->where));
    return ax_buf_puts(out, "}");
}

enum ax_status ax_config_show_json(const struct ax_config *cfg, struct ax_buf *out) {
    bool first = true;
    AX_TRY(ax_buf_puts(out, "{\n  \"file\": "));
    AX_TRY(ax_config_put_json(out, cfg->doc.name));
    AX_TRY(ax_buf_puts(out, ",\n  \"config\": "));
    AX_TRY(put_values(cfg, out, "", cfg->doc.root));
    AX_TRY(ax_buf_puts(out, ",\n  \"origins\": {"));
    AX_TRY(put_origins(cfg, out, "", cfg->doc.root, false, &first));
    AX_TRY(ax_buf_puts(out, "\n  },\n  \"notes\": ["));
    for (size_t i = 0; i < cfg->n_notes; i++) {
        AX_TRY(ax_buf_printf(out, "%s\n    ", i > 0 ? "," : ""));
        AX_TRY(put_note(out, &cfg->notes[i]));
    }
    return ax_buf_puts(out, "\n  ]\n}\n");
}
