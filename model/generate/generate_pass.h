/* Private to generate*.c: lanes of a generator, and passes over their pending tokens. */
#ifndef AX_MODEL_GENERATE_GENERATE_PASS_H
#define AX_MODEL_GENERATE_GENERATE_PASS_H

#include "model/generate/generate.h"
#include "model/generate/score.h"

/* The cache holds ids[0 … length); the tokens from there to `known` go through the model next. */
struct ax_lane {
    struct ax_sequence *seq; /* NULL: idle */
    int32_t *ids;            /* [cap] */
    int64_t known;
    int adapter;   /* that the ids went through the model with */
    uint64_t salt; /* their sequence's */
    bool drafted;  /* ids[known] is a draft, which goes through the model as well */
    /* where the cache keeps a place for sequences that begin alike (ax_kvcache_keep) */
    int64_t keep_at;
    /* with a repetition penalty: the distinct tokens of ids[0 … known) */
    int32_t *context; /* [cap] */
    int64_t n_context;
    uint64_t *seen; /* bit per token of the vocabulary */
};
/* Tokens of a sequence, chosen ones included. */
static inline int64_t ax_sequence_length(const struct ax_sequence *s) {
    return s->n_prompt + s->n_new;
}

/* This rank's sequences that have not begun or were put back, in their order (ax_sequence_before). */
struct ax_generate_queue {
    struct ax_sequence *first;
    int64_t arrived;
};

/* Rows with logits, and what is chosen from them. */
struct ax_generate_rows {
    int32_t *lanes;             /* [row_cap] */
    struct ax_sample_row *rows; /* likewise */
    struct ax_choice *choices;  /* one for neighbors of the same sampling */
    int64_t n_choices;          /* 0: another stage has chosen */
};

/* A rank's needs in the next pass; after ax_generate_agree, those of all ranks that compute it together. */
struct ax_pass_need {
    int64_t tokens; /* pending tokens, 0: none; afterwards including padding */
    bool stop;      /* a rank was asked to end */
    bool logits;
    int64_t windows; /* windows of scores */
    bool starved;    /* there are no tokens, and sequences may join */
    /* what ranks tell each other of it, of all ranks: rows, and the most of the likeliest tokens */
    int64_t rows, best;
};

/* A pass on the host: documents of the batch, each a piece of a lane's tokens. */
struct ax_generate_work {
    struct ax_generate_queue queue;
    bool *held;                  /* [blocks], see generate_pass.c */
    int32_t *tokens, *positions; /* [pass_tokens] */
    int32_t *cu;                 /* [n_seqs + 1] */
    int32_t *lane;               /* [n_seqs]: lane of each document */
    int64_t *n;                  /* [n_seqs]: tokens of each document */
    int64_t *pending, *given;    /* [n_seqs]: tokens of prompts, and those of them in the pass */
    int32_t *row;                /* [row_cap]: row of the batch for each row of the logits */
    int32_t *next;               /* [pass_tokens]: the next tokens; only with drafts */
    double *ids;                 /* [row_cap]: the tokens that were chosen */
    int64_t n_docs, n_tokens, n_rows;
    int64_t T;          /* n_tokens and padding */
    int64_t row_length; /* sequence length for rope */
    int turn;           /* with `adapters`: passes that are left to the active one */
    double *busy; /* [adapters + 1], from AX_ADAPTER_NONE on: 1 for those with pending tokens */
    struct ax_pass_need need;         /* that of the last pass */
    struct ax_sequence *away;         /* where ranks tell: sequences that other ranks compute */
    struct ax_generate_counters told; /* the counters that all ranks know */
};

/* A token whose score is in the results: row `row` of window `window`. */
struct ax_pending_score {
    struct ax_sequence *seq;
    int64_t at; /* which of its scored tokens */
    int32_t label, row;
    int64_t window;
};

/* Scored tokens: a pass adds theirs to the results on the device; once the host has read them, they go to
 * their sequences. */
struct ax_generate_scores {
    struct ax_scorer scorer;
    struct ax_tensor rows, labels;    /* device i32 [pass_tokens] of this pass */
    int32_t *host_rows, *host_labels; /* [pass_tokens] */
    struct ax_pending_score *pending; /* [AX_SCORE_PASSES · pass_tokens] */
    struct ax_scores *windows;        /* [AX_SCORE_PASSES · windows of a pass] */
    struct ax_sequence **ended;       /* [AX_SCORE_PASSES · n_seqs] */
    int64_t n_listed;                 /* tokens that the pass has listed */
    int64_t n_pending, n_windows, n_ended, n_passes;
};

/* Memory of lanes, passes and scores: on the device from `stack`, the scratch stack of the rollout phase.
 * The cache must exist. _free is safe after an error of _create. */
enum ax_status ax_generate_pass_create(struct ax_generator *d, struct ax_stack *stack);
void ax_generate_pass_free(struct ax_generator *d);
/* ---- generate_scores.c; without `scoring`, they do nothing ---- */

