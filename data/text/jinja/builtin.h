/* Filters, tests, global functions and methods: how they are called and found.
 *
 * Each is an entry of a table: name, function, parameters. What Jinja or Python has but these
 * tables lack is rejected by name (builtin.c). */
#ifndef AX_DATA_TEXT_JINJA_BUILTIN_H
#define AX_DATA_TEXT_JINJA_BUILTIN_H

#include "data/text/jinja/vm.h"

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
    struct ax_jval v[AX_JPARAMS_MAX]; /* in parameter order; MISSING: not given */
};

/* A test returns an AX_JBOOL. */
typedef enum ax_status ax_jfn(struct ax_jvm *vm, const struct ax_jcall *call, struct ax_jval *out);

struct ax_jbuiltin {
    const char *name;
    ax_jfn *run;
    /* "old new count=": names separated by blanks; = marks optional ones; a leading / means
     * positional only. NULL: `run` reads args and kwargs itself. */
    const char *params;
};

/* A global function, or a method with the object it belongs to. */
struct ax_jfunction {
    const struct ax_jbuiltin *builtin;
    struct ax_jval self; /* AX_JMISSING for a global */
};

/* NULL if there is none with this name. */
const struct ax_jbuiltin *ax_jfilter_find(const struct ax_jstr *name);
const struct ax_jbuiltin *ax_jtest_find(const struct ax_jstr *name);
const struct ax_jbuiltin *ax_jglobal_find(const struct ax_jstr *name);
const struct ax_jbuiltin *ax_jmethod_find(enum ax_jkind of, const struct ax_jstr *name);
/* The tables of filters and of str methods, terminated by a NULL name. */
extern const struct ax_jbuiltin ax_jfilters_text[], ax_jfilters_list[], ax_jfilters_map[],
    ax_jfilters_value[], ax_jstr_methods[], ax_jlist_methods[];
const struct ax_jbuiltin *ax_jbuiltin_in(const struct ax_jbuiltin *table,
                                         const struct ax_jstr *name);

/* True if Jinja or Python has this name but we do not support it. of: "filter", "test", "tag",
 * or a type's name. */
bool ax_junsupported(const char *of, const struct ax_jstr *name);
/* "no filter named 'x'", or "the filter 'x' is not supported". kind: FILTER or TEST. */
const char *ax_junknown(char *text, size_t size, enum ax_jnode_kind kind,
                        const struct ax_jstr *name);

/* Binds the arguments and runs. Fails on too many, unknown, duplicate or missing ones. */
enum ax_status ax_jbuiltin_run(struct ax_jvm *vm, const struct ax_jbuiltin *b,
                               struct ax_jcall *call, struct ax_jval *out);

/* Arguments of a required type; MISSING keeps *out unchanged. `what` names the argument. */
enum ax_status ax_jarg_int(struct ax_jvm *vm, const struct ax_jcall *call, const char *what,
                           struct ax_jval v, int64_t *out);
enum ax_status ax_jarg_str(struct ax_jvm *vm, const struct ax_jcall *call, const char *what,
                           struct ax_jval v, struct ax_jstr **out);
bool ax_jarg_truth(struct ax_jval v, bool otherwise);

#endif
