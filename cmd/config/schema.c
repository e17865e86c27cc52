/* `axtrain config schema`: a JSON Schema (2020-12) of the table, for editors that complete and
 * check YAML during editing. */
#include <stdio.h>
#include <string.h>

#include "cmd/config/build.h"

static enum ax_status put_properties(struct ax_buf *out, const char *parent, int indent);

/* One alternative of anyOf. */
static enum ax_status put_or(struct ax_buf *out, bool *first, const char *json) {
    AX_TRY(ax_buf_printf(out, "%s%s", *first ? "" : ", ", json));
    *first = false;
    return AX_OK;
}

static enum ax_status put_number(struct ax_buf *out, bool *first, const struct ax_config_key *key,
                                 const char *type) {
    static const char *const limits[AX_R_COUNT] = {
        [AX_R_ANY] = "",
        [AX_R_POSITIVE] = ", \"exclusiveMinimum\": 0",
        [AX_R_NOT_NEGATIVE] = ", \"minimum\": 0",
        [AX_R_FROM_TWO] = ", \"minimum\": 2",
        [AX_R_FROM_MINUS_ONE] = ", \"minimum\": -1",
        [AX_R_FRACTION] = ", \"minimum\": 0, \"maximum\": 1",
        [AX_R_BELOW_ONE] = ", \"minimum\": 0, \"exclusiveMaximum\": 1",
    };
    char json[128];
    snprintf(json, sizeof json, "{\"type\": \"%s\"%s}", type, limits[ax_config_range_of(key)]);
    return put_or(out, first, json);
}

/* Choices as an enumeration, those with * as patterns. */
static enum ax_status put_strings(struct ax_buf *out, bool *first,
                                  const struct ax_config_key *key) {
    const char *choices = key->choices;
    if (choices == NULL)
        return put_or(out, first, "{\"type\": \"string\"}");
    char one[128];
    AX_TRY(put_or(out, first, "{\"enum\": ["));
    const char *sep = "";
    for (size_t i = 0; ax_config_choice_at(choices, i, one, sizeof one); i++) {
        if (strchr(one, '*') == NULL) {
            AX_TRY(ax_buf_puts(out, sep));
            AX_TRY(ax_config_put_json(out, one));
            sep = ", ";
        }
    }
    for (size_t i = 0; i < ax_config_n_renamed; i++) { /* renamed values */
        const struct ax_config_renamed *old = &ax_config_renamed[i];
        if (strcmp(old->path, key->path) == 0 && old->from != NULL &&
            strchr(old->from, '*') == NULL) {
            AX_TRY(ax_buf_printf(out, "%s\"%s\"", sep, old->from));
            sep = ", ";
        }
    }
    AX_TRY(ax_buf_puts(out, "]}"));
    for (size_t i = 0; ax_config_choice_at(choices, i, one, sizeof one); i++) {
        if (strchr(one, '*') == NULL)
            continue;
        AX_TRY(put_or(out, first, "{\"type\": \"string\", \"pattern\": \"^"));
        for (const char *c = one; *c != '\0'; c++) {
            AX_TRY(*c == '*'   ? ax_buf_puts(out, ".*")
                   : *c == '.' ? ax_buf_puts(out, "\\\\.")
                               : ax_buf_append(out, c, 1));
        }
        AX_TRY(ax_buf_puts(out, "$\"}"));
    }
    return AX_OK;
}

static enum ax_status put_kinds(struct ax_buf *out, bool *first, const struct ax_config_key *key,
                                unsigned types) {
    if (types & AX_T_BOOL)
        AX_TRY(put_or(out, first, "{\"type\": \"boolean\"}"));
    if (types & AX_T_INT)
        AX_TRY(put_number(out, first, key, "integer"));
    if (types & AX_T_NUM)
        AX_TRY(put_number(out, first, key, "number"));
    return types & AX_T_STR ? put_strings(out, first, key) : AX_OK;
}

static enum ax_status put_list(struct ax_buf *out, bool *first, const struct ax_config_key *key,
                               int indent) {
    char entry[AX_CONFIG_PATH];
    snprintf(entry, sizeof entry, "%s[]", key->path);
    AX_TRY(put_or(out, first, "{\"type\": \"array\""));
    if (ax_config_elements(key) == AX_T_MAP) {
        AX_TRY(ax_buf_puts(out, ", \"items\": {\"type\": \"object\", "));
        AX_TRY(put_properties(out, entry, indent + 2));
        AX_TRY(ax_buf_puts(out, "}"));
    } else if ((ax_config_elements(key) & (AX_T_ANY | AX_T_LIST)) == 0) {
        bool none = true;
        AX_TRY(ax_buf_puts(out, ", \"items\": {\"anyOf\": ["));
        AX_TRY(put_kinds(out, &none, key, ax_config_elements(key)));
        AX_TRY(ax_buf_puts(out, "]}"));
    }
    return ax_buf_puts(out, "}");
}

