/* Resolves `base_model:` (or --model) to files. */
#ifndef AX_MODEL_CONVERT_BASE_MODEL_H
#define AX_MODEL_CONVERT_BASE_MODEL_H

#include "base/lock.h"
#include "base/text/words.h"
#include "model/arch/arch.h"

enum ax_base_model_kind {
    AX_BASE_MODEL_FOLDER, /* a Hugging Face folder */
    AX_BASE_MODEL_GGUF    /* a GGUF file */
};

/* AX_ERR_UNSUPPORTED for a well-known hub id of a family that is not supported; needs no
 * network. */
enum ax_status ax_base_model_check_name(const char *name);

struct ax_base_model {
    enum ax_base_model_kind kind;
    char *path; /* owned: ax_base_model_free */
};

/* `name` is, in this order: a folder, a GGUF file, or a hub id ("org/name") at `revision` (branch,
 * tag or commit; NULL = main). Uses what is in the local Hugging Face cache and downloads the rest
 * into it (ckpt/hub/hub.h). AX_ERR_CONFIG if there is no such path, the hub refused, or the network
 * may not be used. */
enum ax_status ax_base_model_find(struct ax_base_model *m, const char *name, const char *revision);
/* The same, but without the weights: a download skips them. */
enum ax_status ax_base_model_find_tokenizer(struct ax_base_model *m, const char *name,
                                            const char *revision);
void ax_base_model_free(struct ax_base_model *m); /* safe on a zeroed one */

/* The model's architecture, from config.json or the GGUF file's metadata, with `fields` replacing
 * members (ax_arch_override). Needs no weights; converts and downloads none. */
enum ax_status ax_base_model_arch(struct ax_arch *arch, const char *name, const char *revision,
                                  json_t *fields);

/* If *model is a folder with an adapter, and not with a model: *base gets the name of its base, which *model
 * is from then on, and the folder becomes the first of the adapters. Else *base is NULL. AX_ERR_CONFIG if
 * that names no base, or one that does not exist. Free *base with ax_free when *model is not used any more. */
enum ax_status ax_base_model_of_adapter(char **base, const char **model,
                                        struct ax_arg_list *adapters);

/* The folder for files that can be created again: XDG_CACHE_HOME/axtrain or ~/.cache/axtrain. */
enum ax_status ax_base_model_cache(char **out);

/* The model as a folder. For a GGUF file, creates a small one in `cache_dir` (NULL: the program's
 * cache) with config, tokenizer, and a link to the file, whose weights are read in place; its name
 * depends on the file's name, path, size and date, so it is reused next time. While `use` is held
 * (ax_lock_drop), `axtrain cache clear` does not remove it. Free *folder with ax_free. */
enum ax_status ax_base_model_folder(char **folder, struct ax_lock *use, const char *name,
                                    const char *revision, const char *cache_dir);

#endif
