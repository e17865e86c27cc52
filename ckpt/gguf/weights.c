/* Tensors of the file under HF names, row by row in HF order, dequantized during writing. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/gguf/names.h"
#include "ckpt/gguf/rope.h"

#define CHUNK 1024 /* elements per conversion; a multiple of every block size */

#define PARTS 2

/* A tensor of the file that is a view of the output, or has some of its rows. */
struct part {
    const struct ax_gguf_tensor *t;
    struct ax_gguf_view view;
    struct ax_gguf_order rows;
    int64_t shape[3]; /* of the view, 1 for dimensions that it lacks */
};

/* The origin of an output's elements. */
struct ax_gguf_source {
    const struct ax_gguf *file;
    const struct ax_gguf_tensor *t;
    struct part parts[PARTS]; /* instead of one tensor with the output's shape */
    int n_parts;
    char *name;  /* HF name, owned */
    float shift; /* that the file has added */
    bool rate;   /* the file has −exp(x) */
    struct ax_gguf_order rows, cols;
    int64_t base; /* index in the tensor of the output's first element */
    enum ax_dtype dtype;
    const unsigned char *stored; /* the tensor's blocks in the file */
    size_t stored_bytes;
};

/* --- elements --- */

static enum ax_status not_finite(const struct ax_gguf_source *s, float stored) {
    const int len = (int)s->t->name.len;
    if (!isfinite(stored))
        return ax_error(AX_ERR_DATA, "%s: tensor %.*s contains %g", s->file->path, len,
                        s->t->name.s, (double)stored);
    return ax_error(
        AX_ERR_DATA,
        "%s: tensor %.*s contains %g, which is too large for %s. Choose another --dtype.",
        s->file->path, len, s->t->name.s, (double)stored, ax_dtype_info(s->dtype)->name);
}

/* Converts n elements from the file's element `from` on to s->dtype. Their blocks contain at most
 * CHUNK elements. */
static enum ax_status put_chunk(const struct ax_gguf_source *s, int64_t from, int64_t n,
                                void *out) {
    const struct ax_block_type *type = s->t->type;
    const int64_t first = from / type->elements, skip = from % type->elements;
    const int64_t blocks = (skip + n + type->elements - 1) / type->elements;
    float all[CHUNK], back[CHUNK];
    const float *values = all + skip, *kept = values;
    AX_ASSERT(blocks * type->elements <= CHUNK);
    type->dequantize(s->t->data + first * type->bytes, blocks, all);
    for (int64_t i = 0; s->shift != 0 && i < n; i++)
        all[skip + i] -= s->shift;
    for (int64_t i = 0; s->rate && i < n; i++)
        all[skip + i] = (float)log(-(double)all[skip + i]);
    ax_convert(s->dtype, out, AX_F32, values, n);
    if (s->dtype != AX_F32) {
        ax_convert(AX_F32, back, s->dtype, out, n);
        kept = back;
    }
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(kept[i]))
            return not_finite(s, values[i]);
    return AX_OK;
}

/* Finds element i of the output in a part; false if another part has it. */
static bool locate(const struct part *p, int64_t i, int64_t *at) {
    int64_t left = i - p->view.base, index = 0;
    int64_t in[3] = {0};
    for (int turn = 0; turn < 3; turn++) { /* the longest steps first */
        const int d = turn == 0 ? 0 : (p->view.step[1] >= p->view.step[2]) == (turn == 1) ? 1 : 2;
        if (left < 0 || p->view.step[d] == 0)
            continue;
        in[d] = left / p->view.step[d];
        left %= p->view.step[d];
        if (in[d] >= p->shape[d])
            return false;
    }
    for (int d = 0; d < 3; d++)
        index = index * p->shape[d] + in[d];
    *at = index;
    return left == 0;
}

/* The output's elements one by one. */
static enum ax_status fill_from_parts(const struct ax_gguf_source *s, int64_t begin, int64_t n,
                                      char *out) {
    struct ax_gguf_source one = *s;
    for (int64_t i = begin; i < begin + n; i++, out += ax_dtype_size(s->dtype)) {
        int64_t at = 0;
        int k = 0;
        while (k < s->n_parts && !locate(&s->parts[k], i, &at))
            k++;
        AX_ASSERT(k < s->n_parts);
        one.t = s->parts[k].t;
        AX_TRY(put_chunk(&one, at, 1, out));
    }
    return AX_OK;
}

