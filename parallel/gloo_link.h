/* C interface to Gloo's TCP transport (comm_gloo.cpp): connections between all processes of a run,
 * and byte transfers over them. Private to the gloo fabric; plain types only, because C++ reads it
 * too. Throws no exceptions. */
#ifndef AX_PARALLEL_GLOO_LINK_H
#define AX_PARALLEL_GLOO_LINK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ax_gloo_link;
struct ax_gloo_transfer;

enum ax_gloo_result { AX_GLOO_DONE, AX_GLOO_LATE, AX_GLOO_BROKEN };
enum { AX_GLOO_TEXT = 512 }; /* `text` buffers; set when the result is not AX_GLOO_DONE */

/* Connects to the others over this machine's loopback. They rendezvous in `folder`. */
enum ax_gloo_result ax_gloo_link_open(struct ax_gloo_link **link, const char *folder, int rank,
                                      int world, double timeout, char *text);
/* Breaks all connections immediately, so that others notice; transfers end as AX_GLOO_BROKEN. */
void ax_gloo_link_break(struct ax_gloo_link *link);
/* Call after freeing its transfers. Data already sent still arrives. */
void ax_gloo_link_free(struct ax_gloo_link *link);

/* Starts a transfer; `data` must stay valid until it has been waited for or freed. A send matches
 * the receive with the same slot, which must have the same size. */
enum ax_gloo_result ax_gloo_send(struct ax_gloo_link *link, int peer, uint64_t slot,
                                 const void *data, size_t bytes, struct ax_gloo_transfer **transfer,
                                 char *text);
enum ax_gloo_result ax_gloo_recv(struct ax_gloo_link *link, int peer, uint64_t slot, void *data,
                                 size_t bytes, struct ax_gloo_transfer **transfer, char *text);
/* Late after the link's timeout, which breaks the link. */
enum ax_gloo_result ax_gloo_transfer_wait(struct ax_gloo_transfer *transfer, char *text);
void ax_gloo_transfer_free(struct ax_gloo_transfer *transfer); /* NULL is fine */

#ifdef __cplusplus
}
#endif

#endif
