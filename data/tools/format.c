#include "data/tools/format.h"

#include <ctype.h>
#include <string.h>

#include "base/text/unicode.h"
#include "data/tools/scan.h"
#include "data/tools/schema.h"

/* ---- the table ---- */

#define THINK .think_open = "<think>", .think_close = "</think>"

static const struct ax_tool_format formats[] = {
    {.name = "hermes",
     .families = "Qwen2.5, Qwen3, Hermes",
     THINK,
     .reasoning = "reasoning_content",
     .open = "<tool_call>",
     .read = ax_tool_read_hermes,
     .call = {.before = "<tool_call>\n{\"name\": \"",
              .after = "\", \"arguments\":",
              .end = "}\n</tool_call>"}},
    {.name = "qwen3_coder",
     .families = "Qwen3-Coder, Qwen3.5, Nemotron 3",
     THINK,
     .reasoning = "reasoning_content",
     .open = "<tool_call>",
     .read = ax_tool_read_qwen3_coder,
     .call = {.before = "<tool_call>\n<function=",
              .after = ">\n",
              .end = "</function>\n</tool_call>",
              .key = "<parameter=",
              .equals = ">\n",
              .value_end = "\n</parameter>\n",
              .between = "",
              .text = "",
              .text_end = "</parameter>\n",
              .without = "<",
              .nests = true}},
    {.name = "glm",
     .families = "GLM-4.5 and later",
     THINK,
     .reasoning = "reasoning_content",
     .open = "<tool_call>",
     .read = ax_tool_read_glm,
     .stops = {"<|observation|>"},
     .call = {.before = "<tool_call>",
              .after = "\n",
              .end = "</tool_call>",
              .key = "<arg_key>",
              .equals = "</arg_key>\n<arg_value>",
              .value_end = "</arg_value>\n",
              .between = "",
              .text = "",
              .text_end = "</arg_value>\n",
              .without = "<",
              .nests = true}},
    {.name = "llama",
     .families = "Llama 3.1 to 3.3",
     .reasoning = "reasoning_content",
     .read = ax_tool_read_llama,
     .stops = {"<|eom_id|>"},
     .begin = "{",
     .call = {.before = "{\"name\": \"", .after = "\", \"parameters\":", .end = "}"}},
    {.name = "mistral",
     .families = "Mistral",
     .think_open = "[THINK]",
     .think_close = "[/THINK]",
     .reasoning = "reasoning_content",
     .open = "[TOOL_CALLS]",
     .read = ax_tool_read_mistral,
     .short_ids = true,
     .call = {.before = "[TOOL_CALLS] [{\"name\": \"", .after = "\", \"arguments\":", .end = "}]"}},
    {.name = "deepseek",
     .families = "DeepSeek V3 and R1",
     THINK,
     .reasoning = "reasoning_content",
     .open = "<｜tool▁calls▁begin｜>",
     .read = ax_tool_read_deepseek,
     .call = {.before = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>",
              .after = "\n```json\n",
              .end = "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"}},
    {.name = "harmony",
     .families = "gpt-oss",
     .reasoning = "thinking",
     .read = ax_tool_read_harmony,
     .stops = {"<|call|>", "<|return|>"},
     .begin = "",
     .call = {.before = "<|channel|>commentary to=functions.",
              .after = " <|constrain|>json<|message|>",
              .end = ""}},
    {.name = "gemma4",
     .families = "Gemma 4",
     .think_open = "<|channel>thought",
     .think_close = "<channel|>",
     .reasoning = "reasoning_content",
     .open = "<|tool_call>",
     .read = ax_tool_read_gemma4,
     .stops = {"<|tool_response>"},
     .call = {.before = "<|tool_call>call:",
              .after = "{",
              .end = "}<tool_call|>",
              .key = "",
              .equals = ":",
              .value_end = "",
              .between = ",",
              .text = "<|\"|>",
              .text_end = "<|\"|>",
              .without = "<"}},
    {.name = "lfm2",
     .families = "LFM2",
     THINK,
     .reasoning = "thinking",
     .open = "<|tool_call_start|>",
     .read = ax_tool_read_lfm2,
     .call = {.before = "<|tool_call_start|>[",
              .after = "(",
              .end = ")]<|tool_call_end|>",
              .key = "",
              .equals = "=",
              .value_end = "",
              .between = ", ",
              .text = "\"",
              .text_end = "\"",
              .without = "\"\\"}},
    {.name = "pythonic",
     .families = "Llama 4, where it is prompted for Python",
     .reasoning = "reasoning_content",
     .read = ax_tool_read_pythonic,
     .stops = {"<|eom|>"},
     .begin = "[",
     .call = {.before = "[",
              .after = "(",
              .end = ")]",
              .key = "",
              .equals = "=",
              .value_end = "",
              .between = ", ",
              .text = "\"",
              .text_end = "\"",
              .without = "\"\\"}},
};
#define N_FORMATS ((int)(sizeof formats / sizeof *formats))

const struct ax_tool_format *ax_tool_format_at(int i) {
    return i < N_FORMATS ? &formats[i] : NULL;
}

const struct ax_tool_format *ax_tool_format_find(const char *name) {
    for (int i = 0; i < N_FORMATS; i++)
        if (strcmp(formats[i].name, name) == 0)
            return &formats[i];
    return NULL;
}

/* ---- thoughts, text and calls ---- */

