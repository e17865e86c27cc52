/* JSON schemas → nodes. A schema is compiled once, wherever it is referred to: a reference to one that is still being
 * compiled is its node. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fit.h"
#include "base/mem.h"
#include "base/text/json.h"
#include "data/grammar/apart.h"
#include "data/grammar/formats.h"
#include "data/grammar/nodes.h"
#include "data/grammar/pattern.h"

#define MOST_NESTED   100  /* schemas in each other, and references in a row */
#define MOST_IN_A_ROW 100  /* properties that may be left out, one after the other */
#define MOST_WHOLE    1e15 /* limits of integers, */
#define MOST_NUMBER   1e9  /* and of numbers */

/* Keywords. PART: of values of some types, which a schema without a type is about; ALONE and VALUE: no other part may be beside
 * it, but a type beside a VALUE. */
enum role { PART, ALONE, VALUE, ANNOTATION };
static const struct keyword {
    const char *name;
    enum role role;
    int about;
} keywords[] = {
    {"type", PART, 0},
    {"properties", PART, AX_TYPE_OBJECT},
    {"required", PART, AX_TYPE_OBJECT},
    {"additionalProperties", PART, AX_TYPE_OBJECT},
    {"prefixItems", PART, AX_TYPE_ARRAY},
    {"items", PART, AX_TYPE_ARRAY},
    {"minItems", PART, AX_TYPE_ARRAY},
    {"maxItems", PART, AX_TYPE_ARRAY},
    {"minLength", PART, AX_TYPE_STRING},
    {"maxLength", PART, AX_TYPE_STRING},
    {"pattern", PART, AX_TYPE_STRING},
    {"format", PART, AX_TYPE_STRING},
    {"minimum", PART, AX_TYPE_NUMBER},
    {"maximum", PART, AX_TYPE_NUMBER},
    {"exclusiveMinimum", PART, AX_TYPE_NUMBER},
    {"exclusiveMaximum", PART, AX_TYPE_NUMBER},
    {"enum", VALUE, 0},
    {"const", VALUE, 0},
    {"anyOf", ALONE, 0},
    {"oneOf", ALONE, 0},
    {"allOf", ALONE, 0},
    {"$ref", ALONE, 0},
    {"title", ANNOTATION, 0},
    {"description", ANNOTATION, 0},
    {"default", ANNOTATION, 0},
    {"examples", ANNOTATION, 0},
    {"deprecated", ANNOTATION, 0},
    {"readOnly", ANNOTATION, 0},
    {"writeOnly", ANNOTATION, 0},
    {"discriminator", ANNOTATION, 0},
    {"$schema", ANNOTATION, 0},
    {"$id", ANNOTATION, 0},
    {"$comment", ANNOTATION, 0},
    {"$defs", ANNOTATION, 0},
    {"definitions", ANNOTATION, 0},
};
#define N_KEYWORDS (sizeof keywords / sizeof *keywords)

/* A schema and its node. */
struct known {
    const json_t *schema;
    int node;
};

struct compiler {
    struct ax_grammar *g;
    const json_t *document, *scope; /* where references begin: the scope, or else the document */
    struct known *known;
    size_t n_known, cap_known;
    int any;              /* the node of any value; AX_NO_NODE: not yet */
    bool written[256];    /* bytes that characters of a string may begin with */
    size_t work, entries; /* of expressions */
    int nested;
    char path[200]; /* where the schema is */
};

static enum ax_status compile(struct compiler *c, const json_t *schema, int *node);

