/* Hashing: XXH64-class fast hash for keys and caches, CRC-32C and SHA-256 for files, SHA-1 for git
 * object names. */
#ifndef AX_BASE_HASH_HASH_H
#define AX_BASE_HASH_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t ax_hash64(const void *data, size_t n, uint64_t seed); /* XXH64 */
uint32_t ax_hash32(const char *s);                             /* low half of XXH64, seed 0 */
uint32_t ax_crc32c(uint32_t crc, const void *data, size_t n);  /* start with 0 */

struct ax_sha256 {
    uint32_t h[8];
    uint64_t len;
    unsigned char block[64];
};
void ax_sha256_init(struct ax_sha256 *s);
void ax_sha256_update(struct ax_sha256 *s, const void *data, size_t n);
void ax_sha256_final(struct ax_sha256 *s, unsigned char out[32]);

struct ax_sha1 {
    uint32_t h[5];
    uint64_t len;
    unsigned char block[64];
};
void ax_sha1_init(struct ax_sha1 *s);
void ax_sha1_update(struct ax_sha1 *s, const void *data, size_t n);
void ax_sha1_final(struct ax_sha1 *s, unsigned char out[20]);

/* n bytes as 2n lower-case hexadecimal digits and a NUL. */
void ax_hex(char *out, const unsigned char *data, size_t n);

#endif
