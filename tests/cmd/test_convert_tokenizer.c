/* `axtrain convert`: the tokenizer of the folder gives the ids of the file's own; templates and
 * stop tokens arrive; nothing half-written stays when disk or memory fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/fault.h"
#include "base/text/json.h"
#include "model/convert/from_gguf.h"
#include "data/text/tokenizer/tokenizer.h"
#include "tests/ckpt/folder.h"
#include "tests/cmd/gguf_tiny.h"

static const struct tiny model = {.arch = "llama", .permuted = true, .matrix_type = TYPE_F16};

/* Writes a model whose tokenizer has these words for tokenizer.ggml.model and .pre; `more` adds
 * keys. */
static void put_model(const char *kind, const char *pre, void (*more)(struct gguf_out *o)) {
    struct gguf_out o = {0};
    struct tiny t = model;
    t.kind = kind;
    t.pre = pre;
    tiny_sizes(&o, &t);
    tiny_vocab(&o, &t);
    tiny_tensors(&o, &t);
    if (more)
        more(&o);
    gguf_out_finish(&o);
    put_file("m.gguf", o.file.data, o.file.len);
    gguf_out_free(&o);
}

static enum ax_status convert(const char *dst) {
    struct ax_convert c = {.src = in_dir("m.gguf"), .dst = in_dir(dst)};
    return ax_convert_gguf_to_hf(&c);
}

static void converted(const char *dst) {
    if (convert(dst) != AX_OK)
        fail_msg("%s", ax_error_text());
}

static void load(struct ax_tokenizer **t, const char *name) {
    if (ax_tokenizer_load(t, in_dir(name)) != AX_OK)
        fail_msg("%s", ax_error_text());
}

static void load_json(struct ax_json_doc *doc, const char *folder, const char *name) {
    char path[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (ax_json_load(doc, in_dir(path), 1 << 20) != AX_OK)
        fail_msg("%s", ax_error_text());
}

/* --- ids --- */

static const char *const texts[] = {
    "",
    "the",
    " the thin thing in the tin",
    "  two  blanks   and\ttabs\n\n",
    "12345 and 6 7",
    "it's THE one",
    "<s>the<|end|> <tool>in<tool> <pad>",
    "na\xC3\xAFve \xE4\xBD\xA0\xE5\xA5\xBD \xF0\x9F\x98\x80",
    "\xE2\x96\x81 underlined \xE2\x96\x81the",
    "<0x41>[unused300]",
    "quotes \" and \\ back\x01slash",
};

static void same_ids(const struct ax_tokenizer *a, const struct ax_tokenizer *b, const char *text,
                     struct ax_encode_options opt) {
    struct ax_encoding x = {0}, y = {0};
    struct ax_buf s = {0}, u = {0};
    assert_int_equal(ax_tokenizer_encode(a, text, strlen(text), &opt, &x), AX_OK);
    assert_int_equal(ax_tokenizer_encode(b, text, strlen(text), &opt, &y), AX_OK);
    if (x.n != y.n || (x.n > 0 && memcmp(x.ids, y.ids, x.n * sizeof *x.ids) != 0))
        fail_msg("\"%s\": other ids (%zu and %zu)", text, x.n, y.n);
    for (int skip = 0; skip < 2; skip++) {
        s.len = u.len = 0;
        assert_int_equal(ax_tokenizer_decode(a, x.ids, x.n, skip, &s), AX_OK);
        assert_int_equal(ax_tokenizer_decode(b, y.ids, y.n, skip, &u), AX_OK);
        assert_int_equal(s.len, u.len);
        assert_true(s.len == 0 || memcmp(s.data, u.data, s.len) == 0);
    }
    ax_buf_free(&s);
    ax_buf_free(&u);
    ax_encoding_free(&x);
    ax_encoding_free(&y);
}

/* The file's tokenizer and the folder's agree on every text; returns how many ids the third has. */
static void compare(const char *folder) {
    struct ax_tokenizer *a, *b;
    converted(folder);
    load(&a, "m.gguf");
    load(&b, folder);
    assert_int_equal(ax_tokenizer_size(b), VOCAB);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        for (int add = 0; add < 2; add++)
            for (int plain = 0; plain < 2; plain++)
                same_ids(a, b, texts[i],
                         (struct ax_encode_options){.add_special_tokens = add, .plain = plain});
    for (int i = 0; i < AX_SPECIAL_COUNT; i++)
        assert_int_equal(ax_tokenizer_special_id(a, (enum ax_special)i),
                         ax_tokenizer_special_id(b, (enum ax_special)i));
    ax_tokenizer_free(a);
    ax_tokenizer_free(b);
}

static void ids_are(const char *folder, const char *text, bool special, size_t n,
                    const int32_t *ids) {
    struct ax_tokenizer *t;
    struct ax_encoding e = {0};
    const struct ax_encode_options opt = {.add_special_tokens = special};
    load(&t, folder);
    assert_int_equal(ax_tokenizer_encode(t, text, strlen(text), &opt, &e), AX_OK);
    assert_int_equal(e.n, n);
    assert_memory_equal(e.ids, ids, n * sizeof *ids);
    ax_encoding_free(&e);
    ax_tokenizer_free(t);
}
#define IDS(...)                                                                                   \
    sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t), (int32_t[]) {                              \
        __VA_ARGS__                                                                                \
    }

