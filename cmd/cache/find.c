#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
    DIR *dir = opendir(path);
    const struct dirent *e;
    enum ax_status st = AX_OK;
    while (dir && st == AX_OK && (e = readdir(dir)) != NULL) {
        char *below;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        st = ax_path_join(&below, path, e->d_name);
        if (st == AX_OK)
            st = walk(below, depth + 1, bytes, written);
        ax_free(below);
    }
    if (dir)
        closedir(dir);
    return st;
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

const char *const ax_cache_kind_names[AX_CACHE_KINDS] = {"prepared", "references", "gguf", "hub"};

static enum ax_status add(struct ax_cache_list *l, enum ax_cache_kind kind, const char *path,
                          const char *lock, const char *more, const char *name) {
    struct stat info;
    if (lstat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        return AX_OK;                 /* a link points out of the cache */
    for (size_t i = 0; i < l->n; i++) /* --dir is repeatable, and may be a folder listed anyway */
        if (l->entries[i].device == info.st_dev && l->entries[i].inode == info.st_ino)
            return AX_OK;
    if (l->n == l->cap) {
        const size_t grown = l->cap ? 2 * l->cap : 16;
        AX_TRY(ax_regrow(&l->entries, l->cap, grown, sizeof *l->entries));
        l->cap = grown;
    }
    struct ax_cache_entry *e = &l->entries[l->n++];
    *e = (struct ax_cache_entry){.kind = kind, .device = info.st_dev, .inode = info.st_ino};
    AX_TRY(ax_strdup(&e->path, path));
    AX_TRY(ax_strdup(&e->lock, lock));
    AX_TRY(ax_strdup(&e->name, name));
    if (more)
        AX_TRY(ax_strdup(&e->more, more));
    AX_TRY(cache_usage(path, &e->bytes, &e->used));
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
    return n > 0 && (size_t)n < sizeof path && lstat(path, &info) == 0;
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

static enum ax_status add_folder(struct ax_cache_list *l, const char *dir, const char *name) {
    struct ax_buf what = {0};
    char *path, *lock = NULL;
    AX_TRY(ax_path_join(&path, dir, name));
    enum ax_status st = AX_OK;
    const struct folder_kind *k = kind_of(path, name);
    if (k) {
        AX_TRY_GOTO(ax_sprintf(&lock, "%s.lock", path), st, done);
        AX_TRY_GOTO(k->name(&what, path), st, done);
        st = add(l, k->kind, path, lock, NULL, what.data ? what.data : "");
    }
done:
    ax_buf_free(&what);
    ax_free(lock);
    ax_free(path);
    return st;
}

static enum ax_status add_all_in(struct ax_cache_list *l, const char *dir) {
    DIR *d = opendir(dir);
    const struct dirent *e;
    enum ax_status st = AX_OK;
    while (d && st == AX_OK && (e = readdir(d)) != NULL)
        if (e->d_name[0] != '.')
            st = add_folder(l, dir, e->d_name);
    if (d)
        closedir(d);
    return st;
}

static enum ax_status add_own(struct ax_cache_list *l) {
    char *own;
    AX_TRY(ax_base_model_cache(&own));
    const enum ax_status st = add_all_in(l, own);
    ax_free(own);
    return st;
}

static enum ax_status add_dirs(struct ax_cache_list *l, const struct ax_arg_list *dirs) {
    if (dirs->n == 0)
        return add_all_in(l, USUAL);
    for (int i = 0; i < dirs->n; i++) {
        if (!ax_path_is_dir(dirs->text[i]))
            return ax_error(AX_ERR_CONFIG,
                            "--dir: %s: no such folder; give a dataset_prepared_path",
                            dirs->text[i]);
        AX_TRY(add_all_in(l, dirs->text[i]));
    }
    return AX_OK;
}

/* ---- downloads ---- */

static enum ax_status add_repo(void *ctx, const struct ax_hub_owned *o) {
    char *name;
    AX_TRY(ax_sprintf(&name, "%s %s", o->dataset ? "data set" : "model", o->id));
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
