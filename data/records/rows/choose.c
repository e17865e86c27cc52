/* Read ax_rows_choose first. */
#include "data/records/rows/choose.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

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

bool ax_rows_kind_of(const char *name, enum ax_rows_kind *kind) {
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
    return name[0] != '.' && path[0] != '.' && !strstr(path, "/.") && ax_rows_kind_of(name, &kind);
}

static const char *word_in(const char *path) {
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const size_t n = strlen(words[i].word);
        for (const char *s = path; (s = strcasestr(s, words[i].word)) != NULL; s++)
            if ((s == path || !isalpha((unsigned char)s[-1])) && !isalpha((unsigned char)s[n]))
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
    snprintf(split, AX_SPLIT_NAME_MAX, "%s", word_in(path));
}

/* ---- files ---- */

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

/* ---- by the card ---- */

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
            if (ax_rows_kind_of(names[i], &kind) &&
                matches(c->files[j].pattern, c->folder, names[i]))
                AX_TRY(ax_found_add(f, names[i], kind, c->files[j].split));
        }
    }
    return AX_OK;
}

/* ---- by the names ---- */

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
        if (!is_data(below) || !ax_rows_kind_of(below, &kind))
            continue;
        ax_rows_split_of(below, split);
        AX_TRY(ax_found_add(f, names[i], kind, split));
    }
    return AX_OK;
}

/* ---- all ---- */

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

enum ax_status ax_rows_choose_named(struct ax_found *f, const struct ax_rows_options *o,
                                    const char *const *names, size_t n) {
    for (size_t j = 0; j < o->n_data_files; j++) {
        const size_t before = f->n;
        for (size_t i = 0; i < n; i++) {
            enum ax_rows_kind kind = AX_ROWS_JSON; /* JSONL, if there is no extension */
            char split[AX_SPLIT_NAME_MAX];
            if (!ax_path_match(o->data_files[j], names[i]))
                continue;
            (void)ax_rows_kind_of(names[i], &kind);
            ax_rows_split_of(names[i], split);
            AX_TRY(ax_found_add(f, names[i], kind, split));
        }
        if (f->n == before)
            return ax_error(AX_ERR_DATA, "%s: data_files: no such file: %s", o->path,
                            o->data_files[j]);
    }
    return AX_OK;
}
