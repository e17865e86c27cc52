/* Files saved next to the weights: copies of the base's, edited if the config changes special
 * tokens or the chat template. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cmd/train/setup.h"
#include "model/adapter/base_note.h"

/* ---- tokens in the tokenizer's files ---- */

static enum ax_status no_memory(void) {
    return ax_error(AX_ERR_NOMEM, "out of memory for the tokenizer's files");
}

/* Finds a token by id in "added_tokens" (a list in tokenizer.json) or "added_tokens_decoder" (an
 * object by id in tokenizer_config.json); NULL if there is none. */
static json_t *find_token(json_t *root, int64_t id) {
    json_t *list = json_object_get(root, "added_tokens"), *v;
    char key[32];
    size_t i;
    json_array_foreach(list, i, v) {
        if (json_integer_value(json_object_get(v, "id")) == id)
            return v;
    }
    snprintf(key, sizeof key, "%lld", (long long)id);
    return json_object_get(json_object_get(root, "added_tokens_decoder"), key);
}

static enum ax_status add_token(const struct ax_train_setup *s, json_t *root, const char *text,
                                bool special) {
    json_t *list = json_object_get(root, "added_tokens");
    json_t *decoder = json_object_get(root, "added_tokens_decoder");
    const int32_t id = ax_tokenizer_find(s->data.tok.tokenizer, text, strlen(text));
    char key[32];
    snprintf(key, sizeof key, "%d", id);
    if (id == AX_NO_TOKEN || find_token(root, id) || (!list && !decoder))
        return AX_OK;
    json_t *v = json_pack("{ss sb sb sb sb sb}", "content", text, "single_word", 0, "lstrip", 0,
                          "rstrip", 0, "normalized", !special, "special", special);
    if (list && json_object_set_new(v, "id", json_integer(id)) != 0)
        return no_memory();
    const int failed = list ? json_array_append_new(list, v) : json_object_set_new(decoder, key, v);
    return failed ? no_memory() : AX_OK;
}

static enum ax_status add_tokens(const struct ax_train_setup *s, json_t *root,
                                 const struct ax_yaml_node *list, bool special) {
    const struct ax_yaml_node *v;
    for (size_t i = 0; (v = ax_config_element(list, i)) != NULL; i++)
        AX_TRY(add_token(s, root, v->text, special));
    return AX_OK;
}

/* The model's vocabulary may contain the old text as well. */
static enum ax_status rename_in_vocabulary(json_t *root, int64_t id, const char *text) {
    json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab"), *v;
    const char *key, *old = NULL;
    json_object_foreach(vocab, key, v) {
        if (json_integer_value(v) == id)
            old = key;
    }
    if (!old || strcmp(old, text) == 0)
        return AX_OK;
    json_object_del(vocab, old);
    return json_object_set_new(vocab, text, json_integer(id)) ? no_memory() : AX_OK;
}

static enum ax_status rename_tokens(const struct ax_train_setup *s, json_t *root) {
    const struct ax_yaml_node *map = s->data.tok.keys.renamed;
    for (size_t i = 0; map && i < map->n; i++) {
        const int64_t id = strtoll(map->entries[i].key, NULL, 10);
        const char *text = map->entries[i].value->text;
        json_t *v = find_token(root, id);
        if (v && json_object_set_new(v, "content", json_string(text)) != 0)
            return no_memory();
        AX_TRY(rename_in_vocabulary(root, id, text));
    }
    return AX_OK;
}

/* Adds the config's tokens to a tokenizer.json or tokenizer_config.json. */
static enum ax_status edit_tokens(const struct ax_train_setup *s, json_t *root) {
    static const enum ax_special which[] = {AX_BOS, AX_EOS, AX_PAD, AX_UNK};
    const struct ax_token_keys *k = &s->data.tok.keys;
    AX_TRY(rename_tokens(s, root));
    for (size_t i = 0; i < sizeof which / sizeof *which; i++)
        if (k->special[which[i]])
            AX_TRY(add_token(s, root, k->special[which[i]], true));
    AX_TRY(add_tokens(s, root, k->more, true));
    return add_tokens(s, root, k->added, false);
}

/* ---- files ---- */

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
    AX_TRY(ax_setup_template(&t, NULL, s->cfg, &s->data.tok, ""));
    size_t n;
    const char *source = ax_template_source(t, &n);
    const enum ax_status st = ax_strndup(out, source, n);
    ax_template_free(t);
    return st;
}