static enum ax_status refuse(const struct compiler *c, const char *keyword, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static enum ax_status refuse(const struct compiler *c, const char *keyword, const char *fmt, ...) {
    char text[200];
    va_list ap;
    va_start(ap, fmt);
    ax_vfit(text, sizeof text, fmt, ap);
    va_end(ap);
    return ax_error(AX_ERR_DATA, "%s: %s (schema #%s)", keyword, text, c->path);
}

/* ---- nodes ---- */

static enum ax_status add_node(struct compiler *c, struct ax_node v, int *node) {
    struct ax_grammar *g = c->g;
    if (g->n == AX_GRAMMAR_NODES)
        return refuse(c, "schema", "at most %d parts are supported", AX_GRAMMAR_NODES);
    if (g->n == g->cap) {
        const int cap = g->cap > 0 ? 2 * g->cap : 16;
        AX_TRY(ax_regrow(&g->nodes, (size_t)g->cap, (size_t)cap, sizeof *g->nodes));
        g->cap = cap;
    }
    *node = g->n;
    g->nodes[g->n++] = v;
    return AX_OK;
}

/* A value as JSON. */
static enum ax_status add_json(struct compiler *c, struct ax_grammar_text *to, const json_t *v) {
    char real[AX_REAL_TEXT], *text = NULL;
    if (json_is_real(v)) {
        ax_real_repr(json_real_value(v), real);
        return ax_grammar_add_text(c->g, to, real, strlen(real));
    }
    text = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!text)
        return ax_error(AX_ERR_NOMEM, "out of memory for a schema");
    const enum ax_status st = ax_grammar_add_text(c->g, to, text, strlen(text));
    ax_free_hook(text);
    return st;
}

/* The node's texts are allocated while it is in the table, which frees them. */
static enum ax_status add_texts(struct compiler *c, const json_t *list, int *node) {
    const size_t n = json_array_size(list);
    AX_TRY(add_node(c, (struct ax_node){.kind = AX_NODE_TEXTS}, node));
    AX_TRY(ax_alloc(&c->g->nodes[*node].texts, n, sizeof(struct ax_grammar_text)));
    for (size_t i = 0; i < n; i++) {
        struct ax_node *v = &c->g->nodes[*node];
        v->n_texts++;
        AX_TRY(add_json(c, &v->texts[i], json_array_get(list, i)));
    }
    ax_grammar_sort_texts(&c->g->nodes[*node]);
    return AX_OK;
}

static enum ax_status add_words(struct compiler *c, const char *json, int *node) {
    json_t *list = json_loads(json, 0, NULL);
    enum ax_status st = AX_ERR_NOMEM;
    if (list)
        st = add_texts(c, list, node);
    else
        (void)ax_error(st, "out of memory for a schema");
    json_decref(list);
    return st;
}

static enum ax_status add_union(struct compiler *c, size_t most, int *node) {
    AX_TRY(add_node(c, (struct ax_node){.kind = AX_NODE_UNION}, node));
    return ax_alloc(&c->g->nodes[*node].ways, most, sizeof(int));
}

static void add_way(struct compiler *c, int node, int way) {
    struct ax_node *v = &c->g->nodes[node];
    v->ways[v->n_ways++] = way;
}

/* Any value: of any type, and so are its parts. */
static enum ax_status any_value(struct compiler *c, int *node) {
    int way = AX_NO_NODE;
    *node = c->any;
    if (c->any != AX_NO_NODE)
        return AX_OK;
    AX_TRY(add_union(c, 5, node));
    c->any = *node;
    AX_TRY(add_node(c, (struct ax_node){.kind = AX_NODE_OBJECT, .other = *node}, &way));
    add_way(c, *node, way);
    AX_TRY(add_node(c, (struct ax_node){.kind = AX_NODE_ARRAY, .item = *node, .max = AX_NO_LIMIT},
                    &way));
    add_way(c, *node, way);
    AX_TRY(add_node(c, (struct ax_node){.kind = AX_NODE_STRING, .max = AX_NO_LIMIT}, &way));
    add_way(c, *node, way);
    AX_TRY(add_node(c, (struct ax_node){.kind = AX_NODE_NUMBER}, &way));
    add_way(c, *node, way);
    AX_TRY(add_words(c, "[true, false, null]", &way));
    add_way(c, *node, way);
    return AX_OK;
}

/* ---- keywords of a type ---- */

static enum ax_status count_of(struct compiler *c, const json_t *schema, const char *name,
                               int64_t none, int64_t *out) {
    const json_t *v = json_object_get(schema, name);
    *out = v ? json_integer_value(v) : none;
    if (v && (!json_is_integer(v) || *out < 0 || *out > INT32_MAX))
        return refuse(c, name, "expected an integer, 0 or more");
    return AX_OK;
}

