/* Writes each parameter as one output tensor, converted piecewise while the file is written. */
#include "model/save.h"

#include <string.h>

#include "base/mem.h"
#include "model/adapter/load.h"

enum ax_status ax_model_save(const struct ax_model *m, const struct ax_model_save *save) {
    struct ax_st_output *tensors = NULL;
    struct ax_st_source *sources = NULL;
    const size_t n = (size_t)m->n_params;
    AX_ASSERT(!m->adapter); /* see ax_adapter_save */
    enum ax_status st;
    AX_TRY_GOTO(ax_alloc(&tensors, n, sizeof *tensors), st, done);
    AX_TRY_GOTO(ax_alloc(&sources, n, sizeof *sources), st, done);
    for (int i = 0; i < m->n_params; i++) {
        const struct ax_param *p = &m->params[i];
        const enum ax_dtype dtype = p->buffer ? AX_F32 : save->dtype;
        sources[i] =
            (struct ax_st_source){.value = ax_model_value(m, p), .dtype = dtype, .q = m->rt->q};
        tensors[i] = (struct ax_st_output){.name = p->name,
                                           .dtype = dtype,
                                           .ndim = p->ndim,
                                           .fill = ax_st_fill,
                                           .ctx = &sources[i]};
        memcpy(tensors[i].shape, p->shape, (size_t)p->ndim * sizeof *p->shape);
    }
    const struct ax_hf_save hf = {.dir = save->dir,
                                  .base_dir = save->base_dir,
                                  .config = save->config,
                                  .dtype = save->dtype,
                                  .max_shard_bytes = save->max_shard_bytes,
                                  .n = m->n_params,
                                  .tensors = tensors};
    AX_TRY_GOTO(ax_hf_write(&hf), st, done);
done:
    ax_free(sources);
    ax_free(tensors);
    return st;
}
