/* Creating, copying and freeing nodes, for the files that read YAML. Private to base/. */
#ifndef AX_BASE_TEXT_YAML_TREE_H
#define AX_BASE_TEXT_YAML_TREE_H

#include "base/text/yaml.h"

/* The remaining budget of one document. */
struct ax_yaml_budget {
    size_t nodes, copied_bytes;
};

enum ax_status ax_yaml_node_new(struct ax_yaml_node **out, enum ax_yaml_kind kind,
                                struct ax_yaml_budget *budget);
void ax_yaml_node_clear(struct ax_yaml_node *node); /* frees what it holds, not itself */
void ax_yaml_node_free(struct ax_yaml_node *node);
enum ax_status ax_yaml_node_copy(struct ax_yaml_node **out, const struct ax_yaml_node *src,
                                 struct ax_yaml_budget *budget);
/* Appends to a LIST or MAP; takes key and value on success. Capacity doubles. */
enum ax_status ax_yaml_append(struct ax_yaml_node *node, struct ax_yaml_entry entry);

/* The value of an override: one scalar or flow collection, whose nodes get line 0. */
enum ax_status ax_yaml_parse_value(struct ax_yaml_node **out, const char *text);

#endif
