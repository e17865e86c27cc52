/* Functions in child processes: the user's Python, all of it in one child, and programs, each a child
 * of its own. A child that died or was killed is started again by the next call. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "data/reward/answer.h"
#include "data/reward/child.h"
#include "data/reward/request.h"

#define END_SECONDS 3.0 /* for what Python does at its exit */

/* The text of python.py. */
__asm__(".pushsection .rodata\n"
        ".global ax_reward_script, ax_reward_script_end\n"
        "ax_reward_script: .incbin \"data/reward/python.py\"\n"
        "ax_reward_script_end: .byte 0\n"
        ".popsection\n");
extern const char ax_reward_script[], ax_reward_script_end[];

/* The script comes through standard input, which from then on is a stream that functions cannot
 * reach. `-c` puts the current folder in front of the path: it comes back when ours are imported. */
static const char boot[] =
    "import os, sys\n"
    "sys.path[:] = [p for p in sys.path if p]\n"
    "stream = os.fdopen(os.dup(0), 'rb')\n"
    "exec(compile(stream.read(int(stream.readline())), 'axtrain rewards', 'exec'))\n";

struct outside {
    struct ax_reward_child *child; /* of a program: its own */
    uint64_t loaded; /* of Python: the start of the child that has loaded it; 0: none */
    char *who;       /* in the log: the module or program */
    char *python;
    double seconds, start_seconds;
};

/* ---- opening and closing ---- */

static enum ax_status make(struct ax_reward_fn *f, const struct ax_rewards_options *o) {
    struct outside *x;
    AX_TRY(ax_alloc(&x, 1, sizeof *x));
    f->state = x;
    x->seconds = o->timeout > 0 ? o->timeout : AX_REWARDS_TIMEOUT;
    x->start_seconds = o->start_timeout > 0 ? o->start_timeout : AX_REWARDS_START_TIMEOUT;
    return AX_OK;
}

static void free_child(struct ax_reward_child **c, const char *who) {
    if (*c)
        ax_reward_child_end(*c, who, END_SECONDS);
    ax_free(*c);
    *c = NULL;
}

void ax_reward_shared_free(struct ax_reward_shared *s) {
    free_child(&s->python, "python");
}

static void close_outside(struct ax_reward_fn *f) {
    struct outside *x = f->state;
    if (!x)
        return;
    if (f->kind == &ax_reward_program)
        free_child(&x->child, x->who);
    ax_free(x->who);
    ax_free(x->python);
    ax_free(x);
}

/* ---- Python ---- */

static enum ax_status start_python(const struct outside *x) {
    const char *const argv[] = {x->python, "-c", boot, NULL};
    return ax_reward_child_start(x->child, argv);
}

/* The question that makes the child load f, behind the script if it has just been started. */
static enum ax_status put_load(struct ax_buf *out, const struct ax_reward_fn *f, bool new) {
    const size_t n = (size_t)(ax_reward_script_end - ax_reward_script);
    if (new) {
        AX_TRY(ax_buf_printf(out, "%zu\n", n));
        AX_TRY(ax_buf_append(out, ax_reward_script, n));
    }
    AX_TRY(ax_buf_puts(out, "{\"load\":"));
    AX_TRY(ax_reward_put_string(out, f->name, strlen(f->name)));
    return ax_buf_puts(out, "}\n");
}

static enum ax_status ask(struct outside *x, const struct ax_buf *question, double seconds,
                          size_t n, double *out, size_t *not_finite,
                          struct ax_reward_outcome *outcome) {
    const struct ax_reward_question q = {.who = x->who,
                                         .text = question->data,
                                         .n = question->len,
                                         .max_answer = AX_REWARD_ANSWER_MAX(n),
                                         .seconds = seconds};
    AX_TRY(ax_reward_child_ask(x->child, &q, outcome));
    if (outcome->failure != AX_REWARD_FINE)
        return AX_OK;
    AX_TRY(ax_reward_answer_read(x->child->line.data, x->child->line.len, n, out, not_finite,
                                 outcome));
    if (outcome->failure == AX_REWARD_RUBBISH) /* who knows what its next line answers */
        ax_reward_child_end(x->child, x->who, 0);
    return AX_OK;
}