static const struct ax_gguf_tensor *tensor_of_row(const struct ax_gguf_source *s, int64_t r,
                                                  int64_t *row) {
    int k = 0;
    if (s->n_parts == 0) {
        *row = ax_gguf_row(&s->rows, r);
        return s->t;
    }
    while (k + 1 < s->n_parts && ax_gguf_row(&s->parts[k].rows, r) < 0)
        k++;
    *row = ax_gguf_row(&s->parts[k].rows, r);
    return s->parts[k].t;
}

/* Accepts any range: rows are complete blocks, but a range may begin and end inside a block. */
static enum ax_status fill(void *ctx, int64_t begin, int64_t n, void *out) {
    const struct ax_gguf_source *s = ctx;
    struct ax_gguf_source one = *s;
    if (s->n_parts > 0 && s->parts[0].view.is)
        return fill_from_parts(s, begin, n, out);
    /* a reordered vector has rows of one element */
    const bool vector = s->t->ndim == 1 && s->rows.kind != AX_GGUF_STRAIGHT;
    const int64_t cols = vector ? 1 : s->t->shape[s->t->ndim - 1];
    char *p = out;
    for (int64_t i = begin, end = begin + n; i < end;) {
        const int64_t at = i % cols, to = ax_gguf_row(&s->cols, at);
        const int64_t most = CHUNK - to % s->t->type->elements;
        int64_t row, m = ax_gguf_rows_in_order(&s->cols, at, cols - at < most ? cols - at : most);
        m = end - i < m ? end - i : m;
        one.t = tensor_of_row(s, i / cols, &row);
        AX_TRY(put_chunk(&one, s->base + row * cols + to, m, p));
        p += (size_t)m * ax_dtype_size(s->dtype);
        i += m;
    }
    return AX_OK;
}

/* --- the list --- */

struct list {
    struct ax_gguf_weights *w;
    const struct ax_gguf_model *m;
    enum ax_dtype dtype;
    int64_t n; /* outputs so far */
};

static enum ax_status check_shape(const struct ax_gguf_model *m, const struct ax_gguf_name *n,
                                  const struct ax_gguf_tensor *t) {
    const int ndim = n->ndim + (n->experts > 0), len = (int)t->name.len;
    int64_t want[4] = {n->shape[0], n->shape[1], n->shape[2], 0};
    if (!t->type->dequantize)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "%s: tensor %.*s has type %s, which is not supported (%s are). Convert "
                        "from another quantization of the model.",
                        m->file->path, len, t->name.s, t->type->name, AX_BLOCK_TYPES_READ);
    if (n->experts > 0) {
        memmove(want + 1, want, 3 * sizeof *want);
        want[0] = n->experts;
    }
    const int more = t->ndim > ndim ? t->ndim - ndim : 0; /* first dimensions of 1 */
    bool same = t->ndim >= ndim;
    for (int d = 0; same && d < more; d++)
        same = t->shape[d] == 1;
    for (int d = 0; same && d < ndim && d < 3; d++)
        same = t->shape[more + d] == want[d];
    if (!same)
        return ax_error(
            AX_ERR_DATA, "%s: tensor %.*s: %lld × %lld elements, but the keys ask for %lld × %lld",
            m->file->path, len, t->name.s, (long long)t->shape[0],
            (long long)(t->ndim > 1 ? t->numel / (t->shape[0] ? t->shape[0] : 1) : 1),
            (long long)want[0], (long long)((ndim > 1 ? want[1] : 1) * (ndim > 2 ? want[2] : 1)));
    if (n->rows.kind != AX_GGUF_STRAIGHT && n->ndim == 1 && t->type->elements != 1)
        return ax_error(AX_ERR_UNSUPPORTED, "%s: tensor %.*s: quantized biases are not supported",
                        m->file->path, len, t->name.s);
    return AX_OK;
}

/* A tensor of the file that another output has, too: the copy of a tied head, or of a lender's keys. */
static bool is_copy(const struct ax_gguf_model *m, const struct ax_gguf_name *n) {
    return (m->tied && n->part == AX_GGUF_HEAD) || n->copy;
}

static enum ax_status count(void *ctx, const struct ax_gguf_name *n) {
    struct list *l = ctx;
    if (is_copy(l->m, n))
        return AX_OK;
    const struct ax_gguf_tensor *t = ax_gguf_tensor(l->m->file, n->gguf);
    if (!t)
        return ax_error(AX_ERR_DATA, "%s: tensor %s is missing", l->m->file->path, n->gguf);
    AX_TRY(check_shape(l->m, n, t));
    l->n += n->experts > 0 ? n->experts : 1;
    return AX_OK;
}

