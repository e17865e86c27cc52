/* Looks up each tensor by its HF name, chooses a type, and reads it row by row when the file is
 * written. Read ax_gguf_outputs_create, then fill. */
#include "ckpt/gguf/outputs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/gguf/names.h"

#define PIECE ((int64_t)1 << 20) /* most elements per call of a source's fill */

struct ax_gguf_piece {
    char name[96];                      /* name in the file */
    const struct ax_st_output **source; /* one, or one per expert; owned */
    const float *values;                /* instead of sources: the tensor's elements */
    int64_t rows, cols;                 /* of one matrix in the file */
    int64_t source_rows;                /* of one source */
    int64_t kept_rows;                  /* as ax_gguf_name.kept_rows */
    struct ax_gguf_order row_order, col_order;
    struct ax_gguf_view view;         /* of the source */
    float shift, factor;              /* of every element */
    bool rate;                        /* −exp of every element */
    int64_t band_rows[AX_GGUF_BANDS]; /* as ax_gguf_name.bands */
    float band_factor[AX_GGUF_BANDS];
    void *buffer; /* PIECE elements of any type */
};

/* --- elements --- */

/* Converts n elements of HF's matrix, from element `at` on, into their places in `out`, whose first
 * row is row `first` of the file's matrix. */
static void place(const struct ax_gguf_piece *p, enum ax_dtype dtype, const void *data, int64_t at,
                  int64_t n, int64_t first, float *out) {
    const char *from = data;
    const size_t size = ax_dtype_size(dtype);
    for (int64_t i = 0, m; i < n; i += m) {
        const int64_t r = (at + i) / p->cols, c = (at + i) % p->cols;
        const int64_t to = ax_gguf_row(&p->row_order, r);
        m = ax_gguf_rows_in_order(&p->col_order, c, p->cols - c < n - i ? p->cols - c : n - i);
        if (to >= 0)
            ax_convert(AX_F32, out + (to - first) * p->cols + ax_gguf_row(&p->col_order, c), dtype,
                       from + (size_t)i * size, m);
    }
}

/* Rows [first, first + n) of one source. If rows are reordered, the range contains only complete
 * runs. */
static enum ax_status read_rows(const struct ax_gguf_piece *p, const struct ax_st_output *s,
                                int64_t first, int64_t n, float *out) {
    const bool other = p->source_rows != p->rows; /* then it is all of them */
    const int64_t begin = first * p->cols, end = (other ? p->source_rows : first + n) * p->cols;
    const bool straight = s->dtype == AX_F32 && p->row_order.kind == AX_GGUF_STRAIGHT &&
                          p->col_order.kind == AX_GGUF_STRAIGHT;
    for (int64_t i = begin, m; i < end; i += m) {
        m = end - i < PIECE ? end - i : PIECE;
        AX_TRY(s->fill(s->ctx, i, m, straight ? out + (i - begin) : p->buffer));
        if (!straight)
            place(p, s->dtype, p->buffer, i, m, first, out);
    }
    return AX_OK;
}

/* Elements of a source that a matrix of a view lies within. */
static int64_t span(const struct ax_gguf_piece *p) {
    return (p->rows - 1) * p->view.step[1] + (p->cols - 1) * p->view.step[2] + 1;
}

/* Where a matrix of a view has the element `at` of its span; false: nowhere. */
static bool place_of(const struct ax_gguf_piece *p, int64_t at, int64_t *to) {
    const int64_t row = p->view.step[1], col = p->view.step[2];
    const bool by_rows = row >= col;
    const int64_t large = by_rows ? row : col, small = by_rows ? col : row;
    const int64_t many = at / large, few = small > 0 ? at % large / small : 0;
    if (small > 0 && at % large % small != 0)
        return false;
    const int64_t r = by_rows ? many : few, c = by_rows ? few : many;
    *to = r * p->cols + c;
    return r < p->rows && c < p->cols;
}

