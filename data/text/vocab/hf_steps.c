/* normalizer, pre_tokenizer, decoder and post_processor of a tokenizer.json. */
#include <string.h>

#include "base/text/unicode.h"
#include "data/text/vocab/vocab_hf.h"

/* "type" of a part; AX_ERR_DATA if missing. */
static enum ax_status type_of(struct ax_json v, const char **type) {
    return ax_json_str(ax_json_get(v, "type"), type);
}

enum ax_status ax_hf_unsupported(struct ax_json v, const char *what, const char *type) {
    return ax_error(AX_ERR_UNSUPPORTED, "%s: %s: %s \"%s\" is not supported", v.doc, v.path, what,
                    type);
}

static bool is(const char *a, const char *b) {
    return strcmp(a, b) == 0;
}

/* {"String": s} or {"Regex": s} */
static enum ax_status read_pattern(struct ax_json v, const char **pattern, bool *literal) {
    struct ax_json string = ax_json_get(v, "String"), regex = ax_json_get(v, "Regex");
    *literal = string.v != NULL;
    if (*literal)
        return ax_json_str(string, pattern);
    if (regex.v == NULL)
        return ax_json_error(v, "expected {\"String\": …} or {\"Regex\": …}");
    return ax_json_str(regex, pattern);
}

/* A regex and the text that replaces its matches. */
static enum ax_status read_replace(struct ax_json v, struct ax_regex **regex, char **text,
                                   size_t *text_len) {
    const char *pattern = "", *content = "";
    bool literal = false;
    AX_TRY(read_pattern(ax_json_get(v, "pattern"), &pattern, &literal));
    AX_TRY(ax_json_str(ax_json_get(v, "content"), &content));
    AX_TRY(ax_strdup(text, content));
    *text_len = strlen(content);
    enum ax_status st = ax_regex_compile(regex, pattern, strlen(pattern), literal);
    return st == AX_OK ? st : ax_error_prefix(st, "%s: %s", v.doc, v.path);
}

/* Calls `read` for each element of a list member. */
#define READ_LIST(v, key, read, to)                                                                \
    do {                                                                                           \
        struct ax_json list_ = ax_json_get(v, key);                                                \
        if (!json_is_array(list_.v))                                                               \
            return ax_json_error(list_, "expected a list");                                        \
        for (size_t i_ = 0; i_ < ax_json_size(list_); i_++)                                        \
            AX_TRY(read(ax_json_at(list_, i_), to));                                               \
        return AX_OK;                                                                              \
    } while (0)

/* --- normalizer --- */

static const struct {
    const char *type;
    enum ax_norm_kind kind;
    enum ax_unicode_form form;
} norm_types[] = {
    {"NFC", AX_NORM_UNICODE, AX_NFC},     {"NFD", AX_NORM_UNICODE, AX_NFD},
    {"NFKC", AX_NORM_UNICODE, AX_NFKC},   {"NFKD", AX_NORM_UNICODE, AX_NFKD},
    {"Lowercase", AX_NORM_LOWERCASE, 0},  {"Strip", AX_NORM_STRIP, 0},
    {"StripAccents", AX_NORM_ACCENTS, 0}, {"Prepend", AX_NORM_PREPEND, 0},
    {"Replace", AX_NORM_REPLACE, 0},      {"ByteLevel", AX_NORM_BYTES, 0},
};

enum ax_status ax_hf_read_normalizer(struct ax_json v, struct ax_normalizer *n) {
    const char *type, *text;
    if (v.v == NULL)
        return AX_OK;
    AX_TRY(type_of(v, &type));
    if (is(type, "Sequence"))
        READ_LIST(v, "normalizers", ax_hf_read_normalizer, n);
    size_t i = 0;
    while (i < sizeof norm_types / sizeof norm_types[0] && !is(type, norm_types[i].type))
        i++;
    if (i == sizeof norm_types / sizeof norm_types[0])
        return ax_hf_unsupported(v, "the normalizer", type);
    struct ax_norm_step *step;
    AX_TRY(ax_normalizer_add(n, norm_types[i].kind, &step));
    step->form = norm_types[i].form;
    switch (step->kind) {
    case AX_NORM_STRIP:
        AX_TRY(ax_json_bool(ax_json_get(v, "strip_left"), &step->left));
        return ax_json_bool(ax_json_get(v, "strip_right"), &step->right);
    case AX_NORM_PREPEND:
        AX_TRY(ax_json_str(ax_json_get(v, "prepend"), &text));
        step->text_len = strlen(text);
        return ax_strdup(&step->text, text);
    case AX_NORM_REPLACE:
        return read_replace(v, &step->regex, &step->text, &step->text_len);
    default:
        return AX_OK;
    }
}

