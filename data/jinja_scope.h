/* Symbol tables while names are resolved; between jinja_scope.c and jinja_symbols.c. */
#ifndef AX_DATA_JINJA_SCOPE_H
#define AX_DATA_JINJA_SCOPE_H

#include "data/jinja_ast.h"

/* A function: slots are shared by equal names of equal level, as Python's local variables are. */
struct ax_jfunction_scope {
    struct ax_jfunction_scope *parent;
    int depth;                /* functions around it */
    struct ax_jdict **levels; /* by level: name → slot */
    int n_levels;
    uint32_t n_slots;
};

/* One variable of a symbol table. */
struct ax_jsymbol {
    struct ax_jstr *name;
    bool stored; /* assigned somewhere in the scope */
    struct ax_jload load;
};

struct ax_jsymbols {
    struct ax_jtree *tree;
    struct ax_jsymbols *parent;
    struct ax_jfunction_scope *fn;
    struct ax_jdict *context; /* names taken from the template's variables → number */
    int level;
    struct ax_jdict *index; /* name → number in list */
    struct ax_jsymbol *list;
    size_t n, cap;
    uint32_t *stores; /* numbers in order of their first assignment */
    size_t n_stores, cap_stores;
};

enum ax_status ax_jsymbols_open(struct ax_jsymbols *s, struct ax_jtree *t,
                                struct ax_jsymbols *parent, struct ax_jfunction_scope *fn);
/* Notes a parameter, a use or an assignment of a name in this scope. */
enum ax_status ax_jsymbols_param(struct ax_jsymbols *s, struct ax_jstr *name);
enum ax_status ax_jsymbols_load(struct ax_jsymbols *s, struct ax_jstr *name);
enum ax_status ax_jsymbols_store(struct ax_jsymbols *s, struct ax_jstr *name);
/* Names first assigned since `mark` (an earlier n_stores) may stay unassigned: at the start of the
 * scope they take the outer value. */
enum ax_status ax_jsymbols_conditional(struct ax_jsymbols *s, size_t mark);
/* Where a name lives as seen from function fn; a name never noted is noted as a use. */
enum ax_status ax_jsymbols_ref(struct ax_jsymbols *s, struct ax_jstr *name, struct ax_jref *out);
/* What entering the scope has to do. */
enum ax_status ax_jsymbols_close(struct ax_jsymbols *s, struct ax_jscope *out);

/* Notes what the statements of a scope use and assign, without entering inner scopes. */
enum ax_status ax_jsymbols_note(struct ax_jsymbols *s, struct ax_jnode *n);
enum ax_status ax_jsymbols_note_all(struct ax_jsymbols *s, const struct ax_jnodes *list);
enum ax_status ax_jsymbols_note_params(struct ax_jsymbols *s, struct ax_jnode *target);

/* Which of the given names (bit i for names[i]) the nodes read before anything below sets them. */
unsigned ax_jnodes_undeclared(const struct ax_jnodes *list, const char *const *names, size_t n);

/* Calls visit for each child of an expression, in Jinja's order; false stops. */
bool ax_jexpr_each(struct ax_jnode *n, bool (*visit)(void *arg, struct ax_jnode *child), void *arg);

#endif
