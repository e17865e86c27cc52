/* Values of adapters: new ones, and those in PEFT folders. */
#ifndef AX_MODEL_ADAPTER_LOAD_H
#define AX_MODEL_ADAPTER_LOAD_H

#include "model/core/model.h"

/* Initializes new adapters as config->start says, by counter RNG, and m = ‖W‖; except with
 * AX_LORA_RANDOM the model then equals its base. For PiSSA, call ax_adapter_pissa_start next. Call
 * after ax_model_load; also runs device work while planning. */
enum ax_status ax_adapter_init(struct ax_model *m, uint64_t seed);
/* Loads from a folder; errors name what is missing, of the wrong shape (another rank, another
 * model) or unexpected. Does nothing while planning. */
enum ax_status ax_adapter_load(struct ax_model *m, const struct ax_peft *peft);
/* Sets arch's vocabulary if the adapter was trained with more tokens than the base has. AX_ERR_DATA if it lacks the
 * per-layer inputs of these. */
enum ax_status ax_adapter_vocabulary(struct ax_arch *arch, const struct ax_peft *peft);
/* Tensor name of a trained parameter in PEFT's file, in buf. */
const char *ax_adapter_tensor_name(const struct ax_param *p, char *buf, size_t size);
/* Writes the trainable parameters as a PEFT folder (one rank), in F32; anything else in `dtype`. */
enum ax_status ax_adapter_save(const struct ax_model *m, const char *dir, enum ax_dtype dtype);

/* ---- a bank: several adapters over one base (model/core/adapters.h) ---- */

/* Reads all adapters and checks that they fit; while planning, only the latter. Call it after ax_model_load;
 * afterwards none is active. `hf` is the base and stays open. */
enum ax_status ax_adapter_bank_load(struct ax_model *m, const struct ax_hf *hf);
/* Reads the values of another folder into the place of adapter `which`, whose shape it has; then none is active.
 * AX_ERR_DATA if it does not fit; the place then has neither's values. One rank. The caller sets the bank's
 * peft. */
enum ax_status ax_adapter_bank_fill(struct ax_model *m, int which, const struct ax_peft *peft);
/* Activates an adapter, or none. Earlier results, such as cached keys and values, belong to the
 * previous one. While planning, only the places change. */
enum ax_status ax_adapter_bank_use(struct ax_model *m, int which);

#endif
