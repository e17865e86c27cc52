/* Quantized folders: their forms, and matrices as entries whose elements are computed. */
#include "ckpt/hf/compressed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ckpt/hf/compressed_matrix.h"

struct ax_compressed_format ax_compressed_of(const struct ax_scheme *s) {
    const bool four =
        s->form == AX_FORM_NVFP4 || (s->form == AX_FORM_PACKED && s->weight.kind != AX_QUANT_INT8);
    return (struct ax_compressed_format){
        .form = s->form, .kind = s->weight.kind, .bits = four ? 4 : 8, .block = s->weight.block};
}

/* ---- forms ---- */

typedef bool code_test(const struct ax_compressed_folder *in, const struct ax_st_entry *e,
                       size_t stem);

static bool is_int8(const struct ax_compressed_folder *in, const struct ax_st_entry *e,
                    size_t stem) {
    (void)in;
    (void)stem;
    return e->dtype == AX_I8;
}

static bool is_e4m3(const struct ax_compressed_folder *in, const struct ax_st_entry *e,
                    size_t stem) {
    (void)in;
    (void)stem;
    return e->e4m3;
}

static bool is_bytes(const struct ax_compressed_folder *in, const struct ax_st_entry *e,
                     size_t stem) {
    (void)in;
    (void)stem;
    return e->dtype == AX_U8 && !e->e4m3;
}

/* Scales of activations and of the KV cache, too, which stay as they are. */
static const char *const usual_sides[] = {".weight_scale",
                                          ".weight_scale_inv",
                                          ".weight_shape",
                                          ".weight_g_idx",
                                          ".weight_zero_point",
                                          ".weight_global_scale",
                                          ".weight_scale_2",
                                          ".input_global_scale",
                                          ".input_scale",
                                          ".input_zero_point",
                                          ".activation_scale",
                                          ".output_scale",
                                          ".output_zero_point",
                                          ".q_scale",
                                          ".k_scale",
                                          ".v_scale",
                                          NULL},
                         *const word_sides[] = {".scales", ".qzeros", ".g_idx", NULL},
                         *const bnb4_sides[] = {".weight.absmax",
                                                ".weight.quant_map",
                                                ".weight.nested_absmax",
                                                ".weight.nested_quant_map",
                                                ".weight.quant_state.bitsandbytes__nf4",
                                                ".weight.quant_state.bitsandbytes__fp4",
                                                NULL},
                         *const bnb8_sides[] = {".SCB", ".weight_format", NULL};

static const struct form {
    const char *codes;        /* the end of their names */
    code_test *is_codes;      /* NULL: all of such names are */
    const char *const *sides; /* the ends of names of what belongs to codes; ends with NULL */
    ax_compressed_opener *open;
    ax_compressed_reader *read;
} forms[] = {
#define ROWS usual_sides, ax_compressed_open_rows, ax_compressed_read_rows
    [AX_FORM_PACKED] = {".weight_packed", NULL, ROWS},
    [AX_FORM_INT8] = {".weight", is_int8, ROWS},
    [AX_FORM_FLOAT] = {".weight", is_e4m3, ROWS},
    [AX_FORM_NVFP4] = {".weight_packed", NULL, ROWS},
    [AX_FORM_MODELOPT4] = {".weight", is_bytes, ROWS},
#define WORDS word_sides, ax_compressed_open_words, ax_compressed_read_words
    [AX_FORM_GPTQ] = {".qweight", NULL, WORDS},
    [AX_FORM_AWQ] = {".qweight", NULL, WORDS},
    [AX_FORM_BNB4] = {".weight", ax_compressed_is_bnb4, bnb4_sides, ax_compressed_open_bnb4,
                      ax_compressed_read_bnb4},
    [AX_FORM_BNB8] = {".weight", is_int8, bnb8_sides, ax_compressed_open_bnb8,
                      ax_compressed_read_bnb8},
};

/* ---- the folder ---- */

static int by_name(const void *a, const void *b) {
    return strcmp((*(const struct ax_st_entry *const *)a)->name,
                  (*(const struct ax_st_entry *const *)b)->name);
}

/* Length of what comes before `suffix`, or 0. */
static size_t stem_of(const char *name, const char *suffix) {
    const size_t n = strlen(name), m = strlen(suffix);
    return n > m && strcmp(name + n - m, suffix) == 0 ? n - m : 0;
}

/* Length of what comes before the end of the name of codes in this form, or 0. */
static size_t codes_of(const struct form *form, const struct ax_compressed_folder *in,
                       const struct ax_st_entry *e) {
    const size_t stem = stem_of(e->name, form->codes);
    return stem > 0 && (!form->is_codes || form->is_codes(in, e, stem)) ? stem : 0;
}

/* Length of what comes before the end of the name of codes in any of these formats, or 0. */
static size_t stem_of_codes(const struct ax_compressed_formats *formats,
                            const struct ax_compressed_folder *in, const struct ax_st_entry *e) {
    size_t stem = 0;
    for (int i = 0; i < formats->n && stem == 0; i++)
        stem = codes_of(&forms[formats->of[i].form], in, e);
    return stem;
}

