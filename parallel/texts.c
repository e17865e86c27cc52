#include "parallel/texts.h"

#include <math.h>

/* ---- text as numbers ---- */

#define PACKED 6 /* bytes in a number */

int64_t ax_text_numbers(size_t n) {
    return (int64_t)((n + PACKED - 1) / PACKED);
}

void ax_text_pack(const char *text, size_t n, double *numbers) {
    for (size_t i = 0; i < n; i++)
        numbers[i / PACKED] += ldexp((unsigned char)text[i], 8 * (int)(i % PACKED));
}

void ax_text_unpack(char *text, size_t n, const double *numbers) {
    for (size_t i = 0; i < n; i++)
        text[i] = (char)((uint64_t)numbers[i / PACKED] >> 8 * (i % PACKED));
}

/* ---- the texts of all ranks ---- */

#define PIECE ((size_t)1 << 20) /* bytes that travel together */

/* A piece of one rank's text to all; `text` is NULL on the others. */
static enum ax_status move_piece(struct ax_runtime *rt, const char *text, size_t n,
                                 struct ax_buf *out) {
    double *numbers;
    char *piece;
    AX_TRY(ax_alloc(&numbers, (size_t)ax_text_numbers(n), sizeof *numbers));
    enum ax_status st = ax_alloc(&piece, n, 1);
    if (text)
        ax_text_pack(text, n, numbers);
    if (st == AX_OK)
        st = ax_runtime_combine(rt, AX_ROLE_WORLD, AX_SUM, numbers, ax_text_numbers(n));
    if (st == AX_OK) {
        ax_text_unpack(piece, n, numbers);
        st = ax_buf_append(out, piece, n);
    }
    ax_free(piece);
    ax_free(numbers);
    return st;
}

static enum ax_status move_text(struct ax_runtime *rt, const char *text, size_t n,
                                struct ax_buf *out) {
    for (size_t at = 0; at < n; at += PIECE)
        AX_TRY(move_piece(rt, text ? text + at : NULL, n - at < PIECE ? n - at : PIECE, out));
    return AX_OK;
}

enum ax_status ax_texts_gather(struct ax_runtime *rt, const char *text, size_t n,
                               struct ax_buf *all) {
    const int world = rt->mesh.world, rank = rt->mesh.rank;
    double *sizes;
    if (world == 1)
        return ax_buf_append(all, text, n);
    AX_TRY(ax_alloc(&sizes, (size_t)world, sizeof *sizes));
    sizes[rank] = (double)n;
    enum ax_status st = ax_runtime_combine(rt, AX_ROLE_WORLD, AX_SUM, sizes, world);
    for (int i = 0; i < world && st == AX_OK; i++)
        st = move_text(rt, i == rank ? text : NULL, (size_t)sizes[i], &all[i]);
    ax_free(sizes);
    return st;
}
