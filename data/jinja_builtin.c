/* What filters share: lookup by name, attribute paths, sorting; and the global functions. */
#include "data/jinja_builtin.h"

#include <string.h>
#include <time.h>

#include "data/jinja_text.h"

const struct ax_jbuiltin *ax_jbuiltin_in(const struct ax_jbuiltin *table,
                                         const struct ax_jstr *name) {
    for (; table->name != NULL; table++) {
        if (ax_jstr_is(name, table->name)) {
            return table;
        }
    }
    return NULL;
}

const struct ax_jbuiltin *ax_jfilter_find(const struct ax_jstr *name) {
    static const struct ax_jbuiltin *const tables[] = {
        ax_jfilters_text, ax_jfilters_value, ax_jfilters_list, ax_jfilters_lazy, ax_jfilters_web};
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        const struct ax_jbuiltin *b = ax_jbuiltin_in(tables[i], name);
        if (b != NULL) {
            return b;
        }
    }
    return NULL;
}

/* ---- attribute paths ---- */

static bool all_digits(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9') {
            return false;
        }
    }
    return n > 0 && n < 19;
}

enum ax_status ax_jpath_make(struct ax_jvm *vm, struct ax_jval attribute, struct ax_jpath *out) {
    struct ax_jitems parts = {0};
    *out = (struct ax_jpath){.otherwise.kind = AX_JMISSING};
    if (attribute.kind != AX_JSTR) {
        if (attribute.kind != AX_JNONE && attribute.kind != AX_JMISSING) {
            AX_TRY(ax_jitems_add(&vm->arena, &parts, attribute));
        }
        out->parts = parts.items;
        out->n = parts.n;
        return AX_OK;
    }
    const struct ax_jstr *s = attribute.str;
    for (size_t start = 0; start <= s->len;) {
        size_t end = start;
        while (end < s->len && s->data[end] != '.') {
            end++;
        }
        struct ax_jval part;
        if (all_digits(s->data + start, end - start)) {
            int64_t i = 0;
            for (size_t k = start; k < end; k++) {
                i = i * 10 + (s->data[k] - '0');
            }
            part = ax_jint(i);
        } else {
            part.kind = AX_JSTR;
            AX_TRY(ax_jstr_slice(&vm->arena, &part.str, s, start, end));
        }
        AX_TRY(ax_jitems_add(&vm->arena, &parts, part));
        start = end + 1;
    }
    out->parts = parts.items;
    out->n = parts.n;
    return AX_OK;
}

enum ax_status ax_jpath_get(struct ax_jvm *vm, const struct ax_jpath *path, struct ax_jval item,
                            struct ax_jval *out) {
    for (size_t i = 0; i < path->n; i++) {
        AX_TRY(ax_jval_getitem(vm, item, path->parts[i], &item));
        if (item.kind == AX_JUNDEFINED && path->otherwise.kind != AX_JMISSING) {
            item = path->otherwise;
        }
    }
    if (path->fold && item.kind == AX_JSTR) {
        AX_TRY(ax_jtext_case(vm, AX_JCASE_LOWER, item.str, &item.str));
    }
    *out = item;
    return AX_OK;
}

/* ---- sorting ---- */

struct sorting {
    struct ax_jvm *vm;
    const struct ax_jval *keys;
    size_t n_keys;
};

/* keys of i < keys of k: lists of n_keys, whose first unequal pair decides, or bare values. */
static enum ax_status is_less(const struct sorting *s, size_t i, size_t k, bool *out) {
    if (s->n_keys == 0) {
        return ax_jop_compare(s->vm, AX_JOP_LT, s->keys[i], s->keys[k], out);
    }
    const struct ax_jval *a = s->keys + i * s->n_keys, *b = s->keys + k * s->n_keys;
    *out = false;
    for (size_t j = 0; j < s->n_keys; j++) {
        AX_TRY(ax_jvm_charge(s->vm, ax_jval_weight(a[j])));
        if (!ax_jval_equal(a[j], b[j])) {
            return ax_jop_compare(s->vm, AX_JOP_LT, a[j], b[j], out);
        }
    }
    return AX_OK;
}

/* Merges the sorted halves of order[0..n) through `spare`. */
static enum ax_status merge(const struct sorting *s, size_t *order, size_t *spare, size_t half,
                            size_t n) {
    size_t i = 0, k = half, at = 0;
    memcpy(spare, order, n * sizeof *order);
    while (i < half && k < n) {
        bool less;
        AX_TRY(is_less(s, spare[k], spare[i], &less));
        order[at++] = less ? spare[k++] : spare[i++];
    }
    while (i < half) {
        order[at++] = spare[i++];
    }
    while (k < n) {
        order[at++] = spare[k++];
    }
    return AX_OK;
}

