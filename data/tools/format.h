/* Families' formats of tool calls: what a model writes to call a tool, read from the text of one sampled turn.
 *
 *   hermes        <tool_call>\n{"name": …, "arguments": {…}}\n</tool_call>
 *   qwen3_coder   <tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n</function>\n</tool_call>
 *   glm           <tool_call>NAME\n<arg_key>KEY</arg_key>\n<arg_value>VALUE</arg_value>\n</tool_call>
 *   llama         {"name": …, "parameters": {…}} at the end of the turn
 *   mistral       [TOOL_CALLS] [{"name": …, "arguments": {…}, "id": …}], or [TOOL_CALLS]NAME[ARGS]{…}
 *   deepseek      <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME\n```json\n{…}\n```<｜tool▁call▁end｜>…
 *   harmony       <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>
 *   gemma4        <|tool_call>call:NAME{key:<|"|>text<|"|>,…}<tool_call|>
 *   lfm2          <|tool_call_start|>[name(key='text', …)]<|tool_call_end|>
 *   pythonic      [name(key='text', …), …] as the turn
 *
 * What is read comes from a model: any bytes are a turn. Calls inside a thought are part of it. A call counts
 * only if its closing mark is there and all of it can be read; else the turn has none, and says why.
 *
 * Reading order: format.c (the table; thoughts, text and calls of a turn), json_calls.c, tag_calls.c,
 * literal_calls.c (what is between the marks), scan.h. */
#ifndef AX_DATA_TOOLS_FORMAT_H
#define AX_DATA_TOOLS_FORMAT_H

#include <jansson.h>
#include <stdbool.h>

#include "data/text/tokenizer/tokenizer.h"

struct ax_tool_scan;

/* How a call that must be made is written: `before`, the tool's name, `after`, its arguments, `end`. Arguments are one
 * object in JSON, or have marks of their own: `key`, the argument's name, `equals`, its value, and `between` two. A value
 * is a text between `text` and `text_end`, or JSON before `value_end`. */
struct ax_tool_call_form {
    const char *before, *after, *end;
    const char *key; /* NULL: arguments are one object, and all below is unset */
    const char *equals, *value_end, *between;
    const char *text, *text_end;
    const char *without; /* bytes that no text has */
    bool nests;          /* lists and objects may be values */
};

struct ax_tool_format {
    const char *name, *families;          /* the second is for people */
    const char *think_open, *think_close; /* NULL: thoughts are not marked, or `read` reads them */
    const char *reasoning;                /* a message's key for them, as in TRL */
    const char *open;                     /* mark of a call; NULL: `read` reads the whole turn */
    /* Reads what follows the mark, up to the end of the call. False: it cannot, and says why. */
    bool (*read)(struct ax_tool_scan *s);
    const char *stops[2]; /* tokens that end a turn with calls, beside EOS; NULL: none */
    const char *begin; /* without a mark: what a call begins with; "": the turn has no other text */
    bool short_ids;    /* ids of calls are nine letters and digits */
    struct ax_tool_call_form call;
};
/* Format number i, NULL after the last; by name, or NULL. */
const struct ax_tool_format *ax_tool_format_at(int i);
const struct ax_tool_format *ax_tool_format_find(const char *name);

/* A turn's text, special tokens included, without the stop token at its end. */
struct ax_tool_text {
    const char *s; /* [n], NUL-terminated */
    size_t n;
    bool thinks; /* it begins inside a thought */
    /* With a tokenizer, a mark that has a token of its own counts only where that token was sampled:
     * owned[i] is nonzero for bytes of such tokens. NULL: marks count wherever they are. */
    const struct ax_tokenizer *tokenizer;
    const unsigned char *owned; /* [n] */
};

#define AX_TOOL_ERROR 256
struct ax_tool_turn {
    /* {"role": "assistant", "content", "reasoning_content"?, "tool_calls"?}; owned */
    json_t *message;
    const json_t *
        calls; /* the message's "tool_calls": [{"type", "function": {"name", "arguments"}}]; NULL: none */
    /* why calls could not be read; "": there is no such call. Then the message has none. */
    char error[AX_TOOL_ERROR];
};
/* `tools`: definitions, whose schemas say which type an argument that was given as text has. */
enum ax_status ax_tool_read(const struct ax_tool_format *f, const struct ax_tool_text *t,
                            const json_t *tools, struct ax_tool_turn *out);
/* What a message has of a thought, by the key of any format; "": nothing. */
const char *ax_tool_thought(const json_t *message);
void ax_tool_turn_free(struct ax_tool_turn *t); /* safe on a zeroed one */

/* The text of a sampled turn, with its marks; free both with ax_buf_free. */
enum ax_status ax_tool_decode(const struct ax_tokenizer *t, const int32_t *ids, size_t n,
                              struct ax_buf *text, struct ax_buf *owned);

#endif
