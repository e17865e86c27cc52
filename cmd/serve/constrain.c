#include "cmd/serve/constrain.h"

#include <string.h>

#include "base/text/json.h"
#include "cmd/serve/request.h"

static enum ax_status hold_to(struct ax_serve_request *r, const struct ax_serve_model *m,
                              const char *param, const json_t *schema) {
    int step;
    AX_TRY(ax_serve_steps_begin(r, m, param));
    AX_TRY(ax_serve_steps_value(r, param, schema, &step));
    return ax_serve_steps_link(&r->constraint, 0, step);
}

static enum ax_status hold_to_object(struct ax_serve_request *r, const struct ax_serve_model *m,
                                     const char *param) {
    json_t *any = json_pack("{ss}", "type", "object");
    if (!any)
        return ax_error(AX_ERR_NOMEM, "out of memory for a schema");
    const enum ax_status st = hold_to(r, m, param, any);
    json_decref(any);
    return st;
}

/* A schema, or its text. */
static enum ax_status hold_to_given(struct ax_serve_request *r, const struct ax_serve_model *m,
                                    const char *param, const json_t *schema) {
    struct ax_json_doc doc;
    if (!json_is_string(schema))
        return hold_to(r, m, param, schema);
    enum ax_status st =
        ax_json_parse(&doc, "schema", json_string_value(schema), json_string_length(schema));
    if (st != AX_OK)
        return ax_serve_refuse(r, param, "the text is not valid JSON");
    st = hold_to(r, m, param, doc.root);
    ax_json_free(&doc);
    return st;
}

static json_t *given(const struct ax_serve_request *r, const char *key) {
    json_t *v = json_object_get(r->root, key);
    return json_is_null(v) ? NULL : v;
}

static enum ax_status read_format(struct ax_serve_request *r, const struct ax_serve_model *m) {
    static const char param[] = "response_format";
    const json_t *v = given(r, param),
                 *schema = json_object_get(json_object_get(v, "json_schema"), "schema");
    const char *type = json_string_value(json_object_get(v, "type"));
    if (!v || (type && strcmp(type, "text") == 0))
        return AX_OK;
    if (type && strcmp(type, "json_object") == 0)
        return hold_to_object(r, m, param);
    if (!type || strcmp(type, "json_schema") != 0)
        return ax_serve_refuse(r, param, "type: expected text, json_object or json_schema");
    if (!json_is_object(schema))
        return ax_serve_refuse(r, param, "json_schema.schema: expected an object");
    return hold_to(r, m, param, schema);
}

static enum ax_status read_outputs(struct ax_serve_request *r, const struct ax_serve_model *m) {
    static const char param[] = "structured_outputs";
    json_t *v = given(r, param), *item;
    const char *name;
    if (!v)
        return AX_OK;
    if (!json_is_object(v))
        return ax_serve_refuse(r, param, "expected an object");
    json_object_foreach(v, name, item) {
        const bool object = strcmp(name, "json_object") == 0;
        if (json_is_null(item) || json_is_false(item))
            continue;
        if (strcmp(name, "json") == 0)
            AX_TRY(hold_to_given(r, m, param, item));
        else if (object && json_is_true(item))
            AX_TRY(hold_to_object(r, m, param));
        else
            return ax_serve_refuse(r, param, "%.40s is not supported yet; json and json_object are",
                                   name);
    }
    return AX_OK;
}

enum ax_status ax_serve_read_constraint(struct ax_serve_request *r,
                                        const struct ax_serve_model *m) {
    const json_t *guided = given(r, "guided_json");
    AX_TRY(read_format(r, m));
    AX_TRY(read_outputs(r, m));
    if (guided)
        AX_TRY(hold_to_given(r, m, "guided_json", guided));
    if (r->tool_choice <= AX_TOOLS_AUTO)
        return AX_OK;
    AX_TRY(ax_serve_steps_begin(r, m, "tool_choice"));
    return ax_serve_force_calls(r, m);
}
