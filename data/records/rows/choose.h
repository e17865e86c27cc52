/* Which files of a folder or repository contain the splits of a configuration: as the data set's
 * card says, else by file name. Works on names alone, so a repository's file list is enough and
 * nothing is downloaded first. Private to data/.
 *
 * Reading order: path_match.c (patterns), dataset_card.c (the card), choose.c. */
#ifndef AX_DATA_RECORDS_ROWS_CHOOSE_H
#define AX_DATA_RECORDS_ROWS_CHOOSE_H

#include "data/records/rows/rows.h"
#include "data/records/rows/reader.h"

#define AX_SPLIT_NAME_MAX 64

/* ---- names ---- */

/* The kind by extension (before .gz or .zst); false if unknown. */
bool ax_rows_kind_of(const char *name, enum ax_rows_kind *kind);
/* The split named by words of the path, "" for none. */
void ax_rows_split_of(const char *path, char split[AX_SPLIT_NAME_MAX]);
/* Shell patterns over a full path: * and ? stay within a part, ** crosses parts, [a-z] [!a-z]. */
bool ax_path_match(const char *pattern, const char *path);

/* ---- the card: a README.md that begins with YAML ---- */

struct ax_card_files {
    char *split;
    char *pattern;
};
struct ax_card_config {
    char *name;
    char *folder; /* data_dir, or NULL */
    bool is_default;
    struct ax_card_files *files;
    size_t n;
};
struct ax_card {
    struct ax_card_config *configs;
    size_t n;
};
/* Parses a data set's card. If it has no YAML, or no `configs` in it, n = 0. AX_ERR_CONFIG names
 * the line of a mistake. */
enum ax_status ax_card_parse(struct ax_card *c, const char *name, const char *text, size_t len);
void ax_card_free(struct ax_card *c); /* safe on a zeroed one */
/* README.md of the folder, if any. An unreadable one counts as none, with a warning. */
enum ax_status ax_card_load(struct ax_card *c, const char *folder);

/* ---- files ---- */

struct ax_found_file {
    char *path;
    enum ax_rows_kind kind;
    char split[AX_SPLIT_NAME_MAX]; /* "" if unknown */
};

struct ax_found {
    struct ax_found_file *files;
    size_t n;
    bool lone; /* a single file given by name: it is every split, unless one is requested */
};
enum ax_status ax_found_add(struct ax_found *f, const char *path, enum ax_rows_kind kind,
                            const char *split);
void ax_found_free(struct ax_found *f);
/* Files without a known split are "train", unless others have one. AX_ERR_DATA "LABEL: it has no
 * split …" lists the existing ones. chosen[i] says whether file i is in the split. */
enum ax_status ax_found_in_split(const struct ax_found *f, const char *label, const char *split,
                                 bool any_split, bool *chosen);

/* Adds the data files among `names` (ascending paths relative to a folder) that o->name selects. If
 * a repository has the same records in several formats (`one_kind`), uses the most frequent one. */
enum ax_status ax_rows_choose(struct ax_found *f, const struct ax_rows_options *o,
                              const char *const *names, size_t n, const struct ax_card *card,
                              bool one_kind);
/* Adds those that o->data_files selects. */
enum ax_status ax_rows_choose_named(struct ax_found *f, const struct ax_rows_options *o,
                                    const char *const *names, size_t n);

#endif
