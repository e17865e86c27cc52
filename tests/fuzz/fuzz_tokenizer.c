/* Tokenizers: any bytes are a tokenizer.json or an error with its name; one that is accepted
 * encodes any text or says why not, with spans inside the text; decoding in one go and token by
 * token agree. A whole byte alphabet gives every text back. The input is a tokenizer.json, a NUL
 * and a text. */
#include <string.h>

#include "base/log.h"
#include "data/text/tokenizer/tokenizer.h"
#include "base/text/unicode.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct ax_tokenizer *bytes; /* GPT-2's rule, each byte a token, a few merges */

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    ax_log_set_level(AX_LOG_ERROR);
    struct ax_buf json = {0};
    AX_ASSERT(ax_buf_puts(&json, "{\"model\":{\"type\":\"BPE\",\"vocab\":{") == AX_OK);
    int id = 0;
    for (uint32_t cp = 0x21; cp <= 0x143; cp++) { /* the alphabet, and a few characters more */
        char c[5] = "";
        c[ax_utf8_encode(cp, c)] = '\0';
        if ((cp < 0x7f || cp > 0xa0) && cp != 0xad)
            AX_ASSERT(ax_buf_printf(&json, "%s\"%s%s\":%d", id ? "," : "",
                                    cp == '"' || cp == '\\' ? "\\" : "", c, id) == AX_OK);
        id++;
    }
    AX_ASSERT(ax_buf_puts(&json,
                          ",\"th\":500,\"the\":501,\"\xc4\xa0the\":502,\"aa\":503,\"aaaa\":504},"
                          "\"merges\":[\"t h\",\"a a\",\"th e\",\"aa aa\",\"\xc4\xa0 the\"]},"
                          "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":"
                          "false},\"decoder\":{\"type\":\"ByteLevel\"}}") == AX_OK);
    AX_ASSERT(ax_tokenizer_parse(&bytes, "bytes", json.data, json.len) == AX_OK);
    ax_buf_free(&json);
    return 0;
}

static void check_decoding(const struct ax_tokenizer *t, const struct ax_encoding *e,
                           struct ax_buf *whole) {
    struct ax_buf parts = {0};
    struct ax_decode_stream *s;
    AX_ASSERT(ax_decode_stream_new(&s, t, false) == AX_OK);
    enum ax_status st = ax_tokenizer_decode(t, e->ids, e->n, false, whole);
    enum ax_status st2 = AX_OK;
    for (size_t i = 0; i < e->n && st2 == AX_OK; i++)
        st2 = ax_decode_stream_step(s, e->ids[i], &parts);
    if (st2 == AX_OK)
        st2 = ax_decode_stream_finish(s, &parts);
    AX_ASSERT(st == st2); /* a decoder's regex may give up */
    AX_ASSERT(st != AX_OK ||
              (parts.len == whole->len && memcmp(parts.data, whole->data, parts.len) == 0));
    ax_decode_stream_free(s);
    ax_buf_free(&parts);
}

static void check_text(const struct ax_tokenizer *t, const char *text, size_t len, bool whole) {
    struct ax_encoding e = {0}, again = {0};
    struct ax_buf decoded = {0};
    struct ax_encode_options opt = {.spans = true};
    if (ax_tokenizer_encode(t, text, len, &opt, &e) == AX_OK) {
        for (size_t i = 0; i < e.n; i++)
            AX_ASSERT(e.spans[i].start <= e.spans[i].end && e.spans[i].end <= len &&
                      (size_t)e.ids[i] < ax_tokenizer_size(t));
        opt.spans = false;
        AX_ASSERT(ax_tokenizer_encode(t, text, len, &opt, &again) == AX_OK);
        AX_ASSERT(e.n == again.n);
        AX_ASSERT(e.n == 0 || memcmp(e.ids, again.ids, e.n * sizeof *e.ids) == 0);
        check_decoding(t, &e, &decoded);
        AX_ASSERT(!whole || (decoded.len == len && memcmp(decoded.data, text, len) == 0));
    }
    ax_buf_free(&decoded);
    ax_encoding_free(&e);
    ax_encoding_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *json = (const char *)data;
    const char *nul = size > 0 ? memchr(json, '\0', size) : NULL;
    size_t json_len = nul != NULL ? (size_t)(nul - json) : size;
    struct ax_buf text = {0};
    struct ax_tokenizer *t;
    if (nul != NULL)
        AX_ASSERT(ax_utf8_repair(&text, nul + 1, size - json_len - 1) == AX_OK);
    check_text(bytes, text.data != NULL ? text.data : "", text.len, true);
    uint64_t live = ax_mem_live_blocks();
    const bool tekken = json_len > 9 && memcmp(json, "{\"config\"", 9) == 0;
    const char *name = tekken                                        ? "tekken.json"
                       : json_len > 0 && !strchr("{ \n\t\r[", *json) ? "tiktoken.model"
                                                                     : "f.json";
    if (ax_tokenizer_parse(&t, name, json, json_len) == AX_OK) {
        check_text(t, text.data != NULL ? text.data : "", text.len, false);
        ax_tokenizer_free(t);
    } else {
        AX_ASSERT(strncmp(ax_error_text(), name, strlen(name)) == 0);
    }
    AX_ASSERT(ax_mem_live_blocks() == live);
    ax_buf_free(&text);
    return 0;
}
