/* Detects the kind of a record from the names and types of its columns. */
#ifndef AX_DATA_RECORDS_FORMAT_RECOGNIZE_H
#define AX_DATA_RECORDS_FORMAT_RECOGNIZE_H

#include <jansson.h>
#include <stdbool.h>

#include "data/records/format/format.h"

enum ax_record_kind {
    AX_RECORD_UNKNOWN,
    AX_RECORD_PREFERENCES, /* chosen, rejected */
    AX_RECORD_UNPAIRED,    /* completion and a label that is true, false, 1 or 0 */
    AX_RECORD_STEPS,       /* a list of completions and one of labels */
    AX_RECORD_COMPLETION,  /* prompt and completion, both lists of messages */
    AX_RECORD_CHAT,        /* a column with a list of messages */
    AX_RECORD_ALPACA,      /* instruction, input, output */
    AX_RECORD_PAIR,        /* a prompt column and an answer column */
    AX_RECORD_TEXT         /* a text column, which is trained completely */
};

#define AX_COLUMN_NAME 64 /* size of a recognized column's name */

struct ax_record_shape {
    enum ax_record_kind kind;
    char messages[AX_COLUMN_NAME], role[AX_COLUMN_NAME], content[AX_COLUMN_NAME]; /* chat */
    char prompt[AX_COLUMN_NAME], answer[AX_COLUMN_NAME];                          /* alpaca, pair */
    char text[AX_COLUMN_NAME];                                                    /* text */
};
/* The first kind that matches all n ≥ 1 records, which are objects. */
struct ax_record_shape ax_records_recognize(json_t *const *records, size_t n);

/* The names of a record's columns in quotes, separated by commas, as many as fit, then "…"; "none" if it has none. Those
 * that are null say so. Returns buf. */
char *ax_record_columns(const json_t *record, char *buf, size_t size);

/* Call after an error in this record (tasks other than TEXT: if it lacks a column): if it lacks the
 * columns that the options read but looks like another kind, adds the settings for that kind to the
 * error text. Returns st. */
enum ax_status ax_record_error_hint(enum ax_status st, const struct ax_format_options *o,
                                    json_t *record);

#endif
