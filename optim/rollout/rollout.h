/* Rollouts: the model that trains samples completions of prompts, functions reward them, and some
 * steps train on them (optim/losses/policy.h).
 *
 *   generation   `prompts` prompts with `group` completions each, sampled together
 *   turn         a step's share of a generation: it is trained on in `steps` steps, in a random order
 *                if there are several, `iterations` times
 *
 * Everything is a function of the seed: prompts by the loader, tokens by (seed, generation, prompt,
 * sample, position). So all ranks have the same completions, and their number does not change them.
 * The log-probs that tokens were drawn with are the values that training computes: on one rank and
 * processor, the ratio of the first step's policy to them is exactly 1.
 *
 * See rollout.c (a generation), rollout_sample.c, rollout_reference.c, rollout_rewards.c (rewards,
 * advantages, figures), rollout_ppo.c (advantages of tokens), rollout_state.c (what a checkpoint has of it), rollout_log.c, train_rollout.c (a
 * turn's micro-batches). */
#ifndef AX_OPTIM_ROLLOUT_ROLLOUT_H
#define AX_OPTIM_ROLLOUT_ROLLOUT_H

#include "data/records/pipeline/loader.h"
#include "data/reward/rewards.h"
#include "data/text/tokenizer/tokenizer.h"
#include "model/generate/generate.h"
#include "optim/losses/advantages.h"
#include "optim/losses/figures.h"
#include "optim/losses/gae.h"
#include "optim/losses/policy.h"
#include "optim/rollout/reward_model.h"

#define AX_ROLLOUT_MAX_REWARDS 16

/* PPO's: what a completion is worth, token by token (gae.h). */
struct ax_rollout_ppo {
    double gamma, lambda, kl_coef;
    enum ax_kl_estimator kl;
    bool whiten_rewards;
    double missing_eos_penalty; /* less in the score of a completion that length ended */
};

struct ax_rollout_options {
    int64_t group;      /* completions of a prompt; 0: no rollouts */
    int64_t eval_group; /* the same in evaluations */
    int64_t prompts;    /* of a generation, on all ranks */
    int steps, iterations;
    int rounds; /* how often other prompts are sampled in place of those whose completions are all
                   worth the same (DAPO's dynamic sampling) */
    int64_t max_prompt, max_new; /* tokens */
    int64_t lanes;               /* the most sequences that a rank samples at a time */
    int64_t kv_tokens;           /* capacity of the KV cache */
    int64_t kv_bytes;            /* size of the KV cache, for messages */
    struct ax_sampling sampling;
    int n_stop;
    const int32_t *stop; /* ids that end a completion; … */
    int n_stop_strings;
    const char *const *stop_strings; /* … texts that do */
    bool mask_truncated;             /* completions that length ended have no labels */
    /* share of the tokens that train, those with the highest entropies; 1: all */
    double top_entropy;
    struct ax_advantage_options advantages; /* group, n_rewards and weights follow */
    const struct ax_policy *policy;         /* NULL in evaluations */
    /* with groups of one; NULL: completions have an advantage each */
    const struct ax_rollout_ppo *ppo;
    int shown;                  /* completions of a generation that are shown */
    struct ax_rewards *rewards; /* NULL while planning */
    struct ax_reward_model *models[AX_ROLLOUT_MAX_REWARDS]; /* that some of them ask */
    int n_models;
    const struct ax_tokenizer *tokenizer;
};

/* What can be learned from a generation's rewards. */
enum ax_worth {
    AX_WORTH_VARIED,
    AX_WORTH_NONE,  /* nothing: there are none, */
    AX_WORTH_EQUAL, /* or all of a prompt are equal (which PPO learns from, too), */
    AX_WORTH_MOST   /* to the highest reward */
};

/* Where a prompt comes from. */
struct ax_rollout_origin {
    char *file;
    uint64_t line;
};

struct ax_completion {
    int64_t start, n_prompt, n; /* its tokens ids[start + …]: of the prompt, of both */
    float advantage;
    bool truncated;
};

struct ax_rollout {
    const struct ax_rollout_options *o;
    int64_t generation;                /* number of the one that is here; 0: none */
    int turn;                          /* turns taken of it */
    int64_t epoch, index;              /* of its first prompt in the loader; … */
    int64_t read;                      /* … prompts read for it */
    int64_t n;                         /* completions; … */
    struct ax_completion *list;        /* … [n], a group's follow each other */
    struct ax_rollout_origin *origins; /* [prompts] */
    bool filled;                       /* the above is a generation */
    int32_t *ids;                      /* [n][max_prompt + max_new] */
    float *logprobs;                   /* like ids: of a completion's tokens, as they were drawn */
    float *reference;                  /* the same, by the reference; NULL: the policy needs none */
    float *entropies;                  /* of what tokens were drawn from; NULL: it needs none */
    /* of PPO, else NULL; like ids. Values and returns are those of a token's place: the first of a
     * completion is at the prompt's last token */
    float *advantages, *values, *returns;
    int64_t *order; /* [n] */
    /* of the last generation, for reports; not part of a checkpoint */
    double *rewards;                   /* [n][functions] */
    double verdicts[AX_VERDICT_COUNT]; /* of the programs that rewards have run */
    char **records;                    /* [prompts] JSON */
    int64_t *todo, n_todo;             /* [prompts] groups that are sampled in this round */
    int round;                         /* from 0 */
    struct ax_figures figures;         /* TRL's names */
    enum ax_worth worth;
    double seconds, reward_seconds; /* sampling; rewards */
};

