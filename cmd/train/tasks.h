/* lm_eval_tasks: tasks of lm-evaluation-harness at each evaluation, on the weights in memory. */
#ifndef AX_CMD_TRAIN_TASKS_H
#define AX_CMD_TRAIN_TASKS_H

#include "cmd/harness/harness.h"
#include "cmd/train/data/data.h"
#include "optim/evaluate/tasks.h"

struct ax_task_keys {
    const struct ax_yaml_node *tasks; /* NULL: unset */
    int64_t lanes;                    /* lm_eval_batch_size */
};

struct ax_setup_tasks {
    struct ax_tasks o; /* lanes 0: none */
    struct ax_harness_options harness;
    struct ax_text_side side;
};
/* `base` is the base model's folder; NULL while planning, when the harness is not tried. t must stay where it is. */
enum ax_status ax_setup_tasks_read(struct ax_setup_tasks *t, const struct ax_config *cfg,
                                   const struct ax_setup_data *d, const char *base,
                                   struct ax_fabric *fabric);
void ax_setup_tasks_free(struct ax_setup_tasks *t);

#endif
