#include "cmd/api_key.h"

#include <string.h>

#include "base/io.h"
#include "base/mem.h"

#define MAX_KEY ((size_t)4096)

enum ax_status ax_api_key_read(const char *path, char **key) {
    size_t len, n = 0;
    AX_TRY(ax_read_file(path, MAX_KEY, key, &len));
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
                    path);
}
