/* The line that a child is sent for a call:
 *
 *   {"function": NAME, "prompts": […], "completions": […], "completion_ids": [[…], …],
 *    "columns": {"answer": […], …}}
 *
 * as TRL passes them to functions: prompts as the records have them; completions as strings, or as
 * lists of one message where the prompt is a list of messages; every other column of the records,
 * null where a record lacks it. Private to data/reward/. */
#ifndef AX_DATA_REWARD_REQUEST_H
#define AX_DATA_REWARD_REQUEST_H

#include "base/mem.h"
#include "data/reward/function.h"

struct ax_reward_request {
    struct ax_buf body; /* all after the function's name; empty: not built yet */
};

/* Appends the line, with its newline, to `out`. */
enum ax_status ax_reward_request_put(struct ax_buf *out, const char *function,
                                     const struct ax_reward_call *call);
void ax_reward_request_free(struct ax_reward_request *r);

/* Appends a JSON value, or a string of any bytes as JSON. */
enum ax_status ax_reward_put_json(struct ax_buf *out, const json_t *v);
enum ax_status ax_reward_put_string(struct ax_buf *out, const char *s, size_t n);

#endif
