/* Folders of a model that contains a text model beside other parts, such as a vision tower: its
 * tensors have a prefix, and its config is text_config in config.json.
 *
 * Such a folder opens as the text model alone. A save with it as the base contains the other parts
 * bit for bit, and the text model's tensors under the folder's names. */
#ifndef AX_CKPT_HF_WRAPPED_H
#define AX_CKPT_HF_WRAPPED_H

#include "base/text/json.h"
#include "ckpt/tensors/entry.h"

struct ax_hf;

/* Prefixes of the text model's names, "model.layers.0…" and "lm_head.weight": in the files, and in
 * the modules of transformers, which adapters name. */
struct ax_wrapping {
    const char *body, *head;
    const char *module; /* prefix before "model."; the head has none */
};

struct ax_hf_wrapped {
    const struct ax_wrapping *names;
    int n_text, n_others;
    struct ax_st_entry *text;   /* [n_text], sorted, under their names in a text model of its own */
    struct ax_st_entry *others; /* [n_others], under their names in the folder */
};

/* True for the config.json of such a model. */
bool ax_config_is_wrapper(const json_t *config);
/* The part of a config about the text model; in older configs of a few families it is the root. */
json_t *ax_config_text(json_t *config);

/* Replaces the entries of hf by the text model's. AX_ERR_DATA: it contains none. */
enum ax_status ax_hf_wrapped_open(struct ax_hf *hf);
void ax_hf_wrapped_close(struct ax_hf_wrapped *w);

/* *out = a text model's tensor name as the folder spells it; free with ax_free. */
enum ax_status ax_wrapping_name(const struct ax_wrapping *names, const char *name, char **out);
/* The end of `name` that is the name in a text model of its own; *module is its wrapping's
 * `module`, or NULL if it has none. Names in adapters must be given without PEFT's prefix. */
const char *ax_wrapping_strip(const char *name, const char **module);

#endif
