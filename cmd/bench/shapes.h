/* Built-in architectures, for benchmarks with random weights and no folder. */
#ifndef AX_CMD_BENCH_SHAPES_H
#define AX_CMD_BENCH_SHAPES_H

#include "base/json.h"

/* config.json of a built-in architecture; AX_ERR_CONFIG lists the names. Free with ax_json_free. */
enum ax_status ax_builtin_config(const char *name, struct ax_json_doc *out);

#endif
