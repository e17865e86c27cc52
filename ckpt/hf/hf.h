/* Hugging Face model folders: config.json with model.safetensors, shards with an index, or
 * model.gguf.
 *
 * Shard names in the index must be plain file names. Every tensor in the index must be in the shard
 * it names, and no tensor may be in two. Quantized matrices (compressed.h) are dequantized when
 * they are read. Of a model with a vision tower the text model is read (wrapped.h).
 *
 * Reading order: safetensors.c, index.c, mxfp4.c, config.c, hf.c (reading a folder);
 * safetensors_write.c, write.c (writing one); ends.c, compressed.c, wrapped.c, kept.c, checksums.c,
 * live.c, delta.c; peft.c, peft_config.c, peft_write.c (adapters). */
#ifndef AX_CKPT_HF_HF_H
#define AX_CKPT_HF_HF_H

#include "base/text/json.h"
#include "ckpt/gguf/model.h"
#include "ckpt/hf/compressed.h"
#include "ckpt/hf/mxfp4.h"
#include "ckpt/hf/safetensors.h"
#include "ckpt/hf/wrapped.h"
#include "parallel/fabric/team.h"

/* Weights in a GGUF file, dequantized when they are read; with the names, order and values that
 * ax_convert_gguf_to_hf would write. */
struct ax_hf_gguf {
    struct ax_gguf file;
    struct ax_gguf_model model;
    struct ax_gguf_weights weights;
    struct ax_st_entry *entries; /* [weights.n] */
};

struct ax_hf {
    char *dir;
    int n_files;
    struct ax_safetensors *files;
    int n_entries;
    /* replace the files' entries; NULL: the files' entries count. They belong to one of the members
     * below */
    const struct ax_st_entry *entries;
    struct ax_st_entry *renamed;
    struct ax_hf_gguf *gguf;
    struct ax_hf_mxfp4 *mxfp4;
    struct ax_compressed *compressed;
    struct ax_hf_wrapped *wrapped; /* for a text model inside another model */
};

#define AX_HF_GGUF "model.gguf" /* in a folder: a GGUF file or a link to one */

/* A file in the folder of a process reward model, {"step_separator": TEXT}: the text that training
 * put after each step. */
#define AX_STEPS_FILE     "step_separator.json"
#define AX_STEP_SEPARATOR "\n" /* the default */

/* Opens the weights of a folder (or one .safetensors file). If missing, the error lists the names
 * that were tried. pytorch_model.bin is rejected with the remedy. */
enum ax_status ax_hf_open(struct ax_hf *hf, const char *dir);
void ax_hf_close(struct ax_hf *hf);
/* Finds a tensor; NULL if no shard has it. Also finds tensors of folders written from a bare model
 * ("layers.0…"): tries the name without the prefix "model.". */
const struct ax_st_entry *ax_hf_find(const struct ax_hf *hf, const char *name);
/* *yes: the folder is of a model that contains a text model (wrapped.h). */
enum ax_status ax_hf_is_wrapper(const char *dir, bool *yes);
int ax_hf_count(const struct ax_hf *hf);
/* *yes: the folder has a head whose values differ from the embedding's. The weights decide,
 * whatever config.json says about tying. A folder that has only a head, under its name, as
 * safetensors.torch.save_model writes tied weights, is opened with the head as the embedding. */
enum ax_status ax_hf_unties(const struct ax_hf *hf, bool *yes);
const struct ax_st_entry *ax_hf_at(const struct ax_hf *hf, int i);

/* A side file with new contents. */
struct ax_hf_text {
    const char *name, *text;
};

struct ax_peft_config;

/* A folder to write: written under another name and renamed, so it appears complete. */
struct ax_hf_save {
    const char *dir;
    const char *base_dir; /* its config.json is edited, and its tokenizer, generation_config.json
                             and chat template files are copied; NULL = only `config` */
    const json_t *config; /* keys to set over the base's config.json (dtype under the key
                             that file uses; those of a text model in its part of the file); the
                             full config if base_dir is NULL */
    /* the tokenizer's EOS, added to eos_token_id of config.json and generation_config.json;
     * NULL, or −1 = these are left as they are */
    const int32_t *eos;
    const char *tokenizer_dir; /* source of the tokenizer's files; NULL = base_dir */
    int n_texts;               /* files that replace the base's, such as a chat template */
    const struct ax_hf_text *texts;
    const struct ax_peft_config *adapter; /* not NULL: a PEFT folder. `tensors` are the adapter's;
                                             no config.json, only tokenizer side files */
    enum ax_dtype dtype;                  /* recorded as dtype / torch_dtype */
    int64_t max_shard_bytes; /* 0 = 5 GB as in transformers; larger: shards and index */
    int n;
    const struct ax_st_output *tensors;
    /* layers whose tensors are copied from base_dir unchanged (kept.h); equal = none */
    int kept_first, kept_end;
    const char *gguf; /* if not NULL, a link to this GGUF file instead of tensors */
    /* receives the checksums of all files; or NULL. With a team, only of the bytes that this
     * rank wrote: see ax_checksums_merge */
    struct ax_sum_list *sums;
    struct ax_team *team; /* the ranks that write into the folder together; or NULL */
};
enum ax_status ax_hf_write(const struct ax_hf_save *save);
/* The same, into an existing folder that the caller commits (checkpoints add state/ to it). With a
 * team, each rank writes its parts of the tensors, and rank 0 everything else; the status is this
 * rank's own. */
enum ax_status ax_hf_write_into(const char *tmp_dir, const struct ax_hf_save *save);

#endif
