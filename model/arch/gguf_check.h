/* Settings of a model that GGUF cannot express. */
#ifndef AX_MODEL_ARCH_GGUF_CHECK_H
#define AX_MODEL_ARCH_GGUF_CHECK_H

#include "ckpt/gguf/model.h"
#include "model/arch/arch.h"

/* AX_ERR_UNSUPPORTED: WHERE: config.json: WHAT, which a GGUF file cannot express. */
enum ax_status ax_gguf_refuse(const char *where, const char *what);
/* Refuses by name what readers of the described model would compute otherwise. If they also differ
 * on published files of the family, only a warning. */
enum ax_status ax_gguf_check(const struct ax_gguf_model *m, const struct ax_arch *a,
                             const char *where);
/* Tokens of the layers' window; 0: none has one. */
int64_t ax_gguf_window_of(const struct ax_arch *a);

#endif
