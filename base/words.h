/* Which known word somebody may have meant. */
#ifndef AX_BASE_WORDS_H
#define AX_BASE_WORDS_H

/* Damerau–Levenshtein distance (adjacent swaps count 1), capped at 8. */
int ax_edit_distance(const char *a, const char *b);

/* What somebody may have meant by `given`: the first of the tried names that is nearest, at fewer
 * than `within` letters. */
struct ax_nearest {
    const char *given;
    int within;
    const char *name; /* NULL: none yet */
};
void ax_nearest_try(struct ax_nearest *n, const char *name);

#endif
