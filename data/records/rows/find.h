/* Resolves a data set's path to files. Private to data/. */
#ifndef AX_DATA_RECORDS_ROWS_FIND_H
#define AX_DATA_RECORDS_ROWS_FIND_H

#include "ckpt/hub/hub.h"
#include "data/records/rows/choose.h"
#include "data/records/rows/hub_dataset.h"

/* AX_ERR_DATA if there is nothing to read, AX_ERR_UNSUPPORTED for Arrow and remote locations. */
enum ax_status ax_rows_find(struct ax_found *f, const struct ax_rows_options *o);

/* Calls ax_hub_use if this is a data set of the hub. */
enum ax_status ax_hub_dataset_use(struct ax_lock *use, const struct ax_rows_options *o);
/* The files of a repository that its list and card select, with paths as in the list. */
enum ax_status ax_hub_dataset_choose(struct ax_found *f, const struct ax_rows_options *o,
                                     const struct ax_hub_snapshot *s);

#endif
