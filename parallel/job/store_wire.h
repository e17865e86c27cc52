/* The store's frames: [length of the body: u32][type: u8][body], little endian. Private to the
 * store.
 *
 *     server  CHALLENGE  nonce
 *     rank    JOIN       nonce, MAC(key, "rank" ‖ server's nonce ‖ the rest of the body), member
 *     server  WELCOME    MAC(key, "store" ‖ both nonces)
 *     server  REPLY      when all ranks have joined, or cannot any more
 *     rank    SET key value | GET key wait | CAUSE first end wait | LEAVE status words
 *     server  REPLY      status, bytes, done; one for each request, in order. To JOIN, done is the
 *                        rank that says itself why it cannot join, or −1 if rank 0 says it
 */
#ifndef AX_PARALLEL_JOB_STORE_WIRE_H
#define AX_PARALLEL_JOB_STORE_WIRE_H

#include "base/hash/hmac.h"
#include "base/mem.h"

enum ax_store_type {
    AX_STORE_CHALLENGE = 1,
    AX_STORE_JOIN,
    AX_STORE_WELCOME,
    AX_STORE_SET,
    AX_STORE_GET,
    AX_STORE_CAUSE,
    AX_STORE_LEAVE,
    AX_STORE_REPLY,
};

enum {
    AX_STORE_HEADER = 5,
    AX_STORE_NONCE = 16,
    AX_STORE_KEY_BYTES = 32,
    AX_STORE_HOST = 64,
    AX_STORE_NAME = 128,         /* longest key, with its NUL */
    AX_STORE_STRANGER_MAX = 512, /* bytes of a frame before its sender has proved anything */
    AX_STORE_FRAME_MAX = 16 << 20,
    /* Connections whose senders have proved nothing yet: how many are kept, and for how long. */
    AX_STORE_STRANGERS = 256,
    AX_STORE_STRANGER_SECONDS = 5,
    AX_STORE_PATIENCE_SECONDS =
        15, /* until who is missing is told; half of the timeout if that is less */
};

struct ax_store_frame {
    enum ax_store_type type;
    const unsigned char *body;
    size_t len;
};
/* Bytes of the frame at the start of data; 0: more are needed; −1: its length exceeds `limit` or
 * its type is unknown. */
long ax_store_frame_next(const void *data, size_t n, size_t limit, struct ax_store_frame *f);

/* Reads a body in order; `bad` once anything was missing or too long, and then only zeros. */
struct ax_store_reader {
    const unsigned char *at, *end;
    bool bad;
};
uint64_t ax_store_read_int(struct ax_store_reader *r, int bytes);
const unsigned char *ax_store_read_bytes(struct ax_store_reader *r, size_t n);
/* A length (u32) and that many bytes; *n = 0 if bad. */
const unsigned char *ax_store_read_blob(struct ax_store_reader *r, size_t *n);
/* A blob without NULs that fits, NUL-terminated. */
void ax_store_read_text(struct ax_store_reader *r, char *out, size_t size);
bool ax_store_read_end(const struct ax_store_reader *r); /* all was read, and nothing was bad */

enum ax_status ax_store_put_int(struct ax_buf *b, uint64_t value, int bytes);
enum ax_status ax_store_put_blob(struct ax_buf *b, const void *data, size_t n);
/* Appends a frame around a body. */
enum ax_status ax_store_put_frame(struct ax_buf *out, enum ax_store_type type, const void *body,
                                  size_t n);

/* A rank's description of itself, in JOIN. */
struct ax_store_member {
    int rank, world;
    uint64_t binary, config; /* config 0: unknown, equal to any */
    int pid;
    char host[AX_STORE_HOST];
};
enum ax_status ax_store_put_member(struct ax_buf *b, const struct ax_store_member *m);
bool ax_store_read_member(struct ax_store_reader *r, struct ax_store_member *m);

/* `who` is "rank" or "store", or "caller" or "called" (peer.h), so that the proof of one is not valid
 * for another. */
void ax_store_proof(const unsigned char key[AX_STORE_KEY_BYTES], const char *who,
                    const unsigned char nonce[AX_STORE_NONCE], const void *rest, size_t n,
                    unsigned char mac[AX_MAC_BYTES]);

#endif
