/* The parts of a tokenizer. Loaders (vocab_hf, vocab_gguf) fill them and call ax_tokenizer_finish;
 * encode.c and decode.c run them. */
#ifndef AX_DATA_TEXT_TOKENIZER_TOKENIZER_IMPL_H
#define AX_DATA_TEXT_TOKENIZER_TOKENIZER_IMPL_H

#include <pthread.h>

#include "data/text/tokenizer/added_tokens.h"
#include "data/text/tokenizer/bpe.h"
#include "data/text/tokenizer/decode.h"
#include "data/text/tokenizer/normalize.h"
#include "data/text/tokenizer/pretokenize.h"
#include "data/text/tokenizer/tokenizer.h"
#include "data/text/tokenizer/vocab.h"

struct ax_id_list {
    int32_t *ids; /* owned */
    size_t n;
};

struct ax_tokenizer {
    struct ax_vocab vocab; /* the model's tokens as spelled in the file */
    struct ax_vocab bytes; /* the vocabulary as byte strings, if the model is byte-level */
    struct ax_bpe bpe;
    struct ax_normalizer normalizer;
    struct ax_pretok pretok; /* after finish: without a final BYTES, which bpe.raw_bytes replaces */
    struct ax_added_tokens added;
    struct ax_id_list before, after; /* added around the text by add_special_tokens */
    struct ax_decoder decoder;
    char *special_text[AX_SPECIAL_COUNT]; /* owned, NULL = none */
    int32_t special_id[AX_SPECIAL_COUNT];
    size_t expected; /* tokens, to bound ids in ax_vocab_add */
    bool plain;      /* text that spells a special token is ordinary text in every call */
    size_t offset;   /* first id of the model's tokens; ids below belong to added tokens */
    bool track;      /* pieces need alignments even if no spans are requested */
    pthread_mutex_t lock;
    struct ax_encoder *idle; /* scratch of threads not encoding now; under lock */
};

enum ax_status ax_tokenizer_new(struct ax_tokenizer **out);
/* Derives what follows from the parts; call once, when they are complete. Added tokens may still be
 * put afterwards; then call ax_added_index. */
enum ax_status ax_tokenizer_finish(struct ax_tokenizer *t);
/* Puts an added token into the table with the id of its text, or the next free one, as HF does:
 * *next, which is then incremented. Fills in id and form of *token. */
enum ax_status ax_tokenizer_put_added(struct ax_tokenizer *t, struct ax_added_token *token,
                                      int32_t *next);
/* The id that the next new added token would get. */
int32_t ax_tokenizer_next_id(const struct ax_tokenizer *t);
/* Names an existing token: AX_ERR_DATA if no token has this text. */
enum ax_status ax_tokenizer_name_special(struct ax_tokenizer *t, enum ax_special which,
                                         const char *text);
/* Replaces an id list with a copy of ids[n]. */
enum ax_status ax_id_list_set(struct ax_id_list *l, const int32_t *ids, size_t n);

/* Scratch of one encoding thread. */
struct ax_encoder {
    const struct ax_tokenizer *t;
    struct ax_bpe_work bpe;
    struct ax_pretok_work pretok;
    struct ax_norm_work norm;
    struct ax_encode_options opt;
    struct ax_encoding *out;
    struct ax_encoder *next;
};
void ax_encoder_free(struct ax_encoder *e);

#endif
