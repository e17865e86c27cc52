/* The running template: output, limits, and the operations of Python that expressions are made of.
 *
 * jinja_vm.c        output and captures, steps, errors
 * jinja_eval.c      expressions        jinja_exec.c  statements       jinja_call.c  calls, macros
 * jinja_ops.c       operators          jinja_attr.c  attributes, items, slices
 * jinja_repr.c      str() and repr()   jinja_json.c  JSON in and out  jinja_iter.c  iteration
 */
#ifndef AX_DATA_JINJA_VM_H
#define AX_DATA_JINJA_VM_H

#include "base/mem.h"
#include "data/jinja_ast.h"
#include "data/template.h"

struct ax_jcall;

/* The variables of one activation of a function. */
struct ax_jframe {
    struct ax_jframe *parent; /* of the function around it */
    struct ax_jval slots[];
};

struct ax_jvm {
    const struct ax_jtree *tree;
    int line; /* of the node at work, for messages */
    struct ax_jarena arena;
    struct ax_jval *context; /* values of tree->context */
    int64_t now;

    uint64_t steps, max_steps;
    int depth, max_depth;
    enum { AX_JFLOW_ON, AX_JFLOW_BREAK, AX_JFLOW_CONTINUE } flow;

    /* Finished text, and above it what is being captured: captures nest like brackets. */
    struct ax_buf out;
    size_t max_output;
    size_t root_end;                     /* end of the finished text; SIZE_MAX: no capture open */
    size_t counted_bytes, counted_chars; /* how far the finished text has been counted */

    struct ax_span *spans;
    size_t n_spans, cap_spans;
};

