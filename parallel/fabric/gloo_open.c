/* The library of Gloo's transport, opened when ranks in processes are asked for. */
#include <string.h>

#include "base/dynlib.h"
#include "parallel/fabric/gloo.h"

enum ax_status ax_gloo_library(const struct ax_gloo_calls **out) {
    static const char *const names[] = {"libaxtrain-gloo.so", NULL};
    const struct ax_gloo_calls *(*get)(void);
    const struct ax_symbol symbols[] = {{"ax_gloo_get", &get}};
    const enum ax_status st = ax_library_open(names, symbols, 1);
    if (st != AX_OK)
        return ax_error_prefix(
            st, "ranks in processes need Gloo, which cannot be opened (Debian 12: `apt-get install "
                "libgloo0`). Where libaxtrain-gloo.so itself is missing, axtrain was built without "
                "it: install g++ and libgloo-dev, and run `make` again");
    *out = get();
    if (strcmp((*out)->version, AX_VERSION) != 0)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "libaxtrain-gloo.so is of axtrain %s, and this is axtrain " AX_VERSION
                        "; install both from one build",
                        (*out)->version);
    return AX_OK;
}

enum ax_status ax_gloo_available(void) {
    const struct ax_gloo_calls *calls;
    return ax_gloo_library(&calls);
}
