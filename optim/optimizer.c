/* The registry of optimizers. */
#include "optim/optimizer.h"

#include <string.h>

enum ax_status ax_optimizer_find(const char *name, const struct ax_optimizer **out) {
    static const struct ax_optimizer *const all[] = {&ax_optimizer_adamw, &ax_optimizer_sgd};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(name, all[i]->name) != 0)
            continue;
        *out = all[i];
        return AX_OK;
    }
    return ax_error(AX_ERR_CONFIG, "optimizer: \"%s\" is not one of adamw, sgd", name);
}
