#include "ckpt/hf/joined.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ckpt/hf/experts.h"

#define TILE 64 /* rows of a transposed stack that are read together */

/* A stack of one layer: `ups` matrices of each expert one after the other. */
struct ax_joined_stack {
    char *name;
    const struct ax_expert_form *form;
    int64_t experts, ups, rows, cols; /* of a matrix */
    const struct ax_st_entry **parts; /* [experts·ups] */
    enum ax_dtype dtype;
    struct ax_element_codes
        kept; /* `read` NULL: not all parts have codes of one kind in its order */
};

/* ---- elements ---- */

/* Rows follow rows, so that a range is pieces of parts. */
static enum ax_status read_straight(void *ctx, int64_t first, int64_t n, void *out) {
    const struct ax_joined_stack *s = ctx;
    const int64_t numel = s->rows * s->cols;
    for (int64_t done = 0, take; done < n; done += take) {
        const int64_t at = (first + done) % numel;
        take = numel - at < n - done ? numel - at : n - done;
        AX_TRY(ax_st_read(s->parts[(first + done) / numel], at, take, s->dtype,
                          (char *)out + (size_t)done * ax_dtype_size(s->dtype)));
    }
    return AX_OK;
}

static enum ax_status read_codes(void *ctx, int64_t first, int64_t n, unsigned char *codes,
                                 float *scale) {
    const struct ax_joined_stack *s = ctx;
    const int64_t numel = s->rows * s->cols;
    for (int64_t done = 0, take; done < n; done += take) {
        const struct ax_st_entry *e = s->parts[(first + done) / numel];
        const int64_t at = (first + done) % numel;
        take = numel - at < n - done ? numel - at : n - done;
        AX_TRY(e->codes->read(e->ctx, at, take, codes + done, scale + done / s->kept.block));
    }
    return AX_OK;
}

/* Columns [col, col + n) of `rows` rows from `row` on, of expert e: a column is a piece of a part's row. */
static enum ax_status read_tile(const struct ax_joined_stack *s, int64_t e, int64_t row,
                                int64_t rows, int64_t col, int64_t n, char *out) {
    double tile[TILE]; /* of elements of any type */
    const size_t size = ax_dtype_size(s->dtype);
    for (int64_t c = 0; c < n; c++) {
        const int64_t part = (col + c) / s->rows, from = (col + c) % s->rows;
        AX_TRY(ax_st_read(s->parts[e * s->ups + part], from * s->cols + row, rows, s->dtype, tile));
        for (int64_t r = 0; r < rows; r++)
            memcpy(out + (size_t)(r * n + c) * size, (const char *)tile + (size_t)r * size, size);
    }
    return AX_OK;
}

/* [E][in][out] of parts [out][in]. */
static enum ax_status read_turned(void *ctx, int64_t first, int64_t n, void *out) {
    const struct ax_joined_stack *s = ctx;
    const int64_t in = s->cols, width = s->ups * s->rows;
    for (int64_t done = 0; done < n;) {
        const int64_t at = first + done, e = at / (in * width), row = at / width % in;
        const int64_t col = at % width, left = n - done;
        int64_t rows = 1, cols = width - col < left ? width - col : left;
        if (cols == width) {
            rows = left / width < in - row ? left / width : in - row;
            rows = rows < TILE ? rows : TILE;
        }
        AX_TRY(read_tile(s, e, row, rows, col, cols,
                         (char *)out + (size_t)done * ax_dtype_size(s->dtype)));
        done += rows * cols;
    }
    return AX_OK;
}

/* ---- names ---- */

/* The form, expert and projection that a tensor's name is of; false: of none. */
struct place {
    const struct ax_expert_form *form;
    size_t prefix; /* characters before the form's names */
    int64_t expert;
    const char *projection;
};
static const char *const projections[] = {"gate_proj", "up_proj", "down_proj"};

