#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/dir.h"
#include "base/mem.h"
#include "base/io.h"
#include "base/text/json.h"
#include "ckpt/hf/hf.h"
#include "ckpt/hub/hub.h"
#include "cmd/cache/cache.h"
#include "model/convert/base_model.h"
#include "optim/evaluate/refer.h"

/* ---- sizes ---- */

#define MAX_DEPTH 64

static enum ax_status walk(const char *path, int depth, int64_t *bytes, time_t *written) {
    struct stat info;
    if (lstat(path, &info) != 0)
        return AX_OK; /* removed meanwhile */
    *bytes += (int64_t)info.st_blocks * 512;
    if (!S_ISDIR(info.st_mode) && info.st_mtime > *written)
        *written = info.st_mtime;
    if (!S_ISDIR(info.st_mode) || depth == MAX_DEPTH)
        return AX_OK;
    struct ax_dir d;
    enum ax_status st = AX_OK;
    ax_dir_open(&d, path);
    for (const char *name; st == AX_OK && (name = ax_dir_next(&d)) != NULL;) {
        char *below;
        st = ax_path_join(&below, path, name);
        if (st == AX_OK)
            st = walk(below, depth + 1, bytes, written);
        ax_free(below);
    }
    if (st != AX_OK)
        return ax_dir_end(&d, st);
    ax_dir_end_or_warn(&d, AX_OK); /* what is known of the others is still told */
    return AX_OK;
}

/* Bytes that the files below a folder use on disk, and when the newest was written. Does not follow
 * links. */
static enum ax_status cache_usage(const char *path, int64_t *bytes, time_t *written) {
    *bytes = 0;
    *written = 0;
    return walk(path, 0, bytes, written);
}

/* ---- the list ---- */

#define USUAL   "last_run_prepared"
#define MAX_SET ((size_t)256 << 20) /* maximum bytes of a set.json */

/* Not cleared unless named: what Hugging Face's tools use, too, what takes long to make again, and what
 * may be somebody else's. */
const struct ax_cache_kind_info ax_cache_kinds[AX_CACHE_KINDS] = {
    [AX_CACHE_PREPARED] = {"prepared", true},  [AX_CACHE_REFERENCES] = {"references", true},
    [AX_CACHE_GGUF] = {"gguf", true},          [AX_CACHE_HUB] = {"hub", false},
    [AX_CACHE_PRODUCTS] = {"products", false}, [AX_CACHE_SANDBOX] = {"sandbox", false},
    [AX_CACHE_LEFTOVER] = {"leftover", true},  [AX_CACHE_OTHER] = {"other", false},
};

static enum ax_status add(struct ax_cache_list *l, enum ax_cache_kind kind, const char *path,
                          const char *lock, const char *more, const char *name) {
    struct stat info;
    if (lstat(path, &info) != 0)
        return AX_OK;                 /* removed meanwhile */
    for (size_t i = 0; i < l->n; i++) /* --dir is repeatable, and may be a folder listed anyway */
        if (l->entries[i].device == info.st_dev && l->entries[i].inode == info.st_ino)
            return AX_OK;
    AX_TRY(ax_grow(&l->entries, l->n, &l->cap, sizeof *l->entries));
    struct ax_cache_entry *e = &l->entries[l->n++];
    *e = (struct ax_cache_entry){.kind = kind, .device = info.st_dev, .inode = info.st_ino};
    AX_TRY(ax_strdup(&e->path, path));
    AX_TRY(ax_strdup(&e->lock, lock));
    AX_TRY(ax_strdup(&e->name, name));
    if (more)
        AX_TRY(ax_strdup(&e->more, more));
    AX_TRY(cache_usage(path, &e->bytes, &e->used));
    if (e->used == 0) /* it has no files */
        e->used = info.st_mtime;
    if (stat(lock, &info) == 0 && info.st_mtime > e->used)
        e->used = info.st_mtime;
    return AX_OK;
}

/* ---- prepared data, log-probs and GGUF files ---- */

static bool is_hex(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!isdigit((unsigned char)s[i]) && !(s[i] >= 'a' && s[i] <= 'f'))
            return false;
    return true;
}

static bool has(const char *folder, const char *name) {
    char path[PATH_MAX];
    struct stat info;
    const int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return (size_t)n < sizeof path && lstat(path, &info) == 0;
}

static bool is_prepared(const char *folder, const char *name) {
    return strlen(name) == 32 && is_hex(name, 32) && has(folder, "set.json") &&
           has(folder, "words.bin") && has(folder, "examples.bin");
}