/* Counts of items or characters. */
static enum ax_status counts_of(struct compiler *c, const json_t *schema, const char *min,
                                const char *max, struct ax_node *v) {
    AX_TRY(count_of(c, schema, min, 0, &v->min));
    AX_TRY(count_of(c, schema, max, AX_NO_LIMIT, &v->max));
    return v->max == AX_NO_LIMIT || v->min <= v->max ? AX_OK
                                                     : refuse(c, min, "it is more than %s", max);
}

/* *x becomes a limit, if the schema has it. */
static enum ax_status limit_of(struct compiler *c, const json_t *schema, const char *name,
                               double most, double *x, bool *given) {
    const json_t *v = json_object_get(schema, name);
    if (!v)
        return AX_OK;
    if (!json_is_number(v) || !(fabs(json_number_value(v)) <= most))
        return refuse(c, name, "expected a number from %g to %g", -most, most);
    *x = json_number_value(v);
    *given = true;
    return AX_OK;
}

static enum ax_status add_number(struct compiler *c, const json_t *schema, bool integer,
                                 int *node) {
    const double most = integer ? MOST_WHOLE : MOST_NUMBER, unit = integer ? 1 : 1e6;
    struct ax_node v = {.kind = AX_NODE_NUMBER, .integer = integer};
    double lo = -most, hi = most, above = -INFINITY, below = INFINITY;
    AX_TRY(limit_of(c, schema, "minimum", most, &lo, &v.limited));
    AX_TRY(limit_of(c, schema, "maximum", most, &hi, &v.limited));
    AX_TRY(limit_of(c, schema, "exclusiveMinimum", most, &above, &v.limited));
    AX_TRY(limit_of(c, schema, "exclusiveMaximum", most, &below, &v.limited));
    lo = fmax(lo, above);
    hi = fmin(hi, below);
    /* the quotients of these integers and the unit are what their decimals are read as */
    v.least = (int64_t)floor(lo * unit) - 1;
    v.most = (int64_t)ceil(hi * unit) + 1;
    while ((double)v.least / unit < lo || (double)v.least / unit <= above)
        v.least++;
    while ((double)v.most / unit > hi || (double)v.most / unit >= below)
        v.most--;
    if (v.least > v.most)
        return refuse(c, "minimum", "no %s is between the limits",
                      integer ? "integer" : "number of six decimals");
    return add_node(c, v, node);
}

/* Compiles a list of schemas into ways of the node, which has room for them. */
static enum ax_status compile_list(struct compiler *c, const char *keyword, const json_t *list,
                                   int node) {
    const size_t before = strlen(c->path);
    for (size_t i = 0; i < json_array_size(list); i++) {
        int way;
        snprintf(c->path + before, sizeof c->path - before, "/%s/%zu", keyword, i);
        AX_TRY(compile(c, json_array_get(list, i), &way));
        c->path[before] = '\0';
        add_way(c, node, way);
    }
    return AX_OK;
}

static enum ax_status compile_items(struct compiler *c, const json_t *items, int *item) {
    const size_t before = strlen(c->path);
    if (json_is_array(items))
        return refuse(c, "items", "expected one schema; a list of them is prefixItems");
    snprintf(c->path + before, sizeof c->path - before, "/items");
    AX_TRY(compile(c, items, item));
    c->path[before] = '\0';
    return AX_OK;
}

static enum ax_status add_array(struct compiler *c, const json_t *schema, int *node) {
    struct ax_node v = {.kind = AX_NODE_ARRAY, .item = AX_NO_NODE};
    const json_t *items = json_object_get(schema, "items"),
                 *first = json_object_get(schema, "prefixItems");
    const size_t n = json_array_size(first);
    int item = AX_NO_NODE;
    AX_TRY(counts_of(c, schema, "minItems", "maxItems", &v));
    if (first && n == 0)
        return refuse(c, "prefixItems", "expected a list of schemas");
    if (json_is_false(items) && v.min > (int64_t)n)
        return refuse(c, "minItems", "it is more than prefixItems has, and items is false");
    AX_TRY(add_node(c, v, node));
    if (n > 0)
        AX_TRY(ax_alloc(&c->g->nodes[*node].ways, n, sizeof(int)));
    AX_TRY(compile_list(c, "prefixItems", first, *node));
    if (!json_is_false(items))
        AX_TRY(items ? compile_items(c, items, &item) : any_value(c, &item));
    c->g->nodes[*node].item = item;
    return AX_OK;
}

