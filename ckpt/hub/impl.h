/* What the hub_*.c files share. Private to ckpt/. */
#ifndef AX_CKPT_HUB_IMPL_H
#define AX_CKPT_HUB_IMPL_H

#include "base/http.h"
#include "ckpt/hub/hub.h"

/* ---- remote.c ---- */

/* ENDPOINT/datasets/ID/resolve/COMMIT/PATH */
enum ax_status ax_hub_file_url(char **out, const struct ax_hub *h, const struct ax_hub_repo *r,
                               const char *commit, const char *path);

/* One request, made again while that may help. The `attempt` of a caller that goes on where it
 * stopped starts at 0 again after each piece that came. */
struct ax_hub_patience {
    int attempt;
    const _Atomic bool *stop;
};
/* Given how a request ended: AX_OK after a pause = try again; else what to tell the person. */
enum ax_status ax_hub_again(const struct ax_hub *h, const struct ax_hub_repo *r,
                            struct ax_hub_patience *p, enum ax_status st,
                            const struct ax_http_response *answer, const char *what);

/* ---- cache.c ---- */

/* BLOBS/ID; the folder is made. */
enum ax_status ax_hub_blob_path(char **out, const struct ax_hub_snapshot *s, const char *blob);
/* CACHE/.locks/…/ID.lock; its folder is made. */
enum ax_status ax_hub_lock_path(char **out, const struct ax_hub_snapshot *s, const char *blob);
/* snapshots/COMMIT/PATH → ../../blobs/ID. AX_ERR_DATA where a part of PATH is not a folder. */
enum ax_status ax_hub_link(const struct ax_hub_snapshot *s, const struct ax_hub_file *f);

/* ---- blob.c ---- */

struct ax_hub_transfer {
    const struct ax_hub *h;
    const struct ax_hub_repo *repo;
    const struct ax_hub_snapshot *snapshot;
    _Atomic bool stop;           /* one file failed: the others end */
    _Atomic uint64_t done;       /* bytes that are there, of all files */
    _Atomic uint64_t downloaded; /* bytes that came over the network */
};
/* Brings one file into the cache and links it. */
enum ax_status ax_hub_blob_get(struct ax_hub_transfer *t, const struct ax_hub_file *f);
/* Bytes of the file that an earlier try has left behind. */
uint64_t ax_hub_blob_begun(const struct ax_hub_snapshot *s, const struct ax_hub_file *f);

#endif
