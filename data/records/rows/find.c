/* The files of a data set: a file, a folder, a glob, or a hub data set in the local cache. Read
 * ax_rows_find first, then ax_rows_choose, which works on names alone. */
#include "data/records/rows/find.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/dir.h"
#include "base/io.h"
#include "base/mem.h"
#include "ckpt/state/checkpoint.h"
#include "data/records/rows/pattern.h"

#define MAX_FILES 100000

static const struct {
    const char *ending;
    enum ax_rows_kind kind;
} endings[] = {
    {".jsonl", AX_ROWS_JSON},      {".json", AX_ROWS_JSON}, {".ndjson", AX_ROWS_JSON},
    {".csv", AX_ROWS_CSV},         {".tsv", AX_ROWS_TSV},   {".txt", AX_ROWS_TEXT},
    {".parquet", AX_ROWS_PARQUET},
};

/* Words in a file's path that name its split. */
static const struct {
    const char *word, *split;
} words[] = {
    {"train", "train"},      {"training", "train"}, {"validation", "validation"},
    {"valid", "validation"}, {"dev", "validation"}, {"val", "validation"},
    {"test", "test"},        {"testing", "test"},   {"eval", "test"},
    {"evaluation", "test"},
};

/* Files that describe a data set but contain no records. */
static const char *const not_rows[] = {"dataset_info.json", "dataset_infos.json", "state.json",
                                       "config.json", "requirements.txt"};

/* ---- names ---- */

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

/* The kind by extension (before .gz or .zst); false if unknown. */
static bool kind_by_ending(const char *name, enum ax_rows_kind *kind) {
    const size_t n = unpacked_length(name);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        if (ends_with(name, n, endings[i].ending)) {
            *kind = endings[i].kind;
            return true;
        }
    }
    return false;
}

/* True if a file found by listing can contain records. (Not dataset_info.json, not notes.md.) */
static bool is_data(const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    enum ax_rows_kind kind;
    for (size_t i = 0; i < sizeof not_rows / sizeof *not_rows; i++)
        if (strcmp(name, not_rows[i]) == 0)
            return false;
    return name[0] != '.' && path[0] != '.' && !strstr(path, "/.") && kind_by_ending(name, &kind);
}

/* The split that the first n bytes of a path name, in lower case as in datasets. */
static const char *word_in(const char *path, size_t n) {
    static const char around[] = "-._ /0123456789"; /* or an end */
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const size_t len = strlen(words[i].word);
        for (const char *s = path; (s = memmem(s, (size_t)(path + n - s), words[i].word, len)); s++)
            if ((s == path || strchr(around, s[-1])) && strchr(around, s[len]))
                return words[i].split;
    }
    return "";
}

/* Length of SPLIT in SPLIT-00000-of-00012…, as the hub's own tools write names below data/;
 * SPLIT may be any name. */
static size_t sharded_name(const char *name) {
    for (const char *dash = strchr(name, '-'); dash; dash = strchr(dash + 1, '-'))
        if (strspn(dash + 1, "0123456789") == 5 && strncmp(dash + 6, "-of-", 4) == 0 &&
            strspn(dash + 10, "0123456789") == 5)
            return (size_t)(dash - name);
    return 0;
}

void ax_rows_split_of(const char *path, char split[AX_SPLIT_NAME_MAX]) {
    const char *name = path + 5;
    const size_t n = strncmp(path, "data/", 5) == 0 ? sharded_name(name) : 0;
    if (n > 0 && n < AX_SPLIT_NAME_MAX) {
        memcpy(split, name, n);
        split[n] = '\0';
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            if (strcmp(split, words[i].word) == 0)
                snprintf(split, AX_SPLIT_NAME_MAX, "%s", words[i].split);
        return;
    }
    const char *slash = strrchr(path, '/'),
               *of_folder = slash ? word_in(path, (size_t)(slash - path)) : "";
    snprintf(split, AX_SPLIT_NAME_MAX, "%s", *of_folder ? of_folder : word_in(path, strlen(path)));
}

/* ---- files that were found ---- */

enum ax_status ax_found_add(struct ax_found *f, const char *path, enum ax_rows_kind kind,
                            const char *split) {
    if (f->n == MAX_FILES)
        return ax_error(AX_ERR_DATA, "%s: more than %d files", path, MAX_FILES);
    if (strlen(split) >= AX_SPLIT_NAME_MAX)
        return ax_error(AX_ERR_DATA, "%s: its split's name is too long", path);
    AX_TRY(ax_regrow(&f->files, f->n, f->n + 1, sizeof *f->files));
    struct ax_found_file *file = &f->files[f->n];
    *file = (struct ax_found_file){.kind = kind};
    snprintf(file->split, sizeof file->split, "%s", split);
    AX_TRY(ax_strdup(&file->path, path));
    f->n++;
    return AX_OK;
}

