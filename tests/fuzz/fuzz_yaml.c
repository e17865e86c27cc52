/* YAML: any bytes give a tree or an error with a place, and nothing stays allocated. The first part
 * of the input is also tried as the value, and as the key path, of an override. */
#include <string.h>

#include "base/mem.h"
#include "base/text/yaml.h"

/* Every node has what its kind promises; returns how many there are. */
static size_t check_node(const struct ax_yaml_node *node) {
    size_t n = 1;
    bool collection = node->kind == AX_YAML_LIST || node->kind == AX_YAML_MAP;
    AX_ASSERT(collection || (node->n == 0 && node->text != NULL));
    for (size_t i = 0; i < node->n; i++) {
        const struct ax_yaml_entry *e = &node->entries[i];
        AX_ASSERT((e->key != NULL) == (node->kind == AX_YAML_MAP));
        AX_ASSERT(e->key == NULL || ax_yaml_get(node, e->key) == e->value);
        n += check_node(e->value);
    }
    return n;
}

static void try_override(const char *path, const char *text) {
    static const char config[] = "a: 1\nb: [x, {c: 2}]\nd:\n";
    struct ax_yaml_doc doc;
    AX_ASSERT(ax_yaml_parse(&doc, "c.yaml", config, strlen(config)) == AX_OK);
    if (ax_yaml_set(&doc, path, text) != AX_OK)
        AX_ASSERT(strlen(ax_error_text()) > 0);
    (void)check_node(doc.root);
    ax_yaml_free(&doc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint64_t live = ax_mem_live_blocks();
    struct ax_yaml_doc doc;
    if (ax_yaml_parse(&doc, "f.yaml", (const char *)data, size) == AX_OK) {
        /* get is linear in a map, so huge maps are left out of the check */
        AX_ASSERT(size > 20000 || check_node(doc.root) <= AX_YAML_NODES_MAX);
        ax_yaml_free(&doc);
    } else {
        AX_ASSERT(strncmp(ax_error_text(), "f.yaml:", 7) == 0);
        AX_ASSERT(doc.root == NULL && doc.name == NULL);
    }
    char text[64];
    size_t n = size < sizeof text - 1 ? size : sizeof text - 1;
    memcpy(text, data, n);
    text[n] = '\0';
    try_override("b.1.c", text);
    try_override(text, "[1, {x: y}]");
    try_override(text, "null");
    AX_ASSERT(ax_mem_live_blocks() == live);
    return 0;
}
