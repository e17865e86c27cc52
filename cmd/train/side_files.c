/* Files saved next to the weights: copies of the base's, edited if the config changes special
 * tokens or the chat template. */
#include <string.h>

#include "base/log.h"
#include "model/adapter/base_note.h"
#include "cmd/train/setup.h"

#define MAX_FILE ((size_t)64 << 20)

static enum ax_status add_text(struct ax_train_setup *s, const char *name, char *text) {
    const int n = s->o.save.hf.n_texts;
    AX_ASSERT(n < AX_TRAIN_MAX_TEXTS);
    s->text_data[n] = text;
    s->texts[n] = (struct ax_hf_text){name, text};
    s->o.save.hf.texts = s->texts;
    s->o.save.hf.n_texts++;
    return AX_OK;
}

/* The config's chat template; *out is NULL if the model's own is used. */
static enum ax_status template_text(const struct ax_train_setup *s, char **out) {
    struct ax_template *t;
    *out = NULL;
    if (ax_config_holds(s->cfg, "!set(chat_template_jinja) && "
                                "(!set(chat_template) || chat_template == tokenizer_default)"))
        return AX_OK;
    AX_TRY(ax_setup_template(&t, s->cfg, &s->data.tok, ""));
    size_t n;
    const char *source = ax_template_source(t, &n);
    const enum ax_status st = ax_strndup(out, source, n);
    ax_template_free(t);
    return st;
}

static enum ax_status set(json_t *root, const char *key, const char *text) {
    if (json_object_set_new(root, key, json_string(text)) != 0)
        return ax_error(AX_ERR_NOMEM, "out of memory for the tokenizer's configuration");
    return AX_OK;
}

/* A token is stored as a string, or as an object with "content". */
static enum ax_status set_token(json_t *root, const char *key, const char *text) {
    json_t *was = json_object_get(root, key);
    return json_is_object(was) ? set(was, "content", text) : set(root, key, text);
}

static enum ax_status edit(const struct ax_train_setup *s, json_t *root, const char *template) {
    static const enum ax_special which[] = {AX_BOS, AX_EOS, AX_PAD, AX_UNK};
    for (size_t i = 0; i < sizeof which / sizeof *which; i++) {
        const char *key = ax_special_name(which[i]);
        const char *text = s->data.tok.keys.special[which[i]];
        if (text)
            AX_TRY(set_token(root, key, text));
    }
    /* older readers take the template from here, newer ones from a separate file */
    if (template && json_object_get(root, "chat_template"))
        AX_TRY(set(root, "chat_template", template));
    return ax_train_edit_tokens(s, root);
}

/* True if the config adds, renames or assigns tokens. */
static bool has_tokens(const struct ax_train_setup *s) {
    return ax_config_holds(s->cfg, "special_tokens || tokens || set(added_tokens_overrides)");
}

static enum ax_status edit_file(struct ax_train_setup *s, const char *dir, const char *name,
                                const char *template) {
    char *path, *text = NULL;
    struct ax_json_doc doc = {0};
    size_t len;
    AX_TRY(ax_path_join(&path, dir, name));
    enum ax_status st = AX_OK;
    if (!ax_path_exists(path))
        goto done;
    AX_TRY_GOTO(ax_json_load(&doc, path, MAX_FILE), st, done);
    AX_TRY_GOTO(strcmp(name, "tokenizer.json") == 0 ? ax_train_edit_tokens(s, doc.root)
                                                    : edit(s, doc.root, template),
                st, done);
    AX_TRY_GOTO(ax_json_dump(doc.root, &text, &len), st, done);
    AX_TRY_GOTO(add_text(s, name, text), st, done);
done:
    ax_json_free(&doc);
    ax_free(path);
    return st;
}

/* What the folder has beside what is trained. */
static void keep_others(struct ax_train_setup *s) {
    char type[96];
    const int n = (int)s->arch.n_layers, more = (int)s->arch.n_unused;
    s->o.save.hf.kept_first = n;
    s->o.save.hf.kept_end = n + more;
    if (more > 0)
        ax_log_info(
            "%s: layers from %d on are for multi-token prediction: they are not trained, and "
            "saved models have them unchanged",
            s->base, n);
    if (s->arch.wrapper)
        ax_log_info("%s: of this model the text model is trained (%s), on text; saved models have "
                    "all else unchanged",
                    s->base, ax_arch_type(&s->arch, type, sizeof type));
}

enum ax_status ax_train_side_files(struct ax_train_setup *s) {
    const struct ax_setup_tokenizer *tok = &s->data.tok;
    const char *dir = tok->is_gguf ? s->base : tok->path;
    char *template, *steps, *base;
    s->o.save.hf.base_dir = s->base;
    s->o.save.hf.tokenizer_dir = dir;
    s->o.save.hf.eos = &s->data.tok.eos;
    keep_others(s);
    AX_TRY(ax_train_steps_file(s->cfg, &steps));
    if (steps)
        AX_TRY(add_text(s, AX_STEPS_FILE, steps));
    if (s->adapter && s->hf.dir && s->o.step.relora.interval == 0) {
        AX_TRY(ax_base_note_text(&s->hf, s->base_name, &base));
        AX_TRY(add_text(s, AX_BASE_NOTE, base));
    }
    AX_TRY(template_text(s, &template));
    if (template)
        AX_TRY(add_text(s, "chat_template.jinja", template));
    if (has_tokens(s))
        AX_TRY(edit_file(s, dir, "tokenizer.json", NULL));
    else if (!template)
        return AX_OK;
    AX_TRY(edit_file(s, dir, "tokenizer_config.json", template));
    return edit_file(s, dir, "special_tokens_map.json", NULL);
}