/* --- pre_tokenizer --- */

static enum ax_status read_behavior(struct ax_json v, const char *def,
                                    enum ax_split_behavior *behavior) {
    static const char *const names[] = {
        [AX_SPLIT_ISOLATED] = "Isolated",
        [AX_SPLIT_REMOVED] = "Removed",
        [AX_SPLIT_MERGED_PREVIOUS] = "MergedWithPrevious",
        [AX_SPLIT_MERGED_NEXT] = "MergedWithNext",
        [AX_SPLIT_CONTIGUOUS] = "Contiguous",
    };
    const char *name;
    AX_TRY(ax_json_str_or(v, def, &name));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (name != NULL && is(name, names[i])) {
            *behavior = (enum ax_split_behavior)i;
            return AX_OK;
        }
    }
    return ax_json_error(v, "unknown behavior \"%s\"", name != NULL ? name : "");
}

static enum ax_status read_split(struct ax_json v, struct ax_pretok *p) {
    const char *pattern = "";
    bool literal = false, invert = false;
    enum ax_split_behavior behavior = AX_SPLIT_ISOLATED;
    AX_TRY(read_pattern(ax_json_get(v, "pattern"), &pattern, &literal));
    AX_TRY(read_behavior(ax_json_get(v, "behavior"), NULL, &behavior));
    AX_TRY(ax_json_bool_or(ax_json_get(v, "invert"), false, &invert));
    enum ax_status st = ax_pretok_add_regex(p, pattern, strlen(pattern), literal, behavior, invert);
    return st == AX_OK ? st : ax_error_prefix(st, "%s: %s.pattern", v.doc, v.path);
}

/* prepend_scheme, or add_prefix_space in older files. */
static enum ax_status read_prepend(struct ax_json v, enum ax_prepend *prepend) {
    const char *scheme;
    bool prefix;
    AX_TRY(ax_json_bool_or(ax_json_get(v, "add_prefix_space"), true, &prefix));
    AX_TRY(ax_json_str_or(ax_json_get(v, "prepend_scheme"), prefix ? "always" : "never", &scheme));
    if (is(scheme, "never"))
        *prepend = AX_PREPEND_NEVER;
    else if (is(scheme, "first"))
        *prepend = AX_PREPEND_FIRST;
    else if (is(scheme, "always"))
        *prepend = AX_PREPEND_ALWAYS;
    else
        return ax_json_error(ax_json_get(v, "prepend_scheme"), "unknown scheme \"%s\"", scheme);
    if (!prefix && *prepend != AX_PREPEND_NEVER)
        return ax_json_error(v, "add_prefix_space is false but prepend_scheme is \"%s\"", scheme);
    return AX_OK;
}

static enum ax_status read_metaspace(struct ax_json v, struct ax_pretok *p) {
    const char *replacement = "";
    enum ax_prepend prepend = AX_PREPEND_NEVER;
    bool split = true;
    AX_TRY(ax_json_str(ax_json_get(v, "replacement"), &replacement));
    AX_TRY(read_prepend(v, &prepend));
    AX_TRY(ax_json_bool_or(ax_json_get(v, "split"), true, &split));
    return ax_pretok_add_metaspace(p, replacement, prepend, split);
}

