/* Methods of str, list, tuple, dict and loop. Those that would change a list or dict do not exist;
 * jinja_attr.c refuses them. */
#include <string.h>

#include "data/jinja_builtin.h"
#include "data/jinja_text.h"
#include "data/jinja_unicode.h"

/* ---- str: case and ends ---- */

static enum ax_status str_lower(struct ax_jvm *vm, const struct ax_jcall *c, struct ax_jval *out) {
    return ax_jtext_case(vm, AX_JLETTERS_LOWER, c->self.str, out);
}

static enum ax_status str_upper(struct ax_jvm *vm, const struct ax_jcall *c, struct ax_jval *out) {
    return ax_jtext_case(vm, AX_JLETTERS_UPPER, c->self.str, out);
}

static enum ax_status str_capitalize(struct ax_jvm *vm, const struct ax_jcall *c,
                                     struct ax_jval *out) {
    return ax_jtext_case(vm, AX_JLETTERS_CAPITALIZE, c->self.str, out);
}

static enum ax_status str_title(struct ax_jvm *vm, const struct ax_jcall *c, struct ax_jval *out) {
    return ax_jtext_case(vm, AX_JLETTERS_TITLE, c->self.str, out);
}

/* strip, lstrip, rstrip */
static enum ax_status str_strip(struct ax_jvm *vm, const struct ax_jcall *call,
                                struct ax_jval *out) {
    struct ax_jstr *chars = NULL;
    const enum ax_jsides sides = call->name[0] == 'l'   ? AX_JLEFT
                                 : call->name[0] == 'r' ? AX_JRIGHT
                                                        : AX_JBOTH;
    if (call->v[0].kind != AX_JNONE) {
        AX_TRY(ax_jarg_str(vm, call, "the characters", call->v[0], &chars));
    }
    return ax_jtext_strip(vm, sides, call->self.str, chars, out);
}

/* removeprefix, removesuffix */
static enum ax_status str_remove(struct ax_jvm *vm, const struct ax_jcall *call,
                                 struct ax_jval *out) {
    struct ax_jstr *affix = NULL, *s = call->self.str;
    const bool prefix = strcmp(call->name, "removeprefix") == 0;
    AX_TRY(ax_jarg_str(vm, call, "the argument", call->v[0], &affix));
    const size_t rest = s->len - affix->len;
    *out = call->self;
    if (affix->len > s->len ||
        memcmp(prefix ? s->data : s->data + rest, affix->data, affix->len) != 0) {
        return AX_OK;
    }
    return ax_jstr_slice(&vm->arena, &out->str, s, prefix ? affix->len : 0, prefix ? s->len : rest);
}

static bool has_affix(const struct ax_jstr *s, const struct ax_jstr *affix, bool prefix) {
    return affix->len <= s->len &&
           memcmp(prefix ? s->data : s->data + s->len - affix->len, affix->data, affix->len) == 0;
}

/* startswith, endswith: a str, or a tuple of several */
static enum ax_status str_with(struct ax_jvm *vm, const struct ax_jcall *call,
                               struct ax_jval *out) {
    const struct ax_jval affix = call->v[0];
    const struct ax_jval *items = affix.kind == AX_JTUPLE ? affix.list->items : &affix;
    const size_t n = affix.kind == AX_JTUPLE ? affix.list->n : 1;
    bool hit = false;
    for (size_t i = 0; i < n && !hit; i++) {
        struct ax_jstr *text = NULL;
        AX_TRY(ax_jarg_str(vm, call, "the argument", items[i], &text));
        hit = has_affix(call->self.str, text, call->name[0] == 's');
    }
    *out = ax_jbool(hit);
    return AX_OK;
}

/* ---- str: pieces ---- */

/* split, rsplit */
static enum ax_status str_split(struct ax_jvm *vm, const struct ax_jcall *call,
                                struct ax_jval *out) {
    struct ax_jstr *sep = NULL;
    int64_t max = -1;
    if (call->v[0].kind != AX_JNONE) {
        AX_TRY(ax_jarg_str(vm, call, "the separator", call->v[0], &sep));
    }
    AX_TRY(ax_jarg_int(vm, call, "maxsplit", call->v[1], &max));
    return ax_jtext_split(vm, call->self.str, sep, max, call->name[0] == 'r', out);
}

static enum ax_status str_splitlines(struct ax_jvm *vm, const struct ax_jcall *call,
                                     struct ax_jval *out) {
    struct ax_jitems lines = {0};
    AX_TRY(ax_jtext_lines(vm, call->self.str, ax_jarg_truth(call->v[0], false), &lines));
    return ax_jitems_done(&vm->arena, &lines, AX_JLIST, out);
}