static enum ax_status set_text(json_t *root, const char *key, const char *text) {
    if (json_object_set_new(root, key, json_string(text)) != 0)
        return ax_error(AX_ERR_NOMEM, "out of memory for the tokenizer's configuration");
    return AX_OK;
}

/* A token is stored as a string, or as an object with "content". */
static enum ax_status set_token(json_t *root, const char *key, const char *text) {
    json_t *was = json_object_get(root, key);
    return json_is_object(was) ? set_text(was, "content", text) : set_text(root, key, text);
}

static enum ax_status edit_tokenizer_config(const struct ax_train_setup *s, json_t *root,
                                            const char *template) {
    static const enum ax_special which[] = {AX_BOS, AX_EOS, AX_PAD, AX_UNK};
    for (size_t i = 0; i < sizeof which / sizeof *which; i++) {
        const char *key = ax_special_name(which[i]);
        const char *text = s->data.tok.keys.special[which[i]];
        if (text)
            AX_TRY(set_token(root, key, text));
    }
    /* older readers take the template from here, newer ones from a separate file */
    if (template && json_object_get(root, "chat_template"))
        AX_TRY(set_text(root, "chat_template", template));
    return edit_tokens(s, root);
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
    AX_TRY_GOTO(strcmp(name, "tokenizer.json") == 0 ? edit_tokens(s, doc.root)
                                                    : edit_tokenizer_config(s, doc.root, template),
                st, done);
    AX_TRY_GOTO(ax_json_dump(doc.root, &text, &len), st, done);
    AX_TRY_GOTO(add_text(s, name, text), st, done);
done:
    ax_json_free(&doc);
    ax_free(path);
    return st;
}

/* Text of AX_STEPS_FILE; NULL: the run trains no process reward model. */
static enum ax_status steps_text(const struct ax_train_setup *s, char **out) {
    const struct ax_setup_sets *sets = &s->data.train_sets;
    size_t len;
    *out = NULL;
    if (ax_method_of(s->cfg)->head != &ax_classifier_prm || sets->n == 0)
        return AX_OK;
    const char *separator = sets->entries[0].steps.separator;
    for (size_t i = 1; i < sets->n; i++)
        if (strcmp(separator, sets->entries[i].steps.separator) != 0)
            return ax_config_error(s->cfg, "datasets",
                                   "step_separator differs between data sets, but scoring can use "
                                   "only one: give all the same");
    json_t *v = json_pack("{ss}", "step_separator", separator);
    if (!v)
        return ax_error(AX_ERR_NOMEM, "out of memory for %s", AX_STEPS_FILE);
    const enum ax_status st = ax_json_dump(v, out, &len);
    json_decref(v);
    return st;
}

/* What the folder has beside what is trained: to random weights, nothing of it belongs. */
static void keep_others(struct ax_train_setup *s) {
    char type[96];
    const struct ax_hf_unused others = ax_arch_unused(&s->arch);
    s->o.save.hf.kept = s->reinit ? (struct ax_hf_unused){0} : others;
    if (others.first < others.end)
        ax_log_info("%s: layers from %d on are for multi-token prediction: they are not trained, "
                    "and saved models %s",
                    s->base, others.first,
                    s->reinit ? "do not have them (mtp_loss_scaling_factor trains them)"
                              : "have them unchanged");
    if (s->arch.wrapper)
        ax_log_info("%s: of this model the text model is trained (%s), on text; saved models have "
                    "all else unchanged",
                    s->base, ax_arch_type(&s->arch, type, sizeof type));
}

/* As TRL's RewardTrainer, a reward model's config.json gets the tokenizer's pad token, or EOS, for readers to find the
 * scores where they were trained. */
