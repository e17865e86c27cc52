/* Filters, tests, global functions and methods: how they are called and found.
 *
 * Each is a row of a table: its name, its function, its parameters. What Jinja or Python has and
 * these tables lack is refused by name (builtin.c). */
#ifndef AX_DATA_JINJA_BUILTIN_H
#define AX_DATA_JINJA_BUILTIN_H

#include "data/jinja/vm.h"

struct ax_jkwarg {
    const struct ax_jstr *key;
    struct ax_jval value;
};

#define AX_JPARAMS_MAX 4

/* One call: `self` is the piped value, the tested value, or the object of a method. */
struct ax_jcall {
    const char *name; /* for messages */
    struct ax_jval self;
    const struct ax_jval *args;
    size_t n_args;
    const struct ax_jkwarg *kwargs;
    size_t n_kwargs;
    struct ax_jval v[AX_JPARAMS_MAX]; /* in the order of the parameters; MISSING: not given */
};

/* A test gives an AX_JBOOL. */
typedef enum ax_status ax_jfn(struct ax_jvm *vm, const struct ax_jcall *call, struct ax_jval *out);

struct ax_jbuiltin {
    const char *name;
    ax_jfn *run;
    /* "old new count=": names with blanks between, = after those that may be left out, a leading /
     * where none may be given by name. NULL: `run` looks at args and kwargs itself. */
    const char *params;
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
const struct ax_jbuiltin *ax_jmethod_find(enum ax_jkind of, const struct ax_jstr *name);
/* The tables of filters, and of the methods of str; a NULL name ends them. */
extern const struct ax_jbuiltin ax_jfilters_text[], ax_jfilters_list[], ax_jfilters_map[],
    ax_jfilters_value[], ax_jstr_methods[];
const struct ax_jbuiltin *ax_jbuiltin_in(const struct ax_jbuiltin *table,
                                         const struct ax_jstr *name);

/* Does Jinja or Python have it, and we do not? of: "filter", "test", "tag", or a type's name. */
bool ax_junsupported(const char *of, const struct ax_jstr *name);
/* "no filter named 'x'", or "the filter 'x' is not supported". kind: FILTER or TEST. */
const char *ax_junknown(char *text, size_t size, enum ax_jnode_kind kind,
                        const struct ax_jstr *name);

/* Binds the arguments and runs. Fails on too many, unknown, doubled or missing ones. */
enum ax_status ax_jbuiltin_run(struct ax_jvm *vm, const struct ax_jbuiltin *b,
                               struct ax_jcall *call, struct ax_jval *out);
enum ax_status ax_jmacro_call(struct ax_jvm *vm, const struct ax_jmacro *m,
                              const struct ax_jcall *call, struct ax_jval *out);

/* Arguments that must be of a type; MISSING keeps *out as it was. `what` names the argument. */
enum ax_status ax_jarg_int(struct ax_jvm *vm, const struct ax_jcall *call, const char *what,
                           struct ax_jval v, int64_t *out);
enum ax_status ax_jarg_str(struct ax_jvm *vm, const struct ax_jcall *call, const char *what,
                           struct ax_jval v, struct ax_jstr **out);
bool ax_jarg_truth(struct ax_jval v, bool otherwise);

/* item.a.b by an attribute path: "a.b", a number, or a single key. */
struct ax_jpath {
    struct ax_jval parts;     /* a list */
    struct ax_jval otherwise; /* replaces undefined parts; MISSING: nothing does */
    bool fold;                /* strings to lower case at the end */
};
enum ax_status ax_jpath_make(struct ax_jvm *vm, struct ax_jval attribute, struct ax_jpath *out);
enum ax_status ax_jpath_get(struct ax_jvm *vm, const struct ax_jpath *path, struct ax_jval item,
                            struct ax_jval *out);
/* The pairs of the piped dict as tuples. */
enum ax_status ax_jcall_pairs(struct ax_jvm *vm, const struct ax_jcall *call,
                              struct ax_jitems *out);
/* The items as an iterator. */
enum ax_status ax_jiter_give(struct ax_jvm *vm, const struct ax_jitems *items, struct ax_jval *out);

#endif
