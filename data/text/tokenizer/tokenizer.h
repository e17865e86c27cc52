/* Tokenizers: text ↔ token ids, exactly as the model's own tokenizer.
 *
 * Sources: HF tokenizer.json with a BPE model (byte-level or SentencePiece-like), Mistral's
 * tekken.json, Kimi's tiktoken.model, and GGUF vocabularies. A loaded tokenizer is constant: any number of threads may
 * encode and decode with it. Only the functions under "changes" modify it, before it is shared.
 *
 * Text is UTF-8 with a length and may contain NUL. Ids are int32_t, ≥ 0; AX_NO_TOKEN (−1) is none.
 *
 * Reading order: tokenizer.c (the object), encode.c, decode.c; loading: vocab_hf.c, vocab_tekken.c, vocab_tiktoken.c,
 * vocab_sentencepiece.c, mistral_files.c, vocab_gguf.c; encoding steps: normalize.c, pretokenize.c with
 * split_rules.c, bpe.c. */
#ifndef AX_DATA_TEXT_TOKENIZER_TOKENIZER_H
#define AX_DATA_TEXT_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"
#include "data/text/tokenizer/span.h"

enum { AX_NO_TOKEN = -1 };

struct ax_tokenizer;

/* --- loading --- */

/* PATH: a folder with tokenizer.json and optionally tokenizer_config.json and
 * special_tokens_map.json, or without one with Mistral's tekken.json or tokenizer.model
 * (mistral_files.h), or Kimi's tiktoken.model; one of these files alone; or a GGUF file. AX_ERR_DATA names file and key path; AX_ERR_UNSUPPORTED for models other than BPE and for unknown steps. */
enum ax_status ax_tokenizer_load(struct ax_tokenizer **out, const char *path);
/* True if a folder has one of these files. */
bool ax_tokenizer_is_in(const char *folder);

/* The text of a tokenizer.json, or of a tekken.json or tiktoken.model if `name`, which is for messages, says so. */
enum ax_status ax_tokenizer_parse(struct ax_tokenizer **out, const char *name, const char *text,
                                  size_t len);

/* A GGUF vocabulary: the tokenizer.ggml.* keys of a file as arrays, borrowed for the call. */
struct ax_gguf;
struct ax_gguf_text;
struct ax_gguf_vocab {
    const char *name;  /* file name for messages */
    const char *model; /* "gpt2" (merges) or "llama" (scores) */
    const char *pre;   /* name of the split rule; NULL = missing (an error for gpt2) */
    size_t n_tokens, n_merges;
    const struct ax_gguf_text *tokens;      /* [n_tokens] */
    const int32_t *types;                   /* [n_tokens]; NULL: all normal */
    const float *scores;                    /* [n_tokens]; llama only */
    const struct ax_gguf_text *merges;      /* [n_merges] "left right"; gpt2 only */
    int64_t bos, eos, unk, pad;             /* ids, -1 = missing */
    int add_bos, add_eos, add_space_prefix; /* 0, 1, or -1 = missing */
    /* user-defined tokens are matched after normalizing, as SentencePiece does */
    bool late_user_tokens;
};
enum ax_status ax_tokenizer_from_gguf(struct ax_tokenizer **out, const struct ax_gguf_vocab *v);
/* The vocabulary of an open file (ckpt/gguf/gguf.h). */
enum ax_status ax_tokenizer_load_gguf(struct ax_tokenizer **out, const struct ax_gguf *g);

void ax_tokenizer_free(struct ax_tokenizer *t);

/* --- encoding --- */

struct ax_encode_options {
    bool add_special_tokens; /* adds BOS, EOS or others as the post-processor says */
    bool plain;              /* treats text that spells a special token as ordinary text */
    bool spans;
};

struct ax_encoding {
    int32_t *ids;
    /* bytes of text each token covers, full characters; 0,0: added specials */
    struct ax_span *spans;
    size_t n, cap, cap_spans;
};

