/* Which files a data set's path stands for. Private to rows_*.c. */
#ifndef AX_DATA_ROWS_FIND_H
#define AX_DATA_ROWS_FIND_H

#include "data/rows.h"
#include "data/rows_reader.h"

struct ax_found_file {
    char *path;
    enum ax_rows_kind kind;
    /* The split that the name tells ("train", "validation", "test"), "" where it tells none. */
    const char *split;
};

struct ax_found {
    struct ax_found_file *files;
    size_t n;
    bool lone; /* one file named as such: it is every split's when none is asked for */
};

/* AX_ERR_DATA where there is nothing to read, AX_ERR_UNSUPPORTED for Parquet, Arrow and remote
 * places. */
enum ax_status ax_rows_find(struct ax_found *f, const struct ax_rows_options *o);
void ax_found_free(struct ax_found *f);

/* The folder of a hub data set ("owner/name") in the local cache, or *out = NULL. `revision` may be
 * NULL. */
enum ax_status ax_hub_dataset_folder(const char *id, const char *revision, char **out);

#endif
