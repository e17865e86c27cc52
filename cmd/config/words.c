/* Choices, ranges and expected values in words. */
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "cmd/config/table.h"

/* The names that "@WHAT" at the start of `choices` refers to. */
static const struct ax_config_names *names_at(const char *choices, size_t len) {
    const struct ax_config_names *names = ax_config_names;
    while (names->what != NULL &&
           (strlen(names->what) + 1 != len || strncmp(names->what, choices + 1, len - 1) != 0))
        names++;
    AX_ASSERT(names->what != NULL);
    return names;
}

/* The i-th choice, and how it is approximated if another module's names say so. */
static bool choice_at(const char *choices, size_t i, char *buf, size_t size, bool *named,
                      const char **note) {
    while (choices != NULL && *choices != '\0') {
        const size_t len = strcspn(choices, "|");
        const char *name;
        *named = *choices == '@';
        for (size_t k = 0; *named; k++) {
            const struct ax_config_names *names = names_at(choices, len);
            *note = NULL;
            name = names->plain ? names->plain(k) : names->at(k, note);
            if (name == NULL)
                break;
            if (i-- == 0) {
                snprintf(buf, size, "%s", name);
                return true;
            }
        }
        if (!*named && i-- == 0) {
            snprintf(buf, size, "%.*s", (int)len, choices);
            return true;
        }
        choices += len + (choices[len] == '|');
    }
    return false;
}

bool ax_config_choice_at(const char *choices, size_t i, char *buf, size_t size) {
    bool named;
    const char *note;
    return choice_at(choices, i, buf, size, &named, &note);
}

bool ax_config_choice(const char *choices, const char *text) {
    char one[128];
    for (size_t i = 0; ax_config_choice_at(choices, i, one, sizeof one); i++)
        if (fnmatch(one, text, 0) == 0)
            return true;
    return false;
}

bool ax_config_find_value(const struct ax_config_key *key, const char *text,
                          struct ax_config_value *out) {
    char one[128];
    bool named;
    const char *note = NULL;
    for (size_t i = 0; choice_at(key->choices, i, one, sizeof one, &named, &note); i++)
        if (named && strcmp(one, text) == 0) {
            *out =
                (struct ax_config_value){.path = key->path, .values = key->choices, .note = note};
            out->support = note != NULL ? AX_SUPPORT_APPROXIMATED : AX_SUPPORT_ACTS;
            return true;
        }
    for (size_t i = 0; i < ax_config_n_values; i++)
        if (strcmp(ax_config_values[i].path, key->path) == 0 &&
            ax_config_choice(ax_config_values[i].values, text)) {
            *out = ax_config_values[i];
            return true;
        }
    return false;
}

bool ax_config_accepts(const struct ax_config_key *key, const char *text) {
    struct ax_config_value v;
    return !ax_config_find_value(key, text, &v) ||
           ax_config_support_of(v.support, v.needs) < AX_SUPPORT_NOT_YET;
}

bool ax_config_in_range(enum ax_config_range range, double v) {
    switch (range) {
    case AX_R_POSITIVE:
        return v > 0;
    case AX_R_NOT_NEGATIVE:
        return v >= 0;
    case AX_R_FROM_TWO:
        return v >= 2;
    case AX_R_FROM_MINUS_ONE:
        return v >= -1;
    case AX_R_FRACTION:
        return v >= 0 && v <= 1;
    case AX_R_BELOW_ONE:
        return v >= 0 && v < 1;
    default:
        return true;
    }
}

/* "%s" is the noun. */
static const char *const range_words[] = {
    [AX_R_ANY] = "%s",
    [AX_R_POSITIVE] = "positive %s",
    [AX_R_NOT_NEGATIVE] = "%s of 0 or more",
    [AX_R_FROM_TWO] = "%s of 2 or more",
    [AX_R_FROM_MINUS_ONE] = "%s of -1 or more",
    [AX_R_FRACTION] = "%s from 0 to 1",
    [AX_R_BELOW_ONE] = "%s from 0 to just below 1",
};
_Static_assert(sizeof range_words / sizeof *range_words == AX_R_COUNT, "one for each range");

/* "an integer", "a positive integer", "a number from 0 to 1". */
static enum ax_status put_number(struct ax_buf *out, enum ax_config_range range, bool integer) {
    char noun[64];
    snprintf(noun, sizeof noun, range_words[range], integer ? "integer" : "number");
    return ax_buf_printf(out, "%s %s", strchr("aeiou", noun[0]) != NULL ? "an" : "a", noun);
}

/* Lists up to eight choices that are accepted; for more, refers to `config help`. */
static enum ax_status put_choices(struct ax_buf *out, const struct ax_config_key *key) {
    char one[128];
    size_t n = 0, put = 0;
    for (size_t i = 0; ax_config_choice_at(key->choices, i, one, sizeof one); i++)
        n += ax_config_accepts(key, one);
    if (n > 8) {
        return ax_buf_printf(out, "one of the values that `axtrain config help %s` lists",
                             key->path);
    }
    if (n > 1)
        AX_TRY(ax_buf_puts(out, "one of "));
    for (size_t i = 0; ax_config_choice_at(key->choices, i, one, sizeof one); i++)
        if (ax_config_accepts(key, one))
            AX_TRY(ax_buf_printf(out, "%s%s", put++ == 0 ? "" : ", ", one));
    return AX_OK;
}

enum ax_status ax_config_expected(const struct ax_config_key *key, unsigned types,
                                  struct ax_buf *out) {
    const char *const or_ = " or ";
    const char *sep = "";
    if (types & AX_T_BOOL) {
        AX_TRY(ax_buf_puts(out, "true or false"));
        sep = or_;
    }
    if (types & (AX_T_INT | AX_T_NUM)) {
        AX_TRY(ax_buf_puts(out, sep));
        AX_TRY(put_number(out, ax_config_range_of(key), (types & AX_T_NUM) == 0));
        sep = or_;
    }
    if (types & AX_T_STR) {
        AX_TRY(ax_buf_puts(out, sep));
        AX_TRY(key->choices != NULL ? put_choices(out, key) : ax_buf_puts(out, "a string"));
        sep = or_;
    }
    if (types & AX_T_LIST) {
        AX_TRY(ax_buf_puts(out, sep));
        AX_TRY(ax_buf_puts(out, ax_config_elements(key) == AX_T_MAP ? "a list of maps" : "a list"));
        sep = or_;
    }
    if (types & AX_T_MAP) {
        AX_TRY(ax_buf_puts(out, sep));
        AX_TRY(ax_buf_puts(out, "a map"));
    }
    return types & AX_T_ANY ? ax_buf_puts(out, "anything") : AX_OK;
}
