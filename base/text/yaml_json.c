/* A YAML tree as JSON values. JSON has no infinities and no NaN: configurations with them are refused before. */
#include "base/text/yaml.h"

json_t *ax_yaml_to_json(const struct ax_yaml_node *v) {
    json_t *out = NULL;
    switch (v->kind) {
    case AX_YAML_NULL:
        return json_null();
    case AX_YAML_BOOL:
        return json_boolean(v->boolean);
    case AX_YAML_INT:
        return json_integer(v->integer);
    case AX_YAML_FLOAT:
        return json_real(v->number);
    case AX_YAML_STRING:
        return json_string(v->text);
    case AX_YAML_LIST:
        out = json_array();
        for (size_t i = 0; i < v->n; i++)
            json_array_append_new(out, ax_yaml_to_json(v->entries[i].value));
        return out;
    case AX_YAML_MAP:
        out = json_object();
        for (size_t i = 0; i < v->n; i++)
            json_object_set_new(out, v->entries[i].key, ax_yaml_to_json(v->entries[i].value));
        return out;
    }
    return out;
}
