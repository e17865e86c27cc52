/* Answers of `axtrain generate --tools`: several turns, with results of tools between them. */
#ifndef AX_CMD_GENERATE_TURNS_H
#define AX_CMD_GENERATE_TURNS_H

#include "cmd/generate/prompts.h"
#include "model/text/turns.h"

/* Must not move while it is open. */
struct ax_generate_turns {
    struct ax_text_tools tools;
    struct ax_turns_answer *list; /* [n] */
    int64_t n;
    int32_t *ids;
    bool *inserted;
    double *logprobs;
};
/* Memory for n answers of at most max_new tokens, to prompts of at most `longest`. */
enum ax_status ax_generate_turns_create(struct ax_generate_turns *t, int64_t n, int64_t longest,
                                        int64_t max_new, bool logprobs);
/* Makes the k-th the answer to a prompt, with this number and stream of random numbers. */
void ax_generate_turns_ask(struct ax_generate_turns *t, int64_t k, const struct ax_text_model *m,
                           const struct ax_prompts *prompts, const struct ax_prompt *p,
                           int64_t number);
void ax_generate_turns_close(struct ax_generate_turns *t); /* safe on a zeroed one */

const char *ax_generate_turns_finish(const struct ax_turns_answer *a);
/* Appends a conversation for people: texts, calls and results, each from a line of its own. */
enum ax_status ax_generate_turns_show(struct ax_buf *out, const json_t *messages);
/* Adds to a row of --json: all messages, those of the prompt first, and definitions of tools, as records of training
 * have them, and what ax_turns_put_json adds. False: no memory. */
bool ax_generate_turns_put_json(json_t *row, const struct ax_generate_turns *t,
                                const struct ax_turns_answer *a, const struct ax_prompt *p);

#endif
