#include "model/quantize/tensors.h"

#include <string.h>

#include "base/mem.h"

enum { CODES, SCALES, SHAPE, GLOBAL };

/* Elements [first, first + n) of the codes: integers of pack-quantized are words of several. */
static void put_codes(const struct ax_quantized_tensors *t, int64_t first, int64_t n, void *out) {
    const struct ax_compressed_format *f = t->format;
    const bool packed = f->form == AX_FORM_PACKED || f->form == AX_FORM_NVFP4;
    const int64_t per = !packed ? 1 : (f->form == AX_FORM_PACKED ? 32 : 8) / f->bits;
    ax_compressed_pack(f, t->m.codes + first * per, n * per, out);
}

static enum ax_status fill(void *ctx, int64_t first, int64_t n, void *out) {
    const struct ax_quantized_tensor *p = ctx;
    struct ax_quantized_tensors *t = p->of;
    struct ax_quantized_matrix *m = &t->m;
    if (!m->x)
        AX_TRY(t->make(t));
    const bool bytes = ax_quant_info(m->format.kind)->scale == AX_U8;
    const int64_t shape[] = {m->rows, m->cols};
    const float global = 1 / m->outer;
    int64_t count = 1;
    switch (p->what) {
    case CODES:
        put_codes(t, first, n, out);
        return AX_OK;
    case SCALES:
        memcpy(out, bytes ? (const void *)(m->bytes + first) : (const void *)(m->scale + first),
               (size_t)n * (bytes ? 1 : sizeof *m->scale));
        count = m->format.block == AX_BLOCK_TENSOR ? 1 : m->e->numel / m->block;
        break;
    case SHAPE:
        memcpy(out, shape + first, (size_t)n * sizeof *shape);
        count = 2;
        break;
    case GLOBAL:
        memcpy(out, &global, sizeof global);
        break;
    }
    if (p == &t->list[t->n - 1] && first + n == count)
        ax_quantized_matrix_end(m);
    return AX_OK;
}

struct tensor {
    int what;
    const char *suffix;
    enum ax_dtype dtype;
    bool e4m3;
    int ndim;
    int64_t shape[2];
};

/* In the order in which they are written: codes never last. */
static int list_of(const struct ax_quantized_tensors *t, struct tensor *list) {
    const struct ax_compressed_format *f = t->format;
    const int64_t rows = t->m.rows, cols = t->m.cols, blocks = cols / t->m.block;
    const bool four = f->form == AX_FORM_NVFP4;
    int n = 0;
    if (f->form == AX_FORM_PACKED)
        list[n++] =
            (struct tensor){CODES, ".weight_packed", AX_I32, false, 2, {rows, cols * f->bits / 32}};
    else if (four)
        list[n++] = (struct tensor){CODES, ".weight_packed", AX_U8, false, 2, {rows, cols / 2}};
    else
        list[n++] = (struct tensor){
            CODES, ".weight",   f->form == AX_FORM_INT8 ? AX_I8 : AX_U8, f->form == AX_FORM_FLOAT,
            2,     {rows, cols}};
    if (f->block == AX_BLOCK_TENSOR)
        list[n++] = (struct tensor){SCALES, ".weight_scale", AX_F32, false, 1, {1}};
    else
        list[n++] = (struct tensor){SCALES, ".weight_scale", four ? AX_U8 : AX_F32, four,
                                    2,      {rows, blocks}};
    if (f->form == AX_FORM_PACKED)
        list[n++] = (struct tensor){SHAPE, ".weight_shape", AX_I64, false, 1, {2}};
    if (four)
        list[n++] = (struct tensor){GLOBAL, ".weight_global_scale", AX_F32, false, 1, {1}};
    return n;
}

enum ax_status ax_quantized_tensors_add(struct ax_quantized_tensors *t, const char *module,
                                        struct ax_st_output *outputs) {
    struct tensor list[AX_QUANTIZED_TENSORS];
    const int n = list_of(t, list);
    for (int i = 0; i < n; i++) {
        struct ax_quantized_tensor *p = &t->list[i];
        *p = (struct ax_quantized_tensor){.of = t, .what = list[i].what};
        AX_TRY(ax_sprintf(&p->name, "%s%s", module, list[i].suffix));
        t->n++;
        outputs[i] = (struct ax_st_output){.name = p->name,
                                           .dtype = list[i].dtype,
                                           .e4m3 = list[i].e4m3,
                                           .ndim = list[i].ndim,
                                           .shape = {list[i].shape[0], list[i].shape[1]},
                                           .fill = fill,
                                           .ctx = p};
    }
    return AX_OK;
}

void ax_quantized_tensors_free(struct ax_quantized_tensors *t) {
    ax_quantized_matrix_end(&t->m);
    for (int i = 0; i < t->n; i++)
        ax_free(t->list[i].name);
    t->n = 0;
}
