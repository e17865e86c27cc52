/* Finds and calls built-ins; names that are rejected; global functions. */
#include "data/text/jinja/builtin.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- lookup ---- */

const struct ax_jbuiltin *ax_jbuiltin_in(const struct ax_jbuiltin *table,
                                         const struct ax_jstr *name) {
    for (; table->name != NULL; table++)
        if (ax_jstr_is(name, table->name))
            return table;
    return NULL;
}

const struct ax_jbuiltin *ax_jfilter_find(const struct ax_jstr *name) {
    static const struct ax_jbuiltin *const tables[] = {ax_jfilters_text, ax_jfilters_list,
                                                       ax_jfilters_map, ax_jfilters_value};
    const struct ax_jbuiltin *b = NULL;
    for (size_t i = 0; i < sizeof tables / sizeof tables[0] && b == NULL; i++)
        b = ax_jbuiltin_in(tables[i], name);
    return b;
}

/* Names that Jinja or Python has and no published chat template needs (decision 011). */
static const struct {
    const char *of;    /* "filter", "test", "tag", or the type of the object */
    const char *names; /* with a blank before and after each */
} unsupported[] = {
    {"filter", " abs attr batch center e escape filesizeformat forceescape format groupby max min "
               "pprint random slice "
               "striptags sum truncate unique urlencode urlize wordcount wordwrap xmlattr "},
    {"test", " escaped filter lower sameas test upper "},
    {"str", " casefold center count index isalnum isalpha isspace rfind encode expandtabs format "
            "format_map "
            "isascii isdecimal isidentifier islower "
            "isnumeric isprintable istitle isupper ljust maketrans removeprefix removesuffix "
            "partition rindex rjust rpartition rsplit "
            "swapcase translate zfill "},
    {"dict", " copy fromkeys "},
    {"list", " copy "},
    {"range", " count index start step stop "},
    {"LoopContext", " changed depth depth0 "},
    {"Macro", " arguments caller catch_kwargs catch_varargs name "},
    {"tag",
     " autoescape block call do extends from import include pluralize print raw trans with "},
};

bool ax_junsupported(const char *of, const struct ax_jstr *name) {
    char spaced[32];
    if (name->len > sizeof spaced - 3)
        return false;
    snprintf(spaced, sizeof spaced, " %.*s ", (int)name->len, name->data);
    for (size_t i = 0; i < sizeof unsupported / sizeof unsupported[0]; i++)
        if (strcmp(unsupported[i].of, of) == 0 && strstr(unsupported[i].names, spaced) != NULL)
            return true;
    return false;
}

const char *ax_junknown(char *text, size_t size, enum ax_jnode_kind kind,
                        const struct ax_jstr *name) {
    const char *what = kind == AX_JN_FILTER ? "filter" : "test";
    const int n = (int)(name->len < 80 ? name->len : 80);
    if (ax_junsupported(what, name))
        snprintf(text, size, "the %s '%.*s' is not supported", what, n, name->data);
    else
        snprintf(text, size, "no %s named '%.*s'", what, n, name->data);
    return text;
}

/* ---- arguments ---- */

/* The number of the parameter called `key`, or SIZE_MAX. */
static size_t find_param(const char *params, const struct ax_jstr *key) {
    size_t i = 0;
    for (const char *p = params; *p != '\0'; i++) {
        const size_t n = strcspn(p, " =");
        if (n == key->len && memcmp(p, key->data, n) == 0)
            return i;
        p += n;
        p += strspn(p, "= ");
    }
    return SIZE_MAX;
}