enum ax_status ax_jsort(struct ax_jvm *vm, struct ax_jval *items, struct ax_jval *keys, size_t n,
                        size_t n_keys, bool reverse) {
    const struct sorting s = {vm, keys, n_keys};
    size_t *order, *spare;
    struct ax_jval *sorted;
    AX_TRY(ax_jarena_alloc(&vm->arena, &order, n, sizeof *order));
    AX_TRY(ax_jarena_alloc(&vm->arena, &spare, n, sizeof *spare));
    AX_TRY(ax_jarena_alloc(&vm->arena, &sorted, n, sizeof *sorted));
    for (size_t i = 0; i < n; i++) { /* reversed twice, equal items keep their order */
        order[i] = reverse ? n - 1 - i : i;
    }
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t i = 0; i + width < n; i += 2 * width) {
            size_t m = n - i < 2 * width ? n - i : 2 * width;
            AX_TRY(merge(&s, order + i, spare, width, m));
        }
    }
    for (size_t i = 0; i < n; i++) {
        sorted[i] = items[order[reverse ? n - 1 - i : i]];
    }
    if (n > 0) {
        memcpy(items, sorted, n * sizeof *items);
    }
    return AX_OK;
}

/* ---- global functions ---- */

/* dict(mapping or pairs, k=v, …) into d; also for namespace. */
static enum ax_status fill_dict(struct ax_jvm *vm, const struct ax_jcall *call,
                                struct ax_jdict *d) {
    if (call->n_args > 1) {
        return ax_jvm_error(vm, "%s takes at most 1 positional argument", call->name);
    }
    if (call->n_args == 1 && call->args[0].kind == AX_JUNDEFINED) {
        return ax_jvm_undefined(vm, call->args[0]);
    }
    if (call->n_args == 1 && call->args[0].kind == AX_JDICT) {
        const struct ax_jdict *from = call->args[0].dict;
        AX_TRY(ax_jvm_charge(vm, from->n));
        for (size_t i = 0; i < from->n; i++) {
            AX_TRY(ax_jdict_set(&vm->arena, d, from->pairs[i].key, from->pairs[i].value));
        }
    } else if (call->n_args == 1) {
        struct ax_jitems pairs, pair;
        AX_TRY(ax_jval_items(vm, call->args[0], &pairs));
        for (size_t i = 0; i < pairs.n; i++) {
            uint32_t h;
            AX_TRY(ax_jval_items(vm, pairs.items[i], &pair));
            if (pair.n != 2 || !ax_jval_hash(pair.items[0], &h)) {
                return ax_jvm_error(vm, "%s needs pairs of a key and a value", call->name);
            }
            AX_TRY(ax_jdict_set(&vm->arena, d, pair.items[0], pair.items[1]));
        }
    }
    for (size_t i = 0; i < call->n_kwargs; i++) {
        struct ax_jstr *key;
        AX_TRY(
            ax_jstr_borrow(&vm->arena, &key, call->kwargs[i].key->data, call->kwargs[i].key->len));
        AX_TRY(ax_jdict_set(&vm->arena, d, ax_jstring(key), call->kwargs[i].value));
    }
    return AX_OK;
}

static enum ax_status global_dict(struct ax_jvm *vm, const struct ax_jcall *call,
                                  struct ax_jval *out) {
    struct ax_jdict *d;
    AX_TRY(ax_jdict_new(&vm->arena, &d));
    AX_TRY(fill_dict(vm, call, d));
    *out = (struct ax_jval){.kind = AX_JDICT, .dict = d};
    return AX_OK;
}

static enum ax_status global_namespace(struct ax_jvm *vm, const struct ax_jcall *call,
                                       struct ax_jval *out) {
    struct ax_jdict *d;
    AX_TRY(ax_jdict_new(&vm->arena, &d));
    AX_TRY(fill_dict(vm, call, d));
    for (size_t i = 0; i < d->n; i++) {
        const struct ax_jval key = d->pairs[i].key;
        if (key.kind == AX_JSTR && key.str->len > 0 && key.str->data[0] == '_') {
            return ax_jvm_error(vm, "a namespace takes no names that begin with an underscore");
        }
    }
    *out = (struct ax_jval){.kind = AX_JNAMESPACE, .dict = d};
    return AX_OK;
}

/* The most that a template may count over, as in the sandbox. */
#define RANGE_MAX 100000

