/* Options of other programs: llama.cpp, vLLM, torchrun, accelerate, lm-evaluation-harness, PEFT's and TRL's scripts. */
#ifndef AX_CMD_OTHER_OPTIONS_H
#define AX_CMD_OTHER_OPTIONS_H

#include <stddef.h>

/* If `given` (with dashes, perhaps with "=value") is what another program calls something of this command, writes what
 * to do here to buf, as the end of an error: "; here it is --context". Otherwise buf becomes "". Returns buf. */
const char *ax_other_option(const char *command, const char *given, char *buf, size_t size);

#endif
