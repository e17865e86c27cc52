#include "data/records/format/chat_prefix.h"

#include <ctype.h>
#include <string.h>

/* Shorter conversations are rendered as they are. */
enum { LONG_CONVERSATION = 32 };

/* ---- templates that write messages one by one ---- */

static bool is_word(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

/* The next place of a name that is no part of a longer one; NULL: none. */
static const char *find_name(const char *at, const char *end, const char *name) {
    const size_t n = strlen(name);
    for (const char *s = at; (s = memmem(s, (size_t)(end - s), name, n)) != NULL; s++)
        if ((s == at || !is_word(s[-1])) && (s + n == end || !is_word(s[n])))
            return s;
    return NULL;
}

/* The text at s, after blanks, begins with one of the words. `s` is NUL-terminated at the end. */
static bool follows(const char *s, const char *const *words, size_t n) {
    s += strspn(s, " \t\r\n");
    for (size_t i = 0; i < n; i++)
        if (strncmp(s, words[i], strlen(words[i])) == 0)
            return true;
    return false;
}

/* The text before s ends with the word and blanks. */
static bool precedes(const char *source, const char *s, const char *word) {
    const size_t n = strlen(word);
    const char *end = s;
    while (end > source && isspace((unsigned char)end[-1]))
        end--;
    return end < s && (size_t)(end - source) > n && memcmp(end - n, word, n) == 0 &&
           !is_word(end[-1 - (ptrdiff_t)n]);
}

/* Where a message is in the list matters only by whether it is the first, and even or odd. */
static bool reads_places(const char *source, const char *end) {
    static const char *const even[] = {"% 2 ", "% 2)", "%2 ", "%2)"};
    static const char *const first[] = {"== 0 ", "== 0)", "==0 "}, *const one[] = {"== 1 "};
    for (const char *s = source; (s = find_name(s, end, "loop")) != NULL; s += 4) {
        if (strncmp(s, "loop.first", 10) == 0 && !is_word(s[10]))
            continue;
        const bool zero = strncmp(s, "loop.index0", 11) == 0 && !is_word(s[11]);
        const bool index = strncmp(s, "loop.index", 10) == 0 && !is_word(s[10]);
        const char *rest = s + (zero ? 11 : 10);
        if ((zero || index) && (follows(rest, even, 4) || (zero && follows(rest, first, 3)) ||
                                (index && follows(rest, one, 1))))
            continue;
        return true;
    }
    return false;
}

/* Words with which a template could carry something from one message to the next, or stop. */
static bool carries(const char *source, const char *end) {
    static const char *const words[] = {
        "namespace",  "macro",    "call",      "caller",  "cycler", "joiner",    "self",
        "break",      "continue", "recursive", "include", "import", "extends",   "real_last_index",
        "append",     "extend",   "insert",    "pop",     "update", "remove",    "clear",
        "setdefault", "popitem",  "sort",      "reverse", "do",     "generation"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (find_name(source, end, words[i]))
            return true;
    return false;
}

/* True if the list, or all but its first message, is only looped over, once, and asked for its first message. It may
 * have another name, which is copied to `alias`. */
static bool loops_once(const char *source, const char *end, const char *name, char alias[64]) {
    static const char *const close[] = {"%}", "-%}"};
    const size_t n = strlen(name);
    int loops = 0;
    alias[0] = '\0';
    for (const char *s = source; (s = find_name(s, end, name)) != NULL; s += n) {
        if (strncmp(s + n, "[0]", 3) == 0)
            continue;
        const bool rest = strncmp(s + n, "[1:]", 4) == 0; /* without a system message, say */
        if (!follows(s + n + (rest ? 4 : 0), close, 2))
            return false;
        if (precedes(source, s, "in")) {
            loops++;
            continue;
        }
        const char *word = s;
        while (word > source && isspace((unsigned char)word[-1]))
            word--;
        if (word == source || *--word != '=')
            return false;
        while (word > source && isspace((unsigned char)word[-1]))
            word--;
        const char *last = word;
        while (word > source && is_word(word[-1]))
            word--;
        const size_t length = (size_t)(last - word);
        if (length == 0 || length >= 64 || !precedes(source, word, "set") ||
            (alias[0] && (strlen(alias) != length || memcmp(alias, word, length) != 0)))
            return false;
        memcpy(alias, word, length);
        alias[length] = '\0';
    }
    return alias[0] ? loops == 0 : loops == 1;
}

/* The name of the list where it is set is not a use of it. */
static bool alias_loops_once(const char *source, const char *end, const char *alias) {
    static const char *const close[] = {"%}", "-%}"}, *const set[] = {"="};
    const size_t n = strlen(alias);
    int loops = 0, sets = 0;
    for (const char *s = source; (s = find_name(s, end, alias)) != NULL; s += n)
        if (precedes(source, s, "set") && follows(s + n, set, 1))
            sets++;
        else if (precedes(source, s, "in") && follows(s + n, close, 2))
            loops++;
        else if (strncmp(s + n, "[0]", 3) != 0)
            return false;
    return loops == 1 && sets > 0;
}

/* True if the source of a template says that it is local, as above. */
static bool is_local(const char *source, size_t n) {
    const char *end = source + n;
    char alias[64];
    return !carries(source, end) && !reads_places(source, end) &&
           loops_once(source, end, "messages", alias) &&
           (!alias[0] || alias_loops_once(source, end, alias));
}

/* ---- renderings ----
 *
 * With H for what a template writes before and of the first messages, b(i) for message i, and P for what follows all,
 * the rendering of the first messages alone is H P, with message i H b(i) P. Where H ends and P begins cannot be seen.
 * But every division H' P' of H P will do with which all of H b(i) P begin and end: what is between them then is
 * b(i), moved by the same bytes, and H' b'(2) … b'(i) P' is the rendering of the first i + 1 messages. */

static size_t common_start(const char *a, size_t n_a, const char *b, size_t n_b) {
    const size_t n = n_a < n_b ? n_a : n_b;
    size_t i = 0;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

/* An even message follows the first two, so that its place is even, and not the first of any loop. */
static size_t before(size_t i) {
    return i % 2 == 0 ? 2 : 3;
}

/* What message i adds, of the rendering `t` of it behind those before; false: something else has changed. */
static bool find_part(const struct ax_chat_prefixes *p, size_t i,
                      const struct ax_template_output *t, struct ax_text *part) {
    const struct ax_template_output *base = &p->bases[before(i) - 2];
    const size_t head = base->len - p->tail;
    if (t->len < base->len || memcmp(t->text, base->text, head) != 0 ||
        memcmp(t->text + t->len - p->tail, base->text + head, p->tail) != 0)
        return false;
    *part = (struct ax_text){t->text + head, t->len - base->len};
    return true;
}

static enum ax_status render(const struct ax_chat_prefixes *p, const struct ax_chat_render *r,
                             size_t head, struct ax_template_output *out, bool *ok) {
    struct ax_chat_render of = *r;
    of.head = head;
    const enum ax_status st = ax_chat_render(p->f, p->c, &of, out);
    *ok = st == AX_OK;
    if (st != AX_ERR_DATA)
        return st;
    ax_error_clear(); /* it will be said of the conversation */
    return AX_OK;
}

static enum ax_status take_bases(struct ax_chat_prefixes *p) {
    struct ax_template_output fourth = {0};
    struct ax_template_output *b = p->bases;
    bool ok = true;
    for (size_t k = 0; k < 2 && ok; k++)
        AX_TRY(render(p, &(struct ax_chat_render){.n = k + 2, .part = true}, 0, &b[k], &ok));
    if (ok)
        AX_TRY(render(p, &(struct ax_chat_render){.n = 4, .part = true}, 0, &fourth, &ok));
    if (ok) {
        const size_t odd = b[0].len - common_start(b[0].text, b[0].len, b[1].text, b[1].len);
        const size_t even = b[1].len - common_start(b[1].text, b[1].len, fourth.text, fourth.len);
        p->tail = odd > even ? odd : even;
        p->end = b[0].len - (p->tail < b[0].len ? p->tail : b[0].len);
        p->usable = p->tail <= b[0].len && b[0].len <= b[1].len && p->end <= p->whole.n &&
                    memcmp(b[0].text + p->end, b[1].text + b[1].len - p->tail, p->tail) == 0 &&
                    memcmp(b[0].text, p->whole.s, p->end) == 0;
    }
    ax_template_output_free(&fourth);
    return AX_OK;
}

enum ax_status ax_chat_prefixes_begin(struct ax_chat_prefixes *p, const struct ax_format *f,
                                      const struct ax_conversation *c, struct ax_text whole) {
    *p = (struct ax_chat_prefixes){.f = f, .c = c, .whole = whole, .next = 2};
    size_t n;
    if (c->n < LONG_CONVERSATION)
        return AX_OK;
    const char *source = ax_template_source(ax_conversation_template(f, c), &n);
    return is_local(source, n) ? take_bases(p) : AX_OK;
}

void ax_chat_prefixes_free(struct ax_chat_prefixes *p) {
    ax_template_output_free(&p->bases[0]);
    ax_template_output_free(&p->bases[1]);
    ax_buf_free(&p->real);
    ax_buf_free(&p->other);
}

/* Finds the place of the next message. */
static enum ax_status advance(struct ax_chat_prefixes *p) {
    const size_t i = p->next;
    struct ax_template_output t = {0};
    struct ax_text part;
    bool ok;
    AX_TRY(render(p, &(struct ax_chat_render){.n = i + 1, .part = true}, before(i), &t, &ok));
    p->usable = ok && find_part(p, i, &t, &part) && part.n <= p->whole.n - p->end &&
                memcmp(p->whole.s + p->end, part.s, part.n) == 0;
    if (p->usable) {
        p->begin = p->end;
        p->end += part.n;
        p->next = i + 1;
    }
    ax_template_output_free(&t);
    return AX_OK;
}

/* The first n bytes of `whole`, of which the buffer has *kept, then the part, then the tail. */
static enum ax_status put(const struct ax_chat_prefixes *p, struct ax_buf *b, size_t *kept,
                          size_t n, struct ax_text part, struct ax_text *out) {
    const struct ax_template_output *base = &p->bases[0];
    b->len = *kept;
    AX_TRY(ax_buf_append(b, p->whole.s + *kept, n - *kept));
    *kept = n;
    AX_TRY(ax_buf_append(b, part.s, part.n));
    AX_TRY(ax_buf_append(b, base->text + base->len - p->tail, p->tail));
    *out = (struct ax_text){b->data, b->len};
    return AX_OK;
}

enum ax_status ax_chat_prefixes_turn(struct ax_chat_prefixes *p, const struct ax_chat_render *r,
                                     struct ax_turn_pair *pair, bool *found) {
    struct ax_template_output t = {0};
    const size_t i = r->n - 1;
    struct ax_text part;
    enum ax_status st;
    *found = false;
    while (p->usable && p->next <= i)
        AX_TRY(advance(p));
    if (!p->usable || i < 2)
        return AX_OK;
    AX_TRY_GOTO(render(p, r, before(i), &t, found), st, done);
    *found = *found && find_part(p, i, &t, &part);
    if (*found) {
        const struct ax_text own = {p->whole.s + p->begin, p->end - p->begin};
        AX_TRY_GOTO(put(p, &p->real, &p->n_real, p->begin, own, &pair->real), st, done);
        AX_TRY_GOTO(put(p, &p->other, &p->n_other, p->begin, part, &pair->other), st, done);
        pair->shared = p->begin;
    }
done:
    ax_template_output_free(&t);
    return st;
}
