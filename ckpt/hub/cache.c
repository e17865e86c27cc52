/* Names of repositories, revisions and files, which become parts of paths and URLs; where the cache has
 * them on disk; and who uses them. */
#include <ctype.h>
#include <string.h>

#include "base/dir.h"
#include "base/io.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/text/json.h"
#include "ckpt/hub/hub.h"
#include "ckpt/hub/impl.h"

/* ---- names: ids, revisions and paths ---- */

/* One part of an id: letters, digits and - _ . but no .. or -- and neither - nor . at the ends. */
static bool is_id_part(const char *s, size_t n) {
    if (n == 0 || n > 96 || strchr("-.", s[0]) || strchr("-.", s[n - 1]))
        return false;
    for (size_t i = 0; i < n; i++) {
        const bool twice = i > 0 && s[i] == s[i - 1] && strchr("-.", s[i]);
        if (twice || (!isalnum((unsigned char)s[i]) && !strchr("-_.", s[i])))
            return false;
    }
    return true;
}

bool ax_hub_is_id(const char *id) {
    const char *slash = strchr(id, '/');
    if (!slash)
        return is_id_part(id, strlen(id));
    return is_id_part(id, (size_t)(slash - id)) && is_id_part(slash + 1, strlen(slash + 1));
}

/* Branch names may contain slashes ("refs/convert/parquet"), but no part that leads out of a
 * folder. */
bool ax_hub_is_revision(const char *s) {
    const size_t n = strlen(s);
    if (n == 0 || n > 200 || *s == '/' || strstr(s, "..") || strstr(s, "//") || s[n - 1] == '/')
        return false;
    for (; *s; s++)
        if (!isalnum((unsigned char)*s) && !strchr("-_./", *s))
            return false;
    return true;
}

const char *ax_hub_revision(const struct ax_hub_repo *r) {
    return r->revision ? r->revision : "main";
}

/* ---- where things are on disk ---- */

#define MAX_REF  256 /* bytes of a file in refs/ */
#define MAX_LIST ((size_t)64 << 20)

/* CACHE/models--ORG--NAME */
static enum ax_status repo_folder(char **out, const char *cache, const struct ax_hub_repo *r) {
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
    AX_TRY_GOTO(repo_folder(&s->repo_folder, cache, r), st, fail);
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
    return (size_t)n < sizeof full && ax_path_exists(full) && !ax_path_is_dir(full);
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

/* ---- which repositories are in use, and which have files that this program downloaded ---- */

#define USE_LOCK "axtrain-use.lock"

static const char *const repo_prefixes[] = {"models--",
                                            "datasets--"}; /* indexed by enum ax_hub_kind */

static enum ax_status lock_use(struct ax_lock *l, const char *cache, const char *repo) {
    char *folder, *path = NULL;
    AX_TRY(ax_sprintf(&folder, "%s/.locks/%s", cache, strrchr(repo, '/') + 1));
    enum ax_status st = ax_path_join(&path, folder, USE_LOCK);
    if (st == AX_OK && ax_mkdir_parents_private(folder) == AX_OK)
        ax_lock_take(l, path, AX_LOCK_SHARED);
    else if (st == AX_OK)
        ax_error_clear(); /* the cache is read-only, so nobody can clear it either */
    ax_free(path);
    ax_free(folder);
    return st;
}

enum ax_status ax_hub_use(struct ax_lock *l, const struct ax_hub_repo *r) {
    char *cache, *repo = NULL;
    *l = (struct ax_lock){0};
    AX_TRY(ax_hub_cache_folder(&cache));
    enum ax_status st = repo_folder(&repo, cache, r);
    if (st == AX_OK && ax_path_is_dir(repo))
        st = lock_use(l, cache, repo);
    ax_free(repo);
    ax_free(cache);
    return st;
}

/* True if trees/ has a list of files, which only this program writes. */
static enum ax_status is_owned(const char *repo, bool *owned) {
    static const char tail[] = ".axtrain.json";
    char *trees;
    *owned = false;
    AX_TRY(ax_path_join(&trees, repo, "trees"));
    struct ax_dir d;
    ax_dir_open(&d, trees);
    for (const char *name; !*owned && (name = ax_dir_next(&d)) != NULL;) {
        const size_t n = strlen(name);
        *owned = n >= sizeof tail && strcmp(name + n - (sizeof tail - 1), tail) == 0;
    }
    ax_free(trees);
    return ax_dir_end(&d, AX_OK);
}

/* "models--org--name" → "org/name"; NULL if it is not a repository's folder. */
static enum ax_status id_of(char **out, const char *name, bool *dataset) {
    *out = NULL;
    for (int i = 0; i < 2; i++) {
        const size_t n = strlen(repo_prefixes[i]);
        if (strncmp(name, repo_prefixes[i], n) != 0)
            continue;
        *dataset = i == AX_HUB_DATASET;
        AX_TRY(ax_strdup(out, name + n));
        char *sep = strstr(*out, "--");
        if (sep) {
            *sep = '/';
            memmove(sep + 1, sep + 2, strlen(sep + 2) + 1);
        }
    }
    return AX_OK;
}

static enum ax_status visit_one(const char *cache, const char *name, bool of_locks,
                                enum ax_status (*visit)(void *ctx, const struct ax_hub_owned *o),
                                void *ctx) {
    struct ax_hub_owned o = {0};
    char *id, *folder = NULL, *locks = NULL, *use = NULL;
    bool owned;
    AX_TRY(id_of(&id, name, &o.dataset));
    if (!id)
        return AX_OK;
    enum ax_status st;
    AX_TRY_GOTO(ax_path_join(&folder, cache, name), st, done);
    AX_TRY_GOTO(ax_sprintf(&locks, "%s/.locks/%s", cache, name), st, done);
    AX_TRY_GOTO(ax_path_join(&use, locks, USE_LOCK), st, done);
    if (of_locks)
        owned = !ax_path_exists(folder) && ax_path_exists(use);
    else
        AX_TRY_GOTO(is_owned(folder, &owned), st, done);
    if (!owned)
        goto done;
    o.id = id;
    o.folder = folder;
    o.locks = locks;
    o.use = use;
    st = visit(ctx, &o);
done:
    ax_free(use);
    ax_free(locks);
    ax_free(folder);
    ax_free(id);
    return st;
}

/* of_locks: those that only locks are left of. */
static enum ax_status visit_all(const char *cache, bool of_locks,
                                enum ax_status (*visit)(void *ctx, const struct ax_hub_owned *o),
                                void *ctx) {
    char *path;
    AX_TRY(ax_path_join(&path, cache, of_locks ? ".locks" : "."));
    struct ax_dir d;
    ax_dir_open(&d, path); /* absent if nothing was downloaded */
    ax_free(path);
    enum ax_status st = AX_OK;
    for (const char *name; st == AX_OK && (name = ax_dir_next(&d)) != NULL;)
        st = visit_one(cache, name, of_locks, visit, ctx);
    return ax_dir_end(&d, st);
}

enum ax_status ax_hub_each_owned(const char *cache,
                                 enum ax_status (*visit)(void *ctx, const struct ax_hub_owned *o),
                                 void *ctx) {
    AX_TRY(visit_all(cache, false, visit, ctx));
    return visit_all(cache, true, visit, ctx);
}