static bool is_references(const char *folder, const char *name) {
    return strlen(name) == 32 && is_hex(name, 32) && has(folder, AX_REFERENCE_FILE);
}

static bool is_gguf(const char *folder, const char *name) {
    const size_t n = strlen(name);
    return n > 17 && name[n - 17] == '-' && is_hex(name + n - 16, 16) &&
           has(folder, "config.json") && has(folder, "tokenizer.json") &&
           (has(folder, AX_HF_GGUF) || has(folder, "model.safetensors") ||
            has(folder, "model.safetensors.index.json"));
}

/* Lists the files that were prepared. */
static enum ax_status name_prepared(struct ax_buf *b, const char *folder) {
    struct ax_json_doc doc = {0};
    char *path;
    AX_TRY(ax_path_join(&path, folder, "set.json"));
    enum ax_status st = ax_json_load(&doc, path, MAX_SET);
    if (st == AX_OK) {
        struct ax_json files = ax_json_root(&doc);
        for (const char *const *key =
                 (const char *const[]){"body", "description", "rows", "files", NULL};
             *key && json_is_object(files.v); key++)
            files = ax_json_get(files, *key);
        for (size_t i = 0; st == AX_OK && i < json_array_size(files.v); i++) {
            const char *file = json_string_value(json_object_get(ax_json_at(files, i).v, "path"));
            if (file)
                st = ax_buf_printf(b, "%s%s", b->len ? ", " : "", file);
        }
    } else if (st != AX_ERR_NOMEM) {
        ax_error_clear(); /* a corrupted entry can still be cleared */
        st = AX_OK;
    }
    ax_json_free(&doc);
    ax_free(path);
    return st;
}

/* The first file of the model. */
static enum ax_status name_references(struct ax_buf *b, const char *folder) {
    struct ax_safetensors file;
    char *path;
    AX_TRY(ax_path_join(&path, folder, AX_REFERENCE_FILE));
    enum ax_status st = ax_safetensors_open(&file, path);
    ax_free(path);
    if (st != AX_OK) {
        ax_error_clear(); /* a corrupted entry can still be cleared */
        return st == AX_ERR_NOMEM ? st : AX_OK;
    }
    const struct ax_st_entry *e = ax_safetensors_find(&file, "description");
    json_t *v = e ? json_loadb(e->data, e->bytes, 0, NULL) : NULL;
    const json_t *files = json_object_get(json_object_get(v, "model"), "files");
    const char *model = json_string_value(json_array_get(json_array_get(files, 0), 0));
    if (model)
        st = ax_buf_puts(b, model);
    json_decref(v);
    ax_safetensors_close(&file);
    return st;
}

static enum ax_status name_gguf(struct ax_buf *b, const char *folder) {
    char path[PATH_MAX], target[PATH_MAX];
    snprintf(path, sizeof path, "%s/" AX_HF_GGUF, folder);
    const ssize_t n = readlink(path, target, sizeof target - 1);
    if (n <= 0)
        return ax_buf_puts(b, "a converted copy, from an earlier version");
    target[n] = '\0';
    return ax_buf_printf(b, "%s%s", target, ax_path_exists(target) ? "" : " (no longer there)");
}

static const struct folder_kind {
    enum ax_cache_kind kind;
    bool (*is)(const char *folder, const char *name);
    enum ax_status (*name)(struct ax_buf *b, const char *folder);
} kinds[] = {{AX_CACHE_PREPARED, is_prepared, name_prepared},
             {AX_CACHE_REFERENCES, is_references, name_references},
             {AX_CACHE_GGUF, is_gguf, name_gguf}};

static const struct folder_kind *kind_of(const char *folder, const char *name) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].is(folder, name))
            return &kinds[i];
    return NULL;
}

static enum ax_status add_known(struct ax_cache_list *l, const struct folder_kind *k,
                                const char *path) {
    struct ax_buf what = {0};
    char *lock = NULL;
    enum ax_status st;
    AX_TRY_GOTO(ax_sprintf(&lock, "%s.lock", path), st, done);
    AX_TRY_GOTO(k->name(&what, path), st, done);
    st = add(l, k->kind, path, lock, NULL, what.data ? what.data : "");
done:
    ax_buf_free(&what);
    ax_free(lock);
    return st;
}

/* ---- leftovers, and the rest of the program's own cache ---- */

