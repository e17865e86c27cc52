/* Which repositories are in use, and which have files that this program downloaded. */
#include <dirent.h>
#include <string.h>

#include "base/io.h"
#include "base/lock.h"
#include "ckpt/hub/impl.h"

#define USE_LOCK "axtrain-use.lock"

static const char *const prefixes[] = {"models--", "datasets--"}; /* indexed by enum ax_hub_kind */

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
    enum ax_status st = ax_hub_repo_folder(&repo, cache, r);
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
    DIR *dir = opendir(trees);
    const struct dirent *e;
    while (dir && !*owned && (e = readdir(dir)) != NULL) {
        const size_t n = strlen(e->d_name);
        *owned = n >= sizeof tail && strcmp(e->d_name + n - (sizeof tail - 1), tail) == 0;
    }
    if (dir)
        closedir(dir);
    ax_free(trees);
    return AX_OK;
}

/* "models--org--name" → "org/name"; NULL if it is not a repository's folder. */
static enum ax_status id_of(char **out, const char *name, bool *dataset) {
    *out = NULL;
    for (int i = 0; i < 2; i++) {
        const size_t n = strlen(prefixes[i]);
        if (strncmp(name, prefixes[i], n) != 0)
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

static enum ax_status visit_one(const char *cache, const char *name,
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
    AX_TRY_GOTO(is_owned(folder, &owned), st, done);
    if (!owned)
        goto done;
    AX_TRY_GOTO(ax_sprintf(&locks, "%s/.locks/%s", cache, name), st, done);
    AX_TRY_GOTO(ax_path_join(&use, locks, USE_LOCK), st, done);
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

enum ax_status ax_hub_each_owned(const char *cache,
                                 enum ax_status (*visit)(void *ctx, const struct ax_hub_owned *o),
                                 void *ctx) {
    DIR *dir = opendir(cache);
    const struct dirent *e;
    enum ax_status st = AX_OK;
    if (!dir)
        return AX_OK; /* nothing was downloaded */
    while (st == AX_OK && (e = readdir(dir)) != NULL)
        st = visit_one(cache, e->d_name, visit, ctx);
    closedir(dir);
    return st;
}
