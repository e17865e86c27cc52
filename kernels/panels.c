#include "kernels/panels.h"

#include <string.h>

#include "base/mem.h"
#include "kernels/queue.h"

bool ax_panels_fit(const struct ax_tensor *t) {
    return t->dtype == AX_BF16 && t->ndim == 2 && t->shape[0] % AX_PANEL_ROWS == 0 &&
           t->shape[1] % 2 == 0;
}

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