/* Is it the name of an entry, KEY or NAME-KEY? */
static bool is_key(const char *name, size_t n) {
    return (n == 32 && is_hex(name, n)) ||
           (n > 17 && name[n - 17] == '-' && is_hex(name + n - 16, 16));
}

/* Length of NAME in NAME.tmp-PID or NAME.old-PID (base/io.h); 0: it is not one. */
static size_t unfinished(const char *name, pid_t *owner) {
    const char *dash = strrchr(name, '-');
    const size_t digits = dash ? strspn(dash + 1, "0123456789") : 0;
    if (digits == 0 || digits > 9 || dash[1 + digits] != '\0' || dash - name < 5 ||
        (memcmp(dash - 4, ".tmp", 4) != 0 && memcmp(dash - 4, ".old", 4) != 0))
        return 0;
    *owner = (pid_t)strtol(dash + 1, NULL, 10);
    return (size_t)(dash - 4 - name);
}

/* Length of NAME in NAME.lock; 0: it is not one. */
static size_t locked_name(const char *name) {
    const size_t n = strlen(name);
    return n > 5 && strcmp(name + n - 5, ".lock") == 0 ? n - 5 : 0;
}

static enum ax_status add_unfinished(struct ax_cache_list *l, const char *path, size_t tail,
                                     pid_t owner) {
    char *lock, *name = NULL;
    AX_TRY(ax_sprintf(&lock, "%.*s.lock", (int)(strlen(path) - tail), path));
    enum ax_status st = ax_sprintf(&name, "unfinished, of process %ld", (long)owner);
    const size_t before = l->n;
    if (st == AX_OK)
        st = add(l, AX_CACHE_LEFTOVER, path, lock, NULL, name);
    if (st == AX_OK && l->n > before)
        l->entries[before].owner = owner;
    ax_free(name);
    ax_free(lock);
    return st;
}

/* A lock is an entry if what it locks is gone. */
static enum ax_status add_lock(struct ax_cache_list *l, const char *path) {
    char *locked;
    AX_TRY(ax_strndup(&locked, path, strlen(path) - 5));
    const bool gone = !ax_path_exists(locked);
    ax_free(locked);
    return gone ? add(l, AX_CACHE_LEFTOVER, path, path, NULL, "a lock of what is gone") : AX_OK;
}

/* What is in the program's own cache, and whose it is. */
static enum ax_status add_other(struct ax_cache_list *l, const char *path, const char *name) {
    static const struct {
        const char *name;
        enum ax_cache_kind kind;
        const char *what;
    } own[] = {{"products", AX_CACHE_PRODUCTS, "algorithms of a GPU's matrix products"},
               {"sandbox", AX_CACHE_SANDBOX, "the compiled interpreter of the sandbox"}};
    char *lock;
    size_t i = 0;
    while (i < 2 && strcmp(name, own[i].name) != 0)
        i++;
    AX_TRY(ax_path_join(&lock, path, "lock"));
    const enum ax_status st =
        i < 2 ? add(l, own[i].kind, path, lock, NULL, own[i].what)
              : add(l, AX_CACHE_OTHER, path, lock, NULL, "unknown to this version of axtrain");
    ax_free(lock);
    return st;
}

/* all: whatever it is. */
static enum ax_status add_path(struct ax_cache_list *l, const char *path, const char *name,
                               bool all) {
    pid_t owner = 0;
    struct stat info;
    if (lstat(path, &info) != 0)
        return AX_OK;          /* removed meanwhile */
    if (S_ISLNK(info.st_mode)) /* it points out of the cache */
        return all ? add_other(l, path, name) : AX_OK;
    const struct folder_kind *k = S_ISDIR(info.st_mode) ? kind_of(path, name) : NULL;
    if (k)
        return add_known(l, k, path);
    size_t n = unfinished(name, &owner);
    if (n > 0 && (all || is_key(name, n)))
        return add_unfinished(l, path, strlen(name) - n, owner);
    n = locked_name(name);
    if (n > 0 && is_key(name, n))
        return add_lock(l, path);
    if (strlen(name) == 32 && is_hex(name, 32) && has(path, "set.json")) {
        char *lock;
        AX_TRY(ax_sprintf(&lock, "%s.lock", path));
        const enum ax_status st = add(l, AX_CACHE_LEFTOVER, path, lock, NULL,
                                      "prepared data that this version does not read");
        ax_free(lock);
        return st;
    }
    return all ? add_other(l, path, name) : AX_OK;
}

