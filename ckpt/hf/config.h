/* A model folder's configuration in the terms of config.json. Of a folder in Mistral's own form, that is
 * what its params.json says (params.h). */
#ifndef AX_CKPT_HF_CONFIG_H
#define AX_CKPT_HF_CONFIG_H

#include "base/json.h"

/* Reads DIR/config.json, or if there is none DIR/params.json; leaves *doc zeroed if there is neither. */
enum ax_status ax_hf_config_load(struct ax_json_doc *doc, const char *dir);
/* Reads one file; of a params.json, what it means. */
enum ax_status ax_hf_config_read(struct ax_json_doc *doc, const char *path);

#endif
