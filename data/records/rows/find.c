/* Read ax_rows_find first: a file, a folder, a glob, or a hub data set in the local cache. */
#include "data/records/rows/find.h"

#include <dirent.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"

#define MAX_DEPTH 6
#define MAX_NAMES 200000

/* o->format takes precedence over the extension. A file without either is read as JSONL. */
static enum ax_status kind_of(enum ax_rows_kind *kind, const struct ax_rows_options *o,
                              const char *name) {
    static const struct {
        const char *format;
        enum ax_rows_kind kind;
    } formats[] = {{"json", AX_ROWS_JSON},
                   {"csv", AX_ROWS_CSV},
                   {"text", AX_ROWS_TEXT},
                   {"parquet", AX_ROWS_PARQUET}};
    for (size_t i = 0; o->format && i < sizeof formats / sizeof *formats; i++) {
        if (strcmp(o->format, formats[i].format) == 0) {
            *kind = formats[i].kind;
            return AX_OK;
        }
    }
    const size_t n = strlen(name);
    if (o->format || (n > 6 && strcasecmp(name + n - 6, ".arrow") == 0))
        return ax_error(
            AX_ERR_UNSUPPORTED,
            "%s: data of format \"%s\" is not supported; convert it to JSONL or Parquet", name,
            o->format ? o->format : "arrow");
    *kind = AX_ROWS_JSON;
    (void)ax_rows_kind_of(name, kind);
    return AX_OK;
}

static enum ax_status add(struct ax_found *f, const struct ax_rows_options *o, const char *path,
                          const char *name) {
    enum ax_rows_kind kind;
    char split[AX_SPLIT_NAME_MAX];
    AX_TRY(kind_of(&kind, o, path));
    ax_rows_split_of(name, split);
    return ax_found_add(f, path, kind, split);
}

/* ---- the files in a folder ---- */

struct names {
    char **v; /* paths relative to the folder */
    size_t n;
};

static void free_names(struct names *l) {
    for (size_t i = 0; i < l->n; i++)
        ax_free(l->v[i]);
    ax_free(l->v);
    *l = (struct names){0};
}

