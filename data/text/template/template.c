/* Messages, compiling and rendering; the interpreter is in data/text/jinja/ (start at vm.h). */
#include "data/text/template/template.h"

#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/text/json.h"
#include "data/text/jinja/builtin.h"
#include "data/text/jinja/unicode.h"
#include "data/text/jinja/vm.h"

/* ---- messages, as transformers' apply_chat_template prepares them before a template sees them ---- */

/* The names under which a message may carry its reasoning, the standard one first. */
static const char *const reasoning_names[] = {"reasoning_content", "thinking", "reasoning"};

static const struct ax_jval *find_reasoning(const struct ax_jdict *message) {
    for (size_t i = 0; i < 3; i++) {
        for (size_t k = 0; k < message->n; k++) {
            const struct ax_jpair *p = &message->pairs[k];
            if (p->key.kind == AX_JSTR && ax_jstr_is(p->key.str, reasoning_names[i]) &&
                p->value.kind != AX_JNONE) {
                return &p->value;
            }
        }
    }
    return NULL;
}

static enum ax_status set_named(struct ax_jvm *vm, struct ax_jdict *d, const char *name, size_t len,
                                struct ax_jval v) {
    struct ax_jstr *key;
    AX_TRY(ax_jstr_borrow(&vm->arena, &key, name, len));
    return ax_jdict_set(&vm->arena, d, ax_jstring(key), v);
}

/* A text as the only part of a message. */
static enum ax_status wrap_text(struct ax_jvm *vm, struct ax_jval text, struct ax_jval *out) {
    struct ax_jstr *type;
    struct ax_jval *part;
    AX_TRY(ax_jarena_alloc(&vm->arena, &part, 1, sizeof *part));
    part->kind = AX_JDICT;
    AX_TRY(ax_jdict_new(&vm->arena, &part->dict));
    AX_TRY(ax_jstr_borrow(&vm->arena, &type, "text", 4));
    AX_TRY(set_named(vm, part->dict, "type", 4, ax_jstring(type)));
    AX_TRY(set_named(vm, part->dict, "text", 4, text));
    return ax_jlist_wrap(&vm->arena, AX_JLIST, part, 1, out);
}

static enum ax_status prepare(struct ax_jvm *vm, const struct ax_jdict *message, bool in_parts,
                              struct ax_jval *out) {
    struct ax_jdict *d;
    const struct ax_jval *reasoning = find_reasoning(message);
    AX_TRY(ax_jdict_new(&vm->arena, &d));
    if (reasoning != NULL) /* first, so that the message's own `thinking` wins */
        AX_TRY(set_named(vm, d, reasoning_names[1], 8, *reasoning));
    for (size_t i = 0; i < message->n; i++) {
        const struct ax_jval key = message->pairs[i].key;
        struct ax_jval value = message->pairs[i].value;
        if (value.kind == AX_JNONE)
            continue;
        if (in_parts && value.kind == AX_JSTR && ax_jstr_is(key.str, "content"))
            AX_TRY(wrap_text(vm, value, &value));
        AX_TRY(ax_jdict_set(&vm->arena, d, key, value));
    }
    if (reasoning != NULL)
        AX_TRY(set_named(vm, d, reasoning_names[0], 17, *reasoning));
    *out = (struct ax_jval){.kind = AX_JDICT, .dict = d};
    return AX_OK;
}

/* Chat messages as transformers prepares them (see ax_template_options.chat). */
static enum ax_status prepare_messages(struct ax_jvm *vm, struct ax_jval messages, bool in_parts,
                                       struct ax_jval *out) {
    if (messages.kind != AX_JLIST)
        return ax_jvm_error(vm, "messages must be a list, not a %s", ax_jval_type(messages));
    size_t n = messages.list->n;
    struct ax_jval *items;
    AX_TRY(ax_jarena_alloc(&vm->arena, &items, n, sizeof *items));
    for (size_t i = 0; i < n; i++) {
        struct ax_jval m = messages.list->items[i];
        if (m.kind != AX_JDICT) {
            return ax_jvm_error(vm, "messages[%zu] must be an object, not a %s", i,
                                ax_jval_type(m));
        }
        AX_TRY(prepare(vm, m.dict, in_parts, &items[i]));
    }
    return ax_jlist_wrap(&vm->arena, AX_JLIST, items, n, out);
}

