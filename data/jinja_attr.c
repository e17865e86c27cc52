/* x.name, x[key] and x[a:b:c] under the rules of Jinja's immutable sandbox.
 *
 * x.name looks for a method or attribute of the type first and for a key second; x[key] the other
 * way round. What would change a list or dict, and what begins with two underscores, is undefined
 * with a message of its own. */
#include <string.h>

#include "data/jinja_big.h"
#include "data/jinja_builtin.h"
#include "data/jinja_unicode.h"

enum ax_status ax_jval_make_undefined(struct ax_jvm *vm, const char *hint,
                                      const struct ax_jstr *name, const char *owner,
                                      struct ax_jval *out) {
    struct ax_jundef *u;
    AX_TRY(ax_jarena_alloc(&vm->arena, &u, 1, sizeof *u));
    *u = (struct ax_jundef){.hint = hint, .name = name, .owner = owner};
    *out = (struct ax_jval){.kind = AX_JUNDEFINED, .undef = u};
    return AX_OK;
}

/* ---- attributes ---- */

/* Methods that exist and would change the object. */
static bool is_mutator(struct ax_jval of, const struct ax_jstr *name) {
    static const char *const of_list[] = {"append", "clear",  "extend",  "insert",
                                          "pop",    "remove", "reverse", "sort"};
    static const char *const of_dict[] = {"clear", "pop", "popitem", "setdefault", "update"};
    const char *const *names = of.kind == AX_JLIST ? of_list : of_dict;
    size_t n = of.kind == AX_JLIST ? sizeof of_list / sizeof of_list[0]
                                   : sizeof of_dict / sizeof of_dict[0];
    for (size_t i = 0; i < n; i++) {
        if (ax_jstr_is(name, names[i])) {
            return true;
        }
    }
    return false;
}

/* Attributes that every Python object has. */
static bool is_dunder(const struct ax_jstr *name) {
    static const char *const names[] = {
        "__class__",   "__delattr__", "__dir__",           "__doc__",         "__eq__",
        "__format__",  "__ge__",      "__getattribute__",  "__getstate__",    "__gt__",
        "__hash__",    "__init__",    "__init_subclass__", "__le__",          "__lt__",
        "__ne__",      "__new__",     "__reduce__",        "__reduce_ex__",   "__repr__",
        "__setattr__", "__sizeof__",  "__str__",           "__subclasshook__"};
    if (name->len < 6 || name->data[0] != '_') {
        return false;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (ax_jstr_is(name, names[i])) {
            return true;
        }
    }
    return false;
}

static enum ax_status bind_method(struct ax_jvm *vm, const struct ax_jbuiltin *builtin,
                                  struct ax_jval self, struct ax_jval *out) {
    struct ax_jfunction *fn;
    AX_TRY(ax_jarena_alloc(&vm->arena, &fn, 1, sizeof *fn));
    *fn = (struct ax_jfunction){builtin, self};
    *out = (struct ax_jval){.kind = AX_JFUNCTION, .function = fn};
    return AX_OK;
}

static const struct ax_jbuiltin *find_method(struct ax_jval of, const struct ax_jstr *name) {
    switch (of.kind) {
    case AX_JSTR:
        return ax_jstr_method(name);
    case AX_JLIST:
    case AX_JTUPLE:
        if (of.kind == AX_JTUPLE && ax_jstr_is(name, "copy")) {
            return NULL;
        }
        return ax_jlist_method(name);
    case AX_JDICT:
        return ax_jdict_method(name);
    case AX_JRANGE:
        return ax_jrange_method(name);
    case AX_JLOOP:
        return ax_jloop_method(name);
    case AX_JCYCLER:
        return ax_jcycler_method(name);
    default:
        return NULL;
    }
}

