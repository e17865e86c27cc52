/* One value in one format: what %-formatting and str.format share. */
#ifndef AX_DATA_JINJA_SPEC_H
#define AX_DATA_JINJA_SPEC_H

#include "data/jinja_vm.h"

struct ax_jspec {
    uint32_t fill; /* pads; 0: a blank */
    char align;    /* '<' '>' '^' '=', 0: as the type likes it */
    char sign;     /* '+' or ' ', 0: only minus */
    bool alternate;
    char group;        /* ',' or '_', 0: none */
    int64_t width;     /* in code points */
    int64_t precision; /* -1: none */
    char type;         /* d o x X b c e E f F g G % s, 0: as the type likes it */
    bool digits;       /* the precision of an int is its least number of digits (%.3d) */
};

/* Widest field and longest precision that is accepted. */
#define AX_JSPEC_MAX 100000
#define ax_jspec_too_wide(vm)                                                                      \
    ax_jvm_error((vm), "a format field of more than %d characters", AX_JSPEC_MAX)
/* The digits at s[*p] as a number up to AX_JSPEC_MAX; *p ends behind them. */
enum ax_status ax_jspec_read_number(struct ax_jvm *vm, const struct ax_jstr *s, size_t *p,
                                    int64_t *out);

enum ax_status ax_jspec_put_str(struct ax_jvm *vm, const struct ax_jspec *f, struct ax_jstr *s);
enum ax_status ax_jspec_put_int(struct ax_jvm *vm, const struct ax_jspec *f, struct ax_jval v);
enum ax_status ax_jspec_put_float(struct ax_jvm *vm, const struct ax_jspec *f, double d);
/* repr() with everything beyond ASCII escaped. */
enum ax_status ax_jval_put_ascii(struct ax_jvm *vm, struct ax_jval v);

#endif
