/* Converts a GGUF file to a Hugging Face folder; the reverse is to_gguf.c. */
#include "model/convert/from_gguf.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "ckpt/hf/hf.h"
#include "data/text/gguf/json.h"
#include "base/text/unicode.h"

static enum ax_status no_memory(void) {
    return ax_error(AX_ERR_NOMEM, "out of memory for tokenizer_config.json");
}

/* --- tokenizer_config.json --- */

static enum ax_status set_text(json_t *object, const char *key, const struct ax_gguf *g,
                               struct ax_gguf_text text) {
    if (ax_utf8_check(text.s, text.len) != text.len)
        return ax_error(AX_ERR_DATA, "%s: %s is not UTF-8", g->path, key);
    json_t *value = json_stringn(text.s, text.len);
    return json_object_set_new(object, key, value) == 0 ? AX_OK : no_memory();
}

static enum ax_status add_special_tokens(json_t *config, const struct ax_gguf *g,
                                         const struct ax_tokenizer *t) {
    static const enum ax_special all[] = {AX_BOS, AX_EOS, AX_UNK, AX_PAD};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const char *s = ax_tokenizer_special(t, all[i]);
        if (s)
            AX_TRY(
                set_text(config, ax_special_name(all[i]), g, (struct ax_gguf_text){s, strlen(s)}));
    }
    return AX_OK;
}

static enum ax_status add_template(json_t *list, const struct ax_gguf *g, struct ax_gguf_text name,
                                   struct ax_gguf_text source) {
    json_t *entry = json_object();
    if (!entry || json_array_append_new(list, entry) != 0)
        return no_memory();
    AX_TRY(set_text(entry, "name", g, name));
    return set_text(entry, "template", g, source);
}

/* The named templates: their keys end in the name. */
static enum ax_status add_named_templates(json_t *list, const struct ax_gguf *g) {
    static const char prefix[] = "tokenizer.chat_template.";
    const size_t n = sizeof prefix - 1;
    for (size_t i = 0; i < g->n_keys; i++) {
        const struct ax_gguf_text key = g->keys[i].name;
        struct ax_gguf_text source;
        char name[128];
        if (key.len <= n || key.len >= sizeof name || memcmp(key.s, prefix, n) != 0)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)key.len, key.s);
        AX_TRY(ax_gguf_string_or_null(g, name, &source));
        AX_TRY(add_template(list, g, (struct ax_gguf_text){key.s + n, key.len - n}, source));
    }
    return AX_OK;
}

/* A single template is a string; several are a list of {name, template}. */
static enum ax_status add_templates(json_t *config, const struct ax_gguf *g) {
    static const struct ax_gguf_text usual = {"default", 7};
    struct ax_gguf_text source;
    json_t *list = json_array();
    enum ax_status st;
    if (!list)
        return no_memory();
    AX_TRY_GOTO(add_named_templates(list, g), st, done);
    AX_TRY_GOTO(ax_gguf_string_or_null(g, "tokenizer.chat_template", &source), st, done);
    if (source.s && json_array_size(list) == 0) {
        st = set_text(config, "chat_template", g, source);
    } else if (json_array_size(list) > 0) {
        if (source.s)
            AX_TRY_GOTO(add_template(list, g, usual, source), st, done);
        st = json_object_set(config, "chat_template", list) == 0 ? AX_OK : no_memory();
    }
done:
    json_decref(list);
    return st;
}

/* The generic class uses tokenizer.json as it is; the model's own class would replace its split
 * rule. */
static enum ax_status tokenizer_config(json_t **out, const struct ax_gguf_model *m,
                                       const struct ax_tokenizer *t) {
    *out = json_pack("{sb sI ss}", "clean_up_tokenization_spaces", 0, "model_max_length",
                     (json_int_t)m->context, "tokenizer_class", "PreTrainedTokenizerFast");
    if (!*out)
        return no_memory();
    AX_TRY(add_special_tokens(*out, m->file, t));
    return add_templates(*out, m->file);
}

/* --- files --- */

static enum ax_status write_text(const char *dir, const char *name, const char *text, size_t len) {
    char *path;
    AX_TRY(ax_path_join(&path, dir, name));
    const enum ax_status st = ax_write_file_atomic(path, text, len);
    ax_free(path);
    return st;
}

static enum ax_status write_json(const char *dir, const char *name, const json_t *v) {
    char *text;
    size_t len;
    struct ax_buf line = {0};
    AX_TRY(ax_json_dump(v, &text, &len));
    enum ax_status st;
    AX_TRY_GOTO(ax_buf_append(&line, text, len), st, done);
    AX_TRY_GOTO(ax_buf_puts(&line, "\n"), st, done);
    st = write_text(dir, name, line.data, line.len);
done:
    ax_buf_free(&line);
    ax_free(text);
    return st;
}

