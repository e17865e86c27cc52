/* Calls that must be made, as steps of their format. Where arguments are one JSON object, it is a value of
 * the tool's schema. Where each is written for itself, they come in the order of the schema's properties, and texts are
 * free of the bytes that end them. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cmd/serve/request.h"
#include "data/tools/schema.h"

#define PARAM          "tool_choice"
#define MOST_ARGUMENTS 64

/* What a call is made into. */
struct call {
    struct ax_serve_request *r;
    const struct ax_serve_model *m;
    const struct ax_tool_call_form *form;
    const char *name;
    const json_t *parameters; /* NULL: any, or none */
    int n;                    /* arguments */
    struct argument {
        const char *name;
        const json_t *schema;
        bool required;
        /* steps that begin it as the first one, and behind others: [from, to) of `steps` */
        int from[2], to[2];
    } list[MOST_ARGUMENTS];
    struct ax_serve_constraint *c;
    int end; /* the last step */
};

/* ---- steps ---- */

/* A step of up to five texts, one after the other. */
static enum ax_status add_text(struct call *k, const char *const texts[5], int *step) {
    struct ax_buf all = {0};
    const struct ax_encode_options special = {0};
    enum ax_status st = ax_serve_steps_add(k->c, AX_STEP_TEXT, step);
    for (int i = 0; i < 5 && texts[i] && st == AX_OK; i++)
        st = ax_buf_puts(&all, texts[i]);
    if (st == AX_OK)
        st = ax_tokenizer_encode(k->m->side->tokenizer, all.data, all.len, &special,
                                 &k->c->steps[*step].ids);
    if (st == AX_OK)
        st = ax_serve_check_ids(k->r, k->m, PARAM, k->c->steps[*step].ids.ids,
                                k->c->steps[*step].ids.n);
    ax_buf_free(&all);
    return st;
}
#define TEXT(...) ((const char *const[5]){__VA_ARGS__})

/* The steps that follow when `done` arguments have come: each up to the first that must, or else the end. */
static enum ax_status link_next(const struct call *k, int step, int done, bool later) {
    for (int i = done; i < k->n; i++) {
        for (int s = k->list[i].from[later]; s < k->list[i].to[later]; s++)
            AX_TRY(ax_serve_steps_link(k->c, step, s));
        if (k->list[i].required)
            return AX_OK;
    }
    return ax_serve_steps_link(k->c, step, k->end);
}

static enum ax_status refuse(const struct call *k, const struct argument *a, const char *why) {
    return ax_serve_refuse(k->r, PARAM, "%.64s, argument %.64s: %s for the format %s", k->name,
                           a->name, why, k->m->tools->format->name);
}

/* ---- an argument ---- */

/* Of steps that follow one step, none may begin another. */
static bool any_begins_another(const struct call *k, int first) {
    const struct ax_serve_step *steps = k->c->steps;
    for (int i = first; i < k->c->n; i++)
        for (int j = first; j < k->c->n; j++)
            if (steps[i].ids.n < steps[j].ids.n &&
                memcmp(steps[i].ids.ids, steps[j].ids.ids,
                       steps[i].ids.n * sizeof *steps[i].ids.ids) == 0)
                return true;
    return false;
}

/* Values that it may have, each a text. */
static enum ax_status add_words(struct call *k, struct argument *a, const char *begin,
                                const json_t *words) {
    const int first = k->c->n;
    for (size_t i = 0; i < json_array_size(words); i++) {
        const json_t *v = json_array_get(words, i);
        const char *text = json_string_value(v);
        const bool marked = text && k->form->text[0];
        int step;
        if (json_is_array(v) || json_is_object(v) || json_is_real(v))
            return refuse(k, a, "enum: only texts, integers, true, false and null are supported");
        if (!text && !k->form->text[0] && !json_object_get(a->schema, "type"))
            return refuse(k, a, "enum: values other than texts need a type beside it");
        if (text && (strpbrk(text, k->form->without) || strlen(text) != json_string_length(v)))
            return refuse(k, a, "enum: a text has bytes that are not supported");
        char *other = text ? NULL : json_dumps(v, JSON_ENCODE_ANY);
        if (!text && !other)
            return ax_error(AX_ERR_NOMEM, "out of memory for a call");
        const enum ax_status st =
            add_text(k,
                     TEXT(begin, marked ? k->form->text : "", text ? text : other,
                          marked ? k->form->text_end : k->form->value_end),
                     &step);
        ax_free_hook(other);
        AX_TRY(st);
    }
    return any_begins_another(k, first)
               ? refuse(k, a, "enum: a value that begins another one is not supported")
               : AX_OK;
}

