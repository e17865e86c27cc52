/* Chat templates: messages → text, byte for byte as Jinja2 in transformers
 * (ImmutableSandboxedEnvironment, trim_blocks, lstrip_blocks, loop controls, generation blocks).
 *
 * A template is compiled once and rendered often; a compiled one is constant and may be used by
 * several threads. Both steps are bounded: a hostile template ends with an error.
 *
 * Reading order: template.c (compiling and rendering, over data/text/jinja/), chat.c (messages),
 * folder.c and tokens.c (a model folder's templates and special tokens), named.c (built-in
 * templates), mistral.c (Mistral's own formats). */
#ifndef AX_DATA_TEXT_TEMPLATE_TEMPLATE_H
#define AX_DATA_TEXT_TEMPLATE_TEMPLATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/text/tokenizer/span.h"

struct ax_template;

/* `name` appears in messages ("NAME:LINE: what"). AX_ERR_DATA on bad syntax, unknown filters, tags
 * that need other templates, or a source larger than AX_TEMPLATE_MAX_SOURCE. */
#define AX_TEMPLATE_MAX_SOURCE ((size_t)1 << 20)
enum ax_status ax_template_compile(struct ax_template **out, const char *name, const char *source,
                                   size_t len);
void ax_template_free(struct ax_template *t); /* safe on NULL */

/* Without generation blocks, a template has no spans to train on: warn. */
bool ax_template_has_generation(const struct ax_template *t);
/* True if an attribute or string literal in the template equals `word`, so that it may read a
 * message key of this name. */
bool ax_template_mentions(const struct ax_template *t, const char *word);
/* True if it writes a content that is a list of parts as their texts, and not as a list. */
bool ax_template_takes_parts(const struct ax_template *t);
/* The name of the template in messages. */
const char *ax_template_where(const struct ax_template *t);
/* The original source, to save with a model; *len bytes. */
const char *ax_template_source(const struct ax_template *t, size_t *len);

/* Zero fields take the defaults. */
struct ax_template_options {
    /* The variables are a chat, treated as in transformers' apply_chat_template: null members of a
     * message are dropped; its reasoning (reasoning_content, thinking or reasoning) is stored under
     * the first two names; if missing, tools and documents are none and add_generation_prompt is
     * false. Where the template writes no content that is text, but lists of parts, as some of models with
     * a vision tower do, a text becomes a list of one part. */
    bool chat;
    const json_t *defaults; /* object: what vars lacks, such as special tokens; may be NULL */
    bool fixed_now;         /* strftime_now uses `now` instead of the clock, as local time */
    int64_t now;            /* Unix time */
    uint64_t max_steps;     /* 200 million nodes, items and 64-byte pieces of text */
    size_t max_memory;      /* 512 MiB beyond the output; less for short JSON text */
    size_t max_output;      /* 256 MiB; less for short JSON text */
    int max_depth;          /* 5000 nodes from the root to the current one */
};

struct ax_template_output {
    char *text; /* UTF-8, NUL-terminated */
    size_t len;
    struct ax_span *spans; /* generation blocks in code points, in the order of their ends */
    size_t n_spans;
};

/* Renders with the members of `vars` (an object) as variables; borrows its text meanwhile.
 * AX_ERR_DATA "NAME:LINE: message" if the template fails or calls raise_exception: then there is no
 * output. `options` may be NULL. */
enum ax_status ax_template_render(const struct ax_template *t, const json_t *vars,
                                  const struct ax_template_options *options,
                                  struct ax_template_output *out);
/* The same from JSON text accepted by ax_json_parse: an object of variables, or a list of messages.
 * The chat rules of the options apply automatically if there are messages. */
enum ax_status ax_template_render_text(const struct ax_template *t, const char *json, size_t len,
                                       const struct ax_template_options *options,
                                       struct ax_template_output *out);
void ax_template_output_free(struct ax_template_output *out); /* zeroes it; safe on a zeroed one */

/* ---- templates of a model folder ---- */

/* The template that transformers would use: chat_template.jinja and additional_chat_templates/,
 * then tokenizer_config.json, then chat_template.json. If there are several, the one called
 * `name`; if NULL, tool_use (if tools are given) or default; if the folder has none, the format of its
 * tekken.json or tokenizer.model.vN (mistral.h). AX_ERR_DATA if there is none. */
enum ax_status ax_template_from_folder(struct ax_template **out, const char *dir, const char *name,
                                       bool with_tools);
/* The one called tool_use, which is for conversations with tools; NULL if there is none. */
enum ax_status ax_template_tool_use(struct ax_template **out, const char *dir);
/* All templates of the folder: {"default": "…", "tool_use": "…"}, empty if none. Free with
 * json_decref. */
enum ax_status ax_template_folder_sources(json_t **out, const char *dir);
/* The special tokens set by the folder: {"bos_token": "<s>", …}. Empty without
 * tokenizer_config.json. Free with json_decref. */
enum ax_status ax_template_folder_tokens(json_t **out, const char *dir);

/* ---- built-in templates (chat_template: NAME in a config) ---- */

/* AX_ERR_CONFIG for an unknown name lists the known ones. */
enum ax_status ax_template_builtin(struct ax_template **out, const char *name);
/* Their names; NULL after the last. */
const char *ax_template_name(size_t i);

#endif
