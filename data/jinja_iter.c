/* Iteration: iterators over every iterable value, and `loop`. */
#include <string.h>

#include "data/jinja_builtin.h"
#include "data/jinja_unicode.h"

bool ax_jval_is_iterable(struct ax_jval v) {
    switch (v.kind) {
    case AX_JUNDEFINED:
    case AX_JSTR:
    case AX_JLIST:
    case AX_JTUPLE:
    case AX_JDICT:
    case AX_JRANGE:
    case AX_JVIEW:
    case AX_JITER:
    case AX_JLOOP:
        return true;
    default:
        return false;
    }
}

enum ax_status ax_jiter_new(struct ax_jvm *vm, struct ax_jval source, const char *type,
                            enum ax_status (*next)(struct ax_jvm *, struct ax_jiter *,
                                                   struct ax_jval *, bool *),
                            struct ax_jiter **out) {
    struct ax_jiter *it;
    AX_TRY(ax_jarena_alloc(&vm->arena, &it, 1, sizeof *it));
    it->next = next;
    it->type = type;
    it->source = source;
    *out = it;
    return AX_OK;
}

enum ax_status ax_jiter_next(struct ax_jvm *vm, struct ax_jiter *it, struct ax_jval *out,
                             bool *more) {
    *more = false;
    if (it->ended) {
        return AX_OK;
    }
    AX_TRY(ax_jvm_enter(vm)); /* generators call each other */
    *more = true;
    AX_TRY(it->next(vm, it, out, more));
    vm->depth--;
    it->ended = !*more;
    return AX_OK;
}

/* ---- one next function for each kind of value ---- */

static enum ax_status next_item(struct ax_jvm *vm, struct ax_jiter *it, struct ax_jval *out,
                                bool *more) {
    (void)vm;
    *more = it->pos < it->source.list->n;
    if (*more) {
        *out = it->source.list->items[it->pos++];
    }
    return AX_OK;
}

static enum ax_status next_char(struct ax_jvm *vm, struct ax_jiter *it, struct ax_jval *out,
                                bool *more) {
    const struct ax_jstr *s = it->source.str;
    *more = it->pos < s->len;
    if (*more) {
        size_t start = it->pos;
        ax_python_next(s->data, &it->pos);
        out->kind = AX_JSTR;
        AX_TRY(ax_jstr_borrow(&vm->arena, &out->str, s->data + start, it->pos - start));
        out->str->chars = 1;
    }
    return AX_OK;
}

static enum ax_status next_in_range(struct ax_jvm *vm, struct ax_jiter *it, struct ax_jval *out,
                                    bool *more) {
    (void)vm;
    const struct ax_jrange *r = it->source.range;
    *more = (int64_t)it->pos < r->n;
    if (*more) {
        *out = ax_jint(r->start + (int64_t)it->pos++ * r->step);
    }
    return AX_OK;
}

static enum ax_status make_pair(struct ax_jvm *vm, const struct ax_jpair *p, struct ax_jval *out) {
    struct ax_jval *items;
    AX_TRY(ax_jarena_alloc(&vm->arena, &items, 2, sizeof *items));
    items[0] = p->key;
    items[1] = p->value;
    return ax_jlist_wrap(&vm->arena, AX_JTUPLE, items, 2, out);
}

static enum ax_status next_in_view(struct ax_jvm *vm, struct ax_jiter *it, struct ax_jval *out,
                                   bool *more) {
    const struct ax_jview *view = it->source.view;
    *more = it->pos < view->dict->n;
    if (!*more) {
        return AX_OK;
    }
    const struct ax_jpair *p = &view->dict->pairs[it->pos++];
    if (view->kind == AX_JITEMS) {
        return make_pair(vm, p, out);
    }
    *out = view->kind == AX_JKEYS ? p->key : p->value;
    return AX_OK;
}

static enum ax_status next_key(struct ax_jvm *vm, struct ax_jiter *it, struct ax_jval *out,
                               bool *more) {
    (void)vm;
    *more = it->pos < it->source.dict->n;
    if (*more) {
        *out = it->source.dict->pairs[it->pos++].key;
    }
    return AX_OK;
}

/* iter(loop) is the loop itself: pairs of the item and the loop. */
static enum ax_status next_of_loop(struct ax_jvm *vm, struct ax_jiter *it, struct ax_jval *out,
                                   bool *more) {
    struct ax_jval item;
    AX_TRY(ax_jloop_next(vm, it->source.loop, &item, more));
    return *more ? make_pair(vm, &(struct ax_jpair){item, it->source}, out) : AX_OK;
}

static enum ax_status next_nothing(struct ax_jvm *vm, struct ax_jiter *it, struct ax_jval *out,
                                   bool *more) {
    (void)vm;
    (void)it;
    (void)out;
    *more = false;
    return AX_OK;
}

