/* Rollouts: the model that trains samples completions of prompts, functions reward them, and some
 * steps train on them (optim/losses/policy.h). Without rewards, a teacher says what each token is worth
 * (optim/losses/distill.h).
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
 * With tools, a completion is a conversation (data/tools/episode.h): tokens that are inserted between what the model
 * samples are in its context, and train nothing. An environment may add to the prompt, answer turns, and give rewards.
 *
 * See rollout.c (a generation), turns.c (completions with tools), observe.c (what an environment adds to a prompt),
 * rollout_rewards.c (rewards, advantages, figures), logged.c (what reward functions log), reread.h (a teacher with another tokenizer), rollout_state.c (what a checkpoint has of it), letter.c (a
 * generation that is trained on later), rollout_log.c,
 * optim/train/rollout.c (a turn's micro-batches). */
#ifndef AX_OPTIM_ROLLOUT_ROLLOUT_H
#define AX_OPTIM_ROLLOUT_ROLLOUT_H

#include "data/records/pipeline/loader.h"
#include "data/reward/rewards.h"
#include "data/text/tokenizer/tokenizer.h"
#include "data/tools/tools.h"
#include "model/generate/generate.h"
#include "optim/losses/advantages.h"
#include "optim/losses/figures.h"
#include "optim/losses/gae.h"
#include "optim/losses/policy.h"
#include "optim/losses/teach.h"
#include "data/remote/teacher.h"
#include "optim/rollout/reward_model.h"

#define AX_ROLLOUT_MAX_REWARDS 16

/* What reward functions log; logged.c. */
struct ax_rollout_logged {
    json_t *metrics; /* the generation's: name → [sum of values, number of values] */
    json_t *names;   /* names of metrics so far, each with the function that has logged it first */
    json_t **extra;  /* [n] columns of a completion; NULL: none */
    bool told;       /* that a metric is left out */
};

/* PPO's options for the rewards and advantages of tokens (gae.h). */
struct ax_rollout_ppo {
    double gamma, lambda, kl_coef;
    enum ax_kl_estimator kl;
    bool whiten_rewards;
    double missing_eos_penalty; /* subtracted from the score of a completion that ended by length */
};

/* How a teacher with another tokenizer reads prompts and completions. */
struct ax_reader {
    const struct ax_tokenizer *tokenizer;
    const struct ax_format *format; /* format of prompts, with its chat template */
    int32_t end;                    /* its token that ends an answer, or AX_NO_TOKEN */
};

struct ax_rollout_options {
    int64_t group;      /* completions per prompt; 0: no rollouts */
    int64_t eval_group; /* completions per prompt in evaluations */
    int64_t prompts;    /* prompts of a generation, on all ranks */
    int steps, iterations;
    /* how many steps older than those that it trains the weights are that draw it; above 0, a
     * generation is one step's */
    int64_t staleness;
    /* how often prompts whose completions all have equal rewards are replaced by others (DAPO's
     * dynamic sampling) */
    int rounds;
    /* probability that a generation is not sampled: its completions are the records' own answers */
    double own_share;
    int64_t max_prompt, max_new; /* tokens */
    int64_t lanes;               /* the most sequences that a rank samples at a time */
    int64_t kv_tokens;           /* capacity of the KV cache */
    int64_t kv_bytes;            /* size of the KV cache, for messages */
    /* the policy has a drafter (model/drafter.h): the same tokens in fewer passes */
    bool drafts;
    struct ax_sampling sampling;
    int n_stop;
    const int32_t *stop; /* ids that end a completion */
    int n_stop_strings;
    const char *const *stop_strings; /* texts that end a completion */
    bool mask_truncated;             /* completions that ended by length have no labels */
    /* share of the tokens that train, those with the highest entropies; 1: all */
    double top_entropy;
    struct ax_advantage_options advantages; /* group, n_rewards and weights follow */
    const struct ax_policy *policy; /* NULL in evaluations and distillation: no advantages */
    /* PPO, with groups of one; NULL: each completion has one advantage */
    const struct ax_rollout_ppo *ppo;
    /* a teacher, whose log-probs of sampled tokens are part of their advantages; NULL: none. Borrowed */
    const struct ax_arch *teacher;
    const struct ax_remote_teacher
        *remote; /* the same, which a server has; NULL: none, or planning. Borrowed */
    /* the teacher's, if its tokens are not the model's, and how many of them it reads of a prompt and completion;
     * NULL and 0: they are. While planning, it is only known how many */
    const struct ax_reader *reader;
    int64_t most_read;
    struct ax_teach_options teach;
    /* how completions call tools, [as many as there are environments, or one]; NULL: they do not. While planning, it
     * is only known whether they do */
    const struct ax_episode_rules *turns;
    struct ax_tools *tools; /* NULL while planning */
    const struct ax_format *
        format; /* format of prompts, to which an environment adds; NULL: there is none, or planning */
    bool observes; /* an environment may add to prompts, so that those of a group may differ */
    int shown;     /* how many completions of a generation are shown to the user */
    struct ax_rewards *rewards; /* NULL while planning, and in distillation */
    /* models that some of the rewards ask */
    struct ax_reward_model *models[AX_ROLLOUT_MAX_REWARDS];
    int n_models;
    const struct ax_tokenizer *tokenizer;
};

