/* `axtrain config help [KEY]`: one key in full, or all of them, one per line. */
#include <stdio.h>
#include <string.h>

#include "cmd/config/build.h"
#include "cmd/config/rules.h"

enum ax_status ax_config_support_text(enum ax_config_support support, enum ax_capability needs,
                                      const char *note, struct ax_buf *out) {
    enum ax_config_support seen = ax_config_support_of(support, needs);
    AX_TRY(ax_buf_puts(out, ax_config_support_name(seen)));
    if (seen == AX_SUPPORT_NOT_YET)
        return ax_buf_printf(out, ": needs %s", ax_capability_info(needs)->name);
    return note != NULL ? ax_buf_printf(out, ": %s", note) : AX_OK;
}

/* "  choice   support" for each choice whose support differs from the key's, or just the choice. */
static enum ax_status put_choices(struct ax_buf *out, const struct ax_config_key *key) {
    char one[128];
    for (size_t i = 0; ax_config_choice_at(key->choices, i, one, sizeof one); i++) {
        struct ax_config_value v;
        AX_TRY(ax_buf_puts(out, i == 0 ? "values\n" : ""));
        if (!ax_config_find_value(key, one, &v)) {
            AX_TRY(ax_buf_printf(out, "  %s\n", one));
            continue;
        }
        AX_TRY(ax_buf_printf(out, "  %-24s  ", one));
        AX_TRY(ax_config_support_text(v.support, v.needs, v.note, out));
        AX_TRY(ax_buf_puts(out, "\n"));
    }
    return AX_OK;
}

static enum ax_status put_children(struct ax_buf *out, const struct ax_config_key *key) {
    char parent[AX_CONFIG_PATH];
    struct ax_config_children it;
    const struct ax_config_key *child;
    const char *title = "keys inside\n";
    snprintf(parent, sizeof parent, "%s%s", key->path, key->types & AX_T_LIST ? "[]" : "");
    ax_config_children_begin(&it, parent);
    while ((child = ax_config_children_next(&it)) != NULL) {
        AX_TRY(ax_buf_printf(out, "%s  %-30s  ", title, it.name));
        AX_TRY(child->help != NULL
                   ? ax_buf_puts(out, child->help)
                   : ax_config_support_text(child->support, child->needs, child->note, out));
        AX_TRY(ax_buf_puts(out, "\n"));
        title = "";
    }
    return AX_OK;
}

static enum ax_status put_old_spellings(struct ax_buf *out, const struct ax_config_key *key) {
    for (size_t i = 0; i < ax_config_n_renamed; i++) {
        const struct ax_config_renamed *old = &ax_config_renamed[i];
        if (strcmp(old->now, key->path) != 0)
            continue;
        AX_TRY(ax_buf_printf(out, "old       %s", old->path));
        if (old->text != NULL)
            AX_TRY(ax_buf_printf(out, ": %s for %s", old->from, old->text));
        AX_TRY(ax_buf_puts(out, "\n"));
    }
    return AX_OK;
}

static enum ax_status put_key(struct ax_buf *out, const struct ax_config_key *key) {
    AX_TRY(ax_buf_printf(out, "%s\n", key->path));
    if (key->help != NULL)
        AX_TRY(ax_buf_printf(out, "  %s\n", key->help));
    AX_TRY(ax_buf_puts(out, "\ntype      "));
    /* a long list of choices follows below */
    struct ax_config_key brief = *key;
    brief.choices = NULL;
    AX_TRY(ax_config_expected(&brief, key->types, out));
    AX_TRY(
        ax_buf_printf(out, "\ndefault   %s\nsupport   ", key->dflt != NULL ? key->dflt : "unset"));
    AX_TRY(ax_config_support_text(key->support, key->needs, key->note, out));
    if (key->when != NULL) {
        AX_TRY(ax_buf_puts(out, "\nonly with "));
        AX_TRY(ax_config_condition_text(key->when, out));
    }
    AX_TRY(ax_buf_printf(out, "\nsection   %s\n", ax_config_section_of(key)->title));
    AX_TRY(put_old_spellings(out, key));
    AX_TRY(put_choices(out, key));
    return put_children(out, key);
}

/* The key itself, or the map of free keys that it is in. */
static const struct ax_config_key *key_around(const char *path) {
    char part[AX_CONFIG_PATH];
    snprintf(part, sizeof part, "%s", path);
    const struct ax_config_key *key = ax_config_find(part);
    for (char *dot; key == NULL && (dot = strrchr(part, '.')) != NULL;) {
        *dot = '\0';
        key = ax_config_find(part);
    }
    return key;
}

