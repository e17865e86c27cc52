/* SentencePiece models as Mistral has them: ids, texts and conversations equal those of the mistral-common
 * package, a folder with one needs nothing else, and damage is an error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "data/text/template/mistral.h"
#include "data/text/vocab/mistral_files.h"
#include "data/text/vocab/vocab_sentencepiece.h"
#include "tests/data/mistral_case.h"

static int load_cases(void **state) {
    return load_cases_of(state, "tests/data/sentencepiece_cases.json");
}

static void texts_have_the_packages_ids(void **state) {
    (void)state;
    struct ax_tokenizer *t;
    json_t *row;
    size_t i;
    MUST(ax_tokenizer_load(&t, "tests/data/tokenizer.model.v3"));
    json_array_foreach(member("texts"), i, row) {
        assert_encodes(t, json_object_get(row, "text"), json_object_get(row, "ids"), false);
    }
    json_array_foreach(member("decoded"), i, row) {
        assert_decodes(t, json_object_get(row, "ids"), json_object_get(row, "text"), true);
    }
    assert_int_equal(ax_tokenizer_special_id(t, AX_BOS), 1);
    assert_int_equal(ax_tokenizer_special_id(t, AX_EOS), 2);
    assert_int_equal(ax_tokenizer_special_id(t, AX_PAD), AX_NO_TOKEN);
    ax_tokenizer_free(t);
}

/* Each token's own bytes: side by side they are the text, behind a blank that only decoding leaves out. */
static void tokens_have_bytes(void **state) {
    (void)state;
    struct ax_tokenizer *t;
    json_t *row, *id;
    size_t i, k;
    MUST(ax_tokenizer_load(&t, "tests/data/tokenizer.model.v3"));
    json_array_foreach(member("texts"), i, row) {
        struct ax_buf bytes = {0};
        const char *text = json_string_value(json_object_get(row, "text"));
        const size_t n = json_string_length(json_object_get(row, "text"));
        json_array_foreach(json_object_get(row, "ids"), k, id)
            MUST(ax_tokenizer_token_bytes(t, (int32_t)json_integer_value(id), &bytes));
        if (n > 0 &&
            (bytes.len != n + 1 || bytes.data[0] != ' ' || memcmp(bytes.data + 1, text, n) != 0))
            fail_msg("%s has the bytes of %.*s", text, (int)bytes.len, bytes.data);
        ax_buf_free(&bytes);
    }
    ax_tokenizer_free(t);
}

/* A folder with nothing but the model of this version. */
static const char *folder_of(const char *version, const char *from) {
    char name[64], path[64], *bytes;
    size_t len;
    snprintf(path, sizeof path, "tests/data/tokenizer.model.%s", from);
    MUST(ax_read_file(path, 1 << 20, &bytes, &len));
    make_folder(version);
    snprintf(name, sizeof name, "%s/tokenizer.model.%s", version, version);
    put_bytes(name, bytes, len);
    ax_free(bytes);
    return in_scratch(version);
}

static void conversations_have_the_packages_ids(void **state) {
    (void)state;
    static const char *const versions[] = {"v1", "v2", "v3", "v7"};
    json_t *row;
    size_t i, checked = 0;
    for (size_t v = 0; v < sizeof versions / sizeof *versions; v++) {
        struct ax_template *template;
        struct ax_tokenizer *t;
        const char *folder = folder_of(versions[v], v == 0 ? "v1" : "v3");
        assert_true(ax_tokenizer_is_in(folder));
        MUST(ax_tokenizer_load(&t, folder));
        MUST(ax_template_from_folder(&template, folder, NULL, false));
        json_array_foreach(member("chats"), i, row) {
            if (strcmp(json_string_value(json_object_get(row, "version")), versions[v]) != 0)
                continue;
            check_chat(template, t, row);
            checked++;
        }
        ax_template_free(template);
        ax_tokenizer_free(t);
    }
    assert_int_equal(checked, json_array_size(member("chats")));
}

/* Text after a token of its own needs no blank: an answer that follows another one, as v1 has no system turns. */
static void an_answer_after_an_answer(void **state) {
    (void)state;
    struct ax_template *template;
    MUST(ax_template_from_folder(&template, folder_of("v1", "v1"), NULL, false));
    check_text(template,
               "[{\"role\": \"user\", \"content\": \"q\"},"
               " {\"role\": \"assistant\", \"content\": \"a\"},"
               " {\"role\": \"system\", \"content\": \"s\"},"
               " {\"role\": \"assistant\", \"content\": \"b\"}]",
               NULL, "<s>[INST] s\n\nq [/INST] a</s>b</s>");
    ax_template_free(template);
}