static enum ax_status read_simple(struct ax_json v, const char *type, struct ax_pretok *p) {
    /* \w+|[^\w\s]+ with Rust's \w, which includes joiners and lacks Oniguruma's fractions */
#define WORD                                                                                       \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{200c}\\x{200d}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}"  \
    "\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"
    static const char words[] = "[" WORD "]+|[^\\s" WORD "]+";
    enum ax_split_behavior behavior;
    bool flag, prefix;
    if (is(type, "ByteLevel")) {
        AX_TRY(ax_json_bool_or(ax_json_get(v, "add_prefix_space"), true, &prefix));
        AX_TRY(ax_json_bool_or(ax_json_get(v, "use_regex"), true, &flag));
        return ax_pretok_add_bytes(p, prefix, flag);
    }
    if (is(type, "Digits")) {
        AX_TRY(ax_json_bool(ax_json_get(v, "individual_digits"), &flag));
        behavior = flag ? AX_SPLIT_ISOLATED : AX_SPLIT_CONTIGUOUS;
        return ax_pretok_add_chars(p, ax_unicode_is_numeric, 0, behavior);
    }
    if (is(type, "Punctuation")) {
        AX_TRY(read_behavior(ax_json_get(v, "behavior"), "Isolated", &behavior));
        return ax_pretok_add_chars(p, ax_unicode_is_punct, 0, behavior);
    }
    if (is(type, "Whitespace"))
        return ax_pretok_add_regex(p, words, strlen(words), false, AX_SPLIT_REMOVED, true);
    if (is(type, "WhitespaceSplit"))
        return ax_pretok_add_chars(p, ax_unicode_is_space, 0, AX_SPLIT_REMOVED);
    return ax_hf_unsupported(v, "the pre-tokenizer", type);
}

enum ax_status ax_hf_read_pretok(struct ax_json v, struct ax_pretok *p) {
    const char *type;
    if (v.v == NULL)
        return AX_OK;
    AX_TRY(type_of(v, &type));
    if (is(type, "Sequence"))
        READ_LIST(v, "pretokenizers", ax_hf_read_pretok, p);
    if (is(type, "Split"))
        return read_split(v, p);
    if (is(type, "Metaspace"))
        return read_metaspace(v, p);
    return read_simple(v, type, p);
}

/* --- decoder --- */

static enum ax_status read_char(struct ax_json v, uint32_t *cp) {
    const char *s;
    size_t n;
    AX_TRY(ax_json_str(v, &s));
    *cp = ax_utf8_decode((const unsigned char *)s, &n);
    return *s != '\0' && s[n] == '\0' ? AX_OK
                                      : ax_json_error(v, "expected one character, got \"%s\"", s);
}

static enum ax_status read_strip(struct ax_json v, struct ax_decode_step *step) {
    int64_t start, stop;
    AX_TRY(read_char(ax_json_get(v, "content"), &step->cp));
    AX_TRY(ax_json_i64(ax_json_get(v, "start"), 0, INT32_MAX, &start));
    AX_TRY(ax_json_i64(ax_json_get(v, "stop"), 0, INT32_MAX, &stop));
    step->start = (size_t)start;
    step->stop = (size_t)stop;
    return AX_OK;
}

static enum ax_status read_decode_step(struct ax_json v, struct ax_decode_step *step) {
    enum ax_prepend prepend = AX_PREPEND_NEVER;
    switch (step->kind) {
    case AX_DECODE_STRIP:
        return read_strip(v, step);
    case AX_DECODE_REPLACE:
        return read_replace(v, &step->regex, &step->text, &step->text_len);
    case AX_DECODE_METASPACE:
        AX_TRY(read_char(ax_json_get(v, "replacement"), &step->cp));
        AX_TRY(read_prepend(v, &prepend));
        step->drop_first = prepend != AX_PREPEND_NEVER;
        return AX_OK;
    default:
        return AX_OK;
    }
}