static enum ax_status macro_attribute(struct ax_jvm *vm, const struct ax_jnode *n,
                                      const struct ax_jstr *name, struct ax_jval *out,
                                      bool *known) {
    *known = true;
    if (ax_jstr_is(name, "name")) {
        *out = n->macro.name != NULL ? ax_jstring(n->macro.name) : ax_jnone();
    } else if (ax_jstr_is(name, "caller")) {
        *out = ax_jbool(n->macro.has_caller);
    } else if (ax_jstr_is(name, "catch_kwargs")) {
        *out = ax_jbool(n->macro.has_kwargs);
    } else if (ax_jstr_is(name, "catch_varargs")) {
        *out = ax_jbool(n->macro.has_varargs);
    } else if (ax_jstr_is(name, "arguments")) {
        struct ax_jval *items;
        AX_TRY(ax_jarena_alloc(&vm->arena, &items, n->macro.params.n, sizeof *items));
        for (size_t i = 0; i < n->macro.params.n; i++) {
            items[i] = ax_jstring(n->macro.params.items[i]->name.name);
        }
        return ax_jlist_wrap(&vm->arena, AX_JTUPLE, items, n->macro.params.n, out);
    } else {
        *known = false;
    }
    return AX_OK;
}

/* getattr(of, name) of Python: *known = false for an AttributeError. */
static enum ax_status attribute(struct ax_jvm *vm, struct ax_jval of, struct ax_jstr *name,
                                struct ax_jval *out, bool *known) {
    *known = true;
    if (of.kind == AX_JNAMESPACE) {
        const struct ax_jval *v = ax_jdict_get_str(of.dict, name);
        *known = v != NULL;
        if (v != NULL) {
            *out = *v;
        }
        return AX_OK;
    }
    if (is_dunder(name) || ((of.kind == AX_JLIST || of.kind == AX_JDICT) && is_mutator(of, name))) {
        return ax_jval_make_undefined(vm,
                                      "the sandbox does not allow changing lists and dicts or "
                                      "looking inside objects",
                                      NULL, NULL, out);
    }
    const struct ax_jbuiltin *method = find_method(of, name);
    if (method != NULL) {
        return bind_method(vm, method, of, out);
    }
    if (of.kind == AX_JLOOP) {
        return ax_jloop_get(vm, of.loop, name, out, known);
    }
    if (of.kind == AX_JMACRO) {
        return macro_attribute(vm, of.macro->node, name, out, known);
    }
    if (of.kind == AX_JTUPLE && of.list->group &&
        (ax_jstr_is(name, "grouper") || ax_jstr_is(name, "list"))) {
        *out = of.list->items[name->data[0] == 'l'];
        return AX_OK;
    }
    if (of.kind == AX_JRANGE &&
        (ax_jstr_is(name, "start") || ax_jstr_is(name, "stop") || ax_jstr_is(name, "step"))) {
        *out = ax_jint(name->len == 5             ? of.range->start
                       : ax_jstr_is(name, "stop") ? of.range->stop
                                                  : of.range->step);
        return AX_OK;
    }
    if (of.kind == AX_JFUNCTION && ax_jstr_is(name, "fromkeys") &&
        strcmp(of.function->builtin->name, "dict") == 0) {
        return bind_method(vm, ax_jdict_method(name), of, out);
    }
    if (of.kind == AX_JCYCLER && ax_jstr_is(name, "current")) {
        *out = of.cycler->items->items[of.cycler->pos];
        return AX_OK;
    }
    *known = false;
    return AX_OK;
}

/* ---- items ---- */

/* of[key] of Python: *known = false for a TypeError or LookupError. */
static enum ax_status item(struct ax_jvm *vm, struct ax_jval of, struct ax_jval key,
                           struct ax_jval *out, bool *known) {
    *known = false;
    if (of.kind == AX_JDICT) {
        uint32_t h;
        AX_TRY(ax_jvm_charge(vm, ax_jval_weight(key)));
        const struct ax_jval *v = ax_jval_hash(key, &h) ? ax_jdict_get(of.dict, key) : NULL;
        if (v != NULL) {
            *out = *v;
            *known = true;
        }
        return AX_OK;
    }
    if (!ax_jval_is_int(key) || (of.kind != AX_JSTR && of.kind != AX_JLIST &&
                                 of.kind != AX_JTUPLE && of.kind != AX_JRANGE)) {
        return AX_OK;
    }
    size_t length;
    AX_TRY(ax_jval_length(vm, of, &length));
    int64_t i = ax_jval_int(key), n = (int64_t)length;
    i += i < 0 ? n : 0;
    if (i < 0 || i >= n) {
        return AX_OK;
    }
    *known = true;
    if (of.kind == AX_JRANGE) {
        *out = ax_jint(of.range->start + i * of.range->step);
        return AX_OK;
    }
    if (of.kind != AX_JSTR) {
        *out = of.list->items[i];
        return AX_OK;
    }
    AX_TRY(ax_jvm_charge(vm, of.str->chars == of.str->len ? 0 : of.str->len / 64));
    size_t start = ax_jstr_offset(of.str, (size_t)i), end = start;
    ax_python_next(of.str->data, &end);
    out->kind = AX_JSTR;
    return ax_jstr_slice(&vm->arena, &out->str, of.str, start, end);
}

