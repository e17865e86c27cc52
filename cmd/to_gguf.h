/* The GGUF file that convert, merge and quantize write: options, and what is printed of it. */
#ifndef AX_CMD_TO_GGUF_H
#define AX_CMD_TO_GGUF_H

#include "model/convert/to_gguf.h"

/* The value of --quant; NULL gives NULL. AX_ERR_CONFIG lists the names and suggests one. */
enum ax_status ax_to_gguf_quant(const struct ax_gguf_quant **out, const char *name);
/* AX_ERR_CONFIG if dst is a folder, or a file that may not be replaced. */
enum ax_status ax_to_gguf_check_destination(const char *dst, bool overwrite);
/* "FILE: llama, 272 tensors, 134515008 weights, q8_0, 138 MiB" to standard output. */
void ax_to_gguf_print(const struct ax_to_gguf *c);

#endif
