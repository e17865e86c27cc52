/* The running template: output, limits, and the Python operations used by expressions.
 *
 *   vm.c    output and captures, steps, errors, variables
 *   exec.c  expressions, calls, iteration and `loop`, statements
 *   ops.c   numbers and operators       attr.c    attributes, items, slices
 *   repr.c  str() and repr(); JSON in and out */
#ifndef AX_DATA_TEXT_JINJA_VM_H
#define AX_DATA_TEXT_JINJA_VM_H

#include <jansson.h>

#include "base/mem.h"
#include "data/text/jinja/ast.h"
#include "data/text/tokenizer/span.h"

struct ax_jcall;

/* Local variables of a for body, macro, with, or captured block. Reads search outwards; `set`
 * writes to the innermost. The template's own variables are ax_jvm.globals. */
struct ax_jscope {
    struct ax_jscope *parent; /* enclosing block in the source; NULL: globals */
    struct ax_jvar {
        uint32_t name; /* index into ax_jtree.names */
        struct ax_jval value;
    } *vars;
    size_t n, cap;
};

struct ax_jvm {
    const struct ax_jtree *tree;
    int line; /* line of the current node, for messages */
    struct ax_jarena arena;
    struct ax_jval *globals; /* indexed by number in tree->names */
    int64_t now;

    uint64_t steps, max_steps;
    int depth, max_depth;
    enum { AX_JFLOW_ON, AX_JFLOW_BREAK, AX_JFLOW_CONTINUE } flow;

    /* Finished text, followed by the open captures, which nest like brackets. */
    struct ax_buf out;
    size_t max_output;
    size_t root_end;                     /* end of the finished text; SIZE_MAX: no capture open */
    size_t counted_bytes, counted_chars; /* counted part of the finished text */

    struct ax_span *spans;
    size_t n_spans, cap_spans;
};

