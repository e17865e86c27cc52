/* Decoding: continues sequences token by token, together, over a KV cache, and computes the
 * log-probs of given continuations.
 *
 * A generator has `n_seqs` *lanes*, each of which has one sequence. A pass of the model processes the
 * new tokens of all lanes together: one for each active sequence, and pieces of prompts that have
 * just arrived, at most `pass_tokens` in total. A sequence that ends frees its lane immediately, so
 * nothing is computed for finished sequences. If a prompt starts with the tokens of some lane, it
 * shares their keys and values: the next turn of a conversation, or another sample of the same
 * prompt, costs only its new tokens.
 *
 * The cache is blocks (kvcache.h), and may have fewer than all lanes could fill (`kv_tokens`): then
 * sequences wait for a lane until there is room for them, and where those that are active need more,
 * the last of them is put back and later computed again.
 *
 * The tokens of a sequence depend only on its prompt, its options and its stream, bit for bit: not
 * on other sequences, their order, or the number of lanes, threads or blocks. Every op computes each row
 * independently.
 *
 * The host waits for the device at most once per pass: for the tokens that the next pass continues.
 * Scores stay on the device for up to AX_SCORE_PASSES passes, unless a pass waits for tokens.
 *
 * On a mesh, all ranks make the same calls with the same sequences. The data ranks share them, and so do ranks of
 * cp, which have whole sequences here; all ranks get all results. A rank of tp has the keys and values of its heads.
 * A pass goes through the stages of a pipeline one after the other, and the last one's tokens back to all.
 * Sharded weights are gathered once, when the generator is created, if training needs as much memory
 * as that takes; else in each pass.
 *
 * Sequences may join and leave while others are generated (`more`). On a mesh, without `waits`, each then goes to
 * the data rank with the fewest, and after each pass ranks tell each other its results (generate_tell.c).
 *
 * With `drafts` the model's layer for multi-token prediction drafts a token of each
 * sequence after a pass. The next pass has that token, too, and chooses from the logits of both rows, each with its
 * own random number. If the first choice is the draft, the second one is what a pass of its own would have chosen, and
 * counts; else it is dropped, with the draft's keys. So the tokens and their bits are those without drafts, in fewer
 * passes. A draft is drawn from the layer's logits by the rules and with the random number of the token that it is a
 * draft of: where both distributions are alike, so are the draws. The host waits for it: twice per pass.
 *
 * Read generate.c, then generate_pass.c and sample.c; for meshes, generate_agree.c; for scoring, generate_scores.c and
 * score.c; for drafts, generate_drafts.c. */
#ifndef AX_MODEL_GENERATE_GENERATE_H
#define AX_MODEL_GENERATE_GENERATE_H

#include "model/pass.h"
#include "model/core/sample.h"
#include "model/generate/score.h"

enum ax_finish {
    AX_FINISH_LENGTH, /* the requested number of tokens, or the lane is full */
    AX_FINISH_STOP,   /* a stop token, which is the last of the tokens */
    AX_FINISH_CALLER, /* stopped by a callback */
};
const char *ax_finish_name(enum ax_finish f); /* "length", "stop", "caller" */

/* One prompt and its result. */
struct ax_sequence {
    int64_t n_prompt;
    const int32_t *prompt;
    int64_t max_new; /* ≥ 1; 0 = as in the options */
    uint64_t stream; /* stream of random numbers; must differ between samples of one prompt */
    const struct ax_sampling *sampling; /* NULL: the options'; another one needs `varied` */
    const struct ax_bias *bias;         /* NULL: none; needs `varied` */
    uint64_t salt;                      /* only sequences of the same salt share tokens */
    int64_t priority; /* lower first, then in order of arrival; the last is put back first */
    int adapter;      /* with `adapters`: the one that it is for, or AX_ADAPTER_NONE */
    /* n_scored > 0 (≤ n_prompt): generates nothing, but computes the log-probs of scored[i], each
     * given the prompt's first n_prompt − n_scored + 1 + i tokens */
    int64_t n_scored;
    const int32_t *scored;