/* Rows of a view, of which the file has p->rows per matrix; complete matrices. */
static enum ax_status read_view(const struct ax_gguf_piece *p, int64_t first, int64_t n,
                                float *out) {
    const struct ax_st_output *s = p->source[0];
    const size_t size = ax_dtype_size(s->dtype);
    const int64_t all = span(p);
    for (int64_t r = first; r < first + n; r += p->rows, out += p->rows * p->cols) {
        const int64_t base = p->view.base + r / p->rows * p->view.step[0];
        for (int64_t from = 0, m; from < all; from += m) {
            const char *data = p->buffer;
            m = all - from < PIECE ? all - from : PIECE;
            AX_TRY(s->fill(s->ctx, base + from, m, p->buffer));
            for (int64_t i = 0, to; i < m; i++)
                if (place_of(p, from + i, &to))
                    ax_convert(AX_F32, out + to, s->dtype, data + (size_t)i * size, 1);
        }
    }
    return AX_OK;
}

/* Rows of a matrix that has more of them than its source, whose first one is all others. */
static enum ax_status read_lengthened(const struct ax_gguf_piece *p, int64_t first, int64_t n,
                                      float *out) {
    const int64_t left = first < p->kept_rows ? p->kept_rows - first : 0,
                  kept = left < n ? left : n;
    float *rest = out + kept * p->cols;
    if (kept > 0)
        AX_TRY(read_rows(p, p->source[0], first, kept, out));
    if (kept == n)
        return AX_OK;
    AX_TRY(read_rows(p, p->source[0], 0, 1, rest));
    for (int64_t r = 1; r < n - kept; r++)
        memcpy(rest + r * p->cols, rest, (size_t)p->cols * sizeof *rest);
    return AX_OK;
}

/* Rows are counted over all experts. A vector is one row in the file, even if its source has one
 * row per element. */
static enum ax_status read(const struct ax_gguf_piece *p, int64_t first, int64_t n, float *out) {
    if (p->values) {
        memcpy(out, p->values, (size_t)p->rows * sizeof *out);
        return AX_OK;
    }
    if (p->view.is)
        return read_view(p, first, n, out);
    if (p->kept_rows > 0)
        return read_lengthened(p, first, n, out);
    if (p->cols == 1)
        return read_rows(p, p->source[0], 0, p->rows, out);
    for (int64_t r = first, m; r < first + n; r += m) {
        const int64_t in = r % p->rows;
        m = p->rows - in < first + n - r ? p->rows - in : first + n - r;
        AX_TRY(read_rows(p, p->source[r / p->rows], in, m, out + (r - first) * p->cols));
    }
    return AX_OK;
}

/* Rows [first, first + n) of a matrix whose rows have factors by parts. */
static void scale_bands(const struct ax_gguf_piece *p, int64_t first, int64_t n, float *out) {
    int64_t begin = 0;
    for (int b = 0; b < AX_GGUF_BANDS; begin += p->band_rows[b++])
        for (int64_t r = first; r < first + n; r++)
            for (int64_t c = 0; r >= begin && r < begin + p->band_rows[b] && c < p->cols; c++)
                out[(r - first) * p->cols + c] *= p->band_factor[b];
}

static enum ax_status fill(void *ctx, int64_t first, int64_t n, float *out) {
    const struct ax_gguf_piece *p = ctx;
    const int64_t numel = p->cols == 1 ? p->rows : n * p->cols;
    AX_TRY(read(p, first, n, out));
    for (int64_t i = 0; p->shift != 0 && i < numel; i++)
        out[i] += p->shift;
    for (int64_t i = 0; p->factor != 1 && i < numel; i++)
        out[i] *= p->factor;
    if (p->band_rows[0] > 0)
        scale_bands(p, first, n, out);
    for (int64_t i = 0; p->rate && i < numel; i++)
        out[i] = (float)-exp((double)out[i]);
    return AX_OK;
}

/* --- the list --- */

struct list {
    struct ax_gguf_outputs *o;
    const struct ax_gguf_model *m;
    const struct ax_gguf_quant *quant;
    const struct ax_gguf_outputs_from *from;
    const struct ax_st_output **sorted; /* [from->n] by name */
    bool *used;                         /* [from->n] in the order of `sorted` */
    int64_t n;
};

static int by_name(const void *a, const void *b) {
    return strcmp((*(const struct ax_st_output *const *)a)->name,
                  (*(const struct ax_st_output *const *)b)->name);
}

static const struct ax_st_output *find(const struct list *l, const char *name) {
    const struct ax_st_output key = {.name = name}, *k = &key;
    const struct ax_st_output **at =
        bsearch(&k, l->sorted, (size_t)l->from->n, sizeof *l->sorted, by_name);
    if (!at && strncmp(name, "model.", 6) == 0) /* a model without head has no prefix */
        return find(l, name + 6);
    if (!at)
        return NULL;
    l->used[at - l->sorted] = true;
    return *at;
}

