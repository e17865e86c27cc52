/* Training checkpoints: a Hugging Face model folder plus `state/`, which resuming needs.
 *
 *   checkpoint-20/config.json, model.safetensors, tokenizer.json, …
 *   checkpoint-20/state/rank-00000.safetensors   masters and optimizer state of that rank
 *   checkpoint-20/state/manifest.json            written last: files with checksums, global tensors
 *                                                → shards, where the run stood
 *
 * The format is described in docs/checkpoint.md. A folder of that name is whole: it is written
 * beside, synced, and renamed. Read on: checkpoint.c (writing), manifest.c (the manifest),
 * checkpoint_load.c (opening, verifying, loading), checkpoint_list.c (which there are). */
#ifndef AX_CKPT_STATE_CHECKPOINT_H
#define AX_CKPT_STATE_CHECKPOINT_H

#include "ckpt/hf/hf.h"
#include "ckpt/state/state.h"

#define AX_CHECKPOINT_FORMAT   1
#define AX_CHECKPOINT_MANIFEST "state/manifest.json"

/* ---- writing ---- */

struct ax_checkpoint_save {
    const char *dir; /* the checkpoint's folder; an old one of that name is replaced */
    int64_t step;
    struct ax_hf_save hf; /* dir and sums are not used */
    const struct ax_mesh *mesh;
    int n_parts; /* 0: weights only, nothing to resume from */
    const struct ax_state_part *parts;
    const struct ax_st_output *state; /* [n_parts]: 1-D, named by ax_checkpoint_key */
    const json_t *run;                /* what the trainer wants to find again */
};
enum ax_status ax_checkpoint_write(const struct ax_checkpoint_save *save);
/* "NAME:SLOT", the name of a part in its rank's file; free with ax_free. */
enum ax_status ax_checkpoint_key(char **key, const struct ax_state_part *part);

/* ---- reading ---- */

struct ax_checkpoint_shard {
    struct ax_state_part part; /* name and slot owned, data NULL */
    size_t file;               /* index into files */
};

struct ax_checkpoint {
    char *dir;
    int64_t step;
    struct ax_json_doc manifest;
    const json_t *run; /* in it */
    struct ax_sum_list files;
    size_t n_shards;
    struct ax_checkpoint_shard *shards; /* sorted by name, then slot */
};
/* Reads and checks the manifest, no other file. AX_ERR_DATA where it is damaged. */
enum ax_status ax_checkpoint_open(struct ax_checkpoint *c, const char *dir);
void ax_checkpoint_close(struct ax_checkpoint *c);
/* Every byte of every file. */
enum ax_status ax_checkpoint_verify(const struct ax_checkpoint *c);
/* Fills the parts of this rank, whatever mesh wrote the checkpoint. AX_ERR_DATA when a tensor is
 * missing, has another shape or type, or is not there in full. */
enum ax_status ax_checkpoint_load(const struct ax_checkpoint *c, const struct ax_state_parts *to);

/* ---- which there are ---- */

struct ax_checkpoint_list {
    size_t n;
    int64_t *steps; /* ascending */
};
/* The whole checkpoints of a folder. Others of that name (no manifest: not ours, or not finished by
 * whatever wrote them) are left out with a warning; a folder that is not there holds none. */
enum ax_status ax_checkpoint_list(struct ax_checkpoint_list *l, const char *output_dir);
void ax_checkpoint_list_free(struct ax_checkpoint_list *l);
enum ax_status ax_checkpoint_path(char **path, const char *output_dir, int64_t step);
/* Removes what killed saves and removals left behind. */
enum ax_status ax_checkpoint_sweep(const char *output_dir);
/* Removes the oldest until `limit` (0: all stay) are left, but never those of `keep`: the one that
 * was just verified has to be among them, as nothing is known of the others. What cannot be removed
 * is warned of: the new one is safe, and the next call tries again. */
void ax_checkpoint_prune(const char *output_dir, int64_t limit, int n_keep, const int64_t *keep);

/* ---- parts ---- */

struct ax_manifest {
    int64_t step;
    const struct ax_mesh *mesh;
    const struct ax_sum_list *files;
    int n_parts;
    const struct ax_state_part *parts;
    const char *state_file; /* which holds the parts */
    const json_t *run;
};
enum ax_status ax_manifest_text(const struct ax_manifest *m, struct ax_buf *out);
/* Fills everything but dir. */
enum ax_status ax_manifest_parse(struct ax_checkpoint *c, const char *name, const char *text,
                                 size_t len);

#endif
