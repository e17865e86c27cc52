/* Two tensors for each adapted matrix: NAME.lora_a [r][in] and NAME.lora_b [out][r], with rows of B
 * in the file's order. */
#include "model/convert/lora_to_gguf.h"

#include <stdio.h>
#include <string.h>

#include "base/threads.h"
#include "ckpt/gguf/names.h"
#include "ckpt/gguf/write.h"
#include "ckpt/hf/peft.h"
#include "model/lora/match.h"
#include "model/arch/gguf_describe.h"

struct piece {
    char name[112];
    const struct ax_st_entry *source;
    int64_t cols;
    struct ax_gguf_order order, inner; /* of rows, of columns */
    float factor;
};

struct lora_to_gguf {
    struct ax_to_gguf *c;
    struct ax_peft peft;
    struct ax_gguf_described described;
    struct ax_gguf_keys keys;
    struct piece *pieces;           /* [weights.n] */
    struct ax_gguf_output *tensors; /* the same */
    bool *used;                     /* the same: by index of the folder's tensor */
    int n;
};

/* Rows are asked for by whole runs where they are permuted, so that each stays in its range. */
static enum ax_status fill(void *ctx, int64_t first, int64_t n, float *out) {
    const struct piece *p = ctx;
    for (int64_t r = first; r < first + n; r++) {
        float *row = out + (ax_gguf_row(&p->order, r) - first) * p->cols;
        for (int64_t c = 0, m; c < p->cols; c += m) {
            m = ax_gguf_rows_in_order(&p->inner, c, p->cols - c);
            AX_TRY(
                ax_st_read(p->source, r * p->cols + c, m, AX_F32, row + ax_gguf_row(&p->inner, c)));
        }
        for (int64_t k = 0; p->factor != 1 && k < p->cols; k++)
            row[k] *= p->factor;
    }
    return AX_OK;
}

/* --- the list --- */

/* The folder's tensor of a module; bare models lack "model." in its name. */
static const struct ax_st_entry *find(struct lora_to_gguf *w, const char *module,
                                      const char *what) {
    const struct ax_safetensors *f = &w->peft.weights;
    const struct ax_st_entry *e = NULL;
    for (int bare = 0; bare < 2 && !e; bare++) {
        char name[256];
        const bool drop = bare && strncmp(module, "model.", 6) == 0;
        snprintf(name, sizeof name, AX_PEFT_PREFIX "%s.%s", drop ? module + 6 : module, what);
        e = ax_safetensors_find(f, name);
    }
    if (e)
        w->used[e - f->entries] = true;
    return e;
}

static enum ax_status check_shape(const struct lora_to_gguf *w, const struct ax_st_entry *e,
                                  int64_t rows, int64_t cols) {
    if (e->ndim == 2 && e->shape[0] == rows && e->shape[1] == cols &&
        ax_dtype_info(e->dtype)->is_float)
        return AX_OK;
    return ax_error(AX_ERR_DATA,
                    "%s: %s is not [%lld, %lld]: the adapter is for another model (its config says "
                    "%s). Give its base with --base.",
                    w->peft.dir, e->name, (long long)rows, (long long)cols,
                    w->peft.config.base ? w->peft.config.base : "none");
}

static void add_tensor(struct lora_to_gguf *w, const struct ax_gguf_name *name, const char *end,
                       const struct piece *piece) {
    struct piece *p = &w->pieces[w->n];
    const struct ax_st_entry *e = piece->source;
    *p = *piece;
    snprintf(p->name, sizeof p->name, "%s.%s", name->gguf, end);
    w->tensors[w->n++] = (struct ax_gguf_output){.name = p->name,
                                                 .type = ax_block_type_find(w->c->quant->type),
                                                 .ndim = 2,
                                                 .shape = {e->shape[0], e->shape[1]},
                                                 .run = ax_gguf_run(&p->order, e->shape[0]),
                                                 .fill = fill,
                                                 .ctx = p};
    w->c->weights += e->numel;
}

static enum ax_status visit(void *ctx, const struct ax_gguf_name *n) {
    struct lora_to_gguf *w = ctx;
    const struct ax_peft_config *config = &w->peft.config;
    struct ax_adapter_target target;
    char module[112];
    ax_adapter_module_of(n->hf, module, sizeof module);
    const bool part = n->copy || n->view.is || n->hf_ndim != 2 || n->hf_shape[0] != n->shape[0];
    if (n->ndim != 2 || n->experts > 0 || part || n->factor != 1 || n->bands.rows[0] > 0)
        return AX_OK;
    const struct ax_st_entry *a = find(w, module, "lora_A.weight");
    const struct ax_st_entry *b = find(w, module, "lora_B.weight");
    if (!a && !b)
        return AX_OK;
    AX_TRY(ax_adapter_match(config, module, (int)n->layer, &target));
    if (!a || !b || !target.on)
        return ax_error(AX_ERR_DATA, "%s: the tensors of %s do not match " AX_PEFT_CONFIG,
                        w->peft.dir, module);
    AX_TRY(check_shape(w, a, target.r, n->shape[1]));
    AX_TRY(check_shape(w, b, n->shape[0], target.r));
    const double factor = target.scale * (double)target.r / config->alpha;
    add_tensor(w, n, "lora_a",
               &(struct piece){.source = a, .cols = n->shape[1], .inner = n->cols, .factor = 1});
    add_tensor(
        w, n, "lora_b",
        &(struct piece){.source = b, .cols = target.r, .order = n->rows, .factor = (float)factor});
    return AX_OK;
}

