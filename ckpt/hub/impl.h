/* Requests to the hub (remote.c), as downloads make them. Private to ckpt/hub/. */
#ifndef AX_CKPT_HUB_IMPL_H
#define AX_CKPT_HUB_IMPL_H

#include "base/net/http.h"
#include "ckpt/hub/hub.h"

/* ENDPOINT/datasets/ID/resolve/COMMIT/PATH */
enum ax_status ax_hub_file_url(char **out, const struct ax_hub *h, const struct ax_hub_repo *r,
                               const char *commit, const char *path);

/* The state of a request that is repeated as long as that may help. A caller that resumes a file
 * restarts `attempt` at 0 after each piece received. */
struct ax_hub_patience {
    int attempt;
    const _Atomic bool *stop;
};
/* Handles a request's result. AX_OK after a pause: try again; otherwise the error for the user. */
enum ax_status ax_hub_again(const struct ax_hub *h, const struct ax_hub_repo *r,
                            struct ax_hub_patience *p, enum ax_status st,
                            const struct ax_http_response *answer, const char *what);

#endif
