/* The prompts of `axtrain generate`: one, or the records of a JSONL file. */
#ifndef AX_CMD_GENERATE_PROMPTS_H
#define AX_CMD_GENERATE_PROMPTS_H

#include "cmd/args/text_args.h"
#include "data/records/format/example.h"

struct ax_prompt {
    int64_t first, n; /* ids [first, first + n) */
    int64_t row;      /* index of the input record */
    int adapter;      /* AX_ADAPTER_NONE: without */
    json_t *given;    /* "prompt" or "messages", and "id", as in the record; owned */
    json_t *asked;    /* with `keep`: the text, or the messages; owned */
    json_t *messages; /* with `keep`: the messages; owned; NULL: a text */
    json_t *tools;    /* with `keep`: definitions of tools; owned; NULL: none */
};
struct ax_prompts {
    struct ax_oddities lost[AX_ODDITIES]; /* records whose tools a template leaves out */
    const struct ax_text_side *loser;     /* side whose template does; NULL: none */
    const struct ax_template *losing;     /* the template that does */
    struct ax_encoding ids;               /* ids of all prompts, concatenated */
    struct ax_prompt *list;
    int64_t n, longest, rows;
};

struct ax_prompts_source {
    const char *text; /* NULL: not given; beside a file, its content */
    size_t len;       /* length of the text */
    const char *
        file; /* name of a file of JSONL: {"prompt": "…"}, or {"messages": […]} (or as "prompt") and perhaps
                         "tools"; also "adapter"; or NULL */
    const char *system; /* system message for each conversation without one; NULL: none */
    bool chat;          /* treat a text as a user message */
    json_t *tools; /* definitions of tools in place of the records' own; borrowed; NULL: none */
    bool keep;     /* keep the question itself, not only its tokens */
    bool each;     /* each record becomes a prompt for the base and for each adapter */
};
/* Standard input without its last line end, \n or \r\n, for `text`. */
enum ax_status ax_prompts_read_input(struct ax_buf *text);
/* Either text or file. A record without an adapter uses the first one. */
enum ax_status ax_prompts_read(struct ax_prompts *p, const struct ax_text_model *t,
                               const struct ax_prompts_source *s);
void ax_prompts_free(struct ax_prompts *p);

#endif
