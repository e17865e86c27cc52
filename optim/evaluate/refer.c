#include "optim/evaluate/refer.h"

#include <stdio.h>
#include <string.h>

#include "base/hash/hash.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "ckpt/hf/safetensors.h"
#include "data/records/pipeline/prepared.h"
#include "optim/evaluate/evaluate.h"

/* ---- log-probs on disk ---- */

/* Where a file is, and the description that it must have. */
struct reference_place {
    char *folder, *lock, *file, *description;
};

static void free_reference_place(struct reference_place *p) {
    ax_free(p->folder);
    ax_free(p->lock);
    ax_free(p->file);
    ax_free(p->description);
}

static enum ax_status find_reference_place(struct reference_place *p,
                                           const struct ax_reference_file *f) {
    *p = (struct reference_place){.description =
                                      json_dumps(f->description, JSON_COMPACT | JSON_SORT_KEYS)};
    enum ax_status st = AX_OK;
    if (!p->description)
        st = ax_error(AX_ERR_NOMEM, "out of memory for the description of a reference");
    if (st == AX_OK)
        st = ax_cache_path(&p->folder, f->cache, f->description);
    if (st == AX_OK)
        st = ax_sprintf(&p->lock, "%s.lock", p->folder);
    if (st == AX_OK)
        st = ax_path_join(&p->file, p->folder, AX_REFERENCE_FILE);
    if (st != AX_OK)
        free_reference_place(p);
    return st;
}

/* ---- reading a file ---- */

static enum ax_status refuse(const struct ax_safetensors *st, const char *why) {
    return ax_error(AX_ERR_DATA, "%s: %s", st->path, why);
}

/* A list of n elements; AX_ERR_DATA if the file has none of this name. */
static enum ax_status take(const struct ax_safetensors *st, const char *name, enum ax_dtype dtype,
                           size_t n, const void **data, uint32_t *crc) {
    const struct ax_st_entry *e = ax_safetensors_find(st, name);
    if (!e || e->dtype != dtype || e->ndim != 1 || (size_t)e->numel != n)
        return refuse(st, "corrupted: it does not have the tensors that it should");
    *data = e->data;
    if (crc)
        *crc = ax_crc32c(*crc, e->data, e->bytes);
    return AX_OK;
}

static enum ax_status check(const struct ax_safetensors *st, const struct ax_reference_file *f,
                            const char *description, const void **logprobs) {
    const size_t n = strlen(description);
    const void *text, *documents, *stored;
    uint32_t crc = 0;
    int64_t sum;
    const struct ax_st_entry *e = ax_safetensors_find(st, "description");
    if (e && e->numel != (int64_t)n)
        return refuse(st, "it is of another model or of other data");
    AX_TRY(take(st, "description", AX_U8, n, &text, &crc));
    AX_TRY(take(st, "documents", AX_I64, f->n, &documents, &crc));
    AX_TRY(take(st, "logprobs", AX_F32, f->n, logprobs, &crc));
    AX_TRY(take(st, "crc32c", AX_I64, 1, &stored, NULL));
    memcpy(&sum, stored, sizeof sum);
    if (sum != (int64_t)crc)
        return refuse(st, "corrupted: the checksum does not match");
    if (memcmp(text, description, n) != 0 ||
        memcmp(documents, f->documents, f->n * sizeof *f->documents) != 0)
        return refuse(st, "it is of another model or of other data");
    return AX_OK;
}

static enum ax_status read_file(const struct reference_place *p, const struct ax_reference_file *f,
                                float *logprob, bool *found) {
    struct ax_safetensors st;
    const void *from;
    *found = false;
    AX_TRY(ax_folder_recover(p->folder));
    if (!ax_path_exists(p->file))
        return AX_OK;
    AX_TRY(ax_safetensors_open(&st, p->file));
    const enum ax_status checked = check(&st, f, p->description, &from);
    if (checked == AX_OK && logprob)
        memcpy(logprob, from, f->n * sizeof *logprob);
    *found = checked == AX_OK;
    ax_safetensors_close(&st);
    return checked;
}

enum ax_status ax_reference_file_read(const struct ax_reference_file *f, float *logprob,
                                      bool *found) {
    struct reference_place p;
    struct ax_lock lock = {0};
    *found = false;
    AX_TRY(find_reference_place(&p, f));
    ax_lock_take(&lock, p.lock, AX_LOCK_SHARED);
    const enum ax_status st = read_file(&p, f, logprob, found);
    ax_lock_drop(&lock);
    free_reference_place(&p);
    return st;
}

/* ---- writing a file ---- */

struct bytes {
    const char *data;
    size_t size; /* of an element */
};

static enum ax_status fill(void *ctx, int64_t first, int64_t n, void *out) {
    const struct bytes *b = ctx;
    memcpy(out, b->data + (size_t)first * b->size, (size_t)n * b->size);
    return AX_OK;
}

static enum ax_status write_tensors(const char *path, const struct ax_reference_file *f,
                                    const char *description, const float *logprob) {
    enum { DESCRIPTION, DOCUMENTS, LOGPROBS, CRC, TENSORS };
    static const struct {
        const char *name;
        enum ax_dtype dtype;
    } is[TENSORS] = {
        {"description", AX_U8}, {"documents", AX_I64}, {"logprobs", AX_F32}, {"crc32c", AX_I64}};
    const size_t n[TENSORS] = {strlen(description), f->n, f->n, 1};
    const void *data[TENSORS] = {description, f->documents, logprob, NULL};
    struct ax_st_output out[TENSORS];
    struct bytes bytes[TENSORS];
    uint32_t crc = 0;
    for (int i = 0; i < CRC; i++)
        crc = ax_crc32c(crc, data[i], n[i] * ax_dtype_size(is[i].dtype));
    const int64_t sum = crc;
    data[CRC] = &sum;
    for (int i = 0; i < TENSORS; i++) {
        bytes[i] = (struct bytes){data[i], ax_dtype_size(is[i].dtype)};
        out[i] = (struct ax_st_output){.name = is[i].name,
                                       .dtype = is[i].dtype,
                                       .ndim = 1,
                                       .shape = {(int64_t)n[i]},
                                       .fill = fill,
                                       .ctx = &bytes[i]};
    }
    return ax_safetensors_write(path, TENSORS, out);
}

static enum ax_status write_folder(const struct reference_place *p,
                                   const struct ax_reference_file *f, const float *logprob) {
    struct ax_folder folder;
    char *path = NULL;
    AX_TRY(ax_folder_begin(&folder, p->folder));
    enum ax_status st = ax_path_join(&path, folder.tmp, AX_REFERENCE_FILE);
    if (st == AX_OK)
        st = write_tensors(path, f, p->description, logprob);
    if (st == AX_OK)
        st = ax_folder_commit(&folder);
    ax_folder_abort(&folder);
    ax_free(path);
    return st;
}

enum ax_status ax_reference_file_write(const struct ax_reference_file *f, const float *logprob) {
    struct reference_place p;
    struct ax_lock lock = {0};
    bool found = false;
    AX_TRY(find_reference_place(&p, f));
    enum ax_status st = ax_mkdir_parents_private(f->cache);
    if (st == AX_OK) {
        ax_lock_take(&lock, p.lock, AX_LOCK_EXCLUSIVE);
        if (read_file(&p, f, NULL, &found) != AX_OK)
            ax_error_clear(); /* it is replaced */
        st = found ? AX_OK : write_folder(&p, f, logprob);
        ax_lock_drop(&lock);
    }
    free_reference_place(&p);
    return st;
}

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
