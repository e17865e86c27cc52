#include "optim/optimizers/lr_groups.h"

#include <string.h>

struct ax_lr_groups ax_lr_groups_loraplus(double base_lr, double ratio, double embedding_lr) {
    return (struct ax_lr_groups){
        .on = true,
        .factor = {[AX_LR_USUAL] = 1,
                   [AX_LR_B] = ratio,
                   [AX_LR_EMBEDDING] = base_lr > 0 ? embedding_lr / base_lr : 0}};
}

int ax_lr_group_count(const struct ax_lr_groups *g) {
    return g->on ? AX_LR_GROUPS : 1;
}

enum ax_lr_group ax_lr_group_of(const struct ax_lr_groups *g, const struct ax_param *p) {
    if (!g->on)
        return AX_LR_USUAL;
    if (p->adapter && strstr(p->name, ".lora_embedding_"))
        return AX_LR_EMBEDDING;
    const bool b = p->adapter && strstr(p->name, ".lora_B.");
    return b || p->ndim == 1 ? AX_LR_B : AX_LR_USUAL;
}
