/* Rewards of completions: several named functions score each completion.
 *
 * A function's name says what it is: one of the built-ins ("final_answer", "soft_overlong:512:64"),
 * Python of the user ("my_rewards.helpful"), the path of any program ("./judge"), the URL of a server, or a
 * function of the caller. Python and programs are child processes, which may fail, hang or die: such a call is
 * counted, and its completions get no reward. docs/rewards.md is for those who write functions.
 *
 * Reading order: function.h (what a function is here), rules.c (built-ins of one text), code.c (code in the sandbox),
 * judge.c (models of servers), child.h, outside.c (functions of children), keeper.h, answer.h (what a child answers),
 * python.py (what runs the user's Python). */
#ifndef AX_DATA_REWARD_REWARDS_H
#define AX_DATA_REWARD_REWARDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/net/endpoint.h"
#include "base/status.h"
#include "data/reward/sandbox/run.h"
#include "data/reward/sandbox/watch.h"

struct ax_reward_item {
    const json_t *record; /* object: all columns of the prompt's record, "prompt" as the record has
                             it, if it has one */
    const char *prompt;   /* the rendered prompt's text */
    const char *completion; /* text, without special tokens; n bytes, NUL-terminated */
    size_t n;
    /* what a conversation with tools consists of, as functions of the user get it: then `completion` is its last
     * answer; NULL: there are no tools */
    const json_t *messages;
    const int32_t *ids; /* [n_ids] the completion's tokens, a stop token included */
    int64_t n_ids;
    bool truncated; /* ended by length */
    double earned;  /* what its environment has given, if it has one; NaN: nothing */
    bool chat;      /* the prompt is a list of messages */
};

struct ax_reward_function {
    const char *name; /* as the user writes it */
    double weight;
    /* A function of the caller, which all ranks call together (a model's); `name` is then only for
     * people. out: [n], NaN before. NULL: the name says what it is. */
    enum ax_status (*score)(void *ctx, size_t n, const struct ax_reward_item *items, double *out);
    void *ctx;
};

/* Judges: models that a server has, whose answers contain scores. */
struct ax_judge_options {
    struct ax_endpoint_options server; /* without url */
    const char *model;                 /* NULL: the first one of the server's */
    const char *system;                /* NULL: no message of the system */
    const char *prompt;                /* NULL: AX_JUDGE_PROMPT */
    const char *score;                 /* expression of Python's re; NULL: AX_JUDGE_SCORE */
    double lowest, highest;            /* scores that become the rewards 0 and 1 */
    double temperature;
    int64_t max_tokens;
};
extern const char AX_JUDGE_PROMPT[];
#define AX_JUDGE_SCORE "(?i)score:\\s*-?[0-9]+(\\.[0-9]+)?"

struct ax_rewards_options {
    const struct ax_reward_function *functions;
    int n;
    double timeout; /* seconds for a call of a child; 0: AX_REWARDS_TIMEOUT */
    /* seconds until a child has loaded a function; 0: AX_REWARDS_START_TIMEOUT */
    double start_timeout;
    const char *python;  /* NULL: $AXTRAIN_PYTHON, or python3 */
    const char *program; /* this executable; NULL: /proc/self/exe */
    /* ---- of "code" alone ---- */
    const char *sandbox_cache; /* ax_sandbox_options.cache */
    int threads;               /* programs that run at a time; 0: 1 */
    struct ax_judge_options judge;
};
#define AX_REWARDS_TIMEOUT       60.0
#define AX_REWARDS_START_TIMEOUT 120.0
/* Failed calls of one function in a row that end the run. */
#define AX_REWARDS_STRIKES 3

struct ax_reward_counters {
    uint64_t calls;
    uint64_t nones;    /* completions without a reward, those of failed calls included */
    uint64_t failures; /* calls that failed, for whatever reason */
    uint64_t timeouts; /* failed calls that exceeded the time */
    double seconds;
    uint64_t verdicts[AX_VERDICT_COUNT]; /* verdicts on programs, for code */
};

/* How far a run has come: for functions of the user, with transformers' names. */
struct ax_reward_progress {
    int64_t step, total; /* global_step: steps made; max_steps */
    double epoch;        /* epochs done */
};

struct ax_rewards;

/* True if a name such as "format:^a/b$" is a built-in. */
bool ax_rewards_is_builtin(const char *name);

/* Names and strings are copied. Starts the children, loads the functions and opens the sandbox.
 * AX_ERR_CONFIG: no such function, a bad argument, or the user's Python does not load (with Python's
 * own message and the place). AX_ERR_UNSUPPORTED: the sandbox's parts are missing. */
enum ax_status ax_rewards_open(struct ax_rewards **out, const struct ax_rewards_options *o);
void ax_rewards_close(struct ax_rewards *r); /* NULL is fine */

int ax_rewards_count(const struct ax_rewards *r);
const char *ax_rewards_name(const struct ax_rewards *r, int i);
double ax_rewards_weight(const struct ax_rewards *r, int i);
/* The highest reward that it gives: 0 of penalties, and of functions that do not say, 1. */
double ax_rewards_most(const struct ax_rewards *r, int i);

/* For calls of ax_rewards_score from now on: `watch` is asked while they wait for children or programs; and, if
 * there is no error, `settle` before functions that all ranks call together, or at the end. Borrowed; NULL: nothing
 * is asked. */
struct ax_reward_watch {
    struct ax_watch watch;
    enum ax_status (*settle)(void *ctx); /* with the watch's ctx */
};
void ax_rewards_watch(struct ax_rewards *r, struct ax_reward_watch *watch);

/* out: [n][count]; NaN: none. Functions that all ranks call together come last. AX_ERR_DATA: AX_REWARDS_STRIKES calls
 * of a function failed in a row. */
enum ax_status ax_rewards_score(struct ax_rewards *r, size_t n, const struct ax_reward_item *items,
                                double *out);
/* ax_rewards_are_joint: true if there is a function that all ranks call together. ax_rewards_join:
 * takes part in the call on a rank that scores no completions, or the same as another rank, with
 * the completions of which it computes a share. */
bool ax_rewards_are_joint(const struct ax_rewards *r);
enum ax_status ax_rewards_join(struct ax_rewards *r, size_t n, const struct ax_reward_item *items);

/* Told to functions from now on. */
void ax_rewards_set_progress(struct ax_rewards *r, struct ax_reward_progress progress);
/* What functions of Python have logged in calls that succeeded, since this was last asked: a list of {"function": name,
 * "metrics": {name: [sum of values, number of values]}, "extra": {column: [the value of each completion]}}, without
 * "metrics" or "extra" if that is empty. A sum that is not finite is text. NULL: nothing. Owned by the caller. */
json_t *ax_rewards_take_logged(struct ax_rewards *r);

/* So far; valid as long as `r`. */
const struct ax_reward_counters *ax_rewards_counters(const struct ax_rewards *r, int i);

#endif
