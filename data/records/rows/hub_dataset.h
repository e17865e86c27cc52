/* Data sets of the hub: finds a repository's files with the requested records and downloads them
 * into the cache. */
#ifndef AX_DATA_RECORDS_ROWS_HUB_DATASET_H
#define AX_DATA_RECORDS_ROWS_HUB_DATASET_H

#include "ckpt/hub/hub.h"
#include "data/records/rows/rows.h"

/* True if `path` names a data set of the hub ("owner/name"). False if a file or folder of that name
 * exists, or if it ends like a file name. */
bool ax_hub_dataset_is(const char *path);

/* Makes sure that the cache has the files of o's splits. Cached files are used without asking the
 * hub, unless h->refresh. AX_ERR_CONFIG and AX_ERR_DATA say what does not exist. */
enum ax_status ax_hub_dataset_get(const struct ax_hub *h, const struct ax_rows_options *o,
                                  struct ax_hub_report *report);

#endif
