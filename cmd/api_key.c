#include "cmd/api_key.h"

#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/mem.h"

#define MAX_KEY ((size_t)4096)

/* Cuts the end of the line, or frees what is no key. */
static enum ax_status take(const char *where, char **key, size_t len) {
    size_t n = 0;
    while (n < len && (*key)[n] > ' ' && (*key)[n] < 127)
        n++;
    if (n > 0 && strspn(*key + n, "\r\n") == len - n) {
        (*key)[n] = '\0';
        return AX_OK;
    }
    ax_free(*key);
    *key = NULL;
    return ax_error(AX_ERR_CONFIG,
                    "%s: expected one line with a key of visible ASCII characters, without blanks",
                    where);
}

enum ax_status ax_api_key_read(const char *path, char **key) {
    size_t len;
    AX_TRY(ax_read_file(path, MAX_KEY, key, &len));
    return take(path, key, len);
}

enum ax_status ax_api_key_environment(const char *name, char **key) {
    const char *value = getenv(name);
    if (!value || !*value)
        return AX_OK;
    AX_TRY(ax_strdup(key, value));
    return take(name, key, strlen(value));
}
