/* Finds the parts of a completion and of a record that rewards compare. Private to data/reward/. */
#ifndef AX_DATA_REWARD_EXTRACT_H
#define AX_DATA_REWARD_EXTRACT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/mem.h"
#include "data/reward/final_answer.h"
#include "data/reward/function.h"

/* text[n], borrowed. */
struct ax_reward_text {
    const char *s;
    size_t n;
};

/* The text without ASCII blanks at both ends. */
struct ax_reward_text ax_reward_strip(const char *s, size_t n);

/* Appends the text of a column: a string as it is, a number or truth value as JSON. False: it is
 * absent, null, a list or an object. */
enum ax_status ax_reward_column(const json_t *record, const char *name, struct ax_buf *out,
                                bool *found);

/* ax_final_answer, or, if there is no "####" in it, all of it as if it followed one. */
bool ax_reward_reference(const char *s, size_t n, char out[AX_FINAL_ANSWER_MAX]);

/* True if ax_final_answer normalized this answer as a number. */
bool ax_reward_is_number(const char *answer);

/* The last number in a text, normalized as ax_final_answer does: a sign that does not follow a
 * letter, digit or bracket, an optional "$", digits with or without commas between thousands, a
 * point and digits. False: none, or it is too long. */
bool ax_reward_last_number(const char *s, size_t n, char out[AX_FINAL_ANSWER_MAX]);

/* The content of the last block fenced by "```python" (or "```py") and "```", or by the end of the
 * text; all of it if there is no such block. */
struct ax_reward_text ax_reward_code_block(const char *s, size_t n);

/* "<think>", then "</think>" anywhere, and no second "<think>". */
bool ax_reward_is_think_format(const char *s, size_t n);

/* Warns once for each function that it says nothing about records such as this one. */
void ax_reward_tell(struct ax_reward_fn *f, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
