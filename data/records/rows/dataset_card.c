/* The YAML at the top of a data set's README.md:
 *
 *     configs:
 *     - config_name: main
 *       default: true
 *       data_dir: main
 *       data_files: FILES, [FILES, …], or {SPLIT: FILES}
 *       data_files: [{split: train, path: FILES}, …] */
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "base/text/yaml.h"
#include "data/records/rows/find.h"

#define MAX_CARD     ((size_t)16 << 20)
#define MAX_CONFIGS  10000
#define MAX_PATTERNS 100000

/* A text, or one of the texts of a list, or NULL. */
static const struct ax_yaml_node *text_at(const struct ax_yaml_node *v, size_t i) {
    if (v && v->kind == AX_YAML_LIST)
        v = i < v->n ? v->entries[i].value : NULL;
    else if (i > 0)
        v = NULL;
    return v && v->text && v->kind != AX_YAML_LIST && v->kind != AX_YAML_MAP ? v : NULL;
}

static enum ax_status add_files(struct ax_card_config *c, const char *split,
                                const struct ax_yaml_node *patterns) {
    const struct ax_yaml_node *v;
    for (size_t i = 0; (v = text_at(patterns, i)) != NULL; i++) {
        if (c->n == MAX_PATTERNS)
            return ax_error(AX_ERR_CONFIG, "more than %d patterns", MAX_PATTERNS);
        AX_TRY(ax_regrow(&c->files, c->n, c->n + 1, sizeof *c->files));
        struct ax_card_files *f = &c->files[c->n++];
        const char *pattern = strncmp(v->text, "./", 2) == 0 ? v->text + 2 : v->text;
        AX_TRY(ax_strdup(&f->split, split));
        AX_TRY(ax_strdup(&f->pattern, pattern));
    }
    return AX_OK;
}

static enum ax_status read_files(struct ax_card_config *c, const struct ax_yaml_node *v) {
    if (!v)
        return AX_OK;
    if (v->kind == AX_YAML_MAP) {
        for (size_t i = 0; i < v->n; i++)
            AX_TRY(add_files(c, v->entries[i].key, v->entries[i].value));
        return AX_OK;
    }
    for (size_t i = 0; v->kind == AX_YAML_LIST && i < v->n; i++) {
        const struct ax_yaml_node *e = v->entries[i].value;
        const struct ax_yaml_node *split = text_at(ax_yaml_get(e, "split"), 0);
        if (e->kind == AX_YAML_MAP)
            AX_TRY(add_files(c, split ? split->text : "train", ax_yaml_get(e, "path")));
    }
    return add_files(c, "train", v);
}

static enum ax_status read_config(struct ax_card *card, const struct ax_yaml_node *v) {
    const struct ax_yaml_node *name = text_at(ax_yaml_get(v, "config_name"), 0);
    const struct ax_yaml_node *folder = text_at(ax_yaml_get(v, "data_dir"), 0);
    const struct ax_yaml_node *is_default = ax_yaml_get(v, "default");
    if (card->n == MAX_CONFIGS)
        return ax_error(AX_ERR_CONFIG, "more than %d configurations", MAX_CONFIGS);
    AX_TRY(ax_regrow(&card->configs, card->n, card->n + 1, sizeof *card->configs));
    struct ax_card_config *c = &card->configs[card->n++];
    AX_TRY(ax_strdup(&c->name, name ? name->text : "default"));
    if (folder)
        AX_TRY(ax_strdup(&c->folder, folder->text));
    c->is_default = is_default && is_default->kind == AX_YAML_BOOL && is_default->boolean;
    return read_files(c, ax_yaml_get(v, "data_files"));
}

static enum ax_status read_card(struct ax_card *c, const struct ax_yaml_doc *doc) {
    const struct ax_yaml_node *configs = ax_yaml_get(doc->root, "configs");
    for (size_t i = 0; configs && configs->kind == AX_YAML_LIST && i < configs->n; i++)
        if (configs->entries[i].value->kind == AX_YAML_MAP)
            AX_TRY(read_config(c, configs->entries[i].value));
    return AX_OK;
}

/* The text between a first line "---" and the next one. */
static bool find_yaml(const char **text, size_t *len) {
    if (*len >= 3 && memcmp(*text, "\xEF\xBB\xBF", 3) == 0) {
        *text += 3;
        *len -= 3;
    }
    const char *end = *text + *len;
    const char *first = memchr(*text, '\n', *len);
    if (*len < 4 || memcmp(*text, "---", 3) != 0 || !first || first - *text > 4)
        return false;
    for (const char *s = first + 1; s < end;) {
        const char *newline = memchr(s, '\n', (size_t)(end - s));
        if (end - s >= 3 && memcmp(s, "---", 3) == 0) {
            *text = first + 1;
            *len = (size_t)(s - first) - 1;
            return true;
        }
        s = newline ? newline + 1 : end;
    }
    return false;
}

enum ax_status ax_card_parse(struct ax_card *c, const char *name, const char *text, size_t len) {
    struct ax_yaml_doc doc;
    *c = (struct ax_card){0};
    if (!find_yaml(&text, &len) || len == 0)
        return AX_OK;
    AX_TRY(ax_yaml_parse(&doc, name, text, len));
    const enum ax_status st = read_card(c, &doc);
    ax_yaml_free(&doc);
    if (st != AX_OK)
        ax_card_free(c);
    return st;
}

void ax_card_free(struct ax_card *c) {
    for (size_t i = 0; i < c->n; i++) {
        for (size_t j = 0; j < c->configs[i].n; j++) {
            ax_free(c->configs[i].files[j].split);
            ax_free(c->configs[i].files[j].pattern);
        }
        ax_free(c->configs[i].files);
        ax_free(c->configs[i].name);
        ax_free(c->configs[i].folder);
    }
    ax_free(c->configs);
    *c = (struct ax_card){0};
}

enum ax_status ax_card_load(struct ax_card *c, const char *folder) {
    char *path, *text;
    size_t len;
    *c = (struct ax_card){0};
    AX_TRY(ax_path_join(&path, folder, "README.md"));
    enum ax_status st = AX_OK;
    if (ax_path_exists(path) && (st = ax_read_file(path, MAX_CARD, &text, &len)) == AX_OK) {
        st = ax_card_parse(c, path, text, len);
        ax_free(text);
    }
    ax_free(path);
    if (st == AX_OK || st == AX_ERR_NOMEM)
        return st;
    ax_log_warn("ignoring the data set's card and choosing files by name: %s", ax_error_text());
    return AX_OK;
}
