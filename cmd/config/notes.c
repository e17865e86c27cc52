/* Notes on the support of each value that is set, for `config show`, the log and the check
 * before training. */
#include <stdio.h>
#include <string.h>

#include "cmd/config/build.h"
#include "cmd/config/rules.h"

/* One value with its key. */
struct seen {
    const struct ax_config_key *key;
    const char *path;
    const struct ax_yaml_node *node;
    enum ax_capability above; /* already noted for the enclosing map */
};

static bool equal(const struct ax_yaml_node *a, const struct ax_yaml_node *b) {
    bool na = a->kind == AX_YAML_INT || a->kind == AX_YAML_FLOAT;
    bool nb = b->kind == AX_YAML_INT || b->kind == AX_YAML_FLOAT;
    if (na && nb)
        return !(a->number < b->number) && !(a->number > b->number);
    if (a->kind == AX_YAML_BOOL && b->kind == AX_YAML_BOOL)
        return a->boolean == b->boolean;
    return a->text != NULL && b->text != NULL && strcmp(a->text, b->text) == 0;
}

/* True if ignoring the value changes nothing: it is unset, the default, or off. */
static bool asks_nothing(const struct ax_config *cfg, const struct seen *s) {
    const struct ax_yaml_node *dflt = ax_config_default(cfg, s->key);
    if (s->node->kind == AX_YAML_NULL)
        return true;
    if (dflt != NULL)
        return equal(s->node, dflt);
    if (s->node->kind == AX_YAML_LIST || s->node->kind == AX_YAML_MAP)
        return s->node->n == 0;
    return (s->node->kind == AX_YAML_BOOL || s->node->kind == AX_YAML_STRING) &&
           !ax_config_truthy(s->node);
}

static enum ax_status add(struct ax_config *cfg, const struct seen *s,
                          enum ax_config_note_kind kind, const char *text) {
    return ax_config_add_note(cfg, kind, ax_config_section_of(s->key)->text, s->path, text,
                              s->node->line, s->node->column);
}

static enum ax_status add_unused(struct ax_config *cfg, const struct seen *s) {
    struct ax_buf text = {0};
    enum ax_status st = ax_buf_puts(&text, "only has an effect with ");
    if (st == AX_OK)
        st = ax_config_condition_text(s->key->when, &text);
    if (st == AX_OK)
        st = add(cfg, s, AX_NOTE_UNUSED, text.data);
    ax_buf_free(&text);
    return st;
}

static enum ax_status add_support(struct ax_config *cfg, const struct seen *s,
                                  enum ax_config_support support, enum ax_capability needs,
                                  const char *note) {
    switch (ax_config_support_of(support, needs)) {
    case AX_SUPPORT_NO_EFFECT:
        return add(cfg, s, AX_NOTE_NO_EFFECT, note);
    case AX_SUPPORT_APPROXIMATED:
        return add(cfg, s, AX_NOTE_APPROXIMATED, note);
    case AX_SUPPORT_NOT_YET:
        return needs == s->above ? AX_OK
                                 : add(cfg, s, AX_NOTE_NOT_YET, ax_capability_info(needs)->name);
    default:
        return AX_OK;
    }
}

static enum ax_status see(struct ax_config *cfg, const struct seen *s);

static enum ax_status see_scalar(struct ax_config *cfg, const struct seen *s) {
    struct ax_config_value v;
    return ax_config_find_value(s->key, ax_config_scalar_text(s->node), &v)
               ? add_support(cfg, s, v.support, v.needs, v.note)
               : add_support(cfg, s, s->key->support, s->key->needs, s->key->note);
}

static bool has_value_rows(const struct ax_config_key *key) {
    for (size_t i = 0; i < ax_config_n_values; i++)
        if (strcmp(ax_config_values[i].path, key->path) == 0)
            return true;
    return false;
}

static enum ax_status see_map(struct ax_config *cfg, const struct seen *around, const char *path,
                              const struct ax_yaml_node *map, enum ax_capability above) {
    for (size_t i = 0; i < map->n; i++) {
        char sub[AX_CONFIG_PATH];
        int n = snprintf(sub, sizeof sub, "%s%s%s", path, path[0] != '\0' ? "." : "",
                         map->entries[i].key);
        struct seen s = {.path = sub, .node = map->entries[i].value, .above = above};
        s.key = (size_t)n < sizeof sub ? ax_config_find(sub) : NULL;
        if (s.key != NULL && (around == NULL || s.key != around->key))
            AX_TRY(see(cfg, &s));
    }
    return AX_OK;
}

static enum ax_status see_elements(struct ax_config *cfg, const struct seen *s,
                                   enum ax_capability above) {
    bool values = has_value_rows(s->key);
    for (size_t i = 0; i < s->node->n; i++) {
        char sub[AX_CONFIG_PATH + 24];
        struct seen e = {
            .key = s->key, .path = sub, .node = s->node->entries[i].value, .above = above};
        snprintf(sub, sizeof sub, "%s.%zu", s->path, i);
        if (e.node->kind == AX_YAML_MAP)
            AX_TRY(see_map(cfg, s, sub, e.node, above));
        else if (values && e.node->text != NULL)
            AX_TRY(see_scalar(cfg, &e));
    }
    return AX_OK;
}

/* Derived values get no note, because the user did not request them. */
static bool follows(const struct ax_config *cfg, const char *path) {
    for (size_t i = 0; i < cfg->n_follows; i++)
        if (strcmp(cfg->follows[i].path, path) == 0)
            return true;
    return false;
}

static enum ax_status see(struct ax_config *cfg, const struct seen *s) {
    if (asks_nothing(cfg, s) || follows(cfg, s->path))
        return AX_OK;
    if (s->key->when != NULL && s->key->support != AX_SUPPORT_NO_EFFECT &&
        !ax_config_holds_at(cfg, s->path, s->key->when) &&
        !ax_capability_is_objective(s->key->needs))
        return add_unused(cfg, s);
    if (s->node->kind != AX_YAML_LIST && s->node->kind != AX_YAML_MAP)
        return see_scalar(cfg, s);
    bool by_value = s->node->kind == AX_YAML_LIST && has_value_rows(s->key);
    if (!by_value)
        AX_TRY(add_support(cfg, s, s->key->support, s->key->needs, s->key->note));
    if (s->key->support == AX_SUPPORT_NO_EFFECT)
        return AX_OK;
    bool missing = ax_config_support_of(s->key->support, s->key->needs) == AX_SUPPORT_NOT_YET;
    enum ax_capability above = missing && !by_value ? s->key->needs : s->above;
    return s->node->kind == AX_YAML_LIST ? see_elements(cfg, s, above)
                                         : see_map(cfg, s, s->path, s->node, above);
}

enum ax_status ax_config_find_notes(struct ax_config *cfg) {
    return see_map(cfg, NULL, "", cfg->doc.root, AX_CAP_NONE);
}
