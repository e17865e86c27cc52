/* Mutations of JSON text that blind flips rarely find: a number or a word becomes another one. */
#ifndef AX_TESTS_FUZZ_MUTATE_H
#define AX_TESTS_FUZZ_MUTATE_H

#include <stdint.h>
#include <string.h>

#define FUZZ_MAX_TEXT 8192

struct fuzz_text {
    char text[FUZZ_MAX_TEXT + 1]; /* NUL-terminated */
    size_t len;
};

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

static inline void fuzz_text_set(struct fuzz_text *t, const uint8_t *data, size_t size) {
    t->len = size < FUZZ_MAX_TEXT ? size : FUZZ_MAX_TEXT;
    memcpy(t->text, data, t->len);
    t->text[t->len] = '\0';
}

/* What libFuzzer itself would do to the text. */
static inline void fuzz_text_flip(struct fuzz_text *t) {
    t->len = LLVMFuzzerMutate((uint8_t *)t->text, t->len, FUZZ_MAX_TEXT);
    t->text[t->len] = '\0';
}

/* text[at, at + n) becomes `by`; nothing where it would be too long. */
static inline void fuzz_text_replace(struct fuzz_text *t, size_t at, size_t n, const char *by) {
    const size_t m = strlen(by);
    if (t->len - n + m <= FUZZ_MAX_TEXT) {
        memmove(t->text + at + m, t->text + at + n, t->len - at - n + 1);
        memcpy(t->text + at, by, m);
        t->len += m - n;
    }
}

/* One of the runs of characters from `set`, chosen by `random`: its start, and its length in *n (0:
 * there is none). A NUL in the text ends the search. */
static inline size_t fuzz_text_run(const struct fuzz_text *t, const char *set, unsigned random,
                                   size_t *n) {
    size_t runs = 0;
    for (const char *p = t->text; *(p += strcspn(p, set)) != '\0'; p += strspn(p, set))
        runs++;
    const char *p = t->text + strcspn(t->text, set);
    for (size_t skip = runs > 0 ? random % runs : 0; skip > 0; skip--) {
        p += strspn(p, set);
        p += strcspn(p, set);
    }
    *n = strspn(p, set);
    return (size_t)(p - t->text);
}

static inline void fuzz_text_change_number(struct fuzz_text *t, unsigned random) {
    static const char *const numbers[] = {"0",
                                          "1",
                                          "2",
                                          "3",
                                          "4",
                                          "8",
                                          "16",
                                          "255",
                                          "256",
                                          "2048",
                                          "65536",
                                          "16777216",
                                          "-1",
                                          "1.5",
                                          "0.5",
                                          "1e3",
                                          "1e-300",
                                          "1e300",
                                          "4294967296",
                                          "2305843009213693952",
                                          "4611686018427387904",
                                          "9223372036854775807",
                                          "9223372036854775808",
                                          "18446744073709551615",
                                          "0,0",
                                          "2,3",
                                          "1,1,1,1,1,1,1,1",
                                          "null",
                                          "true",
                                          "\"x\"",
                                          ""};
    const unsigned count = sizeof numbers / sizeof *numbers;
    size_t n;
    const size_t at = fuzz_text_run(t, "0123456789.", random / count, &n);
    if (n > 0)
        fuzz_text_replace(t, at, n, numbers[random % count]);
}

/* A target's LLVMFuzzerCustomMutator, of JSON text. */
static inline size_t fuzz_text_mutate(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    static struct fuzz_text t;
    fuzz_text_set(&t, data, size);
    if (seed % 2 == 0)
        fuzz_text_flip(&t);
    else
        fuzz_text_change_number(&t, seed / 2);
    size = t.len < max_size ? t.len : max_size;
    memcpy(data, t.text, size);
    return size;
}

#endif