/* ---- strings ---- */

/* All expressions of a schema together have the bounds of a single one. */
static enum ax_status add_expression(struct compiler *c, const char *keyword, const char *text,
                                     size_t n, int node) {
    struct ax_pattern **p = &c->g->nodes[node].pattern;
    const bool whole = strcmp(keyword, "format") == 0;
    const enum ax_status st = ax_pattern_compile(p, text, n, whole, c->written);
    if (st != AX_OK)
        return ax_error_prefix(st, "%s (schema #%s)", keyword, c->path);
    c->work += (*p)->work;
    c->entries += (size_t)(*p)->n_states * (size_t)(*p)->n_classes;
    const struct ax_node *v = &c->g->nodes[node];
    const int64_t least = (*p)->least[AX_PATTERN_FIRST];
    if (v->min > least)
        return refuse(c, "minLength",
                      "a text of %lld characters fits %s; let %s say how short it may be",
                      (long long)least, keyword, keyword);
    if (v->max != AX_NO_LIMIT && v->max < least)
        return refuse(c, "maxLength", "no text that fits %s is as short", keyword);
    return c->work <= AX_PATTERN_WORK && c->entries <= AX_PATTERN_ENTRIES
               ? AX_OK
               : refuse(c, keyword, "the expressions of the schema have too many states");
}

static enum ax_status add_string(struct compiler *c, const json_t *schema, int *node) {
    struct ax_node v = {.kind = AX_NODE_STRING};
    const json_t *pattern = json_object_get(schema, "pattern"),
                 *format = json_object_get(schema, "format");
    const char *text = NULL;
    AX_TRY(counts_of(c, schema, "minLength", "maxLength", &v));
    if (pattern && !json_is_string(pattern))
        return refuse(c, "pattern", "expected the text of an expression");
    if (format &&
        !(json_is_string(format) && ax_grammar_find_format(json_string_value(format), &text)))
        return refuse(c, "format", "expected %s", ax_grammar_format_names);
    if (pattern && text)
        return refuse(c, "pattern", "no format is supported beside it");
    AX_TRY(add_node(c, v, node));
    if (pattern)
        return add_expression(c, "pattern", json_string_value(pattern), json_string_length(pattern),
                              *node);
    return text ? add_expression(c, "format", text, strlen(text), *node) : AX_OK;
}

/* ---- objects ---- */

/* The text of a key as JSON, for a property, and without its quotes for what additional ones are compared with. */
static enum ax_status add_property(struct compiler *c, int node, const char *name, int value) {
    struct ax_node *v = &c->g->nodes[node];
    json_t *key = json_string(name);
    const int i = v->n_properties++;
    v->properties[i].node = value;
    enum ax_status st = AX_ERR_NOMEM;
    if (key)
        st = add_json(c, &v->properties[i].key, key);
    else
        (void)ax_error(st, "out of memory for a schema");
    json_decref(key);
    AX_TRY(st);
    const struct ax_grammar_text *text = &v->properties[i].key;
    v->n_texts++;
    return ax_grammar_add_text(c->g, &v->texts[i], text->s + 1, text->n - 2);
}

static bool has_property(const struct ax_node *v, const char *name, int *at) {
    json_t *key = json_string(name);
    char *text = key ? json_dumps(key, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    bool found = false;
    for (*at = 0; text && *at < v->n_properties && !found; ++*at)
        found = strcmp(v->properties[*at].key.s, text) == 0;
    *at -= found;
    ax_free_hook(text);
    json_decref(key);
    return found;
}

/* Names that are required, and listed nowhere, are additional properties. */
static enum ax_status read_required(struct compiler *c, const json_t *required, int node) {
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));
        int at;
        if (!name)
            return refuse(c, "required", "expected names");
        if (!has_property(&c->g->nodes[node], name, &at)) {
            const int other = c->g->nodes[node].other;
            if (other == AX_NO_NODE)
                return refuse(c, "required", "there is no property \"%.60s\"", name);
            AX_TRY(add_property(c, node, name, other));
        }
        c->g->nodes[node].properties[at].required = true;
    }
    return AX_OK;
}