/* Of a text, or of values that are listed: what else says something about them is refused. */
static enum ax_status check_keywords(const struct call *k, const struct argument *a) {
    static const char *const known[] = {"type",     "title",      "description", "default", "enum",
                                        "examples", "deprecated", "nullable",    "const"};
    const char *key;
    char why[120];
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)a->schema, key, v) {
        size_t i = 0;
        while (i < sizeof known / sizeof *known && strcmp(key, known[i]) != 0)
            i++;
        snprintf(why, sizeof why, "%.64s is not supported for texts and listed values", key);
        if (i == sizeof known / sizeof *known)
            return refuse(k, a, why);
    }
    return AX_OK;
}

static enum ax_status add_free(struct call *k, const char *begin) {
    int first, text, end;
    if (!k->c->free)
        AX_TRY(ax_serve_steps_free_text(k->c, k->form->without));
    AX_TRY(add_text(k, TEXT(begin, k->form->text), &first));
    AX_TRY(ax_serve_steps_add(k->c, AX_STEP_FREE, &text));
    AX_TRY(add_text(k, TEXT(k->form->text_end), &end));
    AX_TRY(ax_serve_steps_link(k->c, first, text));
    return ax_serve_steps_link(k->c, text, end);
}

/* A schema of its own, with the definitions that it may refer to. NULL: no memory. */
static json_t *with_definitions(const json_t *parameters, const json_t *schema) {
    static const char *const names[] = {"$defs", "definitions"};
    json_t *own = json_copy((json_t *)(uintptr_t)schema);
    for (size_t i = 0; own && i < sizeof names / sizeof *names; i++) {
        json_t *shared = json_object_get(parameters, names[i]);
        if (shared && !json_object_get(own, names[i]) &&
            json_object_set(own, names[i], shared) != 0) {
            json_decref(own);
            own = NULL;
        }
    }
    return own;
}

static enum ax_status add_value(struct call *k, const struct argument *a, const char *begin) {
    int first, value, end;
    json_t *schema = with_definitions(k->parameters, a->schema);
    if (!schema)
        return ax_error(AX_ERR_NOMEM, "out of memory for a schema");
    enum ax_status st = add_text(k, TEXT(begin), &first);
    if (st == AX_OK)
        st = ax_serve_steps_value(k->r, PARAM, AX_SOURCE_SCHEMA, schema, &value);
    json_decref(schema);
    AX_TRY(st);
    AX_TRY(ax_serve_steps_link(k->c, first, value));
    if (k->form->value_end[0] == '\0')
        return AX_OK;
    AX_TRY(add_text(k, TEXT(k->form->value_end), &end));
    return ax_serve_steps_link(k->c, value, end);
}

static bool is_one_of(const char *word, const char *const words[], size_t n) {
    for (size_t i = 0; word && i < n; i++)
        if (strcmp(word, words[i]) == 0)
            return true;
    return false;
}

static enum ax_status add_kind(struct call *k, struct argument *a, const char *begin) {
    static const char *const kinds[] = {"integer", "number", "boolean", "null", "array", "object"};
    json_t *words = json_object_get(a->schema, "enum"), *only = json_object_get(a->schema, "const");
    const char *type = json_string_value(json_object_get(a->schema, "type"));
    const bool is_text = type && strcmp(type, "string") == 0;
    if (json_is_array(words) || only || is_text)
        AX_TRY(check_keywords(k, a));
    if (json_is_array(words))
        return add_words(k, a, begin, words);
    if (only) {
        json_t *list = json_pack("[O]", only);
        if (!list)
            return ax_error(AX_ERR_NOMEM, "out of memory for a call");
        const enum ax_status st = add_words(k, a, begin, list);
        json_decref(list);
        return st;
    }
    if (is_text)
        return add_free(k, begin);
    if (!is_one_of(type, kinds, k->form->nests ? 6 : 4))
        return refuse(k, a,
                      k->form->nests ? "expected one type"
                                     : "expected one type, no list and no object");
    return add_value(k, a, begin);
}

/* The steps of an argument, behind others or as the first; what follows is linked later. */
static enum ax_status add_argument(struct call *k, struct argument *a, bool later) {
    struct ax_buf begin = {0};
    const int from = k->c->n;
    enum ax_status st = ax_buf_printf(&begin, "%s%s%s%s", later ? k->form->between : "",
                                      k->form->key, a->name, k->form->equals);
    if (st == AX_OK)
        st = add_kind(k, a, begin.data);
    ax_buf_free(&begin);
    a->from[later] = from;
    /* words begin it each for itself; else only the first step does */
    const bool words = json_object_get(a->schema, "enum") || json_object_get(a->schema, "const");
    a->to[later] = words ? k->c->n : from + 1;
    return st;
}

