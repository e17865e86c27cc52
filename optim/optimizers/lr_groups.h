/* Parameter groups with their own learning rate, a multiple of the step's.
 *
 * LoRA+ (Hayou et al. 2024) trains B faster than A. Grouped as in PEFT: B and everything 1-D get
 * loraplus_lr_ratio times the rate, adapters of embeddings loraplus_lr_embedding. All groups follow
 * one schedule. */
#ifndef AX_OPTIM_OPTIMIZERS_LR_GROUPS_H
#define AX_OPTIM_OPTIMIZERS_LR_GROUPS_H

#include "parallel/units/param.h"

enum ax_lr_group { AX_LR_USUAL, AX_LR_B, AX_LR_EMBEDDING, AX_LR_GROUPS };

/* Zeroed: one rate for all. */
struct ax_lr_groups {
    bool on;
    double factor[AX_LR_GROUPS]; /* factor of the step's learning rate */
};

/* B at `ratio` times base_lr, adapters of embeddings at `embedding_lr`. */
struct ax_lr_groups ax_lr_groups_loraplus(double base_lr, double ratio, double embedding_lr);
int ax_lr_group_count(const struct ax_lr_groups *g);
enum ax_lr_group ax_lr_group_of(const struct ax_lr_groups *g, const struct ax_param *p);

#endif
