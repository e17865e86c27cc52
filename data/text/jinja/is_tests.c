/* Tests: `x is name(args)`. */
#include "data/text/jinja/builtin.h"

#define KIND_TEST(test, condition)                                                                 \
    static enum ax_status test(struct ax_jvm *vm, const struct ax_jcall *call,                     \
                               struct ax_jval *out) {                                              \
        const enum ax_jkind kind = call->self.kind;                                                \
        (void)vm;                                                                                  \
        *out = ax_jbool(condition);                                                                \
        return AX_OK;                                                                              \
    }

KIND_TEST(test_defined, kind != AX_JUNDEFINED)
KIND_TEST(test_undefined, kind == AX_JUNDEFINED)
KIND_TEST(test_none, kind == AX_JNONE)
KIND_TEST(test_boolean, kind == AX_JBOOL)
KIND_TEST(test_true, kind == AX_JBOOL && call->self.boolean)
KIND_TEST(test_false, kind == AX_JBOOL && !call->self.boolean)
KIND_TEST(test_integer, kind == AX_JINT)
KIND_TEST(test_float, kind == AX_JFLOAT)
KIND_TEST(test_number, kind == AX_JBOOL || kind == AX_JINT || kind == AX_JFLOAT)
KIND_TEST(test_string, kind == AX_JSTR)
KIND_TEST(test_mapping, kind == AX_JDICT)
KIND_TEST(test_iterable, kind == AX_JLOOP || ax_jval_is_iterable(call->self))
KIND_TEST(test_sequence, kind == AX_JSTR || kind == AX_JLIST || kind == AX_JTUPLE ||
                             kind == AX_JDICT || kind == AX_JRANGE || kind == AX_JUNDEFINED)
KIND_TEST(test_callable,
          kind == AX_JMACRO || kind == AX_JFUNCTION || kind == AX_JLOOP || kind == AX_JUNDEFINED)

/* ---- numbers ---- */

static enum ax_status remainder_is(struct ax_jvm *vm, struct ax_jval v, struct ax_jval by,
                                   int64_t wanted, struct ax_jval *out) {
    struct ax_jval rest;
    AX_TRY(ax_jop_binary(vm, AX_JOP_MOD, v, by, &rest));
    *out = ax_jbool(ax_jval_equal(rest, ax_jint(wanted)));
    return AX_OK;
}

static enum ax_status test_odd(struct ax_jvm *vm, const struct ax_jcall *call,
                               struct ax_jval *out) {
    return remainder_is(vm, call->self, ax_jint(2), 1, out);
}

static enum ax_status test_even(struct ax_jvm *vm, const struct ax_jcall *call,
                                struct ax_jval *out) {
    return remainder_is(vm, call->self, ax_jint(2), 0, out);
}

static enum ax_status test_divisibleby(struct ax_jvm *vm, const struct ax_jcall *call,
                                       struct ax_jval *out) {
    return remainder_is(vm, call->self, call->v[0], 0, out);
}

/* ---- comparisons ---- */

static enum ax_status compare(struct ax_jvm *vm, const struct ax_jcall *call, enum ax_jop op,
                              struct ax_jval *out) {
    bool holds;
    AX_TRY(ax_jop_compare(vm, op, call->self, call->v[0], &holds));
    *out = ax_jbool(holds);
    return AX_OK;
}

#define COMPARISON(test, op)                                                                       \
    static enum ax_status test(struct ax_jvm *vm, const struct ax_jcall *call,                     \
                               struct ax_jval *out) {                                              \
        return compare(vm, call, op, out);                                                         \
    }

COMPARISON(test_eq, AX_JOP_EQ)
COMPARISON(test_ne, AX_JOP_NE)
COMPARISON(test_lt, AX_JOP_LT)
COMPARISON(test_le, AX_JOP_LE)
COMPARISON(test_gt, AX_JOP_GT)
COMPARISON(test_ge, AX_JOP_GE)

static enum ax_status test_in(struct ax_jvm *vm, const struct ax_jcall *call, struct ax_jval *out) {
    bool holds;
    AX_TRY(ax_jop_in(vm, call->self, call->v[0], &holds));
    *out = ax_jbool(holds);
    return AX_OK;
}

const struct ax_jbuiltin *ax_jtest_find(const struct ax_jstr *name) {
    static const struct ax_jbuiltin tests[] = {
        {"string", test_string, ""},     {"defined", test_defined, ""},
        {"none", test_none, ""},         {"mapping", test_mapping, ""},
        {"iterable", test_iterable, ""}, {"sequence", test_sequence, ""},
        {"false", test_false, ""},       {"undefined", test_undefined, ""},
        {"true", test_true, ""},         {"boolean", test_boolean, ""},
        {"equalto", test_eq, "/other"},  {"eq", test_eq, "/other"},
        {"==", test_eq, "/other"},       {"ne", test_ne, "/other"},
        {"!=", test_ne, "/other"},       {"lt", test_lt, "/other"},
        {"lessthan", test_lt, "/other"}, {"<", test_lt, "/other"},
        {"le", test_le, "/other"},       {"<=", test_le, "/other"},
        {"gt", test_gt, "/other"},       {"greaterthan", test_gt, "/other"},
        {">", test_gt, "/other"},        {"ge", test_ge, "/other"},
        {">=", test_ge, "/other"},       {"in", test_in, "seq"},
        {"number", test_number, ""},     {"integer", test_integer, ""},
        {"float", test_float, ""},       {"odd", test_odd, ""},
        {"even", test_even, ""},         {"divisibleby", test_divisibleby, "num"},
        {"callable", test_callable, ""}, {NULL, NULL, NULL},
    };
    return ax_jbuiltin_in(tests, name);
}