static enum ax_status bind(struct ax_jvm *vm, const char *params, struct ax_jcall *call) {
    size_t n = 0;
    const bool positional = params[0] == '/';
    params += positional;
    if (positional && call->n_kwargs > 0)
        return ax_jvm_error(vm, "%s takes no keyword arguments", call->name);
    for (size_t i = 0; i < AX_JPARAMS_MAX; i++)
        call->v[i] = i < call->n_args ? call->args[i] : (struct ax_jval){.kind = AX_JMISSING};
    for (size_t k = 0; k < call->n_kwargs; k++) {
        const struct ax_jstr *key = call->kwargs[k].key;
        const size_t i = find_param(params, key);
        if (i == SIZE_MAX || call->v[i].kind != AX_JMISSING) {
            return ax_jvm_error(vm, "%s: %s argument %.*s", call->name,
                                i == SIZE_MAX ? "unknown" : "duplicate", (int)key->len, key->data);
        }
        call->v[i] = call->kwargs[k].value;
    }
    for (const char *p = params; *p != '\0'; n++) {
        const size_t len = strcspn(p, " =");
        if (p[len] != '=' && call->v[n].kind == AX_JMISSING)
            return ax_jvm_error(vm, "%s needs the argument %.*s", call->name, (int)len, p);
        p += len;
        p += strspn(p, "= ");
    }
    if (call->n_args > n) {
        return ax_jvm_error(vm, "%s takes at most %zu arguments, not %zu", call->name, n,
                            call->n_args);
    }
    return AX_OK;
}

enum ax_status ax_jbuiltin_run(struct ax_jvm *vm, const struct ax_jbuiltin *b,
                               struct ax_jcall *call, struct ax_jval *out) {
    call->name = b->name;
    if (b->params != NULL)
        AX_TRY(bind(vm, b->params, call));
    return b->run(vm, call, out);
}

enum ax_status ax_jarg_int(struct ax_jvm *vm, const struct ax_jcall *call, const char *what,
                           struct ax_jval v, int64_t *out) {
    if (v.kind == AX_JMISSING)
        return AX_OK;
    if (!ax_jval_is_int(v)) {
        return ax_jvm_error(vm, "%s: %s must be an integer, not a %s", call->name, what,
                            ax_jval_type(v));
    }
    *out = ax_jval_int(v);
    return AX_OK;
}

enum ax_status ax_jarg_str(struct ax_jvm *vm, const struct ax_jcall *call, const char *what,
                           struct ax_jval v, struct ax_jstr **out) {
    if (v.kind == AX_JMISSING)
        return AX_OK;
    if (v.kind != AX_JSTR) {
        return ax_jvm_error(vm, "%s: %s must be a str, not a %s", call->name, what,
                            ax_jval_type(v));
    }
    *out = v.str;
    return AX_OK;
}

bool ax_jarg_truth(struct ax_jval v, bool otherwise) {
    return v.kind == AX_JMISSING ? otherwise : ax_jval_truth(v);
}

/* ---- global functions ---- */

static enum ax_status global_namespace(struct ax_jvm *vm, const struct ax_jcall *call,
                                       struct ax_jval *out) {
    struct ax_jdict *d;
    if (call->n_args > 0)
        return ax_jvm_error(vm, "namespace supports only keyword arguments");
    AX_TRY(ax_jdict_new(&vm->arena, &d));
    for (size_t i = 0; i < call->n_kwargs; i++) {
        struct ax_jstr *key; /* a new header, because names in the tree are shared */
        const struct ax_jstr *name = call->kwargs[i].key;
        AX_TRY(ax_jstr_borrow(&vm->arena, &key, name->data, name->len));
        if (name->data[0] == '_')
            return ax_jvm_error(vm,
                                "a namespace does not accept names that begin with an underscore");
        AX_TRY(ax_jdict_set(&vm->arena, d, ax_jstring(key), call->kwargs[i].value));
    }
    *out = (struct ax_jval){.kind = AX_JNAMESPACE, .dict = d};
    return AX_OK;
}

/* The longest range, as in the sandbox. */
#define RANGE_MAX 100000

