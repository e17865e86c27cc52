/* The parts of a tokenizer.json but the two large members of its model, and its companion files. */
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/log.h"
#include "base/text/unicode.h"
#include "data/text/vocab/hf_class.h"
#include "data/text/vocab/vocab_hf.h"

/* ---- companion files ----
 *
 * tokenizer_config.json and special_tokens_map.json, as transformers 5 reads them with a
 * tokenizer.json.
 *
 * Named special tokens (bos_token, …, image_token) are strings or objects, and become special. Those of the list
 * extra_special_tokens, or without it of additional_special_tokens, are added if they are new, as what they say.
 * Objects in added_tokens_decoder override the flags of tokenizer.json. If tokenizer_config.json
 * has no added_tokens_decoder, special_tokens_map.json takes precedence, and what added_tokens.json has and
 * tokenizer.json has not is added. add_bos_token and add_eos_token have no effect: tokenizer.json's post-processor
 * decides. split_special_tokens leaves special tokens in texts ordinary text. */

/* An added token written as an object; missing members have AddedToken's defaults. The content is
 * borrowed from the document. */
static enum ax_status read_added(struct ax_json v, struct ax_added_token *token) {
    const char *content;
    *token = (struct ax_added_token){0};
    AX_TRY(ax_json_str(ax_json_get(v, "content"), &content));
    token->content = (char *)content; /* ax_tokenizer_put_added copies it */
    token->content_len = strlen(content);
    AX_TRY(ax_json_bool_or(ax_json_get(v, "single_word"), false, &token->single_word));
    AX_TRY(ax_json_bool_or(ax_json_get(v, "lstrip"), false, &token->lstrip));
    AX_TRY(ax_json_bool_or(ax_json_get(v, "rstrip"), false, &token->rstrip));
    AX_TRY(ax_json_bool_or(ax_json_get(v, "special"), false, &token->special));
    return ax_json_bool_or(ax_json_get(v, "normalized"), !token->special, &token->normalized);
}

/* A token given as text or as an object; v is present. */
static enum ax_status read_token(struct ax_json v, struct ax_added_token *token) {
    const char *text;
    if (json_is_object(v.v))
        return read_added(v, token);
    AX_TRY(ax_json_str(v, &text));
    *token = (struct ax_added_token){
        .special = true, .content = (char *)text, .content_len = strlen(text)};
    return AX_OK;
}

/* Makes a named token an added one and special. The flags of an object count only if the token
 * is new. */
static enum ax_status ensure_special(struct ax_tokenizer *t, struct ax_json v, const char **text) {
    struct ax_added_token token;
    AX_TRY(read_token(v, &token));
    *text = token.content;
    if (token.content_len == 0)
        return AX_OK;
    const struct ax_added_token *old =
        ax_added_by_content(&t->added, token.content, token.content_len);
    if (old != NULL && old->special)
        return AX_OK;
    if (old != NULL) {
        const char *content = token.content;
        token = *old;
        token.content = (char *)content;
    }
    token.special = true;
    int32_t next = ax_tokenizer_next_id(t);
    AX_TRY(ax_tokenizer_put_added(t, &token, &next));
    return ax_added_index(&t->added);
}

/* A member of special_tokens_map.json, or if it is missing there, of tokenizer_config.json. */
static struct ax_json pick(struct ax_json map, struct ax_json config, const char *key) {
    return json_object_get(map.v, key) != NULL ? ax_json_get(map, key) : ax_json_get(config, key);
}

static const char *const special_lists[] = {"additional_special_tokens", "extra_special_tokens"};

/* Is this the text of a named token? */
static bool is_text_of(struct ax_json v, const char *text) {
    const char *own =
        json_string_value(json_is_object(v.v) ? json_object_get(v.v, "content") : v.v);
    return own && strcmp(own, text) == 0;
}

static bool is_named(struct ax_json map, struct ax_json config, const char *text) {
    bool named = false;
    for (int i = 0; i < AX_SPECIAL_COUNT; i++)
        named = named || is_text_of(pick(map, config, ax_special_name((enum ax_special)i)), text);
    for (size_t i = 0; i < 2; i++) {
        const struct ax_json list = pick(map, config, special_lists[i]);
        for (size_t k = 0; json_is_array(list.v) && k < ax_json_size(list); k++)
            named = named || is_text_of(ax_json_at(list, k), text);
    }
    return named;
}

/* Adds the tokens of a list that the tokenizer does not have, with flags of their own. */
static enum ax_status read_list(struct ax_json list, struct ax_tokenizer *t) {
    for (size_t i = 0; json_is_array(list.v) && i < ax_json_size(list); i++) {
        struct ax_added_token token;
        AX_TRY(read_token(ax_json_at(list, i), &token));
        if (token.content_len == 0 ||
            ax_added_by_content(&t->added, token.content, token.content_len))
            continue;
        int32_t next = ax_tokenizer_next_id(t);
        AX_TRY(ax_tokenizer_put_added(t, &token, &next));
        AX_TRY(ax_added_index(&t->added));
    }
    return AX_OK;
}

