/* A model card: the README.md of a trained model's folder, as the Hugging Face hub reads it. All of
 * it is from the run's records (docs/run.md); nothing is claimed that they do not say. */
#ifndef AX_CMD_REPORT_CARD_H
#define AX_CMD_REPORT_CARD_H

#include <stdbool.h>

#include "cmd/report/report.h"

/* The line by which a card is known as ours. */
#define AX_CARD_MARK "<!-- written by axtrain; remove this line to keep your changes -->"

struct ax_card {
    const char *run;  /* folder with run.json and metrics.jsonl */
    const char *dir;  /* folder of the model, adapter or merged model */
    const char *base; /* folder of the base model, whose card may name a license; or NULL */
    bool merged;      /* an adapter of that run, merged into its base */
    bool keep;        /* one that is there stays, even if it is ours */
};

/* Writes dir/README.md. One that is there and has no such line stays as it is. A failure is a
 * warning: the model is complete without it. */
void ax_card_write(const struct ax_card *c);
/* The text alone. */
enum ax_status ax_card_put(struct ax_buf *out, const struct ax_card *c,
                           const struct ax_report_run *run);

#endif
