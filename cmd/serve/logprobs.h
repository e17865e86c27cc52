/* Log-probs of prompts and answers in the protocol's words. */
#ifndef AX_CMD_SERVE_LOGPROBS_H
#define AX_CMD_SERVE_LOGPROBS_H

#include "cmd/serve/engine.h"

/* Those of the choice's tokens from `from` on, behind the prompt's if it is echoed; null if nobody asked. */
enum ax_status ax_serve_logprobs(const struct ax_serve_job *j, struct ax_serve_choice *c,
                                 int64_t from, json_t **out);
/* Those of a prompt as in vLLM: for each token but the first a table of ids, its own and the
 * likeliest. */
enum ax_status ax_serve_prompt_logprobs(const struct ax_serve_job *j,
                                        const struct ax_serve_prompt *p, json_t **out);

#endif