void ax_found_free(struct ax_found *f) {
    for (size_t i = 0; i < f->n; i++)
        ax_free(f->files[i].path);
    ax_free(f->files);
    *f = (struct ax_found){0};
}

static enum ax_status no_such_split(const struct ax_found *f, const char *label,
                                    const char *split) {
    char known[400] = "";
    size_t n = 0;
    for (size_t i = 0; i < f->n && n + AX_SPLIT_NAME_MAX + 3 < sizeof known; i++) {
        const char *s = f->files[i].split;
        bool before = !s[0];
        for (size_t j = 0; j < i && !before; j++)
            before = strcmp(s, f->files[j].split) == 0;
        if (!before)
            n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", s);
    }
    if (f->lone)
        return ax_error(AX_ERR_DATA,
                        "%s: split \"%s\" is not available; a single file has only \"train\"",
                        label, split);
    return ax_error(AX_ERR_DATA, "%s: split \"%s\" is not available; expected one of %s", label,
                    split, n ? known : "train");
}

enum ax_status ax_found_in_split(const struct ax_found *f, const char *label, const char *split,
                                 bool any_split, bool *chosen) {
    bool named = false, some = false;
    for (size_t i = 0; i < f->n; i++)
        named = named || f->files[i].split[0];
    for (size_t i = 0; i < f->n; i++) {
        const char *of = f->lone || !named ? "train" : f->files[i].split;
        chosen[i] = strcmp(of, split) == 0 || (f->lone && any_split);
        some = some || chosen[i];
    }
    return some ? AX_OK : no_such_split(f, label, split);
}

/* ---- chosen by the card ---- */

static const struct ax_card_config *find_config(const struct ax_card *card, const char *name) {
    for (size_t i = 0; i < card->n; i++)
        if (name ? strcmp(card->configs[i].name, name) == 0 : card->configs[i].is_default)
            return &card->configs[i];
    return name || card->n != 1 ? NULL : &card->configs[0];
}

static enum ax_status no_such_config(const struct ax_card *card, const struct ax_rows_options *o) {
    char known[600] = "";
    size_t n = 0;
    for (size_t i = 0; i < card->n && n + 100 < sizeof known; i++)
        n += (size_t)snprintf(known + n, 100, "%s%.90s", n ? ", " : "", card->configs[i].name);
    if (o->name)
        return ax_error(AX_ERR_DATA,
                        "%s: configuration \"%s\" is not available; set name: to one of %s",
                        o->path, o->name, known);
    return ax_error(AX_ERR_DATA,
                    "%s: the data set has several configurations; set name: to one of %s", o->path,
                    known);
}

/* True for a file that matches the pattern or is in the folder that it names. */
static bool matches(const char *pattern, const char *folder, const char *name) {
    const size_t dir = folder ? strlen(folder) : 0;
    if (dir > 0) {
        if (strncmp(name, folder, dir) != 0 || name[dir] != '/')
            return false;
        name += dir + 1;
    }
    const size_t n = strlen(pattern);
    return ax_path_match(pattern, name) || (strncmp(name, pattern, n) == 0 && name[n] == '/');
}

static enum ax_status choose_by_card(struct ax_found *f, const struct ax_card_config *c,
                                     const char *const *names, size_t n) {
    for (size_t j = 0; j < c->n; j++) {
        for (size_t i = 0; i < n; i++) {
            enum ax_rows_kind kind;
            if (kind_by_ending(names[i], &kind) &&
                matches(c->files[j].pattern, c->folder, names[i]))
                AX_TRY(ax_found_add(f, names[i], kind, c->files[j].split));
        }
    }
    return AX_OK;
}

/* ---- chosen by their names ---- */

static enum ax_status choose_by_name(struct ax_found *f, const char *folder,
                                     const char *const *names, size_t n) {
    const size_t dir = folder ? strlen(folder) : 0;
    for (size_t i = 0; i < n; i++) {
        const char *below = names[i];
        char split[AX_SPLIT_NAME_MAX];
        enum ax_rows_kind kind;
        if (dir > 0 && (strncmp(below, folder, dir) != 0 || below[dir] != '/'))
            continue;
        below += dir > 0 ? dir + 1 : 0;
        if (!is_data(below) || !kind_by_ending(below, &kind))
            continue;
        ax_rows_split_of(below, split);
        AX_TRY(ax_found_add(f, names[i], kind, split));
    }
    return AX_OK;
}

