/* Hugging Face model folders: config.json beside model.safetensors, or shards with an index.
 *
 * Shard names in the index must be plain file names. Every tensor of the index must be in the shard
 * it names, and no tensor may be in two.
 *
 * Reading order: safetensors.c, index.c, hf.c (reading a folder), safetensors_write.c, write.c
 * (writing one), checksums.c, concat.c; peft.c, peft_config.c, peft_write.c (adapters). */
#ifndef AX_CKPT_HF_HF_H
#define AX_CKPT_HF_HF_H

#include "base/json.h"
#include "ckpt/hf/safetensors.h"

struct ax_hf {
    char *dir;
    int n_files;
    struct ax_safetensors *files;
};

/* Opens the weights of a folder (or one .safetensors file). Missing: the error says which names
 * were looked for. pytorch_model.bin is refused with the remedy. */
enum ax_status ax_hf_open(struct ax_hf *hf, const char *dir);
void ax_hf_close(struct ax_hf *hf);
/* NULL when no shard has it. Folders written from a bare model ("layers.0…" without the "model."
 * prefix) are found too: the prefix is tried without. */
const struct ax_st_entry *ax_hf_find(const struct ax_hf *hf, const char *name);
int ax_hf_count(const struct ax_hf *hf);
const struct ax_st_entry *ax_hf_at(const struct ax_hf *hf, int i);

/* A side file with contents of its own. */
struct ax_hf_text {
    const char *name, *text;
};

struct ax_peft_config;

/* A folder to be: written beside and renamed, so that it appears whole or not at all. */
struct ax_hf_save {
    const char *dir;
    const char *base_dir; /* its config.json is edited, and its tokenizer, generation_config.json
                             and chat template files are copied; NULL = `config` is all there is */
    const json_t *config; /* keys to set over the base's config.json (dtype goes under the spelling
                             that file uses); the whole config where base_dir is NULL */
    const char *tokenizer_dir; /* the tokenizer's files come from here; NULL = base_dir */
    int n_texts;               /* files that are not the base's: a chat template … */
    const struct ax_hf_text *texts;
    const struct ax_peft_config *adapter; /* not NULL: a PEFT folder. `tensors` are the adapter's;
                                             no config.json, of side files the tokenizer's only */
    enum ax_dtype dtype;                  /* recorded as dtype / torch_dtype */
    int64_t max_shard_bytes; /* 0 = 5 GB as transformers; more makes shards and an index */
    int n;
    const struct ax_st_output *tensors;
    struct ax_sum_list *sums; /* gets the checksums of all files; or NULL */
};
enum ax_status ax_hf_write(const struct ax_hf_save *save);
/* The same, into a folder that exists and that the caller commits (checkpoints add state/ to it).
 */
enum ax_status ax_hf_write_into(const char *tmp_dir, const struct ax_hf_save *save);

#endif
