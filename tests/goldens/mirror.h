/* A copy of the goldens with everything made that git does not have: model.safetensors where a
 * weights.json says how (weights.h). */
#ifndef TESTS_GOLDENS_MIRROR_H
#define TESTS_GOLDENS_MIRROR_H

#include <stddef.h>

#include "base/status.h"

/* Makes `to` a complete copy of the folder `from`, unless it is one already: it has a stamp of the
 * names, sizes and dates of all files in `from`. Processes that want the same copy wait for the
 * first. */
enum ax_status golden_mirror(const char *from, const char *to);

/* The path of `name` below the copy of tests/goldens in this program's build folder ("": the copy),
 * which is made if need be. The goldens are $AX_TEST_GOLDENS, or tests/goldens in the first folder
 * upward from the program's own, or from the current one, that has it. */
enum ax_status golden_mirrored(const char *name, char *path, size_t size);

/* The folder or file that stands for DIR where weights are made: in a copy, if DIR or the goldens
 * around it have weights that follow a rule, else DIR itself. */
enum ax_status golden_made(const char *dir, char *made, size_t size);

#endif
