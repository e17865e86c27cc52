/* Folders of compressed-tensors (the format of llm-compressor, vLLM and transformers): matrices as
 * codes and scales, which config.json's quantization_config describes.
 *
 *   pack-quantized        X.weight_packed I32, 4 or 8 bits per code, the first lowest, plus half the
 *                         range, each row from a word on; X.weight_scale [out][in/group]; X.weight_shape;
 *                         with actorder: group, X.weight_g_idx I32 [in], the group of each input; if
 *                         asymmetric, X.weight_zero_point I32 [out/(32/bits)][in/group], packed along outputs
 *   int-quantized         X.weight I8, also of 4 bits; X.weight_scale [out][in/group], [out][1] or [1];
 *                         if asymmetric, X.weight_zero_point I8 of the scales' shape
 *   float-quantized       X.weight F8_E4M3; X.weight_scale [out][1], or [1], or by blocks as DeepSeek's
 *   nvfp4-pack-quantized  X.weight_packed U8, two codes per byte, the first lowest; X.weight_scale
 *                         F8_E4M3 [out][in/16]; X.weight_global_scale [1], by which values are divided
 *   mxfp4-pack-quantized  X.weight_packed as above; X.weight_scale U8 or F8_E8M0 [out][in/32], powers of two
 *   mxfp8-quantized       X.weight F8_E4M3; X.weight_scale as of MXFP4
 *
 * of DeepSeek's, which transformers calls fp8:
 *
 *   X.weight F8_E4M3; X.weight_scale_inv [⌈out/128⌉][⌈in/128⌉], or one (Mistral's), by which values are multiplied; powers
 *   of two may be F8_E8M0
 *
 * of AutoFP8's, which calls itself fp8, too:
 *
 *   X.weight F8_E4M3; X.weight_scale, one, by which values are multiplied; X.input_scale, which is not used
 *
 * of GPTQModel's FP8, which calls itself fp8, too:
 *
 *   X.weight F8_E4M3; X.weight_scale_inv [out], one, or by blocks, by which values are divided
 *
 * of Model Optimizer's (NVIDIA's, quant_method modelopt):
 *
 *   NVFP4  X.weight U8, two codes per byte, the first lowest; X.weight_scale F8_E4M3 [out][in/16]; X.weight_scale_2, one, by
 *          which those are multiplied
 *   MXFP4  X.weight as of NVFP4; X.weight_scale U8 [out][in/32], powers of two
 *   FP8    X.weight F8_E4M3; X.weight_scale, one, or [out]; of MXFP8 U8 [out][in/32]
 *
 * of GPTQ's (Frantar et al. 2023), as AutoGPTQ and GPTQModel pack them, with 32/bits codes in a word:
 *
 *   X.qweight I32 [in/(32/bits)][out]: codes of one output, the first input lowest; X.scales [groups][out];
 *   X.qzeros I32 [groups][out/(32/bits)], the first output lowest: zeros less 1 modulo 2^bits, or in gptq_v2 zeros;
 *   X.g_idx I32 [in]: the group of each input, which with desc_act may be any; without it, in/group_size, so that the
 *   last group may have fewer inputs.
 *   value = scale·(code - zero)
 *
 * of AWQ's (Lin et al. 2023) in the layout gemm, as AutoAWQ and GPTQModel pack them, with 8 codes in a word:
 *
 *   X.qweight I32 [in][out/8]: codes of one input, outputs 0 2 4 6 1 3 5 7 from the lowest; X.scales [groups][out];
 *   X.qzeros I32 [groups][out/8], in the same order
 *   value = scale·(code - zero), in the scales' dtype
 *
 * and of bitsandbytes' (Dettmers et al. 2022, 2023):
 *
 *   X.weight, the bytes of a flattened matrix, two codes in each, the first highest; X.weight.quant_map [16], what nf4's
 *   or fp4's codes mean; X.weight.absmax [blocks]; X.weight.quant_state.bitsandbytes__nf4 (or __fp4), JSON with shape, size of
 *   blocks and the dtype of values; if absmax are U8, they are nested: X.weight.nested_quant_map [256] and .nested_absmax
 *   value = map[code]·absmax; absmax = nested_map[code]·nested_absmax + offset
 *
 *   X.weight I8; X.SCB [out]
 *   value = code·SCB·(1/127)
 *
 * Read, each is a matrix X.weight with the values that quantization-aware training used, in float32, or in the dtype that
 * AutoAWQ and bitsandbytes unpack it to. */