enum ax_status ax_jval_iterate(struct ax_jvm *vm, struct ax_jval v, struct ax_jiter **out) {
    switch (v.kind) {
    case AX_JITER:
        *out = v.iter;
        return AX_OK;
    case AX_JLIST:
        return ax_jiter_new(vm, v, "list_iterator", next_item, out);
    case AX_JTUPLE:
        return ax_jiter_new(vm, v, "tuple_iterator", next_item, out);
    case AX_JSTR:
        return ax_jiter_new(vm, v, "str_iterator", next_char, out);
    case AX_JDICT:
        return ax_jiter_new(vm, v, "dict_keyiterator", next_key, out);
    case AX_JVIEW:
        return ax_jiter_new(vm, v, "dict_itemiterator", next_in_view, out);
    case AX_JRANGE:
        return ax_jiter_new(vm, v, "range_iterator", next_in_range, out);
    case AX_JLOOP:
        return ax_jiter_new(vm, v, "LoopContext", next_of_loop, out);
    case AX_JUNDEFINED:
        return ax_jiter_new(vm, v, "generator", next_nothing, out);
    default:
        return ax_jvm_error(vm, "a %s cannot be iterated over", ax_jval_type(v));
    }
}

enum ax_status ax_jval_items(struct ax_jvm *vm, struct ax_jval v, struct ax_jitems *out) {
    *out = (struct ax_jitems){0};
    return ax_jval_add_items(vm, v, out);
}

enum ax_status ax_jval_add_items(struct ax_jvm *vm, struct ax_jval v, struct ax_jitems *out) {
    struct ax_jiter *it;
    AX_TRY(ax_jval_iterate(vm, v, &it));
    for (;;) {
        struct ax_jval item;
        bool more;
        AX_TRY(ax_jiter_next(vm, it, &item, &more));
        if (!more) {
            return AX_OK;
        }
        AX_TRY(ax_jitems_add(&vm->arena, out, item));
    }
}

/* ---- loop ---- */

static enum ax_status peek(struct ax_jvm *vm, struct ax_jloop *l) {
    if (l->after.kind != AX_JMISSING) {
        return AX_OK;
    }
    bool more;
    AX_TRY(ax_jiter_next(vm, l->iter, &l->after, &more));
    if (!more) {
        l->after.kind = AX_JMISSING;
    }
    return AX_OK;
}

enum ax_status ax_jloop_next(struct ax_jvm *vm, struct ax_jloop *l, struct ax_jval *out,
                             bool *more) {
    *more = true;
    if (l->after.kind != AX_JMISSING) {
        *out = l->after;
        l->after.kind = AX_JMISSING;
    } else {
        AX_TRY(ax_jiter_next(vm, l->iter, out, more));
    }
    if (*more) {
        l->index0++;
        l->before = l->current;
        l->current = *out;
    }
    return AX_OK;
}

enum ax_status ax_jloop_length(struct ax_jvm *vm, struct ax_jloop *l, int64_t *out) {
    if (l->length < 0 && ax_jval_has_length(l->source)) {
        size_t n;
        AX_TRY(ax_jval_length(vm, l->source, &n));
        l->length = (int64_t)n;
    } else if (l->length < 0) { /* a generator: run it to its end and iterate over what came */
        struct ax_jitems rest;
        struct ax_jval list;
        AX_TRY(ax_jval_items(vm, (struct ax_jval){.kind = AX_JITER, .iter = l->iter}, &rest));
        AX_TRY(ax_jitems_done(&vm->arena, &rest, AX_JLIST, &list));
        AX_TRY(ax_jval_iterate(vm, list, &l->iter));
        l->length = (int64_t)rest.n + l->index0 + 1 + (l->after.kind != AX_JMISSING);
    }
    *out = l->length;
    return AX_OK;
}

enum ax_status ax_jloop_get(struct ax_jvm *vm, struct ax_jloop *l, const struct ax_jstr *name,
                            struct ax_jval *out, bool *known) {
    int64_t length;
    *known = true;
    if (ax_jstr_is(name, "index0")) {
        *out = ax_jint(l->index0);
    } else if (ax_jstr_is(name, "index")) {
        *out = ax_jint(l->index0 + 1);
    } else if (ax_jstr_is(name, "first")) {
        *out = ax_jbool(l->index0 == 0);
    } else if (ax_jstr_is(name, "last")) {
        AX_TRY(peek(vm, l));
        *out = ax_jbool(l->after.kind == AX_JMISSING);
    } else if (ax_jstr_is(name, "length")) {
        AX_TRY(ax_jloop_length(vm, l, &length));
        *out = ax_jint(length);
    } else if (ax_jstr_is(name, "revindex")) {
        AX_TRY(ax_jloop_length(vm, l, &length));
        *out = ax_jint(length - l->index0);
    } else if (ax_jstr_is(name, "revindex0")) {
        AX_TRY(ax_jloop_length(vm, l, &length));
        *out = ax_jint(length - l->index0 - 1);
    } else if (ax_jstr_is(name, "depth")) {
        *out = ax_jint(l->depth0 + 1);
    } else if (ax_jstr_is(name, "depth0")) {
        *out = ax_jint(l->depth0);
    } else if (ax_jstr_is(name, "previtem")) {
        if (l->index0 == 0) {
            return ax_jval_make_undefined(vm, "there is no previous item", NULL, NULL, out);
        }
        *out = l->before;
    } else if (ax_jstr_is(name, "nextitem")) {
        AX_TRY(peek(vm, l));
        if (l->after.kind == AX_JMISSING) {
            return ax_jval_make_undefined(vm, "there is no next item", NULL, NULL, out);
        }
        *out = l->after;
    } else {
        *known = false;
    }
    return AX_OK;
}
