/* Jobs → answers in the protocol's words: a whole one, or the events of a stream. */
#ifndef AX_CMD_SERVE_ANSWER_H
#define AX_CMD_SERVE_ANSWER_H

#include "cmd/serve/engine.h"

/* The answer to a job that has ended; NULL: out of memory. */
json_t *ax_serve_answer(const struct ax_serve_job *j);
/* With the engine's lock: appends the events of what has come since the last call, and at the end
 * those that follow; then *more is false. */
enum ax_status ax_serve_events(struct ax_serve_job *j, struct ax_buf *out, bool *more);

#endif
