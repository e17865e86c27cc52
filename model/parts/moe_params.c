/* The parameters of a mixture of experts. */
#include <stdio.h>

#include "model/core/builder.h"
#include "model/parts/moe.h"
#include "model/parts/router.h"

static const struct ax_param *add_expert(struct ax_builder *b, struct ax_layer *l, int expert,
                                         const char *part, int64_t rows, int64_t cols, bool glue) {
    char name[AX_NAME_MAX];
    snprintf(name, sizeof name, "%s.%d.%s.weight", b->arch->moe.names->experts, expert, part);
    const struct ax_param_decl decl = {.name = name,
                                       .rows = rows,
                                       .cols = cols,
                                       .tp_dim = -1,
                                       .glue = glue,
                                       .expert = true,
                                       .ep_owner = (int)(expert / b->model->experts.n_local)};
    return ax_builder_add(b, l->index, &decl);
}

/* One tensor for all experts' gate and up, one for their down, one for the biases of each. */
static void add_stacked(struct ax_builder *b, struct ax_layer *l) {
    const struct ax_moe_stacked *names = b->arch->moe.stacked;
    const int64_t D = b->arch->hidden_size, F = b->arch->moe.width, E = b->arch->moe.n_experts;
    const struct {
        const struct ax_param **to;
        const char *name;
        int64_t rows, cols;
    } tensors[] = {{&l->moe.gate_up, names->gate_up, D, 2 * F},
                   {&l->moe.gate_up_bias, names->gate_up_bias, 2 * F, 0},
                   {&l->moe.down, names->down, F, D},
                   {&l->moe.down_bias, names->down_bias, D, 0}};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        const struct ax_param_decl decl = {.name = tensors[i].name,
                                           .rows = tensors[i].rows,
                                           .cols = tensors[i].cols,
                                           .stack = E,
                                           .tp_dim = -1};
        *tensors[i].to = ax_builder_add(b, l->index, &decl);
    }
}

/* gate | up of every expert, then every expert's down: each with a constant stride. */
void ax_moe_init(struct ax_builder *b, struct ax_layer *l) {
    const struct ax_moe_config *c = &b->arch->moe;
    const int64_t D = b->arch->hidden_size, F = c->width;
    struct ax_moe_part *moe = &l->moe;
    ax_router_init(b, l);
    if (c->stacked) {
        add_stacked(b, l);
        return;
    }
    for (int e = 0; e < c->n_experts; e++) {
        const struct ax_param *gate = add_expert(b, l, e, c->names->gate, F, D, false);
        add_expert(b, l, e, c->names->up, F, D, true);
        if (e == 0)
            moe->gate_up = gate;
    }
    for (int e = 0; e < c->n_experts; e++) {
        const struct ax_param *down = add_expert(b, l, e, c->names->down, D, F, false);
        if (e == 0)
            moe->down = down;
    }
}

struct ax_part_size ax_moe_size(const struct ax_arch *a) {
    const struct ax_moe_config *c = &a->moe;
    const int64_t D = a->hidden_size, router = c->n_experts * D, expert = 3 * c->width * D;
    return (struct ax_part_size){.matrices = router + c->n_experts * expert,
                                 .active = router + c->n_active * expert,
                                 .vectors = (c->names->router_bias ? c->n_experts : 0) +
                                            (c->stacked ? c->n_experts * (2 * c->width + D) : 0)};
}

/* None: its matrices are the experts', see adapter/experts.h. */
int ax_moe_linears(struct ax_layer *l, struct ax_linear **out) {
    (void)l;
    (void)out;
    return 0;
}
