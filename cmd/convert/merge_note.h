/* What a merged model's folder says of the adapter that is in it. */
#ifndef AX_CMD_CONVERT_MERGE_NOTE_H
#define AX_CMD_CONVERT_MERGE_NOTE_H

#include "ckpt/hf/peft.h"

#define AX_MERGE_NOTE "axtrain_merge.json"

/* Into the folder `dir`; base and adapter as they were named. */
enum ax_status ax_merge_note_write(const char *dir, const char *base, const char *adapter,
                                   const struct ax_peft *peft);
/* A base that this adapter is in would get it twice: AX_ERR_CONFIG. */
enum ax_status ax_merge_note_check(const char *base, const struct ax_peft *peft);

#endif