enum ax_status ax_jval_getattr(struct ax_jvm *vm, struct ax_jval of, struct ax_jstr *name,
                               struct ax_jval *out) {
    if (of.kind == AX_JUNDEFINED && !is_dunder(name)) {
        return ax_jvm_undefined(vm, of);
    }
    bool known;
    AX_TRY(attribute(vm, of, name, out, &known));
    if (!known) {
        AX_TRY(item(vm, of, ax_jstring(name), out, &known));
    }
    return known ? AX_OK : ax_jval_make_undefined(vm, NULL, name, ax_jval_type(of), out);
}

enum ax_status ax_jval_getitem(struct ax_jvm *vm, struct ax_jval of, struct ax_jval key,
                               struct ax_jval *out) {
    if (of.kind == AX_JUNDEFINED) {
        return ax_jvm_undefined(vm, of);
    }
    bool known;
    AX_TRY(item(vm, of, key, out, &known));
    if (!known && key.kind == AX_JSTR) {
        AX_TRY(attribute(vm, of, key.str, out, &known));
    }
    return known ? AX_OK
                 : ax_jval_make_undefined(vm, NULL, key.kind == AX_JSTR ? key.str : NULL,
                                          ax_jval_type(of), out);
}

/* ---- slices ---- */

/* A bound as an int that fits, clamped; *given = false when open. */
static enum ax_status slice_bound(struct ax_jvm *vm, struct ax_jval v, int64_t *out, bool *given) {
    *given = v.kind != AX_JMISSING && v.kind != AX_JNONE;
    if (!*given) {
        return AX_OK;
    }
    if (v.kind == AX_JBIG) {
        *out = v.big->negative ? INT64_MIN / 4 : INT64_MAX / 4;
        return AX_OK;
    }
    if (!ax_jval_is_int(v)) {
        return ax_jvm_error(vm, "a slice needs integers, not a %s", ax_jval_type(v));
    }
    int64_t i = ax_jval_int(v);
    *out = i < INT64_MIN / 4 ? INT64_MIN / 4 : i > INT64_MAX / 4 ? INT64_MAX / 4 : i;
    return AX_OK;
}

/* start, step and count of the chosen indices among n, as Python's slice.indices. */
static enum ax_status slice_indices(struct ax_jvm *vm, const struct ax_jval bounds[3], int64_t n,
                                    int64_t *start, int64_t *step, int64_t *count) {
    int64_t stop;
    bool has_start, has_stop, has_step;
    AX_TRY(slice_bound(vm, bounds[0], start, &has_start));
    AX_TRY(slice_bound(vm, bounds[1], &stop, &has_stop));
    AX_TRY(slice_bound(vm, bounds[2], step, &has_step));
    if (!has_step) {
        *step = 1;
    }
    if (*step == 0) {
        return ax_jvm_error(vm, "the step of a slice cannot be 0");
    }
    int64_t low = *step < 0 ? -1 : 0, high = *step < 0 ? n - 1 : n;
    *start = !has_start ? (*step < 0 ? high : low) : *start < 0 ? *start + n : *start;
    stop = !has_stop ? (*step < 0 ? low : high) : stop < 0 ? stop + n : stop;
    *start = *start < low ? low : *start > high ? high : *start;
    stop = stop < low ? low : stop > high ? high : stop;
    int64_t span = *step > 0 ? stop - *start : *start - stop;
    int64_t size = *step > 0 ? *step : -*step;
    *count = span > 0 ? (span - 1) / size + 1 : 0;
    return AX_OK;
}

