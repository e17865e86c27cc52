/* UTF-8 checking and repair, and the shortcut of the normal forms. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <utf8proc.h>

#include "data/text/tokenizer/normalize.h"
#include "base/text/unicode.h"
#include "tests/data/random_text.h"
#include "tests/data/tokenizer_case.h"

static void assert_repaired(const char *s, size_t n, const char *want) {
    struct ax_buf out = {0};
    MUST(ax_utf8_repair(&out, s, n));
    assert_string_equal(out.data, want);
    ax_buf_free(&out);
}

#define FFFD "\xef\xbf\xbd"

/* The cases of Unicode's chapter 3 (U+FFFD substitution of maximal subparts). */
static void repair(void **state) {
    (void)state;
    assert_repaired("", 0, "");
    assert_repaired("abc\xc3\xa9", 5, "abc\xc3\xa9");
    assert_repaired("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41", 9,
                    FFFD FFFD FFFD FFFD FFFD FFFD FFFD FFFD "A");
    assert_repaired("\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41", 9,
                    FFFD FFFD FFFD FFFD FFFD FFFD FFFD FFFD "A");
    assert_repaired("\xf4\x91\x92\x93\xff\x41\x80\xbf\x42", 9,
                    FFFD FFFD FFFD FFFD FFFD "A" FFFD FFFD "B");
    assert_repaired("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", 9, FFFD FFFD FFFD FFFD "A");
    assert_repaired("ab\xe4\xbd", 4, "ab" FFFD);
}

static void check(void **state) {
    (void)state;
    static const char good[] = "0123456789abcdef\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80 end";
    assert_int_equal(ax_utf8_check(good, sizeof good - 1), sizeof good - 1);
    for (size_t i = 0; i < sizeof good - 1; i++) {
        char bad[sizeof good];
        memcpy(bad, good, sizeof good);
        bad[i] = '\xff';
        size_t at = ax_utf8_check(bad, sizeof good - 1);
        assert_true(at <= i && i - at < 4);
    }
    assert_int_equal(ax_utf8_check("a\xf0\x9f\x98", 4), 1);
    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        char s[4];
        size_t len;
        if (cp >= 0xd800 && cp <= 0xdfff)
            continue;
        size_t n = ax_utf8_encode(cp, s);
        assert_int_equal(ax_utf8_check(s, n), n);
        assert_int_equal(ax_utf8_decode((unsigned char *)s, &len), cp);
        assert_int_equal(len, n);
        assert_int_equal(ax_utf8_decode_before((unsigned char *)s + n, &len), cp);
        for (size_t cut = 1; cut < n; cut++)
            assert_int_equal(ax_utf8_next((unsigned char *)s, cut, &len), AX_UTF8_CUT);
    }
}