static enum ax_status check_rows(struct compiler *c, const struct ax_node *v) {
    int row = 0;
    for (int i = 0; i < v->n_properties; i++) {
        row = v->properties[i].required ? 0 : row + 1;
        if (row > MOST_IN_A_ROW)
            return refuse(c, "properties",
                          "at most %d that are not required are supported in a row", MOST_IN_A_ROW);
    }
    return AX_OK;
}

static enum ax_status read_other(struct compiler *c, const json_t *schema, int node) {
    const json_t *more = json_object_get(schema, "additionalProperties");
    int other = AX_NO_NODE;
    if (!json_is_false(more))
        AX_TRY(more ? compile(c, more, &other) : any_value(c, &other));
    c->g->nodes[node].other = other;
    return AX_OK;
}

static enum ax_status add_object(struct compiler *c, const json_t *schema, int *node) {
    json_t *properties = json_object_get(schema, "properties"), *item;
    const json_t *required = json_object_get(schema, "required");
    const size_t most = json_object_size(properties) + json_array_size(required);
    const size_t before = strlen(c->path);
    const char *name;
    int value;
    if (properties && !json_is_object(properties))
        return refuse(c, "properties", "expected an object");
    if (required && !json_is_array(required))
        return refuse(c, "required", "expected a list of names");
    AX_TRY(add_node(c, (struct ax_node){.kind = AX_NODE_OBJECT, .other = AX_NO_NODE}, node));
    if (most > 0) {
        AX_TRY(ax_alloc(&c->g->nodes[*node].properties, most, sizeof(struct ax_grammar_property)));
        AX_TRY(ax_alloc(&c->g->nodes[*node].texts, most, sizeof(struct ax_grammar_text)));
    }
    json_object_foreach(properties, name, item) {
        snprintf(c->path + before, sizeof c->path - before, "/properties/%.60s", name);
        AX_TRY(compile(c, item, &value));
        c->path[before] = '\0';
        AX_TRY(add_property(c, *node, name, value));
    }
    AX_TRY(read_other(c, schema, *node));
    AX_TRY(read_required(c, required, *node));
    ax_grammar_sort_texts(&c->g->nodes[*node]);
    return check_rows(c, &c->g->nodes[*node]);
}

/* ---- schemas ---- */

static enum ax_status add_type(struct compiler *c, const json_t *schema, int type, int *node) {
    switch (type) {
    case AX_TYPE_OBJECT:
        return add_object(c, schema, node);
    case AX_TYPE_ARRAY:
        return add_array(c, schema, node);
    case AX_TYPE_STRING:
        return add_string(c, schema, node);
    case AX_TYPE_BOOLEAN:
        return add_words(c, "[true, false]", node);
    case AX_TYPE_NULL:
        return add_words(c, "[null]", node);
    default:
        return add_number(c, schema, type == AX_TYPE_INTEGER, node);
    }
}

/* The types that a schema names, as bits; 0: none. */
static enum ax_status types_of(const struct compiler *c, const json_t *schema, int *all) {
    const json_t *type = json_object_get(schema, "type");
    const size_t n = json_is_array(type) ? json_array_size(type) : type != NULL;
    *all = 0;
    for (size_t i = 0; i < n; i++) {
        const int one =
            ax_schema_type(json_string_value(json_is_array(type) ? json_array_get(type, i) : type));
        if (one == 0)
            return refuse(c, "type",
                          "expected object, array, string, integer, number, boolean or "
                          "null, or a list of them");
        *all |= one;
    }
    if (*all & AX_TYPE_NUMBER) /* an integer is one */
        *all &= ~AX_TYPE_INTEGER;
    return type && *all == 0 ? refuse(c, "type", "expected a type") : AX_OK;
}

/* enum and const: the values that the type allows. */
static enum ax_status add_values(struct compiler *c, const json_t *schema, int all, int *node) {
    const json_t *list = json_object_get(schema, "enum"), *one = json_object_get(schema, "const");
    json_t *fitting = json_array();
    bool ok = fitting != NULL;
    if (list && !json_is_array(list)) {
        json_decref(fitting);
        return refuse(c, "enum", "expected a list of values");
    }
    for (size_t i = 0; ok && i < (list ? json_array_size(list) : 1); i++) {
        const json_t *v = list ? json_array_get(list, i) : one;
        if ((all == 0 || (ax_schema_type_of(v) & all) != 0) &&
            (!list || !one || json_equal(v, one)))
            ok = json_array_append(fitting, (json_t *)(uintptr_t)v) == 0;
    }
    enum ax_status st = ok ? AX_OK : ax_error(AX_ERR_NOMEM, "out of memory for a schema");
    if (st == AX_OK)
        st = json_array_size(fitting) > 0 ? add_texts(c, fitting, node)
                                          : refuse(c, list ? "enum" : "const", "no value fits");
    json_decref(fitting);
    return st;
}

