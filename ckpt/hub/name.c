/* Validates ids, revisions and paths. All of them become parts of paths and URLs. */
#include <ctype.h>
#include <string.h>

#include "base/io.h"
#include "ckpt/hub/hub.h"

/* One part of an id: letters, digits and - _ . but no .. or -- and neither - nor . at the ends. */
static bool is_id_part(const char *s, size_t n) {
    if (n == 0 || n > 96 || strchr("-.", s[0]) || strchr("-.", s[n - 1]))
        return false;
    for (size_t i = 0; i < n; i++) {
        const bool twice = i > 0 && s[i] == s[i - 1] && strchr("-.", s[i]);
        if (twice || (!isalnum((unsigned char)s[i]) && !strchr("-_.", s[i])))
            return false;
    }
    return true;
}

bool ax_hub_is_id(const char *id) {
    const char *slash = strchr(id, '/');
    if (!slash)
        return is_id_part(id, strlen(id));
    return is_id_part(id, (size_t)(slash - id)) && is_id_part(slash + 1, strlen(slash + 1));
}

/* Branch names may contain slashes ("refs/convert/parquet"), but no part that leads out of a
 * folder. */
bool ax_hub_is_revision(const char *s) {
    const size_t n = strlen(s);
    if (n == 0 || n > 200 || *s == '/' || strstr(s, "..") || strstr(s, "//") || s[n - 1] == '/')
        return false;
    for (; *s; s++)
        if (!isalnum((unsigned char)*s) && !strchr("-_./", *s))
            return false;
    return true;
}

const char *ax_hub_revision(const struct ax_hub_repo *r) {
    return r->revision ? r->revision : "main";
}

bool ax_hub_is_path(const char *path) {
    char part[256];
    if (strlen(path) > AX_HUB_PATH_MAX)
        return false;
    for (;;) {
        const size_t n = strcspn(path, "/");
        if (n >= sizeof part)
            return false;
        memcpy(part, path, n);
        part[n] = '\0';
        if (!ax_is_plain_name(part))
            return false;
        if (path[n] == '\0')
            return true;
        path += n + 1;
    }
}
