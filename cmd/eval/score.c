/* Records → scores: opens what the folder needs, runs the model, hands over the results. */
#include "cmd/eval/score.h"

#include <math.h>
#include <string.h>

#include "base/io.h"
#include "cmd/train/base_model.h"
#include "model/classify.h"

/* Per pass if the records are short. */
#define PASS_TOKENS 2048
#define PASS_DOCS   64

/* ---- opening ---- */

/* The separator in a folder; *out stays NULL if the folder does not say. */
static enum ax_status separator_in(const char *folder, char **out) {
    struct ax_json_doc doc = {0};
    const char *text;
    char *path;
    AX_TRY(ax_path_join(&path, folder, AX_STEPS_FILE));
    enum ax_status st = AX_OK;
    if (*out || !ax_path_exists(path))
        goto done;
    AX_TRY_GOTO(ax_json_load(&doc, path, 1 << 20), st, done);
    AX_TRY_GOTO(ax_json_str(ax_json_get(ax_json_root(&doc), "step_separator"), &text), st, done);
    st = ax_strdup(out, text);
done:
    ax_json_free(&doc);
    ax_free(path);
    return st;
}

/* An adapter's folder may have its own tokenizer and separator. */
static enum ax_status open_sides(struct ax_score *s) {
    const struct ax_eval *e = s->e;
    const char *own = e->adapters.n > 0 ? e->adapters.pefts[0].dir : NULL;
    const char *text = own && ax_text_side_is_in(own) ? own : e->model_dir;
    AX_TRY(ax_text_side_open(&s->side, text, e->model_dir));
    if (own)
        AX_TRY(separator_in(own, &s->separator));
    AX_TRY(separator_in(e->model_dir, &s->separator));
    return s->separator ? AX_OK : ax_strdup(&s->separator, AX_STEP_SEPARATOR);
}

static enum ax_status check_model(const struct ax_score *s) {
    const struct ax_arch *a = &s->e->arch;
    if (s->e->ranks.sizes.pp > 1 || s->e->ranks.sizes.cp > 1)
        return ax_error(AX_ERR_UNSUPPORTED, "--mesh: scoring does not support pp and cp");
    if (a->classifier == s->kind && a->n_labels == s->kind->n_labels)
        return AX_OK;
    if (a->classifier == s->kind)
        return ax_error(AX_ERR_CONFIG, "%s: %s needs %lld label%s, but this model has %lld",
                        s->e->model_dir, s->kind->what, (long long)s->kind->n_labels,
                        s->kind->n_labels == 1 ? "" : "s", (long long)a->n_labels);
    return ax_error(AX_ERR_CONFIG, "%s: --task %s needs %s, but this is %s", s->e->model_dir,
                    s->kind->task, s->kind->what,
                    a->classifier ? a->classifier->what : "a language model");
}

/* ---- the model ---- */

struct job {
    struct ax_score *s;
    struct ax_document *docs; /* [list.n] */
    double *logits;           /* [n_scores][n_labels] */
    int64_t longest;
};

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct job *j = ctx;
    struct ax_eval *e = j->s->e;
    struct ax_model m;
    const struct ax_peft *peft = e->adapters.n > 0 ? &e->adapters.pefts[0] : NULL;
    const struct ax_model_options mo = {.dtype = e->dtype,
                                        .base_store = e->store,
                                        .max_positions = j->longest,
                                        .adapter = peft ? &peft->config : NULL};
    const struct ax_classify_options o = {.tokens =
                                              j->longest > PASS_TOKENS ? j->longest : PASS_TOKENS,
                                          .max_docs = PASS_DOCS,
                                          .max_len = j->longest};
    AX_TRY(ax_model_create(&m, &e->arch, rt, &mo));
    enum ax_status st;
    AX_TRY_GOTO(ax_model_load(&m, &e->hf), st, done);
    if (peft)
        AX_TRY_GOTO(ax_adapter_load(&m, peft), st, done);
    st = ax_classify(&m, &o, (int)j->s->list.n, j->docs, j->logits);
done:
    ax_model_free(&m);
    return st;
}

static enum ax_status score_all(struct ax_score *s) {
    struct job j = {.s = s};
    const size_t labels = (size_t)s->kind->n_labels;
    const struct ax_runtime_options ro = ax_ranks_runtime(&s->e->ranks, (int)s->e->threads);
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&j.docs, s->list.n, sizeof *j.docs), st, done);
    AX_TRY_GOTO(ax_alloc(&j.logits, s->n_scores * labels, sizeof *j.logits), st, done);
    AX_TRY_GOTO(ax_alloc(&s->scores, s->n_scores, sizeof *s->scores), st, done);
    for (size_t i = 0; i < s->list.n; i++) {
        const struct ax_example *x = &s->list.items[i];
        j.docs[i] =
            (struct ax_document){.n = (int64_t)x->n, .tokens = x->tokens, .labels = x->labels};
        j.longest = (int64_t)x->n > j.longest ? (int64_t)x->n : j.longest;
    }
    AX_TRY_GOTO(ax_runtime_run(&ro, body, &j, &(struct ax_arena_plan){0}), st, done);
    for (size_t i = 0; i < s->n_scores; i++)
        s->scores[i] = labels == 1 ? j.logits[i]
                                   : 1 / (1 + exp(j.logits[i * labels] - j.logits[i * labels + 1]));
done:
    ax_free(j.logits);
    ax_free(j.docs);
    return st;
}

/* ---- the command ---- */

static enum ax_status put_results(const struct ax_score *s, struct ax_buf *out) {
    struct ax_buf rows = {0};
    enum ax_status st = ax_score_put_rows(s, s->e->out ? &rows : out);
    if (st == AX_OK && s->e->out && ax_ranks_lead(&s->e->ranks))
        st = ax_write_file_atomic(s->e->out, rows.data, rows.len);
    ax_buf_free(&rows);
    AX_TRY(st);
    return ax_score_put_total(s, s->e->json || !s->e->out, out);
}

enum ax_status ax_eval_score(struct ax_eval *e, const struct ax_classifier *kind,
                             struct ax_buf *out) {
    struct ax_score s = {.e = e, .kind = kind};
    enum ax_status st;
    AX_TRY_GOTO(check_model(&s), st, done);
    AX_TRY_GOTO(open_sides(&s), st, done);
    AX_TRY_GOTO(ax_score_read(&s), st, done);
    AX_TRY_GOTO(score_all(&s), st, done);
    st = put_results(&s, out);
done:
    ax_text_side_close(&s.side);
    ax_rows_close(s.rows);
    ax_example_list_free(&s.list);
    ax_free(s.separator);
    ax_free(s.row);
    ax_free(s.labels);
    ax_free(s.scores);
    return st;
}
