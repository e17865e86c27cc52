/* Words that a user gives: lists of them, and a known one for a misspelled one. */
#ifndef AX_BASE_TEXT_WORDS_H
#define AX_BASE_TEXT_WORDS_H

#define AX_ARG_LIST_MAX 16
/* The values of a repeatable option. */
struct ax_arg_list {
    int n;
    const char *text[AX_ARG_LIST_MAX];
};

/* Damerau–Levenshtein distance (adjacent swaps count 1), capped at 8. */
int ax_edit_distance(const char *a, const char *b);

/* The best suggestion for `given`: the first of the nearest names tried, at an edit distance below
 * `within`. */
struct ax_nearest {
    const char *given;
    int within;
    const char *name; /* NULL: none yet */
};
void ax_nearest_try(struct ax_nearest *n, const char *name);

#endif
