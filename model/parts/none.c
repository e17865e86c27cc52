/* In place of a part, of a layer that has only the other: no parameters, and no branch (layer.c). */
#include "model/core/pass.h"

static void none_init(struct ax_builder *b, struct ax_layer *l) {
    (void)b;
    (void)l;
}

static int none_linears(struct ax_layer *l, struct ax_linear **out) {
    (void)l;
    (void)out;
    return 0;
}

static struct ax_part_size none_size(const struct ax_arch *a, const struct ax_layer_spec *spec) {
    (void)a;
    (void)spec;
    return (struct ax_part_size){0};
}

const struct ax_part_type ax_part_none = {
    .name = "none", .init = none_init, .linears = none_linears, .size = none_size};
