/* Errors, limits, output and captures of the running template. */
#include "data/text/jinja/vm.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fit.h"
#include "data/text/jinja/unicode.h"

void ax_jvm_set_error(struct ax_jvm *vm, const char *fmt, ...) {
    char text[1800];
    va_list ap;
    va_start(ap, fmt);
    ax_vfit(text, sizeof text, fmt, ap);
    va_end(ap);
    (void)ax_error(AX_ERR_DATA, "%s:%d: %s", vm->tree->name, vm->line, text);
}

void ax_jvm_set_undefined(struct ax_jvm *vm, struct ax_jval v) {
    const struct ax_jundef *u = v.undef;
    if (u == NULL)
        ax_jvm_set_error(vm, "a value is undefined");
    else if (u->hint != NULL)
        ax_jvm_set_error(vm, "%s", u->hint);
    else if (u->owner == NULL)
        ax_jvm_set_error(vm, "'%.*s' is undefined", (int)u->name->len, u->name->data);
    else if (u->name == NULL)
        ax_jvm_set_error(vm, "a %s has no such element", u->owner);
    else
        ax_jvm_set_error(vm, "a %s has no '%.*s'", u->owner, (int)u->name->len, u->name->data);
}

enum ax_status ax_jvm_charge(struct ax_jvm *vm, size_t work) {
    if (work > vm->max_steps || vm->steps > vm->max_steps - work) {
        return ax_jvm_error(vm, "gave up after %llu steps: does a loop never end?",
                            (unsigned long long)vm->max_steps);
    }
    vm->steps += work;
    return AX_OK;
}

enum ax_status ax_jvm_enter(struct ax_jvm *vm) {
    if (vm->depth >= vm->max_depth) {
        return ax_jvm_error(vm, "nested more than %d deep: does a macro call itself forever?",
                            vm->max_depth);
    }
    vm->depth++;
    return ax_jvm_charge(vm, 1);
}

/* ---- output ---- */

enum ax_status ax_jvm_put(struct ax_jvm *vm, const char *data, size_t n) {
    if (n > vm->max_output || vm->out.len > vm->max_output - n) {
        char text[32];
        return ax_jvm_error(vm, "the text is longer than %s",
                            ax_format_bytes(text, sizeof text, (double)vm->max_output));
    }
    AX_TRY(ax_jvm_charge(vm, 1 + n / 64));
    return ax_buf_append(&vm->out, data, n);
}

enum ax_status ax_jvm_puts(struct ax_jvm *vm, const char *s) {
    return ax_jvm_put(vm, s, strlen(s));
}

enum ax_status ax_jvm_put_char(struct ax_jvm *vm, uint32_t c) {
    char utf8[4];
    return ax_jvm_put(vm, utf8, ax_utf8_encode(c, utf8));
}

enum ax_status ax_jvm_putf(struct ax_jvm *vm, const char *fmt, ...) {
    char text[128];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    AX_ASSERT(n >= 0 && n < (int)sizeof text);
    return ax_jvm_put(vm, text, (size_t)n);
}

struct ax_jcapture ax_jvm_capture(struct ax_jvm *vm) {
    struct ax_jcapture c = {.start = vm->out.len, .outermost = vm->root_end == SIZE_MAX};
    if (c.outermost)
        vm->root_end = c.start;
    return c;
}

/* Ends the capture and leaves its text in place. */
static void keep_capture(struct ax_jvm *vm, struct ax_jcapture c) {
    if (c.outermost)
        vm->root_end = SIZE_MAX;
}

enum ax_status ax_jvm_take(struct ax_jvm *vm, struct ax_jcapture c, struct ax_jstr **out) {
    AX_TRY(ax_jstr_copy(&vm->arena, out, vm->out.data + c.start, vm->out.len - c.start));
    vm->out.len = c.start;
    keep_capture(vm, c);
    return AX_OK;
}

size_t ax_jvm_chars(struct ax_jvm *vm) {
    size_t end = vm->root_end != SIZE_MAX ? vm->root_end : vm->out.len;
    if (end > vm->counted_bytes) {
        vm->counted_chars +=
            ax_python_count(vm->out.data + vm->counted_bytes, end - vm->counted_bytes);
        vm->counted_bytes = end;
    }
    return vm->counted_chars;
}

/* ---- variables ---- */

struct ax_jval ax_jscope_get(const struct ax_jvm *vm, const struct ax_jscope *s, uint32_t name) {
    for (; s != NULL; s = s->parent) {
        for (size_t i = 0; i < s->n; i++)
            if (s->vars[i].name == name)
                return s->vars[i].value;
    }
    return vm->globals[name];
}

enum ax_status ax_jscope_set(struct ax_jvm *vm, struct ax_jscope *s, uint32_t name,
                             struct ax_jval v) {
    if (s == NULL) {
        vm->globals[name] = v;
        return AX_OK;
    }
    for (size_t i = 0; i < s->n; i++) {
        if (s->vars[i].name == name) {
            s->vars[i].value = v;
            return AX_OK;
        }
    }
    if (s->n == s->cap) {
        struct ax_jvar *vars;
        size_t cap = s->cap > 0 ? 2 * s->cap : 4;
        AX_TRY(ax_jarena_alloc(&vm->arena, &vars, cap, sizeof *vars));
        if (s->n > 0)
            memcpy(vars, s->vars, s->n * sizeof *vars);
        s->vars = vars;
        s->cap = cap;
    }
    AX_TRY(ax_jvm_charge(vm, 1 + s->n / 16)); /* the search is linear */
    s->vars[s->n++] = (struct ax_jvar){name, v};
    return AX_OK;
}