static enum ax_status say_score_pad(struct ax_train_setup *s, bool saves_config) {
    static const char key[] = "pad_token_id";
    const int32_t pad = s->data.tok.pad;
    char was[24] = "none";
    if (pad == AX_NO_TOKEN)
        return ax_config_error(s->cfg, "special_tokens.pad_token",
                               "a reward model's score is at the last token that does not pad, but "
                               "the tokenizer has neither a pad token nor EOS: name one");
    if (s->arch.score_pad >= 0)
        snprintf(was, sizeof was, "%d", s->arch.score_pad);
    if (!saves_config && s->arch.score_pad != pad)
        ax_log_warn("adapter: it learns scores at the last token that is not the tokenizer's pad "
                    "token, %d, as in TRL; PEFT and transformers go by the base's %s, which is %s: "
                    "set config.%s = %d there, or merge the adapter",
                    pad, key, was, key, pad);
    s->arch.score_pad = pad;
    if (json_object_set_new(s->config_edits, key, json_integer(pad)) != 0)
        return ax_error(AX_ERR_NOMEM, "out of memory for config.json");
    return AX_OK;
}

/* What a rope computes, whatever max_position_embeddings is. */
static bool is_free_rope(const struct ax_rope_config *r) {
    return r->dim == 0 ||
           (r->kind != AX_ROPE_DYNAMIC && r->kind != AX_ROPE_YARN && r->kind != AX_ROPE_LONGROPE);
}

/* As axolotl, has config.json say that the model reads what it is trained on; an adapter has none. */
static enum ax_status say_positions(struct ax_train_setup *s, bool saves_config) {
    static const char key[] = "max_position_embeddings";
    const struct ax_arch *a = &s->arch;
    const int64_t longest = ax_train_longest(&s->data.train), n = s->data.keys.sequence_len[false];
    const bool says = saves_config && is_free_rope(&a->rope) && is_free_rope(&a->rope_local) &&
                      is_free_rope(&a->rope_queries);
    if (longest <= a->max_positions)
        return AX_OK;
    if (!says) {
        ax_log_warn(
            "sequence_len: records have up to %lld tokens, but %s of %s is %lld: generation "
            "and servers stop there, unless it is raised",
            (long long)longest, key, saves_config ? "saved models" : "the base",
            (long long)a->max_positions);
        return AX_OK;
    }
    ax_log_warn("sequence_len: records have up to %lld tokens, but the model has %lld positions: "
                "saved models have %s: %lld",
                (long long)longest, (long long)a->max_positions, key, (long long)n);
    return json_object_set_new(s->config_edits, key, json_integer(n)) == 0
               ? AX_OK
               : ax_error(AX_ERR_NOMEM, "out of memory for config.json");
}

enum ax_status ax_train_side_files(struct ax_train_setup *s) {
    const struct ax_setup_tokenizer *tok = &s->data.tok;
    const char *dir = tok->is_gguf ? s->base : tok->path;
    const bool scores = ax_method_of(s->cfg)->head == &ax_classifier_reward;
    const bool adapts = s->adapter && !ax_config_holds(s->cfg, "relora");
    char *template, *steps, *base;
    s->o.save.hf.base_dir = s->base;
    s->o.save.hf.tokenizer_dir = dir;
    s->o.save.hf.eos = &tok->eos;
    s->o.save.hf.n_ends = s->data.ends.n;
    s->o.save.hf.ends = s->data.ends.ids;
    /* only where the configuration names them: training skips the row of pad_token_id */
    s->o.save.hf.bos = tok->keys.special[AX_BOS] ? &tok->bos : NULL;
    s->o.save.hf.pad = tok->keys.special[AX_PAD] ? &tok->pad : NULL;
    keep_others(s);
    AX_TRY(say_positions(s, !adapts));
    AX_TRY(steps_text(s, &steps));
    if (steps)
        AX_TRY(add_text(s, AX_STEPS_FILE, steps));
    if (scores)
        AX_TRY(say_score_pad(s, !adapts));
    if (adapts && s->hf.dir) {
        AX_TRY(ax_base_note_text(&s->hf, s->base_name, scores ? tok->pad : -1, &base));
        AX_TRY(add_text(s, AX_BASE_NOTE, base));
    }
    AX_TRY(template_text(s, &template));
    if (template)
        AX_TRY(add_text(s, "chat_template.jinja", template));
    if (has_tokens(s))
        AX_TRY(edit_file(s, dir, "tokenizer.json", NULL));
    if (has_tokens(s) || template) {
        AX_TRY(edit_file(s, dir, "tokenizer_config.json", template));
        AX_TRY(edit_file(s, dir, "special_tokens_map.json", NULL));
    }
    return ax_hf_check_side_files(&s->o.save.hf, adapts);
}
