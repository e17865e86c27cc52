#include "kernels/panels.h"

#include <string.h>

#include "base/mem.h"
#include "kernels/queue.h"

/* units: the number of pairs in a row. `to` may be aligned for bf16 only. */
static void make_panel(char *restrict to, const uint32_t *restrict rows, int64_t units) {
    for (int64_t u = 0; u < units; u++)
        for (int64_t r = 0; r < AX_PANEL_ROWS; r++, to += sizeof *rows)
            memcpy(to, &rows[r * units + u], sizeof *rows);
}

/* Rows at the tensor's address become panels. */
static enum ax_status make_panels(struct ax_queue *q, const void *args, void *const *at) {
    struct ax_tensor t;
    memcpy(&t, args, sizeof t);
    t.data = at[0];
    (void)q;
    const int64_t units = t.shape[1] / 2;
    const size_t n = (size_t)(units * AX_PANEL_ROWS);
    uint32_t *rows;
    AX_TRY(ax_alloc(&rows, n, sizeof *rows));
    for (int64_t i = 0; i < t.shape[0]; i += AX_PANEL_ROWS) {
        char *panel = ax_tensor_row(&t, i);
        memcpy(rows, panel, n * sizeof *rows);
        make_panel(panel, rows, units);
    }
    ax_free(rows);
    return AX_OK;
}

bool ax_panels_wanted(const struct ax_queue *q, const struct ax_tensor *t) {
    struct ax_gemm g = {.a = *t, .b = *t, .c = *t, .trans_b = true};
    g.b.panels = true;
    return ax_panels_fit(t) && (!q->model->supports || q->model->supports(q, AX_OP_gemm, &g));
}

enum ax_status ax_panels_make(struct ax_queue *q, struct ax_tensor *t) {
    AX_ASSERT(ax_panels_fit(t) && ax_tensor_is_dense(t) && !t->panels);
    const struct ax_view view = ax_view_of(t, AX_VIEW_UPDATE);
    AX_TRY(ax_queue_call(q, make_panels, t, sizeof *t, &view, 1));
    t->panels = true;
    return AX_OK;
}

/* ---- codes ---- */

bool ax_code_panels_wanted(const struct ax_queue *q, const struct ax_code_panels *p) {
    struct ax_packed_gemm g = {
        .a = ax_tensor_2d(AX_BF16, p->codes.data, 1, p->cols),
        .codes = p->codes,
        .scale = p->scale,
        .c = ax_tensor_2d(AX_BF16, p->codes.data, 1, p->rows),
        .block = p->block,
        .kind = p->kind,
    };
    g.codes.panels = true;
    return ax_code_panels_fit(p->kind, p->rows, p->cols, p->block) &&
           (!q->model->supports || q->model->supports(q, AX_OP_packed_gemm, &g));
}

/* 16 rows of two codes per byte, the even one in the high half. */
static void make_nibbles(unsigned char *to, const unsigned char *from, int64_t cols) {
    memset(to, 0, (size_t)(AX_PANEL_ROWS * cols / 2));
    for (int64_t r = 0; r < AX_PANEL_ROWS; r++)
        for (int64_t c = 0; c < cols; c++) {
            const unsigned byte = from[(r * cols + c) / 2];
            const unsigned code = c % 2 == 0 ? byte >> 4 : byte & 15U;
            const int64_t at = ax_panels_nibble_at(cols, r, c);
            to[at / 2] = (unsigned char)(to[at / 2] | code << (at % 2 * 4));
        }
}

static void make_bytes(unsigned char *to, const unsigned char *from, int64_t cols) {
    for (int64_t c = 0; c < cols; c += 2)
        for (int64_t r = 0; r < AX_PANEL_ROWS; r++, to += 2)
            memcpy(to, from + r * cols + c, 2);
}

static void make_scales(float *to, const float *from, int64_t blocks) {
    for (int64_t b = 0; b < blocks; b++)
        for (int64_t r = 0; r < AX_PANEL_ROWS; r++)
            *to++ = from[r * blocks + b];
}

static enum ax_status make_code_panels(struct ax_queue *q, const void *args, void *const *at) {
    struct ax_code_panels p;
    memcpy(&p, args, sizeof p);
    (void)q;
    const int64_t blocks = p.cols / p.block, per_byte = ax_quant_info(p.kind)->values ? 2 : 1;
    const size_t codes = (size_t)(AX_PANEL_ROWS * p.cols / per_byte);
    const size_t scales = (size_t)(AX_PANEL_ROWS * blocks) * sizeof(float);
    unsigned char *room, *to = at[0], *scale = at[1];
    AX_TRY(ax_alloc(&room, codes > scales ? codes : scales, 1));
    for (int64_t i = 0; i < p.rows; i += AX_PANEL_ROWS, to += codes, scale += scales) {
        memcpy(room, to, codes);
        (per_byte == 2 ? make_nibbles : make_bytes)(to, room, p.cols);
        memcpy(room, scale, scales);
        make_scales((float *)(void *)scale, (const float *)(void *)room, blocks);
    }
    ax_free(room);
    return AX_OK;
}

enum ax_status ax_code_panels_make(struct ax_queue *q, struct ax_code_panels *p) {
    AX_ASSERT(ax_code_panels_fit(p->kind, p->rows, p->cols, p->block) && !p->codes.panels);
    const struct ax_view views[] = {ax_view_of(&p->codes, AX_VIEW_UPDATE),
                                    ax_view_of(&p->scale, AX_VIEW_UPDATE)};
    AX_TRY(ax_queue_call(q, make_code_panels, p, sizeof *p, views, 2));
    p->codes.panels = true;
    return AX_OK;
}
