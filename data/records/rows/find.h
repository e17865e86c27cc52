/* Resolves a data set's path to files. Private to data/.
 *
 * Which files of a folder or repository contain the splits of a configuration: as the data set's
 * card says (dataset_card.c), else by file name. Choosing works on names alone, so a repository's
 * file list is enough and nothing is downloaded first. */
#ifndef AX_DATA_RECORDS_ROWS_FIND_H
#define AX_DATA_RECORDS_ROWS_FIND_H

#include "ckpt/hub/hub.h"
#include "data/records/rows/hub_dataset.h"
#include "data/records/rows/reader.h"
#include "data/records/rows/rows.h"

#define AX_SPLIT_NAME_MAX 64

/* ---- names ---- */

/* The split named by words of the path, "" for none. */
void ax_rows_split_of(const char *path, char split[AX_SPLIT_NAME_MAX]);

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

/* AX_ERR_DATA if there is nothing to read, AX_ERR_UNSUPPORTED for Arrow and remote locations. */
enum ax_status ax_rows_find(struct ax_found *f, const struct ax_rows_options *o);

/* Calls ax_hub_use if this is a data set of the hub. */
enum ax_status ax_hub_dataset_use(struct ax_lock *use, const struct ax_rows_options *o);
/* The files of a repository that its list and card select, with paths as in the list. */
enum ax_status ax_hub_dataset_choose(struct ax_found *f, const struct ax_rows_options *o,
                                     const struct ax_hub_snapshot *s);

#endif
