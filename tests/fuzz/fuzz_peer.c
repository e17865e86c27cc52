/* What a caller says to a rank: of any bytes only a member's own words let it in. */
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "parallel/job/peer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The input is the numbers of caller and called, and what is changed of the caller's words. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const int ranks[] = {4, 5, 6, 7};
    static const unsigned char key[AX_STORE_KEY_BYTES] = "of this job";
    const unsigned char called[AX_PEER_NONCE] = "asked", caller[AX_PEER_NONCE] = "mine";
    unsigned char hello[AX_PEER_HELLO], said[AX_PEER_HELLO], answer[AX_MAC_BYTES];
    if (size < 2)
        return 0;
    const struct ax_peer_group own = {
        .key = key, .name = "g", .ranks = ranks, .n = 4, .rank = data[0] % 4};
    struct ax_peer_group other = own;
    other.rank = data[1] % 6;
    ax_peer_say_hello(&other, own.rank, called, caller, said);
    memcpy(hello, said, sizeof hello);
    for (size_t i = 2; i + 1 < size; i += 2)
        hello[data[i] % AX_PEER_HELLO] = data[i + 1];
    const bool right =
        memcmp(hello, said, sizeof hello) == 0 && other.rank > own.rank && other.rank < own.n;
    const int member = ax_peer_hear_hello(&own, called, hello, answer);
    AX_ASSERT(member == (right ? other.rank : -1));
    return 0;
}
