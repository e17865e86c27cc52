#include "base/dynlib.h"

#include <dlfcn.h>
#include <string.h>

static const char *loader_said(void) {
    const char *text = dlerror();
    return text ? text : "unknown reason";
}

static enum ax_status fill(void *library, const char *name, const struct ax_symbol *s) {
    void *function = dlsym(library, s->name);
    if (!function)
        return ax_error(AX_ERR_UNSUPPORTED, "%s has no function %s; is it too old?", name, s->name);
    memcpy(s->slot, &function, sizeof function);
    return AX_OK;
}

enum ax_status ax_library_open(const char *const *names, const struct ax_symbol *symbols,
                               size_t n) {
    const char *name = *names;
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    enum ax_status st =
        library ? AX_OK : ax_error(AX_ERR_UNSUPPORTED, "%s", loader_said()); /* the first name's */
    for (names++; !library && *names; names++) {
        name = *names;
        library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    if (!library)
        return st;
    st = AX_OK;
    for (size_t i = 0; i < n && st == AX_OK; i++)
        st = fill(library, name, &symbols[i]);
    if (st != AX_OK)
        (void)dlclose(library);
    return st;
}
