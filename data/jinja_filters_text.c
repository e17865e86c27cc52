/* Filters that make text. Most take any value and turn it into a string first. */
#include "data/jinja_builtin.h"
#include "data/jinja_text.h"

static enum ax_status in_case(struct ax_jvm *vm, const struct ax_jcall *call, enum ax_jletters how,
                              struct ax_jval *out) {
    struct ax_jstr *s;
    AX_TRY(ax_jval_to_str(vm, call->self, &s));
    return ax_jtext_case(vm, how, s, out);
}

static enum ax_status filter_upper(struct ax_jvm *vm, const struct ax_jcall *c,
                                   struct ax_jval *out) {
    return in_case(vm, c, AX_JLETTERS_UPPER, out);
}

static enum ax_status filter_lower(struct ax_jvm *vm, const struct ax_jcall *c,
                                   struct ax_jval *out) {
    return in_case(vm, c, AX_JLETTERS_LOWER, out);
}

static enum ax_status filter_capitalize(struct ax_jvm *vm, const struct ax_jcall *c,
                                        struct ax_jval *out) {
    return in_case(vm, c, AX_JLETTERS_CAPITALIZE, out);
}

static enum ax_status filter_title(struct ax_jvm *vm, const struct ax_jcall *c,
                                   struct ax_jval *out) {
    return in_case(vm, c, AX_JLETTERS_WORDS, out);
}

static enum ax_status filter_trim(struct ax_jvm *vm, const struct ax_jcall *call,
                                  struct ax_jval *out) {
    struct ax_jstr *s, *chars = NULL;
    if (call->v[0].kind != AX_JNONE) {
        AX_TRY(ax_jarg_str(vm, call, "the characters", call->v[0], &chars));
    }
    AX_TRY(ax_jval_to_str(vm, call->self, &s));
    return ax_jtext_strip(vm, AX_JBOTH, s, chars, out);
}

static enum ax_status filter_string(struct ax_jvm *vm, const struct ax_jcall *call,
                                    struct ax_jval *out) {
    out->kind = AX_JSTR;
    return ax_jval_to_str(vm, call->self, &out->str);
}

/* The text as it is; what Jinja would escape when it is added to remembers where it came from. */
static enum ax_status filter_safe(struct ax_jvm *vm, const struct ax_jcall *call,
                                  struct ax_jval *out) {
    struct ax_jstr *s;
    AX_TRY(ax_jval_to_str(vm, call->self, &s));
    out->kind = AX_JSTR;
    AX_TRY(ax_jstr_slice(&vm->arena, &out->str, s, 0, s->len));
    out->str->safe = true;
    return AX_OK;
}

static enum ax_status filter_replace(struct ax_jvm *vm, const struct ax_jcall *call,
                                     struct ax_jval *out) {
    struct ax_jstr *s, *old, *with;
    int64_t count = -1;
    if (call->v[2].kind != AX_JNONE) {
        AX_TRY(ax_jarg_int(vm, call, "the count", call->v[2], &count));
    }
    AX_TRY(ax_jval_to_str(vm, call->self, &s));
    AX_TRY(ax_jval_to_str(vm, call->v[0], &old));
    AX_TRY(ax_jval_to_str(vm, call->v[1], &with));
    return ax_jtext_replace(vm, s, old, with, count, out);
}

/* The unit of indentation: a string, or a number of spaces. */
static enum ax_status indentation(struct ax_jvm *vm, const struct ax_jcall *call, struct ax_jval v,
                                  struct ax_jstr **out) {
    if (v.kind == AX_JSTR) {
        *out = v.str;
        return AX_OK;
    }
    struct ax_jstr space = {.data = " ", .len = 1};
    struct ax_jval text;
    int64_t width = 4;
    AX_TRY(ax_jarg_int(vm, call, "the width", v, &width));
    AX_TRY(ax_jop_binary(vm, AX_JOP_MUL, ax_jstring(&space), ax_jint(width), &text));
    *out = text.str;
    return AX_OK;
}

static enum ax_status filter_indent(struct ax_jvm *vm, const struct ax_jcall *call,
                                    struct ax_jval *out) {
    struct ax_jstr *unit;
    struct ax_jitems lines = {0};
    AX_TRY(indentation(vm, call, call->v[0], &unit));
    if (call->self.kind != AX_JSTR) {
        return ax_jvm_error(vm, "indent needs a str, not a %s", ax_jval_type(call->self));
    }
    /* The added newline makes the last line count even when it is empty. */
    struct ax_jstr newline = {.data = "\n", .len = 1}, *s;
    AX_TRY(ax_jstr_concat(&vm->arena, &s, call->self.str, &newline));
    AX_TRY(ax_jtext_lines(vm, s, false, &lines));
    struct ax_jcapture c = ax_jvm_capture(vm);
    if (ax_jarg_truth(call->v[1], false)) {
        AX_TRY(ax_jvm_put(vm, unit->data, unit->len));
    }
    for (size_t i = 0; i < lines.n; i++) {
        const struct ax_jstr *line = lines.items[i].str;
        if (i > 0) {
            AX_TRY(ax_jvm_puts(vm, "\n"));
            if (line->len > 0 || ax_jarg_truth(call->v[2], false)) {
                AX_TRY(ax_jvm_put(vm, unit->data, unit->len));
            }
        }
        AX_TRY(ax_jvm_put(vm, line->data, line->len));
    }
    out->kind = AX_JSTR;
    AX_TRY(ax_jvm_take(vm, c, &out->str));
    out->str->safe = call->self.str->safe;
    return AX_OK;
}

const struct ax_jbuiltin ax_jfilters_text[] = {
    {"trim", filter_trim, "chars="},
    {"string", filter_string, ""},
    {"safe", filter_safe, ""},
    {"lower", filter_lower, ""},
    {"upper", filter_upper, ""},
    {"capitalize", filter_capitalize, ""},
    {"title", filter_title, ""},
    {"replace", filter_replace, "old new count="},
    {"indent", filter_indent, "width= first= blank="},
    {NULL, NULL, NULL},
};
