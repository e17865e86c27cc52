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
/* The two halves of ax_adapter_load, for adapter `number` of a bank: first the adapter's own
 * tensors, then those that replace the base's, which are marked in `replaced` [n_params] (`one`:
 * embedding and head are one matrix in this adapter). Not while planning. */
enum ax_status ax_adapter_load_own(struct ax_model *m, const struct ax_peft *peft, int number);
enum ax_status ax_adapter_load_replaced(struct ax_model *m, const struct ax_peft *peft, int number,
                                        bool one, bool *replaced);
/* Sets arch's vocabulary if the adapter was trained with more tokens than the base has. */
void ax_adapter_vocabulary(struct ax_arch *arch, const struct ax_peft *peft);
/* Tensor name of a trained parameter in PEFT's file, in buf. */
const char *ax_adapter_tensor_name(const struct ax_param *p, char *buf, size_t size);
/* Writes the trainable parameters as a PEFT folder (one rank), in F32; anything else in `dtype`. */
enum ax_status ax_adapter_save(const struct ax_model *m, const char *dir, enum ax_dtype dtype);

#endif
