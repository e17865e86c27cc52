/* Paths and lists of files: the hub's response, [{"type": "file", "path", "size", "oid", "lfs": {"oid"}},
 * …]. */
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/text/json.h"
#include "ckpt/hub/hub.h"

#define MAX_FILES 200000
#define MAX_SIZE  ((int64_t)1 << 50)

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

static bool is_digest(const char *s) {
    const size_t n = strlen(s);
    return (n == 40 || n == 64) && strspn(s, "0123456789abcdef") == n;
}

static enum ax_status add(struct ax_hub_list *l, struct ax_json v) {
    const struct ax_json lfs = ax_json_get(v, "lfs"), path_at = ax_json_get(v, "path");
    const struct ax_json digest_at = ax_json_get(lfs.v ? lfs : v, "oid");
    const char *path, *digest;
    int64_t size;
    AX_TRY(ax_json_str(path_at, &path));
    if (!ax_hub_is_path(path))
        return ax_json_error(path_at, "\"%.100s\" leads out of the repository", path);
    AX_TRY(ax_json_i64(ax_json_get(lfs.v ? lfs : v, "size"), 0, MAX_SIZE, &size));
    AX_TRY(ax_json_str(digest_at, &digest));
    if (!is_digest(digest))
        return ax_json_error(digest_at, "\"%.100s\" is not a checksum", digest);
    if (l->n == MAX_FILES)
        return ax_json_error(v, "more than %d files", MAX_FILES);
    if ((l->n & (l->n - 1)) == 0) /* grows at powers of two */
        AX_TRY(ax_regrow(&l->files, l->n, l->n ? 2 * l->n : 1, sizeof *l->files));
    struct ax_hub_file *f = &l->files[l->n];
    AX_TRY(ax_strdup(&f->path, path));
    f->size = (uint64_t)size;
    memcpy(f->blob, digest, strlen(digest) + 1);
    l->n++;
    return AX_OK;
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const struct ax_hub_file *)a)->path, ((const struct ax_hub_file *)b)->path);
}

static enum ax_status parse_page(struct ax_hub_list *l, struct ax_json root) {
    if (!json_is_array(root.v))
        return ax_json_error(root, "expected a list of files");
    for (size_t i = 0; i < ax_json_size(root); i++) {
        const struct ax_json v = ax_json_at(root, i);
        const char *type;
        AX_TRY(ax_json_str_or(ax_json_get(v, "type"), "file", &type));
        if (strcmp(type, "file") == 0)
            AX_TRY(add(l, v));
    }
    return AX_OK;
}

enum ax_status ax_hub_list_parse(struct ax_hub_list *l, const char *name, const char *text,
                                 size_t len) {
    struct ax_json_doc doc;
    AX_TRY(ax_json_parse(&doc, name, text, len));
    enum ax_status st = parse_page(l, ax_json_root(&doc));
    ax_json_free(&doc);
    if (l->n > 0)
        qsort(l->files, l->n, sizeof *l->files, by_path);
    for (size_t i = 1; i < l->n && st == AX_OK; i++)
        if (strcmp(l->files[i].path, l->files[i - 1].path) == 0)
            st = ax_error(AX_ERR_DATA, "%s: the file %s is listed twice", name, l->files[i].path);
    return st;
}

void ax_hub_list_free(struct ax_hub_list *l) {
    for (size_t i = 0; i < l->n; i++)
        ax_free(l->files[i].path);
    ax_free(l->files);
    *l = (struct ax_hub_list){0};
}

const struct ax_hub_file *ax_hub_list_find(const struct ax_hub_list *l, const char *path) {
    const struct ax_hub_file key = {.path = (char *)(uintptr_t)path};
    return l->n ? bsearch(&key, l->files, l->n, sizeof key, by_path) : NULL;
}
