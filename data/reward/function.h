/* A reward function as rewards.c sees it: a kind, and what the kind keeps. Private to data/reward/. */
#ifndef AX_DATA_REWARD_FUNCTION_H
#define AX_DATA_REWARD_FUNCTION_H

#include <ctype.h>
#include <stdbool.h>

#include "data/reward/final_answer.h"
#include "data/reward/rewards.h"

struct ax_reward_fn;
struct ax_child;

/* Why a call has no rewards. */
enum ax_reward_failure {
    AX_REWARD_FINE,
    AX_REWARD_EXCEPTION, /* the function says so itself */
    AX_REWARD_COUNT,     /* the number of rewards is not the number of completions */
    AX_REWARD_RUBBISH,   /* a line that is not an answer */
    AX_REWARD_TIMEOUT,
    AX_REWARD_DEATH,
    AX_REWARD_FAILURE_COUNT
};
extern const char *const ax_reward_failure_names[AX_REWARD_FAILURE_COUNT];

/* How a call went; `text` says what happened to a person. */
struct ax_reward_outcome {
    enum ax_reward_failure failure;
    char text[512];
    /* what the function has logged, {"metrics": {name: [sum, calls]}, "extra": {column: [n values]}} or one of them; owned
     * by the caller; NULL: nothing */
    json_t *logged;
};

/* A call's completions. */
struct ax_reward_call {
    size_t n;
    const struct ax_reward_item *items;
    /* the line for child processes, after the function's name; empty: not built yet. Shared by the
     * functions of a call */
    struct ax_buf *request;
    struct ax_reward_progress progress;
};

struct ax_reward_kind {
    enum ax_status (*open)(struct ax_reward_fn *f, const struct ax_rewards_options *o);
    /* out: [call->n], NaN before; *outcome: zeroed before. A failed outcome is the function's fault, a
     * status is ours. */
    enum ax_status (*score)(struct ax_reward_fn *f, const struct ax_reward_call *call, double *out,
                            struct ax_reward_outcome *outcome);
    void (*close)(struct ax_reward_fn *f);
};

struct ax_reward_fn {
    const struct ax_reward_kind *kind;
    char *name;
    const char *argument; /* for a built-in: text after the colon in `name`; NULL: no colon */
    double weight, most;  /* most: the highest reward that it gives */
    struct ax_reward_function own; /* for a function of the caller */
    struct ax_reward_counters counters;
    int in_a_row;                    /* failed calls up to now */
    bool told;                       /* a warning about records was given */
    struct ax_reward_shared *shared; /* borrowed: what several functions use together */
    void *state;                     /* the kind's */
};

/* Shared by the functions of one ax_rewards; opened by the first function that needs it. */
struct ax_reward_shared {
    struct ax_child *python; /* outside.c */
    struct ax_sandbox *sandbox;
    struct ax_watch *watch; /* see ax_rewards_watch; or NULL */
};

/* Finds a built-in by its name without argument; NULL: there is none. */
const struct ax_reward_kind *ax_reward_builtin(const char *name, size_t n);
/* Built-in number i, and how a user writes it ("format:REGEX"); NULL: no more. */
const char *ax_reward_builtin_name(int i, const char **usage);

extern const struct ax_reward_kind ax_reward_code, ax_reward_python, ax_reward_program,
    ax_reward_judge;
void ax_reward_shared_free(struct ax_reward_shared *s);

/* text[n], borrowed. */
struct ax_reward_text {
    const char *s;
    size_t n;
};
/* The text without ASCII blanks at both ends. */
static inline struct ax_reward_text ax_reward_strip(const char *s, size_t n) {
    while (n > 0 && isspace((unsigned char)s[n - 1]))
        n--;
    for (; n > 0 && isspace((unsigned char)*s); n--)
        s++;
    return (struct ax_reward_text){s, n};
}

/* Appends the text of a record's column: a string as it is, a number or truth value as JSON. False: it is
 * absent, null, a list or an object. */
enum ax_status ax_reward_column_text(const json_t *record, const char *name, struct ax_buf *out,
                                     bool *found);

/* Warns once for each function that it says nothing about records such as this one. */
void ax_reward_tell(struct ax_reward_fn *f, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* The last number in a text, normalized as ax_final_answer does: a sign that does not follow a
 * letter, digit or bracket, an optional "$", digits with or without commas between thousands, a
 * point and digits. False: none, or it is too long. */
bool ax_reward_last_number(const char *s, size_t n, char out[AX_FINAL_ANSWER_MAX]);

/* The content of the last block fenced by "```python" (or "```py") and "```", or by the end of the
 * text; all of it if there is no such block. */
struct ax_reward_text ax_reward_code_block(const char *s, size_t n);

#endif
