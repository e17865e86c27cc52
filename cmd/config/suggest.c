/* Suggestions for mistyped keys and values. */
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "base/text/words.h"
#include "cmd/config/build.h"

#define MAX_WORD 64

/* Edit distance, ignoring case and treating - as _. */
static int edits(const char *a, const char *b) {
    char words[2][MAX_WORD + 1];
    const char *from[2] = {a, b};
    for (int w = 0; w < 2; w++) {
        size_t n = strlen(from[w]);
        if (n > MAX_WORD)
            return MAX_WORD;
        for (size_t i = 0; i <= n; i++) {
            char c = from[w][i];
            words[w][i] = c == '-' ? '_' : c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
        }
    }
    return ax_edit_distance(words[0], words[1]);
}

/* Largest distance that still looks like a typing mistake in a word of this length. */
static int allowed(const char *word) {
    size_t third = strlen(word) / 3;
    return third < 1 ? 1 : third > 3 ? 3 : (int)third;
}

struct nearest {
    const char *name;
    int distance;
};

static void consider(struct nearest *best, const char *word, const char *candidate,
                     const char *name) {
    int distance = edits(word, candidate);
    if (distance < best->distance)
        *best = (struct nearest){name, distance};
}

/* The nearest key of the map `parent`. */
static struct nearest nearest_sibling(const char *parent, const char *name) {
    struct nearest best = {NULL, allowed(name) + 1};
    struct ax_config_children it;
    const struct ax_config_key *key;
    const char *part;
    ax_config_children_begin(&it, parent);
    while ((key = ax_config_children_next(&it)) != NULL)
        if (key->support != AX_SUPPORT_REFUSED)
            consider(&best, name, it.name, it.name);
    for (size_t i = 0; i < ax_config_n_renamed; i++)
        if (ax_config_child(ax_config_renamed[i].path, parent, &part))
            consider(&best, name, part, ax_config_last_part(ax_config_renamed[i].now));
    return best;
}

/* A key with this name in another map, first at the top level. */
static const char *elsewhere(const char *name) {
    const struct ax_config_key *top = ax_config_find(name);
    if (top != NULL && top->support != AX_SUPPORT_REFUSED)
        return top->path;
    for (size_t s = 0; s < ax_config_n_sections; s++) {
        for (size_t i = 0; ax_config_sections[s].keys[i].path != NULL; i++) {
            const struct ax_config_key *key = &ax_config_sections[s].keys[i];
            if (key->support != AX_SUPPORT_REFUSED &&
                edits(ax_config_last_part(key->path), name) == 0)
                return key->path;
        }
    }
    for (size_t i = 0; i < ax_config_n_renamed; i++)
        if (edits(ax_config_last_part(ax_config_renamed[i].path), name) == 0)
            return ax_config_renamed[i].now;
    return NULL;
}

static bool is_switch(const char *path) {
    const struct ax_config_key *key = path != NULL ? ax_config_find(path) : NULL;
    return key != NULL && (key->types & AX_T_BOOL) != 0;
}

/* Argument parsers make of a key that is true or false a flag that turns it off: no_packing. NULL if the name is none. */
static const char *turned_off(const char *name) {
    const char *of = name + 3;
    if (strncmp(name, "no_", 3) != 0)
        return NULL;
    if (is_switch(of))
        return ax_config_find(of)->path;
    for (size_t i = 0; i < ax_config_n_other_trainers; i++)
        if (strcmp(ax_config_other_trainers[i].name, of) == 0 &&
            is_switch(ax_config_other_trainers[i].ours))
            return ax_config_other_trainers[i].ours;
    return NULL;
}

const char *ax_config_suggest_key(const char *parent, const char *name, char *buf, size_t size) {
    const bool anywhere =
        parent[0] == '\0' || strcmp(parent, "trl") == 0 || strcmp(parent, "ppo") == 0;
    for (size_t i = 0; anywhere && i < ax_config_n_other_trainers; i++) {
        const struct ax_config_other_trainers *o = &ax_config_other_trainers[i];
        if (edits(o->name, name) == 0 || fnmatch(o->name, name, 0) == 0) {
            snprintf(buf, size, o->ours ? "; here it is called %s" : "; leave it out: %s",
                     o->ours ? o->ours : o->instead);
            return buf;
        }
    }
    const char *off = parent[0] == '\0' ? turned_off(name) : NULL;
    if (off != NULL) {
        snprintf(buf, size, "; write %s=false, or %s: false in the file", off, off);
        return buf;
    }
    struct nearest near = nearest_sibling(parent, name);
    const char *other = near.name == NULL || near.distance > 1 ? elsewhere(name) : NULL;
    if (other != NULL) {
        snprintf(buf, size, "; did you mean %s%s?", other,
                 strchr(other, '.') != NULL ? "" : " at the top level");
    } else if (near.name != NULL) {
        snprintf(buf, size, "; did you mean %s?", near.name);
    } else {
        buf[0] = '\0';
    }
    return buf;
}

const char *ax_config_suggest_choice(const struct ax_config_key *key, const char *text, char *buf,
                                     size_t size) {
    char one[128];
    char name[128] = "";
    int best = allowed(text) + 1;
    for (size_t i = 0; ax_config_choice_at(key->choices, i, one, sizeof one); i++) {
        int distance = edits(text, one);
        if (strchr(one, '*') == NULL && distance < best && ax_config_accepts(key, one)) {
            best = distance;
            snprintf(name, sizeof name, "%s", one);
        }
    }
    /* otherwise the first choice that shares most of the word: adamww, adamw_torch */
    for (size_t most = 3, i = 0;
         best > allowed(text) && ax_config_choice_at(key->choices, i, one, sizeof one); i++) {
        size_t same = 0;
        while (text[same] != '\0' && text[same] == one[same])
            same++;
        if (same < most || 2 * same < strlen(text) + 2 || strchr(one, '*') ||
            !ax_config_accepts(key, one))
            continue;
        most = same + 1;
        snprintf(name, sizeof name, "%s", one);
    }
    buf[0] = '\0';
    if (name[0] != '\0')
        snprintf(buf, size, "; did you mean %s?", name);
    return buf;
}
