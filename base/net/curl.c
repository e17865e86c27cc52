#include "base/net/curl.h"

#include <unistd.h>

const char *ax_curl_bundle(const char *own, const char *const *known) {
    if (own && access(own, R_OK) == 0)
        return NULL;
    while (*known && access(*known, R_OK) != 0)
        known++;
    return *known;
}