static enum ax_status list_tensors(struct lora_to_gguf *w) {
    const struct ax_safetensors *f = &w->peft.weights;
    AX_TRY(ax_alloc(&w->pieces, (size_t)f->n, sizeof *w->pieces));
    AX_TRY(ax_alloc(&w->tensors, (size_t)f->n, sizeof *w->tensors));
    AX_TRY(ax_alloc(&w->used, (size_t)f->n, sizeof *w->used));
    AX_TRY(ax_gguf_each_tensor(&w->described.model, visit, w));
    for (int i = 0; i < f->n; i++)
        if (!w->used[i])
            return ax_error(AX_ERR_UNSUPPORTED,
                            "%s: tensor %s has no place in a GGUF adapter of a %s model. Merge the "
                            "adapter instead: `axtrain merge BASE %s FILE.gguf --to gguf`.",
                            w->peft.dir, f->entries[i].name, w->described.model.kind->arch,
                            w->peft.dir);
    if (w->n == 0)
        return ax_error(AX_ERR_DATA, "%s: contains no adapter", w->peft.dir);
    return AX_OK;
}

/* --- all --- */

static enum ax_status pick_quant(struct lora_to_gguf *w) {
    const struct ax_safetensors *f = &w->peft.weights;
    const enum ax_dtype dtype = f->n > 0 ? f->entries[0].dtype : AX_F32;
    if (!w->c->quant)
        w->c->quant = ax_gguf_quant_find(dtype == AX_BF16  ? "bf16"
                                         : dtype == AX_F16 ? "f16"
                                                           : "f32");
    if (ax_block_type_find(w->c->quant->type)->elements == 1)
        return AX_OK;
    return ax_error(AX_ERR_CONFIG, "--quant: %s is for models; an adapter is f32, f16 or bf16",
                    w->c->quant->name);
}

static enum ax_status put_keys(struct lora_to_gguf *w) {
    const char *arch = w->described.model.kind->arch;
    AX_TRY(ax_gguf_put_string(&w->keys, "general.architecture", arch, strlen(arch)));
    AX_TRY(ax_gguf_put_string(&w->keys, "general.type", "adapter", 7));
    AX_TRY(ax_to_gguf_put_name(&w->keys, w->c->dst));
    AX_TRY(ax_gguf_put_u32(&w->keys, "general.file_type", w->c->quant->file_type));
    AX_TRY(ax_gguf_put_string(&w->keys, "adapter.type", "lora", 4));
    return ax_gguf_put_f32(&w->keys, "adapter.lora.alpha", (float)w->peft.config.alpha);
}

static enum ax_status run(struct lora_to_gguf *w, const struct ax_arch *base) {
    struct ax_to_gguf *c = w->c;
    AX_TRY(ax_peft_open(&w->peft, c->src));
    if (w->peft.config.dora)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "%s: the magnitudes of DoRA have no place in a GGUF adapter. Merge it "
                        "instead: `axtrain merge BASE %s FILE.gguf --to gguf`.",
                        c->src, c->src);
    if (!(w->peft.config.alpha > 0))
        return ax_error(AX_ERR_UNSUPPORTED, "%s: lora_alpha: %g; llama.cpp needs a positive one",
                        c->src, w->peft.config.alpha);
    AX_TRY(pick_quant(w));
    AX_TRY(ax_gguf_describe(&w->described, base, c->src));
    AX_TRY(list_tensors(w));
    AX_TRY(put_keys(w));
    const struct ax_gguf_save save = {.path = c->dst,
                                      .keys = &w->keys,
                                      .n = w->n,
                                      .tensors = w->tensors,
                                      .threads = c->threads > 0 ? c->threads : ax_cpu_count()};
    AX_TRY(ax_gguf_file_bytes(&save, &c->bytes));
    AX_TRY(ax_gguf_write(&save));
    c->model_type = "lora";
    c->tensors = w->n;
    return AX_OK;
}

enum ax_status ax_convert_lora_to_gguf(struct ax_to_gguf *c, const struct ax_arch *base) {
    struct lora_to_gguf w = {.c = c};
    const enum ax_status st = run(&w, base);
    ax_buf_free(&w.keys.bytes);
    ax_free(w.used);
    ax_free(w.tensors);
    ax_free(w.pieces);
    ax_peft_close(&w.peft);
    return st;
}
