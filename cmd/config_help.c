/* `axtrain config help [KEY]`: one key in full, or all of them in a line each. */
#include <stdio.h>
#include <string.h>

#include "cmd/config_build.h"
#include "cmd/config_rules.h"

enum ax_status ax_config_fate_text(enum ax_config_fate fate, enum ax_capability needs,
                                   const char *note, struct ax_buf *out) {
    enum ax_config_fate seen = ax_config_fate_of(fate, needs);
    AX_TRY(ax_buf_puts(out, ax_config_fate_name(seen)));
    if (seen == AX_FATE_NOT_YET) {
        return ax_buf_printf(out, ": needs %s", ax_capability_info(needs)->name);
    }
    return note != NULL ? ax_buf_printf(out, ": %s", note) : AX_OK;
}

/* "  choice   fate" for each choice whose fate is its own, or just the choice. */
static enum ax_status put_choices(struct ax_buf *out, const struct ax_config_key *key) {
    char one[128];
    for (size_t i = 0; ax_config_choice_at(key->choices, i, one, sizeof one); i++) {
        const struct ax_config_value *v = ax_config_find_value(key, one);
        AX_TRY(ax_buf_puts(out, i == 0 ? "values\n" : ""));
        if (v == NULL) {
            AX_TRY(ax_buf_printf(out, "  %s\n", one));
            continue;
        }
        AX_TRY(ax_buf_printf(out, "  %-24s  ", one));
        AX_TRY(ax_config_fate_text(v->fate, v->needs, v->note, out));
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
        AX_TRY(ax_buf_printf(out, "%s  %-30s  %s\n", title, it.name, child->help));
        title = "";
    }
    return AX_OK;
}

static enum ax_status put_old_spellings(struct ax_buf *out, const struct ax_config_key *key) {
    for (size_t i = 0; i < ax_config_n_olds; i++) {
        const struct ax_config_old *old = &ax_config_olds[i];
        if (strcmp(old->now, key->path) != 0) {
            continue;
        }
        AX_TRY(ax_buf_printf(out, "old       %s", old->path));
        if (old->text != NULL) {
            AX_TRY(ax_buf_printf(out, ": %s for %s", old->from, old->text));
        }
        AX_TRY(ax_buf_puts(out, "\n"));
    }
    return AX_OK;
}

static enum ax_status put_key(struct ax_buf *out, const struct ax_config_key *key) {
    AX_TRY(ax_buf_printf(out, "%s\n  %s\n\ntype      ", key->path, key->help));
    /* long lists of choices follow below */
    struct ax_config_key brief = *key;
    brief.choices = NULL;
    AX_TRY(ax_config_expected(&brief, key->types, out));
    AX_TRY(
        ax_buf_printf(out, "\ndefault   %s\nfate      ", key->dflt != NULL ? key->dflt : "unset"));
    AX_TRY(ax_config_fate_text(key->fate, key->needs, key->note, out));
    if (key->when != NULL) {
        AX_TRY(ax_buf_puts(out, "\nonly with "));
        AX_TRY(ax_config_condition_text(key->when, out));
    }
    AX_TRY(ax_buf_printf(out, "\nsection   %s\n", ax_config_section_of(key)->title));
    AX_TRY(put_old_spellings(out, key));
    AX_TRY(put_choices(out, key));
    return put_children(out, key);
}

static enum ax_status put_other(struct ax_buf *out, const char *path, bool *found) {
    for (size_t i = 0; i < ax_config_n_olds && !*found; i++) {
        const struct ax_config_old *old = &ax_config_olds[i];
        if (strcmp(old->path, path) == 0) {
            *found = true;
            AX_TRY(ax_buf_printf(out, "%s is an old spelling of %s%s%s\n\n", path, old->now,
                                 old->text != NULL ? ": " : "",
                                 old->text != NULL ? old->text : ""));
            AX_TRY(put_key(out, ax_config_find(old->now)));
        }
    }
    for (size_t i = 0; i < ax_config_n_deads && !*found; i++) {
        const struct ax_config_dead *dead = &ax_config_deads[i];
        if (strcmp(dead->path, path) == 0) {
            *found = true;
            AX_TRY(ax_buf_printf(out, "%s: nothing reads this key%s%s\n", path,
                                 dead->instead != NULL ? "; see " : "",
                                 dead->instead != NULL ? dead->instead : ""));
        }
    }
    return AX_OK;
}

enum ax_status ax_config_help(const char *path, struct ax_buf *out) {
    const struct ax_config_key *key = ax_config_find(path);
    if (key != NULL) {
        return put_key(out, key);
    }
    bool found = false;
    AX_TRY(put_other(out, path, &found));
    if (found) {
        return AX_OK;
    }
    char parent[AX_CONFIG_PATH];
    char tail[2 * AX_CONFIG_PATH];
    if (!ax_config_pattern(path, parent, sizeof parent)) {
        parent[0] = '\0';
    }
    char *dot = strrchr(parent, '.');
    const char *name = dot != NULL ? dot + 1 : path;
    if (dot != NULL) {
        *dot = '\0';
    }
    ax_config_suggest_key(dot != NULL ? parent : "", name, tail, sizeof tail);
    return ax_error(AX_ERR_CONFIG, "unknown key \"%s\"%s", path, tail);
}

enum ax_status ax_config_list(struct ax_buf *out) {
    for (size_t s = 0; s < ax_config_n_sections; s++) {
        const struct ax_config_section *section = &ax_config_sections[s];
        AX_TRY(ax_buf_printf(out, "%s%s\n", s > 0 ? "\n" : "", section->title));
        for (size_t i = 0; i < *section->n; i++) {
            if (strchr(section->keys[i].path, '.') == NULL) {
                AX_TRY(ax_buf_printf(out, "  %-34s %s\n", section->keys[i].path,
                                     section->keys[i].help));
            }
        }
    }
    return AX_OK;
}