/* anyOf and oneOf. */
static enum ax_status add_ways(struct compiler *c, const char *keyword, const json_t *list,
                               int *node) {
    if (json_array_size(list) == 0)
        return refuse(c, keyword, "expected a list of schemas");
    AX_TRY(add_union(c, json_array_size(list), node));
    return compile_list(c, keyword, list, *node);
}

/* No value may fit two of them, as it then would fit none. */
static enum ax_status check_one_of(const struct compiler *c, const json_t *list) {
    for (size_t i = 0; i < json_array_size(list); i++)
        for (size_t k = 0; k < i; k++)
            if (!ax_schemas_apart(c->document, json_array_get(list, k), json_array_get(list, i)))
                return refuse(
                    c, "oneOf",
                    "a value may fit both %zu and %zu; write anyOf, or require a property "
                    "in both whose const differs",
                    k, i);
    return AX_OK;
}

static enum ax_status add_types(struct compiler *c, const json_t *schema, int all, int *node) {
    int single = 0;
    for (int i = 0; i < AX_TYPES; i++)
        single += all >> i & 1;
    if (single == 1)
        return add_type(c, schema, all, node);
    AX_TRY(add_union(c, (size_t)single, node));
    for (int i = 0; i < AX_TYPES; i++) {
        int way;
        if (!(all >> i & 1))
            continue;
        AX_TRY(add_type(c, schema, 1 << i, &way));
        add_way(c, *node, way);
    }
    return AX_OK;
}

/* What "$ref" points to: a path of keys from the document's root. */
static enum ax_status find_reference(const struct compiler *c, const json_t *ref,
                                     const json_t **out) {
    const char *at = json_string_value(ref);
    if (!at || at[0] != '#' || (at[1] && at[1] != '/'))
        return refuse(c, "$ref", "expected one within the schema: #, or #/$defs/NAME");
    *out = ax_schema_follow(c->scope, at + 1);
    if (!*out)
        *out = ax_schema_follow(c->document, at + 1);
    return *out ? AX_OK : refuse(c, "$ref", "there is no %.80s", at);
}

/* The schema that stands for the whole of this one. */
static enum ax_status find_only(const struct compiler *c, const json_t *list, const json_t **out) {
    *out = json_array_get(list, 0);
    return json_array_size(list) == 1
               ? AX_OK
               : refuse(c, "allOf", "expected a list of one schema; put the others into it");
}

/* Which keywords there are: *about gets the types that they are about, *alone the one that allows no part beside it, or
 * NULL. */
static enum ax_status read_keywords(const struct compiler *c, const json_t *schema, int *about,
                                    const struct keyword **alone) {
    const char *name;
    json_t *v;
    int parts = 0;
    *about = 0;
    *alone = NULL;
    json_object_foreach((json_t *)(uintptr_t)schema, name, v) {
        size_t i = 0;
        while (i < N_KEYWORDS && strcmp(keywords[i].name, name) != 0)
            i++;
        if (i == N_KEYWORDS)
            return refuse(c, name, "this keyword is not supported");
        const enum role role = keywords[i].role;
        *about |= keywords[i].about;
        parts += role == PART || role == ALONE;
        if (role == ALONE || (role == VALUE && !*alone))
            *alone = &keywords[i];
    }
    if (!*alone)
        return AX_OK;
    const int allowed = (*alone)->role == ALONE || json_object_get(schema, "type") != NULL;
    return parts > allowed ? refuse(c, (*alone)->name, "no other keyword is supported beside it")
                           : AX_OK;
}

