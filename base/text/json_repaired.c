#include "base/text/json_repaired.h"

#include <string.h>

#include "base/mem.h"
#include "base/text/unicode.h"

json_t *ax_json_repaired(const char *bytes) {
    struct ax_buf text = {0};
    json_t *v = NULL;
    if (ax_utf8_repair(&text, bytes, strlen(bytes)) == AX_OK)
        v = json_stringn(text.data, text.len);
    ax_buf_free(&text);
    return v;
}
