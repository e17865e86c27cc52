/* The chat templates of a model folder, where transformers looks for them. */
#include <string.h>

#include "base/dir.h"
#include "base/io.h"
#include "base/text/json.h"
#include "base/mem.h"
#include "ckpt/hf/hf.h"
#include "data/text/template/mistral.h"
#include "data/text/template/template.h"
#include "data/text/vocab/mistral_files.h"

#define CONFIG_MAX ((size_t)64 << 20)

/* One template source. Among sources of equal rank with the same name, the first one counts. */
struct source {
    int place; /* 0: a file; 1 and 2: the configs */
    const char *name;
    const char *where; /* for messages */
    const char *text;
    size_t len;
};
typedef enum ax_status visitor(void *ctx, const struct source *s);

struct walk {
    const char *dir;
    visitor *visit;
    void *ctx;
};

/* FOLDER/file, if it exists. */
static enum ax_status visit_file(const struct walk *w, const char *folder, const char *file,
                                 const char *name) {
    char *path, *text = NULL;
    struct source s = {.name = name};
    enum ax_status st = AX_OK;
    AX_TRY(ax_path_join(&path, folder, file));
    if (ax_path_exists(path)) {
        AX_TRY_GOTO(ax_read_file(path, AX_TEMPLATE_MAX_SOURCE, &text, &s.len), st, done);
        s.where = path;
        s.text = text;
        st = w->visit(w->ctx, &s);
    }
done:
    ax_free(text);
    ax_free(path);
    return st;
}

/* additional_chat_templates/NAME.jinja */
static enum ax_status visit_additional(const struct walk *w) {
    static const char suffix[] = ".jinja";
    char *path;
    enum ax_status st = AX_OK;
    AX_TRY(ax_path_join(&path, w->dir, AX_TEMPLATES_DIR));
    struct ax_dir d;
    ax_dir_open(&d, path);
    for (const char *file; st == AX_OK && (file = ax_dir_next(&d)) != NULL;) {
        const size_t n = strlen(file), tail = sizeof suffix - 1;
        char name[128];
        if (n <= tail || n - tail >= sizeof name || strcmp(file + n - tail, suffix) != 0)
            continue;
        memcpy(name, file, n - tail);
        name[n - tail] = '\0';
        st = visit_file(w, path, file, name);
    }
    ax_free(path);
    return ax_dir_end(&d, st);
}

static enum ax_status visit_value(const struct walk *w, int place, const char *name,
                                  struct ax_json v) {
    char *where;
    struct source s = {.place = place, .name = name};
    if (json_is_string(v.v)) {
        s.text = json_string_value(v.v);
        s.len = json_string_length(v.v);
    }
    AX_TRY(ax_sprintf(&where, "%s: %s", v.doc, v.path));
    s.where = where;
    const enum ax_status st = w->visit(w->ctx, &s);
    ax_free(where);
    return st;
}

/* The member chat_template of a config: a string, {name: template}, or a list of {name, template}.
 */
static enum ax_status visit_config(const struct walk *w, int place, const char *file) {
    struct ax_json_doc doc = {0};
    char *path;
    const char *name;
    json_t *member;
    enum ax_status st = AX_OK;
    AX_TRY(ax_path_join(&path, w->dir, file));
    if (!ax_path_exists(path))
        goto done;
    AX_TRY_GOTO(ax_json_load(&doc, path, CONFIG_MAX), st, done);
    const struct ax_json v = ax_json_get(ax_json_root(&doc), "chat_template");
    if (v.v && !json_is_null(v.v) && !json_is_object(v.v) && !json_is_array(v.v))
        st = visit_value(w, place, "default", v);
    json_object_foreach((json_t *)(uintptr_t)v.v, name, member) {
        AX_TRY_GOTO(visit_value(w, place, name, ax_json_get(v, name)), st, done);
    }
    for (size_t i = 0; json_is_array(v.v) && i < ax_json_size(v); i++) {
        const struct ax_json entry = ax_json_at(v, i);
        AX_TRY_GOTO(ax_json_str(ax_json_get(entry, "name"), &name), st, done);
        AX_TRY_GOTO(visit_value(w, place, name, ax_json_get(entry, "template")), st, done);
    }
done:
    ax_json_free(&doc);
    ax_free(path);
    return st;
}

