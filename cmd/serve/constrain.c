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

static enum ax_status take_grammar(struct ax_serve_grammars *all, const json_t *schema,
                                   const char *text, struct ax_serve_grammar **out) {
    pthread_mutex_lock(&all->lock);
    const enum ax_status st = find_grammar(all, schema, text, out);
    if (st == AX_OK) {
        (*out)->users++;
        (*out)->used = ++all->clock;
    }
    pthread_mutex_unlock(&all->lock);
    return st;
}

static enum ax_status open_vocabulary(struct ax_serve_grammars *all,
                                      const struct ax_serve_model *m) {
    enum ax_status st = AX_OK;
    pthread_mutex_lock(&all->lock);
    if (!all->opened)
        st = ax_grammar_vocabulary_open(&all->vocabulary, m->side->tokenizer, m->vocab_size);
    all->opened = st == AX_OK;
    pthread_mutex_unlock(&all->lock);
    return st;
}

void ax_serve_constraint_free(struct ax_serve_constraint *c) {
    struct ax_serve_grammars *all = c->all;
    if (!all)
        return;
    pthread_mutex_lock(&all->lock);
    for (int i = 0; i < c->n; i++) {
        struct ax_serve_grammar *g = c->steps[i].grammar;
        if (g && --g->users == 0 && !is_kept(all, g))
            free_grammar(g);
    }
    pthread_mutex_unlock(&all->lock);
    for (int i = 0; i < c->n; i++) {
        ax_encoding_free(&c->steps[i].ids);
        ax_free(c->steps[i].next);
    }
    ax_free(c->steps);
    ax_free(c->free);
    ax_free(c->bits);
    *c = (struct ax_serve_constraint){0};
}

/* ---- requests ---- */

/* The text of an error about a schema is one about the key. */
static enum ax_status about(struct ax_serve_request *r, const char *param, enum ax_status st) {
    char why[400];
    if (st != AX_ERR_DATA && st != AX_ERR_UNSUPPORTED)
        return st;
    snprintf(why, sizeof why, "%.390s", ax_error_text());
    return ax_serve_refuse(r, param, "%s", why);
}

/* The first step of what the answers are held to. */
static enum ax_status begin(struct ax_serve_request *r, const struct ax_serve_model *m,
                            const char *param) {
    struct ax_serve_constraint *c = &r->constraint;
    if (c->n > 0)
        return ax_serve_refuse(r, param, "the answer is already held to another schema");
    c->all = m->grammars;
    AX_TRY(about(r, param, open_vocabulary(c->all, m)));
    AX_TRY(ax_alloc(&c->bits, ax_grammar_words(m->vocab_size), sizeof *c->bits));
    return ax_serve_steps_begin(c);
}

enum ax_status ax_serve_steps_value(struct ax_serve_request *r, const struct ax_serve_model *m,
                                    const char *param, const json_t *schema, int *step) {
    struct ax_serve_constraint *c = &r->constraint;
    AX_ASSERT(c->all == m->grammars);
    char *text = json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!text)
        return ax_error(AX_ERR_NOMEM, "out of memory for a schema");
    enum ax_status st = ax_serve_steps_add(c, AX_STEP_VALUE, step);
    if (st == AX_OK)
        st = about(r, param, take_grammar(c->all, schema, text, &c->steps[*step].grammar));
    ax_free_hook(text);
    return st;
}

static enum ax_status hold_to(struct ax_serve_request *r, const struct ax_serve_model *m,
                              const char *param, const json_t *schema) {
    int step;
    AX_TRY(begin(r, m, param));
    AX_TRY(ax_serve_steps_value(r, m, param, schema, &step));
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
    AX_TRY(begin(r, m, "tool_choice"));
    return ax_serve_force_calls(r, m);
}
