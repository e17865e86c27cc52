/* Type names of the safetensors format. */
#ifndef AX_CKPT_HF_SAFETENSORS_TYPES_H
#define AX_CKPT_HF_SAFETENSORS_TYPES_H

#include <stdbool.h>

#include "kernels/dtype.h"

#define AX_ST_E4M3 "F8_E4M3" /* bits of e4m3 numbers; read as U8 */

#define AX_ST_E8M0 "F8_E8M0" /* bits of powers of two; read as U8 */

/* The dtype in which elements of a file's type are read: its own, but U8 for BOOL and these. False: no such type is
 * supported. */
bool ax_st_dtype_parse(const char *name, enum ax_dtype *out);

#endif