static void add_bos(struct gguf_out *o) {
    key_bool(o, "tokenizer.ggml.add_bos_token", true);
    key_bool(o, "tokenizer.ggml.add_eos_token", true);
}

static void no_bos(struct gguf_out *o) {
    key_bool(o, "tokenizer.ggml.add_bos_token", false);
}

/* Ids: 4 + byte; 260 th, 261 the, 262 Ġthe, 263 in, 264 Ġt. */
static void byte_level_vocabularies_keep_their_split_rule(void **state) {
    (void)state;
    put_model("gpt2", "smollm", NULL);
    compare("smollm");
    ids_are("smollm", " the<s>1", true, IDS(262, 1, 4 + '1'));
    put_model("gpt2", "qwen2", add_bos);
    compare("qwen2");
    ids_are("qwen2", "in", true, IDS(1, 263, 0));
    ids_are("qwen2", "in", false, IDS(263));
    put_model("gpt2", "llama-bpe", NULL); /* begins with BOS where the file does not say */
    compare("llama3");
    ids_are("llama3", "the", true, IDS(1, 261));
    put_model("gpt2", "llama-bpe", no_bos);
    compare("no-bos");
    ids_are("no-bos", "the", true, IDS(261));
    put_model("gpt2", "falcon", NULL);
    compare("falcon");
    put_model("gpt2", "deepseek-llm", NULL);
    compare("deepseek");
}

static void no_prefix(struct gguf_out *o) {
    key_bool(o, "tokenizer.ggml.add_space_prefix", false);
}

/* Ids: 4 + byte; 260 ▁, 261 t, h, e, i, n, 266 ▁t, th, the, 269 ▁the, 270 in. */
static void scores_become_merges(void **state) {
    (void)state;
    put_model("llama", NULL, NULL);
    compare("scores");
    ids_are("scores", "the in", true, IDS(1, 266, 262, 263, 260, 270));
    ids_are("scores", "\xC3\xA9", false, IDS(260, 4 + 0xC3, 4 + 0xA9));
    put_model("llama", NULL, no_prefix);
    compare("no-prefix");
    ids_are("no-prefix", "the in", false, IDS(268, 260, 270));
}

/* The same ids: merges alone lead to tokens, and no blank is put before. */
static void merges_of_pieces_are_kept(void **state) {
    (void)state;
    put_model("gemma4", NULL, add_bos);
    compare("pieces");
    ids_are("pieces", "the in", true, IDS(1, 268, 260, 270, 0));
    ids_are("pieces", " the tin", false, IDS(269, 260, 261, 270)); /* ▁t is a token, too */
    ids_are("pieces", "\xC3\xA9\n", false, IDS(4 + 0xC3, 4 + 0xA9, 4 + '\n'));
}

static void unknown_split_rules_are_refused(void **state) {
    (void)state;
    put_model("gpt2", "default", NULL);
    assert_int_equal(convert("no"), AX_ERR_UNSUPPORTED);
    assert_mentions("the split rule \"default\" is not supported");
    put_model("bert", NULL, NULL);
    assert_int_equal(convert("no"), AX_ERR_UNSUPPORTED);
    assert_mentions("model \"bert\" is not supported");
    assert_false(ax_path_exists(in_dir("no")));
}

/* --- the files beside it --- */

#define TEMPLATE "{% for m in messages %}{{ m['content'] + \"\\n\" }}{% endfor %}\xC3\xA9"

static void one_template(struct gguf_out *o) {
    key_text(o, "tokenizer.chat_template", TEMPLATE);
    key_u32(o, "tokenizer.ggml.eot_token_id", 2);
    key_u32(o, "tokenizer.ggml.padding_token_id", 2);
}

static void two_templates(struct gguf_out *o) {
    key_text(o, "tokenizer.chat_template", TEMPLATE);
    key_text(o, "tokenizer.chat_template.tool_use", "tools");
    key_texts(o, "tokenizer.chat_templates", 1, (const char *const[]){"tool_use"});
}

static void check_text(const struct ax_json_doc *doc, const char *key, const char *expected) {
    const char *text;
    assert_int_equal(ax_json_str(ax_json_get(ax_json_root(doc), key), &text), AX_OK);
    assert_string_equal(text, expected);
}

