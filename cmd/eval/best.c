/* From answers to counts: scores, votes, choices. */
#include "cmd/eval/best.h"

#include <string.h>

#include "cmd/eval/eval.h"

/* ---- opening ---- */

enum ax_status ax_eval_best_open(struct ax_eval *e) {
    const struct ax_text_scorer_options o = {
        .dtype = e->dtype, .runtime = ax_ranks_runtime(&e->ranks, (int)e->threads)};
    return e->best.args.n > 0 ? ax_best_of_open(&e->best.of, &e->best.args, &o) : AX_OK;
}

void ax_eval_best_close(struct ax_eval *e) {
    ax_best_of_close(&e->best.of);
}

/* ---- choices ---- */

enum ax_status ax_eval_best_run(struct ax_eval *e) {
    struct ax_eval_best *b = &e->best;
    const size_t n = (size_t)b->args.n;
    double of[AX_BEST_OF_MAX];
    size_t at = 0;
    if (n == 0)
        return AX_OK;
    for (size_t i = 0; i < e->q.n; i++)
        for (size_t k = 0; k < n && e->prompts[i]; k++) {
            const struct ax_answer_sample *s = &e->q.list[i].answer.samples[k];
            AX_TRY(ax_best_of_add(&b->of, e->prompts[i], s->text, s->len));
        }
    AX_TRY(ax_best_of_run(&b->of));
    for (size_t i = 0; i < e->q.n; i++) {
        struct ax_answer *a = &e->q.list[i].answer;
        if (!e->prompts[i])
            continue;
        for (size_t k = 0; k < n; k++)
            a->samples[k].score = of[k] = b->of.scores[at++];
        a->best = ax_best_of_choose(of, n);
        a->majority = ax_answer_vote(a->samples, n);
        b->best += a->samples[a->best].right;
        b->majority += a->samples[a->majority].right;
    }
    return AX_OK;
}

/* ---- what comes out ---- */

json_t *ax_eval_best_json(const struct ax_eval *e) {
    const struct ax_eval_best *b = &e->best;
    json_t *scores = json_array();
    size_t at = 0;
    for (size_t i = 0; i < e->q.n; i++) {
        json_t *of = e->prompts[i] ? json_array() : NULL;
        for (int64_t k = 0; k < b->args.n && of; k++)
            json_array_append_new(of, ax_json_number(b->of.scores[at++]));
        if (of)
            json_array_append_new(scores, of);
    }
    return json_pack(
        "{ss ss ss* sI sI sI sI so}", "scorer", b->args.scorer, "kind", b->of.scorer.kind->task,
        "score_by", ax_best_of_by_steps(&b->of) ? ax_score_by_names[b->of.by] : NULL, "greedy",
        (json_int_t)e->turns[0].greedy.solved, "majority", (json_int_t)b->majority, "best",
        (json_int_t)b->best, "unscored", (json_int_t)b->of.unscored, "scores", scores);
}

void ax_eval_best_add_row(const struct ax_eval *e, const struct ax_answer *a, json_t *row) {
    json_t *list = json_array();
    for (int64_t k = 0; k < e->best.args.n; k++) {
        const struct ax_answer_sample *s = &a->samples[k];
        json_array_append_new(list,
                              json_pack("{ss% so sb so}", "answer", s->text, s->len, "final_answer",
                                        s->got[0] ? json_string(s->got) : json_null(), "solved",
                                        s->right, "score", ax_json_number(s->score)));
    }
    json_t *more =
        json_pack("{sI sI sb sI sb so}", "correct", (json_int_t)a->correct, "majority",
                  (json_int_t)a->majority, "majority_solved", a->samples[a->majority].right, "best",
                  (json_int_t)a->best, "best_solved", a->samples[a->best].right, "samples", list);
    json_object_update(row, more);
    json_decref(more);
}

static enum ax_status put_count(const struct ax_eval *e, const char *name, int64_t solved,
                                const char *how, struct ax_buf *out) {
    return ax_buf_printf(out, "%-11s %lld/%lld (%.1f %%), %s\n", name, (long long)solved,
                         (long long)e->q.asked,
                         100 * ax_eval_per((double)solved, (double)e->q.asked), how);
}

enum ax_status ax_eval_best_put(const struct ax_eval *e, struct ax_buf *out) {
    const struct ax_eval_best *b = &e->best;
    const bool steps = ax_best_of_by_steps(&b->of);
    char name[32], how[512];
    AX_TRY(put_count(e, "greedy", e->turns[0].greedy.solved, "one answer each", out));
    AX_TRY(put_count(e, "majority", b->majority, "the most frequent final answer", out));
    snprintf(name, sizeof name, "best of %lld", (long long)b->args.n);
    snprintf(how, sizeof how, "the highest %s%s by %s", steps ? ax_score_by_names[b->of.by] : "",
             steps ? " over the steps" : "score", b->args.scorer);
    AX_TRY(put_count(e, name, b->best, how, out));
    if (b->of.unscored == 0)
        return AX_OK;
    return ax_buf_printf(out, "%zu answer%s no score: blank, or too long for the scorer\n",
                         b->of.unscored, b->of.unscored == 1 ? " has" : "s have");
}
