/* Data sets of the hub: which files of a repository hold the rows that are asked for, and bringing
 * those into the cache. */
#ifndef AX_DATA_ROWS_HUB_DATASET_H
#define AX_DATA_ROWS_HUB_DATASET_H

#include "ckpt/hub/hub.h"
#include "data/rows/rows.h"

/* Does `path` mean a data set of the hub ("owner/name")? Not if a file or folder of that name is
 * there, or if it ends like a file. */
bool ax_hub_dataset_is(const char *path);

/* Makes sure that the cache has the files of o's splits. What it has already is used as it is,
 * without asking, unless h->refresh. AX_ERR_CONFIG and AX_ERR_DATA say what is not there. */
enum ax_status ax_hub_dataset_get(const struct ax_hub *h, const struct ax_rows_options *o,
                                  struct ax_hub_report *report);

/* ---- for find.c ---- */

struct ax_found;
/* What the cache has. AX_ERR_DATA where that is nothing. */
enum ax_status ax_hub_dataset_find(struct ax_hub_snapshot *s, const struct ax_rows_options *o);
/* The files that the repository's list and card tell, with paths as in the list. */
enum ax_status ax_hub_dataset_choose(struct ax_found *f, const struct ax_rows_options *o,
                                     const struct ax_hub_snapshot *s);

#endif
