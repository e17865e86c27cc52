/* What an environment answers: any bytes that are a JSON object are an answer with a finite reward, or say why they are
 * none. The first byte chooses the question. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "data/tools/environment.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const enum ax_ask asks[] = {AX_ASK_RESET, AX_ASK_STEP, AX_ASK_CLOSE};
    struct ax_tool_result r = {0};
    char why[AX_TOOL_ERROR] = "";
    if (size == 0)
        return 0;
    const enum ax_ask ask = asks[data[0] % 3];
    json_t *answer = json_loadb((const char *)data + 1, size - 1, JSON_ALLOW_NUL, NULL);
    if (json_is_object(answer)) {
        const bool is = ax_environment_read(ask, answer, &r, why);
        AX_ASSERT(memchr(why, '\0', sizeof why) && is == !why[0]);
        AX_ASSERT(!is || (isfinite(r.reward) && (r.rewarded || r.reward == 0)));
        AX_ASSERT(!r.done || ask == AX_ASK_STEP);
        AX_ASSERT(!r.lost && !r.text);
    }
    json_decref(answer);
    return 0;
}