/* ---- choosing ---- */

/* Keeps the files of the most frequent kind. */
static void keep_one_kind(struct ax_found *f) {
    size_t counts[AX_ROWS_PARQUET + 1] = {0}, kept = 0;
    enum ax_rows_kind best = AX_ROWS_PARQUET; /* if tied, the converted copy */
    for (size_t i = 0; i < f->n; i++)
        counts[f->files[i].kind]++;
    for (int k = 0; k <= (int)AX_ROWS_PARQUET; k++)
        if (counts[k] > counts[best])
            best = (enum ax_rows_kind)k;
    for (size_t i = 0; i < f->n; i++)
        if (f->files[i].kind == best)
            f->files[kept++] = f->files[i];
        else
            ax_free(f->files[i].path);
    f->n = kept;
}

enum ax_status ax_rows_choose(struct ax_found *f, const struct ax_rows_options *o,
                              const char *const *names, size_t n, const struct ax_card *card,
                              bool one_kind) {
    if (card->n > 0) {
        const struct ax_card_config *c = find_config(card, o->name);
        if (!c && !o->name)
            c = find_config(card, "default");
        if (!c)
            return no_such_config(card, o);
        AX_TRY(c->n > 0 ? choose_by_card(f, c, names, n) : choose_by_name(f, c->folder, names, n));
    } else {
        const bool named = o->name && strcmp(o->name, "default") != 0;
        AX_TRY(choose_by_name(f, named ? o->name : NULL, names, n));
        if (named && f->n == 0)
            return ax_error(AX_ERR_DATA, "%s: name: no folder %s with data files", o->path,
                            o->name);
    }
    if (one_kind)
        keep_one_kind(f);
    return AX_OK;
}

/* What data_files selects is all of one split, whatever the names, as in datasets. */
#define NAMED_SPLIT "train"

/* Adds those that o->data_files selects. */
static enum ax_status choose_named(struct ax_found *f, const struct ax_rows_options *o,
                                   const char *const *names, size_t n) {
    for (size_t j = 0; j < o->n_data_files; j++) {
        const size_t before = f->n;
        for (size_t i = 0; i < n; i++) {
            enum ax_rows_kind kind = AX_ROWS_JSON; /* JSONL, if there is no extension */
            if (!ax_path_match(o->data_files[j], names[i]))
                continue;
            (void)kind_by_ending(names[i], &kind);
            AX_TRY(ax_found_add(f, names[i], kind, NAMED_SPLIT));
        }
        if (f->n == before)
            return ax_error(AX_ERR_DATA, "%s: data_files: no such file: %s", o->path,
                            o->data_files[j]);
    }
    return AX_OK;
}

#define MAX_DEPTH 6
#define MAX_NAMES 200000

/* o->format takes precedence over the extension. A file without either is read as JSONL. */
static enum ax_status kind_of_file(enum ax_rows_kind *kind, const struct ax_rows_options *o,
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
    (void)kind_by_ending(name, kind);
    return AX_OK;
}