static enum ax_status write_tokenizer(const char *dir, const struct ax_gguf_model *m) {
    struct ax_tokenizer *t = NULL;
    struct ax_buf text = {0};
    json_t *config = NULL;
    enum ax_status st;
    AX_TRY_GOTO(ax_tokenizer_load_gguf(&t, m->file), st, done);
    AX_TRY_GOTO(ax_gguf_tokenizer_json(m->file, t, &text), st, done);
    AX_TRY_GOTO(write_text(dir, "tokenizer.json", text.data, text.len), st, done);
    AX_TRY_GOTO(tokenizer_config(&config, m, t), st, done);
    AX_TRY_GOTO(write_json(dir, "tokenizer_config.json", config), st, done);
done:
    json_decref(config);
    ax_buf_free(&text);
    ax_tokenizer_free(t);
    return st;
}

static enum ax_status write_generation_config(const char *dir, const struct ax_gguf_model *m) {
    json_t *config;
    AX_TRY(ax_gguf_model_generation_config(m, &config));
    const enum ax_status st = write_json(dir, "generation_config.json", config);
    json_decref(config);
    return st;
}

static enum ax_status write_model(const char *dir, const struct ax_gguf_model *m,
                                  struct ax_hf_save *save) {
    json_t *config;
    AX_TRY(ax_gguf_model_config(m, &config));
    save->dir = dir;
    save->config = config;
    const enum ax_status st = ax_hf_write_into(dir, save);
    json_decref(config);
    return st;
}

/* The small files come first: their errors appear before gigabytes are written. */
static enum ax_status write_folder(const char *dst, const struct ax_gguf_model *m,
                                   struct ax_hf_save *save) {
    struct ax_folder folder = {0};
    enum ax_status st;
    AX_TRY(ax_folder_begin(&folder, dst));
    AX_TRY_GOTO(write_tokenizer(folder.tmp, m), st, done);
    AX_TRY_GOTO(write_generation_config(folder.tmp, m), st, done);
    AX_TRY_GOTO(write_model(folder.tmp, m, save), st, done);
    AX_TRY_GOTO(ax_folder_commit(&folder), st, done);
done:
    if (st != AX_OK)
        ax_folder_abort(&folder);
    return st;
}

static const enum ax_dtype dtypes[] = {AX_F32, AX_BF16, AX_F16};

enum ax_status ax_convert_dtype(const char *name, enum ax_dtype *out) {
    const enum ax_status st = ax_dtype_parse(name, out);
    for (size_t i = 0; st == AX_OK && i < sizeof dtypes / sizeof *dtypes; i++)
        if (*out == dtypes[i])
            return AX_OK;
    return ax_error(AX_ERR_CONFIG, "--dtype: expected float32, bfloat16 or float16, got \"%s\"",
                    name);
}

const char *ax_convert_dtype_name(size_t i) {
    return i < sizeof dtypes / sizeof *dtypes ? ax_dtype_info(dtypes[i])->name : NULL;
}

static enum ax_status pick_dtype(struct ax_convert *c, const struct ax_gguf_model *m) {
    c->written = ax_gguf_model_dtype(m);
    return c->dtype ? ax_convert_dtype(c->dtype, &c->written) : AX_OK;
}

enum ax_status ax_convert_gguf_to_hf(struct ax_convert *c) {
    struct ax_gguf g = {0};
    struct ax_gguf_model m;
    struct ax_gguf_weights w = {0};
    enum ax_status st;
    AX_TRY(ax_folder_check_new(c->dst));
    AX_TRY_GOTO(ax_gguf_open(&g, c->src), st, done);
    AX_TRY_GOTO(ax_gguf_model_read(&m, &g), st, done);
    AX_TRY_GOTO(pick_dtype(c, &m), st, done);
    AX_TRY_GOTO(ax_gguf_weights_create(&w, &m, c->written), st, done);
    struct ax_hf_save save = {.dtype = c->written, .n = w.n, .tensors = w.outputs};
    AX_TRY_GOTO(write_folder(c->dst, &m, &save), st, done);
    c->model_type = m.kind->model_type;
    c->tensors = w.n;
    c->weights = w.numel;
done:
    ax_gguf_weights_free(&w);
    ax_gguf_close(&g);
    return st;
}

enum ax_status ax_convert_gguf_link(const char *gguf, const char *dst) {
    struct ax_gguf g;
    struct ax_gguf_model m;
    AX_TRY(ax_gguf_open(&g, gguf));
    enum ax_status st;
    AX_TRY_GOTO(ax_gguf_model_read(&m, &g), st, done);
    struct ax_hf_save save = {.dtype = ax_gguf_model_dtype(&m), .gguf = gguf};
    AX_TRY_GOTO(write_folder(dst, &m, &save), st, done);
done:
    ax_gguf_close(&g);
    return st;
}