static enum ax_status add_name(struct names *l, const char *name) {
    if (l->n == MAX_NAMES)
        return ax_error(AX_ERR_DATA, "%s: more than %d files", name, MAX_NAMES);
    AX_TRY(ax_regrow(&l->v, l->n, l->n + 1, sizeof *l->v));
    AX_TRY(ax_strdup(&l->v[l->n], name));
    l->n++;
    return AX_OK;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Folders that are links are skipped, because they may lead back to a parent. Files that are
 * links are read: the hub's cache consists of them. */
static bool is_link(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0 && S_ISLNK(info.st_mode);
}

/* `root` is the length of the folder's own path. */
static enum ax_status walk(struct names *l, const char *path, size_t root, int depth) {
    if (depth > MAX_DEPTH)
        return ax_error(AX_ERR_DATA, "%s: more than %d folders deep", path, MAX_DEPTH);
    DIR *dir = opendir(path);
    if (!dir)
        return ax_error(AX_ERR_IO, "%s: cannot list the folder: %m", path);
    enum ax_status st = AX_OK;
    for (const struct dirent *e; st == AX_OK && (e = readdir(dir)) != NULL;) {
        char *child;
        if (e->d_name[0] == '.')
            continue;
        AX_TRY_GOTO(ax_path_join(&child, path, e->d_name), st, done);
        if (!ax_path_is_dir(child))
            st = add_name(l, child + root);
        else if (!is_link(child))
            st = walk(l, child, root, depth + 1);
        ax_free(child);
    }
done:
    closedir(dir);
    return st;
}

static enum ax_status list_folder(struct names *l, const char *path) {
    const size_t n = strlen(path);
    AX_TRY(walk(l, path, n > 0 && path[n - 1] == '/' ? n : n + 1, 0));
    if (l->n > 0)
        qsort(l->v, l->n, sizeof *l->v, by_name);
    return AX_OK;
}

/* Prefixes the chosen files with their folder, and applies the configured format. */
static enum ax_status place(struct ax_found *f, const struct ax_rows_options *o,
                            const char *folder) {
    for (size_t i = 0; i < f->n; i++) {
        struct ax_found_file *file = &f->files[i];
        char *path;
        AX_TRY(ax_path_join(&path, folder, file->path));
        ax_free(file->path);
        file->path = path;
        AX_TRY(kind_of(&file->kind, o, path));
    }
    return AX_OK;
}

static enum ax_status refuse_arrow(const struct names *l, const struct ax_rows_options *o) {
    enum ax_rows_kind kind;
    for (size_t i = 0; i < l->n && !o->format; i++)
        AX_TRY(kind_of(&kind, o, l->v[i]));
    return AX_OK;
}

static enum ax_status find_in_folder(struct ax_found *f, const struct ax_rows_options *o,
                                     const char *folder) {
    struct names l = {0};
    struct ax_card card = {0};
    enum ax_status st;
    AX_TRY_GOTO(list_folder(&l, folder), st, done);
    AX_TRY_GOTO(ax_card_load(&card, folder), st, done);
    AX_TRY_GOTO(ax_rows_choose(f, o, (const char *const *)l.v, l.n, &card, false), st, done);
    AX_TRY_GOTO(f->n == 0 ? refuse_arrow(&l, o) : place(f, o, folder), st, done);
done:
    ax_card_free(&card);
    free_names(&l);
    return st;
}

static enum ax_status add_glob(struct ax_found *f, const struct ax_rows_options *o,
                               const char *pattern) {
    glob_t g = {0};
    const int rc = glob(pattern, GLOB_MARK, NULL, &g);
    enum ax_status st = AX_OK;
    if (rc == GLOB_NOSPACE)
        st = ax_error(AX_ERR_NOMEM, "%s: out of memory while looking for files", pattern);
    for (size_t i = 0; rc == 0 && i < g.gl_pathc && st == AX_OK; i++) {
        const char *path = g.gl_pathv[i];
        const char *name = strrchr(path, '/');
        if (path[strlen(path) - 1] != '/')
            st = add(f, o, path, name ? name + 1 : path);
    }
    globfree(&g);
    return st;
}

static enum ax_status add_data_files(struct ax_found *f, const struct ax_rows_options *o,
                                     const char *folder) {
    for (size_t i = 0; i < o->n_data_files; i++) {
        const char *name = o->data_files[i];
        char *path;
        if (name[0] == '/')
            AX_TRY(ax_strdup(&path, name));
        else
            AX_TRY(ax_path_join(&path, folder, name));
        const size_t before = f->n;
        enum ax_status st = AX_OK;
        if (ax_path_exists(path) && !ax_path_is_dir(path))
            st = add(f, o, path, name);
        else
            st = add_glob(f, o, path);
        if (st == AX_OK && f->n == before)
            st = ax_error(AX_ERR_DATA, "%s: data_files: no such file: %s", o->path, path);
        ax_free(path);
        AX_TRY(st);
    }
    return AX_OK;
}

static enum ax_status find(struct ax_found *f, const struct ax_rows_options *o) {
    const char *path = o->path;
    const bool is_dir = ax_path_is_dir(path);
    if (o->n_data_files > 0)
        return add_data_files(f, o, is_dir ? path : ".");
    if (is_dir)
        return find_in_folder(f, o, path);
    f->lone = ax_path_exists(path) || strcmp(path, "-") == 0;
    if (f->lone)
        return add(f, o, path, path);
    return add_glob(f, o, path);
}

/* ---- a data set of the hub ---- */

bool ax_hub_dataset_is(const char *path) {
    enum ax_rows_kind kind;
    const char *slash = strchr(path, '/');
    return slash && ax_hub_is_id(path) && !ax_path_exists(path) && !ax_rows_kind_of(path, &kind);
}

static struct ax_hub_repo repo_of(const struct ax_rows_options *o) {
    return (struct ax_hub_repo){AX_HUB_DATASET, o->path, o->revision};
}

enum ax_status ax_hub_dataset_use(struct ax_lock *use, const struct ax_rows_options *o) {
    const struct ax_hub_repo r = repo_of(o);
    return ax_hub_dataset_is(o->path) ? ax_hub_use(use, &r) : AX_OK;
}

static enum ax_status refuse_empty(const struct ax_rows_options *o,
                                   const struct ax_hub_snapshot *s) {
    for (size_t i = 0; i < s->list.n; i++) {
        const char *path = s->list.files[i].path;
        const size_t n = strlen(path);
        if (n > 3 && strcmp(path + n - 3, ".py") == 0)
            return ax_error(AX_ERR_UNSUPPORTED,
                            "%s: the data set has no data files, only Python code (%s), which "
                            "axtrain does not run. Try `revision: refs/convert/parquet`.",
                            o->path, path);
    }
    return ax_error(AX_ERR_DATA, "%s: no data files found there (JSON, JSONL, CSV, Parquet)",
                    o->path);
}

enum ax_status ax_hub_dataset_choose(struct ax_found *f, const struct ax_rows_options *o,
                                     const struct ax_hub_snapshot *s) {
    struct ax_card card = {0};
    const char **names;
    enum ax_status st;
    AX_TRY(ax_alloc(&names, s->list.n, sizeof *names));
    for (size_t i = 0; i < s->list.n; i++)
        names[i] = s->list.files[i].path;
    if (o->n_data_files > 0) {
        AX_TRY_GOTO(ax_rows_choose_named(f, o, names, s->list.n), st, done);
    } else {
        AX_TRY_GOTO(ax_card_load(&card, s->folder), st, done);
        AX_TRY_GOTO(ax_rows_choose(f, o, names, s->list.n, &card, true), st, done);
    }
    if (f->n == 0)
        st = refuse_empty(o, s);
done:
    ax_card_free(&card);
    ax_free(names);
    return st;
}

/* Looks up the data set in the cache. AX_ERR_DATA if it is not there. */
static enum ax_status find_snapshot(struct ax_hub_snapshot *s, const struct ax_rows_options *o) {
    const struct ax_hub_repo r = repo_of(o);
    char *cache;
    AX_TRY(ax_hub_cache_folder(&cache));
    const enum ax_status st = ax_hub_snapshot_find(s, cache, &r);
    ax_free(cache);
    AX_TRY(st);
    if (s->commit)
        return AX_OK;
    return ax_error(AX_ERR_DATA,
                    "%s: not found as a file or folder, nor as a data set in the local cache (%s); "
                    "download it with `axtrain fetch`, or write ./ before a path",
                    o->path, s->repo_folder);
}

static enum ax_status find_in_hub(struct ax_found *f, const struct ax_rows_options *o,
                                  const struct ax_hub_snapshot *s) {
    if (!s->listed) /* another tool downloaded it, so the files there are all that is known */
        return o->n_data_files > 0 ? add_data_files(f, o, s->folder)
                                   : find_in_folder(f, o, s->folder);
    AX_TRY(ax_hub_dataset_choose(f, o, s));
    return place(f, o, s->folder);
}

enum ax_status ax_rows_find(struct ax_found *f, const struct ax_rows_options *o) {
    *f = (struct ax_found){0};
    if (strstr(o->path, "://"))
        return ax_error(AX_ERR_UNSUPPORTED,
                        "%s: data sets at this kind of URL are not supported yet; download the "
                        "files and give their folder",
                        o->path);
    struct ax_hub_snapshot s = {0};
    const bool hub = ax_hub_dataset_is(o->path);
    enum ax_status st = hub ? find_snapshot(&s, o) : AX_OK;
    if (st == AX_OK)
        st = hub ? find_in_hub(f, o, &s) : find(f, o);
    if (st == AX_OK && f->n == 0)
        st = ax_error(AX_ERR_DATA,
                      "%s: %s; give a file, a folder, a glob or - (JSON, JSONL, CSV, Parquet, "
                      "text; also .gz and .zst)",
                      o->path,
                      hub || ax_path_exists(o->path) ? "no data files found"
                                                     : "no such file or folder");
    ax_hub_snapshot_free(&s);
    if (st != AX_OK)
        ax_found_free(f);
    return st;
}
