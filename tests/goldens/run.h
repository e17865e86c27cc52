/* Whole training runs of the reference programs (the fixtures' runs/), repeated with the product's
 * own model, step, schedule and optimizer, and compared step by step.
 *
 * A family, such as sft, is a row of the table in run.c and a file of its own: how the
 * tensors that a micro-batch was fed become documents, which objective trains on them, and which
 * metrics it has.
 *
 * Reading order: run.c (folders and cases), run_case.c (opening one),
 * run_micro.c (micro-batches),
 * run_data.c (the same from the data), run_replay.c (the steps), run_look.c (what the
 * model says of each token), run_compare.c (losses and metrics), run_final.c (the
 * parameters at the end); the families run_sft.c, run_pairs.c, run_kto.c,
 * run_heads.c, run_distill.c, run_grpo.c with run_rollouts.c,
 * run_ppo.h. */
#ifndef TESTS_GOLDENS_RUN_H
#define TESTS_GOLDENS_RUN_H

#include "ckpt/hf/hf.h"
#include "ckpt/hf/peft.h"
#include "tests/goldens/golden.h"
#include "data/records/format/format.h"
#include "data/text/stop_tokens.h"
#include "optim/losses/distill.h"
#include "optim/losses/kto.h"
#include "optim/losses/advantages.h"
#include "optim/optimizers/lr_schedule.h"
#include "optim/losses/policy.h"
#include "optim/losses/preference.h"
#include "model/arch/classifier.h"
#include "optim/losses/reward.h"
#include "optim/step/step.h"

#define AX_RUN_MAX_METRICS 40

/* A micro-batch: its documents one after the other, and values of their tokens. */
struct ax_run_micro {
    int n;
    struct ax_document *docs; /* [n]; labels shifted, or classes in place; −1 where not scored */
    int64_t *recorded; /* [n]: column of the document's first token in the recorded log-probs */
    int64_t tokens, scored, cap, cap_docs;
    int32_t *ids, *labels;  /* [tokens], owned */
    float *share;           /* [tokens]: 0 where a scored token is no part of the answer, else 1 */
    float *reference_sum;   /* [n]: of the answers' tokens */
    float *margin, *target; /* [n], [tokens]: of rewards, and of labeled steps */
    int32_t *desirable;     /* [n]; NULL: answers are not rated */
    /* What the model said of the tokens with a label, 0 elsewhere: [tokens], owned. `reference`:
     * the log-probs of the model at the start; `old`: of that which its completions are from. */
    double *logprob, *entropy, *top1, *mean_logit, *reference, *old;
    /* Of completions: [n] advantages, first column of the document's tokens among the recorded
     * log-probs of completions, tokens of the prompt; [tokens] `reference` and `old`. */
    float *advantage;
    int64_t *recorded_answer, *prompt;
    float *reference_values, *old_values;
    float *sampler_values; /* [tokens]: log-probs that another sampler drew tokens with */
    float *token_values;   /* [tokens]: advantages of tokens, or what they are to return */
    double loss;           /* of its last pass, as the reference logs it */
};

struct ax_run_metric {
    char name[48];
    double value;
};
struct ax_run_metrics {
    int n;
    struct ax_run_metric list[AX_RUN_MAX_METRICS];
};
/* NULL: not there. */
const struct ax_run_metric *ax_run_metric_find(const struct ax_run_metrics *m, const char *name);
void ax_run_metric_add(struct ax_run_metrics *m, const char *name, double value);

/* What the reference divides a micro-batch's loss by, of the step. */
struct ax_run_divisors {
    double weight, entropy_tokens, entropy_cut;
};

/* Recorded completions, which are trained on as they were generated: `batches` micro-batches at a
 * time, `iterations` times over. */
struct ax_run_rollouts {
    int batches, iterations, rows; /* rows: of a micro-batch */
    struct ax_advantage_options o;
    double weights[2];
    int64_t n, rated;  /* completions; of them in full batches, which the advantages are of */
    double *rewards;   /* [n][o.n_rewards] */
    double *totals;    /* [n] */
    double *work;      /* of a batch */
    double *advantage; /* [rated] */
    json_t **ids;      /* [n] tokens, owned */
    json_t **records;  /* [n / group], owned */
    struct ax_json_doc recorded; /* completions in a file of their own; root NULL: in the records */
    /* of completions with tools (run_turns.c): [n] calls, and those that failed; NULL: not played */
    int64_t *calls, *failed;
    int32_t eos; /* the tokenizer's */
    struct ax_stop_tokens ends;
    bool masks; /* truncated completions are not trained on */
};

