/* tokenizer.model → a tokenizer. The file is a protocol buffer (sentencepiece_model.proto, ModelProto):
 *
 *   1 pieces           repeated {1 piece, 2 score, 3 type}
 *   2 trainer_spec     {3 model_type: 2 is BPE, 24 treat_whitespace_as_suffix, 35 byte_fallback, 40 unk_id,
 *                      41 bos_id, 42 eos_id, 43 pad_id}
 *   3 normalizer_spec  {2 precompiled_charsmap, 3 add_dummy_prefix, 4 remove_extra_whitespaces,
 *                      5 escape_whitespaces}
 *
 * The types are those of GGUF's vocabularies of this kind, which are built from it. */
#include "data/text/vocab/vocab_sentencepiece.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#include "base/io.h"
#include "base/io_path.h"
#include "ckpt/gguf/gguf.h"

enum { MAX_FILE = 64 << 20, MAX_PIECES = 1 << 22, BPE = 2, LAST_TYPE = 6 };
enum wire { VARINT = 0, EIGHT = 1, BYTES = 2, FOUR = 5 };

bool ax_sentencepiece_is(const char *path) {
    static const char ending[] = ".model";
    size_t len;
    const char *name = ax_path_last(path, &len), *at = NULL;
    for (const char *p = name; (p = strstr(p, ending)) != NULL; p++)
        at = p + strlen(ending);
    if (!at || at == name + strlen(ending))
        return false;
    return *at == '\0' || (at[0] == '.' && at[1] == 'v' && isdigit((unsigned char)at[2]) &&
                           strspn(at + 2, "0123456789m") == strlen(at + 2));
}

/* ---- the wire format ---- */

struct message {
    const unsigned char *at, *end;
};

struct field {
    uint64_t number, value; /* of VARINT; of FOUR, its bits */
    enum wire wire;
    struct message bytes;
};

static bool read_varint(struct message *m, uint64_t *out) {
    *out = 0;
    for (int shift = 0; shift < 64 && m->at < m->end; shift += 7) {
        const uint64_t byte = *m->at++;
        *out |= (byte & 127) << shift;
        if (byte < 128)
            return true;
    }
    return false;
}

/* False at the end, and with *bad if the bytes are no field. */
static bool next(struct message *m, struct field *f, bool *bad) {
    uint64_t key, n;
    *f = (struct field){0};
    if (m->at == m->end)
        return false;
    *bad = true;
    if (!read_varint(m, &key))
        return false;
    f->number = key >> 3;
    f->wire = (enum wire)(key & 7);
    if (f->wire == VARINT) {
        if (!read_varint(m, &f->value))
            return false;
    } else {
        n = f->wire == EIGHT ? 8 : 4;
        if (f->wire == BYTES ? !read_varint(m, &n) : f->wire != EIGHT && f->wire != FOUR)
            return false;
        if (n > (uint64_t)(m->end - m->at))
            return false;
        f->bytes = (struct message){m->at, m->at + n};
        for (uint64_t i = 0; f->wire == FOUR && i < n; i++)
            f->value |= (uint64_t)m->at[i] << (8 * i);
        m->at += n;
    }
    *bad = false;
    return true;
}

/* ---- the model ---- */

struct model {
    const char *name;
    struct ax_gguf_text *tokens;
    int32_t *types;
    float *scores;
    size_t n;
    uint64_t kind, unk, bos, eos, pad;
    bool suffix, fallback, charsmap, prefix, squeeze, escape;
};

static enum ax_status damaged(const struct model *m, const char *what) {
    return ax_error(AX_ERR_DATA, "%s: %s is damaged, or this is not a SentencePiece model", m->name,
                    what);
}

static enum ax_status read_piece(struct model *m, struct message from) {
    struct field f;
    bool bad = false;
    m->types[m->n] = 1;
    while (next(&from, &f, &bad)) {
        if (f.number == 1 && f.wire == BYTES) {
            m->tokens[m->n].s = (const char *)f.bytes.at;
            m->tokens[m->n].len = (size_t)(f.bytes.end - f.bytes.at);
        } else if (f.number == 2 && f.wire == FOUR) {
            const uint32_t bits = (uint32_t)f.value;
            memcpy(&m->scores[m->n], &bits, sizeof bits);
        } else if (f.number == 3 && f.wire == VARINT) {
            m->types[m->n] = f.value > LAST_TYPE ? 0 : (int32_t)f.value;
        }
    }
    bad = bad || m->types[m->n] == 0 || isnan(m->scores[m->n]);
    m->n++;
    return bad ? damaged(m, "a piece") : AX_OK;
}

