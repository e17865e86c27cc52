/* Published digests. */
#include "base/hash/hash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash/crc32c.h"

/* The byte stream of xxHash's own sanity check. */
static void fill_xxh(unsigned char *p, size_t n) {
    uint64_t generator = 2654435761U;
    for (size_t i = 0; i < n; i++) {
        p[i] = (unsigned char)(generator >> 56);
        generator *= 11400714785074694797U;
    }
}

static void xxh64_vectors(void **state) {
    (void)state;
    static const struct {
        size_t n;
        uint64_t seed, digest;
    } known[] = {
        {0, 0, 0xEF46DB3751D8E999U},
        {0, 2654435761U, 0xAC75FDA2929B17EFU},
        {1, 0, 0xE934A84ADB052768U},
        {1, 2654435761U, 0x5014607643A9B4C3U},
        {4, 0, 0x9136A0DCA57457EEU},
        {14, 0, 0x8282DCC4994E35C8U},
        {222, 0, 0xB641AE8CB691C174U},
        {14, 2654435761U, 0xC3BD6BF63DEB6DF0U},
        {222, 2654435761U, 0x20CB8AB7AE10C14AU},
    };
    unsigned char data[222];
    fill_xxh(data, sizeof data);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        assert_true(ax_hash64(data, known[i].n, known[i].seed) == known[i].digest);
    assert_true(ax_hash64("abc", 3, 0) == 0x44BC2CF5AD770999U);
    assert_int_equal(ax_hash32("abc"), 0xAD770999U);
    assert_int_equal(ax_hash32(""), 0x51D8E999U);
}

static void sha1_vectors(void **state) {
    (void)state;
    static const struct {
        const char *text, *digest;
    } known[] = {
        {"", "da39a3ee5e6b4b0d3255bfef95601890afd80709"},
        {"abc", "a9993e364706816aba3e25717850c26c9cd0d89d"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "84983e441c3bd26ebaae4aa1f95129e5e54670f1"},
        {"blob 6\0hello\n", "ce013625030ba8dba906f756967f9e9ca394464a"},
    };
    for (size_t i = 0; i < 4; i++) {
        const size_t n = i == 3 ? 13 : strlen(known[i].text);
        for (size_t cut = 0; cut <= n; cut++) {
            struct ax_sha1 s;
            unsigned char digest[20];
            char hex[41];
            ax_sha1_init(&s);
            ax_sha1_update(&s, known[i].text, cut);
            ax_sha1_update(&s, known[i].text + cut, n - cut);
            ax_sha1_final(&s, digest);
            ax_hex(hex, digest, sizeof digest);
            assert_string_equal(hex, known[i].digest);
        }
    }
    struct ax_sha1 s; /* a million times a */
    unsigned char digest[20];
    char hex[41], a[1000];
    memset(a, 'a', sizeof a);
    ax_sha1_init(&s);
    for (int i = 0; i < 1000; i++)
        ax_sha1_update(&s, a, sizeof a);
    ax_sha1_final(&s, digest);
    ax_hex(hex, digest, sizeof digest);
    assert_string_equal(hex, "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
}

static void crc32c_vectors(void **state) {
    (void)state;
    unsigned char data[32] = {0};
    assert_int_equal(ax_crc32c(0, "123456789", 9), 0xE3069283U);
    assert_int_equal(ax_crc32c(0, data, 32), 0x8A9136AAU);
    memset(data, 0xFF, sizeof data);
    assert_int_equal(ax_crc32c(0, data, 32), 0x62A8AB43U);
    for (unsigned char i = 0; i < 32; i++)
        data[i] = i;
    assert_int_equal(ax_crc32c(0, data, 32), 0x46DD794EU);
    assert_int_equal(ax_crc32c(0, NULL, 0), 0);
}

static void crc32c_all_ways_agree(void **state) {
    (void)state;
    static unsigned char
        data[20000]; /* several rounds of the lanes that long inputs are cut into */
    fill_xxh(data, sizeof data);
    for (size_t n = 5000; n <= sizeof data; n += 487) {
        const uint32_t by_table = ax_crc32c_portable(7, data + n % 7, n - n % 7);
        assert_int_equal(ax_crc32c(7, data + n % 7, n - n % 7), by_table);
        assert_int_equal(ax_crc32c_instruction(7, data + n % 7, n - n % 7), by_table);
    }
    for (size_t n = 200; n < 1100; n++)
        assert_int_equal(ax_crc32c(9, data, n), ax_crc32c_portable(9, data, n));
    for (size_t from = 0; from < 9; from++) {
        for (size_t n = 0; n + from <= 300; n += 13) {
            uint32_t whole = ax_crc32c(0, data + from, n);
            assert_int_equal(whole, ax_crc32c_portable(0, data + from, n));
            assert_int_equal(
                whole, ax_crc32c(ax_crc32c(0, data + from, n / 3), data + from + n / 3, n - n / 3));
        }
    }
}

static void check_sha(const char *text, size_t n, size_t piece, const char *hex) {
    struct ax_sha256 s;
    unsigned char digest[32];
    ax_sha256_init(&s);
    for (size_t i = 0; i < n; i += piece)
        ax_sha256_update(&s, text + i, n - i < piece ? n - i : piece);
    ax_sha256_final(&s, digest);
    char got[65];
    for (size_t i = 0; i < 32; i++) {
        got[2 * i] = "0123456789abcdef"[digest[i] >> 4];
        got[2 * i + 1] = "0123456789abcdef"[digest[i] & 15];
    }
    got[64] = '\0';
    assert_string_equal(got, hex);
}

static void sha256_vectors(void **state) {
    (void)state;
    static const char two_blocks[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    static char million[1000000];
    memset(million, 'a', sizeof million);
    check_sha("", 0, 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check_sha("abc", 3, 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check_sha("abc", 3, 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check_sha(two_blocks, 56, 56,
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    for (size_t piece = 61; piece < 70; piece++) {
        check_sha(million, sizeof million, piece,
                  "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(xxh64_vectors),  cmocka_unit_test(sha1_vectors),
        cmocka_unit_test(crc32c_vectors), cmocka_unit_test(crc32c_all_ways_agree),
        cmocka_unit_test(sha256_vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
