/* Chat templates: any bytes compile or give an error with a place; what compiles renders or refuses
 * within its bounds; nothing stays allocated. Behind the first NUL the input goes on with variables
 * as JSON; without one, a small chat is used. */
#include <string.h>

#include "base/text/json.h"
#include "base/mem.h"
#include "data/text/template/template.h"

static const char chat[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \" S\\n\"}, {\"role\": \"user\", "
    "\"content\": "
    "[{\"type\": \"text\", \"text\": \"é😀\"}]}, {\"role\": \"assistant\", \"content\": "
    "\"<think>x</think>"
    "y\", \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"a\": [1, 2.5, "
    "null]}}}]}], "
    "\"tools\": [{\"type\": \"function\"}], \"xs\": [3, 1, 2], \"d\": {\"b\": 1, \"A\": \"x\"}, "
    "\"bos_token\": \"<s>\"}";

static const struct ax_template_options bounds = {.fixed_now = true,
                                                  .now = 1772719629,
                                                  .max_steps = 300000,
                                                  .max_memory = (size_t)32 << 20,
                                                  .max_output = (size_t)1 << 20};

static void check_output(const struct ax_template_output *out) {
    AX_ASSERT(out->len <= bounds.max_output && out->text[out->len] == '\0');
    for (size_t i = 0; i < out->n_spans; i++)
        AX_ASSERT(out->spans[i].start <= out->spans[i].end);
}

static void render(const struct ax_template *t, const char *json, size_t len) {
    struct ax_json_doc doc;
    struct ax_template_output out;
    if (ax_json_parse(&doc, "vars", json, len) != AX_OK)
        return;
    if (json_is_object(doc.root)) {
        if (ax_template_render(t, doc.root, &bounds, &out) == AX_OK) {
            check_output(&out);
            ax_template_output_free(&out);
        } else {
            AX_ASSERT(strncmp(ax_error_text(), "f:", 2) == 0);
        }
    }
    if (ax_template_render_text(t, json, len, &bounds, &out) == AX_OK) {
        check_output(&out);
        ax_template_output_free(&out);
    }
    ax_json_free(&doc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint64_t live = ax_mem_live_blocks();
    const char *source = (const char *)data;
    const char *nul = size > 0 ? memchr(source, '\0', size) : NULL;
    const size_t len = nul != NULL ? (size_t)(nul - source) : size;
    struct ax_template *t;
    if (ax_template_compile(&t, "f", source, len) == AX_OK) {
        if (nul != NULL)
            render(t, nul + 1, size - len - 1);
        else
            render(t, chat, sizeof chat - 1);
        ax_template_free(t);
    } else {
        AX_ASSERT(strncmp(ax_error_text(), "f:", 2) == 0);
    }
    AX_ASSERT(ax_mem_live_blocks() == live);
    return 0;
}
