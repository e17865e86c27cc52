#include "optim/evaluate/refer.h"

#include <stdio.h>

#include "base/log.h"
#include "base/mem.h"
#include "optim/evaluate/evaluate.h"
#include "optim/evaluate/reference_file.h"

/* ---- computing ---- */

/* What an evaluation's callbacks get: the caller's are called in turn. */
struct pass {
    struct ax_references *r;
    const struct ax_eval_options *o;
};

static enum ax_status note_reference(void *ctx, const struct ax_eval_document *d) {
    struct pass *p = ctx;
    return ax_references_put(p->r, d->set, d->example, (float)d->sums.logprob);
}

static void show_progress(void *ctx, int64_t rows_done) {
    const struct pass *p = ctx;
    if (p->o->progress)
        p->o->progress(p->o->ctx, rows_done);
}

static bool asked_to_stop(void *ctx) {
    const struct pass *p = ctx;
    return p->o->stop && p->o->stop(p->o->ctx);
}

static enum ax_status compute_references(struct ax_references *r, struct ax_model *m,
                                         struct ax_loader *loader,
                                         const struct ax_eval_options *o) {
    struct pass p = {r, o};
    struct ax_eval_options own = *o;
    struct ax_eval_result result = {0};
    own.document = note_reference;
    own.progress = show_progress;
    own.stop = asked_to_stop;
    own.ctx = &p;
    AX_TRY(ax_evaluate(m, loader, &own, &result));
    return result.stopped ? ax_error(AX_INTERRUPTED, "interrupted before the first step") : AX_OK;
}

/* ---- those of an earlier run ---- */

/* The documents of the passes, in their order. */
struct listed {
    struct place {
        const struct ax_examples *set;
        size_t example;
    } *at;            /* [n] */
    uint64_t *hashes; /* [n] */
    float *logprobs;  /* [n] */
    size_t n, cap;
    int64_t rows;
};

static void free_listed(struct listed *l) {
    ax_free(l->at);
    ax_free(l->hashes);
    ax_free(l->logprobs);
}

static enum ax_status list_document(struct listed *l, const struct ax_packed_sequence *s, int i) {
    const struct ax_example_ref *ref = ax_sequence_ref(s, i);
    const struct ax_examples *set = ax_sequence_set(s, i);
    if (l->n == l->cap) {
        const size_t cap = l->cap ? 2 * l->cap : 256;
        AX_TRY(ax_regrow(&l->at, l->cap, cap, sizeof *l->at));
        AX_TRY(ax_regrow(&l->hashes, l->cap, cap, sizeof *l->hashes));
        l->cap = cap;
    }
    l->at[l->n] = (struct place){set, ref->index};
    l->hashes[l->n++] = ax_examples_hash(set, ref->index, ref->n);
    return AX_OK;
}

static enum ax_status list_documents(struct listed *l, struct ax_loader *loader, int64_t max_rows) {
    ax_loader_start_epoch(loader, 0);
    for (; max_rows == 0 || l->rows < max_rows; l->rows++) {
        struct ax_packed_sequence s;
        bool got;
        AX_TRY(ax_loader_next(loader, &s, &got));
        if (!got)
            break;
        for (int i = 0; i < s.n; i++)
            AX_TRY(list_document(l, &s, i));
    }
    return ax_alloc(&l->logprobs, l->n, sizeof *l->logprobs);
}

/* Everything that determines the values: the model, the passes, and how ranks split a document, which
 * changes the order of sums. Data ranks, shards and stages change nothing. */
static enum ax_status describe_references(json_t **out, const struct ax_reference_store *store,
                                          const struct ax_model *m, uint64_t data, int64_t rows,
                                          const struct ax_eval_options *o) {
    const struct ax_mesh *mesh = &m->rt->mesh;
    char text[24];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)data);
    *out = json_pack(
        "{ss ss sO ss sI s[III] ss si si}", "what", "references", "version", AX_VERSION, "model",
        (json_t *)(uintptr_t)store->model, "data", text, "sequences", (json_int_t)rows, "pass",
        (json_int_t)o->tokens, (json_int_t)o->max_docs, (json_int_t)o->max_len, "dtype",
        ax_dtype_info(m->dtype)->name, "tp", mesh->size[AX_ROLE_TP], "cp", mesh->size[AX_ROLE_CP]);
    return *out ? AX_OK : ax_error(AX_ERR_NOMEM, "out of memory for the key of a reference");
}

/* What cannot be used is computed again. All ranks do the same. */
static enum ax_status look_up_references(struct ax_references *r, const struct ax_reference_file *f,
                                         struct listed *l, bool *found) {
    bool mine = false;
    enum ax_status st = ax_reference_file_read(f, l->logprobs, &mine);
    if (st != AX_OK && st != AX_ERR_NOMEM) {
        ax_log_warn("computing the log-probs of the reference again: %s", ax_error_text());
        ax_error_clear();
        st = AX_OK;
    }
    double missing = mine ? 0 : 1;
    AX_TRY(ax_team_agree(r->store->team, st));
    AX_TRY(ax_team_max(r->store->team, &missing));
    *found = missing == 0;
    for (size_t i = 0; *found && i < l->n; i++)
        AX_TRY(ax_references_put(r, l->at[i].set, l->at[i].example, l->logprobs[i]));
    return AX_OK;
}

/* It only saves work: a full disk does not stop a run. */
static void keep_references(const struct ax_references *r, const struct ax_reference_file *f,
                            struct listed *l) {
    for (size_t i = 0; i < l->n; i++)
        l->logprobs[i] = ax_references_get(r, l->at[i].set, l->at[i].example);
    if (ax_reference_file_write(f, l->logprobs) == AX_OK)
        return;
    ax_log_warn("the log-probs of the reference are not kept: %s", ax_error_text());
    ax_error_clear();
}

static enum ax_status read_or_compute(struct ax_references *r, struct ax_model *m,
                                      struct ax_loader *loader, uint64_t data,
                                      const struct ax_eval_options *o) {
    struct listed l = {0};
    struct ax_reference_file f = {.cache = r->store->cache};
    json_t *description = NULL;
    bool found = false;
    enum ax_status st = list_documents(&l, loader, o->max_rows);
    if (st == AX_OK)
        st = describe_references(&description, r->store, m, data, l.rows, o);
    AX_TRY_GOTO(ax_team_agree(r->store->team, st), st, done);
    f.description = description;
    f.documents = l.hashes;
    f.n = l.n;
    AX_TRY_GOTO(look_up_references(r, &f, &l, &found), st, done);
    if (found) {
        ax_log_info("read the reference's log-probs of %zu documents, computed by an earlier run",
                    l.n);
        goto done;
    }
    AX_TRY_GOTO(compute_references(r, m, loader, o), st, done);
    keep_references(r, &f, &l);
done:
    json_decref(description);
    free_listed(&l);
    return st;
}

enum ax_status ax_references_compute(struct ax_references *r, struct ax_model *m,
                                     struct ax_loader *loader, const struct ax_eval_options *o) {
    struct ax_loader_state at;
    if (ax_runtime_planning(m->rt))
        return compute_references(r, m, loader, o);
    ax_loader_save(loader, &at);
    AX_TRY(r->store ? read_or_compute(r, m, loader, at.fingerprint, o)
                    : compute_references(r, m, loader, o));
    return ax_loader_restore(loader, &at);
}
