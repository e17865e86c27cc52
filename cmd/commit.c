/* An object of its own, beside main.o and not in the library: a new commit costs only a link. */
#include "cmd/commit.h"

const char ax_commit[] = AX_COMMIT;