/* Is the policy compared with a reference? */
bool ax_rollout_refers(const struct ax_rollout_options *o);
/* Zeroes for no rollouts, too. */
enum ax_status ax_rollout_create(struct ax_rollout *r, const struct ax_rollout_options *o);
void ax_rollout_free(struct ax_rollout *r);
/* True if the next turn needs a new generation. */
bool ax_rollout_is_used_up(const struct ax_rollout *r);
/* Who takes part: `reference` is the model that the policy is compared with, if it is (the policy
 * itself is compared with its base, without its adapter); `value` is PPO's. */
struct ax_rollout_models {
    struct ax_model *policy, *reference, *value;
};
/* Samples and rewards the next generation. *stopped: a rank was asked to stop; then the loader is where
 * it was, and the last generation is gone. Scratch and slots must be empty. While planning, takes the
 * memory for it. */
enum ax_status ax_rollout_generate(struct ax_rollout *r, const struct ax_rollout_models *m,
                                   struct ax_loader *loader, bool *stopped);
/* Options for all of n evaluation prompts, and their completions and figures: the same random numbers in
 * each evaluation. */
struct ax_rollout_options ax_rollout_for_evaluation(const struct ax_rollout_options *o, int64_t n);
enum ax_status ax_rollout_evaluate(struct ax_rollout *r, struct ax_model *m,
                                   struct ax_loader *loader, bool *stopped);
/* The most groups that a micro-batch of `completions` completions can contain parts of. */
int64_t ax_rollout_groups_in(const struct ax_rollout_options *o, int64_t completions);
/* Completions of a turn, those of a group one after the other, and which is its i-th. */
int64_t ax_rollout_turn_size(const struct ax_rollout *r);
const struct ax_completion *ax_rollout_take(const struct ax_rollout *r, int64_t i, int64_t *number);

/* ---- parts ---- */

/* The i-th completion of the groups to do. */
static inline struct ax_completion *ax_rollout_todo(const struct ax_rollout *r, int64_t i) {
    return &r->list[r->todo[i / r->o->group] * r->o->group + i % r->o->group];
}
/* Prompts for the groups to do, and their completions; rollout_sample.c. */
enum ax_status ax_rollout_read(struct ax_rollout *r, struct ax_loader *loader);
enum ax_status ax_rollout_sample(struct ax_rollout *r, struct ax_model *m, bool *stopped);
/* The generator's. */
struct ax_generate_options ax_rollout_generator(const struct ax_rollout_options *o, bool scores);
/* Do its last tokens have a text that ends a completion? rollout_stop.c. */
enum ax_status ax_rollout_ends(const struct ax_rollout_options *o, const struct ax_sequence *s,
                               bool *ends);
/* Continues or scores sequences, with the options' lanes and temperature, in the rollout phase. */
enum ax_status ax_rollout_run(const struct ax_rollout_options *o, struct ax_model *m, bool scores,
                              int64_t n, struct ax_sequence *seqs);
/* Log-probs of all completions by the reference; rollout_reference.c. */
enum ax_status ax_rollout_refer(struct ax_rollout *r, struct ax_model *reference, bool *stopped);
/* Rewards of the groups to do, which become those without a spread; rollout_rewards.c. */
enum ax_status ax_rollout_reward(struct ax_rollout *r, struct ax_runtime *rt);
/* Advantages and figures. */
enum ax_status ax_rollout_judge(struct ax_rollout *r);
void ax_rollout_put(struct ax_rollout *r, double value, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* PPO's: the model's values of all places; then advantages and returns of tokens, from the
 * completions' total rewards [n], and figures; rollout_ppo.c. */
int64_t ax_rollout_places(const struct ax_rollout *r, const struct ax_completion *c);
enum ax_status ax_rollout_value(struct ax_rollout *r, struct ax_model *value);
enum ax_status ax_rollout_judge_tokens(struct ax_rollout *r, const double *totals);
/* The i-th completion as a line of completions.jsonl; rollout_log.c. */
enum ax_status ax_rollout_line(const struct ax_rollout *r, int64_t i, int64_t step,
                               struct ax_buf *out);
/* Its rewards: "right 1, short none". */
enum ax_status ax_rollout_worth(const struct ax_rollout *r, int64_t i, struct ax_buf *out);
enum ax_status ax_rollout_text(const struct ax_rollout *r, const struct ax_completion *c,
                               struct ax_buf *prompt, struct ax_buf *completion);

/* What a checkpoint has: a generation with turns left, else only its number. */
enum ax_status ax_rollout_to_json(const struct ax_rollout *r, json_t **out);
enum ax_status ax_rollout_from_json(struct ax_rollout *r, struct ax_json v);

#endif