static enum ax_status slice_str(struct ax_jvm *vm, struct ax_jstr *s, int64_t start, int64_t step,
                                int64_t count, struct ax_jval *out) {
    out->kind = AX_JSTR;
    AX_TRY(ax_jvm_charge(vm, s->len / 64));
    if (step == 1 || count <= 1) {
        size_t from = ax_jstr_offset(s, (size_t)(count > 0 ? start : 0));
        size_t len = ax_jstr_chars(s) == s->len
                         ? (size_t)count
                         : ax_python_offset(s->data + from, s->len - from, (size_t)count);
        AX_TRY(ax_jstr_slice(&vm->arena, &out->str, s, from, from + len));
        out->str->chars = (size_t)count;
        return AX_OK;
    }
    size_t *offsets; /* of every code point, for steps in both directions */
    size_t n = ax_jstr_chars(s), p = 0;
    AX_TRY(ax_jarena_alloc(&vm->arena, &offsets, n + 1, sizeof *offsets));
    for (size_t i = 0; i < n; i++) {
        offsets[i] = p;
        ax_python_next(s->data, &p);
    }
    offsets[n] = p;
    AX_TRY(ax_jvm_charge(vm, (size_t)count));
    struct ax_jcapture c = ax_jvm_capture(vm);
    for (int64_t i = 0, at = start; i < count; i++, at += step) {
        AX_TRY(ax_jvm_put(vm, s->data + offsets[at], offsets[at + 1] - offsets[at]));
    }
    AX_TRY(ax_jvm_take(vm, c, &out->str));
    out->str->markup = s->markup;
    return AX_OK;
}

static enum ax_status slice_list(struct ax_jvm *vm, struct ax_jval of, int64_t start, int64_t step,
                                 int64_t count, struct ax_jval *out) {
    AX_TRY(ax_jvm_charge(vm, (size_t)count));
    if (step == 1) { /* lists never change: share the items */
        return ax_jlist_wrap(&vm->arena, of.kind, count > 0 ? of.list->items + start : NULL,
                             (size_t)count, out);
    }
    struct ax_jval *items;
    AX_TRY(ax_jarena_alloc(&vm->arena, &items, (size_t)count, sizeof *items));
    for (int64_t i = 0; i < count; i++) {
        items[i] = of.list->items[start + i * step];
    }
    return ax_jlist_wrap(&vm->arena, of.kind, items, (size_t)count, out);
}

static enum ax_status slice_range(struct ax_jvm *vm, const struct ax_jrange *r, int64_t start,
                                  int64_t step, int64_t count, struct ax_jval *out) {
    struct ax_jrange *part;
    AX_TRY(ax_jarena_alloc(&vm->arena, &part, 1, sizeof *part));
    part->start = r->start + start * r->step;
    part->step = r->step * (count > 1 ? step : 1);
    part->n = count;
    part->stop = part->start + count * part->step;
    *out = (struct ax_jval){.kind = AX_JRANGE, .range = part};
    return AX_OK;
}

enum ax_status ax_jval_slice(struct ax_jvm *vm, struct ax_jval of, const struct ax_jval bounds[3],
                             struct ax_jval *out) {
    if (of.kind == AX_JUNDEFINED) {
        return ax_jvm_undefined(vm, of);
    }
    if (of.kind != AX_JSTR && of.kind != AX_JLIST && of.kind != AX_JTUPLE && of.kind != AX_JRANGE) {
        return ax_jvm_error(vm, "a %s cannot be sliced", ax_jval_type(of));
    }
    size_t n;
    int64_t start, step = 1, count = 0;
    AX_TRY(ax_jval_length(vm, of, &n));
    AX_TRY(slice_indices(vm, bounds, (int64_t)n, &start, &step, &count));
    switch (of.kind) {
    case AX_JSTR:
        return slice_str(vm, of.str, start, step, count, out);
    case AX_JRANGE:
        return slice_range(vm, of.range, start, step, count, out);
    default:
        return slice_list(vm, of, start, step, count, out);
    }
}
