/* regex_replace of lm-evaluation-harness's templates: Python's re.sub. */
#include <string.h>

#include "base/text/regex.h"
#include "data/text/jinja/builtin.h"

/* The group named by the escape at s, without its backslash: "1", "12" or "g<name>", which takes
 * *used bytes. SIZE_MAX if it names none. */
static size_t named_group(const struct ax_regex *re, const char *s, size_t len, size_t *used) {
    size_t n = 0, i = 0;
    const char *close = len > 2 && s[0] == 'g' && s[1] == '<' ? memchr(s, '>', len) : NULL;
    const char *name = close ? s + 2 : s;
    const size_t most = close ? (size_t)(close - name) : len < 2 ? len : 2;
    for (; i < most && name[i] >= '0' && name[i] <= '9' && n <= AX_REGEX_GROUPS; i++)
        n = 10 * n + (size_t)(name[i] - '0');
    *used = close ? most + 3 : i;
    if (close && i < most)
        return ax_regex_group_named(re, name, most);
    return i > 0 ? n : SIZE_MAX;
}

/* Appends the replacement for the latest match: \1, \g<1>, \g<name>, \n, \t, \\. */
static enum ax_status put_replacement(struct ax_jvm *vm, const struct ax_regex_iter *it,
                                      const struct ax_jstr *with) {
    for (size_t i = 0; i < with->len; i++) {
        const char *s = with->data + i;
        const size_t left = with->len - i - 1;
        size_t used = 1, start, end;
        if (*s != '\\' || left == 0) {
            AX_TRY(ax_jvm_put(vm, s, 1));
            continue;
        }
        const char *letter = s[1] != '\0' ? strchr("nrt\\", s[1]) : NULL;
        if (letter) {
            AX_TRY(ax_jvm_put(vm, &"\n\r\t\\"[letter - "nrt\\"], 1));
            i++;
            continue;
        }
        const size_t group = named_group(it->re, s + 1, left, &used);
        if (group == SIZE_MAX || group > ax_regex_groups(it->re))
            return ax_jvm_error(vm, "regex_replace: the replacement names no group: %.*s",
                                (int)(left < 20 ? left + 1 : 20), s);
        if (ax_regex_group(it, group, &start, &end))
            AX_TRY(ax_jvm_put(vm, it->s + start, end - start));
        i += used;
    }
    return AX_OK;
}

static enum ax_status replace_all(struct ax_jvm *vm, struct ax_regex_iter *it,
                                  const struct ax_jstr *with, int64_t count) {
    size_t at = 0;
    for (int64_t k = 0; count == 0 || k < count; k++) {
        bool found;
        size_t start, end;
        AX_TRY(ax_jvm_charge(vm, 1));
        AX_TRY(ax_regex_next(it, &found, &start, &end));
        if (!found)
            break;
        AX_TRY(ax_jvm_put(vm, it->s + at, start - at));
        AX_TRY(put_replacement(vm, it, with));
        at = end;
    }
    return ax_jvm_put(vm, it->s + at, it->len - at);
}

static enum ax_status filter_regex_replace(struct ax_jvm *vm, const struct ax_jcall *call,
                                           struct ax_jval *out) {
    struct ax_jstr *text = NULL, *pattern = NULL, *with = NULL;
    struct ax_regex *re = NULL;
    struct ax_regex_work work = {0};
    int64_t count = 0;
    enum ax_status st;
    AX_TRY(ax_jarg_str(vm, call, "the text", call->self, &text));
    AX_TRY(ax_jarg_str(vm, call, "the pattern", call->v[0], &pattern));
    AX_TRY(ax_jarg_str(vm, call, "the replacement", call->v[1], &with));
    AX_TRY(ax_jarg_int(vm, call, "the count", call->v[2], &count));
    const struct ax_jcapture c = ax_jvm_capture(vm);
    AX_TRY_GOTO(ax_regex_compile_python(&re, pattern->data, pattern->len), st, done);
    struct ax_regex_iter it = ax_regex_search(re, &work, text->data, text->len);
    AX_TRY_GOTO(replace_all(vm, &it, with, count), st, done);
    out->kind = AX_JSTR;
    st = ax_jvm_take(vm, c, &out->str);
done:
    ax_regex_free(re);
    ax_regex_work_free(&work);
    return st;
}

const struct ax_jbuiltin ax_jfilters_regex[] = {
    {"regex_replace", filter_regex_replace, "pattern repl count="},
    {NULL, NULL, NULL},
};
