/* Filters that give iterators: nothing happens, not even an error, until somebody takes items. */
#include <string.h>

#include "data/jinja_builtin.h"
#include "data/jinja_text.h"

static enum ax_status give(struct ax_jiter *it, struct ax_jval *out) {
    *out = (struct ax_jval){.kind = AX_JITER, .iter = it};
    return AX_OK;
}

/* A generator that remembers the call it came from. */
static enum ax_status remember(struct ax_jvm *vm, const struct ax_jcall *call, const char *type,
                               enum ax_status (*next)(struct ax_jvm *, struct ax_jiter *,
                                                      struct ax_jval *, bool *),
                               struct ax_jval *out) {
    struct ax_jiter *it;
    struct ax_jcall *copy;
    AX_TRY(ax_jarena_alloc(&vm->arena, &copy, 1, sizeof *copy));
    *copy = *call;
    AX_TRY(ax_jiter_new(vm, call->self, type, next, &it));
    it->state = copy;
    return give(it, out);
}

/* ---- map ---- */

struct mapping {
    struct ax_jpath path;         /* of map(attribute=…) */
    const struct ax_jbuiltin *fn; /* of map('filter', …), or of a test */
    struct ax_jcall call;
};

/* The arguments behind the first `skip`, for an inner filter or test. */
static void inner_call(struct mapping *m, const struct ax_jcall *call, size_t skip) {
    m->call = *call;
    m->call.name = m->fn->name;
    m->call.args = call->n_args > skip ? call->args + skip : NULL;
    m->call.n_args = call->n_args - skip;
}

static enum ax_status start_map(struct ax_jvm *vm, const struct ax_jcall *call,
                                struct mapping **out) {
    struct mapping *m;
    AX_TRY(ax_jarena_alloc(&vm->arena, &m, 1, sizeof *m));
    *out = m;
    bool has_attribute = false;
    for (size_t i = 0; i < call->n_kwargs; i++) {
        has_attribute = has_attribute || ax_jstr_is(call->kwargs[i].key, "attribute");
    }
    if (call->n_args == 0 && has_attribute) {
        static const char *const params[] = {"attribute", "default"};
        struct ax_jval v[2];
        AX_TRY(ax_jcall_bind(vm, call, params, 2, 1, v));
        AX_TRY(ax_jpath_make(vm, v[0], &m->path));
        m->path.otherwise = v[1].kind == AX_JNONE ? (struct ax_jval){.kind = AX_JMISSING} : v[1];
        return AX_OK;
    }
    if (call->n_args == 0) {
        return ax_jvm_error(vm, "map needs the name of a filter or attribute=");
    }
    m->fn = call->args[0].kind == AX_JSTR ? ax_jfilter_find(call->args[0].str) : NULL;
    if (m->fn == NULL) {
        return ax_jvm_error(vm, "map: there is no such filter");
    }
    inner_call(m, call, 1);
    return AX_OK;
}

static enum ax_status next_mapped(struct ax_jvm *vm, struct ax_jiter *it, struct ax_jval *out,
                                  bool *more) {
    if (!it->started) {
        struct mapping *m;
        *more = ax_jval_truth(it->source); /* none and undefined are empty */
        if (!*more) {
            return AX_OK;
        }
        it->started = true;
        AX_TRY(start_map(vm, it->state, &m));
        it->state = m;
        AX_TRY(ax_jval_iterate(vm, it->source, &it->inner));
    }
    struct mapping *m = it->state;
    struct ax_jval item;
    AX_TRY(ax_jiter_next(vm, it->inner, &item, more));
    if (!*more) {
        return AX_OK;
    }
    if (m->fn == NULL) {
        return ax_jpath_get(vm, &m->path, item, out);
    }
    m->call.self = item;
    return m->fn->run(vm, &m->call, out);
}

