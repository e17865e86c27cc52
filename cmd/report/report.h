/* `axtrain report`: the content of run folders (docs/run.md) as one self-contained HTML page.
 *
 * Reading order: read.c (a run folder), kind.c (what it trained), report.c (the command and the page), charts.c (figures over
 * steps), parts.c (phases, memory, packing), timeline.c (what ranks do in a step), tables.c (key figures,
 * environment, events), config.c, answers.c (of evaluations, and during training), turns.c (those with tools), style.c (CSS and the
 * pointer script). card.h makes a model card of the same records. */
#ifndef AX_CMD_REPORT_REPORT_H
#define AX_CMD_REPORT_REPORT_H

#include <stdint.h>

#include "base/text/json.h"
#include "cmd/report/timeline.h"

#define AX_REPORT_MAX_RUNS     12
#define AX_REPORT_MAX_PHASES   12
#define AX_REPORT_MAX_REWARDS  8 /* functions with a chart of their own */
#define AX_REPORT_MAX_PROBLEMS 8 /* listed; further ones are only counted */

enum ax_report_figure {
    AX_FIGURE_EPOCH,
    AX_FIGURE_LOSS,
    AX_FIGURE_GRAD_NORM,
    AX_FIGURE_LR,
    AX_FIGURE_TOKENS,
    AX_FIGURE_TRAINED,
    AX_FIGURE_SECONDS,
    AX_FIGURE_RATE,
    AX_FIGURE_MFU,
    AX_FIGURE_HFU,
    AX_FIGURE_MEMORY,
    AX_FIGURE_PEAK,
    AX_FIGURE_PREFERRED, /* figures of pairs */
    AX_FIGURE_JUDGED,    /* figure of a process reward model */
    AX_FIGURE_MARGIN,
    AX_FIGURE_KL,
    AX_FIGURE_DIVERGENCE, /* divergence from the teacher */
    AX_FIGURE_REWARD,     /* figures of completions */
    AX_FIGURE_LENGTH,
    AX_FIGURE_CLIPPED,
    AX_FIGURE_ALIKE,
    AX_FIGURE_ENTROPY,
    AX_FIGURE_STOPPED,   /* programs of code */
    AX_FIGURE_VIOLATION, /* deviation from even loads of experts */
    AX_FIGURE_SPREAD,    /* entropy of the loads */
    AX_FIGURE_COUNT
};

enum ax_report_eval_figure {
    AX_EVAL_FIGURE_LOSS,
    AX_EVAL_FIGURE_ACCURACY,
    AX_EVAL_FIGURE_PREFERRED,
    AX_EVAL_FIGURE_JUDGED,
    AX_EVAL_FIGURE_REWARD,
    AX_EVAL_FIGURE_COUNT
};

struct ax_report_step {
    int64_t step;
    double figures[AX_FIGURE_COUNT];      /* NaN: missing, or not finite */
    float phases[AX_REPORT_MAX_PHASES];   /* seconds, in the order of the run's phase_names */
    float rewards[AX_REPORT_MAX_REWARDS]; /* means, in the order of reward_names; NaN: none */
};

struct ax_report_eval {
    int64_t step;
    double figures[AX_EVAL_FIGURE_COUNT];
};

struct ax_report_event {
    int64_t step;
    char *event, *text;
};

/* A prompt and the model's answer. */
struct ax_report_sample {
    int64_t step;
    char *prompt, *text;
    char *worth; /* the completion's rewards and advantage; NULL: a sample at an evaluation */
    /* with tools, as completions.jsonl has them; owned; NULL: no tools, or too old to be shown */
    json_t *messages, *calls;
};
/* The newest of a run are shown. */
#define AX_REPORT_MAX_SAMPLES 24

#define AX_REPORT_MAX_ANSWERS 20
#define AX_REPORT_MAX_TEXT    1200 /* most bytes shown of an answer, a call or a result */

/* Records of eval.jsonl or samples.jsonl (docs/run.md) that have an answer. */
struct ax_report_answers {
    json_t *shown; /* list of the first ones, as read; or NULL */
    size_t n, n_solved, n_judged;
};

