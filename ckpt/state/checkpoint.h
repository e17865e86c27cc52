/* Training checkpoints: a Hugging Face model folder plus `state/` for resuming.
 *
 *   checkpoint-20/config.json, model.safetensors, tokenizer.json, …
 *   checkpoint-20/state/rank-00000.safetensors   masters and optimizer state of that rank
 *   checkpoint-20/state/manifest.json            written last: files with checksums, global tensors
 *                                                → shards, position of the run
 *
 * docs/checkpoint.md describes the format. A folder with that name is complete: it is written
 * under another name, synced, and renamed. Reading order: checkpoint.c (the
 * manifest, opening, verifying, writing), checkpoint_load.c (loading; all ranks' state in one file),
 * checkpoint_list.c (existing ones). */
#ifndef AX_CKPT_STATE_CHECKPOINT_H
#define AX_CKPT_STATE_CHECKPOINT_H

#include "base/lock.h"
#include "ckpt/hf/hf.h"
#include "ckpt/state/state.h"

#define AX_CHECKPOINT_FORMAT   1
#define AX_CHECKPOINT_MANIFEST "state/manifest.json"
#define AX_RUN_FILE            "run.json" /* in the folder of a run, from its start: what it is */

/* ---- writing ---- */

struct ax_checkpoint;
struct ax_checkpoint_save {
    const char *dir; /* the checkpoint's folder; replaces an old one with that name */
    int64_t step;
    struct ax_hf_save hf; /* dir and sums are ignored; with a team, all its ranks write together */
    bool state_only;      /* no model folder: of hf only the team is used */
    /* instead of hf: copies this checkpoint's files except the ranks' states; the folder is
     * verified before it is renamed */
    const struct ax_checkpoint *copy_of;
    const struct ax_mesh *mesh;
    /* number of parts that this rank saves; 0 on all ranks: weights only, which cannot be
     * resumed */
    int n_parts;
    const struct ax_state_part *parts;
    const struct ax_st_output *state; /* [n_parts]: 1-D, named by ax_checkpoint_key */
    const json_t *run;                /* the trainer's own state */
    bool *placed; /* or NULL: set on rank 0 when the folder has its name, whatever follows */
};
/* Each rank writes its own parts; rank 0 creates the folder, and renames it when all ranks have
 * finished. If one fails, all fail, and nothing is left. */
enum ax_status ax_checkpoint_write(const struct ax_checkpoint_save *save);
/* Makes the checkpoint `dir` of n incomplete ones of the same step and run, which ranks have written
 * that could not reach each other: together they must have each part once. Moves their files. */
enum ax_status ax_checkpoint_join(const char *dir, int n, const struct ax_checkpoint *from);
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
    const json_t *run; /* in the manifest */
    struct ax_sum_list files;
    size_t n_shards;
    struct ax_checkpoint_shard *shards; /* sorted by name, then slot */
};
/* Reads and checks the manifest, but no other file. AX_ERR_DATA if it is corrupted. */
enum ax_status ax_checkpoint_open(struct ax_checkpoint *c, const char *dir);
void ax_checkpoint_close(struct ax_checkpoint *c);
/* Checks every byte of every file; with a team (NULL: one rank), each rank checks a share. */
enum ax_status ax_checkpoint_verify(const struct ax_checkpoint *c, struct ax_team *team);
/* Opens and verifies the one in the folder, on this rank alone. */
enum ax_status ax_checkpoint_check(const char *dir);
/* Fills this rank's parts, from a checkpoint of any mesh. AX_ERR_DATA if a tensor is missing,
 * incomplete, or of another shape, or if an element that is read is infinite or NaN; AX_ERR_CONFIG if
 * it is of another dtype. */
enum ax_status ax_checkpoint_load(const struct ax_checkpoint *c, const struct ax_state_parts *to);

/* Writes a copy of the checkpoint with the layout of one rank to the folder `out` (its own folder:
 * replaces it): one state file, in which every tensor is complete. Verifies the checkpoint before
 * and the copy afterwards; if that fails, no copy is left. */
enum ax_status ax_checkpoint_reshard(const struct ax_checkpoint *c, const char *out);

/* ---- existing checkpoints ---- */

struct ax_checkpoint_list {
    size_t n;
    int64_t *steps;    /* ascending */
    int64_t stateless; /* the highest step of a checkpoint-N without a manifest; 0: none */
};
/* Lists the complete checkpoints of a folder. Folders with such names but no manifest (foreign or
 * incomplete) are skipped; a missing output_dir contains none. */
enum ax_status ax_checkpoint_list(struct ax_checkpoint_list *l, const char *output_dir);
/* Warns of those that the list skips. */
enum ax_status ax_checkpoint_warn_incomplete(const char *output_dir);
void ax_checkpoint_list_free(struct ax_checkpoint_list *l);
enum ax_status ax_checkpoint_path(char **path, const char *output_dir, int64_t step);
/* Whoever writes checkpoints in a folder holds its lock: a run, all the time. AX_ERR_FAILED names the holder. */
enum ax_status ax_checkpoint_claim(struct ax_claim *lock, const char *output_dir);
/* Removes leftovers of killed saves and removals, for the holder of the folder's lock: no other process
 * saves there. */
enum ax_status ax_checkpoint_sweep(const char *output_dir);
/* AX_ERR_CONFIG if a checkpoint of a step after `after` is a symbolic link. */
enum ax_status ax_checkpoint_refuse_links(const char *output_dir, int64_t after);
/* Removes the oldest checkpoints until `limit` (0: no limit) are left, but never those in `keep`.
 * That must include the one just verified, because the state of the others is unknown. A failed
 * removal is only a warning: the new checkpoint is safe, and the next call tries again. */
void ax_checkpoint_prune(const char *output_dir, int64_t limit, int n_keep, const int64_t *keep);

/* ---- the manifest ---- */

/* Parses a manifest into *c, except dir. */
enum ax_status ax_manifest_parse(struct ax_checkpoint *c, const char *name, const char *text,
                                 size_t len);

#endif
