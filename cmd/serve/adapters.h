/* Adapters that clients load, replace and unload while a server answers, in the places of `--adapter-slots`: those that
 * vLLM has, by name and path.
 *
 * An adapter is read into a place that nobody uses, between two passes, and then served under its name; one that had
 * the name goes on for the requests that began with it. */
#ifndef AX_CMD_SERVE_ADAPTERS_H
#define AX_CMD_SERVE_ADAPTERS_H

#include "cmd/serve/http.h"

/* Handlers; ctx is a struct ax_serve. AX_ERR_UNSUPPORTED with status 404 without such places. */

/* {"lora_name", "lora_path", "load_inplace": false}; with true, the name may be taken. */
enum ax_status ax_serve_load_adapter(void *ctx, struct ax_exchange *x);
/* {"lora_name"} */
enum ax_status ax_serve_unload_adapter(void *ctx, struct ax_exchange *x);

#endif
