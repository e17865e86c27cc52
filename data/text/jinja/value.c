/* Lists, dicts, truth, equality and hashing of value.h. */
#include "data/text/jinja/value.h"

#include <math.h>
#include <string.h>

#include "base/hash/hash.h"
#include "data/text/jinja/vm.h"

const char *ax_jval_type(struct ax_jval v) {
    static const char *const names[] = {
        [AX_JMISSING] = "missing",   [AX_JUNDEFINED] = "Undefined",
        [AX_JNONE] = "NoneType",     [AX_JBOOL] = "bool",
        [AX_JINT] = "int",           [AX_JFLOAT] = "float",
        [AX_JSTR] = "str",           [AX_JLIST] = "list",
        [AX_JTUPLE] = "tuple",       [AX_JDICT] = "dict",
        [AX_JRANGE] = "range",       [AX_JVIEW] = "dict view",
        [AX_JITER] = "generator",    [AX_JNAMESPACE] = "Namespace",
        [AX_JMACRO] = "Macro",       [AX_JLOOP] = "LoopContext",
        [AX_JFUNCTION] = "function",
    };
    return names[v.kind];
}

bool ax_jval_truth(struct ax_jval v) {
    switch (v.kind) {
    case AX_JMISSING:
    case AX_JUNDEFINED:
    case AX_JNONE:
        return false;
    case AX_JBOOL:
        return v.boolean;
    case AX_JINT:
        return v.integer != 0;
    case AX_JFLOAT:
        return v.real != 0;
    case AX_JSTR:
        return v.str->len > 0;
    case AX_JLIST:
    case AX_JTUPLE:
    case AX_JVIEW:
        return v.list->n > 0;
    case AX_JDICT:
        return v.dict->n > 0;
    case AX_JRANGE:
        return v.range->n > 0;
    default:
        return true;
    }
}

size_t ax_jval_weight(struct ax_jval v) {
    return v.kind == AX_JSTR    ? 1 + v.str->len / 64
           : ax_jval_is_list(v) ? v.list->weight
           : v.kind == AX_JDICT ? v.dict->weight
                                : 1;
}

/* Adds an item's nesting and weight to its container's. The item cannot change its shape
 * afterwards. */
static enum ax_status hold(int *nest, size_t *weight, struct ax_jval inner) {
    int n = 1 + (ax_jval_is_list(inner)   ? inner.list->nest
                 : inner.kind == AX_JDICT ? inner.dict->nest
                                          : 0);
    if (n > AX_JNEST_MAX)
        return ax_error(AX_ERR_DATA, "lists and dicts nested more than %d deep", AX_JNEST_MAX);
    *nest = n > *nest ? n : *nest;
    size_t more = inner.kind == AX_JSTR ? 1 : ax_jval_weight(inner);
    if (more > AX_JWEIGHT_MAX || *weight > AX_JWEIGHT_MAX - more) {
        return ax_error(AX_ERR_DATA, "lists and dicts with more than %zu items in total",
                        AX_JWEIGHT_MAX);
    }
    *weight += more;
    return AX_OK;
}

enum ax_status ax_jlist_wrap(struct ax_jarena *a, enum ax_jkind kind, const struct ax_jval *items,
                             size_t n, struct ax_jval *out) {
    struct ax_jlist *l;
    AX_TRY(ax_jarena_alloc(a, &l, 1, sizeof *l));
    *l = (struct ax_jlist){.items = items, .n = n, .weight = 1, .nest = 1};
    for (size_t i = 0; i < n; i++)
        AX_TRY(hold(&l->nest, &l->weight, items[i]));
    *out = (struct ax_jval){.kind = kind, .list = l};
    return AX_OK;
}

enum ax_status ax_jitems_add(struct ax_jarena *a, struct ax_jitems *l, struct ax_jval v) {
    if (l->n == l->cap) {
        size_t cap = l->cap > 0 ? 2 * l->cap : 8;
        struct ax_jval *items;
        AX_TRY(ax_jarena_alloc(a, &items, cap, sizeof *items));
        if (l->n > 0)
            memcpy(items, l->items, l->n * sizeof *items);
        l->items = items;
        l->cap = cap;
    }
    l->items[l->n++] = v;
    return AX_OK;
}

enum ax_status ax_jitems_done(struct ax_jarena *a, const struct ax_jitems *l, enum ax_jkind kind,
                              struct ax_jval *out) {
    return ax_jlist_wrap(a, kind, l->items, l->n, out);
}

/* ---- dicts ---- */

/* Up to this size, a linear search is faster than hashing. */
#define LINEAR_MAX 8

enum ax_status ax_jdict_new(struct ax_jarena *a, struct ax_jdict **out) {
    AX_TRY(ax_jarena_alloc(a, out, 1, sizeof **out));
    (*out)->nest = 1;
    (*out)->weight = 1;
    return AX_OK;
}

static void index_pair(struct ax_jdict *d, size_t number) {
    uint32_t h = 0;
    ax_jval_hash(d->pairs[number].key, &h);
    size_t i = h & (d->index_size - 1);
    while (d->index[i] != 0)
        i = (i + 1) & (d->index_size - 1);
    d->index[i] = (uint32_t)number + 1;
}

