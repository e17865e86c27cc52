#include "base/hash/hmac.h"

#include <string.h>

#include "base/hash/hash.h"

enum { BLOCK = 64 };

static void begin(struct ax_sha256 *s, const unsigned char key[BLOCK], unsigned char pad) {
    unsigned char block[BLOCK];
    for (int i = 0; i < BLOCK; i++)
        block[i] = key[i] ^ pad;
    ax_sha256_init(s);
    ax_sha256_update(s, block, sizeof block);
}

void ax_hmac(const unsigned char *key, size_t n_key, const void *data, size_t n, const void *more,
             size_t n_more, unsigned char mac[AX_MAC_BYTES]) {
    unsigned char padded[BLOCK] = {0};
    struct ax_sha256 s;
    if (n_key > BLOCK) {
        ax_sha256_init(&s);
        ax_sha256_update(&s, key, n_key);
        ax_sha256_final(&s, padded);
    } else {
        memcpy(padded, key, n_key);
    }
    begin(&s, padded, 0x36);
    ax_sha256_update(&s, data, n);
    if (n_more > 0)
        ax_sha256_update(&s, more, n_more);
    ax_sha256_final(&s, mac);
    begin(&s, padded, 0x5c);
    ax_sha256_update(&s, mac, AX_MAC_BYTES);
    ax_sha256_final(&s, mac);
}

bool ax_mac_equal(const unsigned char a[AX_MAC_BYTES], const unsigned char b[AX_MAC_BYTES]) {
    volatile unsigned char differs = 0;
    for (int i = 0; i < AX_MAC_BYTES; i++)
        differs = (unsigned char)(differs | (a[i] ^ b[i]));
    return differs == 0;
}
