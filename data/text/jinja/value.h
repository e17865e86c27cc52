/* Values of the Jinja interpreter: Python's types as templates see them.
 *
 * A value is a small tagged union passed by copy. What it points to is in the arena of the render
 * (or of the template, for constants) or borrowed from the caller's JSON. Lists, tuples, dicts and
 * strings are immutable (the sandbox forbids mutation), so they are shared freely. Only namespaces,
 * loops and iterators have state. */
#ifndef AX_DATA_TEXT_JINJA_VALUE_H
#define AX_DATA_TEXT_JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/text/jinja/arena.h"

struct ax_jvm;
struct ax_jnode;
struct ax_jscope;

enum ax_jkind {
    AX_JMISSING, /* variable without a value, argument not given; filters never see it */
    AX_JUNDEFINED,
    AX_JNONE,
    AX_JBOOL,
    AX_JINT, /* 64 bits; overflow is an error */
    AX_JFLOAT,
    AX_JSTR,
    AX_JLIST,
    AX_JTUPLE,
    AX_JVIEW, /* dict.keys(), values(), items() */
    AX_JITER, /* result of a lazy filter: no length, items can be read once */
    AX_JDICT,
    AX_JRANGE,
    AX_JNAMESPACE,
    AX_JMACRO,
    AX_JLOOP,
    AX_JFUNCTION /* a global function or a bound method */
};

struct ax_jval {
    enum ax_jkind kind;
    union {
        bool boolean;
        int64_t integer;
        double real;
        struct ax_jstr *str;
        struct ax_jlist *list;         /* lists, tuples, views and iterators */
        struct ax_jdict *dict;         /* dicts and namespaces */
        const struct ax_jundef *undef; /* what was missing; may be NULL */
        const struct ax_jrange *range;
        const struct ax_jmacro *macro;
        const struct ax_jfunction *function;
        struct ax_jloop *loop;
    };
};

#define AX_JUNCOUNTED SIZE_MAX

/* UTF-8 text, not NUL-terminated. Created by ax_jstr_* below. */
struct ax_jstr {
    const char *data;
    size_t len;
    size_t chars;          /* code points, or AX_JUNCOUNTED; use ax_jstr_chars */
    struct ax_jtail *tail; /* free space after the text, or NULL */
    uint32_t hash;         /* 0 = not yet computed */
    bool safe;             /* result of the filter `safe`: Jinja escapes what is appended to it */
};

/* Free space after a concatenation: the string that ends at `used` may append in place, which makes
 * `ns.text = ns.text + piece` linear. Earlier strings still see their own prefix. */
struct ax_jtail {
    size_t used, cap;
};

/* Limits on the nesting of lists and dicts and on their total items, counting shared parts as often
 * as they appear, so that recursive walks terminate. */
#define AX_JNEST_MAX   1000
#define AX_JWEIGHT_MAX ((size_t)16 << 20)

struct ax_jlist {
    const struct ax_jval *items;
    size_t n;
    size_t weight;    /* total items */
    int nest;         /* 1 + nesting of the deepest item */
    const char *type; /* Python's name of a view or iterator */
};

struct ax_jpair {
    struct ax_jval key, value;
};

struct ax_jdict {
    struct ax_jpair *pairs; /* in insertion order */
    size_t n, cap;
    uint32_t *index; /* open addressing, pair index + 1; NULL while n is small */
    size_t index_size;
    size_t weight; /* as in ax_jlist */
    int nest;
};

struct ax_jrange {
    int64_t start, stop, step, n;
};

/* Why a value is undefined, for the message when it is used. */
struct ax_jundef {
    const char *hint;           /* the full message; NULL: built from the rest */
    const struct ax_jstr *name; /* variable or attribute; NULL for other keys */
    const char *owner;          /* type without the attribute; NULL for a variable */
};

struct ax_jmacro {
    const struct ax_jnode *node; /* macro or generation block */
    struct ax_jscope *closure;
};

static inline struct ax_jval ax_jnone(void) {
    return (struct ax_jval){.kind = AX_JNONE};
}

static inline struct ax_jval ax_jbool(bool b) {
    return (struct ax_jval){.kind = AX_JBOOL, .boolean = b};
}

static inline struct ax_jval ax_jint(int64_t i) {
    return (struct ax_jval){.kind = AX_JINT, .integer = i};
}