static enum ax_status put_map(struct ax_buf *out, bool *first, const struct ax_config_key *key,
                              const char *path, int indent) {
    AX_TRY(put_or(out, first, "{\"type\": \"object\""));
    if (ax_config_has_children(path)) {
        AX_TRY(ax_buf_puts(out, ", "));
        AX_TRY(put_properties(out, path, indent + 2));
    } else if ((ax_config_elements(key) & (AX_T_ANY | AX_T_LIST | AX_T_MAP)) == 0) {
        bool none = true;
        AX_TRY(ax_buf_puts(out, ", \"additionalProperties\": {\"anyOf\": ["));
        AX_TRY(put_kinds(out, &none, key, ax_config_elements(key)));
        AX_TRY(ax_buf_puts(out, "]}"));
    }
    return ax_buf_puts(out, "}");
}

static enum ax_status put_description(struct ax_buf *out, const struct ax_config_key *key) {
    struct ax_buf text = {0};
    enum ax_status st = AX_OK;
    if (key->help != NULL)
        st = ax_buf_printf(&text, "%s (", key->help);
    if (st == AX_OK)
        st = ax_config_support_text(key->support, key->needs, key->note, &text);
    if (st == AX_OK && key->help != NULL)
        st = ax_buf_puts(&text, ")");
    if (st == AX_OK)
        st = ax_buf_puts(out, "{\"description\": ");
    if (st == AX_OK)
        st = ax_config_put_json(out, text.data);
    ax_buf_free(&text);
    return st;
}

static enum ax_status put_key(struct ax_buf *out, const struct ax_config_key *key, const char *path,
                              int indent) {
    AX_TRY(put_description(out, key));
    if (key->support == AX_SUPPORT_REFUSED)
        AX_TRY(ax_buf_puts(out, ", \"deprecated\": true"));
    if (key->types & AX_T_ANY)
        return ax_buf_puts(out, "}");
    bool first = true;
    AX_TRY(ax_buf_puts(out, ", \"anyOf\": ["));
    AX_TRY(put_kinds(out, &first, key, key->types));
    if (key->types & AX_T_LIST)
        AX_TRY(put_list(out, &first, key, indent));
    if (key->types & AX_T_MAP)
        AX_TRY(put_map(out, &first, key, path, indent));
    AX_TRY(put_or(out, &first, "{\"type\": \"null\"}"));
    return ax_buf_puts(out, "]}");
}

/* Renamed and ignored keys of this map: accepted, marked as deprecated. */
static enum ax_status put_deprecated(struct ax_buf *out, const char *parent, int indent) {
    const char *name;
    const char *before = "";
    for (size_t i = 0; i < ax_config_n_renamed; i++) {
        const char *path = ax_config_renamed[i].path;
        if (ax_config_find(path) == NULL && strcmp(path, before) != 0 &&
            ax_config_child(path, parent, &name)) {
            AX_TRY(ax_buf_printf(out,
                                 ",\n%*s\"%s\": {\"deprecated\": true, \"description\": "
                                 "\"Old spelling of %s.\"}",
                                 indent, "", name, ax_config_renamed[i].now));
        }
        before = path;
    }
    for (size_t i = 0; i < ax_config_n_ignored; i++) {
        if (ax_config_child(ax_config_ignored[i].path, parent, &name)) {
            AX_TRY(ax_buf_printf(out,
                                 ",\n%*s\"%s\": {\"deprecated\": true, \"description\": "
                                 "\"This key is ignored.\"}",
                                 indent, "", name));
        }
    }
    return AX_OK;
}

static enum ax_status put_properties(struct ax_buf *out, const char *parent, int indent) {
    struct ax_config_children it;
    const struct ax_config_key *key;
    const char *sep = "";
    AX_TRY(ax_buf_puts(out, "\"additionalProperties\": false, \"properties\": {"));
    ax_config_children_begin(&it, parent);
    while ((key = ax_config_children_next(&it)) != NULL) {
        char path[2 * AX_CONFIG_PATH];
        ax_config_join(path, sizeof path, parent, it.name);
        AX_TRY(ax_buf_printf(out, "%s\n%*s\"%s\": ", sep, indent, "", it.name));
        sep = ",";
        AX_TRY(put_key(out, key, path, indent));
    }
    AX_TRY(put_deprecated(out, parent, indent));
    return ax_buf_puts(out, "}");
}

enum ax_status ax_config_schema(struct ax_buf *out) {
    AX_TRY(ax_buf_puts(out, "{\"$schema\": \"https://json-schema.org/draft/2020-12/schema\",\n"
                            "\"title\": \"axtrain configuration\",\n\"type\": \"object\", "));
    AX_TRY(put_properties(out, "", 2));
    return ax_buf_puts(out, "}\n");
}
