#include "ckpt/hf/experts.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ckpt/hf/hf.h"

#define STACK        "gate_up_proj"
#define MAX_MATRICES 1000000 /* as many tensors as a file may have */

const struct ax_expert_form ax_expert_forms[] = {
    {".feed_forward.experts", ".feed_forward.experts.gate_up_proj",
     ".feed_forward.experts.down_proj", .turned = true},
    {".block_sparse_moe.experts", ".block_sparse_moe.input_linear.weight",
     .down = ".block_sparse_moe.output_linear.weight"},
    {".mlp.experts", ".mlp.experts.gate_up_proj", ".mlp.experts.down_proj", .usual = true},
    /* Gemma 4, whose folders have either name of the module */
    {".experts", ".experts.gate_up_proj", .down = ".experts.down_proj"},
    {".moe.experts", ".experts.gate_up_proj", .down = ".experts.down_proj"},
    {0}};

bool ax_hf_keeps_stacks(const json_t *config) {
    const json_t *text = json_object_get(config, "text_config");
    const char *type = json_string_value(json_object_get(text ? text : config, "model_type"));
    return type && strcmp(type, "mistral4") == 0;
}

/* The two stacks of a layer's experts, and their sizes. */
struct stack {
    const struct ax_st_entry *gate_up, *down;
    int down_at; /* index among the given entries */
    /* the matrices' module: their names are the first `prefix` characters of the stack's name, then
     * this, then .E.gate_proj.weight */
    const char *module;
    size_t prefix;
    bool turned;
    int64_t experts, width, hidden;
};

/* Element [i][j] of a matrix is element [j][i] of what the stack has, columns of which are skipped. */
struct ax_turned_matrix {
    const unsigned char *first; /* element [0][0] */
    int64_t cols, stride;       /* of the matrix; elements from one column to the next */
    size_t size;                /* bytes of an element */
};