/* ---- compiling ---- */

static const struct ax_template_options default_options;

/* Memory for the tokens and tree of the longest source that is accepted. */
#define COMPILE_MEMORY ((size_t)512 << 20)

struct ax_template {
    struct ax_jarena arena;
    struct ax_jtree tree;
    char *source;
    size_t len;
    bool in_parts; /* it writes contents that are lists of parts, and no texts */
    bool takes_parts;
};

/* The source as Jinja reads it: line ends become \n, and the last one is dropped. */
static enum ax_status normalize(struct ax_jarena *a, const char *source, size_t len, char **out,
                                size_t *out_len) {
    char *text;
    size_t n = 0;
    AX_TRY(ax_jarena_alloc(a, &text, len, 1));
    for (size_t i = 0; i < len; i++) {
        if (source[i] == '\r') {
            text[n++] = '\n';
            i += i + 1 < len && source[i + 1] == '\n';
        } else {
            text[n++] = source[i];
        }
    }
    *out = text;
    *out_len = n > 0 && text[n - 1] == '\n' ? n - 1 : n;
    return AX_OK;
}

static enum ax_status check_source(const struct ax_jtree *t, const char *source, size_t len) {
    if (len > AX_TEMPLATE_MAX_SOURCE) {
        return ax_error(AX_ERR_DATA, "%s: a template of %zu bytes; at most %zu are supported",
                        t->name, len, AX_TEMPLATE_MAX_SOURCE);
    }
    size_t bad = ax_utf8_check(source, len);
    if (bad < len) {
        int line = 1;
        for (size_t i = 0; i < bad; i++)
            line += source[i] == '\n';
        return ax_jtree_error(t, line, "the template is not UTF-8 (byte %zu)", bad);
    }
    return AX_OK;
}

static enum ax_status compile(struct ax_template *t, const char *name, const char *source,
                              size_t len) {
    ax_jarena_init(&t->arena, COMPILE_MEMORY);
    t->tree.arena = &t->arena;
    struct ax_jstr *kept;
    AX_TRY(ax_jstr_copy(&t->arena, &kept, name, strlen(name) + 1));
    t->tree.name = kept->data;
    AX_TRY(check_source(&t->tree, source, len));
    AX_TRY(ax_jdict_new(&t->arena, &t->tree.words));
    AX_TRY(ax_strndup(&t->source, source, len));
    t->len = len;
    char *text;
    size_t n;
    struct ax_jtoken *tokens;
    AX_TRY(normalize(&t->arena, source, len, &text, &n));
    AX_TRY(ax_jlex(&t->tree, text, n, &tokens, &n));
    return ax_jparse(&t->tree, tokens);
}

/* Makes every error begin with the template's name and a line, which errors of the arena and of
 * lists lack. */
static enum ax_status name_place(enum ax_status st, const char *name, int line) {
    size_t n = strlen(name);
    const char *text = ax_error_text();
    if (st == AX_OK || (strncmp(text, name, n) == 0 && text[n] == ':'))
        return st;
    return line > 0 ? ax_error_prefix(st, "%s:%d", name, line) : ax_error_prefix(st, "%s", name);
}

#define WORD "qxwordxq"

/* *does: a question with this content, which is consumed, appears in what the template writes; *quoted: as in a list. */
static enum ax_status writes(const struct ax_template *t, json_t *content, bool *does,
                             bool *quoted) {
    const struct ax_template_options o = {.chat = true,
                                          .fixed_now = true,
                                          .max_steps = 1000000,
                                          .max_memory = (size_t)16 << 20,
                                          .max_output = (size_t)1 << 20};
    struct ax_template_output text = {0};
    json_t *vars = json_pack("{s[{ssso}]sbssss}", "messages", "role", "user", "content", content,
                             "add_generation_prompt", true, "bos_token", "", "eos_token", "");
    if (!vars)
        return ax_error(AX_ERR_NOMEM, "out of memory for a conversation");
    const enum ax_status st = ax_template_render(t, vars, &o, &text);
    *does = st == AX_OK && strstr(text.text, WORD);
    *quoted = *does && (strstr(text.text, "'" WORD "'") || strstr(text.text, "\"" WORD "\""));
    ax_template_output_free(&text);
    json_decref(vars);
    if (st == AX_ERR_NOMEM)
        return st;
    if (st != AX_OK)
        ax_error_clear(); /* reported when a conversation is rendered */
    return AX_OK;
}

