/* Resolves a data set's path to files. Private to data/. */
#ifndef AX_DATA_RECORDS_ROWS_FIND_H
#define AX_DATA_RECORDS_ROWS_FIND_H

#include "data/records/rows/hub_dataset.h"
#include "data/records/rows/choose.h"

/* AX_ERR_DATA if there is nothing to read, AX_ERR_UNSUPPORTED for Arrow and remote locations. */
enum ax_status ax_rows_find(struct ax_found *f, const struct ax_rows_options *o);

#endif
