/* What a scorer's folder has, and the pass over its model. */
#include "model/text/text_scorer.h"

#include <math.h>

#include "base/io.h"
#include "model/convert/base_model.h"
#include "model/adapter/load.h"
#include "model/generate/classify.h"

/* Per pass if the documents are short. */
#define PASS_TOKENS 2048
#define PASS_DOCS   64

/* ---- opening ---- */

/* A PEFT folder alone: the adapter, over the base that it names. */
static enum ax_status open_peft(struct ax_text_scorer *s, struct ax_arg_list *adapter) {
    struct ax_peft peft;
    char *base = NULL;
    AX_TRY(ax_peft_open(&peft, s->o.model));
    enum ax_status st = ax_peft_base(&peft, &base);
    ax_peft_close(&peft);
    if (st == AX_OK)
        st = ax_base_model_folder(&s->dir, &s->use, base, NULL, NULL);
    ax_free(base);
    *adapter = (struct ax_arg_list){.n = 1, .text = {s->o.model}};
    return st;
}

static enum ax_status open_files(struct ax_text_scorer *s) {
    struct ax_arg_list adapters = {0};
    if (s->o.adapters)
        adapters = *s->o.adapters;
    if (adapters.n == 0 && ax_peft_is_folder(s->o.model))
        AX_TRY(open_peft(s, &adapters));
    else
        AX_TRY(ax_base_model_folder(&s->dir, &s->use, s->o.model, NULL, NULL));
    AX_TRY(ax_arch_load(&s->arch, s->dir));
    AX_TRY(ax_hf_open(&s->hf, s->dir));
    return ax_adapters_open(&s->adapters, &adapters, s->dir, &s->arch);
}

enum ax_status ax_text_scorer_check(const struct ax_arch *a, const char *name) {
    const struct ax_classifier *kind = a->classifier;
    if (!kind)
        return ax_error(AX_ERR_CONFIG,
                        "%s: expected a reward model or a process reward model, but this is a "
                        "language model",
                        name);
    if (a->n_labels == kind->n_labels)
        return AX_OK;
    return ax_error(AX_ERR_CONFIG, "%s: %s needs %lld label%s, but this model has %lld", name,
                    kind->what, (long long)kind->n_labels, kind->n_labels == 1 ? "" : "s",
                    (long long)a->n_labels);
}

static enum ax_status check_kind(struct ax_text_scorer *s) {
    const struct ax_arch *a = &s->arch;
    const struct ax_classifier *need = s->o.kind;
    if (need && a->classifier != need)
        return ax_error(AX_ERR_CONFIG, "%s: --task %s needs %s, but this is %s", s->dir, need->task,
                        need->what, a->classifier ? a->classifier->what : "a language model");
    s->kind = a->classifier;
    s->max_len = a->max_positions;
    return ax_text_scorer_check(a, s->o.model);
}

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
static enum ax_status open_side(struct ax_text_scorer *s) {
    const char *own = s->adapters.n > 0 ? s->adapters.pefts[0].dir : NULL;
    const char *text = own && ax_text_side_is_in(own) ? own : s->dir;
    AX_TRY(ax_text_side_open(&s->side, text, s->dir));
    if (own)
        AX_TRY(separator_in(own, &s->separator));
    AX_TRY(separator_in(s->dir, &s->separator));
    return s->separator ? AX_OK : ax_strdup(&s->separator, AX_STEP_SEPARATOR);
}

enum ax_status ax_text_scorer_open(struct ax_text_scorer *s,
                                   const struct ax_text_scorer_options *o) {
    *s = (struct ax_text_scorer){.o = *o};
    enum ax_status st;
    AX_TRY_GOTO(open_files(s), st, fail);
    AX_TRY_GOTO(check_kind(s), st, fail);
    AX_TRY_GOTO(open_side(s), st, fail);
    return AX_OK;
fail:
    ax_text_scorer_close(s);
    return st;
}

void ax_text_scorer_close(struct ax_text_scorer *s) {
    ax_free(s->separator);
    ax_text_side_close(&s->side);
    ax_adapters_close(&s->adapters);
    ax_hf_close(&s->hf);
    ax_arch_free(&s->arch);
    ax_lock_drop(&s->use);
    ax_free(s->dir);
    *s = (struct ax_text_scorer){0};
}

/* ---- scores ---- */

struct job {
    struct ax_text_scorer *s;
    size_t n;
    struct ax_document *docs; /* [n] */
    double *logits;           /* [n_scores][n_labels] */
    int64_t longest;
};

static enum ax_status body(struct ax_runtime *rt, void *ctx) {
    struct job *j = ctx;
    struct ax_text_scorer *s = j->s;
    struct ax_model m;
    const struct ax_peft *peft = s->adapters.n > 0 ? &s->adapters.pefts[0] : NULL;
    const struct ax_model_options mo = {.dtype = s->o.dtype,
                                        .base_store = s->o.store,
                                        .folder = &s->hf,
                                        .max_positions = j->longest,
                                        .adapter = peft ? &peft->config : NULL};
    const struct ax_classify_options o = {.tokens =
                                              j->longest > PASS_TOKENS ? j->longest : PASS_TOKENS,
                                          .max_docs = PASS_DOCS,
                                          .max_len = j->longest};
    AX_TRY(ax_model_create(&m, &s->arch, rt, &mo));
    enum ax_status st;
    AX_TRY_GOTO(ax_model_load(&m, &s->hf), st, done);
    if (peft)
        AX_TRY_GOTO(ax_adapter_load(&m, peft), st, done);
    st = ax_classify(&m, &o, (int)j->n, j->docs, j->logits);
done:
    ax_model_free(&m);
    return st;
}

static enum ax_status load_and_read(struct job *j) {
    return ax_runtime_run(&j->s->o.runtime, body, j, &(struct ax_arena_plan){0});
}

enum ax_status ax_text_scorer_run(struct ax_text_scorer *s, const struct ax_example_list *list,
                                  size_t n_scores, double *scores) {
    struct job j = {.s = s, .n = list->n};
    const size_t labels = (size_t)s->kind->n_labels;
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&j.docs, list->n, sizeof *j.docs), st, done);
    AX_TRY_GOTO(ax_alloc(&j.logits, n_scores * labels, sizeof *j.logits), st, done);
    for (size_t i = 0; i < list->n; i++) {
        const struct ax_example *x = &list->items[i];
        j.docs[i] =
            (struct ax_document){.n = (int64_t)x->n, .tokens = x->tokens, .labels = x->labels};
        j.longest = (int64_t)x->n > j.longest ? (int64_t)x->n : j.longest;
    }
    AX_TRY_GOTO(s->o.read ? s->o.read(s->o.ctx, (int)j.n, j.docs, j.logits) : load_and_read(&j), st,
                done);
    for (size_t i = 0; i < n_scores; i++)
        scores[i] = labels == 1 ? j.logits[i]
                                : 1 / (1 + exp(j.logits[i * labels] - j.logits[i * labels + 1]));
done:
    ax_free(j.logits);
    ax_free(j.docs);
    return st;
}