/* Thoughts come first: a mark in one is part of it, and one that is not closed takes all that follows. */
static bool read_thought(struct ax_tool_scan *s, const struct ax_tool_format *f) {
    if (!f->think_open)
        return true;
    const size_t open = ax_turn_find(s, 0, f->think_open);
    const size_t close = ax_turn_find(s, 0, f->think_close);
    const bool inside = s->t->thinks || (close != AX_TURN_NONE && close < open);
    if (!inside && open == AX_TURN_NONE)
        return true;
    const size_t call = f->open ? ax_turn_find(s, 0, f->open) : AX_TURN_NONE;
    if (!inside && call < open)
        return true;
    const size_t from = inside ? 0 : open + strlen(f->think_open);
    const size_t end = inside ? close : ax_turn_find(s, from, f->think_close);
    s->at = end == AX_TURN_NONE ? s->t->n : end + strlen(f->think_close);
    return (inside || ax_turn_put(s, &s->content, 0, open)) &&
           ax_turn_put(s, &s->thought, from, end == AX_TURN_NONE ? s->t->n : end);
}

static bool read_turn(struct ax_tool_scan *s, const struct ax_tool_format *f) {
    if (!read_thought(s, f))
        return false;
    if (!f->open)
        return f->read(s);
    for (;;) {
        const size_t call = ax_turn_find(s, s->at, f->open);
        if (!ax_turn_put(s, &s->content, s->at, call == AX_TURN_NONE ? s->t->n : call))
            return false;
        if (call == AX_TURN_NONE)
            return true;
        s->at = call + strlen(f->open);
        if (!f->read(s))
            return false;
    }
}

static json_t *trimmed(const struct ax_buf *b) {
    const char *s = b->data ? b->data : "";
    size_t n = b->len;
    for (; n > 0 && isspace((unsigned char)*s); n--)
        s++;
    while (n > 0 && isspace((unsigned char)s[n - 1]))
        n--;
    return json_stringn(s, n);
}

static json_t *message_of(struct ax_tool_scan *s, const struct ax_tool_format *f) {
    json_t *m = json_pack("{s:s, s:o}", "role", "assistant", "content", trimmed(&s->content));
    json_t *thought = trimmed(&s->thought);
    bool ok = m && thought;
    if (ok && json_string_length(thought) > 0)
        ok = json_object_set(m, f->reasoning, thought) == 0;
    if (ok && json_array_size(s->calls) > 0)
        ok = json_object_set(m, "tool_calls", s->calls) == 0;
    json_decref(thought);
    if (ok)
        return m;
    json_decref(m);
    return NULL;
}

/* What is quoted may end inside of a character. */
static bool say_error(const char *error, char out[AX_TOOL_ERROR]) {
    struct ax_buf text = {0};
    const bool ok = ax_utf8_repair(&text, error, strlen(error)) == AX_OK;
    size_t n = text.len < AX_TOOL_ERROR ? text.len : AX_TOOL_ERROR - 1;
    while (n < text.len && ((unsigned char)text.data[n] & 0xC0) == 0x80)
        n--;
    memcpy(out, ok && n > 0 ? text.data : "", n);
    out[n] = '\0';
    ax_buf_free(&text);
    return ok;
}

enum ax_status ax_tool_read(const struct ax_tool_format *f, const struct ax_tool_text *t,
                            const json_t *tools, struct ax_tool_turn *out) {
    struct ax_tool_scan s = {.t = t, .calls = json_array()};
    *out = (struct ax_tool_turn){0};
    const bool read = s.calls && read_turn(&s, f);
    bool ok = s.calls && !s.no_memory;
    if (ok && read)
        ok = ax_tool_coerce(s.calls, tools);
    if (ok)
        out->message = read ? message_of(&s, f)
                            : json_pack("{s:s, s:s%}", "role", "assistant", "content", t->s, t->n);
    if (ok && !read)
        ok = say_error(s.error, out->error);
    out->calls = json_object_get(out->message, "tool_calls");
    ax_buf_free(&s.thought);
    ax_buf_free(&s.content);
    json_decref(s.calls);
    return ok && out->message ? AX_OK : ax_error(AX_ERR_NOMEM, "out of memory for a turn");
}

const char *ax_tool_thought(const json_t *message) {
    const char *thought = NULL;
    for (int i = 0; !thought && i < N_FORMATS; i++)
        thought = json_string_value(json_object_get(message, formats[i].reasoning));
    return thought ? thought : "";
}

void ax_tool_turn_free(struct ax_tool_turn *t) {
    json_decref(t->message);
    *t = (struct ax_tool_turn){0};
}

/* ---- ids → text ---- */

/* A token that looks like a mark. */
static bool is_own_token(const struct ax_tokenizer *t, int32_t id) {
    size_t n;
    const char *token = ax_tokenizer_token(t, id, &n);
    return token && n > 2 &&
           ((token[0] == '<' && token[n - 1] == '>') || (token[0] == '[' && token[n - 1] == ']'));
}

enum ax_status ax_tool_decode(const struct ax_tokenizer *t, const int32_t *ids, size_t n,
                              struct ax_buf *text, struct ax_buf *owned) {
    for (size_t i = 0, k; i < n; i = k) {
        const size_t before = text->len;
        const bool own = is_own_token(t, ids[i]);
        for (k = i + 1; k < n && !own && !is_own_token(t, ids[k]);)
            k++;
        AX_TRY(ax_tokenizer_decode(t, ids + i, k - i, false, text));
        for (size_t b = before; b < text->len; b++)
            AX_TRY(ax_buf_append(owned, own ? "\1" : "\0", 1));
    }
    AX_TRY(ax_buf_puts(text, ""));
    return ax_buf_puts(owned, "");
}