struct ax_run;
struct ax_run_family {
    const char *name;       /* of its folder */
    enum ax_task task;      /* of its data's records */
    bool by_ids;            /* BOS and EOS are added as ids */
    double loss, grad_norm; /* tolerances: of max(1, |loss|), and relative */
    bool mean; /* a step's loss is the mean of its micro-batches' losses, else the sum */
    bool each; /* a micro-batch's loss is a mean over its tokens, not the step's */
    const struct ax_classifier *head; /* in place of the model's; it starts as recorded */
    const char *const
        *ignore; /* patterns of recorded metrics that are not compared; NULL-terminated */
    /* Sets r->objective from the settings. */
    enum ax_status (*objective)(struct ax_run *r);
    /* Reads the documents of micro-batch k. */
    enum ax_status (*read)(struct ax_run *r, int k, struct ax_run_micro *m);
    /* Makes a record that the product's formats know of one of the case's data; NULL: they do. */
    enum ax_status (*record)(json_t **record);
    /* Reads its prompts with answers of others, of which kto estimates a KL divergence; NULL: none. */
    enum ax_status (*read_mismatched)(struct ax_run *r, int k, struct ax_run_micro *m);
    /* Its metrics, from the values of its tokens. */
    void (*metrics)(const struct ax_run *r, const struct ax_run_micro *m,
                    struct ax_run_metrics *out);
    /* The metrics of a step that no micro-batch has; NULL: none. */
    void (*step_metrics)(const struct ax_run *r, int step, struct ax_run_metrics *out);
    /* Compares what the product makes of the case's data; NULL: ax_run_compare_data. */
    enum ax_status (*compare)(struct ax_run *r);
    /* All of a case, whose steps are none of these; NULL: ax_run_open and what follows. */
    enum ax_status (*repeat)(struct ax_run *r, const char *name);
    /* Where they are not the step's weight, and not a mean; NULL. n: micro-batches of the step. */
    struct ax_run_divisors (*divide)(const struct ax_run *r, int k, int n);
};

/* A case: FAMILY/NAME.json and the files it names. */
struct ax_run {
    const struct ax_run_family *family;
    const struct ax_golden_options *o;
    struct ax_golden_report *report;
    char *root; /* runs/ */
    struct ax_json_doc doc;
    struct ax_json settings, steps;
    json_t *asked;                  /* an object with the settings that were asked for, owned */
    struct ax_safetensors fed, own; /* own.path NULL: missing */
    struct ax_arch arch;
    struct ax_hf hf;
    struct ax_peft adapter; /* dir NULL: none */
    enum ax_dtype dtype;
    struct ax_lr_schedule lr;
    struct ax_step_options step;
    struct ax_sft_options sft;
    struct ax_preference preference;
    struct ax_reward reward;
    struct ax_kto kto;
    struct ax_policy policy;
    struct ax_run_rollouts rollouts; /* zeros: no completions */
    double loss, grad_norm;          /* tolerances: the family's, or the case's own */
    double later_share; /* of log-probs of weights that have moved, how many may be off */
    struct ax_distill_options distill; /* zeros: no teacher */
    struct ax_arch teacher_arch;
    struct ax_hf teacher;
    struct ax_objective objective;
    const char *prefix; /* of the parameters' names in the files; NULL: none */
    int n_steps, n_micro;
    int uses;                                /* updates of each step, for what they move; 0: 1 */
    int *first;                              /* [n_steps + 1]: the first micro-batch of each step */
    struct ax_run_micro *micro, *mismatched; /* [n_micro]; mismatched NULL: none */
};

/* A path in a case: "runs/…" is this folder; adapters and data are relative to it, and models to the
 * folder around it. Free *out with ax_free. */
