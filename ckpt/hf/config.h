/* A model folder's config.json. */
#ifndef AX_CKPT_HF_CONFIG_H
#define AX_CKPT_HF_CONFIG_H

#include "base/text/json.h"

/* Reads DIR/config.json; leaves *doc zeroed if there is none. If it has no quantization_config, what Model Optimizer
 * wrote to DIR/hf_quant_config.json becomes it, with the quant_method modelopt. */
enum ax_status ax_hf_config_load(struct ax_json_doc *doc, const char *dir);
/* Reads one file. AX_ERR_UNSUPPORTED for a params.json, as below. */
enum ax_status ax_hf_config_read(struct ax_json_doc *doc, const char *path);
/* AX_ERR_UNSUPPORTED, with the remedy, if DIR has files of Mistral's own form, params.json or
 * consolidated*.safetensors: for a folder that lacks Hugging Face's. */
enum ax_status ax_hf_refuse_own_form(const char *dir);
/* AX_ERR_UNSUPPORTED, with the remedy, for the file `name` of a folder or repository `where`. */
enum ax_status ax_hf_refuse_own_file(const char *where, const char *name);
/* True if a file has the name of one in Mistral's own form. */
bool ax_hf_is_own_file(const char *name);

/* True for the config.json of a model with a text model within it (hf.h). */
bool ax_config_is_wrapper(const json_t *config);
/* The part of a config about the text model; in older configs of a few families it is the root. */
json_t *ax_config_text(json_t *config);

#endif
