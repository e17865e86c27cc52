/* SentencePiece's models: any bytes are a tokenizer.model or an error with its name; one that is accepted
 * encodes a text into ids that it has, with spans inside the text, and decodes them. */
#include <string.h>

#include "base/log.h"
#include "data/text/vocab/vocab_sentencepiece.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    ax_log_set_level(AX_LOG_ERROR);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char text[] = " The[INST] quick\n\xc3\xa9\xe2\x96\x81 fox</s>";
    const uint64_t live = ax_mem_live_blocks();
    const struct ax_encode_options spans = {.spans = true};
    struct ax_tokenizer *t;
    if (ax_sentencepiece_parse(&t, "t.model.v3", data, size) == AX_OK) {
        struct ax_encoding e = {0};
        struct ax_buf back = {0};
        if (ax_tokenizer_encode(t, text, sizeof text - 1, &spans, &e) == AX_OK) {
            for (size_t i = 0; i < e.n; i++)
                AX_ASSERT(e.spans[i].start <= e.spans[i].end && e.spans[i].end < sizeof text &&
                          (size_t)e.ids[i] < ax_tokenizer_size(t));
            AX_ASSERT(ax_tokenizer_decode(t, e.ids, e.n, false, &back) == AX_OK);
        }
        ax_buf_free(&back);
        ax_encoding_free(&e);
        ax_tokenizer_free(t);
    } else {
        AX_ASSERT(strncmp(ax_error_text(), "t.model.v3", 10) == 0);
    }
    AX_ASSERT(ax_mem_live_blocks() == live);
    return 0;
}
