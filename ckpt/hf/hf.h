/* Hugging Face model folders: config.json with model.safetensors, shards with an index, or
 * model.gguf.
 *
 * Shard names in the index must be plain file names. Every tensor in the index must be in the shard
 * it names, and no tensor may be in two. Quantized matrices (compressed.h) are dequantized when
 * they are read. Of a model with a vision tower the text model is read.
 *
 * Reading order: safetensors.c, index.c, renamed.c, experts.c, compressed_config.c, compressed.c and its forms
 * (compressed_rows.c, compressed_words.c, compressed_bnb.c), joined.c, config.c, hf.c (reading a folder); checksums.c, delta.c,
 * safetensors_write.c, write.c (writing one); peft_config.c, peft.c (adapters). */
#ifndef AX_CKPT_HF_HF_H
#define AX_CKPT_HF_HF_H

#include "base/text/json.h"
#include "ckpt/gguf/model.h"
#include "ckpt/hf/compressed.h"
#include "ckpt/hf/experts.h"
#include "ckpt/hf/joined.h"
#include "ckpt/hf/renamed.h"
#include "ckpt/hf/safetensors.h"
#include "ckpt/tensors/entry.h"
#include "parallel/fabric/team.h"

/* Weights in a GGUF file, dequantized when they are read; with the names, order and values that
 * ax_convert_gguf_to_hf would write. */
struct ax_hf_gguf {
    struct ax_gguf file;
    struct ax_gguf_model model;
    struct ax_gguf_weights weights;
    struct ax_st_entry *entries; /* [weights.n] */
};

/* Stacked matrices that a folder has in MXFP4 (Open Compute Project 2023), as gpt-oss is published:
 * NAME_blocks U8 [E][out][in/32][16] and NAME_scales U8 [E][out][in/32]. Byte b of a block has element
 * 2b in its low half and 2b + 1 in its high half: the sign, then one of 0 .5 1 1.5 2 3 4 6, times
 * 2^(scale − 127). They are read as NAME [E][in][out] in BF16, which is exact. */
struct ax_mxfp4_source {
    const char *name; /* name of the blocks, for messages */
    const uint8_t *blocks, *scales;
    int64_t in, out; /* sizes of a matrix */
};

/* All tensors of a folder with matrices in MXFP4; they replace its files' entries. */
struct ax_hf_mxfp4 {
    int n;
    struct ax_st_entry *entries; /* [n], sorted by name; other tensors keep their files' entries */
    struct ax_mxfp4_source *sources; /* [n]; zeroed for other tensors */
};

/* Folders of a model that contains a text model beside other parts, such as a vision tower: its
 * tensors have a prefix, and its config is text_config in config.json.
 *
 * Such a folder opens as the text model alone. A save with it as the base contains the other parts
 * bit for bit, and the text model's tensors under the folder's names. */

/* Prefixes of the text model's names, "model.layers.0…" and "lm_head.weight": in the files, and in
 * the modules of transformers, which adapters name. */
struct ax_wrapping {
    const char *body, *head;
    const char *module; /* prefix before "model."; the head has none */
};

struct ax_hf_wrapped {
    const struct ax_wrapping *names;
    int n_text, n_others;
    struct ax_st_entry *text;   /* [n_text], sorted, under their names in a text model of its own */
    struct ax_st_entry *others; /* [n_others], under their names in the folder */
};

