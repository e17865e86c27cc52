/* The layout on disk. */
#include <ctype.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/text/json.h"
#include "base/log.h"
#include "ckpt/hub/impl.h"

#define MAX_REF  256 /* bytes of a file in refs/ */
#define MAX_LIST ((size_t)64 << 20)

enum ax_status ax_hub_repo_folder(char **out, const char *cache, const struct ax_hub_repo *r) {
    const char *slash = strchr(r->id, '/'), *kind = r->kind == AX_HUB_MODEL ? "models" : "datasets";
    const int org = slash ? (int)(slash - r->id) : 0;
    char *name;
    AX_TRY(ax_sprintf(&name, "%s--%.*s%s%s", kind, org, r->id, slash ? "--" : "",
                      slash ? slash + 1 : r->id));
    const enum ax_status st = ax_path_join(out, cache, name);
    ax_free(name);
    return st;
}

/* The commit that refs/REVISION names; if there is no such file, the revision itself. */
static enum ax_status read_ref(char **commit, const char *repo, const char *revision) {
    char *path, *text;
    size_t len;
    AX_TRY(ax_sprintf(&path, "%s/refs/%s", repo, revision));
    enum ax_status st = AX_OK;
    if (!ax_path_exists(path) || ax_path_is_dir(path)) {
        st = ax_is_plain_name(revision) ? ax_strdup(commit, revision) : AX_OK;
    } else if ((st = ax_read_file(path, MAX_REF, &text, &len)) == AX_OK) {
        while (len > 0 && isspace((unsigned char)text[len - 1]))
            text[--len] = '\0';
        if (ax_is_plain_name(text))
            st = ax_strdup(commit, text);
        else
            st = ax_error(AX_ERR_DATA, "%s: expected a commit hash", path);
        ax_free(text);
    }
    ax_free(path);
    return st;
}

static enum ax_status list_path(char **out, const struct ax_hub_snapshot *s) {
    return ax_sprintf(out, "%s/trees/%s.axtrain.json", s->repo_folder, s->commit);
}

/* A list that cannot be read counts as missing, because it can be requested again. */
static enum ax_status read_list(struct ax_hub_snapshot *s) {
    char *path, *text = NULL;
    size_t len;
    AX_TRY(list_path(&path, s));
    enum ax_status st = AX_OK;
    if (ax_path_exists(path)) {
        st = ax_read_file(path, MAX_LIST, &text, &len);
        if (st == AX_OK)
            st = ax_hub_list_parse(&s->list, path, text, len);
        s->listed = st == AX_OK;
    }
    if (!s->listed)
        ax_hub_list_free(&s->list);
    if (st != AX_OK && st != AX_ERR_NOMEM) {
        ax_log_warn("%s", ax_error_text());
        st = AX_OK;
    }
    ax_free(text);
    ax_free(path);
    return st;
}

enum ax_status ax_hub_snapshot_find(struct ax_hub_snapshot *s, const char *cache,
                                    const struct ax_hub_repo *r) {
    const char *revision = ax_hub_revision(r);
    *s = (struct ax_hub_snapshot){0};
    if (!ax_hub_is_revision(revision))
        return ax_error(AX_ERR_CONFIG, "%s: \"%s\" is not a branch, tag or commit", r->id,
                        revision);
    enum ax_status st;
    AX_TRY_GOTO(ax_hub_repo_folder(&s->repo_folder, cache, r), st, fail);
    AX_TRY_GOTO(read_ref(&s->commit, s->repo_folder, revision), st, fail);
    if (s->commit)
        AX_TRY_GOTO(ax_sprintf(&s->folder, "%s/snapshots/%s", s->repo_folder, s->commit), st, fail);
    if (s->folder && !ax_path_is_dir(s->folder)) {
        ax_free(s->commit);
        s->commit = NULL;
    }
    if (s->commit)
        AX_TRY_GOTO(read_list(s), st, fail);
    return AX_OK;
fail:
    ax_hub_snapshot_free(s);
    return st;
}

void ax_hub_snapshot_free(struct ax_hub_snapshot *s) {
    ax_hub_list_free(&s->list);
    ax_free(s->repo_folder);
    ax_free(s->commit);
    ax_free(s->folder);
    *s = (struct ax_hub_snapshot){0};
}

bool ax_hub_snapshot_has(const struct ax_hub_snapshot *s, const char *path) {
    char full[4096];
    const int n = snprintf(full, sizeof full, "%s/%s", s->folder, path);
    return n > 0 && (size_t)n < sizeof full && ax_path_exists(full) && !ax_path_is_dir(full);
}

/* ---- writing ---- */