static enum ax_status filter_map(struct ax_jvm *vm, const struct ax_jcall *call,
                                 struct ax_jval *out) {
    return remember(vm, call, "generator", next_mapped, out);
}

/* ---- select and reject ---- */

struct selecting {
    struct mapping test; /* fn NULL: truth of the item */
    bool by_attribute, reject;
};

static enum ax_status start_select(struct ax_jvm *vm, const struct ax_jcall *call,
                                   struct selecting **out) {
    struct selecting *s;
    AX_TRY(ax_jarena_alloc(&vm->arena, &s, 1, sizeof *s));
    *out = s;
    s->by_attribute = strstr(call->name, "attr") != NULL;
    s->reject = call->name[0] == 'r';
    size_t skip = s->by_attribute;
    if (call->n_args < skip) {
        return ax_jvm_error(vm, "%s needs the name of an attribute", call->name);
    }
    if (s->by_attribute) {
        AX_TRY(ax_jpath_make(vm, call->args[0], &s->test.path));
    }
    if (call->n_args > skip) {
        struct ax_jval name = call->args[skip];
        s->test.fn = name.kind == AX_JSTR ? ax_jtest_find(name.str) : NULL;
        if (s->test.fn == NULL) {
            return ax_jvm_error(vm, "%s: there is no such test", call->name);
        }
        inner_call(&s->test, call, skip + 1);
    }
    return AX_OK;
}

static enum ax_status next_selected(struct ax_jvm *vm, struct ax_jiter *it, struct ax_jval *out,
                                    bool *more) {
    if (!it->started) {
        struct selecting *s;
        *more = ax_jval_truth(it->source);
        if (!*more) {
            return AX_OK;
        }
        it->started = true;
        AX_TRY(start_select(vm, it->state, &s));
        it->state = s;
        AX_TRY(ax_jval_iterate(vm, it->source, &it->inner));
    }
    struct selecting *s = it->state;
    for (;;) {
        struct ax_jval v;
        AX_TRY(ax_jiter_next(vm, it->inner, out, more));
        if (!*more) {
            return AX_OK;
        }
        v = *out;
        if (s->by_attribute) {
            AX_TRY(ax_jpath_get(vm, &s->test.path, *out, &v));
        }
        if (s->test.fn != NULL) {
            s->test.call.self = v;
            AX_TRY(s->test.fn->run(vm, &s->test.call, &v));
        }
        if (ax_jval_truth(v) != s->reject) {
            return AX_OK;
        }
    }
}

static enum ax_status filter_select(struct ax_jvm *vm, const struct ax_jcall *call,
                                    struct ax_jval *out) {
    return remember(vm, call, "generator", next_selected, out);
}

/* ---- items, unique, batch, slice ---- */

static enum ax_status next_pair(struct ax_jvm *vm, struct ax_jiter *it, struct ax_jval *out,
                                bool *more) {
    if (!it->started) {
        it->started = true;
        if (it->source.kind == AX_JUNDEFINED) {
            *more = false;
            return AX_OK;
        }
        if (it->source.kind != AX_JDICT) {
            return ax_jvm_error(vm, "items needs a dict, not a %s", ax_jval_type(it->source));
        }
        struct ax_jview *view;
        AX_TRY(ax_jarena_alloc(&vm->arena, &view, 1, sizeof *view));
        *view = (struct ax_jview){AX_JITEMS, it->source.dict};
        AX_TRY(ax_jval_iterate(vm, (struct ax_jval){.kind = AX_JVIEW, .view = view}, &it->inner));
    }
    return ax_jiter_next(vm, it->inner, out, more);
}

static enum ax_status filter_items(struct ax_jvm *vm, const struct ax_jcall *call,
                                   struct ax_jval *out) {
    AX_TRY(ax_jcall_count(vm, call, 0, 0));
    return remember(vm, call, "generator", next_pair, out);
}

struct unique_state {
    struct ax_jpath path;
    struct ax_jdict *seen;
};