/* Jinja escapes what these two put into the result of |safe. */
static enum ax_status refuse_safe(struct ax_jvm *vm, const struct ax_jcall *call) {
    return call->self.str->safe ? ax_jvm_error(vm,
                                               "%s on the result of |safe is not supported: leave "
                                               "|safe out",
                                               call->name)
                                : AX_OK;
}

static enum ax_status str_join(struct ax_jvm *vm, const struct ax_jcall *call,
                               struct ax_jval *out) {
    AX_TRY(refuse_safe(vm, call));
    return ax_jtext_join(vm, call->self.str, call->v[0], false, out);
}

static enum ax_status str_replace(struct ax_jvm *vm, const struct ax_jcall *call,
                                  struct ax_jval *out) {
    struct ax_jstr *old = NULL, *with = NULL;
    int64_t count = -1;
    AX_TRY(refuse_safe(vm, call));
    AX_TRY(ax_jarg_str(vm, call, "the old text", call->v[0], &old));
    AX_TRY(ax_jarg_str(vm, call, "the new text", call->v[1], &with));
    AX_TRY(ax_jarg_int(vm, call, "the count", call->v[2], &count));
    return ax_jtext_replace(vm, call->self.str, old, with, count, out);
}

/* ---- str: questions ---- */

/* find, index, rfind: the position in code points */
static enum ax_status str_find(struct ax_jvm *vm, const struct ax_jcall *call,
                               struct ax_jval *out) {
    struct ax_jstr *needle = NULL, *s = call->self.str;
    AX_TRY(ax_jarg_str(vm, call, "the text to find", call->v[0], &needle));
    const bool last = call->name[0] == 'r';
    AX_TRY(ax_jvm_charge(vm, (1 + s->len / 16) * (last ? 1 + needle->len / 64 : 1)));
    size_t hit = SIZE_MAX;
    if (!last) {
        hit = ax_jstr_find(s, needle, 0);
    } else if (needle->len <= s->len) {
        for (size_t at = s->len - needle->len + 1; at > 0 && hit == SIZE_MAX; at--) {
            if (memcmp(s->data + at - 1, needle->data, needle->len) == 0) {
                hit = at - 1;
            }
        }
    }
    if (hit == SIZE_MAX && call->name[0] == 'i') {
        return ax_jvm_error(vm, "index: the text does not occur");
    }
    *out = ax_jint(hit == SIZE_MAX ? -1 : (int64_t)ax_python_count(s->data, hit));
    return AX_OK;
}

static enum ax_status str_count(struct ax_jvm *vm, const struct ax_jcall *call,
                                struct ax_jval *out) {
    struct ax_jstr *needle = NULL, *s = call->self.str;
    int64_t n = 0;
    AX_TRY(ax_jarg_str(vm, call, "the text to count", call->v[0], &needle));
    AX_TRY(ax_jvm_charge(vm, s->len / 16));
    for (size_t p = 0; needle->len > 0 && (p = ax_jstr_find(s, needle, p)) != SIZE_MAX;) {
        p += needle->len;
        n++;
    }
    *out = ax_jint(needle->len > 0 ? n : 1 + (int64_t)ax_jstr_chars(s));
    return AX_OK;
}

/* isdigit, isalpha, isalnum, isspace: not empty, and every character of the class */
static enum ax_status str_is(struct ax_jvm *vm, const struct ax_jcall *call, struct ax_jval *out) {
    const struct ax_jstr *s = call->self.str;
    const char *name = call->name;
    bool (*is)(uint32_t c) = name[2] == 'd'   ? ax_python_is_digit
                             : name[2] == 's' ? ax_python_is_space
                             : name[4] == 'p' ? ax_python_is_alpha
                                              : ax_python_is_alnum;
    bool holds = s->len > 0;
    for (size_t p = 0; p < s->len && holds;) {
        holds = is(ax_python_next(s->data, &p));
    }
    *out = ax_jbool(holds);
    return ax_jvm_charge(vm, s->len / 16);
}

/* ---- lists and dicts ---- */

static enum ax_status list_index(struct ax_jvm *vm, const struct ax_jcall *call,
                                 struct ax_jval *out) {
    const struct ax_jlist *l = call->self.list;
    for (size_t i = 0; i < l->n; i++) {
        AX_TRY(ax_jvm_charge(vm, ax_jval_weight(call->v[0])));
        if (ax_jval_equal(l->items[i], call->v[0])) {
            *out = ax_jint((int64_t)i);
            return AX_OK;
        }
    }
    return ax_jvm_error(vm, "index: the item is not in the %s", ax_jval_type(call->self));
}

static enum ax_status list_count(struct ax_jvm *vm, const struct ax_jcall *call,
                                 struct ax_jval *out) {
    const struct ax_jlist *l = call->self.list;
    int64_t n = 0;
    for (size_t i = 0; i < l->n; i++) {
        AX_TRY(ax_jvm_charge(vm, ax_jval_weight(call->v[0])));
        n += ax_jval_equal(l->items[i], call->v[0]);
    }
    *out = ax_jint(n);
    return AX_OK;
}

