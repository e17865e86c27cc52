/* Examples: the tokens that a format makes from a record, and labels that say which are trained on.
 *
 * Examples that belong together, such as a preferred and a rejected answer, form a group, which is
 * never split on the way to the step. Most groups have one example.
 *
 * Labels are not shifted: each is the token at its own position, or AX_NO_LABEL if it is not
 * trained on. */
#ifndef AX_DATA_RECORDS_FORMAT_EXAMPLE_H
#define AX_DATA_RECORDS_FORMAT_EXAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/records/format/columns.h"

enum { AX_NO_LABEL = -100 };

#define AX_EXAMPLE_TEXT_MAX ((size_t)1 << 20) /* bytes */

/* The source of an example. */
struct ax_origin {
    uint32_t file; /* for ax_rows_file */
    uint64_t line;
    int64_t record; /* index among all records */
};

/* Examples of sequence_len that a text of a completion fills at most; the rest of a longer one is dropped. */
#define AX_COMPLETION_EXAMPLES 64

/* What is probably a mistake in a conversation, though it can be trained on. */
enum ax_oddity {
    AX_ODD_ROLE,    /* a role that templates do not know */
    AX_ODD_START,   /* an assistant turn before any user turn */
    AX_ODD_TWICE,   /* two user turns in a row */
    AX_ODD_EMPTY,   /* an assistant turn without text or tool calls */
    AX_ODD_THOUGHT, /* an answer is trained on without its reasoning, which the template leaves out */
    AX_ODD_FLAG,  /* a turn is trained on that says otherwise, under a key that nobody has named */
    AX_ODD_TOOLS, /* definitions of tools that the template leaves out (tools.h) */
    AX_ODD_CALLS, /* calls of tools that it leaves out */
    AX_ODD_RESULTS, /* results of tools that it leaves out */
    AX_ODD_CUT,     /* a text of more than AX_COMPLETION_EXAMPLES, without its rest */
    AX_ODD_REST,    /* messages after the two that the type reads */
    AX_ODD_UNREAD,  /* a system text or earlier turns in columns that the type does not read */
    AX_ODD_END,     /* an answer of a preference that is truncated to sequence_len */
    /* The first of AX_ODD_NAMES names of the configuration that nothing in the record has
     * (ax_format_name_at); a mistake if no record has one. */
    AX_ODD_NAME,
    AX_ODD_NAMES = 19,
    AX_ODDITIES = AX_ODD_NAME + AX_ODD_NAMES
};
_Static_assert(AX_ODDITIES <= 32, "oddities are the bits of an unsigned");
#define AX_ODD_LOST (1U << AX_ODD_TOOLS | 1U << AX_ODD_CALLS | 1U << AX_ODD_RESULTS)

/* How many records have one oddity, and where the first one is. */
struct ax_oddities {
    int64_t n;
    int64_t file, line;
};
/* Counts a record's oddities, bits 1 << enum ax_oddity, in o[AX_ODDITIES]. */
void ax_oddities_count(struct ax_oddities *o, unsigned oddities, const struct ax_origin *origin);
/* Adds the counts more[AX_ODDITIES]. */
void ax_oddities_add(struct ax_oddities *o, const struct ax_oddities *more);

struct ax_example {
    const int32_t *tokens, *labels; /* [n] */
    size_t n;
    bool joined;       /* same group and record as the previous example */
    unsigned oddities; /* bits 1 << enum ax_oddity */
    struct ax_origin origin;
    const uint32_t *columns[AX_COLUMNS_MAX]; /* [1] or [n], times its width */
    const char *text; /* [n_text] bytes beside the tokens, such as its record; NULL: none */
    size_t n_text;
};

/* Where transformers and TRL read the score of a text of n > 0 tokens from a sequence classifier: at the last token that
 * is not `pad`; at the first one if all are; at the last one if `pad` is AX_NO_TOKEN. */
size_t ax_score_position(const int32_t *tokens, size_t n, int32_t pad);

/* Examples under construction, contiguous in memory; zero-initialize. */
struct ax_example_list {
    struct ax_example *items; /* [n]; their tokens and texts move when examples are added */
    size_t n, cap;
    int32_t *tokens, *labels; /* all items, then the open example */
    size_t n_tokens, cap_tokens, n_open;
    const struct ax_columns *columns; /* borrowed; NULL: none */
    uint32_t *words;                  /* all items, column after column */
    size_t n_words, cap_words;
    char *text; /* all items' */
    size_t n_text, cap_text;
};

/* Appends tokens to the open example. If labels is NULL, `trained` applies to all of them. */
enum ax_status ax_example_list_add(struct ax_example_list *l, const int32_t *tokens,
                                   const int32_t *labels, size_t n, bool trained);
/* Ends the open example, with zeros in its columns. An empty one is dropped. */
enum ax_status ax_example_list_end(struct ax_example_list *l, struct ax_origin origin);
/* A column's words for example i, to be written: [1] or [n], times its width. */
uint32_t *ax_example_list_words(struct ax_example_list *l, size_t i, int column);
/* Copies a column's values for example i. */
void ax_example_list_set(struct ax_example_list *l, size_t i, int column, const void *values);
/* Gives the last example its text, at most AX_EXAMPLE_TEXT_MAX bytes; it is copied. */
enum ax_status ax_example_list_text(struct ax_example_list *l, const char *text, size_t n);
/* Makes one group of the examples from item `first` on. */
void ax_example_list_group(struct ax_example_list *l, size_t first);
/* Drops the examples from item n on and the open one; keeps the memory. */
void ax_example_list_cut(struct ax_example_list *l, size_t n);
void ax_example_list_free(struct ax_example_list *l);

#endif
