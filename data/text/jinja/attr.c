/* x.name, x[key] and x[a:b:c] under the rules of Jinja's immutable sandbox.
 *
 * x.name looks for a method or attribute of the type first, then for a key; x[key] the other way
 * round. Names that mutate a list or dict or begin with two underscores are undefined, with a
 * specific message. */
#include <string.h>

#include "data/text/jinja/builtin.h"
#include "data/text/jinja/unicode.h"

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

/* Methods that would change the object, and the attributes that every Python object has. */
static bool is_unsafe(struct ax_jval of, const struct ax_jstr *name) {
    static const char *const mutators[] = {"append",     "clear",  "extend",  "insert",
                                           "pop",        "remove", "reverse", "sort",
                                           "setdefault", "update", "popitem"};
    if (name->len > 4 && memcmp(name->data, "__", 2) == 0)
        return true;
    for (size_t i = 0; i < sizeof mutators / sizeof mutators[0]; i++) {
        const bool of_dict = i > 7 || i == 1 || i == 4, of_list = i < 8;
        if (ax_jstr_is(name, mutators[i]))
            return (of.kind == AX_JDICT && of_dict) || (of.kind == AX_JLIST && of_list);
    }
    return false;
}

/* getattr(of, name) of Python: *known = false for an AttributeError. */
static enum ax_status attribute(struct ax_jvm *vm, struct ax_jval of, struct ax_jstr *name,
                                struct ax_jval *out, bool *known) {
    *known = true;
    if (of.kind == AX_JNAMESPACE) {
        const struct ax_jval *v = ax_jdict_get_str(of.dict, name);
        *known = v != NULL;
        if (v != NULL)
            *out = *v;
        return AX_OK;
    }
    if (is_unsafe(of, name)) {
        return ax_jval_make_undefined(vm,
                                      "the sandbox does not allow changing lists and dicts or "
                                      "looking inside objects",
                                      NULL, NULL, out);
    }
    const struct ax_jbuiltin *method = ax_jmethod_find(of.kind, name);
    if (method != NULL) {
        struct ax_jfunction *fn;
        AX_TRY(ax_jarena_alloc(&vm->arena, &fn, 1, sizeof *fn));
        *fn = (struct ax_jfunction){method, of};
        *out = (struct ax_jval){.kind = AX_JFUNCTION, .function = fn};
        return AX_OK;
    }
    if (ax_junsupported(ax_jval_type(of), name)) {
        return ax_jvm_error(vm, "'%.*s' of a %s is not supported", (int)name->len, name->data,
                            ax_jval_type(of));
    }
    if (of.kind == AX_JLOOP)
        return ax_jloop_get(vm, of.loop, name, out, known);
    *known = false;
    return AX_OK;
}

/* Byte offset of code point n. */
static size_t offset_of_char(struct ax_jstr *s, size_t n) {
    if (n == 0 || n >= ax_jstr_chars(s))
        return n == 0 ? 0 : s->len;
    if (s->chars == s->len)
        return n;
    return ax_python_offset(s->data, s->len, n);
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
    if (i < 0 || i >= n)
        return AX_OK;
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
    size_t start = offset_of_char(of.str, (size_t)i), end = start;
    ax_python_next(of.str->data, &end);
    out->kind = AX_JSTR;
    return ax_jstr_slice(&vm->arena, &out->str, of.str, start, end);
}

enum ax_status ax_jval_getattr(struct ax_jvm *vm, struct ax_jval of, struct ax_jstr *name,
                               struct ax_jval *out) {
    if (of.kind == AX_JUNDEFINED)
        return ax_jvm_undefined(vm, of);
    bool known;
    AX_TRY(attribute(vm, of, name, out, &known));
    if (!known)
        AX_TRY(item(vm, of, ax_jstring(name), out, &known));
    return known ? AX_OK : ax_jval_make_undefined(vm, NULL, name, ax_jval_type(of), out);
}