static bool find_place(const char *name, bool usual, struct place *p) {
    const char *below = ax_hf_below_layer(name);
    for (const struct ax_expert_form *f = ax_expert_forms; f->module; f++) {
        const size_t n = strlen(f->module);
        if (strncmp(below, f->module, n) != 0 || below[n] != '.' || (f->usual && !usual))
            continue;
        const char *number = below + n + 1, *after = number + strspn(number, "0123456789");
        if (after == number || after - number > 5 || *after != '.')
            continue;
        for (size_t i = 0; i < sizeof projections / sizeof *projections; i++) {
            const size_t m = strlen(projections[i]);
            if (strncmp(after + 1, projections[i], m) != 0 || strcmp(after + 1 + m, ".weight") != 0)
                continue;
            *p =
                (struct place){f, (size_t)(below - name), strtol(number, NULL, 10), projections[i]};
            return true;
        }
    }
    return false;
}

static const struct ax_st_entry *find_matrix(int n, const struct ax_st_entry *given,
                                             const char *layer, const struct place *p, int64_t e,
                                             const char *projection) {
    char name[256];
    const int length = snprintf(name, sizeof name, "%.*s%s.%lld.%s.weight", (int)p->prefix, layer,
                                p->form->module, (long long)e, projection);
    return length < (int)sizeof name ? ax_st_find(given, n, name) : NULL;
}

static int64_t count_experts(int n, const struct ax_st_entry *given, const char *layer,
                             const struct place *p) {
    int64_t e = 0;
    while (e < AX_HF_MAX_EXPERTS && find_matrix(n, given, layer, p, e, "down_proj"))
        e++;
    return e;
}

/* ---- stacks ---- */

/* Codes of the parts are those of the stack: of one kind, in its order. */
static bool keeps_codes(const struct ax_joined_stack *s) {
    const struct ax_element_codes *first = s->parts[0]->codes;
    for (int64_t i = 0; i < s->experts * s->ups; i++) {
        const struct ax_element_codes *c = s->parts[i]->codes;
        if (!c || c->quant != first->quant || c->block != first->block)
            return false;
    }
    return !s->form->turned;
}

static bool all_quantized(const struct ax_joined_stack *s) {
    bool all = true;
    for (int64_t i = 0; i < s->experts * s->ups; i++)
        all = all && s->parts[i]->quantized;
    return all;
}

/* Finds the parts; the type is theirs, or of float32 if they differ. */
static enum ax_status find_parts(struct ax_joined_stack *s, const char *dir, int n,
                                 const struct ax_st_entry *given, const char *layer,
                                 const struct place *p) {
    AX_TRY(ax_alloc(&s->parts, (size_t)(s->experts * s->ups), sizeof(void *)));
    for (int64_t i = 0; i < s->experts * s->ups; i++) {
        const char *projection = s->ups == 1 ? "down_proj" : projections[i % 2];
        const struct ax_st_entry *e = find_matrix(n, given, layer, p, i / s->ups, projection);
        if (!e || e->ndim != 2 || (i > 0 && (e->shape[0] != s->rows || e->shape[1] != s->cols)))
            return ax_error(AX_ERR_DATA, "%s: %.*s%s.%lld.%s.weight %s; quantize the model again",
                            dir, (int)p->prefix, layer, p->form->module, (long long)(i / s->ups),
                            projection,
                            e ? "has another shape than the first expert's" : "is missing");
        s->rows = e->shape[0];
        s->cols = e->shape[1];
        s->dtype = i == 0 || e->dtype == s->dtype ? e->dtype : AX_F32;
        s->parts[i] = e;
    }
    if (keeps_codes(s))
        s->kept = (struct ax_element_codes){s->parts[0]->codes->quant, s->parts[0]->codes->block,
                                            read_codes};
    return AX_OK;
}

static enum ax_status lacks_down(const char *dir, const char *name) {
    return ax_error(AX_ERR_DATA,
                    "%s: %s is there, but not down_proj of that expert and all before it; quantize "
                    "the model again",
                    dir, name);
}

