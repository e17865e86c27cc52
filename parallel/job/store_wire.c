#include "parallel/job/store_wire.h"

#include <string.h>

long ax_store_frame_next(const void *data, size_t n, size_t limit, struct ax_store_frame *f) {
    const unsigned char *bytes = data;
    struct ax_store_reader r = {bytes, bytes + n, false};
    if (n < AX_STORE_HEADER)
        return 0;
    const size_t len = (size_t)ax_store_read_int(&r, 4);
    const uint64_t type = ax_store_read_int(&r, 1);
    if (len > limit || type < AX_STORE_CHALLENGE || type > AX_STORE_REPLY)
        return -1;
    if (n - AX_STORE_HEADER < len)
        return 0;
    *f = (struct ax_store_frame){(enum ax_store_type)type, bytes + AX_STORE_HEADER, len};
    return (long)(AX_STORE_HEADER + len);
}

const unsigned char *ax_store_read_bytes(struct ax_store_reader *r, size_t n) {
    if (r->bad || (size_t)(r->end - r->at) < n) {
        r->bad = true;
        return NULL;
    }
    r->at += n;
    return r->at - n;
}

uint64_t ax_store_read_int(struct ax_store_reader *r, int bytes) {
    const unsigned char *p = ax_store_read_bytes(r, (size_t)bytes);
    uint64_t value = 0;
    for (int i = bytes - 1; p && i >= 0; i--)
        value = value << 8 | p[i];
    return value;
}

const unsigned char *ax_store_read_blob(struct ax_store_reader *r, size_t *n) {
    *n = (size_t)ax_store_read_int(r, 4);
    const unsigned char *p = ax_store_read_bytes(r, *n);
    if (!p)
        *n = 0;
    return p;
}

void ax_store_read_text(struct ax_store_reader *r, char *out, size_t size) {
    size_t n;
    const unsigned char *p = ax_store_read_blob(r, &n);
    if (!p || n >= size || memchr(p, '\0', n)) {
        r->bad = true;
        n = 0;
    }
    if (n > 0)
        memcpy(out, p, n);
    out[n] = '\0';
}

bool ax_store_read_end(const struct ax_store_reader *r) {
    return !r->bad && r->at == r->end;
}

enum ax_status ax_store_put_int(struct ax_buf *b, uint64_t value, int bytes) {
    unsigned char out[8];
    for (int i = 0; i < bytes; i++)
        out[i] = (unsigned char)(value >> (8 * i));
    return ax_buf_append(b, out, (size_t)bytes);
}

enum ax_status ax_store_put_blob(struct ax_buf *b, const void *data, size_t n) {
    AX_TRY(ax_store_put_int(b, n, 4));
    return n > 0 ? ax_buf_append(b, data, n) : AX_OK;
}

enum ax_status ax_store_put_frame(struct ax_buf *out, enum ax_store_type type, const void *body,
                                  size_t n) {
    AX_TRY(ax_store_put_int(out, n, 4));
    AX_TRY(ax_store_put_int(out, type, 1));
    return n > 0 ? ax_buf_append(out, body, n) : AX_OK;
}

enum ax_status ax_store_put_member(struct ax_buf *b, const struct ax_store_member *m) {
    AX_TRY(ax_store_put_int(b, (uint64_t)m->rank, 4));
    AX_TRY(ax_store_put_int(b, (uint64_t)m->world, 4));
    AX_TRY(ax_store_put_int(b, m->binary, 8));
    AX_TRY(ax_store_put_int(b, m->config, 8));
    AX_TRY(ax_store_put_int(b, (uint64_t)m->pid, 4));
    return ax_store_put_blob(b, m->host, strlen(m->host));
}

bool ax_store_read_member(struct ax_store_reader *r, struct ax_store_member *m) {
    m->rank = (int)(ax_store_read_int(r, 4) & 0x7FFFFFFF);
    m->world = (int)(ax_store_read_int(r, 4) & 0x7FFFFFFF);
    m->binary = ax_store_read_int(r, 8);
    m->config = ax_store_read_int(r, 8);
    m->pid = (int)(ax_store_read_int(r, 4) & 0x7FFFFFFF);
    ax_store_read_text(r, m->host, sizeof m->host);
    return ax_store_read_end(r);
}

void ax_store_proof(const unsigned char key[AX_STORE_KEY_BYTES], const char *who,
                    const unsigned char nonce[AX_STORE_NONCE], const void *rest, size_t n,
                    unsigned char mac[AX_MAC_BYTES]) {
    unsigned char head[8 + AX_STORE_NONCE] = {0};
    for (int i = 0; i < 8 && who[i]; i++)
        head[i] = (unsigned char)who[i];
    memcpy(head + 8, nonce, AX_STORE_NONCE);
    ax_hmac(key, AX_STORE_KEY_BYTES, head, sizeof head, rest, n, mac);
}