static enum ax_status global_range(struct ax_jvm *vm, const struct ax_jcall *call,
                                   struct ax_jval *out) {
    int64_t v[3] = {0, 0, 1};
    for (size_t i = 0; i < 3; i++) {
        AX_TRY(ax_jarg_int(vm, call, "each argument", call->v[i], &v[i]));
        if (v[i] > INT64_MAX / 4 || v[i] < INT64_MIN / 4)
            return ax_jvm_error(vm, "range: the argument is too large");
    }
    if (call->n_args == 1) {
        v[1] = v[0];
        v[0] = 0;
    }
    if (v[2] == 0)
        return ax_jvm_error(vm, "range: the step cannot be 0");
    int64_t span = v[2] > 0 ? v[1] - v[0] : v[0] - v[1];
    int64_t step = v[2] > 0 ? v[2] : -v[2];
    int64_t n = span > 0 ? (span - 1) / step + 1 : 0;
    if (n > RANGE_MAX)
        return ax_jvm_error(vm, "range: more than %d numbers", RANGE_MAX);
    struct ax_jrange *r;
    AX_TRY(ax_jarena_alloc(&vm->arena, &r, 1, sizeof *r));
    *r = (struct ax_jrange){.start = v[0], .stop = v[1], .step = v[2], .n = n};
    *out = (struct ax_jval){.kind = AX_JRANGE, .range = r};
    return AX_OK;
}

static enum ax_status global_raise(struct ax_jvm *vm, const struct ax_jcall *call,
                                   struct ax_jval *out) {
    struct ax_jstr *text;
    (void)out;
    AX_TRY(ax_jval_to_str(vm, call->v[0], &text));
    return ax_jvm_error(vm, "the template raised: %.*s", (int)(text->len < 1700 ? text->len : 1700),
                        text->data);
}

static enum ax_status global_strftime_now(struct ax_jvm *vm, const struct ax_jcall *call,
                                          struct ax_jval *out) {
    struct ax_jstr *format = NULL;
    AX_TRY(ax_jarg_str(vm, call, "the format", call->v[0], &format));
    AX_ASSERT(format != NULL); /* the table of functions requires it */
    if (format->len > 1000 || memchr(format->data, '\0', format->len) != NULL)
        return ax_jvm_error(vm, "strftime_now: the format is too long or contains a NUL");
    char spec[1004], text[8192];
    snprintf(spec, sizeof spec, "x%.*s", (int)format->len, format->data); /* x: never empty */
    for (const char *p = strchr(spec, '%'); p != NULL; p = strchr(p + 1 + (p[1] != '\0'), '%'))
        if (p[1] == 'z' || p[1] == 'Z' || p[1] == 'f') /* Python prints no time zone here */
            return ax_jvm_error(vm, "strftime_now: %%%c is not supported", p[1]);
    time_t now = (time_t)vm->now;
    struct tm tm;
    if (localtime_r(&now, &tm) == NULL)
        return ax_jvm_error(vm, "strftime_now: the system time is not valid");
    size_t len = strftime(text, sizeof text, spec, &tm);
    if (len == 0)
        return ax_jvm_error(vm, "strftime_now: the text is too long");
    return ax_jval_new_str(vm, text + 1, len - 1, out);
}

static enum ax_status global_refused(struct ax_jvm *vm, const struct ax_jcall *call,
                                     struct ax_jval *out) {
    (void)out;
    return ax_jvm_error(vm, "the function %s is not supported", call->name);
}

const struct ax_jbuiltin *ax_jglobal_find(const struct ax_jstr *name) {
    static const struct ax_jbuiltin globals[] = {
        {"namespace", global_namespace, NULL},
        {"raise_exception", global_raise, "message"},
        {"range", global_range, "/start stop= step="},
        {"strftime_now", global_strftime_now, "format"},
        {"dict", global_refused, NULL},
        {"cycler", global_refused, NULL},
        {"joiner", global_refused, NULL},
        {"lipsum", global_refused, NULL},
        {NULL, NULL, NULL},
    };
    return ax_jbuiltin_in(globals, name);
}
