/* The text before the answer: description, few-shot examples, the record's own question, as plain
 * text or through the model's chat template. */
#ifndef AX_OPTIM_EVALUATE_TASKS_PROMPT_H
#define AX_OPTIM_EVALUATE_TASKS_PROMPT_H

#include "data/text_side.h"
#include "optim/evaluate/tasks/docs.h"
#include "optim/evaluate/tasks/python.h"

struct ax_task_prompt_options {
    int64_t num_fewshot; /* -1: that of the task, or 0 */
    bool chat;           /* use the chat template */
    bool single_turn;    /* with it: examples and question in one user turn */
    const char *system;  /* system message; NULL: none */
    uint32_t seed;       /* for drawing examples */
    const char *folder;  /* folder of local data; NULL: the current one */
    int64_t max_rows;    /* 0: all */
};

/* The prompt of one record. */
struct ax_task_item {
    const json_t *doc;
    json_t *text, *target, *choices; /* the fields' values; choices NULL: none */
    struct ax_buf *contexts;         /* one; with `several`, one per choice */
    size_t n_contexts;
};

struct ax_task_prompts {
    const struct ax_task *task;
    struct ax_task_docs docs;
    struct ax_task_item *items; /* [docs.n] */
    int64_t num_fewshot;
    bool chat;         /* with the chat template */
    bool several;      /* doc_to_text is an index: each choice is a context for the target */
    bool many_targets; /* doc_to_target is a list */
};
/* Loads the records and builds their prompts. */
enum ax_status ax_task_prompts_build(struct ax_task_prompts *p, const struct ax_task *t,
                                     const struct ax_text_side *side,
                                     const struct ax_task_prompt_options *o);
void ax_task_prompts_free(struct ax_task_prompts *p); /* safe on a zeroed one */

/* ---- messages → text ---- */

struct ax_task_message {
    const char *role;
    struct ax_buf text;
    const char *delimiter; /* follows the text if there is no chat template */
};
struct ax_task_messages {
    struct ax_task_message *list;
    size_t n, cap;
};
/* Adds a message; text NULL: empty. */
enum ax_status ax_task_messages_add(struct ax_task_messages *m, const char *role, const char *text,
                                    size_t len, const char *delimiter);
void ax_task_messages_cut(struct ax_task_messages *m, size_t n); /* removes messages from n on */
void ax_task_messages_free(struct ax_task_messages *m);
/* Appends the text of all messages. `chat` NULL: plain text. If the last message is the
 * assistant's, the text ends with it, for the model to continue. */
enum ax_status ax_task_messages_text(const struct ax_task_messages *m,
                                     const struct ax_text_side *chat, bool single_turn,
                                     struct ax_buf *out);

#endif
