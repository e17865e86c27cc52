#include "cmd/serve/host.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Is it the name, and then nothing, or a port? */
static bool names(const char *given, const char *name) {
    const size_t n = strlen(name);
    if (strncasecmp(given, name, n) != 0)
        return false;
    const char *port = given + n + (given[n] == ':');
    return given[n] == '\0' || (given[n] == ':' && strspn(port, "0123456789") == strlen(port));
}

bool ax_serve_host_is_local(const char *given, const char *own) {
    static const char *const known[] = {"localhost", "127.0.0.1", "[::1]"};
    char address[256];
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (names(given, known[i]))
            return true;
    snprintf(address, sizeof address, "[%s]", own);
    return names(given, own) || names(given, address);
}