    int64_t n_shared; /* out: tokens whose keys and values were there when it began */
    int64_t n_new;    /* out: tokens generated (a stop token included) */
    int32_t *tokens;  /* out [max_new] */
    double *logprobs; /* out [max_new], see ax_sampler_choose; NULL = not requested. With
                              n_scored: out [n_scored] */
    /* out [max_new]: entropies of the distributions that the tokens were drawn from; NULL = not
     * requested */
    double *entropies;
    /* out [max_new][n_best], with n_scored [n_scored][n_best]: the likeliest tokens and their log-probs,
     * the likeliest first; id −1 where there are fewer. Needs `varied` and logprobs */
    int n_best; /* 0 = not requested; ≤ AX_LIKELIEST_MAX */
    int32_t *best;
    double *best_logprobs;
    bool greedy;           /* out: each of the scored tokens was the most likely one */
    enum ax_finish finish; /* out */

    bool leaves;              /* set in `more`: ends before the next pass, with AX_FINISH_CALLER */
    struct ax_sequence *next; /* in `more`: the next that joins; then the generator's */
    int64_t place; /* order of lanes: the generator's, of arrival; with `waits` the caller's */
    bool begun;    /* the generator's: it has been on a lane */
    int rank;      /* with `more` on a mesh, without `waits`: the data rank that computes it */
};

struct ax_generate_options {
    int n_seqs;                  /* lanes */
    int64_t max_prompt, max_new; /* caps: a lane holds max_prompt + max_new tokens */
    /* prompts may be as long as a lane, but for a token: what goes on with a sequence that has ended,
     * whose max_new leaves room for it */
    bool long_prompts;
    /* capacity of the cache, at least a lane's; 0: enough for all lanes */
    int64_t kv_tokens;
    int64_t pass_tokens;      /* the most tokens in one pass; 0 = one of AX_PASS_TOKENS… */
    bool in_training;         /* passes have a step's memory */
    bool scoring;             /* sequences may ask for scores */
    double score_temperature; /* divides the logits of scores; 0: 1 */
    int n_stop;
    const int32_t *stop; /* token ids that end a sequence; borrowed */
    struct ax_sampling sampling;
    /* by the model's drafter, which it must have (model/drafter.h). Not for sequences with a bias or a repetition
     * penalty */
    bool drafts;
    /* sequences may have samplings of their own, and ask for the likeliest tokens; of several data ranks or stages
     * only with `more` */
    bool varied;
    /* each sequence says which of the model's adapters (core/adapters.h) it is for: passes are for one
     * adapter, in turn, and only sequences for the same one share tokens */
    bool adapters;
    /* Called before each pass, for sequences that join: the first of a list, or NULL. `idle`: nothing
     * is left to compute, so it may wait; NULL then ends the call. The prompt, sampling, and outputs
     * of a sequence must stay until `done` is called for it. On a mesh all ranks get the same sequences in
     * the same call, and the same leave; token and done are called for all sequences on all ranks. Without
     * drafts on several data ranks or stages, and without stop_now. May be NULL. */
    enum ax_status (*more)(void *ctx, bool idle, struct ax_sequence **joining);
    /* With `more`: may sequences still join, though none does now? Then `more` may wait for a short time alone, on
     * any mesh (ranks of tp and stages get the same sequences), beside stop_now; the sequences that join have their
     * `place`; and `done` is called on all stages immediately, with log-probs on the last one. A call ends when no rank
     * that computes passes with this one has any. May be NULL. */
    bool (*waits)(void *ctx);
    /* Called for each token as it is chosen, in lane order; *stop = true ends the sequence with
     * that token. It must decide the same on all ranks of tp and all stages. For sequences of other data ranks,
     * called after all have ended. May be NULL. */
    enum ax_status (*token)(void *ctx, struct ax_sequence *seq, bool *stop);
    /* Called when a sequence has ended, or when its scores have been read; on stages without the head, for all
     * sequences at the end. Not called for sequences that stop_now ended, but on those stages and for sequences of
     * other data ranks. May be NULL. */
    enum ax_status (*done)(void *ctx, struct ax_sequence *seq);
    /* Called before each pass: true, on any rank, ends all sequences of the ranks that compute
     * passes with that rank. May be NULL. */
    bool (*stop_now)(void *ctx);
    void *ctx;
};
#define AX_PASS_TOKENS             512
#define AX_PASS_TOKENS_IN_TRAINING 256
#define AX_PASS_TOKENS_GPU         2048 /* products of fewer rows are slow there; in training, too */

