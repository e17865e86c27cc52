/* The text side of a folder: how a model or adapter reads and writes text. */
#ifndef AX_DATA_TEXT_TEXT_SIDE_H
#define AX_DATA_TEXT_TEXT_SIDE_H

#include "data/text/stop_tokens.h"
#include "data/text/template/template.h"
#include "data/text/tokenizer/tokenizer.h"

struct ax_text_side {
    char *folder;
    struct ax_tokenizer *tokenizer;
    struct ax_template *template; /* NULL: none */
    struct ax_template *tool_use; /* the template for conversations with tools; NULL: `template` */
    json_t *tokens;               /* special tokens for the template */
    struct ax_stop_tokens stop;
};
/* `model`: the model's folder, possibly this one; its settings also define ends of answers. */
enum ax_status ax_text_side_open(struct ax_text_side *s, const char *folder, const char *model);
void ax_text_side_close(struct ax_text_side *s); /* safe on a zeroed one */
/* Did training save a tokenizer with the weights? */
bool ax_text_side_is_in(const char *folder);
/* Have two folders the same tokenizer and template, byte by byte? */
enum ax_status ax_text_side_same(const char *a, const char *b, bool *same);

/* The template for a conversation, with or without definitions of tools. */
const struct ax_template *ax_text_side_template(const struct ax_text_side *s, const json_t *tools);
/* The error about the template that the folder lacks; AX_OK if it has one. */
enum ax_status ax_text_side_need_template(const struct ax_text_side *s);
/* Appends the ids of `text` as the model expects a text (with BOS if it has one). */
enum ax_status ax_text_side_encode(const struct ax_text_side *s, const char *text, size_t len,
                                   struct ax_encoding *out);

/* A conversation, and what is asked of the template for it. */
struct ax_chat_prompt {
    const json_t *messages;
    const json_t *tools;     /* a list of definitions; NULL: none */
    const json_t *variables; /* more variables of the template, an object; NULL: none */
    bool bare;               /* without the start of an answer */
    bool continues;          /* ends where the content of the last message ends; `bare` */
    unsigned *lost;          /* gets the bits of what the template leaves out
                       (data/records/format/tools.h); NULL: not requested */
};
/* Renders it with the template up to the start of the answer; *text is zeroed, and to be freed either way. */
enum ax_status ax_text_side_render_chat(const struct ax_text_side *s,
                                        const struct ax_chat_prompt *p,
                                        struct ax_template_output *text);
/* Appends the ids of that text. */
enum ax_status ax_text_side_encode_chat(const struct ax_text_side *s,
                                        const struct ax_chat_prompt *p, struct ax_encoding *out);

#endif