enum ax_status ax_run_path(const struct ax_run *r, const char *path, char **out);
/* Opens a case; `name` without ".json". */
enum ax_status ax_run_open(struct ax_run *r, const char *name);
/* A setting of the case, for one who heeds it. */
struct ax_json ax_run_setting(const struct ax_run *r, const char *key);
/* The token that pads where it also ends texts; AX_NO_TOKEN: texts have none of it. */
enum ax_status ax_run_pad(const struct ax_run *r, int32_t *pad);
/* Names the settings that nobody has asked for: one with an effect is why a comparison fails. */
void ax_run_tell_settings(const struct ax_run *r);
/* In parts: its files and settings, the name of its list of steps; a model, by the key of its folder. */
enum ax_status ax_run_open_case(struct ax_run *r, const char *name, const char *steps);
enum ax_status ax_run_open_model(struct ax_run *r, const char *key);
void ax_run_close(struct ax_run *r);

/* ---- micro-batches ---- */

/* What documents are made of: tensors [n][S], padded on the right. A token is scored where `scored`
 * is at least `least` (labels 0, a mask 1), and belongs to the answer where `answer` is not
 * negative. */
struct ax_run_rows {
    struct ax_golden_tensor ids, mask, scored, answer; /* answer.v NULL: all that is scored */
    double least;
    int32_t pad; /* of rows with a score each: ax_run_pad */
};
/* By their names in micro-batch k; mask and answer may be NULL. */
struct ax_run_names {
    const char *ids, *mask, *scored, *answer;
    double least;
};
enum ax_status ax_run_rows_open(struct ax_run_rows *rows, const struct ax_run *r, int k,
                                const struct ax_run_names *names);
void ax_run_rows_close(struct ax_run_rows *rows);
/* Appends tokens [first, first + n) as a document; its log-probs are recorded from column
 * `recorded` on. */
enum ax_status ax_run_micro_add(struct ax_run_micro *m, const struct ax_run_rows *rows,
                                int64_t first, int64_t n, int64_t recorded);
/* Appends row i, the tokens under its mask. */
enum ax_status ax_run_micro_add_row(struct ax_run_micro *m, const struct ax_run_rows *rows,
                                    int64_t i);
/* The same with labels in place: `scored` has classes, or is NULL: class 0 of the last token. */
enum ax_status ax_run_micro_add_classes(struct ax_run_micro *m, const struct ax_run_rows *rows,
                                        int64_t i, float margin);
/* Allocates the values of all tokens and sets the objective's columns, when all documents are
 * there. */
enum ax_status ax_run_micro_end(struct ax_run_micro *m, const struct ax_columns *columns);
void ax_run_micro_free(struct ax_run_micro *m);
/* Appends row i of prompts and completions, each padded: what is under their masks. */
enum ax_status ax_run_micro_add_answer(struct ax_run_micro *m, const struct ax_run_rows *prompts,
                                       const struct ax_run_rows *completions, int64_t i);
/* All of micro-batch k's rows of prompts and completions. */
enum ax_status ax_run_read_answers(struct ax_run *r, int k, struct ax_run_micro *m);
/* Index of a document's first token. */
static inline int64_t ax_run_micro_first(const struct ax_run_micro *m, int doc) {
    return m->docs[doc].tokens - m->ids;
}
/* Tensor mNN.NAME of the fed ones. */
enum ax_status ax_run_fed(const struct ax_run *r, int k, const char *name,
                          struct ax_golden_tensor *out);

/* {prompt, texts} → the prompt and its first answer. */
enum ax_status ax_run_answer_record(json_t **record);
/* The record that document i of micro-batch k has its prompt from. */
int64_t ax_run_prompt_of(const struct ax_run *r, int k, int i);

/* Sets a classifier's head to the recorded one. */
enum ax_status ax_run_start_head(struct ax_run *r, struct ax_model *m);
/* Makes examples of the case's data, and compares them with the documents of all micro-batches. */
enum ax_status ax_run_compare_data(struct ax_run *r);

/* ---- the run ---- */

/* All steps, from the first to the parameters at the end. */
enum ax_status ax_run_replay(struct ax_run *r);

struct ax_run_sizes {
    int64_t tokens, docs, longest; /* at most, of any micro-batch */
};
struct ax_run_sizes ax_run_sizes(const struct ax_run *r);
/* Scores the tokens with a label, in the arena's eval phase. */
enum ax_status ax_run_look(const struct ax_run *r, struct ax_model *model, struct ax_run_micro *m);