#ifndef AX_CKPT_HF_COMPRESSED_H
#define AX_CKPT_HF_COMPRESSED_H

#include "base/text/json.h"
#include "ckpt/tensors/entry.h"
#include "kernels/quant/scheme.h"

/* ---- config.json ---- */

/* The quantization_config of a scheme. If the scheme includes the embedding, it has a group for it;
 * if it includes the head, `ignore` does not name it. AX_ERR_UNSUPPORTED if the format cannot
 * express the scheme. */
enum ax_status ax_compressed_config(const struct ax_scheme *s, json_t **out);

/* How the matrices of a folder are stored. */
struct ax_compressed_format {
    enum ax_file_form form;
    enum ax_quant kind;
    int bits;      /* a code as it is stored */
    int64_t block; /* as in struct ax_number_format */
    int64_t rows;  /* > 0: a scale covers `rows` rows of `block` elements, fewer at the edges */
    bool offset;   /* asymmetric: zero points beside the scales; value = scale·(code - zero) */
    bool inverse;  /* scales are named weight_scale_inv */
    bool divides;  /* value = code / scale */
    unsigned zero_offset; /* GPTQ: number added to stored zeros */
    bool ordered;         /* GPTQ: each matrix needs g_idx */
    bool symmetric;       /* GPTQ: zeros are half the range */
};
/* Those of a folder: each matrix has the first one that its tensors fit. */
#define AX_COMPRESSED_FORMATS 16
struct ax_compressed_formats {
    int n; /* > 0 */
    struct ax_compressed_format of[AX_COMPRESSED_FORMATS];
};
/* Parses quantization_config; AX_ERR_UNSUPPORTED names what is not supported. */
enum ax_status ax_compressed_parse(struct ax_json config, struct ax_compressed_formats *out);
/* The format of the activations that the matrices are multiplied with, dynamic per token; false:
 * none, one that is not supported, or groups of linears that differ. */
bool ax_compressed_inputs(struct ax_json config, struct ax_number_format *out);
/* The key of what else the model's programs round while it runs, and this one does not: activations in another format, or the
 * KV cache; NULL: nothing. */
const char *ax_compressed_unfollowed(struct ax_json config);
/* The format of a scheme that has a file form. */
struct ax_compressed_format ax_compressed_of(const struct ax_scheme *s);

/* ---- reading ---- */

struct ax_compressed_matrix;
struct ax_compressed {
    int n; /* number of all tensors: quantized matrices, and tensors that are stored as they are */
    struct ax_st_entry *entries; /* sorted by name */
    struct ax_compressed_matrix *matrices;
    int n_matrices;
};
/* Opens the entries of the folder `dir` (borrowed); AX_ERR_DATA names a matrix without its scale,
 * or of the wrong shape. */
enum ax_status ax_compressed_open(struct ax_compressed *c, const char *dir,
                                  const struct ax_compressed_formats *formats, int n,
                                  const struct ax_st_entry *const *entries);
void ax_compressed_close(struct ax_compressed *c);

/* ---- codes ---- */

/* Packs n codes, given one per byte, as the file stores them: 4 bits two per byte, the first
 * lowest; integers of pack-quantized are shifted by half their range. Returns the number of bytes
 * written. */
int64_t ax_compressed_pack(const struct ax_compressed_format *f, const unsigned char *codes,
                           int64_t n, unsigned char *out);

#endif
