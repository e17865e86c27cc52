/* The YAML of a model card: base model, data sets, library, license, tags. Private to card*.c. */
#ifndef AX_CMD_REPORT_CARD_FRONT_H
#define AX_CMD_REPORT_CARD_FRONT_H

#include "cmd/report/card.h"

/* The kind of model that a run made, by the keys of its configuration. */
struct ax_card_kind {
    const char *key;            /* set by it; NULL: any other */
    const char *tag;            /* NULL: that of `rl`, or sft */
    const char *pipeline;       /* the hub's name for what it does */
    const char *command, *with; /* before and after the model */
    const char *per;            /* over what losses are means */
};
const struct ax_card_kind *ax_card_kind_of(const struct ax_report_run *run);

enum ax_status ax_card_put_front(struct ax_buf *out, const struct ax_card *c,
                                 const struct ax_report_run *run);

#endif