struct ax_hf {
    char *dir;
    int n_files;
    struct ax_safetensors *files;
    int n_entries;
    /* replace the files' entries; NULL: the files' entries count. They belong to one of the members
     * below */
    const struct ax_st_entry *entries;
    struct ax_hf_renamed renamed;
    struct ax_hf_gguf *gguf;
    struct ax_hf_experts experts;
    struct ax_hf_mxfp4 *mxfp4;
    struct ax_compressed *compressed;
    struct ax_hf_joined joined;
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
/* A matrix of each expert in place of stacks that families have instead (ax_hf_experts_split). */
enum ax_status ax_hf_split_experts(struct ax_hf *hf);
/* Finds a tensor; NULL if no shard has it. Also finds tensors of folders written from a bare model
 * ("layers.0…"): tries the name without the prefix "model.". */
const struct ax_st_entry *ax_hf_find(const struct ax_hf *hf, const char *name);
int ax_hf_count(const struct ax_hf *hf);
/* Modules that are a model's embedding, of one family or another; ends with NULL. */
extern const char *const ax_hf_embeddings[];
/* The end of `name` that transformers' modules have, too, if they begin with "model." where the folder of a model
 * has another word ("backbone."); else NULL. */
const char *ax_hf_after_word(const char *name);
/* The embedding's matrix, or NULL. */
const struct ax_st_entry *ax_hf_find_embedding(const struct ax_hf *hf);
/* *yes: the folder has a head whose values differ from the embedding's. The weights decide,
 * whatever config.json says about tying. A folder that has only a head, under its name, as
 * safetensors.torch.save_model writes tied weights, is opened with the head as the embedding. */
enum ax_status ax_hf_unties(const struct ax_hf *hf, bool *yes);
const struct ax_st_entry *ax_hf_at(const struct ax_hf *hf, int i);
/* The layer N of a tensor "model.layers.N.…" (or without "model.", or with another word); −1: it belongs to no
 * layer. */
int ax_hf_layer_of(const char *name);
/* Tensors of a folder that no layer of the model uses, such as those for multi-token prediction: of layers `first` …
 * `end` − 1 (equal: none), those whose names begin with `prefix` (or NULL), and keys and values of layers that use those
 * of earlier ones, from `borrowing` on (0: none). */
struct ax_hf_unused {
    int first, end;
    const char *prefix;
    int borrowing;
};
bool ax_hf_is_unused(const struct ax_hf_unused *u, const char *name);

/* ---- a text model within another ---- */

/* *yes: the folder is of such a model. */
enum ax_status ax_hf_is_wrapper(const char *dir, bool *yes);

/* *out = a text model's tensor name as the folder spells it; free with ax_free. */
enum ax_status ax_wrapping_name(const struct ax_wrapping *names, const char *name, char **out);
/* The end of `name` that is the name in a text model of its own; *module is its wrapping's
 * `module`, or NULL if it has none. Names in adapters must be given without PEFT's prefix. */
const char *ax_wrapping_strip(const char *name, const char **module);

/* ---- writing ---- */

/* The folder with a model's chat templates beside chat_template.jinja, NAME.jinja, as transformers writes them. */
#define AX_TEMPLATES_DIR "additional_chat_templates"

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
    /* [n_ends] more tokens that end a turn: added to eos_token_id of generation_config.json, which an
     * adapter's folder has only for them */
    int n_ends;
    const int32_t *ends;
    /* bos_token_id and pad_token_id of both files; NULL, or −1 = left as they are */
    const int32_t *bos, *pad;
    const char *tokenizer_dir; /* source of the tokenizer's files; NULL = base_dir */
    int n_texts;               /* files that replace the base's, such as a chat template */
    const struct ax_hf_text *texts;
    const struct ax_peft_config *adapter; /* not NULL: a PEFT folder. `tensors` are the adapter's;
                                             no config.json, only tokenizer side files */
    enum ax_dtype dtype;                  /* recorded as dtype / torch_dtype */
    int64_t max_shard_bytes; /* 0 = 5 GB as in transformers; larger: shards and index */
    int n;
    const struct ax_st_output *tensors;
    struct ax_hf_unused kept; /* copied from base_dir unchanged */
    const char *gguf;         /* if not NULL, a link to this GGUF file instead of tensors */
    /* receives the checksums of all files; or NULL. With a team, only of the bytes that this
     * rank wrote: see ax_sum_list_merge_last */
    struct ax_sum_list *sums;
    struct ax_team *team; /* the ranks that write into the folder together; or NULL */
};
enum ax_status ax_hf_write(const struct ax_hf_save *save);
/* Reads the files that a save will copy or edit, before the hours of work that it is to save. `adapter`: into a PEFT
 * folder, whatever save->adapter is. */
enum ax_status ax_hf_check_side_files(const struct ax_hf_save *save, bool adapter);
/* The same, into an existing folder that the caller commits (checkpoints add state/ to it). With a
 * team, each rank writes its parts of the tensors, and rank 0 everything else; the status is this
 * rank's own. */
enum ax_status ax_hf_write_into(const char *tmp_dir, const struct ax_hf_save *save);

#endif
