/* What a conversation has of tools: their definitions, the calls in messages, and the results; and
 * what of that a chat template leaves out. */
#ifndef AX_DATA_RECORDS_FORMAT_TOOLS_H
#define AX_DATA_RECORDS_FORMAT_TOOLS_H

#include "base/mem.h"
#include "data/records/format/example.h"
#include "data/text/template/template.h"

/* What a warning recommends: built-in templates that write all of it. */
#define AX_TOOLS_REMEDY "set chat_template to one that writes them, such as qwen3 or llama4"

/* The definitions in a column, a list or JSON text of one, into *out, to be freed; schemas may be JSON
 * in strings. A missing column, or a blank one, leaves *out alone; where `tools` is missing, a column
 * `functions` counts, as OpenAI had it before. */
enum ax_status ax_tools_read(json_t *record, const char *column, json_t **out);
/* The column by which records choose an environment, as in TRL. */
#define AX_TOOLS_CHOICE "environment"
/* Definitions in place of a record's own, of ax_format_chat.tools; borrowed. NULL: there are none. */
enum ax_status ax_tools_given(const json_t *given, const json_t *record, json_t **out);
/* Parses arguments that are JSON in strings. */
enum ax_status ax_tools_parse_calls(json_t *message);
/* Do messages have calls? */
bool ax_tools_are_called(const json_t *messages);
/* Does this member of a message hold calls, at least one? */
bool ax_tools_are_calls(const char *key, const json_t *v);

/* Sets the bits 1 << AX_ODD_TOOLS, _CALLS, _RESULTS of what `text`, rendered from vars with these
 * options, would be the same without: found by rendering again with other names and results. */
enum ax_status ax_tools_find_lost(const struct ax_template *t, const json_t *vars,
                                  const struct ax_template_options *o,
                                  const struct ax_template_output *text, unsigned *lost);
/* Appends "the chat template T leaves out the tool calls of 3 conversations (the first is FILE:LINE)"
 * for what was counted ([AX_ODDITIES]); nothing if that is nothing. */
enum ax_status ax_tools_put_lost(struct ax_buf *out, const struct ax_template *t,
                                 const struct ax_oddities *counted, char *const *files,
                                 size_t n_files);

#endif