/* Some of an output's elements, of which other tensors of the file have the rest. */
static bool is_part(const struct ax_gguf_name *n) {
    return n->view.is || n->rows.kind == AX_GGUF_QKV || n->rows.kind == AX_GGUF_Z;
}

/* Adds a part to its output, which is the last one or new. */
static void add_part(struct ax_gguf_source *s, const struct ax_gguf_name *n,
                     const struct ax_gguf_tensor *t) {
    struct part *p = &s->parts[s->n_parts++];
    *p = (struct part){.t = t, .view = n->view, .rows = n->rows, .shape = {1, 1, 1}};
    memcpy(p->shape + 3 - n->ndim, n->shape, (size_t)n->ndim * sizeof *n->shape);
}

static int64_t numel(const struct ax_st_output *o) {
    int64_t n = 1;
    for (int d = 0; d < o->ndim; d++)
        n *= o->shape[d];
    return n;
}

static enum ax_status add(void *ctx, const struct ax_gguf_name *n) {
    const struct list *l = ctx;
    struct ax_gguf_weights *w = l->w;
    const struct ax_gguf_tensor *t = ax_gguf_tensor(l->m->file, n->gguf);
    if (is_copy(l->m, n))
        return AX_OK;
    if (is_part(n) && w->n > 0 && strcmp(w->sources[w->n - 1].name, n->hf) == 0) {
        add_part(&w->sources[w->n - 1], n, t);
        return AX_OK;
    }
    const int64_t each = t->numel / (n->experts > 0 ? n->experts : 1);
    char name[112];
    for (int64_t e = 0; e == 0 || e < n->experts; e++) {
        struct ax_gguf_source *s = &w->sources[w->n];
        *s = (struct ax_gguf_source){
            .file = l->m->file, .t = t, .dtype = l->dtype, .base = e * each};
        s->shift = (float)n->shift;
        s->rate = n->rate;
        s->rows = n->rows;
        s->cols = n->cols;
        if (is_part(n))
            add_part(s, n, t);
        AX_TRY(ax_strdup(&s->name, ax_gguf_expert_name(n, e, name)));
        s->stored = t->data + s->base / t->type->elements * t->type->bytes;
        s->stored_bytes = (size_t)(each / t->type->elements * t->type->bytes);
        struct ax_st_output *o = &w->outputs[w->n++];
        *o = (struct ax_st_output){.name = s->name, .dtype = l->dtype, .fill = fill, .ctx = s};
        o->ndim = n->hf_ndim;
        memcpy(o->shape, n->hf_shape, (size_t)o->ndim * sizeof *n->hf_shape);
        w->numel += numel(o);
    }
    return AX_OK;
}

/* Keys and values, which nothing uses, of a layer that has those of another. */
static bool is_of_borrower(const struct ax_gguf_model *m, const char *name) {
    static const char *const parts[] = {"attn_k.", "attn_v.", "attn_k_norm."};
    long long layer;
    int at = 0;
    bool yes = false;
    if (sscanf(name, "blk.%lld.%n", &layer, &at) != 1 || at == 0 || !ax_gguf_borrows(m, layer))
        return false;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        yes = yes || strncmp(name + at, parts[i], strlen(parts[i])) == 0;
    return yes;
}

/* Of a layer for multi-token prediction, or the copy of a tied head. */
static bool is_unused(const struct ax_gguf_model *m, const struct ax_gguf_tensor *t) {
    char name[32];
    snprintf(name, sizeof name, "%.*s", t->name.len < 31 ? (int)t->name.len : 31, t->name.s);
    if (is_of_borrower(m, name) || (m->kind->copies_head && strcmp(name, "output.weight") == 0))
        return true;
    return m->unused_layers > 0 && strncmp(name, "blk.", 4) == 0 &&
           strtoll(name + 4, NULL, 10) >= m->layers;
}

/* Config.json covers it. */
static bool is_stated(const struct ax_gguf_tensor *t) {
    static const char *const names[] = {AX_GGUF_ROPE_FACTORS, AX_GGUF_ROPE_LONG,
                                        AX_GGUF_ROPE_SHORT};
    bool is = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        is = is ||
             (t->name.len == strlen(names[i]) && memcmp(t->name.s, names[i], t->name.len) == 0);
    return is;
}