/* A tokenizer.model without a version is Mistral's only where something says so. */
static void the_latest_file_is_the_tokenizer(void **state) {
    (void)state;
    static const char *const names[] = {"tokenizer.model", "tokenizer.model.v1",
                                        "tokenizer.model.v3", "tokenizer.model.v7m1",
                                        "tekken.json"};
    static const char *const versions[] = {"v1", "v1", "v3", "v7"};
    char *path, version[AX_MISTRAL_VERSION], name[64];
    make_folder("files");
    MUST(ax_mistral_tokenizer_in(in_scratch("files"), true, &path));
    assert_null(path);
    for (size_t i = 0; i < 5; i++) {
        snprintf(name, sizeof name, "files/%s", names[i]);
        put_text(name, "{\"config\": {\"version\": \"v11\"}}");
        MUST(ax_mistral_tokenizer_in(in_scratch("files"), false, &path));
        assert_int_equal(path == NULL, i == 0);
        ax_free(path);
        MUST(ax_mistral_tokenizer_in(in_scratch("files"), true, &path));
        assert_string_equal(path, in_scratch(name));
        assert_int_equal(ax_sentencepiece_is(path), i < 4);
        MUST(ax_mistral_version(path, version));
        assert_string_equal(version, i < 4 ? versions[i] : "v11");
        ax_free(path);
    }
    make_folder("bare");
    put_text("bare/tokenizer.model", "");
    put_text("bare/params.json", "{}");
    MUST(ax_mistral_tokenizer_in(in_scratch("bare"), false, &path));
    assert_non_null(path);
    ax_free(path);
    assert_false(ax_sentencepiece_is("a/model.safetensors"));
    assert_false(ax_sentencepiece_is("a/.model"));
    assert_false(ax_sentencepiece_is("a/x.model.vocab"));
    struct ax_template *template;
    assert_error(ax_template_mistral(&template, "x/tokenizer.model.v9"), AX_ERR_UNSUPPORTED,
                 "version \"v9\" is not one of v1, v2, v3");
}

static void damage_is_an_error(void **state) {
    (void)state;
    struct ax_tokenizer *t;
    char *bytes;
    size_t len;
    MUST(ax_read_file("tests/data/tokenizer.model.v3", 1 << 20, &bytes, &len));
    for (size_t cut = 0; cut < len; cut += cut < 64 ? 1 : 97) {
        const uint64_t live = ax_mem_live_blocks();
        if (ax_sentencepiece_parse(&t, "cut", bytes, cut) == AX_OK)
            ax_tokenizer_free(t); /* between two fields: normalizer_spec follows the pieces */
        else
            assert_non_null(strstr(ax_error_text(), "cut: "));
        assert_int_equal(ax_mem_live_blocks(), live);
    }
    ax_free(bytes);
    static const char unigram[] = "\x0a\x05\x0a\x03"
                                  "abc\x12\x02\x18\x01";
    static const char cleaned[] = "\x0a\x05\x0a\x03"
                                  "abc\x12\x02\x18\x02";
    assert_error(ax_sentencepiece_parse(&t, "f", unigram, sizeof unigram - 1), AX_ERR_UNSUPPORTED,
                 "f: a SentencePiece model with another model than BPE is not supported");
    assert_error(ax_sentencepiece_parse(&t, "f", cleaned, sizeof cleaned - 1), AX_ERR_UNSUPPORTED,
                 "with removal of blanks");
    assert_error(ax_sentencepiece_parse(&t, "f", "", 0), AX_ERR_DATA, "is damaged");
    static const char pieces[][10] = {"abc\x18\7", "abc\x18\0", "abc\x15\0\0\xc0\x7f"};
    static const char rest[] = "\x12\x05\x18\x02\x98\x02\x01\x1a\x02\x20\0";
    for (size_t i = 0; i < 3; i++) { /* of an unknown type, or with a score that is no number */
        struct ax_buf b = {0};
        const size_t n = i == 2 ? 8 : 5;
        MUST(ax_buf_append(&b, (const char[]){0x0a, (char)(n + 2), 0x0a, 3}, 4));
        MUST(ax_buf_append(&b, pieces[i], n));
        MUST(ax_buf_append(&b, rest, sizeof rest - 1));
        assert_error(ax_sentencepiece_parse(&t, "f", b.data, b.len), AX_ERR_DATA,
                     "f: a piece is damaged, or this is not a SentencePiece model");
        ax_buf_free(&b);
    }
}

/* The package makes one <unk> of a run of characters that are no pieces, if no bytes stand for them. */
static void unknown_characters_are_refused(void **state) {
    (void)state;
    static const char unknown[] = "\x0a\x05\x0a\x03"
                                  "abc\x12\x02\x18\x02\x1a\x02\x20\0",
                      bytes[] = "\x0a\x05\x0a\x03"
                                "abc\x12\x05\x18\x02\x98\x02\x01\x1a\x02\x20\0";
    struct ax_tokenizer *t;
    assert_error(ax_sentencepiece_parse(&t, "f", unknown, sizeof unknown - 1), AX_ERR_UNSUPPORTED,
                 "f: a SentencePiece model with unknown characters (no byte_fallback) is not");
    MUST(ax_sentencepiece_parse(&t, "f", bytes, sizeof bytes - 1));
    ax_tokenizer_free(t);
}

