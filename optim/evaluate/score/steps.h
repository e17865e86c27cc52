/* Prompts and answers as a process reward model reads them. */
#ifndef AX_OPTIM_EVALUATE_SCORE_STEPS_H
#define AX_OPTIM_EVALUATE_SCORE_STEPS_H

#include <jansson.h>
#include <stddef.h>

#include "base/status.h"

/* A text, or the texts of messages, a line each: a new reference in *out. AX_ERR_DATA: a message has
 * none. */
enum ax_status ax_steps_prompt(const json_t *prompt, json_t **out);
/* The pieces of an answer between separators, without the blank ones: a new list in *out. */
enum ax_status ax_steps_split(const char *text, size_t len, const char *separator, json_t **out);

#endif
