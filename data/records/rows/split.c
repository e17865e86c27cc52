#include "data/records/rows/split.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ALL INT64_MAX

static bool is_name_char(char c) {
    return isalnum((unsigned char)c) || c == '_' || c == '.' || c == '-';
}

/* An integer, optionally followed by '%'. An empty bound stays unset. */
static bool parse_bound(const char **at, struct ax_split_bound *b) {
    const char *s = *at + (**at == '-');
    if (!isdigit((unsigned char)*s))
        return s == *at; /* a minus without a number is an error */
    char *end;
    errno = 0;
    b->value = strtoll(*at, &end, 10);
    b->set = true;
    b->percent = *end == '%';
    *at = end + b->percent;
    return errno == 0;
}

static bool in_percent(struct ax_split_bound *b) {
    b->percent = b->set;
    return b->value >= -100 && b->value <= 100;
}

/* One % makes percentages of both bounds, as in Hugging Face's datasets. */
static bool share_percent(struct ax_split *s) {
    if (!s->from.percent && !s->to.percent)
        return true;
    return in_percent(&s->from) && in_percent(&s->to);
}

static bool parse_part(const char **at, struct ax_split *s) {
    size_t n = 0;
    while (is_name_char((*at)[n]))
        n++;
    if (n == 0 || n >= sizeof s->name)
        return false;
    *s = (struct ax_split){0};
    memcpy(s->name, *at, n);
    *at += n;
    if (**at != '[')
        return true;
    ++*at;
    if (!parse_bound(at, &s->from) || **at != ':')
        return false;
    ++*at;
    if (!parse_bound(at, &s->to) || **at != ']')
        return false;
    ++*at;
    return true;
}

enum ax_status ax_split_parse(const char *text, struct ax_split *parts, size_t *n) {
    const char *at = text;
    *n = 0;
    for (;;) {
        if (*n == AX_SPLIT_PARTS_MAX)
            return ax_error(AX_ERR_CONFIG, "split \"%s\" has more than %d parts", text,
                            AX_SPLIT_PARTS_MAX);
        if (!parse_part(&at, &parts[*n]) || (*at != '\0' && *at != '+'))
            return ax_error(AX_ERR_CONFIG,
                            "split \"%s\": syntax error at \"%s\"; write, for example, train, "
                            "train[:500], train[10%%:20%%] or train+test",
                            text, at);
        if (!share_percent(&parts[*n]))
            return ax_error(AX_ERR_CONFIG,
                            "split \"%s\": one %% makes percentages of both bounds, which are from "
                            "-100 to 100; without it they are records",
                            text);
        ++*n;
        if (*at == '\0')
            return AX_OK;
        at++;
    }
}

static bool bound_needs_count(const struct ax_split_bound *b) {
    return b->set && (b->percent || b->value < 0);
}

bool ax_split_needs_count(const struct ax_split *s) {
    return bound_needs_count(&s->from) || bound_needs_count(&s->to);
}

static int64_t resolve(const struct ax_split_bound *b, int64_t n_rows, int64_t unset) {
    if (!b->set)
        return unset;
    int64_t v = b->value;
    if (b->percent)
        v = (int64_t)rint((double)v * (double)n_rows / 100.0);
    if (bound_needs_count(b)) {
        v = v < 0 ? v + n_rows : v;
        v = v < n_rows ? v : n_rows;
    }
    return v < 0 ? 0 : v;
}

void ax_split_resolve(const struct ax_split *s, int64_t n_rows, int64_t *from, int64_t *to) {
    *from = resolve(&s->from, n_rows, 0);
    *to = resolve(&s->to, n_rows, ALL);
}