/* Pieces abc, a, b, c, and what a file says of them: fields of trainer_spec (kind is BPE, bytes stand for unknown
 * characters) and normalizer_spec (blanks are kept). */
#define PIECES   "\n\5\n\3abc\n\3\n\1a\n\3\n\1b\n\3\n\1c"
#define TRAINER  "\x18\2\x98\2\1"
#define WHOLE    "\x20\0"
#define UNK(id)  "\xc0\2" id
#define BOS(id)  "\xc8\2" id
#define EOS(id)  "\xd0\2" id
#define PAD(id)  "\xd8\2" id
#define SUFFIX   "\xc0\1\1"
#define N_PIECES "\x20\x18" /* 24: the number of the field about suffixes */
#define SPEC(s)                                                                                    \
    { s, sizeof(s) - 1 }

static enum ax_status parse_specs(struct ax_tokenizer **t, const char *trainer, size_t n,
                                  const char *normalizer, size_t m) {
    struct ax_buf b = {0};
    MUST(ax_buf_append(&b, PIECES, sizeof PIECES - 1));
    MUST(ax_buf_append(&b, (const char[]){0x12, (char)n}, 2));
    MUST(ax_buf_append(&b, trainer, n));
    MUST(ax_buf_append(&b, (const char[]){0x1a, (char)m}, 2));
    MUST(ax_buf_append(&b, normalizer, m));
    const enum ax_status st = ax_sentencepiece_parse(t, "f", b.data, b.len);
    ax_buf_free(&b);
    return st;
}

static void fields_of_the_specs(void **state) {
    (void)state;
    static const struct {
        struct {
            const char *s;
            size_t n;
        } trainer, normalizer;
        const char *error;
        int unk, bos, eos, pad, n; /* n: of the ids of "abc" */
    } specs[] = {
        {SPEC(TRAINER), SPEC(WHOLE), NULL, 0, 1, 2, -1, 0},
        {SPEC(TRAINER N_PIECES), SPEC(WHOLE), NULL, 0, 1, 2, -1, 0},
        {SPEC(TRAINER UNK("\3") BOS("\2") EOS("\1") PAD("\0")), SPEC(WHOLE), NULL, 3, 2, 1, 0, 0},
        {SPEC(TRAINER PAD("\3") UNK("\1")), SPEC(WHOLE), NULL, 1, 1, 2, 3, 0},
        {SPEC(TRAINER), SPEC(WHOLE "\x18\0"), NULL, 0, 1, 2, -1, 3},
        {SPEC(TRAINER SUFFIX), SPEC(WHOLE), "blanks that end words", 0, 0, 0, 0, 0},
        {SPEC("\x18\2"), SPEC(WHOLE), "unknown characters (no byte_fallback)", 0, 0, 0, 0, 0},
        {SPEC("\x18\1\x98\2\1"), SPEC(WHOLE), "another model than BPE", 0, 0, 0, 0, 0},
        {SPEC(TRAINER), SPEC("\x20\1"), "removal of blanks", 0, 0, 0, 0, 0},
        {SPEC(TRAINER), SPEC(WHOLE "\x28\0"), "blanks that are not escaped", 0, 0, 0, 0, 0},
        {SPEC(TRAINER), SPEC(WHOLE "\x12\1a"), "normalization of text", 0, 0, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        struct ax_tokenizer *t;
        struct ax_encoding ids = {0};
        const struct ax_encode_options o = {0};
        const enum ax_status st = parse_specs(&t, specs[i].trainer.s, specs[i].trainer.n,
                                              specs[i].normalizer.s, specs[i].normalizer.n);
        if (specs[i].error) {
            assert_error(st, AX_ERR_UNSUPPORTED, specs[i].error);
            continue;
        }
        MUST(st);
        const int want[] = {specs[i].unk, specs[i].bos, specs[i].eos, specs[i].pad};
        static const enum ax_special which[] = {AX_UNK, AX_BOS, AX_EOS, AX_PAD};
        for (int k = 0; k < 4; k++)
            if (ax_tokenizer_special_id(t, which[k]) != want[k])
                fail_msg("case %zu: special token %d is %d, not %d", i, k,
                         ax_tokenizer_special_id(t, which[k]), want[k]);
        if (specs[i].n > 0) { /* no blank before it */
            MUST(ax_tokenizer_encode(t, "abc", 3, &o, &ids));
            assert_true(ids.n == 3 && ids.ids[0] == 1 && ids.ids[2] == 3);
        }
        ax_encoding_free(&ids);
        ax_tokenizer_free(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_have_the_packages_ids),
        cmocka_unit_test(tokens_have_bytes),
        cmocka_unit_test(conversations_have_the_packages_ids),
        cmocka_unit_test(an_answer_after_an_answer),
        cmocka_unit_test(the_latest_file_is_the_tokenizer),
        cmocka_unit_test(damage_is_an_error),
        cmocka_unit_test(unknown_characters_are_refused),
        cmocka_unit_test(fields_of_the_specs),
    };
    return cmocka_run_group_tests(tests, load_cases, free_cases);
}
