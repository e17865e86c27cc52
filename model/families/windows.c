/* layer_types: which layers have a sliding window. */
#include <string.h>

#include "model/families/family.h"

enum ax_status ax_layer_slides(const struct ax_arch *a, struct ax_json c, int64_t layer, bool usual,
                               bool *slides) {
    const char *type;
    const struct ax_json types = ax_json_get(c, "layer_types");
    *slides = usual;
    if (!types.v)
        return AX_OK;
    if ((int64_t)ax_json_size(types) != a->n_layers)
        return ax_json_error(types, "expected one entry for each of %lld layers, got %zu",
                             (long long)a->n_layers, ax_json_size(types));
    const struct ax_json v = ax_json_at(types, (size_t)layer);
    AX_TRY(ax_json_str(v, &type));
    *slides = strcmp(type, "sliding_attention") == 0;
    if (*slides || strcmp(type, "full_attention") == 0)
        return AX_OK;
    ax_json_error(v, "layer type \"%s\" is not one of full_attention, sliding_attention", type);
    return AX_ERR_UNSUPPORTED;
}
