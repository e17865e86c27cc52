/* What can be done with the words of a text: what is between spaces. */
#include "data/coding/builder.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

#define OP(name) static bool name(struct ax_coding_value *v, const struct ax_coding_operands *o)

/* The next word of the text from *at on, which moves past it; n == 0: none. */
struct word {
    const char *s;
    size_t n;
};
static struct word next_word(const struct ax_coding_value *v, size_t *at) {
    while (*at < v->n && v->text[*at] == ' ')
        (*at)++;
    const size_t start = *at;
    while (*at < v->n && v->text[*at] != ' ')
        (*at)++;
    return (struct word){v->text + start, *at - start};
}

OP(reverse_words) {
    struct ax_coding_builder b = {.n = 0};
    (void)o;
    for (size_t end = v->n; end > 0;) {
        size_t start = end;
        while (start > 0 && v->text[start - 1] != ' ')
            start--;
        ax_coding_build(&b, " ", b.n > 0 && end > start);
        ax_coding_build(&b, v->text + start, end - start);
        end = start - (start > 0);
    }
    return ax_coding_built(&b, v);
}

OP(reverse_each_word) {
    struct ax_coding_builder b = {.n = 0};
    (void)o;
    size_t at = 0;
    for (struct word w = next_word(v, &at); w.n > 0; w = next_word(v, &at)) {
        ax_coding_build(&b, " ", b.n > 0);
        for (size_t i = w.n; i > 0; i--)
            ax_coding_build_char(&b, w.s[i - 1]);
    }
    return ax_coding_built(&b, v);
}

OP(initials) {
    struct ax_coding_builder b = {.n = 0};
    (void)o;
    size_t at = 0;
    for (struct word w = next_word(v, &at); w.n > 0; w = next_word(v, &at))
        ax_coding_build_char(&b, *w.s);
    return ax_coding_built(&b, v);
}

/* The word in place of the text; false if there is none. */
static bool take(struct ax_coding_value *v, struct word w) {
    memmove(v->text, w.s, w.n);
    v->text[w.n] = '\0';
    v->n = w.n;
    return w.n > 0;
}

OP(first_word) {
    size_t at = 0;
    (void)o;
    return take(v, next_word(v, &at));
}

OP(last_word) {
    struct word last = {v->text, 0};
    size_t at = 0;
    (void)o;
    for (struct word w = next_word(v, &at); w.n > 0; w = next_word(v, &at))
        last = w;
    return take(v, last);
}

OP(longest_word) {
    struct word longest = {v->text, 0};
    size_t at = 0;
    (void)o;
    for (struct word w = next_word(v, &at); w.n > 0; w = next_word(v, &at))
        longest = w.n > longest.n ? w : longest;
    return take(v, longest);
}

OP(word_lengths) {
    size_t at = 0, n = 0;
    (void)o;
    for (struct word w = next_word(v, &at); w.n > 0 && n < AX_CODING_MAX_ITEMS;
         w = next_word(v, &at))
        v->items[n++] = (int64_t)w.n;
    v->n = n;
    return true;
}

OP(count_words) {
    (void)word_lengths(v, o);
    v->i = (int64_t)v->n;
    return true;
}

#define TEXT AX_CODING_TEXT, AX_CODING_TEXT

static const struct ax_coding_op ops[] = {
    {TEXT, 3, "the words of {0} in reverse order, joined by single spaces",
     "reverse the order of its words, joined by single spaces", "' '.join({(0)}.split()[::-1])",
     .loose = true, .run = reverse_words},
    {TEXT, 2, "the words of {0}, each of them reversed, joined by single spaces",
     "reverse each of its words, joined by single spaces",
     "' '.join([w[::-1] for w in {(0)}.split()])", .loose = true, .run = reverse_each_word},
    {TEXT, 2, "the first characters of the words in {0} as one string",
     "join the first characters of its words", "''.join([w[0] for w in {(0)}.split()])",
     .run = initials},
    {TEXT, 2, "the first word of {0}", "take the first word", "{(0)}.split()[0]",
     .run = first_word},
    {TEXT, 2, "the last word of {0}", "take the last word", "{(0)}.split()[-1]", .run = last_word},
    {TEXT, 2, "the longest word of {0} (the first of equal ones)",
     "take the longest word (the first of equal ones)", "max({(0)}.split(), key=len)",
     .run = longest_word},
    {AX_CODING_TEXT, AX_CODING_INT, 3, "the number of words in {0}", "count the words",
     "len({(0)}.split())", .run = count_words},
    {AX_CODING_TEXT, AX_CODING_LIST, 4, "the lengths of the words in {0}",
     "list the lengths of its words", "[len(w) for w in {(0)}.split()]", .run = word_lengths},
};
const struct ax_coding_ops ax_coding_ops_of_words = {ops, COUNT(ops)};
