/* Values written as YAML or JSON on one line. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "cmd/config/build.h"

enum ax_status ax_config_put_json(struct ax_buf *out, const char *text) {
    AX_TRY(ax_buf_puts(out, "\""));
    for (; *text != '\0'; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c == '\n' || c == '\t')
            AX_TRY(ax_buf_puts(out, c == '\n' ? "\\n" : "\\t"));
        else if (c == '"' || c == '\\')
            AX_TRY(ax_buf_printf(out, "\\%c", c));
        else if (c < 0x20 || c == 0x7f)
            AX_TRY(ax_buf_printf(out, "\\u%04x", (unsigned)c));
        else
            AX_TRY(ax_buf_append(out, text, 1));
    }
    return ax_buf_puts(out, "\"");
}

/* True if YAML readers take this, without quotes, for the same string. */
static bool is_plain(const char *s) {
    static const char *const words[] = {"true", "false", "null", "yes", "no",
                                        "on",   "off",   "y",    "n"};
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "_-./+@";
    size_t n = strlen(s);
    bool starts = n > 0 && strchr("+-@", s[0]) == NULL && !(s[0] >= '0' && s[0] <= '9') &&
                  !(s[0] == '.' && (n == 1 || strchr("./", s[1]) == NULL));
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        starts = starts && strcasecmp(s, words[i]) != 0;
    return starts && strspn(s, allowed) == n;
}

enum ax_status ax_config_put_word(struct ax_buf *out, const char *text) {
    return is_plain(text) ? ax_buf_puts(out, text) : ax_config_put_json(out, text);
}

static size_t digits(const char *s) {
    return strspn(s, "0123456789");
}

/* A number in JSON's spelling, which every YAML reader also takes for a number. */
static bool is_json_number(const char *s) {
    s += *s == '-';
    size_t n = digits(s);
    if (n == 0 || (n > 1 && *s == '0'))
        return false;
    s += n;
    if (*s == '.') {
        n = digits(++s);
        s += n;
        if (n == 0)
            return false;
    }
    if (*s == 'e' || *s == 'E') {
        s++;
        s += *s == '-' || *s == '+';
        n = digits(s);
        s += n;
        if (n == 0)
            return false;
    }
    return *s == '\0';
}

static enum ax_status put_number(struct ax_buf *out, const struct ax_yaml_node *node, bool json) {
    if (!isfinite(node->number)) /* possible only if a key accepts anything */
        return json ? ax_config_put_json(out, node->text) : ax_buf_puts(out, node->text);
    if (node->text != NULL && strpbrk(node->text, ".eE") != NULL && is_json_number(node->text))
        return ax_buf_puts(out, node->text); /* 2e-5 stays 2e-5 */
    return ax_buf_printf(out, "%.17g", node->number);
}

static enum ax_status put_collection(struct ax_buf *out, const struct ax_yaml_node *node,
                                     bool json) {
    bool map = node->kind == AX_YAML_MAP;
    AX_TRY(ax_buf_puts(out, map ? "{" : "["));
    for (size_t i = 0; i < node->n; i++) {
        AX_TRY(ax_buf_puts(out, i > 0 ? ", " : ""));
        if (map) {
            const char *key = node->entries[i].key;
            AX_TRY(json ? ax_config_put_json(out, key) : ax_config_put_word(out, key));
            AX_TRY(ax_buf_puts(out, ": "));
        }
        AX_TRY(ax_config_put_flow(out, node->entries[i].value, json));
    }
    return ax_buf_puts(out, map ? "}" : "]");
}

enum ax_status ax_config_put_flow(struct ax_buf *out, const struct ax_yaml_node *node, bool json) {
    switch (node->kind) {
    case AX_YAML_NULL:
        return ax_buf_puts(out, "null");
    case AX_YAML_BOOL:
        return ax_buf_puts(out, node->boolean ? "true" : "false");
    case AX_YAML_INT:
        return ax_buf_printf(out, "%lld", (long long)node->integer);
    case AX_YAML_FLOAT:
        return put_number(out, node, json);
    case AX_YAML_STRING:
        return json ? ax_config_put_json(out, node->text) : ax_config_put_word(out, node->text);
    default:
        return put_collection(out, node, json);
    }
}

enum ax_status ax_config_put_noted(const struct ax_config *cfg, enum ax_config_note_kind kind,
                                   struct ax_buf *out, size_t *n) {
    const size_t most = 6;
    *n = 0;
    for (size_t i = 0; i < cfg->n_notes; i++)
        if (cfg->notes[i].kind == kind && (*n)++ < most)
            AX_TRY(ax_buf_printf(out, "%s%s", *n > 1 ? ", " : "", cfg->notes[i].path));
    return *n > most ? ax_buf_printf(out, " and %zu more", *n - most) : AX_OK;
}

/* Lists the notes of one capability on one line. */
static enum ax_status put_group(const struct ax_config *cfg, bool text_only, size_t first,
                                const char *prefix, const char *suffix, struct ax_buf *out) {
    const size_t most = 6;
    const char *name = cfg->notes[first].text;
    size_t n = 0;
    for (size_t i = first; i < cfg->n_notes; i++) {
        const struct ax_config_note *note = &cfg->notes[i];
        if (note->kind != AX_NOTE_NOT_YET || strcmp(note->text, name) != 0 ||
            (text_only && !note->text_side)) {
            continue;
        }
        if (n++ == 0)
            AX_TRY(ax_buf_printf(out, "%s%s: %s (%s)", prefix, name, note->path, note->where));
        else if (n <= most)
            AX_TRY(ax_buf_printf(out, ", %s", note->path));
    }
    if (n > most)
        AX_TRY(ax_buf_printf(out, " and %zu more", n - most));
    return ax_buf_puts(out, suffix);
}

enum ax_status ax_config_put_not_yet(const struct ax_config *cfg, bool text_only,
                                     const char *prefix, const char *suffix, struct ax_buf *out) {
    for (size_t i = 0; i < cfg->n_notes; i++) {
        const struct ax_config_note *note = &cfg->notes[i];
        bool counts = note->kind == AX_NOTE_NOT_YET && (note->text_side || !text_only);
        for (size_t j = 0; counts && j < i; j++) {
            const struct ax_config_note *earlier = &cfg->notes[j];
            counts = earlier->kind != AX_NOTE_NOT_YET || strcmp(earlier->text, note->text) != 0 ||
                     (text_only && !earlier->text_side);
        }
        if (counts)
            AX_TRY(put_group(cfg, text_only, i, prefix, suffix, out));
    }
    return AX_OK;
}
