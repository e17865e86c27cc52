#include "cmd/serve/constrain.h"

#include <stdio.h>
#include <string.h>

#include "base/text/json.h"
#include "cmd/serve/request.h"

/* ---- grammars of a server ---- */

static void free_grammar(struct ax_serve_grammar *g) {
    if (!g)
        return;
    ax_grammar_masks_free(g->masks);
    ax_grammar_free(g->g);
    ax_free(g->schema);
    ax_free(g);
}

void ax_serve_grammars_close(struct ax_serve_grammars *all) {
    for (int i = 0; i < AX_SERVE_GRAMMARS; i++)
        free_grammar(all->kept[i]);
    ax_grammar_vocabulary_close(&all->vocabulary);
    pthread_mutex_destroy(&all->lock);
}

static enum ax_status create_grammar(struct ax_serve_grammars *all, const json_t *schema,
                                     const char *text, struct ax_serve_grammar **out) {
    AX_TRY(ax_alloc(out, 1, sizeof **out));
    enum ax_status st = ax_grammar_compile(&(*out)->g, schema);
    if (st == AX_OK)
        st = ax_grammar_masks_create(&(*out)->masks, (*out)->g, &all->vocabulary);
    if (st == AX_OK)
        st = ax_strdup(&(*out)->schema, text);
    if (st == AX_OK)
        return AX_OK;
    free_grammar(*out);
    *out = NULL;
    return st;
}

/* The place of the least recently used of those that nobody uses; −1: all are in use. */
static int oldest(const struct ax_serve_grammars *all) {
    int at = -1;
    for (int i = 0; i < AX_SERVE_GRAMMARS; i++) {
        const struct ax_serve_grammar *g = all->kept[i];
        if (!g)
            return i;
        if (g->users == 0 && (at < 0 || g->used < all->kept[at]->used))
            at = i;
    }
    return at;
}

/* With the lock. */
static enum ax_status find_grammar(struct ax_serve_grammars *all, const json_t *schema,
                                   const char *text, struct ax_serve_grammar **out) {
    for (int i = 0; i < AX_SERVE_GRAMMARS; i++) {
        struct ax_serve_grammar *g = all->kept[i];
        if (g && strcmp(g->schema, text) == 0) {
            *out = g;
            return AX_OK;
        }
    }
    AX_TRY(create_grammar(all, schema, text, out));
    const int at = oldest(all);
    if (at >= 0) {
        free_grammar(all->kept[at]);
        all->kept[at] = *out;
    } /* else its last user frees it */
    return AX_OK;
}

static bool is_kept(const struct ax_serve_grammars *all, const struct ax_serve_grammar *g) {
    for (int i = 0; i < AX_SERVE_GRAMMARS; i++)
        if (all->kept[i] == g)
            return true;
    return false;
}

static enum ax_status take_grammar(struct ax_serve_constraint *c, const struct ax_serve_model *m,
                                   const json_t *schema, const char *text) {
    struct ax_serve_grammars *all = c->all;
    enum ax_status st = AX_OK;
    pthread_mutex_lock(&all->lock);
    if (!all->opened)
        st = ax_grammar_vocabulary_open(&all->vocabulary, m->side->tokenizer, m->vocab_size);
    all->opened = st == AX_OK;
    if (st == AX_OK)
        st = find_grammar(all, schema, text, &c->grammar);
    if (st == AX_OK) {
        c->grammar->users++;
        c->grammar->used = ++all->clock;
    }
    pthread_mutex_unlock(&all->lock);
    return st;
}

void ax_serve_constraint_free(struct ax_serve_constraint *c) {
    struct ax_serve_grammars *all = c->all;
    if (!all)
        return;
    pthread_mutex_lock(&all->lock);
    if (c->grammar && --c->grammar->users == 0 && !is_kept(all, c->grammar))
        free_grammar(c->grammar);
    pthread_mutex_unlock(&all->lock);
    ax_encoding_free(&c->begin);
    ax_encoding_free(&c->end);
    ax_free(c->bits);
    *c = (struct ax_serve_constraint){0};
}

/* ---- requests ---- */

static enum ax_status hold_to(struct ax_serve_request *r, const struct ax_serve_model *m,
                              const char *param, const json_t *schema) {
    struct ax_serve_constraint *c = &r->constraint;
    if (c->grammar)
        return ax_serve_refuse(r, param, "the answer is already held to another schema");
    char *text = json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!text)
        return ax_error(AX_ERR_NOMEM, "out of memory for a schema");
    c->all = m->grammars;
    enum ax_status st = take_grammar(c, m, schema, text);
    ax_free_hook(text);
    if (st == AX_ERR_DATA || st == AX_ERR_UNSUPPORTED) {
        char why[400];
        snprintf(why, sizeof why, "%.390s", ax_error_text());
        return ax_serve_refuse(r, param, "%s", why);
    }
    return st == AX_OK ? ax_alloc(&c->bits, ax_grammar_words(m->vocab_size), sizeof *c->bits) : st;
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

/* ---- calls that must be made ---- */

/* How a call is written by formats whose calls are objects. */
static const struct {
    const char *format, *begin, *arguments, *end;
} calls[] = {{"hermes", "<tool_call>\n", "arguments", "\n</tool_call>"},
             {"llama", "", "parameters", ""},
             {"mistral", "[TOOL_CALLS] [", "arguments", "]"}};

