/* A position in the text of a turn, for readers of formats. Private to data/tools/. */
#ifndef AX_DATA_TOOLS_SCAN_H
#define AX_DATA_TOOLS_SCAN_H

#include "base/mem.h"
#include "data/tools/format.h"

struct ax_tool_scan {
    const struct ax_tool_text *t;
    size_t at;                      /* byte */
    struct ax_buf thought, content; /* what is no call */
    json_t *calls;                  /* as in a message */
    bool no_memory;
    char error[AX_TOOL_ERROR];
};

#define AX_TURN_NONE SIZE_MAX

/* False, always; the first reason counts. */
bool ax_turn_fail(struct ax_tool_scan *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Where the mark is at or after `from`; AX_TURN_NONE: nowhere. */
size_t ax_turn_find(const struct ax_tool_scan *s, size_t from, const char *mark);
/* Skips the mark, or these words, if they are next. */
bool ax_turn_mark(struct ax_tool_scan *s, const char *mark);
bool ax_turn_word(struct ax_tool_scan *s, const char *word);
/* Skips a mark that must be next, after blanks. */
bool ax_turn_close(struct ax_tool_scan *s, const char *mark);
void ax_turn_blanks(struct ax_tool_scan *s);
static inline bool ax_turn_ended(const struct ax_tool_scan *s) {
    return s->at == s->t->n;
}
static inline char ax_turn_next(const struct ax_tool_scan *s) {
    return s->t->s[s->at]; /* NUL at the end */
}
/* A JSON value, which the caller frees; strict, but of equal keys the last counts. */
bool ax_turn_json(struct ax_tool_scan *s, json_t **out);
/* Appends a call. `arguments` are taken, also on failure; NULL or null: none. `id`: NULL, or as sampled. */
bool ax_turn_call(struct ax_tool_scan *s, const char *name, size_t n, json_t *arguments,
                  const json_t *id);
/* Appends a call written as {"name": …, "arguments": {…}} (or "parameters", or "id" beside them). */
bool ax_turn_call_object(struct ax_tool_scan *s, const json_t *v);
bool ax_turn_put(struct ax_tool_scan *s, struct ax_buf *to, size_t from, size_t end);

/* Readers, by the names of formats. */
bool ax_tool_read_hermes(struct ax_tool_scan *s);
bool ax_tool_read_llama(struct ax_tool_scan *s);
bool ax_tool_read_mistral(struct ax_tool_scan *s);
bool ax_tool_read_deepseek(struct ax_tool_scan *s);
bool ax_tool_read_harmony(struct ax_tool_scan *s);
bool ax_tool_read_qwen3_coder(struct ax_tool_scan *s);
bool ax_tool_read_glm(struct ax_tool_scan *s);
bool ax_tool_read_gemma4(struct ax_tool_scan *s);
bool ax_tool_read_lfm2(struct ax_tool_scan *s);
bool ax_tool_read_pythonic(struct ax_tool_scan *s);

#endif
