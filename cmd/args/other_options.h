/* Options of other programs: llama.cpp, vLLM, torchrun, accelerate, lm-evaluation-harness, PEFT's and TRL's scripts. */
#ifndef AX_CMD_OTHER_OPTIONS_H
#define AX_CMD_OTHER_OPTIONS_H

#include "base/status.h"

/* AX_ERR_CONFIG if `given` (with dashes, perhaps with "=value") is what another program calls something of this
 * command; the error says what to write here: "serve: unknown option --max-model-len; here it is --context". */
enum ax_status ax_refuse_other_option(const char *command, const char *given);

#endif
