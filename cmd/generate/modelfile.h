/* A Modelfile for ollama beside a GGUF file: FROM, TEMPLATE and the ends of answers.
 *
 * The chat template is Jinja, ollama's is Go's. What goes before each content, and after the last
 * question, is found by rendering short conversations; if longer ones are those texts put together,
 * the same is written in Go's language. Any template made of turns can be expressed so, whatever
 * its source. Tools cannot, nor texts that depend on the content (trimming) or the date. */
#ifndef AX_CMD_GENERATE_MODELFILE_H
#define AX_CMD_GENERATE_MODELFILE_H

#include <stdbool.h>

#include "base/status.h"

/* DIR/Modelfile for DIR/NAME.gguf. Free with ax_free. */
enum ax_status ax_modelfile_path(char **out, const char *gguf);
/* Writes it for the model in `folder`, of which `gguf` was made. *why is "", or says why there is
 * no TEMPLATE. */
enum ax_status ax_modelfile_write(const char *folder, const char *gguf, char why[512]);

#endif
