/* Tests: `x is name(args)`. */
#include "data/jinja_builtin.h"
#include "data/jinja_text.h"

#define KIND_TEST(test, condition)                                                                 \
    static enum ax_status test(struct ax_jvm *vm, const struct ax_jcall *call,                     \
                               struct ax_jval *out) {                                              \
        const enum ax_jkind kind = call->self.kind;                                                \
        AX_TRY(ax_jcall_count(vm, call, 0, 0));                                                    \
        *out = ax_jbool(condition);                                                                \
        return AX_OK;                                                                              \
    }

KIND_TEST(test_defined, kind != AX_JUNDEFINED)
KIND_TEST(test_undefined, kind == AX_JUNDEFINED)
KIND_TEST(test_none, kind == AX_JNONE)
KIND_TEST(test_boolean, kind == AX_JBOOL)
KIND_TEST(test_true, kind == AX_JBOOL && call->self.boolean)
KIND_TEST(test_false, kind == AX_JBOOL && !call->self.boolean)
KIND_TEST(test_integer, kind == AX_JINT || kind == AX_JBIG)
KIND_TEST(test_float, kind == AX_JFLOAT)
KIND_TEST(test_number, kind == AX_JBOOL || kind == AX_JINT || kind == AX_JBIG || kind == AX_JFLOAT)
KIND_TEST(test_string, kind == AX_JSTR)
KIND_TEST(test_mapping, kind == AX_JDICT)
KIND_TEST(test_iterable, kind != AX_JMISSING && ax_jval_is_iterable(call->self))
KIND_TEST(test_sequence, kind == AX_JSTR || kind == AX_JLIST || kind == AX_JTUPLE ||
                             kind == AX_JDICT || kind == AX_JRANGE || kind == AX_JUNDEFINED)
KIND_TEST(test_callable, kind == AX_JMACRO || kind == AX_JFUNCTION || kind == AX_JLOOP ||
                             kind == AX_JJOINER || kind == AX_JUNDEFINED)
KIND_TEST(test_escaped, kind == AX_JSTR && call->self.str->markup)

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
    AX_TRY(ax_jcall_count(vm, call, 0, 0));
    return remainder_is(vm, call->self, ax_jint(2), 1, out);
}

static enum ax_status test_even(struct ax_jvm *vm, const struct ax_jcall *call,
                                struct ax_jval *out) {
    AX_TRY(ax_jcall_count(vm, call, 0, 0));
    return remainder_is(vm, call->self, ax_jint(2), 0, out);
}

static enum ax_status test_divisibleby(struct ax_jvm *vm, const struct ax_jcall *call,
                                       struct ax_jval *out) {
    static const char *const params[] = {"num"};
    struct ax_jval by;
    AX_TRY(ax_jcall_bind(vm, call, params, 1, 1, &by));
    return remainder_is(vm, call->self, by, 0, out);
}

/* ---- comparisons ---- */

static enum ax_status compare(struct ax_jvm *vm, const struct ax_jcall *call, enum ax_jop op,
                              struct ax_jval *out) {
    bool holds;
    AX_TRY(ax_jcall_count(vm, call, 1, 1));
    AX_TRY(ax_jop_compare(vm, op, call->self, call->args[0], &holds));
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
    static const char *const params[] = {"seq"};
    struct ax_jval in;
    bool holds;
    AX_TRY(ax_jcall_bind(vm, call, params, 1, 1, &in));
    AX_TRY(ax_jop_in(vm, call->self, in, &holds));
    *out = ax_jbool(holds);
    return AX_OK;
}

static enum ax_status test_sameas(struct ax_jvm *vm, const struct ax_jcall *call,
                                  struct ax_jval *out) {
    static const char *const params[] = {"other"};
    struct ax_jval other;
    AX_TRY(ax_jcall_bind(vm, call, params, 1, 1, &other));
    *out = ax_jbool(ax_jval_same(call->self, other));
    return AX_OK;
}

/* ---- names and case ---- */

/* `x is filter` looks x up in a dict, which lists and dicts cannot be keys of. */
static enum ax_status name_argument(struct ax_jvm *vm, const struct ax_jcall *call) {
    uint32_t h;
    AX_TRY(ax_jcall_count(vm, call, 0, 0));
    return ax_jval_hash(call->self, &h)
               ? AX_OK
               : ax_jvm_error(vm, "a %s cannot be a name", ax_jval_type(call->self));
}

static enum ax_status test_filter(struct ax_jvm *vm, const struct ax_jcall *call,
                                  struct ax_jval *out) {
    AX_TRY(name_argument(vm, call));
    *out = ax_jbool(call->self.kind == AX_JSTR && ax_jfilter_find(call->self.str) != NULL);
    return AX_OK;
}

static enum ax_status test_test(struct ax_jvm *vm, const struct ax_jcall *call,
                                struct ax_jval *out) {
    AX_TRY(name_argument(vm, call));
    *out = ax_jbool(call->self.kind == AX_JSTR && ax_jtest_find(call->self.str) != NULL);
    return AX_OK;
}

static enum ax_status is_case(struct ax_jvm *vm, const struct ax_jcall *call, bool upper,
                              struct ax_jval *out) {
    struct ax_jstr *s;
    AX_TRY(ax_jcall_count(vm, call, 0, 0));
    AX_TRY(ax_jval_soft_str(vm, call->self, &s));
    *out = ax_jbool(ax_jtext_is_case(s, upper));
    return ax_jvm_charge(vm, s->len / 16);
}

static enum ax_status test_lower(struct ax_jvm *vm, const struct ax_jcall *c, struct ax_jval *out) {
    return is_case(vm, c, false, out);
}

static enum ax_status test_upper(struct ax_jvm *vm, const struct ax_jcall *c, struct ax_jval *out) {
    return is_case(vm, c, true, out);
}

const struct ax_jbuiltin *ax_jtest_find(const struct ax_jstr *name) {
    static const struct ax_jbuiltin tests[] = {
        {"string", test_string},
        {"defined", test_defined},
        {"none", test_none},
        {"mapping", test_mapping},
        {"iterable", test_iterable},
        {"sequence", test_sequence},
        {"false", test_false},
        {"undefined", test_undefined},
        {"true", test_true},
        {"boolean", test_boolean},
        {"equalto", test_eq},
        {"eq", test_eq},
        {"==", test_eq},
        {"ne", test_ne},
        {"!=", test_ne},
        {"lt", test_lt},
        {"lessthan", test_lt},
        {"<", test_lt},
        {"le", test_le},
        {"<=", test_le},
        {"gt", test_gt},
        {"greaterthan", test_gt},
        {">", test_gt},
        {"ge", test_ge},
        {">=", test_ge},
        {"in", test_in},
        {"number", test_number},
        {"integer", test_integer},
        {"float", test_float},
        {"odd", test_odd},
        {"even", test_even},
        {"divisibleby", test_divisibleby},
        {"lower", test_lower},
        {"upper", test_upper},
        {"callable", test_callable},
        {"sameas", test_sameas},
        {"escaped", test_escaped},
        {"filter", test_filter},
        {"test", test_test},
        {NULL, NULL},
    };
    return ax_jbuiltin_in(tests, name);
}
