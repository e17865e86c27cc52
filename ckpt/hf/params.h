/* params.json, the configuration of a model in Mistral's own form. Source of the keys and their meaning:
 * mistral-inference (TransformerArgs, MoeArgs) and transformers' convert_mistral_weights_to_hf. Private to
 * ckpt/. */
#ifndef AX_CKPT_HF_PARAMS_H
#define AX_CKPT_HF_PARAMS_H

#include "base/json.h"
#include "kernels/dtype.h"

#define AX_HF_PARAMS "params.json"

/* Is this the path of such a file? */
bool ax_hf_params_is(const char *path);
/* The config.json of a mistral or mixtral with weights of this dtype. AX_ERR_UNSUPPORTED names a key that
 * would change the model and has no place there, such as vision_encoder. Free with json_decref. */
enum ax_status ax_hf_params_config(struct ax_json params, enum ax_dtype dtype, json_t **out);

#endif