/* Sets "NAME:LINE: text"; the macros evaluate to AX_ERR_DATA, as ax_error() does. */
void ax_jvm_set_error(struct ax_jvm *vm, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
#define ax_jvm_error(vm, ...) (ax_jvm_set_error((vm), __VA_ARGS__), AX_ERR_DATA)
/* Error for the use of an undefined value: says what is undefined. */
void ax_jvm_set_undefined(struct ax_jvm *vm, struct ax_jval v);
#define ax_jvm_undefined(vm, v) (ax_jvm_set_undefined((vm), (v)), AX_ERR_DATA)
/* Counts work; AX_ERR_DATA when the limit is exceeded. */
enum ax_status ax_jvm_charge(struct ax_jvm *vm, size_t work);
/* One level deeper; pair with vm->depth--. */
enum ax_status ax_jvm_enter(struct ax_jvm *vm);

/* ---- text ---- */

enum ax_status ax_jvm_put(struct ax_jvm *vm, const char *data, size_t n);
enum ax_status ax_jvm_puts(struct ax_jvm *vm, const char *s);
enum ax_status ax_jvm_put_char(struct ax_jvm *vm, uint32_t c);
enum ax_status ax_jvm_putf(struct ax_jvm *vm, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Collects what is printed until take. If take is not reached (break, error), the text is
 * dropped with the template or by the enclosing take. */
struct ax_jcapture {
    size_t start;
    bool outermost;
};
struct ax_jcapture ax_jvm_capture(struct ax_jvm *vm);
enum ax_status ax_jvm_take(struct ax_jvm *vm, struct ax_jcapture c, struct ax_jstr **out);
/* Code points in the finished text. */
size_t ax_jvm_chars(struct ax_jvm *vm);

enum ax_status ax_jval_put_str(struct ax_jvm *vm, struct ax_jval v); /* as {{ }} prints it */
/* str(v) */
enum ax_status ax_jval_to_str(struct ax_jvm *vm, struct ax_jval v, struct ax_jstr **out);
enum ax_status ax_jval_new_str(struct ax_jvm *vm, const char *data, size_t len,
                               struct ax_jval *out);

/* ---- variables and calls ---- */

struct ax_jval ax_jscope_get(const struct ax_jvm *vm, const struct ax_jscope *s, uint32_t name);
enum ax_status ax_jscope_set(struct ax_jvm *vm, struct ax_jscope *s, uint32_t name,
                             struct ax_jval v);
enum ax_status ax_jvm_exec_all(struct ax_jvm *vm, struct ax_jscope *s,
                               const struct ax_jnodes *list);

/* ---- operators ---- */

enum ax_status ax_jop_binary(struct ax_jvm *vm, enum ax_jop op, struct ax_jval a, struct ax_jval b,
                             struct ax_jval *out);
enum ax_status ax_jop_unary(struct ax_jvm *vm, bool minus, struct ax_jval v, struct ax_jval *out);
/* As ax_jval_equal, and counts what it may take. */
enum ax_status ax_jop_equal(struct ax_jvm *vm, struct ax_jval a, struct ax_jval b, bool *out);
enum ax_status ax_jop_compare(struct ax_jvm *vm, enum ax_jop op, struct ax_jval a, struct ax_jval b,
                              bool *out);
enum ax_status ax_jop_in(struct ax_jvm *vm, struct ax_jval item, struct ax_jval in, bool *out);
/* len(); fails where Python's does. */
enum ax_status ax_jval_length(struct ax_jvm *vm, struct ax_jval v, size_t *n);

double ax_jnumber_to_double(struct ax_jval v);
/* Exact between int and float. false: one is a NaN. */
bool ax_jnumber_compare(struct ax_jval a, struct ax_jval b, int *order);
/* int(d) */
enum ax_status ax_jnumber_from_double(struct ax_jvm *vm, double d, struct ax_jval *out);
/* int(text) or float(text); MISSING where Python raises ValueError. */
enum ax_status ax_jnumber_parse(struct ax_jvm *vm, struct ax_jstr *text, bool real,
                                struct ax_jval *out);

/* x.name and x[key] under the sandbox's rules; missing ones are undefined. */
enum ax_status ax_jval_getattr(struct ax_jvm *vm, struct ax_jval of, struct ax_jstr *name,
                               struct ax_jval *out);
enum ax_status ax_jval_getitem(struct ax_jvm *vm, struct ax_jval of, struct ax_jval key,
                               struct ax_jval *out);
/* of[start:stop:step]; MISSING or none means an open bound. */
enum ax_status ax_jval_slice(struct ax_jvm *vm, struct ax_jval of, const struct ax_jval bounds[3],
                             struct ax_jval *out);
enum ax_status ax_jval_make_undefined(struct ax_jvm *vm, const char *hint,
                                      const struct ax_jstr *name, const char *owner,
                                      struct ax_jval *out);

/* ---- iteration ---- */

bool ax_jval_is_iterable(struct ax_jval v);
/* list(v): the items are in the arena or belong to v. Exhausts an iterator. */
enum ax_status ax_jval_items(struct ax_jvm *vm, struct ax_jval v, struct ax_jitems *out);

/* `loop` inside a for tag. */
struct ax_jloop {
    struct ax_jitems items;
    const struct ax_jrange *range; /* instead of items */
    const struct ax_jnode *node;
    struct ax_jscope *scope; /* enclosing scope, in which the tag's test runs */
    size_t pos;              /* position of the next untested item */
    int64_t index0;
    int64_t length; /* -1: not computed yet */
    bool peeked;
    struct ax_jval before, current, after; /* after, if peeked: MISSING at the end */
};
/* loop.name; *known = false if a loop has no such attribute. */
enum ax_status ax_jloop_get(struct ax_jvm *vm, struct ax_jloop *l, const struct ax_jstr *name,
                            struct ax_jval *out, bool *known);

/* ---- JSON ---- */

enum ax_status ax_jval_from_json(struct ax_jvm *vm, const json_t *j, struct ax_jval *out);
struct ax_jjson {
    bool ascii, sort_keys, pretty;
    const struct ax_jstr *indent; /* if pretty */
    const struct ax_jstr *item_separator, *key_separator;
};
enum ax_status ax_jval_put_json(struct ax_jvm *vm, const struct ax_jjson *how, struct ax_jval v);

/* Sorts n values stably, in place, by one key each. */
enum ax_status ax_jsort(struct ax_jvm *vm, struct ax_jval *items, struct ax_jval *keys, size_t n,
                        bool reverse);

#endif