static enum ax_status next_unique(struct ax_jvm *vm, struct ax_jiter *it, struct ax_jval *out,
                                  bool *more) {
    struct unique_state *s = it->state;
    if (!it->started) {
        it->started = true;
        AX_TRY(ax_jval_iterate(vm, it->source, &it->inner));
    }
    for (;;) {
        struct ax_jval key;
        uint32_t h;
        AX_TRY(ax_jiter_next(vm, it->inner, out, more));
        if (!*more) {
            return AX_OK;
        }
        AX_TRY(ax_jpath_get(vm, &s->path, *out, &key));
        AX_TRY(ax_jvm_charge(vm, ax_jval_weight(key)));
        if (!ax_jval_hash(key, &h)) {
            return ax_jvm_error(vm, "unique: a %s cannot be compared", ax_jval_type(key));
        }
        if (ax_jdict_get(s->seen, key) == NULL) {
            return ax_jdict_set(&vm->arena, s->seen, key, ax_jbool(true));
        }
    }
}

static enum ax_status filter_unique(struct ax_jvm *vm, const struct ax_jcall *call,
                                    struct ax_jval *out) {
    static const char *const params[] = {"case_sensitive", "attribute"};
    struct ax_jval v[2];
    struct unique_state *s;
    AX_TRY(ax_jcall_bind(vm, call, params, 2, 0, v));
    AX_TRY(ax_jarena_alloc(&vm->arena, &s, 1, sizeof *s));
    AX_TRY(ax_jpath_make(vm, v[1], &s->path));
    s->path.fold = !ax_jarg_truth(v[0], false);
    AX_TRY(ax_jdict_new(&vm->arena, &s->seen));
    AX_TRY(remember(vm, call, "generator", next_unique, out));
    out->iter->state = s;
    return AX_OK;
}

struct chunk_state {
    int64_t size; /* items of a batch, or number of slices */
    struct ax_jval fill;
    struct ax_jval held;    /* batch of size 0: the item that came before the empty batch */
    struct ax_jitems items; /* slice: all of them */
};

static enum ax_status next_batch(struct ax_jvm *vm, struct ax_jiter *it, struct ax_jval *out,
                                 bool *more) {
    struct chunk_state *s = it->state;
    struct ax_jitems batch = {0};
    struct ax_jval item;
    if (!it->started) {
        it->started = true;
        AX_TRY(ax_jval_iterate(vm, it->source, &it->inner));
    }
    if (s->size == 0 && it->pos++ == 0) { /* Jinja's first batch is full at once, the next never */
        AX_TRY(ax_jiter_next(vm, it->inner, &s->held, more));
        return *more ? ax_jitems_done(&vm->arena, &batch, AX_JLIST, out) : AX_OK;
    }
    if (s->held.kind != AX_JMISSING) {
        AX_TRY(ax_jitems_add(&vm->arena, &batch, s->held));
        s->held.kind = AX_JMISSING;
    }
    for (*more = true; *more && (s->size <= 0 || (int64_t)batch.n < s->size);) {
        AX_TRY(ax_jiter_next(vm, it->inner, &item, more));
        if (*more) {
            AX_TRY(ax_jitems_add(&vm->arena, &batch, item));
        }
    }
    *more = batch.n > 0;
    while (*more && s->fill.kind != AX_JMISSING && (int64_t)batch.n < s->size) {
        AX_TRY(ax_jvm_charge(vm, 1));
        AX_TRY(ax_jitems_add(&vm->arena, &batch, s->fill));
    }
    return *more ? ax_jitems_done(&vm->arena, &batch, AX_JLIST, out) : AX_OK;
}