/* Whether a generation's rewards differ enough to learn from. */
enum ax_worth {
    AX_WORTH_VARIED,
    AX_WORTH_NONE, /* no completion has a reward */
    /* the rewards of each prompt are equal (with PPO, which can learn from them, VARIED) */
    AX_WORTH_EQUAL,
    AX_WORTH_MOST /* all rewards are the highest possible */
};

/* Where a prompt comes from. */
struct ax_rollout_origin {
    char *file;
    uint64_t line;
};

struct ax_completion {
    /* its tokens begin at ids[start]; number of tokens of the prompt; of prompt and completion */
    int64_t start, n_prompt, n;
    int64_t sampled; /* tokens of the completion that the model has sampled: all, without tools */
    float advantage;
    float taught_kl; /* with a teacher: its sampled tokens' mean of log-prob less the teacher's */
    bool truncated;
    bool given; /* the record's own answer */
    /* calls of tools, those that failed, and turns whose calls could not be read */
    int64_t n_calls, n_failed, n_unread;
    bool late; /* ended because its tools took too long */
    /* ---- with an environment ---- */
    int64_t n_turns;
    double earned; /* what the environment has given; NaN: nothing */
    bool lost;     /* the environment has failed: it has no rewards */
};

struct ax_rollout {
    const struct ax_rollout_options *o;
    int64_t generation;         /* number of the current generation; 0: none */
    int64_t version;            /* with staleness: steps that the weights had made that drew it */
    int turn;                   /* turns taken of the generation */
    int64_t epoch, index;       /* position of its first prompt in the loader */
    int64_t read;               /* prompts read for the generation */
    int64_t n;                  /* completions of the generation */
    struct ax_completion *list; /* [n]; the completions of a group are contiguous */
    struct ax_rollout_origin *origins; /* [prompts] */
    bool filled;                       /* the members above describe a generation */
    int32_t *ids;                      /* [n][max_prompt + max_new] */
    /* shaped like ids: tokens of a completion that the model has not sampled; NULL without tools */
    bool *inserted;
    /* shaped like ids: log-probs of a completion's tokens when they were drawn */
    float *logprobs;
    /* shaped like ids: log-probs by the reference; NULL: not needed */
    float *reference;
    /* shaped like ids: log-probs by the teacher; NULL: none */
    float *teacher;
    /* shaped like ids: entropy of the distribution that each token was drawn from; NULL: not
     * needed */
    float *entropies;
    /* for PPO or a teacher, else NULL; shaped like ids */
    float *advantages;
    /* for PPO, else NULL; shaped like ids. A value or return belongs to the place of a token: a
     * completion's first one is at the prompt's last token */
    float *values, *returns;
    int64_t *order;                     /* [n] */
    struct ax_reward_progress progress; /* for the reward functions; the caller's */
    /* about the last generation, for reports; not part of a checkpoint */
    double *rewards; /* [n][functions] */
    struct ax_rollout_logged logged;
    double verdicts[AX_VERDICT_COUNT]; /* verdicts on programs that rewards have run */
    char **records;                    /* [prompts] JSON */
    /* with tools, else NULL: [n] messages of a completion, and its calls with their seconds; lists */
    json_t **messages, **calls;
    json_t **turn_rewards; /* likewise: [n] what the environment's answers gave, lists */
    char **observations;   /* likewise: [n] what the environment has added to the prompt, or NULL */
    int64_t *todo, n_todo; /* [prompts] groups to sample in this round */
    int round;             /* from 0 */
    struct ax_figures figures; /* figures with TRL's names */
    enum ax_worth worth;
    int64_t passes, drafts, accepted; /* counts of all ranks that sampled it, as a generator's */
    double seconds, reward_seconds;   /* time for sampling; for rewards */
    /* time of all calls of tools; time in which nothing was sampled, as all completions waited for them */
    double tool_seconds, wait_seconds;
};