static enum ax_status grow(struct ax_jarena *a, struct ax_jdict *d) {
    size_t cap = d->cap > 0 ? 2 * d->cap : 4;
    if (cap > UINT32_MAX / 4)
        return ax_error(AX_ERR_DATA, "a dict of more than %zu keys", d->n);
    struct ax_jpair *pairs;
    AX_TRY(ax_jarena_alloc(a, &pairs, cap, sizeof *pairs));
    if (d->n > 0)
        memcpy(pairs, d->pairs, d->n * sizeof *pairs);
    d->pairs = pairs;
    d->cap = cap;
    if (cap > LINEAR_MAX) {
        d->index_size = 2 * cap;
        AX_TRY(ax_jarena_alloc(a, &d->index, d->index_size, sizeof *d->index));
        for (size_t i = 0; i < d->n; i++)
            index_pair(d, i);
    }
    return AX_OK;
}

static struct ax_jpair *find_pair(const struct ax_jdict *d, struct ax_jval key) {
    if (d->index == NULL) {
        for (size_t i = 0; i < d->n; i++)
            if (ax_jval_equal(d->pairs[i].key, key))
                return &d->pairs[i];
        return NULL;
    }
    uint32_t h;
    if (!ax_jval_hash(key, &h))
        return NULL;
    for (size_t i = h & (d->index_size - 1); d->index[i] != 0; i = (i + 1) & (d->index_size - 1)) {
        struct ax_jpair *p = &d->pairs[d->index[i] - 1];
        if (ax_jval_equal(p->key, key))
            return p;
    }
    return NULL;
}

enum ax_status ax_jdict_set(struct ax_jarena *a, struct ax_jdict *d, struct ax_jval key,
                            struct ax_jval value) {
    AX_TRY(hold(&d->nest, &d->weight, key));
    AX_TRY(hold(&d->nest, &d->weight, value));
    struct ax_jpair *known = find_pair(d, key);
    if (known != NULL) {
        known->value = value;
        return AX_OK;
    }
    if (d->n == d->cap)
        AX_TRY(grow(a, d));
    d->pairs[d->n] = (struct ax_jpair){key, value};
    if (d->index != NULL)
        index_pair(d, d->n);
    d->n++;
    return AX_OK;
}

enum ax_status ax_jdict_pair(struct ax_jarena *a, const struct ax_jpair *p, struct ax_jval *out) {
    struct ax_jval *items;
    AX_TRY(ax_jarena_alloc(a, &items, 2, sizeof *items));
    items[0] = p->key;
    items[1] = p->value;
    return ax_jlist_wrap(a, AX_JTUPLE, items, 2, out);
}

const struct ax_jval *ax_jdict_get(const struct ax_jdict *d, struct ax_jval key) {
    struct ax_jpair *p = find_pair(d, key);
    return p != NULL ? &p->value : NULL;
}

const struct ax_jval *ax_jdict_get_str(const struct ax_jdict *d, struct ax_jstr *key) {
    return ax_jdict_get(d, ax_jstring(key));
}

/* ---- equality and hashing ---- */

static bool lists_equal(const struct ax_jlist *a, const struct ax_jlist *b) {
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (!ax_jval_equal(a->items[i], b->items[i]))
            return false;
    return true;
}

static bool dicts_equal(const struct ax_jdict *a, const struct ax_jdict *b) {
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        const struct ax_jval *other = ax_jdict_get(b, a->pairs[i].key);
        if (other == NULL || !ax_jval_equal(a->pairs[i].value, *other))
            return false;
    }
    return true;
}

static bool ranges_equal(const struct ax_jrange *a, const struct ax_jrange *b) {
    return a->n == b->n && (a->n == 0 || a->start == b->start) && (a->n <= 1 || a->step == b->step);
}

bool ax_jval_equal(struct ax_jval a, struct ax_jval b) {
    if (ax_jval_is_number(a) && ax_jval_is_number(b)) {
        int order;
        return ax_jnumber_compare(a, b, &order) && order == 0;
    }
    if (a.kind != b.kind)
        return false;
    switch (a.kind) {
    case AX_JUNDEFINED:
    case AX_JNONE:
        return true;
    case AX_JSTR:
        return ax_jstr_equal(a.str, b.str);
    case AX_JLIST:
    case AX_JTUPLE:
        return a.list == b.list || lists_equal(a.list, b.list);
    case AX_JDICT:
        return a.dict == b.dict || dicts_equal(a.dict, b.dict);
    case AX_JRANGE:
        return ranges_equal(a.range, b.range);
    case AX_JMISSING:
        return true;
    default:
        return a.list == b.list; /* any pointer member */
    }
}

static uint32_t mix(uint32_t h, uint32_t k) {
    return (h ^ k) * 0x9e3779b1U + (h >> 15);
}

bool ax_jval_hash(struct ax_jval v, uint32_t *hash) {
    switch (v.kind) {
    case AX_JSTR:
        *hash = ax_jstr_hash(v.str);
        return true;
    case AX_JBOOL:
    case AX_JINT:
    case AX_JFLOAT: { /* equal numbers must have equal hashes, so all are hashed as double */
        double d = ax_jnumber_to_double(v) + 0.0;
        *hash = (uint32_t)ax_hash64(&d, sizeof d, 1);
        return true;
    }
    case AX_JTUPLE:
        *hash = 2;
        for (size_t i = 0; i < v.list->n; i++) {
            uint32_t h;
            if (!ax_jval_hash(v.list->items[i], &h))
                return false;
            *hash = mix(*hash, h);
        }
        return true;
    case AX_JUNDEFINED:
    case AX_JNONE:
    case AX_JMISSING:
        *hash = (uint32_t)v.kind;
        return true;
    default:
        return false;
    }
}