static enum ax_status walk(const char *dir, visitor *visit, void *ctx) {
    const struct walk w = {dir, visit, ctx};
    AX_TRY(visit_additional(&w));
    AX_TRY(visit_file(&w, dir, "chat_template.jinja", "default"));
    AX_TRY(visit_config(&w, 1, "tokenizer_config.json"));
    return visit_config(&w, 2, "chat_template.json");
}

static enum ax_status need_text(const struct source *s) {
    return s->text ? AX_OK : ax_error(AX_ERR_DATA, "%s: expected a template (a string)", s->where);
}

/* ---- one template, compiled ---- */

struct choice {
    const char *names[2]; /* in order of preference within a place; the second may be NULL */
    int place, number;    /* those of the template found so far */
    struct ax_template *found;
};

static enum ax_status choose(void *ctx, const struct source *s) {
    struct choice *c = ctx;
    for (int i = 0; i < 2 && c->names[i]; i++) {
        if (strcmp(s->name, c->names[i]) != 0 ||
            (c->found && (s->place > c->place || i >= c->number)))
            continue;
        AX_TRY(need_text(s));
        ax_template_free(c->found);
        c->found = NULL;
        AX_TRY(ax_template_compile(&c->found, s->where, s->text, s->len));
        c->place = s->place;
        c->number = i;
    }
    return AX_OK;
}

/* Leaves *out alone if tokenizer.json or no tokenizer of Mistral's own is there. */
static enum ax_status from_own(struct ax_template **out, const char *dir) {
    char *hf = NULL, *own = NULL;
    enum ax_status st;
    AX_TRY_GOTO(ax_path_join(&hf, dir, "tokenizer.json"), st, done);
    if (!ax_path_exists(hf))
        AX_TRY_GOTO(ax_mistral_tokenizer_in(dir, false, &own), st, done);
    if (own)
        st = ax_template_mistral(out, own);
done:
    ax_free(hf);
    ax_free(own);
    return st;
}

enum ax_status ax_template_from_folder(struct ax_template **out, const char *dir, const char *name,
                                       bool with_tools) {
    const bool either = !name && with_tools;
    struct choice c = {.names = {name         ? name
                                 : with_tools ? "tool_use"
                                              : "default",
                                 either ? "default" : NULL}};
    const enum ax_status st = walk(dir, choose, &c);
    if (st != AX_OK) {
        ax_template_free(c.found);
        return st;
    }
    if (!c.found && !name)
        AX_TRY(from_own(&c.found, dir));
    if (!c.found)
        return ax_error(AX_ERR_DATA,
                        "%s: no chat template named %s in chat_template.jinja or "
                        "tokenizer_config.json; set chat_template",
                        dir, either ? "default" : c.names[0]);
    *out = c.found;
    return AX_OK;
}

enum ax_status ax_template_tool_use(struct ax_template **out, const char *dir) {
    struct choice c = {.names = {"tool_use"}};
    const enum ax_status st = walk(dir, choose, &c);
    if (st != AX_OK)
        ax_template_free(c.found);
    *out = st == AX_OK ? c.found : NULL;
    return st;
}

/* ---- all templates, as source ---- */

static enum ax_status add(void *ctx, const struct source *s) {
    json_t *all = ctx;
    AX_TRY(need_text(s));
    if (json_object_get(all, s->name))
        return AX_OK;
    json_t *value = json_stringn(s->text, s->len); /* also NULL if it is not UTF-8 */
    if (json_object_set_new(all, s->name, value) == 0)
        return AX_OK;
    return ax_error(AX_ERR_DATA, "%s: chat template %s is not UTF-8", s->where, s->name);
}

enum ax_status ax_template_folder_sources(json_t **out, const char *dir) {
    json_t *all = json_object();
    if (!all)
        return ax_error(AX_ERR_NOMEM, "out of memory for chat templates");
    const enum ax_status st = walk(dir, add, all);
    if (st == AX_OK)
        *out = all;
    else
        json_decref(all);
    return st;
}