/* Appends the tokens of text to out (zero-initialize it; set n = 0 to reuse it). AX_ERR_DATA with
 * the byte offset for text that is not UTF-8 (ax_utf8_repair in base/text/unicode.h repairs it), and for
 * text of 2 GiB or more. */
enum ax_status ax_tokenizer_encode(const struct ax_tokenizer *t, const char *text, size_t len,
                                   const struct ax_encode_options *opt, struct ax_encoding *out);
void ax_encoding_free(struct ax_encoding *e);
/* Index of the first token from `from` on that covers byte `at` of the text, or e->n. Each token of
 * a multi-token character covers it. Needs spans. */
size_t ax_encoding_covering(const struct ax_encoding *e, size_t from, size_t at);

/* --- decoding --- */

/* Appends the text of ids to out; invalid UTF-8 becomes U+FFFD, ids without a token are skipped. */
enum ax_status ax_tokenizer_decode(const struct ax_tokenizer *t, const int32_t *ids, size_t n,
                                   bool skip_special, struct ax_buf *out);

/* Appends the bytes that a token adds to a text, behind others: parts of characters, too. */
enum ax_status ax_tokenizer_token_bytes(const struct ax_tokenizer *t, int32_t id,
                                        struct ax_buf *out);

/* Decodes id by id: the concatenated output of step and finish is ax_tokenizer_decode of all ids.
 * Text is held back while later ids may still change it. */
struct ax_decode_stream;
enum ax_status ax_decode_stream_new(struct ax_decode_stream **out, const struct ax_tokenizer *t,
                                    bool skip_special);
enum ax_status ax_decode_stream_step(struct ax_decode_stream *s, int32_t id, struct ax_buf *out);
enum ax_status ax_decode_stream_finish(struct ax_decode_stream *s, struct ax_buf *out);
void ax_decode_stream_free(struct ax_decode_stream *s);

/* --- the vocabulary --- */

size_t ax_tokenizer_size(const struct ax_tokenizer *t); /* largest id + 1, including added tokens */
/* Id of a token by its string as spelled in tokenizer.json ("Ġthe"), or AX_NO_TOKEN. */
int32_t ax_tokenizer_find(const struct ax_tokenizer *t, const char *s, size_t len);
/* That string (not NUL-terminated); NULL for an unused id. */
const char *ax_tokenizer_token(const struct ax_tokenizer *t, int32_t id, size_t *len);
bool ax_tokenizer_is_special(const struct ax_tokenizer *t, int32_t id);

enum ax_special { AX_BOS, AX_EOS, AX_UNK, AX_SEP, AX_PAD, AX_CLS, AX_MASK, AX_SPECIAL_COUNT };
/* "bos_token" */
const char *ax_special_name(enum ax_special which);
/* Text and id of a named special token; NULL and AX_NO_TOKEN if there is none. */
const char *ax_tokenizer_special(const struct ax_tokenizer *t, enum ax_special which);
int32_t ax_tokenizer_special_id(const struct ax_tokenizer *t, enum ax_special which);
/* Id of the token that pads: pad_token, or EOS if there is none, as in TRL. */
int32_t ax_tokenizer_pad_id(const struct ax_tokenizer *t);

/* --- changes (not thread-safe) --- */

/* Gives the token with this text an id (its own, or the next free one) and matches it in text;
 * special tokens are skipped in decoding. */
enum ax_status ax_tokenizer_add(struct ax_tokenizer *t, const char *text, bool special,
                                int32_t *id);
/* Adds text as a special token and makes it the tokenizer's BOS, EOS, … */
enum ax_status ax_tokenizer_set_special(struct ax_tokenizer *t, enum ax_special which,
                                        const char *text);
/* Renames an added token (such as a reserved one). AX_ERR_CONFIG if id is not an added token or
 * another token has that text. */
enum ax_status ax_tokenizer_rename(struct ax_tokenizer *t, int32_t id, const char *text);

#endif
