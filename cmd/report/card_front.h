/* The YAML of a model card: base model, data sets, library, license, tags. Private to card*.c. */
#ifndef AX_CMD_REPORT_CARD_FRONT_H
#define AX_CMD_REPORT_CARD_FRONT_H

#include "cmd/report/card.h"

enum ax_status ax_card_put_front(struct ax_buf *out, const struct ax_card *c,
                                 const struct ax_report_run *run);

#endif