static enum ax_status take(const struct list *l, const struct ax_gguf_name *n, int64_t expert,
                           const struct ax_st_output **out) {
    char name[112];
    const struct ax_st_output *s = find(l, ax_gguf_expert_name(n, expert, name));
    if (!s)
        return ax_error(AX_ERR_DATA, "%s: tensor %s is missing", l->from->where, name);
    const int ndim = n->hf_ndim;
    const int64_t *shape = n->hf_shape;
    bool same = s->ndim == ndim && ax_dtype_info(s->dtype)->is_float;
    for (int d = 0; same && d < ndim; d++)
        same = s->shape[d] == shape[d];
    if (!same)
        return ax_error(AX_ERR_DATA,
                        "%s: tensor %s is %s [%lld, %lld] (%d dimensions), but config.json asks "
                        "for [%lld, %lld] floats (%d dimensions)",
                        l->from->where, name, ax_dtype_info(s->dtype)->name, (long long)s->shape[0],
                        (long long)(s->ndim > 1 ? s->shape[1] : 1), s->ndim, (long long)shape[0],
                        (long long)shape[1], ndim);
    *out = s;
    return AX_OK;
}

static enum ax_status count(void *ctx, const struct ax_gguf_name *n) {
    struct list *l = ctx;
    (void)n;
    l->n++;
    return AX_OK;
}

static const struct ax_block_type *pick_type(const struct list *l, const struct ax_gguf_name *n) {
    const struct ax_gguf_place place = {.part = n->part,
                                        .tied = l->m->tied,
                                        .layer = n->layer,
                                        .layers = l->m->layers,
                                        .experts = l->m->experts,
                                        .cols = n->shape[n->ndim - 1]};
    return ax_gguf_pick_type(l->quant, &place);
}

static enum ax_status add(void *ctx, const struct ax_gguf_name *n) {
    const struct list *l = ctx;
    const int i = l->o->n++;
    const int64_t sources = n->experts > 0 ? n->experts : 1;
    struct ax_gguf_piece *p = &l->o->pieces[i];
    struct ax_gguf_output *t = &l->o->tensors[i];
    snprintf(p->name, sizeof p->name, "%s", n->gguf);
    p->buffer = l->o->buffer;
    p->view = n->view;
    p->shift = (float)n->shift;
    p->factor = (float)n->factor;
    p->rows = n->view.is && n->ndim == 1 ? 1 : n->shape[n->ndim == 3];
    p->cols = n->ndim > 1 || n->view.is ? n->shape[n->ndim - 1] : 1;
    p->kept_rows = n->kept_rows;
    p->source_rows = n->view.is || p->cols == 1 || n->kept_rows > 0 ? p->rows : n->hf_shape[0];
    p->row_order = n->rows;
    p->col_order = n->cols;
    p->rate = n->rate;
    for (int b = 0; b < AX_GGUF_BANDS; b++) {
        p->band_rows[b] = n->bands.rows[b];
        p->band_factor[b] = (float)n->bands.factor[b];
    }
    AX_TRY(ax_alloc(&p->source, (size_t)sources, sizeof *p->source));
    for (int64_t e = 0; e < sources; e++)
        AX_TRY(take(l, n, e, &p->source[e]));
    *t = (struct ax_gguf_output){.name = p->name,
                                 .type = pick_type(l, n),
                                 .run = n->view.is     ? p->rows
                                        : n->ndim == 2 ? ax_gguf_run(&n->rows, p->rows)
                                                       : 1,
                                 .fill = fill,
                                 .ctx = p};
    if (n->experts > 0)
        t->shape[t->ndim++] = n->experts;
    for (int d = 0; d < n->ndim; d++)
        t->shape[t->ndim++] = n->shape[d];
    l->o->numel += sources * p->rows * p->cols * (n->ndim == 3 ? n->shape[0] : 1);
    return AX_OK;
}

