#include "base/mask.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

/* How tokens begin, and how many characters then follow at least. */
static const struct {
    const char *prefix, *also; /* characters in it besides letters and digits */
} tokens[] = {{"hf_", ""}, {"ghp_", ""}, {"github_pat_", "_"}, {"sk-", "-_"}};
enum { TOKEN_MIN = 20 };

static bool is_in_token(char c, const char *also) {
    return isalnum((unsigned char)c) || (c != '\0' && strchr(also, c));
}

/* The bytes of the token at p after its prefix; 0: there is none. */
static size_t token_after(const char *p, size_t *prefix) {
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        size_t n = 0;
        *prefix = strlen(tokens[i].prefix);
        if (strncmp(p, tokens[i].prefix, *prefix) != 0)
            continue;
        while (is_in_token(p[*prefix + n], tokens[i].also))
            n++;
        if (n >= TOKEN_MIN)
            return n;
    }
    return 0;
}

void ax_mask_tokens(char *text) {
    for (char *p = text; *p != '\0'; p++) {
        size_t prefix;
        if (p > text && is_in_token(p[-1], "-_"))
            continue;
        const size_t n = token_after(p, &prefix);
        if (n == 0)
            continue;
        p += prefix;
        memset(p, '*', 3);
        memmove(p + 3, p + n, strlen(p + n) + 1);
    }
}
