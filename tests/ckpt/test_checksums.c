/* Checksums of files against those of the same bytes in one piece of memory, and what a check says of a file that
 * differs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/direct_io.h"
#include "base/hash/hash.h"
#include "base/mem.h"
#include "ckpt/hf/checksums.h"

enum { PIECE = AX_SUM_PIECE, MOST = 4 * PIECE };

static unsigned char bytes[MOST], one[MOST], other[MOST];

static void must(enum ax_status st) {
    if (st != AX_OK)
        fail_msg("%s", ax_error_text());
}

static void fill(unsigned char *to, size_t n) {
    uint32_t x = 1;
    for (size_t i = 0; i < n; i++) {
        x = x * 1664525U + 1013904223U;
        to[i] = (unsigned char)(x >> 24 | 1); /* none is zero */
    }
}

static void assert_sums(const struct ax_checksums *s, const unsigned char *of, size_t n) {
    assert_int_equal(s->bytes, n);
    assert_int_equal(s->n, (n + PIECE - 1) / PIECE);
    for (size_t i = 0; i < s->n; i++) {
        const size_t at = i * PIECE;
        assert_int_equal(s->crc[i], ax_crc32c(0, of + at, n - at < PIECE ? n - at : PIECE));
    }
}

/* Runs of data and, as negative numbers, of zeros. */
static void pieces_have_their_sums(void **state) {
    static const int runs[][5] = {
        {0},
        {1},
        {-1},
        {PIECE},
        {-PIECE},
        {PIECE - 1, -1, 1},
        {PIECE - 1, -2, 1},
        {-PIECE + 1, 2},
        {3, -PIECE, 5},
        {3, -PIECE + 3, -PIECE, -PIECE - 1, 7},
        {-4096, -4097, 4096, -2 * PIECE},
        {PIECE, -3 * PIECE},
    };
    (void)state;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        struct ax_checksums s = {0};
        size_t n = 0;
        fill(bytes, sizeof bytes);
        for (int k = 0; k < 5; k++) {
            const size_t take = (size_t)abs(runs[i][k]);
            if (runs[i][k] < 0) {
                memset(bytes + n, 0, take);
                must(ax_checksums_add_zeros(&s, take));
            } else {
                must(ax_checksums_add(&s, bytes + n, take));
            }
            n += take;
        }
        assert_sums(&s, bytes, n);
        ax_free(s.crc);
    }
    must(ax_checksums_add(NULL, bytes, 1));
    must(ax_checksums_add_zeros(NULL, 1));
}

/* Two writers of one file, each with zeros where the other has data. */
static void parts_are_combined(void **state) {
    static const size_t sizes[] = {1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE + 77};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct ax_sum_list list = {0};
        struct ax_checksums *s;
        const size_t n = sizes[i];
        fill(bytes, n);
        for (size_t k = 0; k < n; k++) {
            one[k] = k % 3 ? bytes[k] : 0;
            other[k] = k % 3 ? 0 : bytes[k];
        }
        must(ax_sum_list_add(&list, "first", &s));
        must(ax_checksums_add(s, "another file", 12));
        must(ax_sum_list_add(&list, "a", &s));
        must(ax_checksums_add(s, one, n));
        must(ax_sum_list_add(&list, "a", &s));
        must(ax_checksums_add(s, other, n));
        must(ax_sum_list_merge_last(&list, 1));
        assert_int_equal(list.n, 2);
        assert_sums(&list.files[0].sums, (const unsigned char *)"another file", 12);
        assert_sums(&list.files[1].sums, bytes, n);
        assert_int_equal(ax_sum_list_merge_last(&list, 0), n == 12 ? AX_OK : AX_ERR_DATA);
        assert_non_null(strstr(ax_error_text(), "a: checksums of 12 and of "));
        ax_sum_list_free(&list);
        ax_sum_list_free(&list);
    }
    struct ax_checksums *none = (struct ax_checksums *)(void *)bytes;
    must(ax_sum_list_add(NULL, "a", &none));
    assert_null(none);
}

static void put(const char *path, const unsigned char *data, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

static void says(const char *dir, const struct ax_file_sums *f, int part, const char *text) {
    void *heap, *buffer;
    must(ax_alloc_direct(&heap, &buffer, PIECE));
    const enum ax_status st = ax_file_sums_check(dir, f, part, 2, buffer);
    ax_free(heap);
    assert_int_equal(st, text ? AX_ERR_DATA : AX_OK);
    if (text && !strstr(ax_error_text(), text))
        fail_msg("%s instead of %s", ax_error_text(), text);
}

/* Of two parts, the second reads the second piece alone. */
static void damage_has_a_place(void **state) {
    const size_t n = 2 * PIECE + 77;
    char dir[] = "/tmp/axtrain-sums-XXXXXX", path[64], name[] = "a";
    struct ax_file_sums f = {.name = name};
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/a", dir);
    fill(bytes, n);
    must(ax_checksums_add(&f.sums, bytes, n));
    says(dir, &f, 0, "/a: missing; the checkpoint's manifest lists it");
    put(path, bytes, n);
    says(dir, &f, 0, NULL);
    says(dir, &f, 1, NULL);
    bytes[PIECE] ^= 1;
    put(path, bytes, n);
    says(dir, &f, 0, NULL);
    says(dir, &f, 1, "/a: corrupted between bytes 1048576 and 2097152 (checksum mismatch)");
    bytes[PIECE] ^= 1;
    bytes[n - 1] ^= 1;
    put(path, bytes, n);
    says(dir, &f, 0, "/a: corrupted between bytes 2097152 and 2097229 (checksum mismatch)");
    says(dir, &f, 1, NULL);
    put(path, bytes, n - 1);
    says(dir, &f, 1, "/a: has 2097228 bytes instead of 2097229: it is corrupted");
    unlink(path);
    rmdir(dir);
    ax_free(f.sums.crc);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_have_their_sums),
        cmocka_unit_test(parts_are_combined),
        cmocka_unit_test(damage_has_a_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
