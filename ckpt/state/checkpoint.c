/* Writing a checkpoint: model folder, state, manifest, rename. */
#include "ckpt/state/checkpoint.h"

#include <stdio.h>
#include <string.h>

enum ax_status ax_checkpoint_key(char **key, const struct ax_state_part *part) {
    return ax_sprintf(key, "%s:%s", part->name, part->slot);
}

static enum ax_status write_state(const char *tmp, const char *name,
                                  const struct ax_checkpoint_save *save,
                                  struct ax_sum_list *files) {
    char *path;
    struct ax_checksums *sums;
    AX_TRY(ax_sum_list_add(files, name, &sums));
    AX_TRY(ax_path_join(&path, tmp, name));
    const enum ax_status st = ax_safetensors_write_summed(path, save->n_parts, save->state, sums);
    ax_free(path);
    return st;
}

static enum ax_status write_manifest(const char *tmp, const struct ax_manifest *m) {
    char *path = NULL;
    struct ax_buf text = {0};
    struct ax_file f = {.fd = -1};
    enum ax_status st;
    AX_TRY(ax_path_join(&path, tmp, AX_CHECKPOINT_MANIFEST));
    AX_TRY_GOTO(ax_manifest_text(m, &text), st, done);
    AX_TRY_GOTO(ax_file_create(&f, path), st, done);
    AX_TRY_GOTO(ax_file_write(&f, text.data, text.len), st, done);
    AX_TRY_GOTO(ax_file_sync(&f), st, done);
done:
    st = ax_file_end(&f, st);
    ax_buf_free(&text);
    ax_free(path);
    return st;
}

static enum ax_status write_all(const char *tmp, const struct ax_checkpoint_save *save,
                                struct ax_sum_list *files) {
    char name[64], *state_dir;
    struct ax_hf_save hf = save->hf;
    hf.dir = NULL;
    hf.sums = files;
    snprintf(name, sizeof name, "state/rank-%05d.safetensors", save->mesh->rank);
    AX_TRY(ax_path_join(&state_dir, tmp, "state"));
    enum ax_status st;
    AX_TRY_GOTO(ax_mkdir_private(state_dir), st, done);
    AX_TRY_GOTO(ax_hf_write_into(tmp, &hf), st, done);
    if (save->n_parts > 0)
        AX_TRY_GOTO(write_state(tmp, name, save, files), st, done);
    const struct ax_manifest m = {.step = save->step,
                                  .mesh = save->mesh,
                                  .files = files,
                                  .n_parts = save->n_parts,
                                  .parts = save->parts,
                                  .state_file = name,
                                  .run = save->run};
    AX_TRY_GOTO(write_manifest(tmp, &m), st, done);
    AX_TRY_GOTO(ax_sync_dir(state_dir), st, done);
done:
    ax_free(state_dir);
    return st;
}

enum ax_status ax_checkpoint_write(const struct ax_checkpoint_save *save) {
    struct ax_folder folder = {0};
    struct ax_sum_list files = {0};
    AX_TRY(ax_folder_begin(&folder, save->dir));
    enum ax_status st = write_all(folder.tmp, save, &files);
    if (st == AX_OK)
        st = ax_folder_commit(&folder);
    if (st != AX_OK)
        ax_folder_abort(&folder);
    ax_sum_list_free(&files);
    return st;
}