/* Finds a tensor that no output uses; NULL if none. */
static enum ax_status find_left_over(const struct ax_gguf_weights *w, const struct ax_gguf_model *m,
                                     const struct ax_gguf_tensor **left) {
    const struct ax_gguf *file = m->file;
    bool *used;
    *left = NULL;
    AX_TRY(ax_alloc(&used, file->n_tensors, sizeof *used));
    for (int i = 0; i < w->n; i++) {
        const struct ax_gguf_source *s = &w->sources[i];
        used[s->t - file->tensors] = true;
        for (int k = 0; k < s->n_parts; k++)
            used[s->parts[k].t - file->tensors] = true;
    }
    for (size_t i = 0; i < file->n_tensors && !*left; i++)
        if (!used[i] && !is_stated(&file->tensors[i]) && !is_unused(m, &file->tensors[i]))
            *left = &file->tensors[i];
    ax_free(used);
    return AX_OK;
}

static enum ax_status check_left_over(const struct ax_gguf_weights *w,
                                      const struct ax_gguf_model *m) {
    const struct ax_gguf_tensor *left;
    AX_TRY(find_left_over(w, m, &left));
    if (!left)
        return AX_OK;
    return ax_error(AX_ERR_UNSUPPORTED, "%s: unexpected tensor %.*s in a %s model of %lld layers",
                    m->file->path, (int)left->name.len, left->name.s, m->kind->arch,
                    (long long)m->layers);
}

static enum ax_status add_all(struct ax_gguf_weights *w, const struct ax_gguf_model *m,
                              enum ax_dtype dtype) {
    struct list l = {.w = w, .m = m, .dtype = dtype};
    AX_TRY(ax_gguf_each_tensor(m, count, &l));
    AX_TRY(ax_alloc(&w->outputs, (size_t)l.n, sizeof *w->outputs));
    AX_TRY(ax_alloc(&w->sources, (size_t)l.n, sizeof *w->sources));
    AX_TRY(ax_gguf_each_tensor(m, add, &l));
    return check_left_over(w, m);
}

static bool is_bias(const struct ax_gguf_tensor *t) {
    static const char end[] = ".bias";
    const size_t n = sizeof end - 1;
    return t->name.len > n && memcmp(t->name.s + t->name.len - n, end, n) == 0;
}

enum ax_dtype ax_gguf_model_dtype(const struct ax_gguf_model *m) {
    const struct ax_block_type *all = NULL;
    for (size_t i = 0; i < m->file->n_tensors; i++) {
        const struct ax_gguf_tensor *t = &m->file->tensors[i];
        const bool exact = strcmp(t->type->name, "MXFP4") == 0; /* in BF16 */
        const struct ax_block_type *type = exact ? ax_block_type_find(AX_GGUF_BF16) : t->type;
        if (t->ndim < 2 || is_bias(t))
            continue;
        if (all && all != type)
            return AX_F32;
        all = type;
    }
    if (all && strcmp(all->name, "BF16") == 0)
        return AX_BF16;
    return all && strcmp(all->name, "F16") == 0 ? AX_F16 : AX_F32;
}

enum ax_status ax_gguf_weights_create(struct ax_gguf_weights *w, const struct ax_gguf_model *m,
                                      enum ax_dtype dtype) {
    *w = (struct ax_gguf_weights){0};
    const enum ax_status st = add_all(w, m, dtype);
    if (st != AX_OK)
        ax_gguf_weights_free(w);
    return st;
}

enum ax_status ax_gguf_weights_entries(const struct ax_gguf_weights *w, struct ax_st_entry **out) {
    struct ax_st_entry *entries;
    AX_TRY(ax_alloc(&entries, (size_t)w->n, sizeof *entries));
    for (int i = 0; i < w->n; i++) {
        const struct ax_st_output *o = &w->outputs[i];
        struct ax_st_entry *e = &entries[i];
        *e = (struct ax_st_entry){.name = w->sources[i].name,
                                  .file = w->sources[i].file->path,
                                  .dtype = o->dtype,
                                  .ndim = o->ndim,
                                  .numel = numel(o),
                                  .read = o->fill,
                                  .ctx = o->ctx,
                                  .stored = w->sources[i].stored,
                                  .stored_bytes = w->sources[i].stored_bytes};
        memcpy(e->shape, o->shape, sizeof e->shape);
        e->bytes = (size_t)e->numel * ax_dtype_size(e->dtype);
    }
    ax_st_sort(entries, w->n);
    *out = entries;
    return AX_OK;
}

void ax_gguf_weights_free(struct ax_gguf_weights *w) {
    for (int i = 0; i < w->n; i++)
        ax_free(w->sources[i].name);
    ax_free(w->outputs);
    ax_free(w->sources);
    *w = (struct ax_gguf_weights){0};
}
