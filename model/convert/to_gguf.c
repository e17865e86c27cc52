/* Config and tokenizer become keys, the folder's tensors those of the file. */
#include "model/convert/to_gguf.h"

#include <string.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/threads.h"
#include "ckpt/gguf/outputs.h"
#include "ckpt/hf/hf.h"
#include "data/text/gguf/tokens.h"
#include "model/arch/classifier.h"
#include "model/arch/gguf_describe.h"

struct to_gguf {
    struct ax_to_gguf *c;
    struct ax_arch arch;
    struct ax_hf hf;
    struct ax_st_output *tensors; /* tensors of the folder */
    struct ax_gguf_described described;
    struct ax_gguf_keys keys;
    struct ax_gguf_outputs outputs;
};

/* Copies elements of a tensor in the folder, and drops the pages read from memory. */
static enum ax_status fill(void *ctx, int64_t first, int64_t n, void *out) {
    const struct ax_st_entry *e = ctx;
    AX_TRY(ax_st_read(e, first, n, e->dtype, out));
    ax_st_drop(e, first, n);
    return AX_OK;
}

static enum ax_status list_tensors(struct to_gguf *w) {
    const int n = ax_hf_count(&w->hf);
    AX_TRY(ax_alloc(&w->tensors, (size_t)n, sizeof *w->tensors));
    for (int i = 0; i < n; i++) {
        const struct ax_st_entry *e = ax_hf_at(&w->hf, i);
        w->tensors[i] = (struct ax_st_output){.name = e->name,
                                              .dtype = e->dtype,
                                              .ndim = e->ndim,
                                              .fill = fill,
                                              .ctx = (void *)(uintptr_t)e};
        memcpy(w->tensors[i].shape, e->shape, sizeof e->shape);
    }
    return AX_OK;
}

/* --- keys --- */

/* "models/my-model.Q8_0.gguf" → "my-model.Q8_0" */
enum ax_status ax_to_gguf_put_name(struct ax_gguf_keys *keys, const char *dst) {
    const char *slash = strrchr(dst, '/'), *name = slash ? slash + 1 : dst;
    const size_t n = strlen(name);
    const size_t tail = n > 5 && strcmp(name + n - 5, ".gguf") == 0 ? 5 : 0;
    return ax_gguf_put_string(keys, "general.name", name, n - tail);
}

static enum ax_status put_keys(struct to_gguf *w) {
    const struct ax_to_gguf *c = w->c;
    const char *arch = w->described.model.kind->arch;
    AX_TRY(ax_gguf_put_string(&w->keys, "general.architecture", arch, strlen(arch)));
    AX_TRY(ax_gguf_put_string(&w->keys, "general.type", "model", 5));
    AX_TRY(ax_to_gguf_put_name(&w->keys, c->dst));
    AX_TRY(ax_gguf_put_u32(&w->keys, "general.file_type", c->quant->file_type));
    AX_TRY(ax_gguf_put_u32(&w->keys, "general.quantization_version", 2));
    AX_TRY(ax_gguf_put_sizes(&w->described, &w->arch, &w->keys));
    return ax_gguf_put_tokenizer(&w->keys, c->src, w->arch.vocab_size);
}

/* --- all --- */

static void pick_quant(struct to_gguf *w) {
    const enum ax_dtype dtype = ax_hf_count(&w->hf) > 0 ? ax_hf_at(&w->hf, 0)->dtype : AX_F32;
    if (!w->c->quant)
        w->c->quant = ax_gguf_quant_find(dtype == AX_BF16  ? "bf16"
                                         : dtype == AX_F16 ? "f16"
                                                           : "f32");
}

static enum ax_status run(struct to_gguf *w) {
    struct ax_to_gguf *c = w->c;
    AX_TRY(ax_arch_load(&w->arch, c->src));
    AX_TRY(ax_classifier_refuse(&w->arch, c->src, "be written as GGUF"));
    AX_TRY(ax_hf_open(&w->hf, c->src));
    pick_quant(w);
    AX_TRY(ax_gguf_describe(&w->described, &w->arch, c->src));
    AX_TRY(put_keys(w));
    AX_TRY(list_tensors(w));
    const struct ax_gguf_outputs_from from = {.where = c->src,
                                              .n = ax_hf_count(&w->hf),
                                              .tensors = w->tensors,
                                              .n_factors = w->described.n_factors,
                                              .factors = w->described.factors};
    AX_TRY(ax_gguf_outputs_create(&w->outputs, &w->described.model, c->quant, &from));
    const struct ax_gguf_save save = {.path = c->dst,
                                      .keys = &w->keys,
                                      .n = w->outputs.n,
                                      .tensors = w->outputs.tensors,
                                      .threads = c->threads > 0 ? c->threads : ax_cpu_count()};
    AX_TRY(ax_gguf_file_bytes(&save, &c->bytes));
    AX_TRY(ax_gguf_write(&save));
    c->model_type = w->arch.family->model_type;
    c->tensors = w->outputs.n;
    c->weights = w->outputs.numel;
    return AX_OK;
}

enum ax_status ax_convert_to_gguf(struct ax_to_gguf *c) {
    struct to_gguf w = {.c = c};
    const enum ax_status st = run(&w);
    ax_gguf_outputs_free(&w.outputs);
    ax_buf_free(&w.keys.bytes);
    ax_free(w.tensors);
    ax_hf_close(&w.hf);
    ax_arch_free(&w.arch);
    return st;
}