static enum ax_status read_trainer(struct model *m, struct message from) {
    struct field f;
    bool bad = false;
    while (next(&from, &f, &bad)) {
        uint64_t *const ids[] = {&m->unk, &m->bos, &m->eos, &m->pad};
        if (f.number == 3)
            m->kind = f.value;
        else if (f.number == 24)
            m->suffix = f.value != 0;
        else if (f.number == 35)
            m->fallback = f.value != 0;
        else if (f.number >= 40 && f.number <= 43)
            *ids[f.number - 40] = f.value;
    }
    return bad ? damaged(m, "trainer_spec") : AX_OK;
}

static enum ax_status read_normalizer(struct model *m, struct message from) {
    struct field f;
    bool bad = false;
    while (next(&from, &f, &bad)) {
        bool *const flags[] = {&m->prefix, &m->squeeze, &m->escape};
        if (f.number == 2)
            m->charsmap = f.bytes.end > f.bytes.at;
        else if (f.number >= 3 && f.number <= 5)
            *flags[f.number - 3] = f.value != 0;
    }
    return bad ? damaged(m, "normalizer_spec") : AX_OK;
}

static enum ax_status count_pieces(const struct model *m, struct message from, size_t *n) {
    struct field f;
    bool bad = false;
    *n = 0;
    while (next(&from, &f, &bad))
        *n += f.number == 1 && f.wire == BYTES;
    if (bad || *n == 0 || *n > MAX_PIECES)
        return damaged(m, "the file");
    return AX_OK;
}

static enum ax_status read_model(struct model *m, struct message from) {
    struct field f;
    bool bad = false;
    size_t n;
    AX_TRY(count_pieces(m, from, &n));
    AX_TRY(ax_alloc(&m->tokens, n, sizeof *m->tokens));
    AX_TRY(ax_alloc(&m->types, n, sizeof *m->types));
    AX_TRY(ax_alloc(&m->scores, n, sizeof *m->scores));
    while (next(&from, &f, &bad)) {
        if (f.wire != BYTES)
            continue;
        if (f.number == 1)
            AX_TRY(read_piece(m, f.bytes));
        else if (f.number == 2)
            AX_TRY(read_trainer(m, f.bytes));
        else if (f.number == 3)
            AX_TRY(read_normalizer(m, f.bytes));
    }
    return AX_OK;
}

static enum ax_status check(const struct model *m) {
    const char *what = m->kind != BPE ? "another model than BPE"
                       : m->charsmap  ? "normalization of text"
                       : m->squeeze   ? "removal of blanks"
                       : m->suffix    ? "blanks that end words"
                       : !m->escape   ? "blanks that are not escaped"
                       : !m->fallback ? "unknown characters (no byte_fallback)"
                                      : NULL;
    return !what ? AX_OK
                 : ax_error(AX_ERR_UNSUPPORTED,
                            "%s: a SentencePiece model with %s is not supported. Save the "
                            "tokenizer with transformers' save_pretrained to create tokenizer.json",
                            m->name, what);
}

static int64_t id_of(const struct model *m, uint64_t id) {
    return id < m->n ? (int64_t)id : -1;
}

enum ax_status ax_sentencepiece_parse(struct ax_tokenizer **out, const char *name,
                                      const void *bytes, size_t len) {
    const unsigned char *from = bytes;
    struct model m = {.name = name,
                      .kind = 1,
                      .bos = 1,
                      .eos = 2,
                      .pad = UINT64_MAX,
                      .prefix = true,
                      .squeeze = true,
                      .escape = true};
    enum ax_status st;
    AX_TRY_GOTO(read_model(&m, (struct message){from, from + len}), st, done);
    AX_TRY_GOTO(check(&m), st, done);
    const struct ax_gguf_vocab v = {.name = name,
                                    .model = "llama",
                                    .n_tokens = m.n,
                                    .tokens = m.tokens,
                                    .types = m.types,
                                    .scores = m.scores,
                                    .bos = id_of(&m, m.bos),
                                    .eos = id_of(&m, m.eos),
                                    .unk = id_of(&m, m.unk),
                                    .pad = id_of(&m, m.pad),
                                    .add_bos = -1,
                                    .add_eos = -1,
                                    .add_space_prefix = m.prefix,
                                    .late_user_tokens = true};
    st = ax_tokenizer_from_gguf(out, &v);
done:
    ax_free(m.tokens);
    ax_free(m.types);
    ax_free(m.scores);
    return st;
}

enum ax_status ax_sentencepiece_load(struct ax_tokenizer **out, const char *path) {
    char *bytes;
    size_t len;
    AX_TRY(ax_read_file(path, MAX_FILE, &bytes, &len));
    const enum ax_status st = ax_sentencepiece_parse(out, path, bytes, len);
    ax_free(bytes);
    return st;
}
