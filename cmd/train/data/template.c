/* Which chat template a data set uses: its own, else the config's, else the model's. */
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "ckpt/gguf/gguf.h"
#include "cmd/train/data/data.h"
#include "data/text/template/mistral.h"

#define FALLBACK "tokenizer_default_fallback_"

struct choice {
    struct ax_template *template, *tool_use; /* NULL: none */
};

/* Leaves *out alone if the file has no such key. */
static enum ax_status from_key(struct ax_template **out, struct ax_gguf *g, const char *path,
                               const char *key) {
    struct ax_gguf_text text = {0};
    AX_TRY(ax_gguf_string_or_null(g, key, &text));
    return text.s ? ax_template_compile(out, path, text.s, text.len) : AX_OK;
}

static enum ax_status from_gguf(struct choice *out, const char *path) {
    struct ax_gguf g;
    AX_TRY(ax_gguf_open(&g, path));
    enum ax_status st = from_key(&out->template, &g, path, "tokenizer.chat_template");
    if (st == AX_OK && !out->template)
        st = ax_error(AX_ERR_DATA, "%s: tokenizer.chat_template is missing", path);
    if (st == AX_OK)
        st = from_key(&out->tool_use, &g, path, "tokenizer.chat_template.tool_use");
    ax_gguf_close(&g);
    return st;
}

static enum ax_status models_own(struct choice *out, const struct ax_setup_tokenizer *t) {
    if (t->is_gguf)
        return from_gguf(out, t->path);
    if (t->own)
        return ax_template_mistral(&out->template, t->own);
    AX_TRY(ax_template_from_folder(&out->template, t->path, NULL, false));
    return ax_template_tool_use(&out->tool_use, t->path);
}

static void free_both(struct choice *c) {
    ax_template_free(c->template);
    ax_template_free(c->tool_use);
    *c = (struct choice){0};
}

/* Compiles Jinja source given in the config, or in a file. */
static enum ax_status from_jinja(struct ax_template **out, const char *jinja) {
    if (strpbrk(jinja, "{\n"))
        return ax_template_compile(out, "chat_template_jinja", jinja, strlen(jinja));
    if (!ax_path_exists(jinja))
        return ax_error(
            AX_ERR_CONFIG,
            "chat_template_jinja: %s: no such file, and no template, which would have {{", jinja);
    char *source;
    size_t n;
    AX_TRY(ax_read_file(jinja, AX_TEMPLATE_MAX_SOURCE, &source, &n));
    const enum ax_status st = ax_template_compile(out, jinja, source, n);
    ax_free(source);
    return st;
}

static enum ax_status by_name(struct choice *out, const struct ax_setup_tokenizer *t,
                              const char *name) {
    enum ax_status st;
    if (strcmp(name, "tokenizer_default") == 0) {
        st = models_own(out, t);
        if (st == AX_ERR_DATA)
            st = ax_error_prefix(
                st, "chat_template: tokenizer_default (set another one, such as chatml)");
        return st;
    }
    if (strncmp(name, FALLBACK, strlen(FALLBACK)) != 0)
        return ax_template_builtin(&out->template, name);
    if (models_own(out, t) == AX_OK)
        return AX_OK;
    ax_log_info("chat_template: %s is used, not the model's own: %s", name + strlen(FALLBACK),
                ax_error_text());
    ax_error_clear();
    free_both(out);
    return ax_template_builtin(&out->template, name + strlen(FALLBACK));
}

static enum ax_status choose(struct choice *out, const struct ax_config *cfg,
                             const struct ax_setup_tokenizer *t, const char *entry) {
    struct ax_template_keys k = {0};
    if (t->keeps_template)
        return models_own(out, t);
    AX_FILL(cfg, entry, struct ax_template_keys, &k);
    if (*entry != '\0' && !k.jinja && (!k.name || strcmp(k.name, "tokenizer_default") == 0))
        return choose(out, cfg, t, "");
    if (k.jinja)
        return from_jinja(&out->template, k.jinja);
    if (k.name && strcmp(k.name, "jinja") == 0)
        return ax_config_error(cfg, "chat_template", "jinja needs chat_template_jinja");
    return by_name(out, t, k.name ? k.name : "tokenizer_default");
}

enum ax_status ax_setup_template(struct ax_template **out, struct ax_template **tool_use,
                                 const struct ax_config *cfg, const struct ax_setup_tokenizer *t,
                                 const char *entry) {
    struct choice c = {0};
    const enum ax_status st = choose(&c, cfg, t, entry);
    if (st != AX_OK)
        free_both(&c);
    *out = c.template;
    if (tool_use)
        *tool_use = c.tool_use;
    else
        ax_template_free(c.tool_use);
    return st;
}
