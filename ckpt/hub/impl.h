/* Shared by the files of ckpt/hub/. Private to ckpt/. */
#ifndef AX_CKPT_HUB_IMPL_H
#define AX_CKPT_HUB_IMPL_H

#include "base/net/http.h"
#include "ckpt/hub/hub.h"

/* ---- remote.c ---- */

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

/* ---- cache.c ---- */

/* CACHE/models--ORG--NAME */
enum ax_status ax_hub_repo_folder(char **out, const char *cache, const struct ax_hub_repo *r);
/* BLOBS/ID; creates the folder. */
enum ax_status ax_hub_blob_path(char **out, const struct ax_hub_snapshot *s, const char *blob);
/* CACHE/.locks/…/ID.lock; creates its folder. */
enum ax_status ax_hub_lock_path(char **out, const struct ax_hub_snapshot *s, const char *blob);
/* snapshots/COMMIT/PATH → ../../blobs/ID. AX_ERR_DATA if a part of PATH is not a folder. */
enum ax_status ax_hub_link(const struct ax_hub_snapshot *s, const struct ax_hub_file *f);

#endif