struct ax_generate_counters {
    int64_t passes, tokens; /* tokens: chosen */
    /* prompt tokens that the model processed, including those of sequences put back */
    int64_t prompt_tokens;
    int64_t shared_tokens;    /* tokens whose keys and values were reused from another prompt */
    int64_t shared_blocks;    /* blocks that were shared with another lane */
    int64_t put_back;         /* sequences put back for lack of free blocks */
    int64_t drafts, accepted; /* drafts that a pass has tried; those that were chosen */
    int64_t decode_passes;    /* passes without prompt tokens */
    int64_t decode_tokens;    /* tokens chosen in those passes */
    double decode_seconds;    /* time of those passes */
    double prompt_seconds;    /* time of the other passes */
    double wait_seconds;      /* time without passes, as all sequences had yet to join */
};

struct ax_lane;
struct ax_generate_work;
struct ax_generate_scores;

/* A model for decoding and its memory. */
struct ax_generator {
    struct ax_generate_options o;
    struct ax_model *model;
    struct ax_kvcache cache;
    struct ax_sampler sampler;
    struct ax_results results; /* tokens of a pass, and scores since the last wait */
    struct ax_slot slot;
    struct ax_batch batch;           /* capacity pass_tokens */
    struct ax_pass pass;             /* the last one; with drafts it ends when these are made */
    int64_t row_cap;                 /* rows with logits: one per lane, with drafts two */
    struct ax_tensor logits, hidden; /* accumulation [row_cap][V]; compute [row_cap][D] */
    struct ax_tensor rows;           /* i32 [row_cap]: rows of the batch that have logits */
    int64_t cap;                     /* tokens per lane */
    struct ax_lane *lanes;           /* [n_seqs] */
    struct ax_generate_work *work;
    struct ax_generate_scores *scores; /* NULL without `scoring` */
    bool holds;                        /* all weights are gathered */
    struct ax_generate_counters counters;
};

/* The capacity of the cache in tokens, rounded up to blocks. */
int64_t ax_generate_room(const struct ax_generate_options *o);
/* Allocates from the rollout phase and enters it. If the model is being trained, no step may be in
 * progress. The model's max_positions must be at least max_prompt + max_new. */
enum ax_status ax_generator_create(struct ax_generator *d, struct ax_model *m,
                                   const struct ax_generate_options *o);
void ax_generator_free(struct ax_generator *d);
/* Continues any number of prompts, and those of `more`. While planning, runs a pass of every size. The options token,
 * done, more, waits, stop_now, ctx, n_stop and stop may be changed in d->o between calls. After an error no sequence is
 * active and the cache is empty. */
enum ax_status ax_generate(struct ax_generator *d, int64_t n, struct ax_sequence *seqs);
/* Empties the cache, e.g. after the model's weights changed. No sequence may be active. */
void ax_generator_forget(struct ax_generator *d);
/* Empties what idle lanes keep for others that begin alike: those of an adapter, or with NULL of all. */
void ax_generator_forget_idle(struct ax_generator *d, const int *adapter);
/* Ends the sequences that `leaves` is set for: for a `more` that waits, after which the generator does so itself. */
enum ax_status ax_generator_drop_left(struct ax_generator *d);

#endif
