/* The note in a merged model's folder about its adapter. */
#ifndef AX_CKPT_HF_MERGE_NOTE_H
#define AX_CKPT_HF_MERGE_NOTE_H

#include "ckpt/hf/peft.h"

#define AX_MERGE_NOTE "axtrain_merge.json"

/* Writes it to the folder `dir`; base and adapter as given by the user. */
enum ax_status ax_merge_note_write(const char *dir, const char *base, const char *adapter,
                                   const struct ax_peft *peft);
/* AX_ERR_CONFIG if this adapter is already merged into the base. */
enum ax_status ax_merge_note_check(const char *base, const struct ax_peft *peft);

#endif