enum ax_status ax_lane_scores_create(struct ax_generator *d, struct ax_stack *stack);
void ax_lane_scores_free(struct ax_generator *d);
void ax_lane_scores_drop(struct ax_generator *d);
/* Lists the tokens of the next pass that are to be scored; returns how many windows they take. */
int64_t ax_lane_scores_list(struct ax_generator *d);
/* Scores the listed tokens, in `windows` windows (while planning: any number of rows). */
enum ax_status ax_lane_scores_run(struct ax_generator *d, struct ax_pass *p, int64_t windows);

/* ---- generate_order.c ---- */

/* Lower priority first, then earlier arrival. */
bool ax_sequence_before(const struct ax_sequence *a, const struct ax_sequence *b);
/* Puts a sequence into the queue, where its place is. */
void ax_lanes_enqueue(struct ax_generator *d, struct ax_sequence *s);
/* Shares `room` tokens of a pass among lanes with pending tokens of prompts [n_seqs]: the shortest first, so that a
 * short prompt joins the next pass while long ones are read, but a part for the one that came first. */
void ax_lanes_share_pass(const struct ax_generator *d, int64_t room, const int64_t *pending,
                         int64_t *given);

/* ---- generate_agree.c ---- */

/* n rounded up to a number of tokens that a pass can have. */
int64_t ax_generate_pad(const struct ax_generator *d, int64_t n);
enum ax_status ax_generate_agree(struct ax_generator *d, struct ax_pass_need *need);
/* Makes w->busy that of all ranks that compute passes together. */
enum ax_status ax_generate_agree_on_adapters(struct ax_generator *d);

/* ---- generate_tell.c: ranks whose sequences join while others are generated ---- */

/* Do ranks tell each other the results of each pass? Where sequences join, `waits` is NULL, and ranks have
 * different ones, or a stage knows what others do not. */
bool ax_generate_tells(const struct ax_generator *d);
/* Queues a sequence on the data rank with the fewest; on the others it is away. */
void ax_generate_join(struct ax_generator *d, struct ax_sequence *s);
/* After a pass whose results have been read, and which has been counted, with rows for n choices: hands out those of
 * all ranks. */
enum ax_status ax_generate_tell(struct ax_generator *d, const struct ax_generate_rows *r,
                                int64_t n);

/* ---- generate.c ---- */

/* Appends a token to a sequence; *ended: it was the last. */
enum ax_status ax_sequence_take(struct ax_generator *d, struct ax_sequence *s, int32_t id,
                                bool *ended);
/* Likewise to a lane's, which it frees after the last one. */
enum ax_status ax_lane_hand_out(struct ax_generator *d, int lane, int32_t id);

/* ---- generate_pass.c ---- */

/* Puts waiting sequences on idle lanes, as long as there is room. */
enum ax_status ax_lanes_admit(struct ax_generator *d);
/* Appends a token to the lane. */
void ax_lane_push(struct ax_generator *d, struct ax_lane *l, int32_t id);
/* The sampling of a lane's sequence. */
const struct ax_sampling *ax_lane_sampling(const struct ax_generator *d, int lane);
/* Adds a row of the batch to those with logits, behind the last one of the same sampling. */
void ax_lanes_add_row(struct ax_generator *d, int32_t *lanes, int lane, int32_t row);
/* Logits of the added rows, by `make`, into d->logits; if there are none, of row 0, for nobody. */
typedef enum ax_status ax_logits_of_rows(struct ax_pass *p, const struct ax_tensor *rows,
                                         const struct ax_tensor *work, const struct ax_tensor *out);
enum ax_status ax_lanes_make_logits(struct ax_generator *d, ax_logits_of_rows *make);
/* Are the tokens of two lanes chosen together? Those with a bias are chosen alone. */
bool ax_lanes_choose_alike(const struct ax_generator *d, int a, int b);
/* One pass over the pending tokens (while planning: over `planned` tokens). *n_rows = how many rows then
 * have logits; lanes[i] is the lane of row i, and lanes of equal sampling are neighbors. A lane with a draft has
 * two rows, that of the draft follows. *ends instead: nothing is pending, or a rank was
 * interrupted. Does not wait. */
enum ax_status ax_generate_run_pass(struct ax_generator *d, int64_t planned, int64_t *n_rows,
                                    int32_t *lanes, bool *ends);

/* ---- generate_drafts.c ---- */

/* The most tokens that a sequence may have. */
int64_t ax_sequence_most(const struct ax_generator *d, const struct ax_sequence *s);
/* After a pass whose choices have been handed out: drops the keys of drafts that were not chosen, and ends the
 * pass. *n_rows = how many lanes have logits to draft a token from; lanes as in ax_generate_run_pass. */
enum ax_status ax_generate_run_drafts(struct ax_generator *d, int64_t *n_rows, int32_t *lanes);

#endif
