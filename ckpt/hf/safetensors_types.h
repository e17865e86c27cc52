/* Type names of the safetensors format. */
#ifndef AX_CKPT_HF_SAFETENSORS_TYPES_H
#define AX_CKPT_HF_SAFETENSORS_TYPES_H

#include <stdbool.h>

#include "kernels/dtype.h"

bool ax_st_dtype_parse(const char *name, enum ax_dtype *out);

#endif
