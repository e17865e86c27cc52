/* C interface to Gloo's TCP transport: connections between all processes of a group, and byte
 * transfers over them. comm_gloo.cpp is built into a library of its own, libaxtrain-gloo.so, which
 * the fabric opens, so that only ranks in processes need Gloo and the C++ library. Private to the
 * gloo fabric; plain types only, because C++ reads it too. Throws no exceptions. */
#ifndef AX_PARALLEL_FABRIC_GLOO_LINK_H
#define AX_PARALLEL_FABRIC_GLOO_LINK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ax_gloo_device;
struct ax_gloo_link;
struct ax_gloo_transfer;

enum ax_gloo_result { AX_GLOO_DONE, AX_GLOO_LATE, AX_GLOO_BROKEN };
enum { AX_GLOO_TEXT = 512 }; /* `text` buffers; set when the result is not AX_GLOO_DONE */

struct ax_gloo_calls {
    const char *version; /* AX_VERSION of the build that this library belongs to */

    /* A thread that moves bytes. */
    enum ax_gloo_result (*open_device)(struct ax_gloo_device **device, char *text);
    void (*close_device)(struct ax_gloo_device *device); /* after its links */

    /* A link over connected sockets, fds[size], to the members of a group, of which this process is
     * number `rank`. Takes each socket that it has set to −1, also if it fails. */
    enum ax_gloo_result (*open)(struct ax_gloo_link **link, struct ax_gloo_device *device, int *fds,
                                int rank, int size, double timeout, char *text);
    /* Breaks all connections immediately, so that others notice; transfers end as
     * AX_GLOO_BROKEN. */
    void (*break_link)(struct ax_gloo_link *link);
    /* Call after freeing its transfers. Data already sent still arrives. */
    void (*close)(struct ax_gloo_link *link);

    /* Starts a transfer; `data` must stay valid until it has been waited for or freed. A send
     * matches the receive with the same slot, which must have the same size. */
    enum ax_gloo_result (*send)(struct ax_gloo_link *link, int peer, uint64_t slot,
                                const void *data, size_t bytes, struct ax_gloo_transfer **transfer,
                                char *text);
    enum ax_gloo_result (*recv)(struct ax_gloo_link *link, int peer, uint64_t slot, void *data,
                                size_t bytes, struct ax_gloo_transfer **transfer, char *text);
    /* Late after the link's timeout, which breaks the link. */
    enum ax_gloo_result (*wait)(struct ax_gloo_transfer *transfer, char *text);
    void (*transfer_free)(struct ax_gloo_transfer *transfer); /* NULL is fine */
};

/* The library's only symbol. */
const struct ax_gloo_calls *ax_gloo_get(void);

#ifdef __cplusplus
}
#endif

#endif
