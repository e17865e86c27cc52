/* Names that the configuration chose for what records have. Private to data/records/format/. */
#ifndef AX_DATA_RECORDS_FORMAT_NAMES_H
#define AX_DATA_RECORDS_FORMAT_NAMES_H

#include "data/records/format/impl.h"

/* Fills f->names, and warns of those that the chat template does not read. */
enum ax_status ax_names_choose(struct ax_format *f);

/* Bits of those that a record lacks; `messages` are its own, `turns` these under the template's names
 * (NULL: it has none). */
unsigned ax_names_missing(const struct ax_format *f, const json_t *record, const json_t *messages,
                          const json_t *turns);

#endif
