/* Python's regular expressions. Any bytes are read or refused; expressions that compile search a text within
 * their bounds; nothing stays allocated. Behind the first NUL the input goes on with the text to search. */
#include <string.h>

#include "base/mem.h"
#include "base/text/regex.h"
#include "base/text/unicode.h"

static void search(const struct ax_regex *re, const char *text, size_t len) {
    struct ax_regex_work work = {0};
    struct ax_regex_iter it = ax_regex_search(re, &work, text, len);
    size_t start, end, at = 0;
    bool found = true;
    for (int i = 0; i < 1000 && ax_regex_next(&it, &found, &start, &end) == AX_OK && found; i++) {
        AX_ASSERT(start <= end && end <= len && end >= at);
        at = end;
    }
    ax_regex_work_free(&work);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint64_t live = ax_mem_live_blocks();
    const char *s = (const char *)data, *nul = size > 0 ? memchr(s, '\0', size) : NULL;
    const size_t len = nul != NULL ? (size_t)(nul - s) : size;
    struct ax_regex *re;
    if (ax_regex_compile_python(&re, s, len) == AX_OK) {
        const char *text = nul != NULL ? nul + 1 : s;
        const size_t n = nul != NULL ? size - len - 1 : len;
        if (ax_utf8_check(text, n) == n)
            search(re, text, n);
        ax_regex_free(re);
    }
    AX_ASSERT(ax_mem_live_blocks() == live);
    return 0;
}