/* ---- a call ---- */

static enum ax_status read_arguments(struct call *k) {
    const json_t *properties = json_object_get(k->parameters, "properties"),
                 *required = json_object_get(k->parameters, "required");
    const char *name;
    json_t *schema;
    size_t found = 0;
    json_object_foreach((json_t *)(uintptr_t)properties, name, schema) {
        struct argument *a = &k->list[k->n];
        *a = (struct argument){.name = name, .schema = ax_tool_schema_of(k->parameters, name)};
        if (strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.") !=
            strlen(name))
            return refuse(k, a,
                          "names other than of letters, digits, _, - and . are not supported");
        if (!json_is_object(schema))
            return refuse(k, a, "schemas other than objects are not supported");
        if (++k->n == MOST_ARGUMENTS)
            return refuse(k, a, "more arguments than 63 are not supported");
        for (size_t i = 0; i < json_array_size(required); i++) {
            const char *other = json_string_value(json_array_get(required, i));
            a->required = a->required || (other && strcmp(other, name) == 0);
        }
        found += a->required;
    }
    return found == json_array_size(required)
               ? AX_OK
               : ax_serve_refuse(k->r, PARAM, "%.64s: required names what properties has not",
                                 k->name);
}

/* Each step without a successor, but for the last, leads to what comes behind its argument. */
static enum ax_status link_argument(struct call *k, int i, int from, int to) {
    for (int s = from; s < to; s++)
        if (k->c->steps[s].n_next == 0)
            AX_TRY(link_next(k, s, i + 1, true));
    return AX_OK;
}

static enum ax_status add_arguments(struct call *k, int first) {
    int bounds[2 * MOST_ARGUMENTS][2] = {{0}};
    AX_TRY(read_arguments(k));
    AX_TRY(add_text(k, TEXT(k->form->end), &k->end));
    for (int i = 0; i < k->n; i++)
        for (int later = 0; later < 2; later++) {
            bounds[2 * i + later][0] = k->c->n;
            AX_TRY(add_argument(k, &k->list[i], later));
            bounds[2 * i + later][1] = k->c->n;
        }
    for (int i = 0; i < 2 * k->n; i++)
        AX_TRY(link_argument(k, i / 2, bounds[i][0], bounds[i][1]));
    return link_next(k, first, 0, false);
}

/* A tool without parameters has none, as in OpenAI's API: its call's arguments are {}. */
static enum ax_status add_object(struct call *k, int first) {
    int value, end;
    json_t *schema = k->parameters
                         ? json_incref((json_t *)(uintptr_t)k->parameters)
                         : json_pack("{sssb}", "type", "object", "additionalProperties", 0);
    if (!schema)
        return ax_error(AX_ERR_NOMEM, "out of memory for a schema");
    const enum ax_status st = ax_serve_steps_value(k->r, PARAM, AX_SOURCE_SCHEMA, schema, &value);
    json_decref(schema);
    AX_TRY(st);
    AX_TRY(ax_serve_steps_link(k->c, first, value));
    if (k->form->end[0] == '\0')
        return AX_OK;
    AX_TRY(add_text(k, TEXT(k->form->end), &end));
    return ax_serve_steps_link(k->c, value, end);
}

static enum ax_status add_call(struct call *k, const json_t *function) {
    const char *close = k->r->thinks ? k->m->tools->format->think_close : "";
    json_t *parameters = json_object_get(function, "parameters");
    int first;
    k->name = json_string_value(json_object_get(function, "name"));
    k->parameters = json_is_object(parameters) ? parameters : NULL;
    k->n = 0;
    /* the call must not be part of a thought */
    AX_TRY(add_text(
        k, TEXT(close, close[0] ? "\n\n" : "", k->form->before, k->name, k->form->after), &first));
    AX_TRY(ax_serve_steps_link(k->c, 0, first));
    return k->form->key ? add_arguments(k, first) : add_object(k, first);
}

enum ax_status ax_serve_force_calls(struct ax_serve_request *r, const struct ax_serve_model *m) {
    struct call k = {.r = r, .m = m, .form = &m->tools->format->call, .c = &r->constraint};
    const json_t *tool;
    size_t i;
    json_array_foreach(r->tools, i, tool) {
        const json_t *f = json_object_get(tool, "function");
        if (r->tool_named && r->tool_named != f)
            continue;
        enum ax_status st = add_call(&k, f);
        if (st == AX_ERR_DATA && r->param[0] == '\0')
            st = ax_serve_refuse(r, PARAM, "the tools have too many arguments");
        AX_TRY(st);
    }
    return AX_OK;
}
