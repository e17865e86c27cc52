#include "optim/evaluate/score/best_of.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "optim/evaluate/score/steps.h"
#include "data/records/format/format.h"

/* ---- opening ---- */

bool ax_best_of_by_steps(const struct ax_best_of *b) {
    return b->scorer.kind == &ax_classifier_prm;
}

static enum ax_status open_all(struct ax_best_of *b, const struct ax_best_of_args *a,
                               const struct ax_text_scorer_options *o) {
    struct ax_text_scorer_options with = *o;
    with.model = a->scorer;
    AX_TRY(ax_text_scorer_open(&b->scorer, &with));
    if (a->by && !ax_best_of_by_steps(b))
        return ax_error(AX_ERR_CONFIG,
                        "%s is a reward model, which gives an answer one score; min, product and "
                        "last are for process reward models: remove it",
                        a->scorer);
    if (a->by)
        AX_TRY(ax_score_by_parse("--score-by", a->by, &b->by));
    return ax_score_set_open(&b->set, &b->scorer);
}

enum ax_status ax_best_of_open(struct ax_best_of *b, const struct ax_best_of_args *a,
                               const struct ax_text_scorer_options *o) {
    *b = (struct ax_best_of){.by = AX_SCORE_MIN};
    const enum ax_status st = open_all(b, a, o);
    if (st != AX_OK)
        ax_best_of_close(b);
    return st;
}

static void drop_answers(struct ax_best_of *b) {
    ax_score_set_close(&b->set);
    ax_free(b->row);
    ax_free(b->scores);
    b->row = NULL;
    b->scores = NULL;
    b->n = b->cap = b->unscored = 0;
}

enum ax_status ax_best_of_clear(struct ax_best_of *b) {
    drop_answers(b);
    return ax_score_set_open(&b->set, &b->scorer);
}

void ax_best_of_close(struct ax_best_of *b) {
    drop_answers(b);
    ax_text_scorer_close(&b->scorer);
    *b = (struct ax_best_of){0};
}

/* ---- prompts ---- */

static enum ax_status no_memory(void) {
    return ax_error(AX_ERR_NOMEM, "out of memory for an answer");
}

enum ax_status ax_best_of_prompt(const struct ax_best_of *b, const json_t *prompt,
                                 const json_t *tools, json_t **out) {
    if (ax_best_of_by_steps(b))
        return ax_steps_prompt(prompt, out);
    if (json_is_array(prompt) && !b->scorer.side.template)
        return ax_error(AX_ERR_DATA,
                        "the prompt is a list of messages, but the scorer in %s has no chat "
                        "template",
                        b->scorer.side.folder);
    *out = json_is_array(prompt)
               ? json_pack("{so sO*}", "prompt", json_deep_copy(prompt), "tools", tools)
               : json_deep_copy(prompt);
    return *out ? AX_OK : no_memory();
}

/* ---- answers ---- */

static enum ax_status make_steps(const struct ax_best_of *b, const json_t *prompt, const char *text,
                                 size_t len, json_t **record) {
    const char *separator = b->scorer.separator;
    const bool in_answers = *separator && ax_text_is_blank(separator, strlen(separator));
    json_t *steps = NULL;
    const enum ax_status st = ax_steps_split(text, len, in_answers ? separator : "\n", &steps);
    *record = st == AX_OK ? json_pack("{sO sO}", "prompt", prompt, "completions", steps) : NULL;
    json_decref(steps);
    return st != AX_OK || *record ? st : no_memory();
}

/* A prompt that is an object has messages. Formats may change a record, so it is a copy. */
static enum ax_status make_answer(const json_t *prompt, const char *text, size_t len,
                                  json_t **record) {
    json_t *copy = json_deep_copy(prompt), *answer;
    if (json_is_object(prompt)) {
        *record = copy;
        answer = json_pack("[{ss ss%}]", "role", "assistant", "content", text, len);
    } else {
        *record = json_pack("{so}", "prompt", copy);
        answer = json_stringn(text, len);
    }
    if (json_object_set_new(*record, "completion", answer) == 0)
        return AX_OK;
    json_decref(*record);
    return no_memory();
}

static enum ax_status add_record(struct ax_best_of *b, json_t *record, int64_t *row) {
    const struct ax_origin origin = {.record = (int64_t)b->n};
    size_t too_long;
    const enum ax_status st = ax_score_set_add(&b->set, record, origin, &too_long);
    if (st == AX_ERR_EMPTY)
        return AX_OK; /* not scored */
    AX_TRY(st);
    *row = too_long > 0 ? -1 : (int64_t)b->set.n_rows - 1;
    return AX_OK;
}

enum ax_status ax_best_of_add(struct ax_best_of *b, const json_t *prompt, const char *text,
                              size_t len) {
    int64_t row = -1;
    if (!ax_text_is_blank(text, len)) {
        json_t *record;
        AX_TRY(ax_best_of_by_steps(b) ? make_steps(b, prompt, text, len, &record)
                                      : make_answer(prompt, text, len, &record));
        const enum ax_status st = add_record(b, record, &row);
        json_decref(record);
        AX_TRY(st);
    }
    AX_TRY(ax_grow(&b->row, b->n, &b->cap, sizeof *b->row));
    b->row[b->n++] = row;
    b->unscored += row < 0;
    return AX_OK;
}

/* ---- scores ---- */

static void tell_lost(struct ax_best_of *b) {
    for (int i = AX_ODD_TOOLS; i <= AX_ODD_RESULTS && !b->told_lost; i++) {
        if (b->set.lost[i].n == 0)
            continue;
        ax_log_warn("the scorer's chat template %s leaves out tools of prompts: the scores do not "
                    "depend on them",
                    ax_template_where(b->scorer.side.template));
        b->told_lost = true;
    }
}

enum ax_status ax_best_of_run(struct ax_best_of *b) {
    tell_lost(b);
    AX_TRY(ax_alloc(&b->scores, b->n, sizeof *b->scores));
    if (b->set.n_rows > 0 || b->scorer.o.read) /* other ranks may have answers */
        AX_TRY(ax_score_set_run(&b->set));
    for (size_t i = 0; i < b->n; i++) {
        const struct ax_score_row *r = b->row[i] < 0 ? NULL : &b->set.rows[b->row[i]];
        if (!r)
            b->scores[i] = NAN;
        else if (ax_best_of_by_steps(b))
            b->scores[i] = ax_score_steps(b->by, b->set.scores + r->first, r->n);
        else
            b->scores[i] = b->set.scores[r->first];
    }
    return AX_OK;
}

size_t ax_best_of_choose(const double *scores, size_t n) {
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (scores[i] > scores[best] || (isnan(scores[best]) && !isnan(scores[i])))
            best = i;
    return best;
}
