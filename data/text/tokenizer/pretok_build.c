/* Building the chain of pre-tokenizer steps. See pretokenize.h. */
#include <string.h>

#include "data/text/tokenizer/pretokenize.h"
#include "data/text/tokenizer/split_patterns.h"
#include "base/text/unicode.h"

static enum ax_status new_step(struct ax_pretok *p, enum ax_pretok_kind kind,
                               struct ax_pretok_step **step) {
    if (p->n == AX_PRETOK_MAX)
        return ax_error(AX_ERR_UNSUPPORTED, "pre_tokenizer: more than %d steps", AX_PRETOK_MAX);
    *step = &p->steps[p->n++];
    **step = (struct ax_pretok_step){.kind = kind};
    return AX_OK;
}

enum ax_status ax_pretok_add_regex(struct ax_pretok *p, const char *pattern, size_t len,
                                   bool literal, enum ax_split_behavior behavior, bool invert) {
    struct ax_pretok_step *step;
    AX_TRY(new_step(p, AX_PRETOK_REGEX, &step));
    AX_TRY(ax_regex_compile(&step->regex, pattern, len, literal));
    step->behavior = behavior;
    step->invert = invert;
    /* If matches leave no gaps, keeping only the matches is the same. */
    bool pieces_are_matches =
        (behavior == AX_SPLIT_ISOLATED && !invert) || (behavior == AX_SPLIT_REMOVED && invert);
    if (!literal && pieces_are_matches)
        step->scan = ax_scan_find(pattern, len);
    return AX_OK;
}

enum ax_status ax_pretok_add_chars(struct ax_pretok *p, bool (*pred)(uint32_t), uint32_t cp,
                                   enum ax_split_behavior behavior) {
    struct ax_pretok_step *step;
    AX_TRY(new_step(p, AX_PRETOK_CHARS, &step));
    step->pred = pred;
    step->cp = cp;
    step->behavior = behavior;
    return AX_OK;
}

enum ax_status ax_pretok_add_metaspace(struct ax_pretok *p, const char *replacement,
                                       enum ax_prepend prepend, bool split) {
    struct ax_pretok_step *step;
    size_t len = strlen(replacement), n = 0;
    uint32_t cp = len > 0 ? ax_utf8_decode((const unsigned char *)replacement, &n) : 0;
    if (len == 0 || n != len)
        return ax_error(AX_ERR_DATA, "Metaspace: the replacement \"%s\" is not one character",
                        replacement);
    AX_TRY(new_step(p, AX_PRETOK_METASPACE, &step));
    memcpy(step->replacement, replacement, len + 1);
    step->prepend = prepend;
    return split ? ax_pretok_add_chars(p, NULL, cp, AX_SPLIT_MERGED_NEXT) : AX_OK;
}

enum ax_status ax_pretok_add_bytes(struct ax_pretok *p, bool prefix, bool split) {
    struct ax_pretok_step *step;
    if (prefix)
        AX_TRY(new_step(p, AX_PRETOK_PREFIX, &step));
    if (split) {
        static const char gpt2[] = AX_PATTERN_GPT2;
        AX_TRY(ax_pretok_add_regex(p, gpt2, sizeof gpt2 - 1, false, AX_SPLIT_ISOLATED, false));
    }
    return new_step(p, AX_PRETOK_BYTES, &step);
}

void ax_pretok_free(struct ax_pretok *p) {
    for (size_t i = 0; i < p->n; i++)
        ax_regex_free(p->steps[i].regex);
    *p = (struct ax_pretok){.n = 0};
}

bool ax_pretok_needs_origin(const struct ax_pretok *p) {
    for (size_t i = 0; i < p->n; i++)
        if (p->steps[i].kind == AX_PRETOK_METASPACE && p->steps[i].prepend == AX_PREPEND_FIRST)
            return true;
    return false;
}
