/* Results of lm-evaluation-harness: any JSON is refused with a reason, or has a table that is finite, and figures; nothing
 * stays allocated. */
#include <string.h>

#include "cmd/harness/report.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint64_t live = ax_mem_live_blocks();
    struct ax_json_doc doc;
    struct ax_buf out = {0};
    if (size > 4096 || ax_json_parse(&doc, "lm_eval", (const char *)data, size) != AX_OK)
        return 0;
    enum ax_status st = ax_harness_check(ax_json_root(&doc));
    if (st == AX_OK)
        st = ax_harness_table(doc.root, &out);
    struct ax_figures figures = {0};
    if (st == AX_OK)
        ax_harness_figures(doc.root, &figures);
    for (int i = 0; i < figures.n; i++)
        AX_ASSERT(figures.names[i][0] != '\0');
    if (st == AX_OK)
        AX_ASSERT(out.len > 0 && out.data[out.len - 1] == '\n');
    else
        AX_ASSERT(st == AX_ERR_DATA && strncmp(ax_error_text(), "lm_eval", 7) == 0);
    ax_buf_free(&out);
    ax_json_free(&doc);
    AX_ASSERT(ax_mem_live_blocks() == live);
    return 0;
}
