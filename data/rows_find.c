/* Read ax_rows_find first: a file, a folder, a glob, or a data set in the hub's local cache. */
#include "data/rows_find.h"

#include <ctype.h>
#include <dirent.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"

#define MAX_DEPTH 6
#define MAX_FILES 100000

static const struct {
    const char *ending;
    enum ax_rows_kind kind;
} endings[] = {
    {".jsonl", AX_ROWS_JSON}, {".json", AX_ROWS_JSON}, {".ndjson", AX_ROWS_JSON},
    {".csv", AX_ROWS_CSV},    {".tsv", AX_ROWS_TSV},   {".txt", AX_ROWS_TEXT},
};

/* Words of a file's path that tell its split. */
static const struct {
    const char *word, *split;
} words[] = {
    {"train", "train"},      {"training", "train"}, {"validation", "validation"},
    {"valid", "validation"}, {"dev", "validation"}, {"val", "validation"},
    {"test", "test"},        {"testing", "test"},   {"eval", "test"},
    {"evaluation", "test"},
};

/* JSON files that describe a data set but hold no rows. */
static const char *const not_rows[] = {"dataset_info.json", "dataset_infos.json", "state.json",
                                       "config.json"};

static bool ends_with(const char *s, size_t n, const char *ending) {
    const size_t m = strlen(ending);
    return n >= m && strncasecmp(s + n - m, ending, m) == 0;
}

/* Length of a name without .gz or .zst. */
static size_t unpacked_length(const char *name) {
    const size_t n = strlen(name);
    if (ends_with(name, n, ".gz"))
        return n - 3;
    return ends_with(name, n, ".zst") ? n - 4 : n;
}

static bool kind_by_name(const char *name, enum ax_rows_kind *kind) {
    const size_t n = unpacked_length(name);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        if (ends_with(name, n, endings[i].ending)) {
            *kind = endings[i].kind;
            return true;
        }
    }
    return false;
}

static enum ax_status kind_by_format(const char *format, enum ax_rows_kind *kind) {
    if (strcmp(format, "json") == 0)
        *kind = AX_ROWS_JSON;
    else if (strcmp(format, "csv") == 0)
        *kind = AX_ROWS_CSV;
    else if (strcmp(format, "text") == 0)
        *kind = AX_ROWS_TEXT;
    else
        return ax_error(AX_ERR_UNSUPPORTED,
                        "data sets of format \"%s\" are not supported yet; convert them to JSONL",
                        format);
    return AX_OK;
}

/* The split that a word of the path tells: between separators, digits or ends. */
static const char *split_by_name(const char *path) {
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const size_t n = strlen(words[i].word);
        for (const char *s = path; (s = strcasestr(s, words[i].word)) != NULL; s++)
            if ((s == path || !isalpha((unsigned char)s[-1])) && !isalpha((unsigned char)s[n]))
                return words[i].split;
    }
    return "";
}

static enum ax_status add(struct ax_found *f, const struct ax_rows_options *o, const char *path,
                          const char *name) {
    enum ax_rows_kind kind = AX_ROWS_JSON;
    if (o->format)
        AX_TRY(kind_by_format(o->format, &kind));
    else if (ends_with(name, strlen(name), ".parquet") || ends_with(name, strlen(name), ".arrow"))
        return ax_error(AX_ERR_UNSUPPORTED,
                        "%s: Parquet and Arrow files are not supported yet; convert them to JSONL",
                        path);
    else
        (void)kind_by_name(name, &kind); /* what bears no known ending is most often JSONL */
    if (f->n == MAX_FILES)
        return ax_error(AX_ERR_DATA, "%s: more than %d files", o->path, MAX_FILES);
    AX_TRY(ax_regrow(&f->files, f->n, f->n + 1, sizeof *f->files));
    struct ax_found_file *file = &f->files[f->n];
    *file = (struct ax_found_file){.kind = kind, .split = split_by_name(name)};
    AX_TRY(ax_strdup(&file->path, path));
    f->n++;
    return AX_OK;
}

