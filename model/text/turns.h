/* Answers of several turns with the results of tools between them (data/tools/episode.h), which a generator samples: of
 * a policy that trains, or of a model that is asked. See turns.c, and together.h for ranks. */
#ifndef AX_MODEL_TEXT_TURNS_H
#define AX_MODEL_TEXT_TURNS_H

#include "data/tools/tools.h"
#include "model/generate/generate.h"

struct ax_turns_answer {
    /* ---- set by the caller; borrowed ---- */
    const struct ax_episode_rules *rules;
    int64_t n_prompt, cap; /* tokens of the prompt; the most of the answer, results included */
    int32_t *ids;          /* [n_prompt + cap]: the prompt; gets the answer */
    bool *inserted;        /* [cap]: gets which of its tokens were not sampled */
    uint64_t stream;       /* stream of random numbers */
    int64_t number;        /* for programs, and for the sandbox's random numbers */
    /* ---- with an environment; else zeros ---- */
    size_t environment; /* which one */
    int64_t seed;       /* for it */
    const char *record; /* JSON, that it begins with */
    void *ctx;          /* for ax_turns_observe */
    /* [cap], zeroed: get the log-probs of sampled tokens, and the entropies of their distributions; NULL: not
     * requested */
    double *logprobs, *entropies;
    /* ---- out ---- */
    struct ax_episode episode;
};

/* Adds what an environment begins with, a text, to an answer's prompt: sets n_prompt, ids and inserted anew. *fits
 * false: it cannot, and the episode is lost. */
typedef enum ax_status ax_turns_observe(struct ax_turns_answer *a, const char *text, bool *fits);

/* Samples answers turn by turn, and runs the tools that they call. An environment among them is asked before the
 * first turn and after the last one, and answers turns as tools answer calls; observe is NULL without one. *stopped, on
 * all ranks alike: the generator's stop_now of one of them, or a callback, ended it. Its lanes must have room for
 * prompts that go on (long_prompts). The caller frees the answers, also after an error. */
enum ax_status ax_turns_take(struct ax_generator *g, struct ax_tools *tools,
                             ax_turns_observe *observe, int64_t n, struct ax_turns_answer *answers,
                             bool *stopped);
/* The number of its tokens that the model has sampled. */
int64_t ax_turns_sampled(const struct ax_turns_answer *a);
/* Frees episodes; safe on zeroed ones, and on NULL. */
void ax_turns_free(struct ax_turns_answer *answers, int64_t n);

/* ---- for files ---- */

struct ax_turns_record {
    const int32_t *ids;   /* [n_prompt + n] */
    const bool *inserted; /* [n] */
    int64_t n_prompt, n;
    json_t *messages, *calls; /* as an episode has them */
};
/* Adds "messages", "calls", "prompt_ids", "completion_ids", and "model_tokens": [first, end) of what the model has
 * sampled in the latter. False: no memory. */
bool ax_turns_put_json(json_t *v, const struct ax_turns_record *r);

#endif