static enum ax_status global_range(struct ax_jvm *vm, const struct ax_jcall *call,
                                   struct ax_jval *out) {
    int64_t v[3] = {0, 0, 1};
    AX_TRY(ax_jcall_count(vm, call, 1, 3));
    for (size_t i = 0; i < call->n_args; i++) {
        AX_TRY(ax_jarg_int(vm, call, "each argument", call->args[i], &v[i]));
        if (v[i] > INT64_MAX / 4 || v[i] < INT64_MIN / 4) {
            return ax_jvm_error(vm, "range: the argument is too large");
        }
    }
    if (call->n_args == 1) {
        v[1] = v[0];
        v[0] = 0;
    }
    if (v[2] == 0) {
        return ax_jvm_error(vm, "range: the step cannot be 0");
    }
    int64_t span = v[2] > 0 ? v[1] - v[0] : v[0] - v[1];
    int64_t step = v[2] > 0 ? v[2] : -v[2];
    int64_t n = span > 0 ? (span - 1) / step + 1 : 0;
    if (n > RANGE_MAX) {
        return ax_jvm_error(vm, "range: more than %d numbers", RANGE_MAX);
    }
    struct ax_jrange *r;
    AX_TRY(ax_jarena_alloc(&vm->arena, &r, 1, sizeof *r));
    *r = (struct ax_jrange){.start = v[0], .stop = v[1], .step = v[2], .n = n};
    *out = (struct ax_jval){.kind = AX_JRANGE, .range = r};
    return AX_OK;
}

static enum ax_status global_raise(struct ax_jvm *vm, const struct ax_jcall *call,
                                   struct ax_jval *out) {
    static const char *const params[] = {"message"};
    struct ax_jval message;
    struct ax_jstr *text;
    (void)out;
    AX_TRY(ax_jcall_bind(vm, call, params, 1, 1, &message));
    AX_TRY(ax_jval_to_str(vm, message, &text));
    return ax_jvm_error(vm, "%.*s", (int)(text->len < 1700 ? text->len : 1700), text->data);
}

static enum ax_status global_strftime_now(struct ax_jvm *vm, const struct ax_jcall *call,
                                          struct ax_jval *out) {
    static const char *const params[] = {"format"};
    struct ax_jval v;
    struct ax_jstr *format = NULL;
    AX_TRY(ax_jcall_bind(vm, call, params, 1, 1, &v));
    AX_TRY(ax_jarg_str(vm, call, "the format", v, &format));
    if (format->len > 1000 || memchr(format->data, '\0', format->len) != NULL) {
        return ax_jvm_error(vm, "strftime_now: the format is too long, or holds a NUL");
    }
    /* Python fills these itself: a clock without zone, microseconds (a fixed clock has none). */
    char spec[3200], text[8192];
    size_t n = 0;
    spec[n++] = 'x'; /* so that an empty result differs from a failure */
    for (size_t i = 0; i < format->len; i++) {
        char next = i + 1 < format->len && format->data[i] == '%' ? format->data[i + 1] : 0;
        if (next == 'z' || next == 'Z') {
            i++;
        } else if (next == 'f') {
            memcpy(spec + n, "000000", 6);
            n += 6;
            i++;
        } else {
            spec[n++] = format->data[i];
            if (next != 0) {
                spec[n++] = format->data[++i];
            }
        }
    }
    spec[n] = '\0';
    time_t now = (time_t)vm->now;
    struct tm tm;
    if (localtime_r(&now, &tm) == NULL) {
        return ax_jvm_error(vm, "strftime_now: the clock shows no valid time");
    }
    size_t len = strftime(text, sizeof text, spec, &tm);
    if (len == 0) {
        return ax_jvm_error(vm, "strftime_now: the text is too long");
    }
    return ax_jval_new_str(vm, text + 1, len - 1, out);
}

static enum ax_status global_cycler(struct ax_jvm *vm, const struct ax_jcall *call,
                                    struct ax_jval *out) {
    struct ax_jcycler *c;
    struct ax_jval items;
    AX_TRY(ax_jcall_count(vm, call, 1, SIZE_MAX));
    AX_TRY(ax_jlist_wrap(&vm->arena, AX_JTUPLE, call->args, call->n_args, &items));
    AX_TRY(ax_jarena_alloc(&vm->arena, &c, 1, sizeof *c));
    c->items = items.list;
    *out = (struct ax_jval){.kind = AX_JCYCLER, .cycler = c};
    return AX_OK;
}

static enum ax_status global_joiner(struct ax_jvm *vm, const struct ax_jcall *call,
                                    struct ax_jval *out) {
    static const char *const params[] = {"sep"};
    struct ax_jcycler *c;
    AX_TRY(ax_jarena_alloc(&vm->arena, &c, 1, sizeof *c));
    AX_TRY(ax_jcall_bind(vm, call, params, 1, 0, &c->separator));
    if (c->separator.kind == AX_JMISSING) {
        AX_TRY(ax_jval_new_str(vm, ", ", 2, &c->separator));
    }
    *out = (struct ax_jval){.kind = AX_JJOINER, .cycler = c};
    return AX_OK;
}

const struct ax_jbuiltin *ax_jglobal_find(const struct ax_jstr *name) {
    static const struct ax_jbuiltin globals[] = {
        {"namespace", global_namespace}, {"raise_exception", global_raise},
        {"range", global_range},         {"strftime_now", global_strftime_now},
        {"dict", global_dict},           {"cycler", global_cycler},
        {"joiner", global_joiner},       {NULL, NULL},
    };
    return ax_jbuiltin_in(globals, name);
}
