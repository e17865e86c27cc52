/* Writing a checkpoint: model folder, state, manifest, rename. */
#include "ckpt/state/checkpoint.h"

#include <limits.h>
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
    enum ax_status st = ax_safetensors_create(path);
    if (st == AX_OK)
        st = ax_safetensors_write_part(path, save->n_parts, save->state, true, sums);
    ax_free(path);
    return st;
}

static enum ax_status write_manifest(const char *tmp, const struct ax_manifest *m,
                                     const struct ax_checkpoint_save *save) {
    char *path = NULL;
    struct ax_buf text = {0};
    struct ax_file f = {.fd = -1};
    enum ax_status st;
    AX_TRY(ax_path_join(&path, tmp, AX_CHECKPOINT_MANIFEST));
    AX_TRY_GOTO(ax_manifest_text(m, save, &text), st, done);
    AX_TRY_GOTO(ax_file_create(&f, path), st, done);
    AX_TRY_GOTO(ax_file_write(&f, text.data, text.len), st, done);
    AX_TRY_GOTO(ax_file_sync(&f), st, done);
done:
    st = ax_file_end(&f, st);
    ax_buf_free(&text);
    ax_free(path);
    return st;
}

static enum ax_status begin(struct ax_folder *folder, const char *dir) {
    char *state_dir;
    AX_TRY(ax_folder_begin(folder, dir));
    AX_TRY(ax_path_join(&state_dir, folder->tmp, "state"));
    const enum ax_status st = ax_mkdir_private(state_dir);
    ax_free(state_dir);
    return st;
}

/* The folder that rank 0 has made, where all write. */
static enum ax_status find_folder(struct ax_team *team, const struct ax_folder *folder,
                                  char tmp[PATH_MAX]) {
    if (folder->tmp)
        snprintf(tmp, PATH_MAX, "%s", folder->tmp);
    AX_TRY(ax_team_share(team, tmp, PATH_MAX));
    tmp[PATH_MAX - 1] = '\0';
    return AX_OK;
}

static enum ax_status copy_pieces(struct ax_file *from, struct ax_file *to, uint64_t left,
                                  struct ax_checksums *sums) {
    char *buffer;
    AX_TRY(ax_alloc(&buffer, AX_SUM_PIECE, 1));
    enum ax_status st = AX_OK;
    for (uint64_t at = 0; st == AX_OK && left > 0;) {
        const size_t n = left < AX_SUM_PIECE ? (size_t)left : AX_SUM_PIECE;
        AX_TRY_GOTO(ax_file_pread(from, buffer, n, at), st, done);
        AX_TRY_GOTO(ax_checksums_add(sums, buffer, n), st, done);
        AX_TRY_GOTO(ax_file_write(to, buffer, n), st, done);
        at += n;
        left -= n;
    }
done:
    ax_free(buffer);
    return st;
}

static enum ax_status copy_file(const char *from_dir, const char *to_dir,
                                const struct ax_file_sums *file, struct ax_sum_list *files) {
    struct ax_file from = {.fd = -1}, to = {.fd = -1};
    struct ax_checksums *sums;
    char *source = NULL, *target = NULL;
    enum ax_status st;
    AX_TRY(ax_sum_list_add(files, file->name, &sums));
    AX_TRY_GOTO(ax_path_join(&source, from_dir, file->name), st, done);
    AX_TRY_GOTO(ax_path_join(&target, to_dir, file->name), st, done);
    AX_TRY_GOTO(ax_file_open_read(&from, source), st, done);
    AX_TRY_GOTO(ax_file_create(&to, target), st, done);
    AX_TRY_GOTO(copy_pieces(&from, &to, file->sums.bytes, sums), st, done);
    AX_TRY_GOTO(ax_file_sync(&to), st, done);
done:
    st = ax_file_end(&to, st);
    st = ax_file_end(&from, st);
    ax_free(target);
    ax_free(source);
    return st;
}

static enum ax_status copy_files(const char *tmp, const struct ax_checkpoint *c,
                                 struct ax_sum_list *files) {
    for (size_t i = 0; i < c->files.n; i++)
        if (strncmp(c->files.files[i].name, "state/", 6) != 0)
            AX_TRY(copy_file(c->dir, tmp, &c->files.files[i], files));
    return AX_OK;
}

/* What this rank has: its parts of the weights, and its state. */
static enum ax_status write_own(const char *tmp, const char *state_file,
                                const struct ax_checkpoint_save *save, struct ax_sum_list *files) {
    struct ax_hf_save hf = save->hf;
    hf.dir = NULL;
    hf.sums = files;
    AX_TRY(save->copy_of ? copy_files(tmp, save->copy_of, files) : ax_hf_write_into(tmp, &hf));
    return save->n_parts > 0 ? write_state(tmp, state_file, save, files) : AX_OK;
}

static enum ax_status take(void *ctx, int rank, const char *text, int64_t len) {
    return ax_manifest_take(ctx, rank, text, (size_t)len);
}

/* Rank 0 learns what the others wrote. */
static enum ax_status collect(struct ax_team *team, const struct ax_manifest_report *r,
                              struct ax_manifest *m) {
    char *text = NULL;
    size_t len = 0;
    enum ax_status st = ax_team_agree(team, ax_manifest_report_text(r, &text, &len));
    if (st == AX_OK)
        st = ax_team_collect(team, text, (int64_t)len, take, m);
    ax_free(text);
    return st;
}

static enum ax_status check(const char *dir) {
    struct ax_checkpoint c;
    AX_TRY(ax_checkpoint_open(&c, dir));
    const enum ax_status st = ax_checkpoint_verify(&c, NULL);
    ax_checkpoint_close(&c);
    return st;
}

static enum ax_status complete(struct ax_folder *folder, const struct ax_manifest *m,
                               const struct ax_checkpoint_save *save) {
    char *state_dir;
    AX_TRY(write_manifest(folder->tmp, m, save));
    if (save->copy_of)
        AX_TRY(check(folder->tmp));
    AX_TRY(ax_path_join(&state_dir, folder->tmp, "state"));
    enum ax_status st = ax_sync_dir(state_dir);
    if (st == AX_OK)
        st = ax_folder_commit(folder);
    ax_free(state_dir);
    return st;
}

static enum ax_status write_all(struct ax_folder *folder, const struct ax_checkpoint_save *save,
                                struct ax_sum_list *files, struct ax_manifest *m) {
    struct ax_team *team = save->hf.team;
    const bool leads = ax_team_leads(team);
    char state_file[64], tmp[PATH_MAX] = "";
    AX_TRY(ax_team_agree(team, leads ? begin(folder, save->dir) : AX_OK));
    AX_TRY(find_folder(team, folder, tmp));
    snprintf(state_file, sizeof state_file, "state/rank-%05d.safetensors", save->mesh->rank);
    AX_TRY(ax_team_agree(team, write_own(tmp, state_file, save, files)));
    const struct ax_manifest_report report = {files, save->n_parts, save->parts, state_file};
    enum ax_status st = collect(team, &report, m);
    if (st == AX_OK && leads)
        st = complete(folder, m, save);
    return ax_team_agree(team, st);
}

enum ax_status ax_checkpoint_write(const struct ax_checkpoint_save *save) {
    struct ax_folder folder = {0};
    struct ax_sum_list files = {0};
    struct ax_manifest m = {0};
    const enum ax_status st = write_all(&folder, save, &files, &m);
    if (st != AX_OK)
        ax_folder_abort(&folder);
    ax_manifest_free(&m);
    ax_sum_list_free(&files);
    return st;
}
