/* A Modelfile for ollama, next to a GGUF file: FROM, TEMPLATE and stop texts.
 *
 * Chat templates are written in Jinja, ollama's in Go's language. The text before each content and
 * after the last question is found by rendering short conversations. If longer conversations
 * consist of the same texts, they are written as a template in Go's language. This works for every
 * template made of turns, however it is written, but not for tools, nor for text that depends on
 * the content (trimming) or the date. */
#ifndef AX_MODEL_CONVERT_MODELFILE_H
#define AX_MODEL_CONVERT_MODELFILE_H

#include <stdbool.h>

#include "base/status.h"

/* DIR/Modelfile for DIR/NAME.gguf. Free with ax_free. */
enum ax_status ax_modelfile_path(char **out, const char *gguf);
/* Writes the file for the model in `folder`, from which `gguf` was converted. *why is "", or the
 * reason for a missing TEMPLATE. */
enum ax_status ax_modelfile_write(const char *folder, const char *gguf, char why[512]);

#endif