enum ax_status ax_hf_read_decoder(struct ax_json v, struct ax_decoder *d) {
    static const struct {
        const char *type;
        enum ax_decode_kind kind;
    } types[] = {{"ByteLevel", AX_DECODE_BYTES}, {"Metaspace", AX_DECODE_METASPACE},
                 {"Replace", AX_DECODE_REPLACE}, {"ByteFallback", AX_DECODE_BYTE_FALLBACK},
                 {"Fuse", AX_DECODE_FUSE},       {"Strip", AX_DECODE_STRIP}};
    const char *type;
    if (v.v == NULL)
        return AX_OK;
    AX_TRY(type_of(v, &type));
    if (is(type, "Sequence"))
        READ_LIST(v, "decoders", ax_hf_read_decoder, d);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct ax_decode_step *step;
        if (!is(type, types[i].type))
            continue;
        AX_TRY(ax_decoder_add(d, types[i].kind, &step));
        return read_decode_step(v, step);
    }
    return ax_hf_unsupported(v, "the decoder", type);
}

/* --- post_processor --- */

/* Reads the ids on both sides of the text in a template. */
static enum ax_status read_template(struct ax_json v, struct ax_tokenizer *t) {
    struct ax_json single = ax_json_get(v, "single"), tokens = ax_json_get(v, "special_tokens");
    int32_t ids[2][16];
    size_t n[2] = {0, 0}, side = 0;
    for (size_t i = 0; i < ax_json_size(single); i++) {
        struct ax_json piece = ax_json_at(single, i);
        struct ax_json token = ax_json_get(piece, "SpecialToken");
        const char *id;
        if (token.v == NULL) {
            AX_TRY(ax_json_str(ax_json_get(ax_json_get(piece, "Sequence"), "id"), &id));
            if (!is(id, "A") || side++ > 0)
                return ax_json_error(
                    piece, "the template for a single text must contain that text exactly once");
            continue;
        }
        AX_TRY(ax_json_str(ax_json_get(token, "id"), &id));
        struct ax_json list = ax_json_get(ax_json_get(tokens, id), "ids");
        if (!json_is_array(list.v))
            return ax_json_error(list, "expected the ids of \"%s\"", id);
        for (size_t k = 0; k < ax_json_size(list); k++) {
            int64_t value;
            AX_TRY(ax_json_i64(ax_json_at(list, k), 0, INT32_MAX, &value));
            if (n[side] == 16)
                return ax_json_error(single, "more than 16 tokens around the text");
            ids[side][n[side]++] = (int32_t)value;
        }
    }
    if (side == 0)
        return ax_json_error(single,
                             "the template for a single text must contain that text exactly once");
    AX_TRY(ax_id_list_set(&t->before, ids[0], n[0]));
    return ax_id_list_set(&t->after, ids[1], n[1]);
}

/* BERT's and RoBERTa's: "cls": ["<s>", 0] before the text, "sep" after it. */
static enum ax_status read_cls_sep(struct ax_json v, struct ax_tokenizer *t) {
    int64_t cls, sep;
    AX_TRY(ax_json_i64(ax_json_at(ax_json_get(v, "cls"), 1), 0, INT32_MAX, &cls));
    AX_TRY(ax_json_i64(ax_json_at(ax_json_get(v, "sep"), 1), 0, INT32_MAX, &sep));
    AX_TRY(ax_id_list_set(&t->before, &(int32_t){(int32_t)cls}, 1));
    return ax_id_list_set(&t->after, &(int32_t){(int32_t)sep}, 1);
}

enum ax_status ax_hf_read_post_processor(struct ax_json v, struct ax_tokenizer *t) {
    const char *type;
    if (v.v == NULL)
        return AX_OK;
    AX_TRY(type_of(v, &type));
    if (is(type, "Sequence"))
        READ_LIST(v, "processors", ax_hf_read_post_processor, t);
    if (is(type, "ByteLevel")) /* trims offsets and leaves ids unchanged */
        return AX_OK;
    bool template = is(type, "TemplateProcessing");
    if (!template && !is(type, "BertProcessing") && !is(type, "RobertaProcessing"))
        return ax_hf_unsupported(v, "the post-processor", type);
    if (t->before.ids != NULL)
        return ax_json_error(v, "a second processor that adds tokens is not supported");
    return template ? read_template(v, t) : read_cls_sep(v, t);
}
