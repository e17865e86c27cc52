/* The registry of model families. */
#include "model/arch/family.h"

#include <stdio.h>
#include <string.h>

#include "base/text/words.h"

static const struct ax_family *const families[] = {
#define FAMILY_ROW(name) &ax_family_##name,
    AX_FAMILY_LIST(FAMILY_ROW)
#undef FAMILY_ROW
};
#define N_FAMILIES (sizeof families / sizeof *families)

const struct ax_family *ax_family_find(const char *model_type) {
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (strcmp(families[i]->model_type, model_type) == 0)
            return families[i];
    return NULL;
}

/* The number of characters that both begin with. */
static size_t common(const char *a, const char *b) {
    size_t n = 0;
    while (a[n] && a[n] == b[n])
        n++;
    return n;
}

/* Of the i-th family, or of what comes after them, a model with one in it. */
static const char *name_at(size_t i) {
    const struct ax_wrapper *w = i < N_FAMILIES ? NULL : ax_wrapper_at(i - N_FAMILIES);
    return i < N_FAMILIES ? families[i]->model_type : w ? w->model_type : NULL;
}

/* The longest name that `model_type` begins with, else one that begins like it, else one that is spelled
 * like it. */
const char *ax_family_nearest(const char *model_type) {
    enum { LIKE = 4 };
    struct ax_nearest spelled = {.given = model_type, .within = 3};
    const char *begun = NULL, *alike = NULL, *name;
    for (size_t i = 0; (name = name_at(i)) != NULL; i++) {
        const size_t n = common(model_type, name);
        if (n == strlen(name) && (!begun || n > strlen(begun)))
            begun = name;
        if (n >= LIKE && (!alike || n > common(model_type, alike)))
            alike = name;
        ax_nearest_try(&spelled, name);
    }
    return begun ? begun : alike ? alike : spelled.name;
}

const char *ax_family_list(char *buf, size_t size) {
    size_t at = 0;
    buf[0] = '\0';
    const char *name;
    for (size_t i = 0; at < size && (name = name_at(i)) != NULL; i++)
        at += (size_t)snprintf(buf + at, size - at, "%s%s",
                               i == N_FAMILIES ? "; for their text models "
                               : i             ? ", "
                                               : "",
                               name);
    return buf;
}