/* What is found in a folder counts only where its name says what it is. */
static bool is_wanted(const char *name) {
    const size_t n = strlen(name);
    enum ax_rows_kind kind;
    for (size_t i = 0; i < sizeof not_rows / sizeof *not_rows; i++)
        if (strcmp(name, not_rows[i]) == 0)
            return false;
    return kind_by_name(name, &kind) || ends_with(name, n, ".parquet") ||
           ends_with(name, n, ".arrow");
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static enum ax_status list_folder(const char *path, char ***names, size_t *n) {
    DIR *dir = opendir(path);
    if (!dir)
        return ax_error(AX_ERR_IO, "%s: cannot list the folder: %m", path);
    enum ax_status st = AX_OK;
    for (const struct dirent *e; st == AX_OK && (e = readdir(dir)) != NULL;) {
        if (e->d_name[0] == '.')
            continue;
        AX_TRY_GOTO(ax_regrow(names, *n, *n + 1, sizeof **names), st, done);
        st = ax_strdup(&(*names)[*n], e->d_name);
        *n += st == AX_OK;
    }
    if (st == AX_OK && *n > 0)
        qsort(*names, *n, sizeof **names, by_name);
done:
    closedir(dir);
    return st;
}

/* A linked folder may lead back to where it stands; a linked file is what the hub's cache holds. */
static bool is_link(const char *path) {
    struct stat info;
    return lstat(path, &info) == 0 && S_ISLNK(info.st_mode);
}

/* `root` is the length of the folder's own path: splits are told by what lies below it. */
static enum ax_status add_folder(struct ax_found *f, const struct ax_rows_options *o,
                                 const char *path, size_t root, int depth) {
    if (depth > MAX_DEPTH)
        return ax_error(AX_ERR_DATA, "%s: more than %d folders deep", path, MAX_DEPTH);
    char **names = NULL;
    size_t n = 0;
    enum ax_status st = list_folder(path, &names, &n);
    for (size_t i = 0; i < n && st == AX_OK; i++) {
        char *child;
        AX_TRY_GOTO(ax_path_join(&child, path, names[i]), st, done);
        if (ax_path_is_dir(child))
            st = is_link(child) ? AX_OK : add_folder(f, o, child, root, depth + 1);
        else if (is_wanted(names[i]))
            st = add(f, o, child, child + root);
        ax_free(child);
    }
done:
    for (size_t i = 0; i < n; i++)
        ax_free(names[i]);
    ax_free(names);
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
            st = ax_error(AX_ERR_DATA, "%s: data_files: there is no file %s", o->path, path);
        ax_free(path);
        AX_TRY(st);
    }
    return AX_OK;
}

/* A configuration of a hub data set is a folder in it. */
static enum ax_status find_named(struct ax_found *f, const struct ax_rows_options *o,
                                 const char *folder) {
    char *path;
    AX_TRY(ax_path_join(&path, folder, o->name));
    enum ax_status st = AX_OK;
    if (ax_path_is_dir(path))
        st = add_folder(f, o, path, strlen(path), 0);
    else
        st = ax_error(AX_ERR_DATA, "%s: name: there is no folder %s", o->path, path);
    ax_free(path);
    return st;
}

static enum ax_status find(struct ax_found *f, const struct ax_rows_options *o, const char *path) {
    const bool is_dir = ax_path_is_dir(path);
    if (o->n_data_files > 0)
        return add_data_files(f, o, is_dir ? path : ".");
    if (is_dir && o->name && strcmp(o->name, "default") != 0)
        return find_named(f, o, path);
    if (is_dir)
        return add_folder(f, o, path, strlen(path), 0);
    f->lone = ax_path_exists(path) || strcmp(path, "-") == 0;
    if (f->lone)
        return add(f, o, path, path);
    return add_glob(f, o, path);
}

enum ax_status ax_rows_find(struct ax_found *f, const struct ax_rows_options *o) {
    *f = (struct ax_found){0};
    if (strstr(o->path, "://"))
        return ax_error(AX_ERR_UNSUPPORTED,
                        "%s: data sets from the network are not supported yet; download the files "
                        "and give their folder",
                        o->path);
    char *cached = NULL;
    enum ax_status st = AX_OK;
    if (!ax_path_exists(o->path) && strcmp(o->path, "-") != 0)
        AX_TRY(ax_hub_dataset_folder(o->path, o->revision, &cached));
    st = find(f, o, cached ? cached : o->path);
    if (st == AX_OK && f->n == 0)
        st = ax_error(AX_ERR_DATA,
                      "%s: there %s; give a file, a folder, a glob or - (JSON, JSONL, CSV, text; "
                      "also .gz and .zst)",
                      o->path,
                      cached || ax_path_exists(o->path) ? "are no data files in it"
                                                        : "is no such file or folder");
    ax_free(cached);
    if (st != AX_OK)
        ax_found_free(f);
    return st;
}

void ax_found_free(struct ax_found *f) {
    for (size_t i = 0; i < f->n; i++)
        ax_free(f->files[i].path);
    ax_free(f->files);
    *f = (struct ax_found){0};
}
