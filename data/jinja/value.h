/* Values of the Jinja interpreter: Python's types as templates see them.
 *
 * A value is a small tagged union passed by copy; what it points to lives in the arena of the
 * render (or of the template, for constants) or is borrowed from the caller's JSON. Lists, tuples,
 * dicts and strings never change once made (the sandbox refuses mutation), so they are shared
 * freely. Only namespaces, loops and iterators have state. */
#ifndef AX_DATA_JINJA_VALUE_H
#define AX_DATA_JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/jinja/arena.h"

struct ax_jvm;
struct ax_jnode;
struct ax_jscope;

enum ax_jkind {
    AX_JMISSING, /* a variable without value, an argument not given; filters never see it */
    AX_JUNDEFINED,
    AX_JNONE,
    AX_JBOOL,
    AX_JINT, /* 64 bits: what does not fit is an error */
    AX_JFLOAT,
    AX_JSTR,
    AX_JLIST,
    AX_JTUPLE,
    AX_JVIEW, /* dict.keys(), values(), items() */
    AX_JITER, /* what a lazy filter gives: its items can be taken once, and have no length */
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

/* UTF-8 text, not NUL-terminated. Made through ax_jstr_* below. */
struct ax_jstr {
    const char *data;
    size_t len;
    size_t chars;          /* code points, or AX_JUNCOUNTED; ask ax_jstr_chars */
    struct ax_jtail *tail; /* spare room after the text, or NULL */
    uint32_t hash;         /* 0 = not yet computed */
    bool safe;             /* result of the filter `safe`: Jinja escapes what is added to it */
};

/* Room after a concatenation: whoever ends at `used` may append in place, which makes
 * `ns.text = ns.text + piece` linear. Earlier strings just see their own prefix. */
struct ax_jtail {
    size_t used, cap;
};

/* Lists and dicts nest at most this deep and hold at most this many items in all, counting shared
 * parts as often as they appear, so that what walks them may recurse and ends. */
#define AX_JNEST_MAX   1000
#define AX_JWEIGHT_MAX ((size_t)16 << 20)

struct ax_jlist {
    const struct ax_jval *items;
    size_t n;
    size_t weight;    /* items in all */
    int nest;         /* 1 + the deepest item */
    const char *type; /* Python's name of a view or iterator */
};

struct ax_jpair {
    struct ax_jval key, value;
};

struct ax_jdict {
    struct ax_jpair *pairs; /* in order of insertion */
    size_t n, cap;
    uint32_t *index; /* open addressing, pair number + 1; NULL while n is small */
    size_t index_size;
    size_t weight; /* as in ax_jlist */
    int nest;
};

struct ax_jrange {
    int64_t start, stop, step, n;
};

/* Why a value is undefined, for the message when it is used. */
struct ax_jundef {
    const char *hint;           /* the whole message, or NULL: build it from the rest */
    const struct ax_jstr *name; /* variable or attribute; NULL for other keys */
    const char *owner;          /* type that lacks the attribute; NULL for a variable */
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
/* What walking the value costs: items in all and text bytes / 64. */
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

/* A string over `data`, which must outlive the arena's user. */
enum ax_status ax_jstr_borrow(struct ax_jarena *a, struct ax_jstr **out, const char *data,
                              size_t len);
enum ax_status ax_jstr_copy(struct ax_jarena *a, struct ax_jstr **out, const char *data,
                            size_t len);
/* left + right, in place where left ends at its tail. */
enum ax_status ax_jstr_concat(struct ax_jarena *a, struct ax_jstr **out, const struct ax_jstr *left,
                              const struct ax_jstr *right);
/* Bytes [start, end) of s, sharing them and keeping the flag `safe`. */
enum ax_status ax_jstr_slice(struct ax_jarena *a, struct ax_jstr **out, const struct ax_jstr *s,
                             size_t start, size_t end);
size_t ax_jstr_chars(struct ax_jstr *s);
uint32_t ax_jstr_hash(struct ax_jstr *s);
bool ax_jstr_equal(const struct ax_jstr *a, const struct ax_jstr *b);
bool ax_jstr_is(const struct ax_jstr *s, const char *text);
int ax_jstr_compare(const struct ax_jstr *a, const struct ax_jstr *b); /* by code point */
/* Byte offset of code point n. */
size_t ax_jstr_offset(struct ax_jstr *s, size_t n);
/* First occurrence of the needle in data[from..len), or SIZE_MAX. */
size_t ax_jstr_find(const struct ax_jstr *s, const struct ax_jstr *needle, size_t from);

/* ---- lists ---- */

static inline bool ax_jval_is_list(struct ax_jval v) {
    return v.kind >= AX_JLIST && v.kind <= AX_JITER;
}
/* A list (tuple, view, iterator) over items, which it keeps. AX_ERR_DATA when nested too deep or
 * too big. */
enum ax_status ax_jlist_wrap(struct ax_jarena *a, enum ax_jkind kind, const struct ax_jval *items,
                             size_t n, struct ax_jval *out);
/* A list that grows while it is built. */
struct ax_jitems {
    struct ax_jval *items;
    size_t n, cap;
};
enum ax_status ax_jitems_add(struct ax_jarena *a, struct ax_jitems *l, struct ax_jval v);
enum ax_status ax_jitems_done(struct ax_jarena *a, const struct ax_jitems *l, enum ax_jkind kind,
                              struct ax_jval *out);

/* ---- dicts ---- */

enum ax_status ax_jdict_new(struct ax_jarena *a, struct ax_jdict **out);
/* Keys must be hashable (ax_jval_hash says so). A known key keeps its place and first spelling. */
enum ax_status ax_jdict_set(struct ax_jarena *a, struct ax_jdict *d, struct ax_jval key,
                            struct ax_jval value);
/* (key, value) */
enum ax_status ax_jdict_pair(struct ax_jarena *a, const struct ax_jpair *p, struct ax_jval *out);
const struct ax_jval *ax_jdict_get(const struct ax_jdict *d, struct ax_jval key);
const struct ax_jval *ax_jdict_get_str(const struct ax_jdict *d, struct ax_jstr *key);

/* ---- equality and hashing, as Python's == and hash ---- */

bool ax_jval_equal(struct ax_jval a, struct ax_jval b);
/* false: unhashable (list, dict). */
bool ax_jval_hash(struct ax_jval v, uint32_t *hash);

#endif