/* Opens codes in the first format that fits; the error is that of the last one. */
static enum ax_status open_matrix(struct ax_compressed_matrix *m,
                                  const struct ax_compressed_formats *formats,
                                  const struct ax_compressed_folder *in,
                                  const struct ax_st_entry *codes, size_t stem) {
    enum ax_status st = AX_ERR_DATA;
    for (int i = 0; i < formats->n && st != AX_OK; i++) {
        const struct form *form = &forms[formats->of[i].form];
        if (codes_of(form, in, codes) == 0)
            continue;
        ax_error_clear();
        *m = (struct ax_compressed_matrix){.f = formats->of[i], .codes = codes, .dtype = AX_F32};
        st = form->open(m, in, stem);
    }
    return st;
}

static enum ax_status add_matrix(struct ax_compressed *c,
                                 const struct ax_compressed_formats *formats,
                                 const struct ax_compressed_folder *in,
                                 const struct ax_st_entry *codes, size_t stem) {
    struct ax_compressed_matrix *m = &c->matrices[c->n_matrices];
    AX_TRY(open_matrix(m, formats, in, codes, stem));
    AX_TRY(ax_sprintf(&m->name, "%.*s.weight", (int)stem, codes->name));
    c->n_matrices++;
    struct ax_st_entry *e = &c->entries[c->n++];
    *e = (struct ax_st_entry){.name = m->name,
                              .file = codes->file,
                              .dtype = m->dtype,
                              .quantized = true,
                              .ndim = 2,
                              .shape = {m->rows, m->cols},
                              .numel = m->rows * m->cols,
                              .read = forms[m->f.form].read,
                              .ctx = m,
                              .codes = m->kept.read ? &m->kept : NULL,
                              .stored = codes->data,
                              .stored_bytes = codes->bytes};
    e->bytes = (size_t)e->numel * ax_dtype_size(e->dtype);
    return AX_OK;
}

static bool is_side(const struct ax_compressed_formats *formats, const char *name) {
    bool yes = false;
    for (int i = 0; i < formats->n; i++)
        for (const char *const *side = forms[formats->of[i].form].sides; *side && !yes; side++)
            yes = stem_of(name, *side) > 0;
    return yes;
}

/* Scales beside numbers, of which they make codes only while the model runs. */
static enum ax_status check_side(const struct ax_compressed_folder *in,
                                 const struct ax_st_entry *e) {
    const size_t stem = stem_of(e->name, ".weight_scale");
    const struct ax_st_entry *w =
        stem > 0 ? ax_compressed_sibling(in, e->name, stem, ".weight") : NULL;
    if (!w || !ax_dtype_info(w->dtype)->is_float)
        return AX_OK;
    return ax_error(AX_ERR_UNSUPPORTED,
                    "%s: %s has scales, but its numbers are not quantized: they are rounded while "
                    "the model runs (quantization_status: frozen). Save the model compressed "
                    "(llm-compressor: save_compressed=True), or use the original weights.",
                    in->dir, w->name);
}

enum ax_status ax_compressed_open(struct ax_compressed *c, const char *dir,
                                  const struct ax_compressed_formats *formats, int n,
                                  const struct ax_st_entry *const *entries) {
    struct ax_compressed_folder in = {.dir = dir, .n = n};
    *c = (struct ax_compressed){0};
    enum ax_status st;
    AX_TRY(ax_alloc(&c->entries, (size_t)n, sizeof *c->entries));
    AX_TRY_GOTO(ax_alloc(&c->matrices, (size_t)n, sizeof *c->matrices), st, fail);
    AX_TRY_GOTO(ax_alloc(&in.sorted, (size_t)n, sizeof *in.sorted), st, fail);
    for (int i = 0; i < n; i++)
        in.sorted[i] = entries[i];
    if (n > 0)
        qsort(in.sorted, (size_t)n, sizeof *in.sorted, by_name);
    for (int i = 0; i < n; i++) {
        const size_t stem = stem_of_codes(formats, &in, entries[i]);
        if (stem > 0)
            AX_TRY_GOTO(add_matrix(c, formats, &in, entries[i], stem), st, fail);
        else if (is_side(formats, entries[i]->name))
            AX_TRY_GOTO(check_side(&in, entries[i]), st, fail);
        else
            c->entries[c->n++] = *entries[i];
    }
    ax_st_sort(c->entries, c->n);
    ax_free(in.sorted);
    return AX_OK;
fail:
    ax_free(in.sorted);
    ax_compressed_close(c);
    return st;
}

void ax_compressed_close(struct ax_compressed *c) {
    for (int i = 0; i < c->n_matrices; i++)
        ax_free(c->matrices[i].name);
    ax_free(c->matrices);
    ax_free(c->entries);
    *c = (struct ax_compressed){0};
}