static bool is_standard(const char *key) {
    bool standard = false;
    for (int i = 0; i < AX_SPECIAL_COUNT; i++)
        standard = standard || strcmp(key, ax_special_name((enum ax_special)i)) == 0;
    return standard;
}

/* Tokens with names of the model's own; `all`: whatever the name is, else `image_token` and the like. One that the
 * vocabulary lacks (CodeLlama's <FILL_ME>) has no embedding, and stays ordinary text. */
static enum ax_status read_own_names(struct ax_json object, bool all, struct ax_tokenizer *t) {
    static const char end[] = "_token";
    const char *key, *text;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)object.v, key, v) {
        const size_t n = strlen(key), m = strlen(end);
        const json_t *content = json_is_object(v) ? json_object_get(v, "content") : v;
        text = json_string_value(content);
        if (!text || ax_tokenizer_find(t, text, strlen(text)) == AX_NO_TOKEN)
            continue;
        if (all || (n > m && strcmp(key + n - m, end) == 0 && !is_standard(key)))
            AX_TRY(ensure_special(t, ax_json_get(object, key), &text));
    }
    return AX_OK;
}

static enum ax_status read_named(struct ax_json map, struct ax_json config,
                                 struct ax_tokenizer *t) {
    const char *text = "";
    for (int i = 0; i < AX_SPECIAL_COUNT; i++) {
        struct ax_json v = pick(map, config, ax_special_name((enum ax_special)i));
        if (v.v == NULL || json_is_false(v.v))
            continue;
        AX_TRY(ensure_special(t, v, &text));
        if (*text != '\0')
            AX_TRY(ax_tokenizer_name_special(t, (enum ax_special)i, text));
    }
    const struct ax_json extra = pick(map, config, special_lists[1]);
    const bool list = json_is_array(extra.v) && ax_json_size(extra) > 0;
    AX_TRY(read_own_names(config, false, t));
    AX_TRY(read_own_names(map, false, t));
    AX_TRY(read_own_names(ax_json_get(config, "model_specific_special_tokens"), true, t));
    if (json_is_object(extra.v))
        AX_TRY(read_own_names(extra, true, t));
    return read_list(list ? extra : pick(map, config, special_lists[0]), t);
}

struct numbered {
    long long id;
    const char *key;
};

static int by_id(const void *a, const void *b) {
    long long x = ((const struct numbered *)a)->id, y = ((const struct numbered *)b)->id;
    return (x > y) - (x < y);
}

/* Reads {"128000": {"content": …}, …} in the order of the ids. */
static enum ax_status read_added_decoder(struct ax_json map, struct ax_tokenizer *t) {
    const char *key;
    json_t *value;
    struct numbered *entries;
    size_t n = 0;
    AX_TRY(ax_alloc(&entries, ax_json_size(map), sizeof *entries));
    json_object_foreach((json_t *)map.v, key, value) {
        entries[n++] = (struct numbered){strtoll(key, NULL, 10), key};
    }
    qsort(entries, n, sizeof *entries, by_id);
    enum ax_status st = AX_OK;
    int32_t next = ax_tokenizer_next_id(t);
    for (size_t i = 0; i < n && st == AX_OK; i++) {
        struct ax_added_token token;
        st = read_added(ax_json_get(map, entries[i].key), &token);
        if (st == AX_OK && token.content_len > 0)
            st = ax_tokenizer_put_added(t, &token, &next);
    }
    ax_free(entries);
    AX_TRY(st);
    return ax_added_index(&t->added);
}

/* Reads {"<new>": 128000, …} in the order of the ids, but for what tokenizer.json has. */
static enum ax_status read_added_ids(struct ax_json added, struct ax_json map,
                                     struct ax_json config, struct ax_tokenizer *t) {
    const char *key;
    json_t *value;
    struct numbered *entries;
    size_t n = 0;
    int64_t id;
    AX_TRY(ax_alloc(&entries, ax_json_size(added), sizeof *entries));
    enum ax_status st = AX_OK;
    json_object_foreach((json_t *)added.v, key, value) {
        AX_TRY_GOTO(ax_json_i64(ax_json_get(added, key), 0, INT32_MAX, &id), st, done);
        if (*key != '\0' && !ax_added_by_content(&t->added, key, strlen(key)) &&
            !ax_added_by_id(&t->added, (int32_t)id))
            entries[n++] = (struct numbered){id, key};
    }
    qsort(entries, n, sizeof *entries, by_id);
    int32_t next = ax_tokenizer_next_id(t);
    for (size_t i = 0; i < n; i++) {
        struct ax_added_token token = {.content = (char *)(uintptr_t)entries[i].key,
                                       .content_len = strlen(entries[i].key),
                                       .special = is_named(map, config, entries[i].key)};
        token.normalized = !token.special;
        AX_TRY_GOTO(ax_tokenizer_put_added(t, &token, &next), st, done);
    }
    st = ax_added_index(&t->added);
done:
    ax_free(entries);
    return st;
}