/* Sees to it that there is a child that has loaded f. */
static enum ax_status load(struct ax_reward_fn *f, struct ax_reward_outcome *outcome) {
    struct outside *x = f->state;
    struct ax_buf question = {0};
    size_t not_finite;
    const bool new = x->child->pid == 0;
    outcome->failure = AX_REWARD_FINE;
    if (new)
        AX_TRY(start_python(x));
    else if (x->loaded == x->child->starts)
        return AX_OK;
    enum ax_status st = put_load(&question, f, new);
    if (st == AX_OK)
        st = ask(x, &question, x->start_seconds, 0, NULL, &not_finite, outcome);
    if (st == AX_OK && outcome->failure == AX_REWARD_FINE)
        x->loaded = x->child->starts;
    ax_buf_free(&question);
    return st;
}

static enum ax_status open_python(struct ax_reward_fn *f, const struct ax_rewards_options *o) {
    struct ax_reward_outcome outcome;
    const char *set = getenv("AXTRAIN_PYTHON");
    AX_TRY(make(f, o));
    struct outside *x = f->state;
    AX_TRY(ax_strdup(&x->python, o->python ? o->python : set && *set ? set : "python3"));
    AX_TRY(ax_strndup(&x->who, f->name, (size_t)(strrchr(f->name, '.') - f->name)));
    if (!f->shared->python)
        AX_TRY(ax_alloc(&f->shared->python, 1, sizeof *f->shared->python));
    x->child = f->shared->python;
    const enum ax_status st = load(f, &outcome);
    if (st == AX_ERR_CONFIG)
        return ax_error(st,
                        "reward function \"%s\": %s. Install Python, or name one in AXTRAIN_PYTHON",
                        f->name, ax_error_text());
    AX_TRY(st);
    if (outcome.failure == AX_REWARD_EXCEPTION)
        return ax_error(AX_ERR_CONFIG, "reward function \"%s\": %s", f->name, outcome.text);
    if (outcome.failure != AX_REWARD_FINE)
        return ax_error(AX_ERR_CONFIG, "reward function \"%s\": %s while it was loaded: %s",
                        f->name, ax_reward_failure_names[outcome.failure], outcome.text);
    return AX_OK;
}

/* ---- programs ---- */

static enum ax_status start_program(struct ax_reward_fn *f) {
    struct outside *x = f->state;
    const char *const argv[] = {f->name, NULL};
    return x->child->pid ? AX_OK : ax_reward_child_start(x->child, argv);
}

static enum ax_status open_program(struct ax_reward_fn *f, const struct ax_rewards_options *o) {
    AX_TRY(make(f, o));
    struct outside *x = f->state;
    AX_TRY(ax_strdup(&x->who, strrchr(f->name, '/') + 1));
    AX_TRY(ax_alloc(&x->child, 1, sizeof *x->child));
    const enum ax_status st = start_program(f);
    return st == AX_OK ? AX_OK : ax_error_prefix(st, "reward function \"%s\"", f->name);
}

/* ---- a call ---- */

static enum ax_status prepare(struct ax_reward_fn *f, struct ax_reward_outcome *outcome) {
    outcome->failure = AX_REWARD_FINE;
    const enum ax_status st = f->kind == &ax_reward_python ? load(f, outcome) : start_program(f);
    if (st != AX_ERR_CONFIG)
        return st;
    ax_reward_fail(outcome, AX_REWARD_DEATH, "%s", ax_error_text());
    ax_error_clear();
    return AX_OK;
}

static enum ax_status score_outside(struct ax_reward_fn *f, const struct ax_reward_call *call,
                                    double *out, struct ax_reward_outcome *outcome) {
    struct outside *x = f->state;
    struct ax_buf question = {0};
    size_t not_finite = 0;
    AX_TRY(prepare(f, outcome));
    if (outcome->failure != AX_REWARD_FINE)
        return AX_OK;
    enum ax_status st = ax_reward_request_put(&question, f->name, call);
    if (st == AX_OK)
        st = ask(x, &question, x->seconds, call->n, out, &not_finite, outcome);
    ax_buf_free(&question);
    if (st == AX_OK && not_finite > 0)
        ax_log_warn("rewards: %s: %zu of %zu rewards are NaN or infinite, and count as none",
                    f->name, not_finite, call->n);
    return st;
}

const struct ax_reward_kind ax_reward_python = {open_python, score_outside, close_outside};
const struct ax_reward_kind ax_reward_program = {open_program, score_outside, close_outside};