static enum ax_status itself(struct ax_jvm *vm, const struct ax_jcall *call, struct ax_jval *out) {
    (void)vm;
    *out = call->self; /* a copy of what never changes */
    return AX_OK;
}

static enum ax_status dict_get(struct ax_jvm *vm, const struct ax_jcall *call,
                               struct ax_jval *out) {
    uint32_t h;
    AX_TRY(ax_jvm_charge(vm, ax_jval_weight(call->v[0])));
    if (!ax_jval_hash(call->v[0], &h)) {
        return ax_jvm_error(vm, "get: a %s cannot be a key", ax_jval_type(call->v[0]));
    }
    const struct ax_jval *v = ax_jdict_get(call->self.dict, call->v[0]);
    *out = v != NULL ? *v : call->v[1].kind != AX_JMISSING ? call->v[1] : ax_jnone();
    return AX_OK;
}

/* items, keys, values */
static enum ax_status dict_view(struct ax_jvm *vm, const struct ax_jcall *call,
                                struct ax_jval *out) {
    const struct ax_jdict *d = call->self.dict;
    struct ax_jitems items = {0};
    AX_TRY(ax_jvm_charge(vm, d->n));
    for (size_t i = 0; i < d->n; i++) {
        struct ax_jval v = call->name[0] == 'k' ? d->pairs[i].key : d->pairs[i].value;
        if (call->name[0] == 'i') {
            AX_TRY(ax_jdict_pair(&vm->arena, &d->pairs[i], &v));
        }
        AX_TRY(ax_jitems_add(&vm->arena, &items, v));
    }
    AX_TRY(ax_jitems_done(&vm->arena, &items, AX_JVIEW, out));
    out->list->type = call->name[0] == 'k'   ? "dict_keys"
                      : call->name[0] == 'v' ? "dict_values"
                                             : "dict_items";
    return AX_OK;
}

static enum ax_status loop_cycle(struct ax_jvm *vm, const struct ax_jcall *call,
                                 struct ax_jval *out) {
    if (call->n_args == 0) {
        return ax_jvm_error(vm, "cycle needs something to choose from");
    }
    *out = call->args[(size_t)call->self.loop->index0 % call->n_args];
    return AX_OK;
}

/* ---- tables ---- */

static const struct ax_jbuiltin of_str[] = {
    {"split", str_split, "sep= maxsplit="},
    {"rsplit", str_split, "sep= maxsplit="},
    {"strip", str_strip, "/chars="},
    {"lstrip", str_strip, "/chars="},
    {"rstrip", str_strip, "/chars="},
    {"startswith", str_with, "/prefix"},
    {"endswith", str_with, "/suffix"},
    {"replace", str_replace, "/old new count="},
    {"upper", str_upper, ""},
    {"lower", str_lower, ""},
    {"capitalize", str_capitalize, ""},
    {"title", str_title, ""},
    {"find", str_find, "/sub"},
    {"rfind", str_find, "/sub"},
    {"index", str_find, "/sub"},
    {"count", str_count, "/sub"},
    {"join", str_join, "/iterable"},
    {"splitlines", str_splitlines, "keepends="},
    {"removeprefix", str_remove, "/prefix"},
    {"removesuffix", str_remove, "/suffix"},
    {"isdigit", str_is, ""},
    {"isalpha", str_is, ""},
    {"isalnum", str_is, ""},
    {"isspace", str_is, ""},
    {NULL, NULL, NULL},
};

const struct ax_jbuiltin *ax_jmethod_find(enum ax_jkind of, const struct ax_jstr *name) {
    static const struct ax_jbuiltin of_list[] = {{"index", list_index, "/value"},
                                                 {"count", list_count, "/value"},
                                                 {"copy", itself, ""},
                                                 {NULL, NULL, NULL}};
    static const struct ax_jbuiltin of_dict[] = {
        {"items", dict_view, ""},           {"keys", dict_view, ""}, {"values", dict_view, ""},
        {"get", dict_get, "/key default="}, {"copy", itself, ""},    {NULL, NULL, NULL}};
    static const struct ax_jbuiltin of_loop[] = {{"cycle", loop_cycle, NULL}, {NULL, NULL, NULL}};
    switch (of) {
    case AX_JSTR:
        return ax_jbuiltin_in(of_str, name);
    case AX_JLIST:
        return ax_jbuiltin_in(of_list, name);
    case AX_JTUPLE: /* has no copy */
        return ax_jstr_is(name, "copy") ? NULL : ax_jbuiltin_in(of_list, name);
    case AX_JDICT:
        return ax_jbuiltin_in(of_dict, name);
    case AX_JLOOP:
        return ax_jbuiltin_in(of_loop, name);
    default:
        return NULL;
    }
}