enum ax_status ax_jval_getitem(struct ax_jvm *vm, struct ax_jval of, struct ax_jval key,
                               struct ax_jval *out) {
    if (of.kind == AX_JUNDEFINED)
        return ax_jvm_undefined(vm, of);
    bool known;
    AX_TRY(item(vm, of, key, out, &known));
    if (!known && key.kind == AX_JSTR)
        AX_TRY(attribute(vm, of, key.str, out, &known));
    return known ? AX_OK
                 : ax_jval_make_undefined(vm, NULL, key.kind == AX_JSTR ? key.str : NULL,
                                          ax_jval_type(of), out);
}

/* ---- slices ---- */

/* A bound as an int that fits, clamped; *given = false when open. */
static enum ax_status slice_bound(struct ax_jvm *vm, struct ax_jval v, int64_t *out, bool *given) {
    *given = v.kind != AX_JMISSING && v.kind != AX_JNONE;
    if (!*given)
        return AX_OK;
    if (!ax_jval_is_int(v))
        return ax_jvm_error(vm, "a slice needs integers, not a %s", ax_jval_type(v));
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
    if (!has_step)
        *step = 1;
    if (*step == 0)
        return ax_jvm_error(vm, "the step of a slice cannot be 0");
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
        size_t from = offset_of_char(s, (size_t)(count > 0 ? start : 0));
        size_t len = ax_jstr_chars(s) == s->len
                         ? (size_t)count
                         : ax_python_offset(s->data + from, s->len - from, (size_t)count);
        AX_TRY(ax_jstr_slice(&vm->arena, &out->str, s, from, from + len));
        out->str->chars = (size_t)count;
        return AX_OK;
    }
    size_t *offsets; /* of every code point, because steps go in both directions */
    size_t n = ax_jstr_chars(s), p = 0;
    AX_TRY(ax_jarena_alloc(&vm->arena, &offsets, n + 1, sizeof *offsets));
    for (size_t i = 0; i < n; i++) {
        offsets[i] = p;
        ax_python_next(s->data, &p);
    }
    offsets[n] = p;
    AX_TRY(ax_jvm_charge(vm, (size_t)count));
    struct ax_jcapture c = ax_jvm_capture(vm);
    for (int64_t i = 0, at = start; i < count; i++, at += step)
        AX_TRY(ax_jvm_put(vm, s->data + offsets[at], offsets[at + 1] - offsets[at]));
    AX_TRY(ax_jvm_take(vm, c, &out->str));
    out->str->safe = s->safe;
    return AX_OK;
}

static enum ax_status slice_list(struct ax_jvm *vm, struct ax_jval of, int64_t start, int64_t step,
                                 int64_t count, struct ax_jval *out) {
    AX_TRY(ax_jvm_charge(vm, (size_t)count));
    if (step == 1) { /* lists never change, so the result shares the items */
        return ax_jlist_wrap(&vm->arena, of.kind, count > 0 ? of.list->items + start : NULL,
                             (size_t)count, out);
    }
    struct ax_jval *items;
    AX_TRY(ax_jarena_alloc(&vm->arena, &items, (size_t)count, sizeof *items));
    for (int64_t i = 0; i < count; i++)
        items[i] = of.list->items[start + i * step];
    return ax_jlist_wrap(&vm->arena, of.kind, items, (size_t)count, out);
}

enum ax_status ax_jval_slice(struct ax_jvm *vm, struct ax_jval of, const struct ax_jval bounds[3],
                             struct ax_jval *out) {
    if (of.kind == AX_JUNDEFINED)
        return ax_jvm_undefined(vm, of);
    if (of.kind != AX_JSTR && of.kind != AX_JLIST && of.kind != AX_JTUPLE)
        return ax_jvm_error(vm, "a %s cannot be sliced", ax_jval_type(of));
    size_t n;
    int64_t start, step = 1, count = 0;
    AX_TRY(ax_jval_length(vm, of, &n));
    AX_TRY(slice_indices(vm, bounds, (int64_t)n, &start, &step, &count));
    return of.kind == AX_JSTR ? slice_str(vm, of.str, start, step, count, out)
                              : slice_list(vm, of, start, step, count, out);
}