/* Is the policy compared with a reference? */
bool ax_rollout_refers(const struct ax_rollout_options *o);
/* Without rollouts (o->group 0), only zeroes *r. */
enum ax_status ax_rollout_create(struct ax_rollout *r, const struct ax_rollout_options *o);
void ax_rollout_free(struct ax_rollout *r);
/* True if the next turn needs a new generation. */
bool ax_rollout_is_used_up(const struct ax_rollout *r);
/* The models of a rollout. `reference` is the model that the policy is compared with, or NULL (then
 * the policy is compared with its own base, without its adapter, if at all); `value` is PPO's; `teacher`
 * is o->teacher's, or NULL. */
struct ax_rollout_models {
    struct ax_model *policy, *reference, *value, *teacher;
};
/* Samples and rewards the next generation. *stopped: a rank was asked to stop; then the loader is where
 * it was, and the last generation is gone. Scratch and slots must be empty. While planning, takes the
 * memory for it. */
enum ax_status ax_rollout_generate(struct ax_rollout *r, const struct ax_rollout_models *m,
                                   struct ax_loader *loader, bool *stopped);
/* Options for evaluating on n prompts, all in one generation. Random numbers are the same in each
 * evaluation. */
struct ax_rollout_options ax_rollout_for_evaluation(const struct ax_rollout_options *o, int64_t n);
enum ax_status ax_rollout_evaluate(struct ax_rollout *r, const struct ax_rollout_models *m,
                                   struct ax_loader *loader, bool *stopped);
/* The number of completions of a turn, and its i-th completion, whose index is *number. The
 * completions of a group are contiguous. */
int64_t ax_rollout_turn_size(const struct ax_rollout *r);
const struct ax_completion *ax_rollout_take(const struct ax_rollout *r, int64_t i, int64_t *number);

/* ---- parts ---- */

/* The i-th completion of the groups to sample in this round. */
static inline struct ax_completion *ax_rollout_todo(const struct ax_rollout *r, int64_t i) {
    return &r->list[r->todo[i / r->o->group] * r->o->group + i % r->o->group];
}
/* A completion's stream of random numbers. */
static inline uint64_t ax_rollout_stream(const struct ax_rollout *r,
                                         const struct ax_completion *c) {
    return ((uint64_t)r->generation << 32) + (uint64_t)(r->round * r->n + (c - r->list));
}
/* Does a completion's token train? at: its place in ids. */
static inline bool ax_rollout_is_sampled(const struct ax_rollout *r, int64_t at) {
    return !r->inserted || !r->inserted[at];
}
/* Renders a completion's prompt again, with what its environment begins with, a text. *fits: it does; else the
 * prompt is as it was; observe.c. */
enum ax_status ax_rollout_observe(struct ax_rollout *r, struct ax_completion *c, const char *text,
                                  bool *fits);
