/* The shapes of published models by name, for plans and benchmarks: no folder, no weights. */
#ifndef AX_MODEL_ARCH_SHAPES_H
#define AX_MODEL_ARCH_SHAPES_H

#include "base/text/json.h"

/* The config.json of a shape: what says how the model computes and how large it is. Case is ignored;
 * AX_ERR_CONFIG names the nearest, or lists all. Free with ax_json_free. */
enum ax_status ax_shape_config(const char *name, struct ax_json_doc *out);
/* The i-th name; NULL after the last. */
const char *ax_shape_name(size_t i);

#endif