static enum ax_status add_path(struct ax_found *f, const struct ax_rows_options *o,
                               const char *path, const char *name) {
    enum ax_rows_kind kind;
    char split[AX_SPLIT_NAME_MAX];
    AX_TRY(kind_of_file(&kind, o, path));
    ax_rows_split_of(name, split);
    return ax_found_add(f, path, kind, o->n_data_files > 0 ? NAMED_SPLIT : split);
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

/* A folder in which axtrain has trained: its logs and checkpoints are no records, though they look like some. */
static bool is_run(const char *path) {
    return ax_path_has(path, AX_RUN_FILE);
}

/* `root` is the length of the folder's own path. */
static enum ax_status walk(struct names *l, const char *path, size_t root, int depth) {
    if (depth > MAX_DEPTH)
        return ax_error(AX_ERR_DATA, "%s: more than %d folders deep", path, MAX_DEPTH);
    struct ax_dir d;
    enum ax_status st = AX_OK;
    ax_dir_open_existing(&d, path);
    for (const char *name; st == AX_OK && (name = ax_dir_next(&d)) != NULL;) {
        char *child;
        if (name[0] == '.')
            continue;
        AX_TRY_GOTO(ax_path_join(&child, path, name), st, done);
        if (!ax_path_is_dir(child))
            st = add_name(l, child + root);
        else if (!is_link(child) && !is_run(child))
            st = walk(l, child, root, depth + 1);
        ax_free(child);
    }
done:
    return ax_dir_end(&d, st);
}

static enum ax_status list_folder(struct names *l, const char *path) {
    const size_t n = strlen(path);
    AX_TRY(walk(l, path, n > 0 && path[n - 1] == '/' ? n : n + 1, 0));
    if (l->n > 0)
        qsort(l->v, l->n, sizeof *l->v, by_name);
    return AX_OK;
}

/* Prefixes the chosen files with their folder, and applies the configured format. */
static enum ax_status place_names(struct ax_found *f, const struct ax_rows_options *o,
                                  const char *folder) {
    for (size_t i = 0; i < f->n; i++) {
        struct ax_found_file *file = &f->files[i];
        char *path;
        AX_TRY(ax_path_join(&path, folder, file->path));
        ax_free(file->path);
        file->path = path;
        AX_TRY(kind_of_file(&file->kind, o, path));
    }
    return AX_OK;
}

static enum ax_status refuse_arrow(const struct names *l, const struct ax_rows_options *o) {
    enum ax_rows_kind kind;
    for (size_t i = 0; i < l->n && !o->format; i++)
        AX_TRY(kind_of_file(&kind, o, l->v[i]));
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
    AX_TRY_GOTO(f->n == 0 ? refuse_arrow(&l, o) : place_names(f, o, folder), st, done);
done:
    ax_card_free(&card);
    free_names(&l);
    return st;
}

/* Of a pattern with **: files at any depth of the folder before its first wildcard. */
static enum ax_status add_below(struct ax_found *f, const struct ax_rows_options *o,
                                const char *pattern) {
    struct names l = {0};
    char *folder = NULL;
    enum ax_status st;
    size_t n = strcspn(pattern, "*?[");
    while (n > 0 && pattern[n - 1] != '/')
        n--;
    AX_TRY_GOTO(n > 0 ? ax_strndup(&folder, pattern, n) : ax_strdup(&folder, "./"), st, done);
    if (ax_path_is_dir(folder))
        AX_TRY_GOTO(list_folder(&l, folder), st, done);
    for (size_t i = 0; i < l.n; i++) {
        char *path;
        if (!ax_path_match(pattern + n, l.v[i]))
            continue;
        AX_TRY_GOTO(ax_path_join(&path, folder, l.v[i]), st, done);
        st = add_path(f, o, path, strrchr(path, '/') + 1);
        ax_free(path);
        AX_TRY_GOTO(st, st, done);
    }
done:
    ax_free(folder);
    free_names(&l);
    return st;
}

/* glob() takes ** for *. */
static enum ax_status add_glob(struct ax_found *f, const struct ax_rows_options *o,
                               const char *pattern) {
    if (strstr(pattern, "**"))
        return add_below(f, o, pattern);
    glob_t g;
    enum ax_status st = ax_dir_glob(&g, pattern);
    for (size_t i = 0; st == AX_OK && i < g.gl_pathc; i++) {
        const char *path = g.gl_pathv[i];
        const char *name = strrchr(path, '/');
        if (path[strlen(path) - 1] != '/')
            st = add_path(f, o, path, name ? name + 1 : path);
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
            st = add_path(f, o, path, name);
        else
            st = add_glob(f, o, path);
        if (st == AX_OK && f->n == before)
            st = ax_error(AX_ERR_DATA, "%s: data_files: no such file: %s", o->path, path);
        ax_free(path);
        AX_TRY(st);
    }
    return AX_OK;
}

static enum ax_status find_path(struct ax_found *f, const struct ax_rows_options *o) {
    const char *path = o->path;
    const bool is_dir = ax_path_is_dir(path);
    if (o->n_data_files > 0)
        return add_data_files(f, o, is_dir ? path : ".");
    if (is_dir)
        return find_in_folder(f, o, path);
    f->lone = ax_path_exists(path) || strcmp(path, "-") == 0;
    if (f->lone)
        return add_path(f, o, path, path);
    return add_glob(f, o, path);
}

/* ---- a data set of the hub ---- */

bool ax_hub_dataset_is(const char *path) {
    enum ax_rows_kind kind;
    const char *slash = strchr(path, '/');
    return slash && ax_hub_is_id(path) && !ax_path_exists(path) && !kind_by_ending(path, &kind);
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
        AX_TRY_GOTO(choose_named(f, o, names, s->list.n), st, done);
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
    return place_names(f, o, s->folder);
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
        st = hub ? find_in_hub(f, o, &s) : find_path(f, o);
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