/* Also of letters that are newer than the library. */
static void small_letters(void **state) {
    (void)state;
    static const uint32_t cases[][3] = {
        {'A', 'a'},         {0x130, 'i', 0x307}, {0x1c89, 0x1c8a},   {0xa7cb, 0x264},
        {0xa7cc, 0xa7cd},   {0xa7cd, 0xa7cd},    {0xa7ce, 0xa7cf},   {0x10d4f, 0x10d4f},
        {0x10d50, 0x10d70}, {0x10d65, 0x10d85},  {0x10d66, 0x10d66}, {0x16eb8, 0x16ed3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t out[2] = {0};
        assert_int_equal(ax_unicode_lower(cases[i][0], out), cases[i][2] ? 2 : 1);
        assert_int_equal(out[0], cases[i][1]);
        assert_int_equal(out[1], cases[i][2]);
    }
}

/* The ends of what \w has, and what is next to them. */
static void word_characters(void **state) {
    (void)state;
    static const uint32_t are[] = {'a',    'Z',     '0',     '9',     '_',     0xe9,    0x301,
                                   0x660,  0x2160,  0x203f,  0x200c,  0x200d,  0x24b6,  0x24e9,
                                   0x4e2d, 0x1f130, 0x1f149, 0x1f150, 0x1f169, 0x1f170, 0x1f189},
                          are_not[] = {' ',     '-',     '`',     '@',     '[',     '{',    '/',
                                       ':',     0xbd,    0x2014,  0x200b,  0x200e,  0x24b5, 0x24ea,
                                       0x1f12f, 0x1f14a, 0x1f14f, 0x1f16a, 0x1f16f, 0x1f18a};
    for (size_t i = 0; i < sizeof are / sizeof *are; i++)
        if (!ax_unicode_is_word(are[i]))
            fail_msg("U+%04X is none", are[i]);
    for (size_t i = 0; i < sizeof are_not / sizeof *are_not; i++)
        if (ax_unicode_is_word(are_not[i]))
            fail_msg("U+%04X is one", are_not[i]);
}

/* "Plain" characters are what they claim: their own normal form, starters, and no second half. */
static void plain_characters_are_inert(void **state) {
    (void)state;
    static unsigned char second[0x110000];
    for (uint32_t cp = 0; cp < 0x110000; cp++) {
        utf8proc_int32_t parts[32];
        int class = 0;
        utf8proc_ssize_t n =
            utf8proc_decompose_char((utf8proc_int32_t)cp, parts, 32, UTF8PROC_DECOMPOSE, &class);
        for (utf8proc_ssize_t i = 1; i < n; i++)
            second[parts[i]] = 1;
    }
    size_t plain = 0;
    for (int form = AX_NFC; form <= AX_NFKD; form++) {
        for (uint32_t cp = 0; cp < 0x110000; cp++) {
            char s[4];
            if (cp >= 0xd800 && cp <= 0xdfff)
                continue;
            size_t n = ax_utf8_encode(cp, s);
            if (!ax_nfc_is_plain((enum ax_unicode_form)form, s, n))
                continue;
            utf8proc_uint8_t *mapped;
            int compose = form == AX_NFC || form == AX_NFKC ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
            int compat = form >= AX_NFKC ? UTF8PROC_COMPAT : 0;
            utf8proc_ssize_t m =
                utf8proc_map((utf8proc_uint8_t *)s, (utf8proc_ssize_t)n, &mapped,
                             (utf8proc_option_t)(compose | compat | UTF8PROC_STABLE));
            assert_int_equal(m, n);
            assert_memory_equal(mapped, s, n);
            assert_int_equal(utf8proc_get_property((utf8proc_int32_t)cp)->combining_class, 0);
            assert_int_equal(second[cp], 0);
            free(mapped);
            plain++;
        }
    }
    assert_true(plain > 100000);
}

/* On text of characters that HF's version knows, ours is the library's normal form. */
static void forms_equal_the_library(void **state) {
    (void)state;
    struct text_rng r = {.key = {.seed = 19}};
    struct ax_nfc_work w = {0};
    struct ax_aligned out = {0};
    for (int k = 0; k < 20000; k++) {
        char text[400];
        size_t len = 0;
        while (len < 40) {
            static const uint32_t marks[][2] = {{0x300, 0x36f}, {0x1100, 0x1175}, {0x11a8, 0x11c2},
                                                {0x591, 0x5c7}, {0x3099, 0x309a}, {0x93c, 0x93c}};
            const uint32_t *m = marks[below(&r, 6)];
            uint32_t cp = below(&r, 2) ? m[0] + below(&r, m[1] - m[0] + 1) : random_code_point(&r);
            if (!ax_unicode_is_inert(cp) && cp != 0)
                len += ax_utf8_encode(cp, text + len);
        }
        text[len] = '\0';
        struct ax_piece in = {text, len, 0, NULL};
        enum ax_unicode_form form = (enum ax_unicode_form)(k % 4);
        ax_aligned_start(&out, false);
        MUST(ax_nfc_write(&w, form, &in, &out));
        utf8proc_uint8_t *want = form == AX_NFC    ? utf8proc_NFC((utf8proc_uint8_t *)text)
                                 : form == AX_NFD  ? utf8proc_NFD((utf8proc_uint8_t *)text)
                                 : form == AX_NFKC ? utf8proc_NFKC((utf8proc_uint8_t *)text)
                                                   : utf8proc_NFKD((utf8proc_uint8_t *)text);
        assert_int_equal(out.len, strlen((char *)want));
        assert_memory_equal(out.s, want, out.len);
        free(want);
    }
    ax_nfc_work_free(&w);
    ax_aligned_free(&out);
}

/* A million marks in the worst order: sorted by counting, not by insertion. */
static void many_marks(void **state) {
    (void)state;
    enum { N = 1000000 };
    struct ax_nfc_work w = {0};
    struct ax_aligned out = {0};
    char *text;
    MUST(ax_alloc(&text, 2 * N + 1, 1));
    text[0] = 'a';
    for (size_t i = 0; i < N; i++) /* classes 230 and 220 */
        memcpy(text + 1 + 2 * i, i < N / 2 ? "\xcd\x86" : "\xcc\xa7", 2);
    struct ax_piece in = {text, 2 * N + 1, 0, NULL};
    ax_aligned_start(&out, true);
    MUST(ax_nfc_write(&w, AX_NFD, &in, &out));
    assert_int_equal(out.len, in.len);
    assert_memory_equal(out.s + 1, "\xcc\xa7", 2);
    assert_memory_equal(out.s + 2 * N - 1, "\xcd\x86", 2);
    assert_int_equal(out.align[1].start, 1 + N);
    ax_free(text);
    ax_nfc_work_free(&w);
    ax_aligned_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(repair),
        cmocka_unit_test(check),
        cmocka_unit_test(small_letters),
        cmocka_unit_test(word_characters),
        cmocka_unit_test(plain_characters_are_inert),
        cmocka_unit_test(forms_equal_the_library),
        cmocka_unit_test(many_marks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
