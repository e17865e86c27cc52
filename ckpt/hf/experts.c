#include "ckpt/hf/experts.h"

#include <string.h>

#include "base/mem.h"
#include "ckpt/hf/hf.h"

#define STACK       "gate_up_proj"
#define MAX_EXPERTS 65536

/* Of a layer. */
struct stack {
    const struct ax_st_entry *gate_up, *down;
    int64_t experts, width, hidden;
};

static bool ends_in(const char *name, const char *end) {
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

static const struct ax_st_entry *find(int n, const struct ax_st_entry *const *given,
                                      const char *stem, size_t length, const char *end) {
    for (int i = 0; i < n; i++)
        if (strncmp(given[i]->name, stem, length) == 0 && strcmp(given[i]->name + length, end) == 0)
            return given[i];
    return NULL;
}

/* layers.N.experts.… */
static bool below_layer(const char *name) {
    const char *layer = strstr(name, "layers.");
    const char *after = layer ? layer + strlen("layers.") : name;
    after += strspn(after, "0123456789");
    return strcmp(after, ".experts." STACK) == 0;
}

/* The stack that begins with entry i, if one does. */
static bool begins_stack(int n, const struct ax_st_entry *const *given, int i, struct stack *s) {
    const struct ax_st_entry *e = given[i];
    if (!ends_in(e->name, ".experts." STACK) || ax_hf_layer_of(e->name) < 0 || below_layer(e->name))
        return false;
    const struct ax_st_entry *down =
        find(n, given, e->name, strlen(e->name) - strlen(STACK), "down_proj");
    if (!down || e->ndim != 3 || down->ndim != 3 || !e->data || !down->data)
        return false;
    *s = (struct stack){e, down, e->shape[0], down->shape[2], e->shape[2]};
    return s->experts == down->shape[0] && s->experts >= 1 && s->experts <= MAX_EXPERTS &&
           e->shape[1] == 2 * s->width && down->shape[1] == s->hidden;
}

/* Matrix `at` of a stack's tensor, counted in matrices of this size, of expert e. */
static enum ax_status add(struct ax_hf_experts *x, const struct ax_st_entry *stack, int64_t e,
                          int64_t at, const char *name, int64_t rows, int64_t cols) {
    const size_t bytes = (size_t)(rows * cols) * ax_dtype_size(stack->dtype);
    const char *layer = stack->name;
    const unsigned char *data = stack->data;
    char **own = &x->names[x->n_names];
    AX_TRY(ax_sprintf(own, "%.*s%lld.%s.weight", (int)(strrchr(layer, '.') + 1 - layer), layer,
                      (long long)e, name));
    x->n_names++;
    struct ax_st_entry *one = &x->entries[x->n++];
    *one = *stack;
    one->name = *own;
    one->ndim = 2;
    one->shape[0] = rows;
    one->shape[1] = cols;
    one->shape[2] = 0;
    one->numel = rows * cols;
    one->data = data + (size_t)at * bytes;
    one->bytes = bytes;
    return AX_OK;
}

static enum ax_status add_stack(struct ax_hf_experts *x, const struct stack *s) {
    for (int64_t e = 0; e < s->experts; e++) {
        AX_TRY(add(x, s->gate_up, e, 2 * e, "gate_proj", s->width, s->hidden));
        AX_TRY(add(x, s->gate_up, e, 2 * e + 1, "up_proj", s->width, s->hidden));
        AX_TRY(add(x, s->down, e, e, "down_proj", s->hidden, s->width));
    }
    return AX_OK;
}

static bool is_stacked(const struct ax_st_entry *e, const struct stack *stacks, int n) {
    for (int i = 0; i < n; i++)
        if (e == stacks[i].gate_up || e == stacks[i].down)
            return true;
    return false;
}

static enum ax_status fill(struct ax_hf_experts *x, int n, const struct ax_st_entry *const *given,
                           const struct stack *stacks, int n_stacks) {
    for (int i = 0; i < n_stacks; i++)
        AX_TRY(add_stack(x, &stacks[i]));
    for (int i = 0; i < n; i++)
        if (!is_stacked(given[i], stacks, n_stacks))
            x->entries[x->n++] = *given[i];
    ax_st_sort(x->entries, x->n);
    return AX_OK;
}

enum ax_status ax_hf_experts_open(struct ax_hf_experts *x, int n,
                                  const struct ax_st_entry *const *given) {
    struct stack *stacks = NULL;
    int n_stacks = 0;
    size_t n_names = 0;
    enum ax_status st = AX_OK;
    *x = (struct ax_hf_experts){0};
    AX_TRY(ax_alloc(&stacks, (size_t)n, sizeof *stacks));
    for (int i = 0; i < n; i++)
        if (begins_stack(n, given, i, &stacks[n_stacks]))
            n_names += 3 * (size_t)stacks[n_stacks++].experts;
    if (n_stacks == 0)
        goto done;
    AX_TRY_GOTO(ax_alloc(&x->names, n_names, sizeof *x->names), st, done);
    AX_TRY_GOTO(ax_alloc(&x->entries, (size_t)n + n_names, sizeof *x->entries), st, done);
    AX_TRY_GOTO(fill(x, n, given, stacks, n_stacks), st, done);
done:
    ax_free(stacks);
    return st;
}

void ax_hf_experts_close(struct ax_hf_experts *x) {
    for (int i = 0; i < x->n_names; i++)
        ax_free(x->names[i]);
    ax_free(x->names);
    ax_free(x->entries);
    *x = (struct ax_hf_experts){0};
}