/* Finds out in what form the template reads contents. */
static enum ax_status find_form(struct ax_template *t) {
    bool texts, parts, quoted;
    AX_TRY(writes(t, json_string(WORD), &texts, &quoted));
    AX_TRY(writes(t, json_pack("[{ssss}]", "type", "text", "text", WORD), &parts, &quoted));
    t->in_parts = parts && !texts;
    t->takes_parts = parts && !quoted;
    return AX_OK;
}

enum ax_status ax_template_compile(struct ax_template **out, const char *name, const char *source,
                                   size_t len) {
    struct ax_template *t;
    AX_TRY(ax_alloc(&t, 1, sizeof *t));
    enum ax_status st = compile(t, name, source, len);
    if (st == AX_OK && ax_template_mentions(t, "content"))
        st = find_form(t);
    if (st != AX_OK) {
        ax_template_free(t);
        return name_place(st, name, 0);
    }
    *out = t;
    return AX_OK;
}

void ax_template_free(struct ax_template *t) {
    if (t != NULL) {
        ax_jarena_free(&t->arena);
        ax_free(t->source);
        ax_free(t);
    }
}

bool ax_template_has_generation(const struct ax_template *t) {
    return t->tree.has_generation;
}

bool ax_template_takes_parts(const struct ax_template *t) {
    return t->takes_parts;
}

bool ax_template_mentions(const struct ax_template *t, const char *word) {
    struct ax_jstr s = {.data = word, .len = strlen(word), .chars = AX_JUNCOUNTED};
    return ax_jdict_get_str(t->tree.words, &s) != NULL;
}

const char *ax_template_where(const struct ax_template *t) {
    return t->tree.name;
}

const char *ax_template_source(const struct ax_template *t, size_t *len) {
    *len = t->len;
    return t->source;
}

/* ---- rendering ---- */

#define MAX_MEMORY ((size_t)512 << 20)
#define MAX_OUTPUT ((size_t)256 << 20)

/* Limits for short data: values take tens of bytes per byte of text, and a template rarely
 * repeats its data more than a few times. So a hostile template cannot use much memory on them. */
static struct ax_template_options fit_bounds(const struct ax_template_options *options,
                                             size_t len) {
    struct ax_template_options o = options != NULL ? *options : default_options;
    if (o.max_memory == 0 && len < MAX_MEMORY / 64)
        o.max_memory = ((size_t)48 << 20) + 32 * len;
    if (o.max_output == 0 && len < MAX_OUTPUT / 16)
        o.max_output = ((size_t)16 << 20) + 8 * len;
    return o;
}

static enum ax_status start(struct ax_jvm *vm, const struct ax_template *t,
                            const struct ax_template_options *o) {
    vm->tree = &t->tree;
    vm->line = 1;
    vm->now = o->fixed_now ? o->now : (int64_t)time(NULL);
    vm->max_steps = o->max_steps != 0 ? o->max_steps : 200000000;
    vm->max_output = o->max_output != 0 ? o->max_output : MAX_OUTPUT;
    vm->max_depth = o->max_depth != 0 ? o->max_depth : 5000;
    vm->root_end = SIZE_MAX;
    ax_jarena_init(&vm->arena, o->max_memory != 0 ? o->max_memory : MAX_MEMORY);
    return ax_buf_append(&vm->out, "", 0); /* so that data is never NULL */
}

/* The value of a global function or of a variable that every chat has, else missing. */
static enum ax_status builtin_value(struct ax_jvm *vm, const struct ax_jstr *name, bool chat,
                                    struct ax_jval *v) {
    const struct ax_jbuiltin *global = ax_jglobal_find(name);
    if (global != NULL) {
        struct ax_jfunction *fn;
        AX_TRY(ax_jarena_alloc(&vm->arena, &fn, 1, sizeof *fn));
        fn->builtin = global;
        *v = (struct ax_jval){.kind = AX_JFUNCTION, .function = fn};
    } else if (chat && (ax_jstr_is(name, "tools") || ax_jstr_is(name, "documents"))) {
        *v = ax_jnone();
    } else if (chat && ax_jstr_is(name, "add_generation_prompt")) {
        *v = ax_jbool(false);
    }
    return AX_OK;
}