struct ax_report_run {
    const char *name; /* folder as given by the user */
    struct ax_report_step *steps;
    struct ax_report_eval *evals;
    struct ax_report_event *events;
    struct ax_report_sample *samples;
    size_t n_steps, n_evals, n_events, n_samples;
    size_t room_steps, room_evals, room_events, room_samples;
    char *phase_names[AX_REPORT_MAX_PHASES];
    int n_phases;
    char *reward_names[AX_REPORT_MAX_REWARDS]; /* names of the reward functions */
    int n_rewards;
    struct ax_json_doc about; /* run.json; root NULL if there is none */
    struct ax_report_answers answers;
    struct ax_report_timeline timeline; /* n 0 if there is none */
    char *problems[AX_REPORT_MAX_PROBLEMS];
    size_t n_problems; /* including those that are not listed */
};

/* Reads metrics.jsonl and, if present, run.json, timeline.json and the model's answers. Unreadable lines become problems of the run and
 * are skipped. If a step appears again (the run resumed from an earlier one), it replaces the
 * earlier data of this and later steps. AX_ERR_CONFIG if the folder or its metrics.jsonl does not
 * exist. Free with ax_report_close, even after an error. */
enum ax_status ax_report_read(struct ax_report_run *run, const char *folder);
void ax_report_close(struct ax_report_run *run);
/* The loss of the first step, or of the last one, that has one; NaN: none has. */
double ax_report_loss(const struct ax_report_run *run, bool last);
/* The evaluation whose weights the trained model has, as load_best_model_at_end wants it; NULL: it has the last
 * step's, or that is not known. */
const struct ax_report_eval *ax_report_best(const struct ax_report_run *run);
/* "2.5000"; "none": not there, or not finite. Returns buf. */
const char *ax_report_value(char buf[32], double v);

/* What a run trained, by its configuration. */
struct ax_report_kind {
    const char *key, *rl; /* a key that is set, or the value of rl; both NULL: any other run */
    const char *name;     /* "DPO" */
    const char *loss;     /* what its losses are */
    const char *tag, *pipeline;          /* the hub's words for it */
    const char *command, *with;          /* to use the model: before and after its folder */
    enum ax_report_eval_figure accuracy; /* what the accuracy of its evaluations is */
};
const struct ax_report_kind *ax_report_kind(const struct ax_report_run *run);

struct ax_report {
    const struct ax_report_run *runs; /* [n] */
    int n;
};

/* Reads answers from a file, in addition to earlier ones; skips lines without any. Free with
 * json_decref(shown). */
enum ax_status ax_report_read_answers(struct ax_report_answers *a, const char *path);

/* The value at a key path of run.json ("data.rows"), or NULL. */
const json_t *ax_report_about(const struct ax_report_run *run, const char *path);
/* A number from the run's record at a path, or `otherwise`. */
double ax_report_number(const struct ax_report_run *run, const char *path, double otherwise);

/* ---- the page; each part appends nothing if there is nothing to show ---- */

extern const char ax_report_css[], ax_report_script[];

enum ax_status ax_report_put(struct ax_buf *out, const struct ax_report *r);
enum ax_status ax_report_put_figures(struct ax_buf *out, const struct ax_report *r);
enum ax_status ax_report_put_charts(struct ax_buf *out, const struct ax_report *r);
enum ax_status ax_report_put_phases(struct ax_buf *out, const struct ax_report *r);
enum ax_status ax_report_put_timelines(struct ax_buf *out, const struct ax_report *r);
/* The SVG elements of a rank's lanes, 1000 wide and 24 high, in classes f0 to f3. */
enum ax_status ax_report_put_lanes(struct ax_buf *out, const struct ax_report_timeline *t, int i);
enum ax_status ax_report_put_memory(struct ax_buf *out, const struct ax_report *r);
enum ax_status ax_report_put_packing(struct ax_buf *out, const struct ax_report *r);
enum ax_status ax_report_put_config(struct ax_buf *out, const struct ax_report *r);
enum ax_status ax_report_put_environment(struct ax_buf *out, const struct ax_report *r);
enum ax_status ax_report_put_samples(struct ax_buf *out, const struct ax_report *r);
enum ax_status ax_report_put_answers(struct ax_buf *out, const struct ax_report *r);
/* Turns of an answer, whose calls are folded; as completions.jsonl has messages and calls. */
enum ax_status ax_report_put_turns(struct ax_buf *out, const json_t *messages, const json_t *calls);
enum ax_status ax_report_put_events(struct ax_buf *out, const struct ax_report *r);

/* "<thead>" with a first cell and the names of the runs, each with its color. */
enum ax_status ax_report_put_head(struct ax_buf *out, const struct ax_report *r, const char *first);

#endif
