#include "ckpt/hf/checksums.h"

#include "base/mem.h"
#include "base/hash/hash.h"
#include "base/direct_io.h"

static enum ax_status add_piece(struct ax_checksums *s) {
    AX_TRY(ax_grow(&s->crc, s->n, &s->cap, sizeof *s->crc));
    s->crc[s->n++] = 0;
    return AX_OK;
}

enum ax_status ax_checksums_add(struct ax_checksums *s, const void *data, size_t n) {
    const unsigned char *p = data;
    while (s && n > 0) {
        const size_t in_piece = (size_t)(s->bytes % AX_SUM_PIECE);
        if (in_piece == 0)
            AX_TRY(add_piece(s));
        const size_t room = AX_SUM_PIECE - in_piece, take = n < room ? n : room;
        s->crc[s->n - 1] = ax_crc32c(s->crc[s->n - 1], p, take);
        s->bytes += take;
        p += take;
        n -= take;
    }
    return AX_OK;
}

static const char zeros[4096];

/* n ≤ AX_SUM_PIECE. */
static uint32_t crc_of_zeros(size_t n) {
    static _Atomic uint32_t whole; /* of a piece, once known */
    const bool is_whole = n == AX_SUM_PIECE;
    uint32_t crc = is_whole ? whole : 0;
    if (crc)
        return crc;
    for (size_t take; n > 0; n -= take) {
        take = n < sizeof zeros ? n : sizeof zeros;
        crc = ax_crc32c(crc, zeros, take);
    }
    if (is_whole)
        whole = crc;
    return crc;
}

enum ax_status ax_checksums_add_zeros(struct ax_checksums *s, size_t n) {
    while (s && n > 0) {
        const size_t in_piece = (size_t)(s->bytes % AX_SUM_PIECE);
        if (in_piece == 0 && n >= AX_SUM_PIECE) {
            AX_TRY(add_piece(s));
            s->crc[s->n - 1] = crc_of_zeros(AX_SUM_PIECE);
            s->bytes += AX_SUM_PIECE;
            n -= AX_SUM_PIECE;
        } else {
            const size_t take = n < sizeof zeros ? n : sizeof zeros;
            AX_TRY(ax_checksums_add(s, zeros, take));
            n -= take;
        }
    }
    return AX_OK;
}

static void sums_free(struct ax_checksums *s) {
    ax_free(s->crc);
    *s = (struct ax_checksums){0};
}

enum ax_status ax_sum_list_add(struct ax_sum_list *l, const char *name, struct ax_checksums **out) {
    *out = NULL;
    if (!l)
        return AX_OK;
    AX_TRY(ax_regrow(&l->files, l->n, l->n + 1, sizeof *l->files));
    AX_TRY(ax_strdup(&l->files[l->n].name, name));
    *out = &l->files[l->n++].sums;
    return AX_OK;
}

enum ax_status ax_sum_list_merge_last(struct ax_sum_list *l, size_t at) {
    struct ax_file_sums *last = &l->files[l->n - 1];
    struct ax_checksums *into = &l->files[at].sums, *other = &last->sums;
    if (into->bytes != other->bytes || into->n != other->n)
        return ax_error(AX_ERR_DATA, "%s: checksums of %llu and of %llu bytes are not of one file",
                        last->name, (unsigned long long)into->bytes,
                        (unsigned long long)other->bytes);
    for (size_t i = 0; i < into->n; i++) {
        const uint64_t left = into->bytes - i * AX_SUM_PIECE;
        into->crc[i] ^=
            other->crc[i] ^ crc_of_zeros(left < AX_SUM_PIECE ? (size_t)left : AX_SUM_PIECE);
    }
    ax_free(last->name);
    sums_free(other);
    l->n--;
    return AX_OK;
}

void ax_sum_list_free(struct ax_sum_list *l) {
    for (size_t i = 0; i < l->n; i++) {
        ax_free(l->files[i].name);
        sums_free(&l->files[i].sums);
    }
    ax_free(l->files);
    *l = (struct ax_sum_list){0};
}

static enum ax_status check(struct ax_file *f, const struct ax_checksums *want, int part, int parts,
                            void *buffer) {
    uint64_t size;
    AX_TRY(ax_file_size(f, &size));
    if (size != want->bytes)
        return ax_error(AX_ERR_DATA, "%s: has %llu bytes instead of %llu: it is corrupted", f->path,
                        (unsigned long long)size, (unsigned long long)want->bytes);
    for (size_t i = (size_t)part; i < want->n; i += (size_t)parts) {
        const uint64_t at = i * AX_SUM_PIECE;
        size_t n;
        AX_TRY(ax_file_pread_some(f, buffer, AX_SUM_PIECE, at, &n));
        if (ax_crc32c(0, buffer, n) != want->crc[i])
            return ax_error(AX_ERR_DATA,
                            "%s: corrupted between bytes %llu and %llu (checksum mismatch)",
                            f->path, (unsigned long long)at, (unsigned long long)(at + n));
    }
    return AX_OK;
}

enum ax_status ax_file_sums_check(const char *dir, const struct ax_file_sums *f, int part,
                                  int parts, void *buffer) {
    char *path;
    struct ax_file file;
    AX_TRY(ax_path_join(&path, dir, f->name));
    enum ax_status st = ax_file_open_direct(&file, path);
    if (st == AX_OK) {
        st = check(&file, &f->sums, part, parts, buffer);
        st = ax_file_end(&file, st);
    } else if (st == AX_ERR_IO && !ax_path_exists(path)) {
        st = ax_error(AX_ERR_DATA, "%s: missing; the checkpoint's manifest lists it", path);
    }
    ax_free(path);
    return st;
}
