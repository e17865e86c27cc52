/* Folders of a model that contains a text model beside other parts, such as a vision tower: its
 * tensors have a prefix, and its config is text_config in config.json.
 *
 * Such a folder opens as that of the text model alone. What else it has, a save with it as the base
 * contains bit for bit, and the text model's tensors under the folder's names. */
#ifndef AX_CKPT_HF_WRAPPED_H
#define AX_CKPT_HF_WRAPPED_H

#include "base/text/json.h"
#include "ckpt/tensors/entry.h"

struct ax_hf;

/* What precedes the names of the text model, "model.layers.0…" and "lm_head.weight": in the files, and
 * in the modules of transformers, which adapters name. */
struct ax_wrapping {
    const char *body, *head;
    const char *module; /* before "model."; the head has none */
};

struct ax_hf_wrapped {
    const struct ax_wrapping *names;
    int n_text, n_others;
    struct ax_st_entry *text;   /* [n_text] sorted, under their names as a model of its own */
    struct ax_st_entry *others; /* [n_others] under the folder's */
};

/* True for the config.json of such a model. */
bool ax_config_is_wrapper(const json_t *config);
/* Its part about the text model, which older ones of a few families have in the root. */
json_t *ax_config_text(json_t *config);

/* Replaces what hf has by the text model. AX_ERR_DATA: it contains none. */
enum ax_status ax_hf_wrapped_open(struct ax_hf *hf);
void ax_hf_wrapped_close(struct ax_hf_wrapped *w);

/* The name in a folder of a text model's tensor; free with ax_free. */
enum ax_status ax_wrapping_name(const struct ax_wrapping *names, const char *name, char **out);
/* The name as in a model of its own, which `name` ends with; *module is its wrapping's `module`, or
 * NULL if it has none. Of a name in an adapter, without PEFT's prefix. */
const char *ax_wrapping_strip(const char *name, const char **module);

#endif
