/* A JSON schema, and bytes that choose a walk through its grammar: no state is without a next byte, what the walk writes
 * is JSON, and a mask has the tokens that a step takes. */
#include "base/text/json.h"
#include "tests/fuzz/grammar_walk.h"

static void check_text(const void *ctx, const char *text, size_t n) {
    (void)ctx;
    json_error_t error;
    json_t *v = json_loadb(text, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    AX_ASSERT(v || strstr(error.text, "NUL"));
    json_decref(v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct ax_json_first first;
    struct ax_grammar *g;
    open_vocabulary();
    if (ax_json_first((const char *)data, size, &first) != AX_OK || !first.v)
        return 0;
    const enum ax_status st = ax_grammar_compile(&g, first.v, vocabulary.alone);
    AX_ASSERT(st == AX_OK || st == AX_ERR_DATA || st == AX_ERR_NOMEM);
    json_decref(first.v);
    if (st != AX_OK)
        return 0;
    walk(g, data + first.used, size - first.used,
         &(struct walk_check){AX_GRAMMAR_STACKS, check_text, NULL});
    ax_grammar_free(g);
    return 0;
}
