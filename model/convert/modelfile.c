/* Read ax_modelfile_write first, then `find_turns`. */
#include "model/convert/modelfile.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "base/io_path.h"
#include "data/text_side.h"

#define MAX_MESSAGES 8

/* Where fixed text goes: before a content, by the role of the message before it, and after the last
 * question. A NULL text means that there is no such place. */
enum place {
    BEGIN_SYSTEM,
    BEGIN_USER,
    SYSTEM_USER,
    USER_ANSWER,
    ANSWER_USER,
    QUESTION_END,
    PLACES
};
struct turns {
    char *text[PLACES];
};

static void turns_free(struct turns *t) {
    for (int i = 0; i < PLACES; i++)
        ax_free(t->text[i]);
}

/* The place before message i, or after the last one. `roles` has one letter per message: s, u or
 * a. */
static enum place place_of(const char *roles, size_t i) {
    if (!roles[i])
        return QUESTION_END;
    if (i == 0)
        return roles[0] == 's' ? BEGIN_SYSTEM : BEGIN_USER;
    return roles[i] == 'a' ? USER_ANSWER : roles[i - 1] == 's' ? SYSTEM_USER : ANSWER_USER;
}

/* ---- conversations ---- */

static void content_of(char out[16], size_t i) {
    snprintf(out, 16, "axtrain%cq", (char)('A' + i));
}

