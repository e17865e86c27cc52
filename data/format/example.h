/* Examples: what training learns from, made by a format from a record. Tokens, and labels that say
 * which of them are trained.
 *
 * What belongs together, as two answers of which one is preferred, is a group: never parted, from
 * here to the step. Most examples are groups of one.
 *
 * Labels stand at their own token (not shifted): the token itself where it is trained, AX_NO_LABEL
 * where it is not. */
#ifndef AX_DATA_FORMAT_EXAMPLE_H
#define AX_DATA_FORMAT_EXAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/format/columns.h"

enum { AX_NO_LABEL = -100 };

/* The record that an example comes from. */
struct ax_origin {
    uint32_t file; /* of ax_rows_file */
    uint64_t line;
    int64_t record; /* index among all records */
};

struct ax_example {
    const int32_t *tokens, *labels; /* [n] */
    size_t n;
    bool joined; /* of the group of the example before it, and of the same record */
    struct ax_origin origin;
    const uint32_t *columns[AX_COLUMNS_MAX]; /* of those there are: [1] or [n] */
};

/* Examples in the making, one after the other in memory; zero-initialize. */
struct ax_example_list {
    struct ax_example *items; /* [n]; their tokens move when examples are added */
    size_t n, cap;
    int32_t *tokens, *labels; /* of all items, then of the open example */
    size_t n_tokens, cap_tokens, n_open;
    const struct ax_columns *columns; /* borrowed; NULL: none */
    uint32_t *words;                  /* of all items, column after column */
    size_t n_words, cap_words;
};

/* Appends tokens to the open example. Labels may be NULL: then `trained` says for all. */
enum ax_status ax_example_list_add(struct ax_example_list *l, const int32_t *tokens,
                                   const int32_t *labels, size_t n, bool trained);
/* Ends the open example, with zeros in its columns; an empty one vanishes. */
enum ax_status ax_example_list_end(struct ax_example_list *l, struct ax_origin origin);
/* Copies the values of a column of example i: [1] or [n], of 32 bits each. */
void ax_example_list_set(struct ax_example_list *l, size_t i, int column, const void *values);
/* Makes one group of the examples from item `first` on. */
void ax_example_list_group(struct ax_example_list *l, size_t first);
/* Forgets examples from item n on, and the open one; keeps the memory. */
void ax_example_list_cut(struct ax_example_list *l, size_t n);
void ax_example_list_free(struct ax_example_list *l);

#endif