static json_t *call_schema(const json_t *function, const char *key) {
    json_t *parameters = json_object_get(function, "parameters");
    json_t *own =
        json_is_object(parameters) ? json_incref(parameters) : json_pack("{ss}", "type", "object");
    return json_pack("{ss s{s{sO} so} s[ss] sb}", "type", "object", "properties", "name", "const",
                     json_object_get(function, "name"), key, own, "required", "name", key,
                     "additionalProperties", 0);
}

/* One way for each tool that may be called. NULL: no memory. */
static json_t *calls_schema(const struct ax_serve_request *r, const char *key) {
    json_t *ways = json_array();
    bool ok = ways != NULL;
    for (size_t i = 0; ok && i < json_array_size(r->tools); i++) {
        const json_t *f = json_object_get(json_array_get(r->tools, i), "function");
        if (!r->tool_named || r->tool_named == f)
            ok = json_array_append_new(ways, call_schema(f, key)) == 0;
    }
    if (ok)
        return json_pack("{so}", "anyOf", ways);
    json_decref(ways);
    return NULL;
}

static enum ax_status encode_text(const struct ax_serve_model *m, const char *text,
                                  struct ax_encoding *out) {
    const struct ax_encode_options special = {0};
    return text[0] ? ax_tokenizer_encode(m->side->tokenizer, text, strlen(text), &special, out)
                   : AX_OK;
}

static enum ax_status hold_to_calls(struct ax_serve_request *r, const struct ax_serve_model *m) {
    const struct ax_tool_format *f = m->tools->format;
    struct ax_serve_constraint *c = &r->constraint;
    size_t i = 0;
    while (i < sizeof calls / sizeof *calls && strcmp(calls[i].format, f->name) != 0)
        i++;
    if (i == sizeof calls / sizeof *calls)
        return ax_serve_refuse(r, "tool_choice",
                               "calls that must be made are not supported yet for the format %s",
                               f->name);
    json_t *schema = calls_schema(r, calls[i].arguments);
    if (!schema)
        return ax_error(AX_ERR_NOMEM, "out of memory for a schema");
    enum ax_status st = hold_to(r, m, "tool_choice", schema);
    json_decref(schema);
    if (st == AX_OK && r->thinks) /* the call must not be part of a thought */
        st = encode_text(m, f->think_close, &c->begin);
    if (st == AX_OK && r->thinks)
        st = encode_text(m, "\n\n", &c->begin);
    if (st == AX_OK)
        st = encode_text(m, calls[i].begin, &c->begin);
    return st == AX_OK ? encode_text(m, calls[i].end, &c->end) : st;
}

enum ax_status ax_serve_read_constraint(struct ax_serve_request *r,
                                        const struct ax_serve_model *m) {
    const json_t *guided = given(r, "guided_json");
    AX_TRY(read_format(r, m));
    AX_TRY(read_outputs(r, m));
    if (guided)
        AX_TRY(hold_to_given(r, m, "guided_json", guided));
    return r->tool_choice > AX_TOOLS_AUTO ? hold_to_calls(r, m) : AX_OK;
}

/* ---- answers ---- */

enum ax_status ax_serve_place_open(struct ax_serve_place *p, const struct ax_serve_constraint *c) {
    return c->grammar ? ax_grammar_begin(c->grammar->g, &p->state) : AX_OK;
}

void ax_serve_place_close(struct ax_serve_place *p) {
    ax_grammar_state_free(&p->state);
    ax_grammar_state_free(&p->next);
}

static void set(uint64_t *bits, int32_t id) {
    bits[id / 64] |= (uint64_t)1 << (id % 64);
}

enum ax_status ax_serve_place_mask(struct ax_serve_place *p, const struct ax_serve_constraint *c,
                                   const int32_t *ends, int n_ends, const uint64_t **bits) {
    const size_t bytes = ax_grammar_words(c->all->vocabulary.size) * sizeof *c->bits;
    const bool begins = p->begun < c->begin.n, ended = ax_grammar_must_end(&p->state);
    *bits = c->bits;
    memset(c->bits, 0, bytes);
    if (begins || ended) { /* the one token of a text */
        set(c->bits, begins ? c->begin.ids[p->begun] : c->end.ids[p->ended]);
        return AX_OK;
    }
    AX_TRY(ax_grammar_mask(c->grammar->masks, &p->state, bits));
    if (c->end.n > 0 || !ax_grammar_may_end(c->grammar->g, &p->state))
        return AX_OK;
    memcpy(c->bits, *bits, bytes);
    *bits = c->bits;
    for (int i = 0; i < n_ends; i++)
        set(c->bits, ends[i]);
    return AX_OK;
}

static enum ax_status read_bytes(struct ax_serve_place *p, const struct ax_serve_constraint *c,
                                 int32_t id) {
    const struct ax_grammar_vocabulary *v = &c->all->vocabulary;
    for (size_t i = v->from[id]; i < v->from[id + 1]; i++) {
        AX_TRY(ax_grammar_step(c->grammar->g, &p->state, v->bytes[i], &p->next));
        const struct ax_grammar_state old = p->state;
        p->state = p->next;
        p->next = old;
    }
    return AX_OK;
}

enum ax_status ax_serve_place_step(struct ax_serve_place *p, const struct ax_serve_constraint *c,
                                   int32_t id, bool *complete) {
    if (p->begun < c->begin.n) {
        p->broken = id != c->begin.ids[p->begun++];
    } else if (ax_grammar_must_end(&p->state)) {
        p->broken = id != c->end.ids[p->ended++];
    } else {
        AX_TRY(read_bytes(p, c, id));
        p->broken = p->state.n == 0;
    }
    *complete = p->broken ||
                (p->begun == c->begin.n && ax_grammar_must_end(&p->state) && p->ended == c->end.n);
    return AX_OK;
}
