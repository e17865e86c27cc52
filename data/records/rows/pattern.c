#include "data/records/rows/pattern.h"

#include <string.h>

/* Backtracks only to the last * and the last **, so time ≤ pattern × path. */

/* [a-c] or [!a-c] at `p`: sets *end after it. False for an unterminated set: then [ is literal. */
static bool match_set(const char *p, char c, const char **end, bool *in) {
    const bool negate = p[1] == '!' || p[1] == '^';
    const char *s = p + 1 + negate;
    *in = false;
    for (const char *first = s; *s && (*s != ']' || s == first); s++) {
        if (s[1] == '-' && s[2] && s[2] != ']') {
            *in = *in || (c >= s[0] && c <= s[2]);
            s += 2;
        } else {
            *in = *in || c == *s;
        }
    }
    if (*s != ']')
        return false;
    *end = s + 1;
    *in = *in != negate && c != '/';
    return true;
}

/* Matches one character of the path with one of the pattern, and moves *pattern past it. */
static bool match_one(const char **pattern, char c) {
    const char *p = *pattern;
    const char *end;
    bool in;
    if (*p == '[' && match_set(p, c, &end, &in)) {
        *pattern = end;
        return in;
    }
    *pattern = p + 1;
    return *p == '?' ? c != '/' : *p == c;
}

bool ax_path_match(const char *pattern, const char *path) {
    const char *star = NULL, *star_at = NULL;   /* after the last *, and the position it reached */
    const char *cross = NULL, *cross_at = NULL; /* the same for the last ** */
    bool whole_parts = false;
    const char *p = pattern, *s = path;
    while (*s || *p) {
        if (p[0] == '*' && p[1] == '*') {
            p += 2;
            whole_parts = *p == '/'; /* then ** matches entire parts, or none */
            p += whole_parts;
            cross = p;
            cross_at = s;
            star = NULL;
            continue;
        }
        if (*p == '*') {
            star = ++p;
            star_at = s;
            continue;
        }
        if (*s && *p && match_one(&p, *s)) {
            s++;
        } else if (star && *star_at && *star_at != '/') {
            p = star;
            s = ++star_at;
        } else if (cross && *cross_at) {
            p = cross;
            for (++cross_at; whole_parts && *cross_at && cross_at[-1] != '/';)
                cross_at++;
            s = cross_at;
            star = NULL;
        } else {
            return false;
        }
    }
    return true;
}