static enum ax_status put_other(struct ax_buf *out, const char *path, bool *found) {
    for (size_t i = 0; i < ax_config_n_renamed && !*found; i++) {
        const struct ax_config_renamed *old = &ax_config_renamed[i];
        if (strcmp(old->path, path) == 0) {
            *found = true;
            AX_TRY(ax_buf_printf(out, "%s is an old spelling of %s%s%s\n\n", path, old->now,
                                 old->text != NULL ? ": " : "",
                                 old->text != NULL ? old->text : ""));
            AX_TRY(put_key(out, key_around(old->now)));
        }
    }
    for (size_t i = 0; i < ax_config_n_ignored && !*found; i++) {
        const struct ax_config_ignored *dead = &ax_config_ignored[i];
        if (strcmp(dead->path, path) == 0) {
            *found = true;
            AX_TRY(ax_buf_printf(out, "%s: this key is ignored%s%s\n", path,
                                 dead->instead != NULL ? "; see " : "",
                                 dead->instead != NULL ? dead->instead : ""));
        }
    }
    return AX_OK;
}

/* Keys that begin with a word and _: "lora" means lora_r, lora_alpha … */
static enum ax_status put_family(struct ax_buf *out, const char *word, bool *found) {
    const size_t n = strlen(word);
    for (size_t s = 0; s < ax_config_n_sections; s++) {
        for (const struct ax_config_key *k = ax_config_sections[s].keys; k->path != NULL; k++) {
            if (n == 0 || strncmp(k->path, word, n) != 0 || k->path[n] != '_' ||
                strpbrk(k->path, ".[") != NULL)
                continue;
            AX_TRY(*found ? AX_OK : ax_buf_printf(out, "keys that begin with %s_\n", word));
            *found = true;
            AX_TRY(ax_buf_printf(out, "  %-34s ", k->path));
            AX_TRY(k->help != NULL ? ax_buf_puts(out, k->help)
                                   : ax_config_support_text(k->support, k->needs, k->note, out));
            AX_TRY(ax_buf_puts(out, "\n"));
        }
    }
    return AX_OK;
}

enum ax_status ax_config_help(const char *path, struct ax_buf *out) {
    const struct ax_config_key *key = ax_config_find(path);
    if (key != NULL)
        return put_key(out, key);
    bool found = false;
    AX_TRY(put_other(out, path, &found));
    if (!found)
        AX_TRY(put_family(out, path, &found));
    if (found)
        return AX_OK;
    char parent[AX_CONFIG_PATH];
    char tail[2 * AX_CONFIG_PATH];
    if (!ax_config_pattern(path, parent, sizeof parent))
        parent[0] = '\0';
    char *dot = strrchr(parent, '.');
    const char *name = dot != NULL ? dot + 1 : path;
    if (dot != NULL)
        *dot = '\0';
    ax_config_suggest_key(dot != NULL ? parent : "", name, tail, sizeof tail);
    return ax_error(AX_ERR_CONFIG, "unknown key \"%s\"%s", path, tail);
}

/* Lists the names of keys without effect, by reason. */
static enum ax_status list_brief(struct ax_buf *out, const struct ax_config_section *section) {
    const struct ax_config_key *last = NULL;
    size_t line = 0; /* start of the line */
    for (const struct ax_config_key *key = section->keys; key->path != NULL; key++) {
        if (strchr(key->path, '.') != NULL)
            continue;
        if (last == NULL || !ax_config_same_reason(last, key)) {
            AX_TRY(ax_buf_puts(out, last == NULL ? "  " : "\n  "));
            AX_TRY(ax_config_support_text(key->support, key->needs, key->note, out));
            AX_TRY(ax_buf_puts(out, "\n   "));
            line = out->len;
        } else if (out->len - line + strlen(key->path) > 92) {
            AX_TRY(ax_buf_puts(out, "\n   "));
            line = out->len;
        }
        AX_TRY(ax_buf_printf(out, " %s", key->path));
        last = key;
    }
    return ax_buf_puts(out, "\n");
}

enum ax_status ax_config_list(struct ax_buf *out) {
    for (size_t s = 0; s < ax_config_n_sections; s++) {
        const struct ax_config_section *section = &ax_config_sections[s];
        AX_TRY(ax_buf_printf(out, "%s%s\n", s > 0 ? "\n" : "", section->title));
        for (size_t i = 0; !section->brief && section->keys[i].path != NULL; i++) {
            if (strchr(section->keys[i].path, '.') == NULL) {
                AX_TRY(ax_buf_printf(out, "  %-34s %s\n", section->keys[i].path,
                                     section->keys[i].help));
            }
        }
        if (section->brief)
            AX_TRY(list_brief(out, section));
    }
    return AX_OK;
}
