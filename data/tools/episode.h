/* A completion of several turns: what the model samples, and between its turns the results of the tools that it
 * calls, until a turn has no call, a limit is reached, or a result does not fit. As in TRL's GRPOTrainer:
 *
 *   - a turn may fill what is left of the completion; results count as part of it;
 *   - a result that does not fit is dropped, and the completion ends with the call, as one that ended by itself;
 *   - results of functions that run on their own (`late`) come after the others, each in the order of calls;
 *   - a call in the last round is read, and not run.
 *
 * Calls that cannot be read are answered by an error, so that the model may try again; with `ends`, they end
 * the completion instead, which is what TRL does, and so do arguments of another type than the tool's definition
 * says. A turn without calls is answered by the environment, if there is one that answers turns: with an observation,
 * which the next turn follows, until the environment says that it is done. A turn that length has ended makes no calls,
 * and is not answered. Tools that have taken more than max_seconds together end the
 * completion as length does: results of that round are dropped. */
#ifndef AX_DATA_TOOLS_EPISODE_H
#define AX_DATA_TOOLS_EPISODE_H

#include "data/tools/chat.h"

/* How users name the values of `ends` and `keeps`. */
#define AX_WORDS_PARSE_ERROR  "answer|end"
#define AX_WORDS_PYTHON_STATE "fresh|kept"

struct ax_episode_rules {
    const struct ax_tool_chat *chat;
    int64_t max_rounds; /* rounds of calls; negative: no limit */
    int64_t
        max_turns; /* 0: no limit. Calls of the last turn are not run; the environment is asked to answer it */
    bool answered; /* by an environment */
    bool ends;
    double max_seconds; /* seconds of all calls of a completion; 0: no limit */
    bool keeps;         /* the tool python goes on where its earlier calls ended */
};

/* What x->calls are. */
enum ax_ask {
    AX_ASK_CALLS, /* calls of tools, as in a message */
    /* one question for the environment: a record, a turn's text, null */
    AX_ASK_RESET,
    AX_ASK_STEP,
    AX_ASK_CLOSE
};

struct ax_episode {
    int32_t *ids;     /* [cap] of the completion; borrowed */
    bool *inserted;   /* [cap]: tokens that the model has not sampled; borrowed */
    int64_t n, cap;   /* tokens so far, and at most */
    json_t *messages; /* as reward functions get them; owned */
    enum ax_ask ask;
    json_t *calls; /* to run; owned; NULL: the episode is over */
    json_t
        *log; /* calls that were run: [{"turn", "name", "arguments", "seconds", "failed"}]; owned */
    int64_t rounds, n_calls, n_failed, n_unread; /* n_unread: turns whose calls cannot be read */
    bool truncated;                              /* ended by length, or late */
    double seconds;                              /* time that calls have taken */
    json_t *programs; /* with `keeps`: those that have run to their end, as texts; owned */
    bool late;        /* ended by max_seconds */
    /* ---- by an environment ---- */
    int64_t turns;        /* that the model has sampled */
    json_t *turn_rewards; /* what each answer gave, or null; owned */
    double reward;        /* their sum, and what the episode gave at its end */
    bool rewarded;        /* there is such a reward */
    bool lost;            /* the environment has failed: there are no rewards */
};

enum ax_status ax_episode_begin(struct ax_episode *x);
void ax_episode_free(struct ax_episode *x); /* safe on a zeroed one */

/* Asks the environment AX_ASK_RESET with the record, or AX_ASK_CLOSE; `v` is taken. */
enum ax_status ax_episode_ask(struct ax_episode *x, enum ax_ask ask, json_t *v);

/* Reads a turn of n tokens, which are at ids + x->n, `stopped` by a stop token. Afterwards x->calls are to be
 * run, unless it is NULL. */
enum ax_status ax_episode_turn(struct ax_episode *x, const struct ax_episode_rules *o, int64_t n,
                               bool stopped);

struct ax_tool_result {
    char *text; /* owned */
    size_t n;
    bool failed;
    bool late;
    bool ran; /* a program in the sandbox that came to its end, or raised */
    double seconds;
    /* ---- of an environment, whose observation is `text` ---- */
    double reward;
    bool rewarded, done, lost;
};
/* Adds the results of x->calls, [as many]. Another turn is to be sampled if *goes_on. */
enum ax_status ax_episode_answer(struct ax_episode *x, const struct ax_episode_rules *o,
                                 const struct ax_tool_result *results, bool *goes_on);

/* All of an episode that is over but for its tokens, for ranks that have not seen it; a new object. */
enum ax_status ax_episode_to_json(const struct ax_episode *x, json_t **out);
/* Into one that has begun. */
enum ax_status ax_episode_from_json(struct ax_episode *x, json_t *v);

/* What the conversation ends with: the text of the assistant's last message, for those who read one text. */
const char *ax_episode_last(const json_t *messages);

/* With `keeps`, the programs before the i-th of x->calls, a new list; else NULL. */
enum ax_status ax_episode_earlier(const struct ax_episode *x, const struct ax_episode_rules *o,
                                  size_t i, json_t **out);

#endif
