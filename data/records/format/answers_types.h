/* The readers of axolotl's types: record → prompt and answers. Private to answers_types.c. */
#ifndef AX_DATA_RECORDS_FORMAT_ANSWERS_TYPES_H
#define AX_DATA_RECORDS_FORMAT_ANSWERS_TYPES_H

#include "data/records/format/answers.h"

/* answers_text.c: the type's columns, in the texts of its family */
enum ax_status ax_answers_text(const struct ax_format *f, json_t *record, struct ax_answers *a);

/* answers_chat.c */
enum ax_status ax_answers_chat(const struct ax_format *f, json_t *record, struct ax_answers *a);
enum ax_status ax_answers_argilla_chat(const struct ax_format *f, json_t *record,
                                       struct ax_answers *a);
enum ax_status ax_answers_argilla(const struct ax_format *f, json_t *record, struct ax_answers *a);
enum ax_status ax_answers_bradley_terry(const struct ax_format *f, json_t *record,
                                        struct ax_answers *a);

#endif
