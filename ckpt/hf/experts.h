/* Folders that have a layer's experts stacked in two tensors, as Qwen3.5's mixtures are published:
 *
 *   NAME.gate_up_proj [E][2·I][H], of which the gate has the first I rows, and NAME.down_proj [E][H][I]
 *
 * with NAME model.layers.N.….experts. They are read as matrices of one expert each, under the names that other
 * mixtures have: NAME.E.gate_proj.weight and NAME.E.up_proj.weight [I][H], NAME.E.down_proj.weight [H][I]. Stacks of
 * transposed matrices, as gpt-oss has them, do not fit these shapes and stay as they are, as do those of no layer, and
 * those right below a layer, layers.N.experts (Gemma 4), and those of the models that ax_hf_keeps_stacks names, of which
 * transformers reads no other form.
 *
 * The stacks that stay as they are have other forms in quantized folders, in which scales belong to matrices: one
 * matrix per expert, under the names in ax_expert_forms. ax_hf_experts_split takes those stacks apart, too; joined.h
 * makes stacks of the matrices. */
#ifndef AX_CKPT_HF_EXPERTS_H
#define AX_CKPT_HF_EXPERTS_H

#include <jansson.h>

#include "ckpt/tensors/entry.h"

enum { AX_HF_MAX_EXPERTS = 65536 }; /* experts of a layer */

/* Names as they follow layers.N. */
struct ax_expert_form {
    const char *module;         /* MODULE.E.gate_proj.weight … */
    const char *gate_up, *down; /* their stacks */
    bool turned;                /* stacks of transposed matrices, [E][in][out] */
    bool usual;                 /* names of other mixtures, too: only if ax_hf_keeps_stacks */
};
extern const struct ax_expert_form ax_expert_forms[]; /* ends with a zeroed one */
/* Are stacks under the usual names those of the model, which no folder has apart? By config.json, or NULL. */
bool ax_hf_keeps_stacks(const json_t *config);
/* What follows the first "layers." and its digits, of which there may be none, in a tensor's name; "" without "layers.".
 * ax_hf_layer_of says whether the tensor is of a layer. */
const char *ax_hf_below_layer(const char *name);

struct ax_turned_matrix;
struct ax_hf_experts {
    int n;
    struct ax_st_entry *entries; /* [n], sorted by name; those of no stack are the given ones */
    int n_names;
    char **names;                    /* [n_names] of experts' matrices */
    struct ax_turned_matrix *turned; /* [n_names], of those that are read transposed */
};

/* Makes a list of a folder's n entries, which the caller keeps, with matrices in place of stacks. x->n = 0: none is such
 * a stack. The caller closes *x, also after an error. AX_ERR_UNSUPPORTED: there are more than a million matrices. */
enum ax_status ax_hf_experts_open(struct ax_hf_experts *x, int n,
                                  const struct ax_st_entry *const *given);
/* The same for stacks in one of the forms. */
enum ax_status ax_hf_experts_split(struct ax_hf_experts *x, int n,
                                   const struct ax_st_entry *const *given);
void ax_hf_experts_close(struct ax_hf_experts *x); /* safe on a zeroed one */

#endif