static enum ax_status list_text(struct ax_buf *b, const struct ax_hub_list *l) {
    AX_TRY(ax_buf_puts(b, "["));
    for (size_t i = 0; i < l->n; i++) {
        json_t *path = json_string(l->files[i].path);
        char *quoted = path ? json_dumps(path, JSON_ENCODE_ANY) : NULL;
        json_decref(path);
        if (!quoted)
            return ax_error(AX_ERR_NOMEM, "out of memory for a list of files");
        const enum ax_status st =
            ax_buf_printf(b, "%s\n{\"path\": %s, \"size\": %llu, \"oid\": \"%s\"}", i ? "," : "",
                          quoted, (unsigned long long)l->files[i].size, l->files[i].blob);
        ax_free_hook(quoted);
        AX_TRY(st);
    }
    return ax_buf_puts(b, "\n]\n");
}

static enum ax_status write_below(const char *path, const void *data, size_t len) {
    char *parent;
    AX_TRY(ax_strndup(&parent, path, (size_t)(strrchr(path, '/') - path)));
    enum ax_status st = ax_mkdir_parents_private(parent);
    if (st == AX_OK)
        st = ax_write_file_atomic(path, data, len);
    ax_free(parent);
    return st;
}

static enum ax_status keep_list(const struct ax_hub_snapshot *s) {
    struct ax_buf text = {0};
    char *path;
    AX_TRY(list_path(&path, s));
    enum ax_status st = list_text(&text, &s->list);
    if (st == AX_OK)
        st = write_below(path, text.data, text.len);
    ax_buf_free(&text);
    ax_free(path);
    return st;
}

enum ax_status ax_hub_snapshot_keep(const struct ax_hub_snapshot *s, const struct ax_hub_repo *r) {
    const char *revision = ax_hub_revision(r);
    char *path;
    AX_TRY(ax_mkdir_parents_private(s->folder));
    AX_TRY(keep_list(s));
    if (strcmp(revision, s->commit) == 0)
        return AX_OK;
    AX_TRY(ax_sprintf(&path, "%s/refs/%s", s->repo_folder, revision));
    const enum ax_status st = write_below(path, s->commit, strlen(s->commit));
    ax_free(path);
    return st;
}

/* FOLDER/NAMEsuffix; creates FOLDER. */
static enum ax_status path_in(char **out, const char *folder, const char *name,
                              const char *suffix) {
    AX_TRY(ax_mkdir_parents_private(folder));
    return ax_sprintf(out, "%s/%s%s", folder, name, suffix);
}

enum ax_status ax_hub_blob_path(char **out, const struct ax_hub_snapshot *s, const char *blob) {
    char *folder;
    AX_TRY(ax_path_join(&folder, s->repo_folder, "blobs"));
    const enum ax_status st = path_in(out, folder, blob, "");
    ax_free(folder);
    return st;
}

enum ax_status ax_hub_lock_path(char **out, const struct ax_hub_snapshot *s, const char *blob) {
    const char *name = strrchr(s->repo_folder, '/');
    char *folder;
    AX_TRY(
        ax_sprintf(&folder, "%.*s/.locks%s", (int)(name - s->repo_folder), s->repo_folder, name));
    const enum ax_status st = path_in(out, folder, blob, ".lock");
    ax_free(folder);
    return st;
}

/* Creates the folders of `path` in the snapshot. Each must be a real folder: through a link, the
 * file would be written elsewhere. *depth += their number. */
static enum ax_status make_folders(const struct ax_hub_snapshot *s, const char *path, int *depth) {
    char *full;
    enum ax_status st = AX_OK;
    struct stat info;
    AX_TRY(ax_mkdir_parents_private(s->folder));
    AX_TRY(ax_sprintf(&full, "%s/%s", s->folder, path));
    for (char *p = full + strlen(s->folder) + 1; st == AX_OK && (p = strchr(p, '/')); p++) {
        *p = '\0';
        if (lstat(full, &info) != 0)
            st = ax_mkdir_private(full);
        else if (!S_ISDIR(info.st_mode))
            st = ax_error(AX_ERR_DATA, "%s: refusing to write \"%s\" through it: not a folder",
                          full, path);
        *p = '/';
        ++*depth;
    }
    ax_free(full);
    return st;
}

enum ax_status ax_hub_link(const struct ax_hub_snapshot *s, const struct ax_hub_file *f) {
    struct ax_buf target = {0};
    char *path = NULL;
    int depth = 2; /* snapshots/COMMIT */
    enum ax_status st;
    AX_TRY(make_folders(s, f->path, &depth));
    for (int i = 0; i < depth; i++)
        AX_TRY_GOTO(ax_buf_puts(&target, "../"), st, done);
    AX_TRY_GOTO(ax_buf_printf(&target, "blobs/%s", f->blob), st, done);
    AX_TRY_GOTO(ax_sprintf(&path, "%s/%s", s->folder, f->path), st, done);
    if (ax_path_is_dir(path))
        st = ax_error(AX_ERR_DATA, "%s: a folder exists where a file is needed", path);
    else
        st = ax_symlink(target.data, path);
done:
    ax_free(path);
    ax_buf_free(&target);
    return st;
}