/* The stack of gate and up, or of down, of the layer of an expert's matrix `name`. */
static enum ax_status add_stack(struct ax_hf_joined *x, const char *dir, int n,
                                const struct ax_st_entry *given, const char *name,
                                const struct place *p, bool down) {
    struct ax_joined_stack *s = &x->stacks[x->n_stacks++];
    *s = (struct ax_joined_stack){
        .form = p->form, .ups = down ? 1 : 2, .experts = count_experts(n, given, name, p)};
    if (s->experts == 0)
        return lacks_down(dir, name);
    AX_TRY(find_parts(s, dir, n, given, name, p));
    AX_TRY(ax_sprintf(&s->name, "%.*s%s", (int)p->prefix, name,
                      down ? p->form->down : p->form->gate_up));
    const int64_t rows = s->ups * s->rows;
    struct ax_st_entry *e = &x->entries[x->n++];
    *e = (struct ax_st_entry){
        .name = s->name,
        .file = s->parts[0]->file,
        .dtype = s->dtype,
        .quantized = all_quantized(s),
        .ndim = 3,
        .shape = {s->experts, s->form->turned ? s->cols : rows, s->form->turned ? rows : s->cols},
        .read = s->form->turned ? read_turned : read_straight,
        .ctx = s,
        .codes = s->kept.read ? &s->kept : NULL};
    AX_TRY(ax_product(e->shape, 3, &e->numel));
    e->bytes = (size_t)e->numel * ax_dtype_size(e->dtype);
    return AX_OK;
}

/* The stack of down of the layer of an expert's matrix `name`; NULL: it is not there yet. */
static const struct ax_joined_stack *find_stack(const struct ax_hf_joined *x, const char *name,
                                                const struct place *p) {
    for (int i = 0; i < x->n_stacks; i++)
        if (strncmp(x->stacks[i].name, name, p->prefix) == 0 &&
            strcmp(x->stacks[i].name + p->prefix, p->form->down) == 0)
            return &x->stacks[i];
    return NULL;
}

/* Of the matrix `e`, which is at p: no other name has its place, no other form its stack. */
static enum ax_status check_place(const struct ax_hf_joined *x, const char *dir, int n,
                                  const struct ax_st_entry *given, const struct ax_st_entry *e,
                                  const struct place *p) {
    const struct ax_joined_stack *s = find_stack(x, e->name, p);
    if (find_matrix(n, given, e->name, p, p->expert, p->projection) != e)
        return ax_error(AX_ERR_DATA,
                        "%s: %s: expected its expert as %lld; quantize the model again", dir,
                        e->name, (long long)p->expert);
    if (s->form != p->form)
        return ax_error(AX_ERR_DATA,
                        "%s: %s is beside others of the layer in %s; quantize the model again", dir,
                        e->name, s->form->module);
    return p->expert < s->experts ? AX_OK : lacks_down(dir, e->name);
}

static enum ax_status fill(struct ax_hf_joined *x, const char *dir, bool usual, int n,
                           const struct ax_st_entry *given) {
    struct place p;
    for (int i = 0; i < n; i++) {
        if (!find_place(given[i].name, usual, &p)) {
            x->entries[x->n++] = given[i];
            continue;
        }
        if (!find_stack(x, given[i].name, &p)) {
            AX_TRY(add_stack(x, dir, n, given, given[i].name, &p, false));
            AX_TRY(add_stack(x, dir, n, given, given[i].name, &p, true));
        }
        AX_TRY(check_place(x, dir, n, given, &given[i], &p));
    }
    ax_st_sort(x->entries, x->n);
    return AX_OK;
}

enum ax_status ax_hf_joined_open(struct ax_hf_joined *x, const char *dir, bool usual, int n,
                                 const struct ax_st_entry *given) {
    struct place p;
    bool any = false;
    enum ax_status st;
    *x = (struct ax_hf_joined){0};
    for (int i = 0; i < n && !any; i++)
        any = find_place(given[i].name, usual, &p);
    if (!any)
        return AX_OK;
    /* a layer's stacks are of at least as many matrices */
    AX_TRY_GOTO(ax_alloc(&x->entries, (size_t)n + 1, sizeof *x->entries), st, fail);
    AX_TRY_GOTO(ax_alloc(&x->stacks, (size_t)n + 1, sizeof *x->stacks), st, fail);
    AX_TRY_GOTO(fill(x, dir, usual, n, given), st, fail);
    return AX_OK;
fail:
    ax_hf_joined_close(x);
    return st;
}

void ax_hf_joined_close(struct ax_hf_joined *x) {
    for (int i = 0; i < x->n_stacks; i++) {
        ax_free(x->stacks[i].name);
        ax_free(x->stacks[i].parts);
    }
    ax_free(x->stacks);
    ax_free(x->entries);
    *x = (struct ax_hf_joined){0};
}