/* What the product computed of a step. */
struct ax_run_step {
    struct ax_step_result result;
    double *loss, *aux;                /* [micro-batches of the step]: as the reference logs them */
    double total;                      /* the step's loss, likewise */
    struct ax_step_measures *measures; /* [micro-batches of the step]: what each added */
    int64_t num_tokens;                /* up to here */
};
/* True if no step before this one had a learning rate. */
bool ax_run_at_start(const struct ax_run *r, int step);
/* Log-probs with weights that have moved: how many, and how many of them are off. */
struct ax_run_tokens {
    int64_t n, off;
};
/* Compares the recorded log-probs of micro-batch k with those of the last look. */
enum ax_status ax_run_compare_tokens(struct ax_run *r, int step, int k,
                                     struct ax_run_tokens *count);
void ax_run_compare_share(struct ax_run *r, const struct ax_run_tokens *count);
/* Every recorded number has to be among ours. micro −1: of the step. */
void ax_run_compare_metrics(struct ax_run *r, struct ax_json recorded,
                            const struct ax_run_metrics *got, int step, int micro);
enum ax_status ax_run_compare_step(struct ax_run *r, int step, const struct ax_run_step *got);

/* The parameters at the start, for ax_run_compare_final. */
struct ax_run_start {
    double **values; /* [n_params]; NULL for frozen ones */
    int n;
};
enum ax_status ax_run_start_read(struct ax_run_start *s, const struct ax_model *m);
void ax_run_start_free(struct ax_run_start *s);
enum ax_status ax_run_compare_final(struct ax_run *r, const struct ax_model *m,
                                    const struct ax_run_start *start);

/* Compares the divergences of the labeled tokens [first, first + n) of micro-batch k with those recorded. */
enum ax_status ax_run_compare_divergences(struct ax_run *r, int k, int64_t first, int64_t n,
                                          const double *got);

/* ---- completions (run_rollouts.c) ---- */

/* Reads the completions of the case's data, and their rewards; computes advantages. */
enum ax_status ax_run_rollouts_open(struct ax_run *r);
void ax_run_rollouts_close(struct ax_run_rollouts *o);
/* Which completion document i of micro-batch k is. */
int64_t ax_run_completion_of(const struct ax_run *r, int k, int i);
/* Tokens of completions that are trained on, of the generated batch that micro-batch k is from. */
double ax_run_generated_tokens(const struct ax_run *r, int k);
/* The record of a completion, which is its i-th. */
const json_t *ax_run_record_of(const struct ax_run_rollouts *o, int64_t completion, size_t *i);
/* How many of its tokens the model has sampled: all, without tools. */
int64_t ax_run_sampled_tokens(const struct ax_run_rollouts *o, int64_t completion);
/* Did it end by itself? */
bool ax_run_terminated(const struct ax_run_rollouts *o, int64_t completion);
/* True for the first micro-batch of a generated batch, before it is trained on. */
bool ax_run_is_new(const struct ax_run *r, int k);
/* Of a step that begins with such a one: lengths, rewards. */
void ax_run_rollout_metrics(const struct ax_run *r, int step, struct ax_run_metrics *out);

/* ---- completions with tools (run_turns.c) ---- */

/* The documents of micro-batch k: recorded prompts and completions, of which the model's own tokens train. */
enum ax_status ax_run_read_turns(struct ax_run *r, int k, struct ax_run_micro *m);
/* Plays the recorded turns through data/tools/: prompts, completions, spans and messages; of a case without
 * tools, only prompts. */
enum ax_status ax_run_compare_turns(struct ax_run *r);

/* ---- families ---- */

extern const struct ax_run_family ax_run_family_sft;    /* run_sft.c */
extern const struct ax_run_family ax_run_family_reward; /* run_heads.c */
extern const struct ax_run_family ax_run_family_prm;
extern const struct ax_run_family ax_run_family_dpo, ax_run_family_orpo,
    ax_run_family_cpo;                               /* run_pairs.c */
extern const struct ax_run_family ax_run_family_kto; /* run_kto.c */
extern const struct ax_run_family ax_run_family_gkd, ax_run_family_distill,
    ax_run_family_opd;                                                          /* run_distill.c */
extern const struct ax_run_family ax_run_family_grpo, ax_run_family_grpo_tools; /* run_grpo.c */
extern const struct ax_run_family ax_run_family_ppo;                            /* run_ppo.c */

#endif
