/* Writing a model's parameters as a Hugging Face folder. */
#ifndef AX_MODEL_SAVE_H
#define AX_MODEL_SAVE_H

#include "model/model.h"

struct ax_model_save {
    /* base_dir: the folder whose config.json and tokenizer are copied; NULL: `config` is written */
    const char *dir, *base_dir;
    const json_t *config;    /* config to write if base_dir is NULL */
    enum ax_dtype dtype;     /* dtype of the tensors in the file */
    int64_t max_shard_bytes; /* 0 = 5 GB */
};
/* Atomic: writes the complete folder or nothing. Saves what the model has, and nothing of the base's weights; masters
 * where they exist (one rank). */
enum ax_status ax_model_save(const struct ax_model *m, const struct ax_model_save *save);

#endif
