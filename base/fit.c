#include "base/fit.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Texts that are longer lose their end instead. */
enum { LONGEST = 1 << 14 };

static const char gap[] = " \xe2\x80\xa6 ";

/* A byte of a UTF-8 character after its first. */
static int is_continuation(char c) {
    return ((unsigned char)c & 0xC0U) == 0x80U;
}

/* Cuts an incomplete UTF-8 sequence that truncation left at the end. */
static void trim_utf8(char *s) {
    size_t n = strlen(s);
    size_t back = 0;
    while (back < 3 && back < n && is_continuation(s[n - 1 - back]))
        back++;
    if (back == n)
        return;
    const unsigned char lead = (unsigned char)s[n - 1 - back];
    const size_t need = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
    if (need > back)
        s[n - 1 - back] = '\0';
}

static void leave_out_middle(char *out, size_t size, const char *text, size_t n) {
    const size_t room = size - sizeof gap; /* for the rest of the text */
    size_t head = room - room / 2, tail = n - room / 2;
    while (head > 0 && is_continuation(text[head]))
        head--;
    while (is_continuation(text[tail]))
        tail++;
    memcpy(out, text, head);
    memcpy(out + head, gap, sizeof gap - 1);
    memcpy(out + head + sizeof gap - 1, text + tail, n - tail + 1);
}

/* How access tokens begin, and how many characters then follow at least. */
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

/* Replaces what follows hf_, ghp_, github_pat_ or sk- in tokens by ***, in place: an error quotes the value that it is
 * about. */
static void mask_tokens(char *text) {
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

void ax_vfit(char *out, size_t size, const char *fmt, va_list ap) {
    char text[LONGEST];
    vsnprintf(text, sizeof text, fmt, ap);
    trim_utf8(text);
    mask_tokens(text);
    const size_t n = strlen(text);
    if (n < size)
        memcpy(out, text, n + 1);
    else
        leave_out_middle(out, size, text, n);
}

void ax_fit(char *out, size_t size, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    ax_vfit(out, size, fmt, ap);
    va_end(ap);
}