/* The sources of variables. */
struct variables {
    const json_t *json, *defaults;
    bool chat, in_parts;
};

/* Sets all variables that the template mentions. */
static enum ax_status fill_globals(struct ax_jvm *vm, const struct variables *vars) {
    const struct ax_jdict *names = vm->tree->names;
    AX_TRY(ax_jarena_alloc(&vm->arena, &vm->globals, names->n, sizeof *vm->globals));
    for (size_t i = 0; i < names->n; i++) {
        const struct ax_jstr *name = names->pairs[i].key.str;
        struct ax_jval *v = &vm->globals[i];
        const json_t *j = json_object_getn(vars->json, name->data, name->len);
        if (j == NULL)
            j = json_object_getn(vars->defaults, name->data, name->len);
        AX_TRY(j != NULL ? ax_jval_from_json(vm, j, v) : builtin_value(vm, name, vars->chat, v));
        if (vars->chat && v->kind != AX_JMISSING && ax_jstr_is(name, "messages"))
            AX_TRY(prepare_messages(vm, *v, vars->in_parts, v));
    }
    return AX_OK;
}

static enum ax_status run(struct ax_jvm *vm, const struct variables *vars) {
    AX_TRY(fill_globals(vm, vars));
    AX_TRY(ax_jvm_exec_all(vm, NULL, &vm->tree->body));
    vm->out.data[vm->out.len] = '\0';
    return AX_OK;
}

/* Hands over the finished text, or frees everything after an error. */
static enum ax_status finish(struct ax_jvm *vm, enum ax_status st, struct ax_template_output *out) {
    ax_jarena_free(&vm->arena);
    if (st != AX_OK) {
        name_place(st, vm->tree->name, vm->line);
        ax_buf_free(&vm->out);
        ax_free(vm->spans);
        return st;
    }
    *out = (struct ax_template_output){vm->out.data, vm->out.len, vm->spans, vm->n_spans};
    return AX_OK;
}

enum ax_status ax_template_render(const struct ax_template *t, const json_t *vars,
                                  const struct ax_template_options *options,
                                  struct ax_template_output *out) {
    const struct ax_template_options *o = options != NULL ? options : &default_options;
    const struct variables v = {
        .json = vars, .defaults = o->defaults, .chat = o->chat, .in_parts = t->in_parts};
    struct ax_jvm vm = {0};
    AX_ASSERT(json_is_object(vars));
    enum ax_status st;
    AX_TRY_GOTO(start(&vm, t, o), st, done);
    AX_TRY_GOTO(run(&vm, &v), st, done);
done:
    return finish(&vm, st, out);
}

enum ax_status ax_template_render_text(const struct ax_template *t, const char *json, size_t len,
                                       const struct ax_template_options *options,
                                       struct ax_template_output *out) {
    struct ax_template_options o = fit_bounds(options, len);
    struct ax_json_doc doc;
    AX_TRY(ax_json_parse(&doc, t->tree.name, json, len));
    json_t *vars =
        json_is_array(doc.root) ? json_pack("{s:O}", "messages", doc.root) : json_incref(doc.root);
    enum ax_status st;
    if (vars == NULL) {
        st = ax_error(AX_ERR_NOMEM, "%s: out of memory", t->tree.name);
    } else if (!json_is_object(vars)) {
        st = ax_error(AX_ERR_DATA, "%s: the variables must be an object or a list of messages",
                      t->tree.name);
    } else {
        o.chat = o.chat || json_object_get(vars, "messages") != NULL;
        st = ax_template_render(t, vars, &o, out);
    }
    json_decref(vars);
    ax_json_free(&doc);
    return st;
}

void ax_template_output_free(struct ax_template_output *out) {
    ax_free(out->text);
    ax_free(out->spans);
    *out = (struct ax_template_output){0};
}