enum ax_status ax_hf_read_config(const char *dir, struct ax_tokenizer *t) {
    struct ax_json_doc config = {0}, map = {0}, added = {0};
    enum ax_status st;
    AX_TRY_GOTO(ax_hf_load_optional(&config, dir, "tokenizer_config.json"), st, done);
    struct ax_json decoder = ax_json_get(ax_json_root(&config), "added_tokens_decoder");
    AX_TRY_GOTO(read_added_decoder(decoder, t), st, done);
    if (decoder.v == NULL) {
        AX_TRY_GOTO(ax_hf_load_optional(&map, dir, "special_tokens_map.json"), st, done);
        AX_TRY_GOTO(ax_hf_load_optional(&added, dir, "added_tokens.json"), st, done);
        AX_TRY_GOTO(
            read_added_ids(ax_json_root(&added), ax_json_root(&map), ax_json_root(&config), t), st,
            done);
    }
    AX_TRY_GOTO(ax_json_bool_or(ax_json_get(ax_json_root(&config), "split_special_tokens"), false,
                                &t->plain),
                st, done);
    st = read_named(ax_json_root(&map), ax_json_root(&config), t);
done:
    ax_json_free(&added);
    ax_json_free(&map);
    ax_json_free(&config);
    return st;
}

/* ---- normalizer, pre_tokenizer, decoder and post_processor ---- */

/* "type" of a part; AX_ERR_DATA if missing. */
static enum ax_status type_of(struct ax_json v, const char **type) {
    return ax_json_str(ax_json_get(v, "type"), type);
}