static enum ax_status next_slice(struct ax_jvm *vm, struct ax_jiter *it, struct ax_jval *out,
                                 bool *more) {
    struct chunk_state *s = it->state;
    if (!it->started) {
        it->started = true;
        AX_TRY(ax_jval_items(vm, it->source, &s->items));
        if (s->size == 0) {
            return ax_jvm_error(vm, "slice: division by zero");
        }
    }
    int64_t number = (int64_t)it->pos++, n = (int64_t)s->items.n;
    *more = number < s->size;
    if (!*more) {
        return AX_OK;
    }
    int64_t each = n / s->size, extra = n % s->size;
    int64_t start = number * each + (number < extra ? number : extra);
    int64_t count = each + (number < extra);
    struct ax_jitems part = {0};
    for (int64_t i = 0; i < count; i++) {
        AX_TRY(ax_jitems_add(&vm->arena, &part, s->items.items[start + i]));
    }
    if (s->fill.kind != AX_JMISSING && number >= extra) {
        AX_TRY(ax_jitems_add(&vm->arena, &part, s->fill));
    }
    return ax_jitems_done(&vm->arena, &part, AX_JLIST, out);
}

static enum ax_status chunked(struct ax_jvm *vm, const struct ax_jcall *call, const char *size,
                              enum ax_status (*next)(struct ax_jvm *, struct ax_jiter *,
                                                     struct ax_jval *, bool *),
                              struct ax_jval *out) {
    const char *const params[] = {size, "fill_with"};
    struct ax_jval v[2];
    struct chunk_state *s;
    AX_TRY(ax_jcall_bind(vm, call, params, 2, 1, v));
    AX_TRY(ax_jarena_alloc(&vm->arena, &s, 1, sizeof *s));
    AX_TRY(ax_jarg_int(vm, call, size, v[0], &s->size));
    s->fill = v[1].kind == AX_JNONE ? (struct ax_jval){.kind = AX_JMISSING} : v[1];
    AX_TRY(remember(vm, call, "generator", next, out));
    out->iter->state = s;
    return AX_OK;
}

static enum ax_status filter_batch(struct ax_jvm *vm, const struct ax_jcall *call,
                                   struct ax_jval *out) {
    return chunked(vm, call, "linecount", next_batch, out);
}

static enum ax_status filter_slice(struct ax_jvm *vm, const struct ax_jcall *call,
                                   struct ax_jval *out) {
    return chunked(vm, call, "slices", next_slice, out);
}

/* ---- reverse ---- */

static enum ax_status filter_reverse(struct ax_jvm *vm, const struct ax_jcall *call,
                                     struct ax_jval *out) {
    AX_TRY(ax_jcall_count(vm, call, 0, 0));
    if (call->self.kind == AX_JSTR) {
        const struct ax_jval backwards[3] = {
            {.kind = AX_JMISSING}, {.kind = AX_JMISSING}, ax_jint(-1)};
        return ax_jval_slice(vm, call->self, backwards, out);
    }
    struct ax_jitems items;
    struct ax_jiter *it;
    AX_TRY(ax_jval_items(vm, call->self, &items));
    for (size_t i = 0, k = items.n; i + 1 < k; i++) {
        struct ax_jval v = items.items[i];
        items.items[i] = items.items[--k];
        items.items[k] = v;
    }
    AX_TRY(ax_jitems_done(&vm->arena, &items, AX_JLIST, out));
    if (call->self.kind == AX_JITER || call->self.kind == AX_JLOOP) {
        return AX_OK; /* what Python cannot reverse becomes a list first, and stays one */
    }
    AX_TRY(ax_jval_iterate(vm, *out, &it));
    it->type = "reversed";
    return give(it, out);
}

const struct ax_jbuiltin ax_jfilters_lazy[] = {
    {"items", filter_items},
    {"map", filter_map},
    {"select", filter_select},
    {"reject", filter_select},
    {"selectattr", filter_select},
    {"rejectattr", filter_select},
    {"unique", filter_unique},
    {"reverse", filter_reverse},
    {"batch", filter_batch},
    {"slice", filter_slice},
    {NULL, NULL},
};
