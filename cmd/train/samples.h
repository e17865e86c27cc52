/* generate_samples: the first evaluation rows become the prompts of optim/metrics/samples.h. */
#ifndef AX_CMD_TRAIN_SAMPLES_H
#define AX_CMD_TRAIN_SAMPLES_H

#include "cmd/train/data/data.h"
#include "data/text/stop_tokens.h"
#include "optim/metrics/samples.h"

#define AX_MAX_SAMPLES 64

struct ax_sample_keys {
    const struct ax_yaml_node *samples; /* generate_samples: true, or how many; NULL: unset */
    int64_t n;                          /* num_generation_samples */
    double prompt_ratio;
};

struct ax_setup_samples {
    struct ax_samples o; /* n 0: none */
    struct ax_stop_tokens stop;
    struct ax_sample_prompt *prompts;
    int32_t *ids; /* ids of all prompts */
};
/* `base` is the base model's folder; NULL while planning. If the data is not counted, prompts have
 * the maximum length. */
enum ax_status ax_setup_samples_read(struct ax_setup_samples *s, const struct ax_config *cfg,
                                     const struct ax_setup_data *d, const char *base);
void ax_setup_samples_free(struct ax_setup_samples *s);

#endif