static inline struct ax_jval ax_jreal(double d) {
    return (struct ax_jval){.kind = AX_JFLOAT, .real = d};
}

static inline struct ax_jval ax_jstring(struct ax_jstr *s) {
    return (struct ax_jval){.kind = AX_JSTR, .str = s};
}

/* Python's name of the type ("NoneType"), for messages. */
const char *ax_jval_type(struct ax_jval v);
bool ax_jval_truth(struct ax_jval v);
/* Cost of walking the value: total items, of which a text is one; of a text its bytes / 64. */
size_t ax_jval_weight(struct ax_jval v);
static inline bool ax_jval_is_number(struct ax_jval v) {
    return v.kind >= AX_JBOOL && v.kind <= AX_JFLOAT;
}
/* int, or bool as 0 and 1. */
static inline bool ax_jval_is_int(struct ax_jval v) {
    return v.kind == AX_JINT || v.kind == AX_JBOOL;
}
static inline int64_t ax_jval_int(struct ax_jval v) {
    return v.kind == AX_JBOOL ? (int64_t)v.boolean : v.integer;
}

/* ---- strings ---- */

/* A string over `data`, which must outlive the arena. */
enum ax_status ax_jstr_borrow(struct ax_jarena *a, struct ax_jstr **out, const char *data,
                              size_t len);
enum ax_status ax_jstr_copy(struct ax_jarena *a, struct ax_jstr **out, const char *data,
                            size_t len);
/* left + right, in place if left ends at its tail. */
enum ax_status ax_jstr_concat(struct ax_jarena *a, struct ax_jstr **out, const struct ax_jstr *left,
                              const struct ax_jstr *right);
/* Bytes [start, end) of s, shared, with the flag `safe`. */
enum ax_status ax_jstr_slice(struct ax_jarena *a, struct ax_jstr **out, const struct ax_jstr *s,
                             size_t start, size_t end);
size_t ax_jstr_chars(struct ax_jstr *s);
uint32_t ax_jstr_hash(struct ax_jstr *s);
bool ax_jstr_equal(const struct ax_jstr *a, const struct ax_jstr *b);
bool ax_jstr_is(const struct ax_jstr *s, const char *text);
/* First occurrence of the needle in data[from..len), or SIZE_MAX. */
size_t ax_jstr_find(const struct ax_jstr *s, const struct ax_jstr *needle, size_t from);

/* ---- lists ---- */

static inline bool ax_jval_is_list(struct ax_jval v) {
    return v.kind >= AX_JLIST && v.kind <= AX_JITER;
}
/* A list (tuple, view, iterator) over `items`, which it keeps. AX_ERR_DATA if nested too deeply or
 * too large. */
enum ax_status ax_jlist_wrap(struct ax_jarena *a, enum ax_jkind kind, const struct ax_jval *items,
                             size_t n, struct ax_jval *out);
/* A growing list under construction. */
struct ax_jitems {
    struct ax_jval *items;
    size_t n, cap;
};
enum ax_status ax_jitems_add(struct ax_jarena *a, struct ax_jitems *l, struct ax_jval v);
enum ax_status ax_jitems_done(struct ax_jarena *a, const struct ax_jitems *l, enum ax_jkind kind,
                              struct ax_jval *out);

/* ---- dicts ---- */

enum ax_status ax_jdict_new(struct ax_jarena *a, struct ax_jdict **out);
/* Keys must be hashable (see ax_jval_hash). An existing key keeps its position and spelling. */
enum ax_status ax_jdict_set(struct ax_jarena *a, struct ax_jdict *d, struct ax_jval key,
                            struct ax_jval value);
/* (key, value) */
enum ax_status ax_jdict_pair(struct ax_jarena *a, const struct ax_jpair *p, struct ax_jval *out);
const struct ax_jval *ax_jdict_get(const struct ax_jdict *d, struct ax_jval key);
const struct ax_jval *ax_jdict_get_str(const struct ax_jdict *d, struct ax_jstr *key);

/* ---- equality and hashing, as Python's == and hash ---- */

bool ax_jval_equal(struct ax_jval a, struct ax_jval b);
/* false: not hashable (list, dict). */
bool ax_jval_hash(struct ax_jval v, uint32_t *hash);

#endif
