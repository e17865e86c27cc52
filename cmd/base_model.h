/* Which files `base_model:` (or --model) means. */
#ifndef AX_CMD_BASE_MODEL_H
#define AX_CMD_BASE_MODEL_H

#include "base/status.h"

enum ax_base_model_kind {
    AX_BASE_MODEL_FOLDER, /* a Hugging Face folder */
    AX_BASE_MODEL_GGUF    /* a GGUF file */
};

struct ax_base_model {
    enum ax_base_model_kind kind;
    char *path; /* owned: ax_base_model_free */
};

/* `name` is, in this order: a folder, a GGUF file, or a hub id ("org/name") of which the local
 * Hugging Face cache has `revision` (branch, tag or commit; NULL = main). The cache is
 * HF_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub. Nothing is
 * downloaded: AX_ERR_CONFIG names what to download, or says that there is no such path. */
enum ax_status ax_base_model_find(struct ax_base_model *m, const char *name, const char *revision);
void ax_base_model_free(struct ax_base_model *m); /* safe on a zeroed one */

/* The same, as a folder: a GGUF file is converted (ax_convert_gguf_to_hf, exact dtype) into a
 * folder in `cache_dir`, named after the file's name, path, size and date, and taken from there the
 * next time. Free *folder with ax_free. */
enum ax_status ax_base_model_folder(char **folder, const char *name, const char *revision,
                                    const char *cache_dir);

#endif
