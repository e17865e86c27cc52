#include "model/convert/from_folder.h"

#include "base/io.h"
#include "base/mem.h"
#include "ckpt/hf/hf.h"
#include "model/convert/merged.h"

/* Lists the tensors as they are written: as after merging, without an adapter. */
static enum ax_status list_tensors(struct ax_convert *c, const struct ax_arch *arch,
                                   const struct ax_hf *hf, struct ax_merged *from,
                                   struct ax_st_output *to) {
    for (int i = 0; i < c->tensors; i++) {
        AX_TRY(ax_merged_open(&from[i], arch, ax_hf_at(hf, i), NULL, c->written));
        to[i] = ax_merged_output(&from[i]);
        c->weights += ax_hf_at(hf, i)->numel;
    }
    return AX_OK;
}

static enum ax_status write_folder(struct ax_convert *c, const struct ax_arch *arch,
                                   const struct ax_hf *hf) {
    struct ax_merged *from = NULL;
    struct ax_st_output *to = NULL;
    enum ax_status st;
    c->tensors = ax_hf_count(hf);
    AX_TRY_GOTO(ax_alloc(&from, (size_t)c->tensors, sizeof *from), st, done);
    AX_TRY_GOTO(ax_alloc(&to, (size_t)c->tensors, sizeof *to), st, done);
    AX_TRY_GOTO(list_tensors(c, arch, hf, from, to), st, done);
    st = ax_hf_write(&(struct ax_hf_save){
        .dir = c->dst, .base_dir = hf->dir, .dtype = c->written, .n = c->tensors, .tensors = to});
done:
    ax_free(to);
    ax_free(from);
    return st;
}

enum ax_status ax_convert_folder_to_hf(struct ax_convert *c) {
    struct ax_arch arch;
    struct ax_hf hf = {0};
    AX_TRY(ax_folder_check_new(c->dst));
    AX_TRY(ax_arch_load(&arch, c->src));
    enum ax_status st;
    c->written = arch.dtype;
    c->model_type = arch.family->model_type;
    if (c->dtype)
        AX_TRY_GOTO(ax_convert_dtype(c->dtype, &c->written), st, done);
    AX_TRY_GOTO(ax_hf_open(&hf, c->src), st, done);
    st = write_folder(c, &arch, &hf);
done:
    ax_hf_close(&hf);
    ax_arch_free(&arch);
    return st;
}
