/* The chat templates of a model folder, uncompiled: for writing them into another file. The places
 * are those of ax_template_from_folder, and the first that has a name wins. */
#include <dirent.h>
#include <string.h>

#include "base/io.h"
#include "base/json.h"
#include "data/template/template.h"

#define CONFIG_MAX ((size_t)64 << 20)

static enum ax_status add(json_t *all, const char *name, const char *text, size_t len) {
    if (json_object_get(all, name))
        return AX_OK;
    json_t *value = json_stringn(text, len); /* NULL where it is not UTF-8, too */
    if (json_object_set_new(all, name, value) == 0)
        return AX_OK;
    return ax_error(AX_ERR_DATA, "chat template %s: it is not UTF-8", name);
}

static enum ax_status add_file(json_t *all, const char *dir, const char *file, const char *name) {
    char *path, *text = NULL;
    size_t len;
    enum ax_status st = AX_OK;
    AX_TRY(ax_path_join(&path, dir, file));
    if (ax_path_exists(path)) {
        AX_TRY_GOTO(ax_read_file(path, AX_TEMPLATE_MAX_SOURCE, &text, &len), st, done);
        AX_TRY_GOTO(add(all, name, text, len), st, done);
    }
done:
    ax_free(text);
    ax_free(path);
    return st;
}

/* NAME.jinja */
static enum ax_status add_additional(json_t *all, const char *dir) {
    static const char suffix[] = ".jinja";
    char *path;
    enum ax_status st = AX_OK;
    AX_TRY(ax_path_join(&path, dir, "additional_chat_templates"));
    DIR *d = opendir(path);
    const struct dirent *e;
    while (d && st == AX_OK && (e = readdir(d)) != NULL) {
        const size_t n = strlen(e->d_name), tail = sizeof suffix - 1;
        char name[128];
        if (n <= tail || n - tail >= sizeof name || strcmp(e->d_name + n - tail, suffix) != 0)
            continue;
        memcpy(name, e->d_name, n - tail);
        name[n - tail] = '\0';
        st = add_file(all, path, e->d_name, name);
    }
    if (d)
        closedir(d);
    ax_free(path);
    return st;
}

static enum ax_status add_value(json_t *all, const char *name, struct ax_json v) {
    const char *text;
    AX_TRY(ax_json_str(v, &text));
    return add(all, name, text, strlen(text));
}

/* chat_template: a string, {name: template}, or a list of {name, template}. */
static enum ax_status add_config(json_t *all, const char *dir, const char *file) {
    struct ax_json_doc doc = {0};
    char *path;
    const char *name;
    enum ax_status st = AX_OK;
    AX_TRY(ax_path_join(&path, dir, file));
    if (!ax_path_exists(path))
        goto done;
    AX_TRY_GOTO(ax_json_load(&doc, path, CONFIG_MAX), st, done);
    const struct ax_json v = ax_json_get(ax_json_root(&doc), "chat_template");
    json_t *member;
    if (json_is_string(v.v))
        st = add_value(all, "default", v);
    json_object_foreach((json_t *)(uintptr_t)v.v, name, member) {
        AX_TRY_GOTO(add_value(all, name, ax_json_get(v, name)), st, done);
    }
    for (size_t i = 0; json_is_array(v.v) && i < ax_json_size(v); i++) {
        const struct ax_json entry = ax_json_at(v, i);
        AX_TRY_GOTO(ax_json_str(ax_json_get(entry, "name"), &name), st, done);
        AX_TRY_GOTO(add_value(all, name, ax_json_get(entry, "template")), st, done);
    }
done:
    ax_json_free(&doc);
    ax_free(path);
    return st == AX_OK ? st : ax_error_prefix(st, "%s", dir);
}

enum ax_status ax_template_folder_sources(json_t **out, const char *dir) {
    json_t *all = json_object();
    enum ax_status st;
    if (!all)
        return ax_error(AX_ERR_NOMEM, "out of memory for chat templates");
    AX_TRY_GOTO(add_additional(all, dir), st, done);
    AX_TRY_GOTO(add_file(all, dir, "chat_template.jinja", "default"), st, done);
    AX_TRY_GOTO(add_config(all, dir, "tokenizer_config.json"), st, done);
    AX_TRY_GOTO(add_config(all, dir, "chat_template.json"), st, done);
    *out = all;
    all = NULL;
done:
    json_decref(all);
    return st;
}