/* Writes the divisors of the rotary frequencies. */
static void add_factors(const struct list *l, const struct ax_gguf_factors *f) {
    struct ax_gguf_piece *p = &l->o->pieces[l->o->n];
    struct ax_gguf_output *t = &l->o->tensors[l->o->n++];
    *p = (struct ax_gguf_piece){.values = f->v, .rows = f->n, .factor = 1};
    snprintf(p->name, sizeof p->name, "%s", f->name);
    *t = (struct ax_gguf_output){.name = p->name,
                                 .type = ax_block_type_find(0),
                                 .ndim = 1,
                                 .shape = {p->rows},
                                 .run = 1,
                                 .fill = fill,
                                 .ctx = p};
}

/* Keys and values, which nothing uses, of a layer that has those of another. */
static bool is_of_borrower(const struct ax_gguf_model *m, const char *name) {
    static const char *const parts[] = {"k_proj.", "v_proj.", "k_norm.", "v_norm."};
    long long layer;
    int at = 0;
    bool yes = false;
    if (sscanf(name, "model.layers.%lld.self_attn.%n", &layer, &at) != 1 || at == 0 ||
        !ax_gguf_borrows(m, layer))
        return false;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        yes = yes || strncmp(name + at, parts[i], strlen(parts[i])) == 0;
    return yes;
}

/* Of a layer for multi-token prediction. */
static bool is_unused(const struct ax_gguf_model *m, const char *name) {
    static const char layers[] = "model.layers.";
    const size_t n = sizeof layers - 1;
    const char *prefix = m->left_out_prefix;
    if (prefix && strncmp(name, prefix, strlen(prefix)) == 0)
        return true;
    if (is_of_borrower(m, name))
        return true;
    return m->left_out > 0 && strncmp(name, layers, n) == 0 &&
           strtoll(name + n, NULL, 10) >= m->layers;
}

/* Ignored tensors: layers that a file leaves out, rope buffers in old files, and the copy of a tied
 * head. */
static enum ax_status check_left_over(const struct list *l) {
    for (int i = 0; i < l->from->n; i++) {
        const char *name = l->sorted[i]->name;
        const bool harmless = strstr(name, "rotary_emb.inv_freq") ||
                              (l->m->tied && strcmp(name, "lm_head.weight") == 0) ||
                              is_unused(l->m, name);
        if (!l->used[i] && !harmless)
            return ax_error(AX_ERR_DATA, "%s: unexpected tensor %s in a %s model of %lld layers",
                            l->from->where, name, l->m->kind->model_type, (long long)l->m->layers);
    }
    return AX_OK;
}

static enum ax_status build(struct list *l) {
    struct ax_gguf_outputs *o = l->o;
    const size_t n = (size_t)l->from->n;
    AX_TRY(ax_gguf_each_tensor(l->m, count, l));
    AX_TRY(ax_alloc(&o->tensors, (size_t)l->n + AX_GGUF_MAX_FACTORS, sizeof *o->tensors));
    AX_TRY(ax_alloc(&o->pieces, (size_t)l->n + AX_GGUF_MAX_FACTORS, sizeof *o->pieces));
    AX_TRY(ax_alloc(&o->buffer, PIECE, sizeof(double)));
    AX_TRY(ax_alloc(&l->sorted, n, sizeof *l->sorted));
    AX_TRY(ax_alloc(&l->used, n, sizeof *l->used));
    for (size_t i = 0; i < n; i++)
        l->sorted[i] = &l->from->tensors[i];
    qsort(l->sorted, n, sizeof *l->sorted, by_name);
    AX_TRY(ax_gguf_each_tensor(l->m, add, l));
    for (int i = 0; i < l->from->n_factors; i++)
        add_factors(l, &l->from->factors[i]);
    return check_left_over(l);
}

enum ax_status ax_gguf_outputs_create(struct ax_gguf_outputs *o, const struct ax_gguf_model *m,
                                      const struct ax_gguf_quant *quant,
                                      const struct ax_gguf_outputs_from *from) {
    struct list l = {.o = o, .m = m, .quant = quant, .from = from};
    *o = (struct ax_gguf_outputs){0};
    const enum ax_status st = build(&l);
    ax_free(l.sorted);
    ax_free(l.used);
    if (st != AX_OK)
        ax_gguf_outputs_free(o);
    return st;
}

void ax_gguf_outputs_free(struct ax_gguf_outputs *o) {
    for (int i = 0; i < o->n; i++)
        ax_free(o->pieces[i].source);
    ax_free(o->tensors);
    ax_free(o->pieces);
    ax_free(o->buffer);
    *o = (struct ax_gguf_outputs){0};
}