/* A group's prompt as `format` writes it, with `text` added, or NULL; observe.c. */
enum ax_status ax_rollout_render(const struct ax_rollout *r, const struct ax_format *format,
                                 int64_t group, const char *text, struct ax_example_list *out);
/* Log-probs of n sequences of the teacher's tokens. */
enum ax_status ax_rollout_score_by_teacher(const struct ax_rollout *r, struct ax_model *teacher,
                                           int64_t n, struct ax_sequence *seqs);
/* Samples the groups to do, turn by turn, and runs the tools that they call; turns.c. */
enum ax_status ax_rollout_take_turns(struct ax_rollout *r, struct ax_model *m, bool *stopped);

/* Options of the generator. */
struct ax_generate_options ax_rollout_generator(const struct ax_rollout_options *o, bool scores);
/* Adds what sampling has taken to the generation's counts. */
void ax_rollout_count(struct ax_rollout *r, const struct ax_generate_counters *c);
/* *ends: the text of the sequence's last tokens contains one of the texts that end a completion. */
enum ax_status ax_rollout_ends(const struct ax_rollout_options *o, const struct ax_sequence *s,
                               bool *ends);
/* True if this rank was asked to stop. For generators, classifiers, and ranks that wait for programs. */
bool ax_rollout_stop_now(void *ctx);
/* Rewards the groups sampled in this round. Afterwards the groups to sample are those without a
 * spread of rewards; rollout_rewards.c. *stopped, on all ranks alike: one of them was asked to stop, and
 * there are no rewards. */
enum ax_status ax_rollout_reward(struct ax_rollout *r, struct ax_runtime *rt, bool *stopped);
/* Takes what reward functions have logged of this rank's completions to do, from the first-th on, and of those of the
 * others; as figures; logged.c. */
enum ax_status ax_rollout_share_logged(struct ax_rollout *r, struct ax_runtime *rt, int64_t first);
void ax_rollout_put_logged(struct ax_rollout *r);
void ax_rollout_forget_logged(struct ax_rollout *r);
void ax_rollout_free_logged(struct ax_rollout *r);
/* Computes advantages and figures. */
enum ax_status ax_rollout_judge(struct ax_rollout *r);
/* For PPO: a completion has a place for each token that the model has sampled, at the token before it, and, if it is
 * shorter than the longest can be, one at its last token, where TRL puts the score; else the score is at the
 * last place. `span`: places and what is between them, from the prompt's last token on; `at`: below it. */
int64_t ax_rollout_span(const struct ax_rollout *r, const struct ax_completion *c);
bool ax_rollout_is_place(const struct ax_rollout *r, const struct ax_completion *c, int64_t at);
/* Computes the value model's values of all places. */
enum ax_status ax_rollout_value(struct ax_rollout *r, struct ax_model *value, bool *stopped);
/* How many completions of the generation are shown to the user. */
int64_t ax_rollout_shown(const struct ax_rollout *r);
/* The i-th completion as a line of completions.jsonl; rollout_log.c. */
enum ax_status ax_rollout_line(const struct ax_rollout *r, int64_t i, int64_t step,
                               struct ax_buf *out);
/* A completion's rewards as text: "right 1, short none", or "12 tokens" without rewards. */
enum ax_status ax_rollout_worth(const struct ax_rollout *r, int64_t i, struct ax_buf *out);
enum ax_status ax_rollout_text(const struct ax_rollout *r, const struct ax_completion *c,
                               struct ax_buf *prompt, struct ax_buf *completion);

/* The rollout in a checkpoint: a generation with turns left, else only its number. */
enum ax_status ax_rollout_to_json(const struct ax_rollout *r, json_t **out);
enum ax_status ax_rollout_from_json(struct ax_rollout *r, struct ax_json v);

/* A generation with its reports, for another process, a later step or a checkpoint; letter.c. The letter also has
 * where the loader is. Reading gives a generation of which nothing has been trained on. */
enum ax_status ax_rollout_to_letter(const struct ax_rollout *r, const struct ax_loader *loader,
                                    json_t **out);
enum ax_status ax_rollout_from_letter(struct ax_rollout *r, struct ax_json letter);

#endif
