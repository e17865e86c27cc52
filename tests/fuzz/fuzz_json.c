/* JSON: any bytes give a value or an error with a place; what was dumped reads back to the same
 * dump; nothing stays allocated. */
#include <string.h>

#include "base/text/json.h"

static void check_dump(const json_t *root) {
    char *first;
    char *second;
    size_t len;
    size_t again;
    struct ax_json_doc doc;
    AX_ASSERT(ax_json_dump(root, &first, &len) == AX_OK);
    AX_ASSERT(strlen(first) == len);
    AX_ASSERT(ax_json_parse(&doc, "dump", first, len) == AX_OK);
    AX_ASSERT(ax_json_dump(doc.root, &second, &again) == AX_OK);
    AX_ASSERT(len == again && memcmp(first, second, len) == 0);
    ax_free(first);
    ax_free(second);
    ax_json_free(&doc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint64_t live = ax_mem_live_blocks();
    struct ax_json_doc doc;
    if (ax_json_parse_file(&doc, "g.json", (const char *)data, size) == AX_OK) {
        check_dump(doc.root);
        ax_json_free(&doc);
    }
    if (ax_json_parse(&doc, "f.json", (const char *)data, size) == AX_OK) {
        check_dump(doc.root);
        struct ax_json v = ax_json_get(ax_json_at(ax_json_root(&doc), 0), "a");
        int64_t i;
        double x;
        const char *s;
        (void)ax_json_i64(v, -10, 10, &i);
        (void)ax_json_f64(v, &x);
        (void)ax_json_str(v, &s);
        ax_json_free(&doc);
    } else {
        AX_ASSERT(strncmp(ax_error_text(), "f.json:", 7) == 0);
        AX_ASSERT(doc.root == NULL && doc.name == NULL);
    }
    AX_ASSERT(ax_mem_live_blocks() == live);
    return 0;
}
