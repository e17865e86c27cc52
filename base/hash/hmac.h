/* HMAC-SHA-256 (RFC 2104): proof that a message comes from someone who knows a secret. */
#ifndef AX_BASE_HASH_HMAC_H
#define AX_BASE_HASH_HMAC_H

#include <stdbool.h>
#include <stddef.h>

enum { AX_MAC_BYTES = 32 };

/* The MAC of a message in two parts (`more` may be NULL with n_more = 0). */
void ax_hmac(const unsigned char *key, size_t n_key, const void *data, size_t n, const void *more,
             size_t n_more, unsigned char mac[AX_MAC_BYTES]);
/* Compares in a time that does not depend on where the difference is. */
bool ax_mac_equal(const unsigned char a[AX_MAC_BYTES], const unsigned char b[AX_MAC_BYTES]);

#endif