static enum ax_status add_all_in(struct ax_cache_list *l, const char *dir, bool all) {
    struct ax_dir d;
    enum ax_status st = AX_OK;
    ax_dir_open(&d, dir);
    for (const char *name; st == AX_OK && (name = ax_dir_next(&d)) != NULL;) {
        char *path;
        st = ax_path_join(&path, dir, name);
        if (st == AX_OK)
            st = add_path(l, path, name, all);
        ax_free(path);
    }
    return ax_dir_end(&d, st);
}

static enum ax_status add_own(struct ax_cache_list *l) {
    char *own;
    AX_TRY(ax_base_model_cache(&own));
    const enum ax_status st = add_all_in(l, own, true);
    ax_free(own);
    return st;
}

static enum ax_status add_dirs(struct ax_cache_list *l, const struct ax_arg_list *dirs) {
    if (dirs->n == 0)
        return add_all_in(l, USUAL, false);
    for (int i = 0; i < dirs->n; i++) {
        if (!ax_path_is_dir(dirs->text[i]))
            return ax_error(AX_ERR_CONFIG,
                            "--dir: %s: no such folder; give a dataset_prepared_path",
                            dirs->text[i]);
        AX_TRY(add_all_in(l, dirs->text[i], false));
    }
    return AX_OK;
}

/* ---- downloads ---- */

/* Downloads that were interrupted: how many, and their bytes. */
static int count_incomplete(const char *folder, double *bytes) {
    static const char tail[] = ".incomplete";
    char path[PATH_MAX];
    struct stat info;
    int n = 0;
    snprintf(path, sizeof path, "%s/blobs", folder);
    struct ax_dir d;
    *bytes = 0;
    ax_dir_open(&d, path);
    for (const char *name; (name = ax_dir_next(&d)) != NULL;) {
        const size_t len = strlen(name);
        if (len < sizeof tail || strcmp(name + len - (sizeof tail - 1), tail) != 0 ||
            fstatat(dirfd(d.dir), name, &info, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        *bytes += (double)info.st_size;
        n++;
    }
    ax_dir_end_or_warn(&d, AX_OK);
    return n;
}

static enum ax_status add_repo(void *ctx, const struct ax_hub_owned *o) {
    char *name, size[32];
    double bytes;
    const char *kind = o->dataset ? "data set" : "model";
    if (!ax_path_exists(o->folder)) /* another tool has removed it */
        return add(ctx, AX_CACHE_LEFTOVER, o->locks, o->use, o->locks, "locks of what is gone");
    const int n = count_incomplete(o->folder, &bytes);
    AX_TRY(n == 0 ? ax_sprintf(&name, "%s %s", kind, o->id)
                  : ax_sprintf(&name, "%s %s, with %d incomplete download%s (%s)", kind, o->id, n,
                               n == 1 ? "" : "s", ax_format_bytes(size, sizeof size, bytes)));
    const enum ax_status st = add(ctx, AX_CACHE_HUB, o->folder, o->use, o->locks, name);
    ax_free(name);
    return st;
}

static enum ax_status add_hub(struct ax_cache_list *l) {
    char *cache;
    AX_TRY(ax_hub_cache_folder(&cache));
    const enum ax_status st = ax_hub_each_owned(cache, add_repo, l);
    ax_free(cache);
    return st;
}

/* ---- all ---- */

static int by_size(const void *a, const void *b) {
    const struct ax_cache_entry *x = a, *y = b;
    return x->bytes != y->bytes ? (x->bytes < y->bytes) - (x->bytes > y->bytes)
                                : strcmp(x->path, y->path);
}

enum ax_status ax_cache_find(struct ax_cache_list *l, const struct ax_arg_list *dirs) {
    *l = (struct ax_cache_list){0};
    enum ax_status st;
    AX_TRY_GOTO(add_own(l), st, fail);
    AX_TRY_GOTO(add_dirs(l, dirs), st, fail);
    AX_TRY_GOTO(add_hub(l), st, fail);
    if (l->n > 0)
        qsort(l->entries, l->n, sizeof *l->entries, by_size);
    return AX_OK;
fail:
    ax_cache_list_free(l);
    return st;
}

void ax_cache_list_free(struct ax_cache_list *l) {
    for (size_t i = 0; i < l->n; i++) {
        ax_free(l->entries[i].path);
        ax_free(l->entries[i].lock);
        ax_free(l->entries[i].more);
        ax_free(l->entries[i].name);
    }
    ax_free(l->entries);
    *l = (struct ax_cache_list){0};
}
