/* Routes with which who trains with a server's answers holds it still: those of vLLM's development mode, with
 * `--allow-control`. */
#ifndef AX_CMD_SERVE_CONTROL_H
#define AX_CMD_SERVE_CONTROL_H

#include "cmd/serve/http.h"

/* Handlers; ctx is a struct ax_serve. AX_ERR_UNSUPPORTED with status 404 where they are not allowed; weight_info always
 * is. */

/* ?mode=abort (the default): answers end; wait: they are completed first; keep: they go on after /resume. Until then
 * requests wait. ?clear_cache=false keeps what prompts may share. */
enum ax_status ax_serve_pause(void *ctx, struct ax_exchange *x);
enum ax_status ax_serve_resume(void *ctx, struct ax_exchange *x);
enum ax_status ax_serve_is_paused(void *ctx, struct ax_exchange *x);
/* {"request_ids": […]}, with or without "chatcmpl-" or "cmpl-". */
enum ax_status ax_serve_abort_requests(void *ctx, struct ax_exchange *x);
enum ax_status ax_serve_reset_cache(void *ctx, struct ax_exchange *x);
enum ax_status ax_serve_weight_info(void *ctx, struct ax_exchange *x);
/* Routes over which vLLM gets weights by NCCL: 404. */
enum ax_status ax_serve_no_weights(void *ctx, struct ax_exchange *x);

#endif
