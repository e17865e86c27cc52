/* The number formats and the schemes made of them: one table for training, merging, export and
 * evaluation. A format says how one tensor is quantized (kernels/ops.h has the formulas); a scheme
 * names a format for weights and one for the activations that meet them. docs/quantization.md shows
 * the table. */
#ifndef AX_KERNELS_QUANT_SCHEME_H
#define AX_KERNELS_QUANT_SCHEME_H

#include "kernels/ops.h"

/* Elements of a row that share a scale, beside a number of them. */
#define AX_BLOCK_ROW    0
#define AX_BLOCK_TENSOR (-1)

struct ax_quant_info {
    const char *name;
    enum ax_dtype codes, scale;
    /* [16], of codes two in a byte: value = values[code]·s; NULL = one per byte */
    const float *values;
    bool offset;   /* has offsets */
    bool fakes;    /* has fake quantization */
    bool clips;    /* its backward is not the identity: values are clamped */
    int64_t outer; /* block of a second scale: AX_BLOCK_ROW, AX_BLOCK_TENSOR; 1 = there is none */
};
const struct ax_quant_info *ax_quant_info(enum ax_quant kind);
int64_t ax_quant_code_bytes(enum ax_quant kind, int64_t n); /* bytes of the codes of n elements */

/* How one tensor is quantized. */
struct ax_number_format {
    enum ax_quant kind;
    int64_t block; /* elements, AX_BLOCK_ROW or AX_BLOCK_TENSOR */
};

/* How a scheme's weights are stored in a folder (compressed-tensors' names), or in a file. */
enum ax_file_form {
    AX_FORM_NONE, /* no file form */
    AX_FORM_GGUF, /* one file of llama.cpp's blocks */
    AX_FORM_PACKED,
    AX_FORM_INT8,
    AX_FORM_FLOAT,
    AX_FORM_NVFP4,
    /* read only */
    AX_FORM_MODELOPT4, /* its codes of 4 bits */
    AX_FORM_GPTQ,
    AX_FORM_AWQ,
    AX_FORM_BNB4,
    AX_FORM_BNB8
};
const char *ax_file_form_name(enum ax_file_form form); /* "pack-quantized"; NULL = no folder */

struct ax_scheme {
    const char *name;
    struct ax_number_format weight;
    bool quantizes_input;
    /* dynamic format of activations, if quantizes_input. Never per tensor, because padding would
     * change it */
    struct ax_number_format input;
    /* training in 8-bit floats: gradients of outputs are quantized, too. By tensor; or by row where a product
     * sums over columns, and by column where it sums over rows */
    bool quantizes_grad;
    struct ax_number_format grad;
    bool trains; /* qat accepts it */
    bool groups; /* weight.block may be another */
    /* For AX_FORM_GGUF: the types of its tensors (ckpt/gguf/types.h), which have blocks and
     * rounding of their own; `weight` is unused. */
    const char *gguf;
    /* Set by a run: the matrices of the embedding and of the head are quantized, too. */
    bool embedding, head;
    enum ax_file_form form;
    const char *readers, *what; /* for people */
    const char *nearest;        /* for AX_FORM_NONE: the nearest scheme that has a file form */
};
/* FP8 training: e4m3 for weights and activations; gradients in e5m2, which PyTorch and Transformer Engine
 * call hybrid, or in e4m3. "tensorwise", "rowwise" (torchao's names); AX_ERR_CONFIG lists them. */
enum ax_status ax_fp8_recipe(const char *name, bool e4m3_grad, struct ax_scheme *out);
/* The i-th name; NULL after the last. */
const char *ax_fp8_recipe_name(size_t i);

/* For AX_FORM_NONE, in a configuration. */
#define AX_NO_FILE_FORM                                                                            \
    "no file holds it, so `axtrain quantize` writes none; int4, int8, fp8 and nvfp4 have one "     \
    "(docs/quantization.md)"

/* The table; ends with a row whose name is NULL. */
extern const struct ax_scheme ax_schemes[];
/* AX_ERR_CONFIG names the nearest one; `key` is what the user wrote it for. */
enum ax_status ax_scheme_find(const char *key, const char *name, struct ax_scheme *out);

/* The same among schemes that can be trained for. */
enum ax_status ax_scheme_find_trained(const char *key, const char *name, struct ax_scheme *out);

/* AX_ERR_CONFIG: blocks of `block` numbers do not divide the inputs of a matrix; `who` wants them, and `setting` is where
 * a scheme with groups has another number, with the nearest one that does. */
enum ax_status ax_scheme_refuse_inputs(const struct ax_scheme *s, const char *who,
                                       const char *setting, int64_t block, int64_t inputs,
                                       const char *matrix);

/* The scheme of a model whose head is its embedding, if tied: both are quantized, or neither. */
struct ax_scheme ax_scheme_of_model(const struct ax_scheme *s, bool tied);

#endif