static void templates_and_stop_tokens(void **state) {
    (void)state;
    struct ax_json_doc doc;
    put_model("gpt2", "smollm", one_template);
    converted("one");
    load_json(&doc, "one", "tokenizer_config.json");
    check_text(&doc, "chat_template", TEMPLATE);
    check_text(&doc, "eos_token", "<|end|>");
    check_text(&doc, "bos_token", "<s>");
    check_text(&doc, "pad_token", "<pad>");
    assert_null(json_object_get(doc.root, "unk_token"));
    assert_int_equal(json_integer_value(json_object_get(doc.root, "model_max_length")), 2048);
    ax_json_free(&doc);
    load_json(&doc, "one", "generation_config.json");
    assert_int_equal(json_integer_value(json_object_get(doc.root, "bos_token_id")), 1);
    const json_t *stop = json_object_get(doc.root, "eos_token_id");
    assert_int_equal(json_array_size(stop), 2);
    assert_int_equal(json_integer_value(json_array_get(stop, 0)), 0);
    assert_int_equal(json_integer_value(json_array_get(stop, 1)), 2);
    ax_json_free(&doc);

    put_model("gpt2", "smollm", two_templates);
    converted("two");
    load_json(&doc, "two", "tokenizer_config.json");
    const struct ax_json list = ax_json_get(ax_json_root(&doc), "chat_template");
    const char *text;
    assert_int_equal(ax_json_size(list), 2);
    assert_int_equal(ax_json_str(ax_json_get(ax_json_at(list, 0), "name"), &text), AX_OK);
    assert_string_equal(text, "tool_use");
    assert_int_equal(ax_json_str(ax_json_get(ax_json_at(list, 1), "template"), &text), AX_OK);
    assert_string_equal(text, TEMPLATE);
    ax_json_free(&doc);
    load_json(&doc, "two", "generation_config.json");
    assert_int_equal(json_integer_value(json_object_get(doc.root, "eos_token_id")), 0);
    assert_true(json_is_null(json_object_get(doc.root, "pad_token_id")));
    ax_json_free(&doc);
}

/* --- faults --- */

/* No folder, and none that was begun. */
static void nothing_is_left(const char *name) {
    char tmp[64];
    snprintf(tmp, sizeof tmp, "%s.tmp-%ld", name, (long)getpid());
    assert_false(ax_path_exists(in_dir(name)));
    assert_false(ax_path_exists(in_dir(tmp)));
}

static void a_failing_disk_leaves_nothing(void **state) {
    (void)state;
    static const char *const kinds[] = {"write:%d:enospc", "write:%d:eio",  "fsync:%d:eio",
                                        "open:%d:eio",     "rename:%d:eio", "mkdir:%d:enospc"};
    int points = 0;
    put_model("gpt2", "smollm", NULL);
    const uint64_t live = ax_mem_live_blocks();
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        bool fired = true;
        for (int k = 1; fired; k++) {
            char spec[32];
            snprintf(spec, sizeof spec, kinds[i], k);
            assert_int_equal(ax_fault_configure(spec), AX_OK);
            const enum ax_status st = convert("out");
            fired = ax_fault_fired();
            assert_int_equal(ax_fault_configure(NULL), AX_OK);
            /* what fails behind the rename is tidying up, and only said */
            if (!fired || st == AX_OK) {
                assert_int_equal(st, AX_OK);
                assert_int_equal(ax_remove_tree(in_dir("out")), AX_OK);
            } else {
                const bool full = strstr(kinds[i], "enospc") != NULL;
                assert_int_equal(st, full ? AX_ERR_STORAGE : AX_ERR_IO);
                nothing_is_left("out");
                points++;
            }
            assert_int_equal(ax_mem_live_blocks(), live);
        }
    }
    assert_true(points > 20);
    printf("%d points\n", points);
}

/* Every one of the first calls, then every seventh. */
static void memory_may_fail(void **state) {
    (void)state;
    int points = 0;
    put_model("llama", NULL, one_template);
    const uint64_t live = ax_mem_live_blocks();
    bool fired = true;
    for (int k = 1; fired; k += k < 200 ? 1 : 7) {
        char spec[32];
        snprintf(spec, sizeof spec, "malloc:%d:enomem", k);
        assert_int_equal(ax_fault_configure(spec), AX_OK);
        const enum ax_status st = convert("out");
        fired = ax_fault_fired();
        assert_int_equal(ax_fault_configure(NULL), AX_OK);
        if (st == AX_OK) {
            assert_int_equal(ax_remove_tree(in_dir("out")), AX_OK);
        } else {
            assert_int_equal(st, AX_ERR_NOMEM);
            nothing_is_left("out");
            points++;
        }
        assert_int_equal(ax_mem_live_blocks(), live);
    }
    assert_true(points > 100);
    printf("%d points\n", points);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(byte_level_vocabularies_keep_their_split_rule),
        cmocka_unit_test(scores_become_merges),
        cmocka_unit_test(merges_of_pieces_are_kept),
        cmocka_unit_test(unknown_split_rules_are_refused),
        cmocka_unit_test(templates_and_stop_tokens),
        cmocka_unit_test(a_failing_disk_leaves_nothing),
        cmocka_unit_test(memory_may_fail),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
