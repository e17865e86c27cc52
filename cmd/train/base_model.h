/* Which files `base_model:` (or --model) means. */
#ifndef AX_CMD_TRAIN_BASE_MODEL_H
#define AX_CMD_TRAIN_BASE_MODEL_H

#include "base/status.h"

enum ax_base_model_kind {
    AX_BASE_MODEL_FOLDER, /* a Hugging Face folder */
    AX_BASE_MODEL_GGUF    /* a GGUF file */
};

struct ax_base_model {
    enum ax_base_model_kind kind;
    char *path; /* owned: ax_base_model_free */
};

/* `name` is, in this order: a folder, a GGUF file, or a hub id ("org/name") at `revision` (branch,
 * tag or commit; NULL = main). What the local Hugging Face cache has of it is used; what is missing
 * is downloaded into it (ckpt/hub/hub.h). AX_ERR_CONFIG says that there is no such path, what the
 * hub refused, or that the network may not be asked. */
enum ax_status ax_base_model_find(struct ax_base_model *m, const char *name, const char *revision);
/* The same where weights are not needed: a download leaves them out. */
enum ax_status ax_base_model_find_tokenizer(struct ax_base_model *m, const char *name,
                                            const char *revision);
void ax_base_model_free(struct ax_base_model *m); /* safe on a zeroed one */

/* The same, as a folder: a GGUF file is converted (ax_convert_gguf_to_hf, exact dtype) into a
 * folder in `cache_dir`, named after the file's name, path, size and date, and taken from there the
 * next time. Free *folder with ax_free. */
enum ax_status ax_base_model_folder(char **folder, const char *name, const char *revision,
                                    const char *cache_dir);

#endif
