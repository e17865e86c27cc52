/* A model card: the README.md of a trained model's folder, as the Hugging Face hub reads it. It
 * contains only what the run's records (docs/run.md) say. */
#ifndef AX_CMD_REPORT_CARD_H
#define AX_CMD_REPORT_CARD_H

#include <stdbool.h>

#include "cmd/report/report.h"

/* The line that identifies cards written by axtrain. */
#define AX_CARD_MARK "<!-- written by axtrain; remove this line to keep your changes -->"

struct ax_card {
    const char *run;  /* folder with run.json and metrics.jsonl */
    const char *dir;  /* folder of the model, adapter or merged model */
    const char *base; /* folder of the base model, whose card may contain a license; or NULL */
    bool merged;      /* an adapter of that run, merged into its base */
    bool keep;        /* keep an existing one, even if axtrain wrote it */
};

/* Writes dir/README.md. Keeps an existing one without that line. Failures are only warnings: the
 * model is complete without a card. */
void ax_card_write(const struct ax_card *c);
/* Appends the card's text. */
enum ax_status ax_card_put(struct ax_buf *out, const struct ax_card *c,
                           const struct ax_report_run *run);

#endif
