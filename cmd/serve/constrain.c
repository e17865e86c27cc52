#include "cmd/serve/constrain.h"

#include <stdio.h>
#include <string.h>

#include "base/text/json.h"
#include "cmd/serve/request.h"

/* What structured_outputs may hold an answer to; with "guided_" before them, these are keys of their own. */
static const char *const sources[AX_SOURCES] = {
    [AX_SOURCE_SCHEMA] = "json",
    [AX_SOURCE_CHOICE] = "choice",
    [AX_SOURCE_REGEX] = "regex",
};

static enum ax_status hold_to(struct ax_serve_request *r, const struct ax_serve_model *m,
                              const char *param, enum ax_serve_source source, const json_t *given) {
    int step;
    AX_TRY(ax_serve_steps_begin(r, m, param));
    AX_TRY(ax_serve_steps_value(r, param, source, given, &step));
    return ax_serve_steps_link(&r->constraint, 0, step);
}

static enum ax_status hold_to_object(struct ax_serve_request *r, const struct ax_serve_model *m,
                                     const char *param) {
    json_t *any = json_pack("{ss}", "type", "object");
    if (!any)
        return ax_error(AX_ERR_NOMEM, "out of memory for a schema");
    const enum ax_status st = hold_to(r, m, param, AX_SOURCE_SCHEMA, any);
    json_decref(any);
    return st;
}

/* A schema may be its text. */
static enum ax_status hold_to_given(struct ax_serve_request *r, const struct ax_serve_model *m,
                                    const char *param, enum ax_serve_source source,
                                    const json_t *given) {
    struct ax_json_doc doc;
    if (source != AX_SOURCE_SCHEMA || !json_is_string(given))
        return hold_to(r, m, param, source, given);
    enum ax_status st =
        ax_json_parse(&doc, "schema", json_string_value(given), json_string_length(given));
    if (st != AX_OK)
        return ax_serve_refuse(r, param, "the text is not valid JSON");
    st = hold_to(r, m, param, source, doc.root);
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
    return hold_to(r, m, param, AX_SOURCE_SCHEMA, schema);
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
        int source = 0;
        if (json_is_null(item) || json_is_false(item))
            continue;
        while (source < AX_SOURCES && strcmp(sources[source], name) != 0)
            source++;
        if (source < AX_SOURCES)
            AX_TRY(hold_to_given(r, m, param, (enum ax_serve_source)source, item));
        else if (object && json_is_true(item))
            AX_TRY(hold_to_object(r, m, param));
        else
            return ax_serve_refuse(
                r, param, "%.40s is not supported yet; json, json_object, choice and regex are",
                name);
    }
    return AX_OK;
}

/* The older names. */
static enum ax_status read_guided(struct ax_serve_request *r, const struct ax_serve_model *m) {
    for (int source = 0; source < AX_SOURCES; source++) {
        char param[32];
        snprintf(param, sizeof param, "guided_%s", sources[source]);
        const json_t *v = given(r, param);
        if (v)
            AX_TRY(hold_to_given(r, m, param, (enum ax_serve_source)source, v));
    }
    return AX_OK;
}

enum ax_status ax_serve_read_constraint(struct ax_serve_request *r,
                                        const struct ax_serve_model *m) {
    AX_TRY(read_format(r, m));
    AX_TRY(read_outputs(r, m));
    AX_TRY(read_guided(r, m));
    if (r->tool_choice <= AX_TOOLS_AUTO)
        return AX_OK;
    AX_TRY(ax_serve_steps_begin(r, m, "tool_choice"));
    return ax_serve_force_calls(r, m);
}
