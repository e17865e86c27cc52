#include "optim/evaluate/reference_file.h"

#include <string.h>

#include "base/hash/hash.h"
#include "base/lock.h"
#include "ckpt/hf/safetensors.h"
#include "data/records/pipeline/prepared.h"

/* Where a file is, and the description that it must have. */
struct place {
    char *folder, *lock, *file, *description;
};

static void free_place(struct place *p) {
    ax_free(p->folder);
    ax_free(p->lock);
    ax_free(p->file);
    ax_free(p->description);
}

static enum ax_status find_place(struct place *p, const struct ax_reference_file *f) {
    *p = (struct place){.description = json_dumps(f->description, JSON_COMPACT | JSON_SORT_KEYS)};
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
        free_place(p);
    return st;
}

/* ---- reading ---- */

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

static enum ax_status read_file(const struct place *p, const struct ax_reference_file *f,
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
    struct place p;
    struct ax_lock lock = {0};
    *found = false;
    AX_TRY(find_place(&p, f));
    ax_lock_take(&lock, p.lock, AX_LOCK_SHARED);
    const enum ax_status st = read_file(&p, f, logprob, found);
    ax_lock_drop(&lock);
    free_place(&p);
    return st;
}

/* ---- writing ---- */

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

static enum ax_status write_folder(const struct place *p, const struct ax_reference_file *f,
                                   const float *logprob) {
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
    struct place p;
    struct ax_lock lock = {0};
    bool found = false;
    AX_TRY(find_place(&p, f));
    enum ax_status st = ax_mkdir_parents_private(f->cache);
    if (st == AX_OK) {
        ax_lock_take(&lock, p.lock, AX_LOCK_EXCLUSIVE);
        if (read_file(&p, f, NULL, &found) != AX_OK)
            ax_error_clear(); /* it is replaced */
        st = found ? AX_OK : write_folder(&p, f, logprob);
        ax_lock_drop(&lock);
    }
    free_place(&p);
    return st;
}
