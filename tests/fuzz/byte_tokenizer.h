/* A tokenizer of bytes and two special tokens, and a chat template, for fuzz targets. */
#ifndef AX_TESTS_FUZZ_BYTE_TOKENIZER_H
#define AX_TESTS_FUZZ_BYTE_TOKENIZER_H

#include "data/text/template/template.h"
#include "data/text/tokenizer/tokenizer.h"

static struct ax_tokenizer *tokenizer;
static struct ax_template *template;
static json_t *tokens;

/* Every byte is a token, by the character that byte-level vocabularies write for it. */
static void put_byte(struct ax_buf *b, unsigned byte) {
    unsigned c = byte;
    unsigned hidden = 0;
    for (unsigned i = 0; i <= byte; i++) {
        const bool shown = (i >= 33 && i <= 126) || (i >= 161 && i <= 172) || i >= 174;
        c = shown ? i : 256 + hidden;
        hidden += !shown;
    }
    AX_ASSERT(ax_buf_printf(b, "%s\"\\u%04x\": %u", byte ? ", " : "", c, byte) == AX_OK);
}

static void make_tokenizer(const char *source) {
    struct ax_buf b = {0};
    static const char added[] =
        "{\"version\": \"1.0\", \"added_tokens\": ["
        "{\"id\": 256, \"content\": \"<|im_start|>\", \"special\": true, \"single_word\": false, "
        "\"lstrip\": false, \"rstrip\": false, \"normalized\": false}, "
        "{\"id\": 257, \"content\": \"<|im_end|>\", \"special\": true, \"single_word\": false, "
        "\"lstrip\": false, \"rstrip\": false, \"normalized\": false}], \"normalizer\": null, "
        "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
        "\"trim_offsets\": true, \"use_regex\": false}, \"post_processor\": null, \"decoder\": "
        "{\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", \"vocab\": {";
    AX_ASSERT(ax_buf_puts(&b, added) == AX_OK);
    for (unsigned i = 0; i < 256; i++)
        put_byte(&b, i);
    AX_ASSERT(ax_buf_puts(&b, "}, \"merges\": []}}") == AX_OK);
    AX_ASSERT(ax_tokenizer_parse(&tokenizer, "fuzz", b.data, b.len) == AX_OK);
    AX_ASSERT(ax_tokenizer_set_special(tokenizer, AX_EOS, "<|im_end|>") == AX_OK);
    AX_ASSERT(ax_template_compile(&template, "fuzz", source, strlen(source)) == AX_OK);
    tokens = json_pack("{s:s}", "eos_token", "<|im_end|>");
    ax_buf_free(&b);
}

#endif
