/* Chat templates: messages → text, as Jinja2 does it inside transformers (ImmutableSandboxed-
 * Environment, trim_blocks, lstrip_blocks, loop controls, generation blocks), byte for byte.
 *
 * A template is compiled once and rendered often; the compiled one never changes and may be used
 * by several threads at once. Both are bounded: a hostile template ends with an error.
 *
 * Reading order: template.c (compiling and rendering, over data/jinja/), chat.c (messages),
 * folder.c and tokens.c (a model folder's templates and special tokens), named.c (the built-in
 * templates). */
#ifndef AX_DATA_TEMPLATE_TEMPLATE_H
#define AX_DATA_TEMPLATE_TEMPLATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/tokenizer/span.h"

struct ax_template;

/* `name` stands in messages ("NAME:LINE: what"). AX_ERR_DATA on bad syntax, unknown filters, tags
 * that need other templates, or a source beyond AX_TEMPLATE_MAX_SOURCE. */
#define AX_TEMPLATE_MAX_SOURCE ((size_t)1 << 20)
enum ax_status ax_template_compile(struct ax_template **out, const char *name, const char *source,
                                   size_t len);
void ax_template_free(struct ax_template *t); /* NULL is fine */

/* Without generation blocks a template gives no spans to train on: say so. */
bool ax_template_has_generation(const struct ax_template *t);
/* Does an attribute or a string literal of the template equal `word`? Tells whether it can read a
 * message key. */
bool ax_template_mentions(const struct ax_template *t, const char *word);
/* The source as given, for writing it beside a model; *len bytes. */
const char *ax_template_source(const struct ax_template *t, size_t *len);

/* Zero fields take the defaults. */
struct ax_template_options {
    /* The variables are a chat, as transformers' apply_chat_template hands it over: members of a
     * message that are null are dropped; its reasoning (reasoning_content, thinking or reasoning)
     * is stored under the first two names; tools and documents are none and add_generation_prompt
     * is false where they are absent. */
    bool chat;
    const json_t *defaults; /* object: names that vars lacks, as special tokens; may be NULL */
    bool fixed_now;         /* strftime_now shows `now` instead of the clock, as local time */
    int64_t now;            /* Unix time */
    uint64_t max_steps;     /* 200 million nodes, items and 64-byte pieces of text */
    size_t max_memory;      /* 512 MiB beside the output; less for a short text of variables */
    size_t max_output;      /* 256 MiB; less for a short text of variables */
    int max_depth;          /* 5000 nodes on the way from the root to the one at work */
};

struct ax_template_output {
    char *text; /* UTF-8, NUL-terminated */
    size_t len;
    struct ax_span *spans; /* generation blocks in code points, in the order in which they ended */
    size_t n_spans;
};

/* Renders with the members of `vars` (an object) as variables; text is borrowed from it meanwhile.
 * AX_ERR_DATA "NAME:LINE: message" where the template refuses (raise_exception) or fails: then
 * there is no output. `options` may be NULL. */
enum ax_status ax_template_render(const struct ax_template *t, const json_t *vars,
                                  const struct ax_template_options *options,
                                  struct ax_template_output *out);
/* The same from JSON text that ax_json_parse has accepted: an object of variables, or a list of
 * messages. The chat rules of the options apply by themselves where there are messages. */
enum ax_status ax_template_render_text(const struct ax_template *t, const char *json, size_t len,
                                       const struct ax_template_options *options,
                                       struct ax_template_output *out);
void ax_template_output_free(struct ax_template_output *out); /* zeroed is fine */

/* ---- templates of a model folder ---- */

/* The template that transformers would take: chat_template.jinja and additional_chat_templates/
 * before tokenizer_config.json, and chat_template.json last; among several the one called `name`,
 * or with NULL tool_use (when tools are given) or default. AX_ERR_DATA where there is none. */
enum ax_status ax_template_from_folder(struct ax_template **out, const char *dir, const char *name,
                                       bool with_tools);
/* All its templates as they are written: {"default": "…", "tool_use": "…"}, empty where there are
 * none. Free with json_decref. */
enum ax_status ax_template_folder_sources(json_t **out, const char *dir);
/* The special tokens of the folder that are set: {"bos_token": "<s>", …}. Empty without
 * tokenizer_config.json. Free with json_decref. */
enum ax_status ax_template_folder_tokens(json_t **out, const char *dir);

/* ---- built-in templates (chat_template: NAME in a config) ---- */

/* AX_ERR_CONFIG for an unknown name; lists them. */
enum ax_status ax_template_builtin(struct ax_template **out, const char *name);
/* Their names; NULL past the last. */
const char *ax_template_name(size_t i);

#endif