/* "NAME:LINE: text" as AX_ERR_DATA, which is the value of the macros, as of ax_error(). */
void ax_jvm_set_error(struct ax_jvm *vm, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
#define ax_jvm_error(vm, ...) (ax_jvm_set_error((vm), __VA_ARGS__), AX_ERR_DATA)
/* Using an undefined value: says what is undefined. */
void ax_jvm_set_undefined(struct ax_jvm *vm, struct ax_jval v);
#define ax_jvm_undefined(vm, v) (ax_jvm_set_undefined((vm), (v)), AX_ERR_DATA)
/* Counts work; AX_ERR_DATA when the template has done too much. */
enum ax_status ax_jvm_charge(struct ax_jvm *vm, size_t work);
/* One level deeper; pair with vm->depth--. */
enum ax_status ax_jvm_enter(struct ax_jvm *vm);

/* ---- text ---- */

enum ax_status ax_jvm_put(struct ax_jvm *vm, const char *data, size_t n);
enum ax_status ax_jvm_puts(struct ax_jvm *vm, const char *s);
enum ax_status ax_jvm_put_char(struct ax_jvm *vm, uint32_t c);
enum ax_status ax_jvm_putf(struct ax_jvm *vm, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Collects what is put until take. What stays (break, error) is dropped with the template or by
 * the enclosing take. */
struct ax_jcapture {
    size_t start;
    bool outermost;
};
struct ax_jcapture ax_jvm_capture(struct ax_jvm *vm);
enum ax_status ax_jvm_take(struct ax_jvm *vm, struct ax_jcapture c, struct ax_jstr **out);
/* Ends the capture and leaves its text where it is. */
void ax_jvm_keep(struct ax_jvm *vm, struct ax_jcapture c);
/* Code points of the finished text. */
size_t ax_jvm_chars(struct ax_jvm *vm);

enum ax_status ax_jval_put_str(struct ax_jvm *vm, struct ax_jval v); /* as print does */
enum ax_status ax_jval_put_repr(struct ax_jvm *vm, struct ax_jval v);
/* str(v); soft keeps the markup flag of strings. */
enum ax_status ax_jval_to_str(struct ax_jvm *vm, struct ax_jval v, struct ax_jstr **out);
enum ax_status ax_jval_soft_str(struct ax_jvm *vm, struct ax_jval v, struct ax_jstr **out);
enum ax_status ax_jval_new_str(struct ax_jvm *vm, const char *data, size_t len,
                               struct ax_jval *out);
/* repr() of a float, and room for it. */
#define AX_JREAL_TEXT 64
void ax_jreal_repr(double d, char text[AX_JREAL_TEXT]);

/* ---- variables and calls ---- */

enum ax_status ax_jvm_eval(struct ax_jvm *vm, struct ax_jframe *f, const struct ax_jnode *n,
                           struct ax_jval *out);
enum ax_status ax_jvm_exec_all(struct ax_jvm *vm, struct ax_jframe *f,
                               const struct ax_jnodes *list);
enum ax_status ax_jframe_new(struct ax_jvm *vm, const struct ax_jfunc *fn, struct ax_jframe *parent,
                             struct ax_jframe **out);
void ax_jscope_enter(struct ax_jvm *vm, struct ax_jframe *f, const struct ax_jscope *s);
void ax_jscope_leave(struct ax_jframe *f, const struct ax_jscope *s);
struct ax_jval *ax_jref_slot(struct ax_jframe *f, struct ax_jref ref);
enum ax_status ax_jvm_assign(struct ax_jvm *vm, struct ax_jframe *f, const struct ax_jnode *target,
                             struct ax_jval v);
/* The arguments of a call node, ready for ax_jcall. */
enum ax_status ax_jvm_arguments(struct ax_jvm *vm, struct ax_jframe *f, const struct ax_jargs *args,
                                struct ax_jcall *call);
enum ax_status ax_jvm_call(struct ax_jvm *vm, struct ax_jval fn, struct ax_jcall *call,
                           struct ax_jval *out);
enum ax_status ax_jmacro_call(struct ax_jvm *vm, const struct ax_jmacro *m,
                              const struct ax_jcall *call, struct ax_jval *out);
/* Runs a for tag over a value; the parent loop gives the depth of a recursive one. */
enum ax_status ax_jloop_run(struct ax_jvm *vm, struct ax_jframe *f, const struct ax_jnode *n,
                            struct ax_jval items, const struct ax_jloop *outer);
enum ax_status ax_jvm_filter(struct ax_jvm *vm, struct ax_jframe *f, const struct ax_jnode *n,
                             struct ax_jval piped, struct ax_jval *out);

/* ---- operators ---- */

enum ax_status ax_jop_binary(struct ax_jvm *vm, enum ax_jop op, struct ax_jval a, struct ax_jval b,
                             struct ax_jval *out);
enum ax_status ax_jop_unary(struct ax_jvm *vm, bool minus, struct ax_jval v, struct ax_jval *out);
enum ax_status ax_jop_compare(struct ax_jvm *vm, enum ax_jop op, struct ax_jval a, struct ax_jval b,
                              bool *out);
enum ax_status ax_jop_in(struct ax_jvm *vm, struct ax_jval item, struct ax_jval in, bool *out);
/* len(); fails where Python has none. */
enum ax_status ax_jval_length(struct ax_jvm *vm, struct ax_jval v, size_t *n);
bool ax_jval_has_length(struct ax_jval v);

/* x.name and x[key] as the sandbox gives them; missing ones are undefined. */
enum ax_status ax_jval_getattr(struct ax_jvm *vm, struct ax_jval of, struct ax_jstr *name,
                               struct ax_jval *out);
enum ax_status ax_jval_getitem(struct ax_jvm *vm, struct ax_jval of, struct ax_jval key,
                               struct ax_jval *out);
/* of[start:stop:step]; MISSING or none bounds are open. */
enum ax_status ax_jval_slice(struct ax_jvm *vm, struct ax_jval of, const struct ax_jval bounds[3],
                             struct ax_jval *out);
enum ax_status ax_jval_make_undefined(struct ax_jvm *vm, const char *hint,
                                      const struct ax_jstr *name, const char *owner,
                                      struct ax_jval *out);

/* ---- iteration ---- */

/* A generator or iterator. next sets *more = false at the end, and stays there. */
struct ax_jiter {
    enum ax_status (*next)(struct ax_jvm *vm, struct ax_jiter *it, struct ax_jval *out, bool *more);
    const char *type; /* Python's name, for repr */
    struct ax_jval source;
    struct ax_jiter *inner; /* iterator over source, for generators */
    size_t pos;
    void *state;
    bool started, ended;
};

bool ax_jval_is_iterable(struct ax_jval v);
/* iter(v): an AX_JITER gives itself. */
enum ax_status ax_jval_iterate(struct ax_jvm *vm, struct ax_jval v, struct ax_jiter **out);
enum ax_status ax_jiter_next(struct ax_jvm *vm, struct ax_jiter *it, struct ax_jval *out,
                             bool *more);
/* A fresh iterator object over a source. */
enum ax_status ax_jiter_new(struct ax_jvm *vm, struct ax_jval source, const char *type,
                            enum ax_status (*next)(struct ax_jvm *, struct ax_jiter *,
                                                   struct ax_jval *, bool *),
                            struct ax_jiter **out);
/* list(v) */
enum ax_status ax_jval_items(struct ax_jvm *vm, struct ax_jval v, struct ax_jitems *out);
/* The same behind what is in `out`. */
enum ax_status ax_jval_add_items(struct ax_jvm *vm, struct ax_jval v, struct ax_jitems *out);

/* `loop` inside a for tag. */
struct ax_jloop {
    struct ax_jiter *iter;
    struct ax_jval source;
    int64_t index0;
    int64_t length; /* -1: not asked yet */
    int64_t depth0;
    struct ax_jval before, current, after; /* after: MISSING unless peeked */
    struct ax_jval changed;                /* last arguments of changed() */
    const struct ax_jnode *node;           /* of a recursive loop, else NULL */
    struct ax_jframe *frame;
};
enum ax_status ax_jloop_next(struct ax_jvm *vm, struct ax_jloop *l, struct ax_jval *out,
                             bool *more);
/* loop.name; *known = false where a loop has nothing of the name. */
enum ax_status ax_jloop_get(struct ax_jvm *vm, struct ax_jloop *l, const struct ax_jstr *name,
                            struct ax_jval *out, bool *known);
enum ax_status ax_jloop_length(struct ax_jvm *vm, struct ax_jloop *l, int64_t *out);

/* ---- JSON ---- */

enum ax_status ax_jval_from_json(struct ax_jvm *vm, const json_t *j, struct ax_jval *out);
/* The same from text that ax_json_parse has accepted, with integers of any size. */
enum ax_status ax_jval_from_text(struct ax_jvm *vm, const char *text, size_t len,
                                 struct ax_jval *out);
/* Messages of a chat as transformers prepares them (see ax_template_options.chat). */
enum ax_status ax_jchat_messages(struct ax_jvm *vm, struct ax_jval messages, struct ax_jval *out);
struct ax_jjson {
    bool ascii, sort_keys, pretty;
    const struct ax_jstr *indent; /* if pretty */
    const struct ax_jstr *item_separator, *key_separator;
};
enum ax_status ax_jval_put_json(struct ax_jvm *vm, const struct ax_jjson *how, struct ax_jval v);

/* Sorts n values stably, in place, by their keys: lists of n_keys values each, or with n_keys 0 one
 * bare value each (then also equal keys must have an order). */
enum ax_status ax_jsort(struct ax_jvm *vm, struct ax_jval *items, struct ax_jval *keys, size_t n,
                        size_t n_keys, bool reverse);

/* ---- text formatting ---- */

/* format % args, and format.format(*args, **kwargs). */
enum ax_status ax_jformat_percent(struct ax_jvm *vm, const struct ax_jstr *format,
                                  struct ax_jval args, struct ax_jval *out);
enum ax_status ax_jformat_braces(struct ax_jvm *vm, const struct ax_jstr *format,
                                 const struct ax_jcall *call, struct ax_jval *out);
/* Puts s with & < > " ' as HTML entities. */
enum ax_status ax_jvm_put_escaped(struct ax_jvm *vm, const struct ax_jstr *s);
/* escape(v): a string marked as markup. */
enum ax_status ax_jval_escape(struct ax_jvm *vm, struct ax_jval v, struct ax_jstr **out);

#endif
