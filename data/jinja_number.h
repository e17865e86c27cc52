/* Python's numbers: bool, int of any size, float. Arithmetic, order, rounding, parsing. */
#ifndef AX_DATA_JINJA_NUMBER_H
#define AX_DATA_JINJA_NUMBER_H

#include "data/jinja_vm.h"

double ax_jnumber_to_double(struct ax_jval v);
/* Exact between int and float. false: a NaN is among them. */
bool ax_jnumber_compare(struct ax_jval a, struct ax_jval b, int *order);
/* + - * / // % ** of two numbers. */
enum ax_status ax_jnumber_op(struct ax_jvm *vm, enum ax_jop op, struct ax_jval a, struct ax_jval b,
                             struct ax_jval *out);
enum ax_status ax_jnumber_negate(struct ax_jvm *vm, struct ax_jval v, struct ax_jval *out);
/* round(v, digits), half to even on the decimal value. An int stays one. */
enum ax_status ax_jnumber_round(struct ax_jvm *vm, struct ax_jval v, int64_t digits,
                                struct ax_jval *out);
/* int(text, base) and float(text): *valid = false where Python raises ValueError. */
enum ax_status ax_jnumber_parse_int(struct ax_jvm *vm, const struct ax_jstr *text, int64_t base,
                                    struct ax_jval *out, bool *valid);
enum ax_status ax_jnumber_parse_float(struct ax_jvm *vm, const struct ax_jstr *text, double *out,
                                      bool *valid);

#endif
