/* Files of an earlier run, as resuming reads them: what is kept is a prefix, and keeping it again
 * keeps all of it. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/status.h"
#include "optim/metrics/metrics_text.h"
#include "optim/metrics/tfevents.h"

typedef uint64_t whole_fn(const unsigned char *data, size_t n, int64_t resume_step);

static void check(whole_fn *whole, const unsigned char *data, size_t n, int64_t step) {
    const uint64_t kept = whole(data, n, step);
    AX_ASSERT(kept <= n);
    AX_ASSERT(whole(data, (size_t)kept, step) == kept);
    AX_ASSERT(whole(data, n, step > 0 ? step - 1 : 0) <= kept);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static unsigned char csv[1 << 16];
    const size_t header = strlen(AX_METRICS_CSV_FIXED "\n");
    if (n == 0)
        return 0;
    const int64_t step = data[0];
    check(ax_metrics_whole_jsonl, data + 1, n - 1, step);
    check(ax_metrics_whole_csv, data + 1, n - 1, step);
    check(ax_tfevents_whole, data + 1, n - 1, step);
    if (header + n <= sizeof csv) {
        memcpy(csv, AX_METRICS_CSV_FIXED "\n", header);
        memcpy(csv + header, data + 1, n - 1);
        check(ax_metrics_whole_csv, csv, header + n - 1, step);
    }
    return 0;
}