static json_t *messages_of(const char *roles) {
    json_t *list = json_array();
    for (size_t i = 0; list && roles[i]; i++) {
        char content[16];
        content_of(content, i);
        const char *role = roles[i] == 's' ? "system" : roles[i] == 'u' ? "user" : "assistant";
        if (json_array_append_new(list, json_pack("{ss ss}", "role", role, "content", content))) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static enum ax_status render(const struct ax_text_side *s, const char *roles, int64_t now,
                             struct ax_template_output *out) {
    const struct ax_template_options o = {
        .chat = true, .defaults = s->tokens, .fixed_now = true, .now = now};
    json_t *messages = messages_of(roles);
    json_t *vars = json_pack("{so sb}", "messages", messages, "add_generation_prompt", true);
    if (!vars)
        return ax_error(AX_ERR_NOMEM, "out of memory for a conversation");
    const enum ax_status st = ax_template_render(s->template, vars, &o, out);
    json_decref(vars);
    return st;
}

/* Takes the texts between the contents for places that have none yet; *found is false if a content
 * does not appear unchanged. */
static enum ax_status cut(struct turns *t, const char *roles, const char *text, bool *found) {
    const char *at = text;
    *found = true;
    for (size_t i = 0; *found && i <= strlen(roles); i++) {
        char content[16];
        content_of(content, i);
        const char *end = roles[i] ? strstr(at, content) : at + strlen(at);
        char **place = &t->text[place_of(roles, i)];
        *found = end != NULL;
        if (*found && !*place)
            AX_TRY(ax_strndup(place, at, (size_t)(end - at)));
        at = end ? end + (roles[i] ? strlen(content) : 0) : at;
    }
    return AX_OK;
}

/* True if the turns' texts produce this text for the conversation. */
static enum ax_status agrees(const struct turns *t, const char *roles, const char *text,
                             bool *same) {
    struct ax_buf b = {0};
    enum ax_status st = AX_OK;
    for (size_t i = 0; st == AX_OK && i <= strlen(roles); i++) {
        char content[16] = "";
        if (roles[i])
            content_of(content, i);
        const char *before = t->text[place_of(roles, i)];
        st = ax_buf_printf(&b, "%s%s", before ? before : "", content);
    }
    *same = st == AX_OK && strcmp(b.data, text) == 0;
    ax_buf_free(&b);
    return st;
}

/* ---- the template ---- */

/* Takes the texts of one conversation, then checks that they reproduce it. */
static enum ax_status learn(struct turns *t, const struct ax_text_side *s, const char *roles,
                            char why[512]) {
    struct ax_template_output text = {0}, later = {0};
    bool same = false;
    enum ax_status st = render(s, roles, 0, &text);
    if (st == AX_OK)
        st = render(s, roles, 1000000000, &later);
    if (st != AX_OK) {
        snprintf(why, 512, "%s", ax_error_text());
        if (st != AX_ERR_NOMEM) {
            ax_error_clear();
            st = AX_OK;
        }
        goto done;
    }
    if (strcmp(text.text, later.text) != 0) {
        snprintf(why, 512, "it contains the date");
        goto done;
    }
    AX_TRY_GOTO(cut(t, roles, text.text, &same), st, done);
    if (same)
        AX_TRY_GOTO(agrees(t, roles, text.text, &same), st, done);
    if (!same)
        snprintf(why, 512, "a conversation of %zu messages is not made of equal turns",
                 strlen(roles));
done:
    ax_template_output_free(&text);
    ax_template_output_free(&later);
    return st;
}

static enum ax_status find_turns(struct turns *t, const struct ax_text_side *s, char why[512]) {
    static const char *const plain[] = {"u", "uau", "uauau"}, *const with_system[] = {"su",
                                                                                      "suauau"};
    char no_system[512] = "";
    for (size_t i = 0; i < 3 && !why[0]; i++)
        AX_TRY(learn(t, s, plain[i], why));
    if (why[0])
        return AX_OK;
    AX_TRY(learn(t, s, with_system[0], no_system));
    if (no_system[0]) { /* some models accept no system message */
        ax_free(t->text[BEGIN_SYSTEM]);
        t->text[BEGIN_SYSTEM] = NULL;
        return AX_OK;
    }
    return learn(t, s, with_system[1], why);
}

/* Programs that read the file add BOS themselves if the tokenizer does, so the text must not begin
 * with it. */
static enum ax_status drop_bos(struct turns *t, const struct ax_text_side *s) {
    const char *bos = ax_tokenizer_special(s->tokenizer, AX_BOS);
    struct ax_encoding e = {0};
    AX_TRY(ax_text_side_encode(s, "a", 1, &e));
    const bool adds = bos && e.n > 0 && e.ids[0] == ax_tokenizer_special_id(s->tokenizer, AX_BOS);
    ax_encoding_free(&e);
    for (int i = BEGIN_SYSTEM; adds && i <= BEGIN_USER; i++) {
        char *text = t->text[i];
        const size_t n = strlen(bos);
        if (text && strncmp(text, bos, n) == 0)
            memmove(text, text + n, strlen(text + n) + 1);
    }
    return AX_OK;
}

/* Appends {{ "text" }}, which Go's trimming of spaces does not change. */
static enum ax_status put_text(struct ax_buf *b, const char *text) {
    if (!text || !*text)
        return AX_OK;
    AX_TRY(ax_buf_puts(b, "{{ \""));
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        if (*p == '\n')
            AX_TRY(ax_buf_puts(b, "\\n"));
        else if (*p == '"' || *p == '\\')
            AX_TRY(ax_buf_printf(b, "\\%c", *p));
        else if (iscntrl(*p))
            AX_TRY(ax_buf_printf(b, "\\x%02x", *p));
        else
            AX_TRY(ax_buf_printf(b, "%c", *p));
    return ax_buf_puts(b, "\" }}");
}

static enum ax_status put_template(struct ax_buf *b, const struct turns *t) {
    AX_TRY(ax_buf_puts(b, "\nTEMPLATE \"\"\"{{- $before := \"\" }}\n{{- range .Messages }}\n"));
    if (t->text[BEGIN_SYSTEM]) {
        AX_TRY(ax_buf_puts(b, "{{- if eq .Role \"system\" }}"));
        AX_TRY(put_text(b, t->text[BEGIN_SYSTEM]));
        AX_TRY(ax_buf_puts(b, "{{ .Content }}\n{{- else if eq .Role \"user\" }}\n"));
    } else {
        AX_TRY(ax_buf_puts(b, "{{- if eq .Role \"user\" }}\n"));
    }
    AX_TRY(ax_buf_puts(b, "{{- if eq $before \"\" }}"));
    AX_TRY(put_text(b, t->text[BEGIN_USER]));
    if (t->text[BEGIN_SYSTEM]) {
        AX_TRY(ax_buf_puts(b, "\n{{- else if eq $before \"system\" }}"));
        AX_TRY(put_text(b, t->text[SYSTEM_USER]));
    }
    AX_TRY(ax_buf_puts(b, "\n{{- else }}"));
    AX_TRY(put_text(b, t->text[ANSWER_USER]));
    AX_TRY(ax_buf_puts(b, "\n{{- end }}{{ .Content }}\n{{- else if eq .Role \"assistant\" }}"));
    AX_TRY(put_text(b, t->text[USER_ANSWER]));
    AX_TRY(ax_buf_puts(b, "{{ .Content }}\n{{- end }}\n{{- $before = .Role }}\n{{- end }}\n"
                          "{{- if ne $before \"assistant\" }}"));
    AX_TRY(put_text(b, t->text[QUESTION_END]));
    return ax_buf_puts(b, "{{ end }}\"\"\"\n");
}

static enum ax_status put_all(struct ax_buf *b, const struct ax_text_side *s, char why[512]) {
    struct turns t = {0};
    enum ax_status st = AX_OK;
    if (!s->template)
        snprintf(why, 512, "the model has none");
    else
        AX_TRY_GOTO(find_turns(&t, s, why), st, done);
    if (!why[0]) {
        AX_TRY_GOTO(drop_bos(&t, s), st, done);
        AX_TRY_GOTO(put_template(b, &t), st, done);
    }
    for (int i = 0; i < s->stop.n; i++) {
        size_t n;
        const char *token = ax_tokenizer_token(s->tokenizer, s->stop.ids[i], &n);
        if (token && n > 0 && !memchr(token, '"', n) && !memchr(token, '\n', n))
            AX_TRY_GOTO(ax_buf_printf(b, "PARAMETER stop \"%.*s\"\n", (int)n, token), st, done);
    }
done:
    turns_free(&t);
    return st;
}

enum ax_status ax_modelfile_path(char **out, const char *gguf) {
    char *parent;
    AX_TRY(ax_path_parent(&parent, gguf));
    const enum ax_status st = ax_path_join(out, parent, "Modelfile");
    ax_free(parent);
    return st;
}

enum ax_status ax_modelfile_write(const char *folder, const char *gguf, char why[512]) {
    struct ax_text_side s;
    struct ax_buf b = {0};
    size_t len;
    const char *name = ax_path_last(gguf, &len);
    char *path = NULL;
    why[0] = '\0';
    AX_TRY(ax_text_side_open(&s, folder, folder));
    enum ax_status st;
    AX_TRY_GOTO(ax_buf_printf(&b, "FROM ./%.*s\n", (int)len, name), st, done);
    AX_TRY_GOTO(put_all(&b, &s, why), st, done);
    AX_TRY_GOTO(ax_modelfile_path(&path, gguf), st, done);
    AX_TRY_GOTO(ax_write_file_atomic(path, b.data, b.len), st, done);
done:
    ax_free(path);
    ax_buf_free(&b);
    ax_text_side_close(&s);
    return st;
}
