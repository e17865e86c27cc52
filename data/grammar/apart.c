/* Whether two schemas of a oneOf exclude each other. */
#include "data/grammar/apart.h"

#include <stdlib.h>
#include <string.h>

#define MOST_LOOKED_AT 4 /* properties in properties, and references in a row */

int ax_schema_type(const char *name) {
    static const char *const names[AX_TYPES] = {"object", "array",   "string", "integer",
                                                "number", "boolean", "null"};
    for (int i = 0; name && i < AX_TYPES; i++)
        if (strcmp(names[i], name) == 0)
            return 1 << i;
    return 0;
}

int ax_schema_type_of(const json_t *v) {
    return json_is_object(v)    ? AX_TYPE_OBJECT
           : json_is_array(v)   ? AX_TYPE_ARRAY
           : json_is_string(v)  ? AX_TYPE_STRING
           : json_is_integer(v) ? AX_TYPE_INTEGER | AX_TYPE_NUMBER
           : json_is_real(v)    ? AX_TYPE_NUMBER
           : json_is_boolean(v) ? AX_TYPE_BOOLEAN
                                : AX_TYPE_NULL;
}

/* A part of a path: ~1 is a slash, ~0 a tilde (RFC 6901). Longer names are not looked for. */
static bool take_key(const char **path, char key[256]) {
    size_t n = 0;
    const char *s = *path;
    for (; *s && *s != '/' && n < 255; s++) {
        const bool escaped = *s == '~' && (s[1] == '0' || s[1] == '1');
        s += escaped;
        key[n++] = !escaped ? *s : *s == '0' ? '~' : '/';
    }
    key[n] = '\0';
    *path = s;
    return *s == '/' || *s == '\0';
}

const json_t *ax_schema_follow(const json_t *document, const char *path) {
    const json_t *at = document;
    char key[256];
    while (at && *path) {
        path++;
        if (!take_key(&path, key))
            return NULL;
        at = json_is_array(at) ? json_array_get(at, (size_t)strtoul(key, NULL, 10))
                               : json_object_get(at, key);
    }
    return at;
}

/* ---- two schemas ---- */

struct pair {
    const json_t *document;
    int depth; /* that may still be looked at */
};

static bool are_apart(struct pair p, const json_t *a, const json_t *b);

/* Values of const or enum; 0: it has neither. */
static size_t n_values(const json_t *schema) {
    return json_object_get(schema, "const") ? 1 : json_array_size(json_object_get(schema, "enum"));
}

static const json_t *value_at(const json_t *schema, size_t i) {
    const json_t *one = json_object_get(schema, "const");
    return one ? one : json_array_get(json_object_get(schema, "enum"), i);
}

static int types_of(const json_t *schema) {
    const json_t *type = json_object_get(schema, "type");
    int all = 0;
    for (size_t i = 0; i < n_values(schema); i++)
        all |= ax_schema_type_of(value_at(schema, i));
    if (n_values(schema) == 0 && !json_is_array(type))
        all = type ? ax_schema_type(json_string_value(type)) : AX_TYPES_ALL;
    for (size_t i = 0; n_values(schema) == 0 && i < json_array_size(type); i++)
        all |= ax_schema_type(json_string_value(json_array_get(type, i)));
    return all & AX_TYPE_NUMBER ? all | AX_TYPE_INTEGER : all;
}

/* 1 and 1.0 are the same number; of lists and objects, it may be. */
static bool may_be_same(const json_t *a, const json_t *b) {
    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) == json_number_value(b);
    return json_typeof(a) == json_typeof(b) &&
           (json_is_object(a) || json_is_array(a) || json_equal(a, b));
}

static bool values_apart(const json_t *a, const json_t *b) {
    for (size_t i = 0; i < n_values(a); i++)
        for (size_t k = 0; k < n_values(b); k++)
            if (may_be_same(value_at(a, i), value_at(b, k)))
                return false;
    return n_values(a) > 0 && n_values(b) > 0;
}

static bool is_required(const json_t *schema, const char *name) {
    const json_t *list = json_object_get(schema, "required");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *s = json_string_value(json_array_get(list, i));
        if (s && strcmp(s, name) == 0)
            return true;
    }
    return false;
}

/* A property that `a` and `b` require has no value that fits both, or `b` allows none of what `a` requires. */
static bool property_apart(struct pair p, const json_t *a, const json_t *b) {
    const json_t *required = json_object_get(a, "required"),
                 *theirs = json_object_get(b, "properties");
    const bool closed = json_is_false(json_object_get(b, "additionalProperties"));
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        const json_t *own = name ? json_object_get(json_object_get(a, "properties"), name) : NULL;
        const json_t *other = name ? json_object_get(theirs, name) : NULL;
        if (name && closed && !other)
            return true;
        if (own && other && is_required(b, name) && are_apart(p, own, other))
            return true;
    }
    return false;
}

/* The schema that another one stands for; NULL: there is none. */
static const json_t *target_of(const json_t *document, const json_t *schema) {
    const char *ref = json_string_value(json_object_get(schema, "$ref"));
    const json_t *all = json_object_get(schema, "allOf");
    if (ref)
        return ref[0] == '#' ? ax_schema_follow(document, ref + 1) : NULL;
    return json_array_size(all) == 1 ? json_array_get(all, 0) : schema;
}

/* Every way of `a` is apart from `b`. */
static bool ways_apart(struct pair p, const json_t *ways, const json_t *b) {
    for (size_t i = 0; i < json_array_size(ways); i++)
        if (!are_apart(p, json_array_get(ways, i), b))
            return false;
    return json_array_size(ways) > 0;
}

static const json_t *ways_of(const json_t *schema) {
    const json_t *any = json_object_get(schema, "anyOf");
    return any ? any : json_object_get(schema, "oneOf");
}

static bool are_apart(struct pair p, const json_t *a, const json_t *b) {
    const json_t *own = target_of(p.document, a), *other = target_of(p.document, b);
    if (p.depth-- == 0 || !json_is_object(own) || !json_is_object(other))
        return false;
    if (own != a || other != b)
        return are_apart(p, own, other);
    if (ways_of(a))
        return ways_apart(p, ways_of(a), b);
    if (ways_of(b))
        return ways_apart(p, ways_of(b), a);
    const int types = types_of(a) & types_of(b);
    return types == 0 || values_apart(a, b) ||
           (types == AX_TYPE_OBJECT && (property_apart(p, a, b) || property_apart(p, b, a)));
}

bool ax_schemas_apart(const json_t *document, const json_t *a, const json_t *b) {
    return are_apart((struct pair){document, MOST_LOOKED_AT}, a, b);
}
