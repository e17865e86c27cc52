/* Older results of a benchmark: any bytes give a list or an error with the file's name; what was
 * read can be written, read back the same, and compared with itself without a difference. */
#include <math.h>
#include <string.h>

#include "cmd/bench/result.h"

static void check_list(const struct ax_bench_list *l) {
    struct ax_bench_list again;
    struct ax_buf table = {0};
    json_t *json;
    char *text;
    size_t len;
    int worse;
    AX_ASSERT(ax_bench_list_json(l, &json) == AX_OK);
    AX_ASSERT(ax_json_dump(json, &text, &len) == AX_OK);
    AX_ASSERT(ax_bench_list_parse(&again, "again", text, len) == AX_OK);
    AX_ASSERT(again.n == l->n && again.threads == l->threads);
    for (size_t i = 0; i < l->n; i++) {
        const struct ax_bench_figure *f = &l->list[i].figure;
        AX_ASSERT(strcmp(again.list[i].name, l->list[i].name) == 0);
        AX_ASSERT(isfinite(f->value) && f->value >= 0);
        AX_ASSERT(ax_bench_judge(f, &again.list[i].figure, 1e-9) == AX_BENCH_SAME);
    }
    AX_ASSERT(ax_bench_compare(&table, "f.json", l, &again, 1e-9, &worse) == AX_OK);
    AX_ASSERT(worse == 0);
    ax_buf_free(&table);
    ax_free(text);
    json_decref(json);
    ax_bench_list_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint64_t live = ax_mem_live_blocks();
    struct ax_bench_list l;
    if (ax_bench_list_parse(&l, "f.json", (const char *)data, size) == AX_OK) {
        check_list(&l);
        ax_bench_list_free(&l);
    } else {
        AX_ASSERT(strncmp(ax_error_text(), "f.json:", 7) == 0);
        AX_ASSERT(l.list == NULL && l.machine == NULL);
    }
    AX_ASSERT(ax_mem_live_blocks() == live);
    return 0;
}
