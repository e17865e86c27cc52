/* Filters, tests, global functions and methods: how they are called and found. */
#ifndef AX_DATA_JINJA_BUILTIN_H
#define AX_DATA_JINJA_BUILTIN_H

#include "data/jinja_vm.h"

struct ax_jkwarg {
    const struct ax_jstr *key;
    struct ax_jval value;
};

/* One call: `self` is the piped value, the tested value, or the object of a method. */
struct ax_jcall {
    const char *name; /* for messages */
    struct ax_jval self;
    const struct ax_jval *args;
    size_t n_args;
    const struct ax_jkwarg *kwargs;
    size_t n_kwargs;
};

/* A test gives an AX_JBOOL. */
typedef enum ax_status ax_jfn(struct ax_jvm *vm, const struct ax_jcall *call, struct ax_jval *out);

struct ax_jbuiltin {
    const char *name;
    ax_jfn *run;
};

/* A global function, or a method with the object it belongs to. */
struct ax_jfunction {
    const struct ax_jbuiltin *builtin;
    struct ax_jval self; /* AX_JMISSING for a global */
};

/* NULL where there is none of the name. */
const struct ax_jbuiltin *ax_jfilter_find(const struct ax_jstr *name);
const struct ax_jbuiltin *ax_jtest_find(const struct ax_jstr *name);
const struct ax_jbuiltin *ax_jglobal_find(const struct ax_jstr *name);
const struct ax_jbuiltin *ax_jstr_method(const struct ax_jstr *name);
const struct ax_jbuiltin *ax_jlist_method(const struct ax_jstr *name); /* also of tuples */
const struct ax_jbuiltin *ax_jdict_method(const struct ax_jstr *name);
const struct ax_jbuiltin *ax_jrange_method(const struct ax_jstr *name);
const struct ax_jbuiltin *ax_jloop_method(const struct ax_jstr *name);
const struct ax_jbuiltin *ax_jcycler_method(const struct ax_jstr *name);

/* The tables behind them, one for each file of filters; a NULL name ends a table. */
extern const struct ax_jbuiltin ax_jfilters_text[], ax_jfilters_list[], ax_jfilters_lazy[],
    ax_jfilters_value[], ax_jfilters_web[], ax_jstr_more_methods[];
const struct ax_jbuiltin *ax_jbuiltin_in(const struct ax_jbuiltin *table,
                                         const struct ax_jstr *name);

/* ---- arguments ---- */

/* Puts positional and keyword arguments in the order of params[n] into out, AX_JMISSING where not
 * given. Fails on too many, unknown or doubled ones, and without the first `required`. */
enum ax_status ax_jcall_bind(struct ax_jvm *vm, const struct ax_jcall *call,
                             const char *const *params, size_t n, size_t required,
                             struct ax_jval *out);
/* Between min and max positional arguments and no keywords. */
enum ax_status ax_jcall_count(struct ax_jvm *vm, const struct ax_jcall *call, size_t min,
                              size_t max);
/* Arguments that must be of a type; MISSING keeps *out as it was. `what` names the argument. */
enum ax_status ax_jarg_int(struct ax_jvm *vm, const struct ax_jcall *call, const char *what,
                           struct ax_jval v, int64_t *out);
enum ax_status ax_jarg_str(struct ax_jvm *vm, const struct ax_jcall *call, const char *what,
                           struct ax_jval v, struct ax_jstr **out);
bool ax_jarg_truth(struct ax_jval v, bool otherwise);

/* item.a.b by an attribute path: "a.b", a number, or a single key (jinja_builtin.c). */
struct ax_jpath {
    struct ax_jval *parts;
    size_t n;
    struct ax_jval otherwise; /* replaces undefined parts; MISSING: nothing does */
    bool fold;                /* strings to lower case at the end */
};
enum ax_status ax_jpath_make(struct ax_jvm *vm, struct ax_jval attribute, struct ax_jpath *out);
enum ax_status ax_jpath_get(struct ax_jvm *vm, const struct ax_jpath *path, struct ax_jval item,
                            struct ax_jval *out);

#endif