static bool ends_in(const char *name, const char *end) {
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

/* The entry whose name is the first `length` characters of `stem`, then `end`; −1: none is. */
static int find(int n, const struct ax_st_entry *const *given, const char *stem, size_t length,
                const char *end) {
    int low = 0, high = n;
    while (low < high) {
        const int mid = low + (high - low) / 2;
        const char *name = given[mid]->name;
        const int first = strncmp(name, stem, length);
        const int order = first ? first : strcmp(name + length, end);
        if (order == 0)
            return mid;
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return -1;
}

const char *ax_hf_below_layer(const char *name) {
    const char *layer = strstr(name, "layers.");
    const char *after = layer ? layer + strlen("layers.") : name + strlen(name);
    return after + strspn(after, "0123456789");
}

/* Sizes of a stack whose first tensor is known, with the other one; false: they do not fit each other. */
static bool fits(struct stack *s, const struct ax_st_entry *const *given) {
    const struct ax_st_entry *up = s->gate_up, *down = s->down_at < 0 ? NULL : given[s->down_at];
    const int in = s->turned ? 1 : 2, out = 3 - in;
    s->down = down;
    if (!down || up->ndim != 3 || down->ndim != 3 || !up->data || !down->data)
        return false;
    s->experts = up->shape[0];
    s->width = down->shape[in];
    s->hidden = up->shape[in];
    /* An expert has elements, so that a file is as large as the list of its experts. */
    return s->width >= 1 && s->hidden >= 1 && s->experts == down->shape[0] && s->experts >= 1 &&
           s->experts <= AX_HF_MAX_EXPERTS && up->shape[out] == 2 * s->width &&
           down->shape[out] == s->hidden;
}

/* Is entry i the first of a stack? The entries are sorted by name. */
typedef bool begins_fn(int n, const struct ax_st_entry *const *given, int i, struct stack *s);

static bool begins_usual(int n, const struct ax_st_entry *const *given, int i, struct stack *s) {
    const char *name = given[i]->name;
    if (!ends_in(name, ".experts." STACK) || ax_hf_layer_of(name) < 0 ||
        strcmp(ax_hf_below_layer(name), ".experts." STACK) == 0)
        return false;
    const size_t stem = strlen(name) - strlen(STACK);
    *s = (struct stack){.gate_up = given[i],
                        .down_at = find(n, given, name, stem, "down_proj"),
                        .module = "",
                        .prefix = stem - 1};
    return fits(s, given);
}

static bool begins_form(int n, const struct ax_st_entry *const *given, int i, struct stack *s) {
    const char *name = given[i]->name, *below = ax_hf_below_layer(name);
    const size_t prefix = (size_t)(below - name);
    const struct ax_expert_form *f = ax_expert_forms;
    while (f->module && strcmp(f->gate_up, below) != 0)
        f++;
    if (!f->module || ax_hf_layer_of(name) < 0)
        return false;
    *s = (struct stack){.gate_up = given[i],
                        .down_at = find(n, given, name, prefix, f->down),
                        .module = f->module,
                        .prefix = prefix,
                        .turned = f->turned};
    return fits(s, given);
}

static enum ax_status read_turned(void *ctx, int64_t first, int64_t n, void *out) {
    const struct ax_turned_matrix *m = ctx;
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = (first + i) / m->cols, col = (first + i) % m->cols;
        memcpy((char *)out + (size_t)i * m->size,
               m->first + (size_t)(col * m->stride + row) * m->size, m->size);
    }
    return AX_OK;
}

/* The matrix of expert e whose rows are outputs [from, from + rows) of those that `tensor` has. */
static enum ax_status add(struct ax_hf_experts *x, const struct stack *s,
                          const struct ax_st_entry *tensor, int64_t e, const char *name,
                          int64_t from, int64_t rows) {
    const int64_t cols = tensor->shape[s->turned ? 1 : 2], all = tensor->shape[s->turned ? 2 : 1];
    const size_t size = ax_dtype_size(tensor->dtype);
    const unsigned char *own = tensor->data; /* the expert's, of which `data` is a part */
    own += (size_t)(e * all * cols) * size;
    const unsigned char *data = own + (size_t)(from * (s->turned ? 1 : cols)) * size;
    const int at = x->n_names;
    AX_TRY(ax_sprintf(&x->names[at], "%.*s%s.%lld.%s.weight", (int)s->prefix, tensor->name,
                      s->module, (long long)e, name));
    x->n_names++;
    struct ax_st_entry *one = &x->entries[x->n++];
    *one = *tensor;
    one->name = x->names[at];
    one->ndim = 2;
    one->shape[0] = rows;
    one->shape[1] = cols;
    one->shape[2] = 0;
    one->numel = rows * cols;
    one->data = data;
    one->bytes = (size_t)one->numel * size;
    if (!s->turned)
        return AX_OK;
    x->turned[at] = (struct ax_turned_matrix){data, cols, all, size};
    one->data = NULL;
    one->read = read_turned;
    one->ctx = &x->turned[at];
    /* gate and up lie side by side: up, which is read last, releases both */
    if (from + rows == all) {
        one->stored = own;
        one->stored_bytes = (size_t)(all * cols) * size;
    }
    return AX_OK;
}

static enum ax_status add_stack(struct ax_hf_experts *x, const struct stack *s) {
    for (int64_t e = 0; e < s->experts; e++) {
        AX_TRY(add(x, s, s->gate_up, e, "gate_proj", 0, s->width));
        AX_TRY(add(x, s, s->gate_up, e, "up_proj", s->width, s->width));
        AX_TRY(add(x, s, s->down, e, "down_proj", 0, s->hidden));
    }
    return AX_OK;
}

/* A folder's entries, and the stacks among them. */
struct stacks {
    const struct ax_st_entry **given; /* [n], sorted by name */
    bool *taken;                      /* [n]: of a stack */
    struct stack *list;
    int n_stacks;
    size_t n_names;
};

static int by_name(const void *a, const void *b) {
    return strcmp((*(const struct ax_st_entry *const *)a)->name,
                  (*(const struct ax_st_entry *const *)b)->name);
}

static enum ax_status find_stacks(struct stacks *s, int n, const struct ax_st_entry *const *given,
                                  begins_fn *begins) {
    AX_TRY(ax_alloc(&s->given, (size_t)n, sizeof *s->given));
    AX_TRY(ax_alloc(&s->taken, (size_t)n, sizeof *s->taken));
    AX_TRY(ax_alloc(&s->list, (size_t)n, sizeof *s->list));
    for (int i = 0; i < n; i++)
        s->given[i] = given[i];
    qsort(s->given, (size_t)n, sizeof *s->given, by_name);
    for (int i = 0; i < n; i++) {
        struct stack *one = &s->list[s->n_stacks];
        if (!begins(n, s->given, i, one))
            continue;
        s->taken[i] = s->taken[one->down_at] = true;
        s->n_names += 3 * (size_t)one->experts;
        s->n_stacks++;
    }
    return AX_OK;
}

static enum ax_status fill(struct ax_hf_experts *x, int n, const struct stacks *s) {
    AX_TRY(ax_alloc(&x->names, s->n_names, sizeof *x->names));
    AX_TRY(ax_alloc(&x->turned, s->n_names, sizeof *x->turned));
    AX_TRY(ax_alloc(&x->entries, (size_t)n + s->n_names, sizeof *x->entries));
    for (int i = 0; i < s->n_stacks; i++)
        AX_TRY(add_stack(x, &s->list[i]));
    for (int i = 0; i < n; i++)
        if (!s->taken[i])
            x->entries[x->n++] = *s->given[i];
    ax_st_sort(x->entries, x->n);
    return AX_OK;
}

static enum ax_status split(struct ax_hf_experts *x, int n, const struct ax_st_entry *const *given,
                            begins_fn *begins) {
    struct stacks s = {0};
    *x = (struct ax_hf_experts){0};
    enum ax_status st = find_stacks(&s, n, given, begins);
    if (st == AX_OK && s.n_names > MAX_MATRICES)
        st = ax_error(AX_ERR_UNSUPPORTED,
                      "%s: its stacks of experts have %zu matrices; at most %d are supported",
                      s.list[0].gate_up->file, s.n_names, MAX_MATRICES);
    else if (st == AX_OK && s.n_stacks > 0)
        st = fill(x, n, &s);
    ax_free(s.given);
    ax_free(s.taken);
    ax_free(s.list);
    return st;
}

enum ax_status ax_hf_experts_open(struct ax_hf_experts *x, int n,
                                  const struct ax_st_entry *const *given) {
    return split(x, n, given, begins_usual);
}

enum ax_status ax_hf_experts_split(struct ax_hf_experts *x, int n,
                                   const struct ax_st_entry *const *given) {
    return split(x, n, given, begins_form);
}

void ax_hf_experts_close(struct ax_hf_experts *x) {
    for (int i = 0; i < x->n_names; i++)
        ax_free(x->names[i]);
    ax_free(x->names);
    ax_free(x->turned);
    ax_free(x->entries);
    *x = (struct ax_hf_experts){0};
}