static enum ax_status add_alone(struct compiler *c, const json_t *schema, const char *keyword,
                                int *node) {
    const json_t *v = json_object_get(schema, keyword), *target = v;
    if (strcmp(keyword, "oneOf") == 0)
        AX_TRY(check_one_of(c, v));
    if (strcmp(keyword, "anyOf") == 0 || strcmp(keyword, "oneOf") == 0)
        return add_ways(c, keyword, v, node);
    AX_TRY(strcmp(keyword, "$ref") == 0 ? find_reference(c, v, &target) : find_only(c, v, &target));
    return compile(c, target, node);
}

static enum ax_status compile_new(struct compiler *c, const json_t *schema, int *node) {
    const struct keyword *alone;
    int about, all;
    AX_TRY(read_keywords(c, schema, &about, &alone));
    AX_TRY(types_of(c, schema, &all));
    if (alone)
        return alone->role == VALUE ? add_values(c, schema, all, node)
                                    : add_alone(c, schema, alone->name, node);
    all = all != 0 ? all : about;
    return all != 0 ? add_types(c, schema, all, node) : any_value(c, node);
}

static enum ax_status remember(struct compiler *c, const json_t *schema, int node) {
    AX_TRY(ax_grow(&c->known, c->n_known, &c->cap_known, sizeof *c->known));
    c->known[c->n_known++] = (struct known){schema, node};
    return AX_OK;
}

/* A schema's node is a union of one way, so that what refers to it has a node before it is compiled. */
static enum ax_status compile(struct compiler *c, const json_t *schema, int *node) {
    int own = AX_NO_NODE;
    if (json_is_true(schema))
        return any_value(c, node);
    if (!json_is_object(schema))
        return refuse(c, "schema", "expected an object%s",
                      json_is_false(schema) ? ", as nothing fits false" : "");
    for (size_t i = 0; i < c->n_known; i++)
        if (c->known[i].schema == schema) {
            *node = c->known[i].node;
            return AX_OK;
        }
    if (c->nested == MOST_NESTED)
        return refuse(c, "schema", "it nests more than %d deep", MOST_NESTED);
    AX_TRY(add_union(c, 1, node));
    AX_TRY(remember(c, schema, *node));
    const json_t *scope = c->scope;
    if (json_object_get(schema, "$defs") || json_object_get(schema, "definitions"))
        c->scope = schema;
    c->nested++;
    AX_TRY(compile_new(c, schema, &own));
    c->nested--;
    c->scope = scope;
    add_way(c, *node, own);
    return AX_OK;
}

static enum ax_status compile_all(struct compiler *c) {
    bool loop;
    AX_TRY(compile(c, c->document, &c->g->root));
    AX_TRY(ax_grammar_find_loop(c->g, &loop));
    if (loop)
        return refuse(c, "$ref", "a schema refers to itself without a value between");
    ax_grammar_find_heights(c->g);
    if (c->g->nodes[c->g->root].height <= AX_GRAMMAR_DEPTH)
        return AX_OK;
    return refuse(c, "schema", "its smallest value nests more than %d deep, or has no end",
                  AX_GRAMMAR_DEPTH);
}

enum ax_status ax_grammar_compile(struct ax_grammar **out, const json_t *schema,
                                  const bool alone[256]) {
    struct compiler c = {.document = schema, .scope = schema, .any = AX_NO_NODE};
    *out = NULL;
    for (int byte = 0; byte < 256; byte++) /* what an expression reads has no escapes */
        c.written[byte] = alone[byte] && byte >= ' ' && byte != '"' && byte != '\\';
    AX_TRY(ax_alloc(&c.g, 1, sizeof *c.g));
    const enum ax_status st = compile_all(&c);
    ax_free(c.known);
    if (st != AX_OK)
        ax_grammar_free(c.g);
    else
        *out = c.g;
    return st;
}

void ax_grammar_free(struct ax_grammar *g) {
    for (int i = 0; g && i < g->n; i++) {
        struct ax_node *v = &g->nodes[i];
        for (int k = 0; k < v->n_properties; k++)
            ax_free(v->properties[k].key.s);
        for (int k = 0; k < v->n_texts; k++)
            ax_free(v->texts[k].s);
        ax_free(v->properties);
        ax_free(v->texts);
        ax_pattern_free(v->pattern);
        ax_free(v->ways);
    }
    if (g)
        ax_free(g->nodes);
    ax_free(g);
}