/* AX_ERR_UNSUPPORTED: "… is not supported". */
static enum ax_status unsupported(struct ax_json v, const char *what, const char *type) {
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

static enum ax_status read_normalizer(struct ax_json v, struct ax_normalizer *n) {
    const char *type, *text;
    if (v.v == NULL)
        return AX_OK;
    AX_TRY(type_of(v, &type));
    if (is(type, "Sequence"))
        READ_LIST(v, "normalizers", read_normalizer, n);
    size_t i = 0;
    while (i < sizeof norm_types / sizeof norm_types[0] && !is(type, norm_types[i].type))
        i++;
    if (i == sizeof norm_types / sizeof norm_types[0])
        return unsupported(v, "the normalizer", type);
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
    return unsupported(v, "the pre-tokenizer", type);
}

static enum ax_status read_pretok(struct ax_json v, struct ax_pretok *p) {
    const char *type;
    if (v.v == NULL)
        return AX_OK;
    AX_TRY(type_of(v, &type));
    if (is(type, "Sequence"))
        READ_LIST(v, "pretokenizers", read_pretok, p);
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

static enum ax_status read_decoder(struct ax_json v, struct ax_decoder *d) {
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
        READ_LIST(v, "decoders", read_decoder, d);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct ax_decode_step *step;
        if (!is(type, types[i].type))
            continue;
        AX_TRY(ax_decoder_add(d, types[i].kind, &step));
        return read_decode_step(v, step);
    }
    return unsupported(v, "the decoder", type);
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

static enum ax_status read_post_processor(struct ax_json v, struct ax_tokenizer *t) {
    const char *type;
    if (v.v == NULL)
        return AX_OK;
    AX_TRY(type_of(v, &type));
    if (is(type, "Sequence"))
        READ_LIST(v, "processors", read_post_processor, t);
    if (is(type, "ByteLevel")) /* trims offsets and leaves ids unchanged */
        return AX_OK;
    bool template = is(type, "TemplateProcessing");
    if (!template && !is(type, "BertProcessing") && !is(type, "RobertaProcessing"))
        return unsupported(v, "the post-processor", type);
    if (t->before.ids != NULL)
        return ax_json_error(v, "a second processor that adds tokens is not supported");
    return template ? read_template(v, t) : read_cls_sep(v, t);
}

/* ---- options of the model ---- */

/* Reads the options of a BPE model; those that axtrain does not support must be off. */
static enum ax_status read_model(struct ax_json v, struct ax_tokenizer *t) {
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const char *text;
    double dropout;
    AX_TRY(ax_json_f64_or(ax_json_get(v, "dropout"), 0, &dropout));
    if (dropout != 0)
        return ax_error(AX_ERR_UNSUPPORTED,
                        "%s: model.dropout: random merges (%g) are not supported; set it to null",
                        v.doc, dropout);
    for (size_t i = 0; i < 2; i++) {
        AX_TRY(ax_json_str_or(ax_json_get(v, affixes[i]), "", &text));
        if (*text != '\0')
            return unsupported(v, affixes[i], text);
    }
    AX_TRY(ax_json_bool_or(ax_json_get(v, "fuse_unk"), false, &t->bpe.fuse_unk));
    AX_TRY(ax_json_bool_or(ax_json_get(v, "byte_fallback"), false, &t->bpe.byte_fallback));
    AX_TRY(ax_json_bool_or(ax_json_get(v, "ignore_merges"), false, &t->bpe.ignore_merges));
    AX_TRY(ax_json_str_or(ax_json_get(v, "unk_token"), NULL, &text));
    if (text != NULL) {
        t->bpe.unk = ax_vocab_find(&t->vocab, text, strlen(text));
        t->bpe.unk_missing = t->bpe.unk == AX_NO_TOKEN;
    }
    return AX_OK;
}

/* ---- added tokens ---- */

/* As in HF, a token's id is that of its text in the model, or else the next one, whatever the
 * file says. */
static enum ax_status read_added_tokens(struct ax_json list, struct ax_tokenizer *t) {
    if (list.v != NULL && !json_is_array(list.v))
        return ax_json_error(list, "expected a list");
    int32_t next = ax_tokenizer_next_id(t);
    for (size_t i = 0; i < ax_json_size(list); i++) {
        struct ax_json v = ax_json_at(list, i);
        struct ax_added_token token;
        int64_t id;
        AX_TRY(read_added(v, &token));
        if (token.content_len == 0)
            continue;
        AX_TRY(ax_tokenizer_put_added(t, &token, &next));
        AX_TRY(ax_json_i64_or(ax_json_get(v, "id"), 0, UINT32_MAX, token.id, &id));
        if (id != token.id)
            ax_log_warn("%s: %s: token \"%.60s\" has id %d, but the file says %lld", v.doc, v.path,
                        token.content, token.id, (long long)id);
    }
    return AX_OK;
}

/* ---- all parts ---- */

static enum ax_status check_ids(const struct ax_tokenizer *t, const struct ax_id_list *l,
                                const char *name) {
    size_t len;
    for (size_t i = 0; i < l->n; i++)
        if (ax_tokenizer_token(t, l->ids[i], &len) == NULL)
            return ax_error(AX_ERR_DATA, "%s: post_processor adds id %d, which no token has", name,
                            l->ids[i]);
    return AX_OK;
}

/* Checks the model's type first, so that an error names it rather than its missing merges. */
static enum ax_status check_model(struct ax_json model, bool has_vocab, bool has_merges) {
    const char *type;
    AX_TRY(ax_json_str_or(ax_json_get(model, "type"), "BPE", &type));
    if (strcmp(type, "BPE") != 0)
        return unsupported(model, "the model type", type);
    if (!has_vocab)
        return ax_json_error(model, "expected an object \"vocab\" in the BPE model");
    if (!has_merges)
        return ax_json_error(model, "expected a list \"merges\" in the BPE model");
    return AX_OK;
}

enum ax_status ax_hf_read_parts(struct ax_tokenizer *t, const struct ax_json_doc *doc,
                                const struct ax_json_doc *parts, bool has_vocab, bool has_merges) {
    struct ax_json root = ax_json_root(doc), own = parts->root ? ax_json_root(parts) : root;
    struct ax_json post = ax_json_get(own, "post_processor");
    const char *version;
    AX_TRY(check_model(ax_json_get(root, "model"), has_vocab, has_merges));
    AX_TRY(ax_json_str_or(ax_json_get(root, "version"), "1.0", &version));
    if (strcmp(version, "1.0") != 0)
        return unsupported(ax_json_get(root, "version"), "version", version);
    if (parts->root)
        ax_hf_class_report(parts, root);
    AX_TRY(read_model(ax_json_get(own, "model"), t));
    AX_TRY(read_normalizer(ax_json_get(own, "normalizer"), &t->normalizer));
    AX_TRY(read_pretok(ax_json_get(own, "pre_tokenizer"), &t->pretok));
    AX_TRY(read_decoder(ax_json_get(own, "decoder"), &t->decoder));
    AX_TRY(read_post_processor(post.v ? post : ax_json_get(root, "post_processor"), t));
    AX_TRY(read_added_tokens(ax_json_get(root, "added_tokens"), t));
    AX_TRY(ax_tokenizer_finish(t));
    AX_TRY(check_ids(t, &t->before, doc->name));
    return check_ids(t, &t->after, doc->name);
}
