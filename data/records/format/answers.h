/* Preference pairs, unpaired answers and reward pairs. A record is read as a prompt with one or two
 * answers, all texts or all messages; then each answer becomes an example. Private to data/records/format/.
 *
 * Reading order: answers_own.c (TRL's columns), answers_types.c (axolotl's types), answers.c (both as
 * tokens); prompt.c (no answers). */
#ifndef AX_DATA_RECORDS_FORMAT_ANSWERS_H
#define AX_DATA_RECORDS_FORMAT_ANSWERS_H

#include "data/records/format/impl.h"

struct ax_answers {
    int n;                /* answers: 1, or 2 with the preferred one first */
    const char *names[2]; /* their columns */
    bool chat;            /* messages, otherwise texts */
    bool trains_prompt;   /* what precedes the answer is trained on, too */
    struct ax_buf prompt, texts[2];
    json_t *messages, *replies[2]; /* lists for the template: the prompt's and the answers' */
    json_t *tools, *variables;     /* the record's, for the template; NULL = none */
    /* bits of AX_ODD_LOST, AX_ODD_REST and AX_ODD_END: what prompt and answers lose */
    unsigned lost;
    bool desirable; /* n = 1 */
    double margin;
};
void ax_answers_free(struct ax_answers *a);

/* A kind of records: a type's name is `family.function`, or `family` for the function "default". */
struct ax_answers_type {
    const char *family, *function;
    unsigned tasks; /* bits 1 << enum ax_task */
    enum ax_status (*read)(const struct ax_format *f, json_t *record, struct ax_answers *a);
    /* For the families that write their own texts. Columns to read: "name" or "name|other name",
     * "name[1]" is the content of a message. system: NULL = none is read. */
    const char *system, *prompt, *answers[2];
};
/* The record's own columns, without a type; and a map. */
extern const struct ax_answers_type ax_answers_own, ax_answers_map;
/* Finds the type's row. AX_ERR_UNSUPPORTED or AX_ERR_CONFIG for a type of another task, or one that
 * does not exist. */
enum ax_status ax_answers_find_type(const struct ax_format_options *o,
                                    const struct ax_answers_type **out);
/* True if a type of this name exists for any of these tasks. */
bool ax_answers_is_type(const char *type);
/* The row of a format. */
const struct ax_answers_type *ax_answers_type_of(const struct ax_format *f);

/* ---- for the readers ---- */

enum ax_status ax_answers_no_memory(void);
/* AX_ERR_DATA for a missing column, with what the record has and looks like. */
enum ax_status ax_answers_missing(const struct ax_format *f, json_t *record, const char *column);
/* AX_ERR_EMPTY for an answer of white space only. */
enum ax_status ax_answers_check_text(const char *name, struct ax_text text);
/* Reads a list of messages, one message, or a text as a message of `role`, into *out. Errors begin
 * with `name`. AX_ERR_EMPTY for an answer without text. */
struct ax_message_source {
    const char *name, *role;
    bool is_answer;
};
enum ax_status ax_answers_messages(const struct ax_format *f, struct ax_answers *a, json_t *v,
                                   const struct ax_message_source *from, json_t **out);
/* Reads what a record of messages has beside them for the template: tools and variables. */
enum ax_status ax_answers_beside(const struct ax_format *f, json_t *record, struct ax_answers *a);
/* Appends the rendered messages; none give no text. */
struct ax_answers_text {
    json_t *messages, *tools;
    bool generation_prompt;
    unsigned *lost;    /* gets bits, as in struct ax_chat_render */
    json_t *variables; /* NULL = none */
};
enum ax_status ax_answers_render(const struct ax_format *f, const struct ax_answers_text *t,
                                 struct ax_buf *out);
/* AX_ERR_CONFIG if one of the map's texts cannot be filled. */
enum ax_status ax_answers_check_map(const struct ax_format_answer_map *m);
/* Appends a map's prompt. */
enum ax_status ax_answers_fill_prompt(const struct ax_format *f, json_t *record,
                                      struct ax_buf *out);
/* The column "label" or its like as true or false. */
enum ax_status ax_answers_label(json_t *record, const char *column, bool *out);

#endif
