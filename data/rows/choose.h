/* Which files of a folder or a repository hold the rows of a configuration's splits: told by the
 * data set's card where it says so, else by the names. Works on names alone, so that a repository's
 * list serves before anything is downloaded. Private to data/.
 *
 * Read on: path_match.c (patterns), dataset_card.c (the card), choose.c. */
#ifndef AX_DATA_ROWS_CHOOSE_H
#define AX_DATA_ROWS_CHOOSE_H

#include "data/rows/rows.h"
#include "data/rows/reader.h"

#define AX_SPLIT_NAME_MAX 64

/* ---- names ---- */

/* The kind by the ending (.gz and .zst behind it are fine); false where it tells none. */
bool ax_rows_kind_of(const char *name, enum ax_rows_kind *kind);
/* May a file that is found hold rows? (Not dataset_info.json, not notes.md.) */
bool ax_rows_is_data(const char *path);
/* The split that words of the path tell, "" for none. */
void ax_rows_split_of(const char *path, char split[AX_SPLIT_NAME_MAX]);
/* Shell patterns over a whole path: * and ? stay within a part, ** crosses parts, [a-z] [!a-z]. */
bool ax_path_match(const char *pattern, const char *path);

/* ---- the card: README.md that begins with YAML ---- */

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
/* Without YAML, or where that has no `configs`: n = 0. AX_ERR_CONFIG with the line of a mistake. */
enum ax_status ax_card_parse(struct ax_card *c, const char *name, const char *text, size_t len);
void ax_card_free(struct ax_card *c); /* safe on a zeroed one */
/* README.md of the folder, if there is one; what cannot be read counts as none, with a warning. */
enum ax_status ax_card_load(struct ax_card *c, const char *folder);

/* ---- files ---- */

struct ax_found_file {
    char *path;
    enum ax_rows_kind kind;
    char split[AX_SPLIT_NAME_MAX]; /* "" where nothing tells one */
};

struct ax_found {
    struct ax_found_file *files;
    size_t n;
    bool lone; /* one file named as such: it is every split's when none is asked for */
};
enum ax_status ax_found_add(struct ax_found *f, const char *path, enum ax_rows_kind kind,
                            const char *split);
void ax_found_free(struct ax_found *f);
/* Files that tell no split are "train", unless others do tell one. AX_ERR_DATA "LABEL: it has no
 * split …" names those there are. *chosen[i] says whether file i is in it. */
enum ax_status ax_found_in_split(const struct ax_found *f, const char *label, const char *split,
                                 bool any_split, bool *chosen);

/* Adds the data files among `names` (paths below a folder, ascending) that o->name asks for, as
 * they stand there. Of a repository that has the same rows in several formats (`one_kind`), the
 * files of the most frequent one. */
enum ax_status ax_rows_choose(struct ax_found *f, const struct ax_rows_options *o,
                              const char *const *names, size_t n, const struct ax_card *card,
                              bool one_kind);
/* Those that o->data_files asks for. */
enum ax_status ax_rows_choose_named(struct ax_found *f, const struct ax_rows_options *o,
                                    const char *const *names, size_t n);

#endif
