/* Bodies of any bytes as requests of `axtrain serve`: prompts and settings within their limits, or an
 * error, and nothing left behind. The first byte chooses the route. */
#include <math.h>
#include <string.h>

#include "cmd/serve/request.h"
#include "model/core/adapters.h"
#include "tests/fuzz/byte_tokenizer.h"

#define CONTEXT 512

static const char source[] =
    "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in "
    "m.tool_calls or [] %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": "
    "{{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/* What was accepted can be generated. */
static void check(const struct ax_serve_request *r) {
    AX_ASSERT(r->n_prompts >= 1 && r->n >= 1 && r->n_prompts * r->n <= AX_SERVE_PROMPTS);
    AX_ASSERT(ax_sampling_check(&r->sampling) == AX_OK && isfinite(r->temperature));
    AX_ASSERT(json_array_size(r->tools) <= AX_SERVE_TOOLS);
    AX_ASSERT(r->logprobs >= -1 && r->logprobs <= AX_LIKELIEST_MAX && r->max_tokens >= 0);
    AX_ASSERT(r->bias.min_new <= r->max_tokens && r->bias.n <= AX_SERVE_BIASES);
    for (int64_t i = 0; i < r->bias.n; i++)
        AX_ASSERT(r->bias.tokens[i] < 258 && fabsf(r->bias.values[i]) <= 100);
    for (int64_t i = 0; i < r->n_prompts; i++) {
        const struct ax_serve_prompt *p = &r->prompts[i];
        AX_ASSERT(p->n >= 1 && p->first >= 0 && p->first + p->n <= (int64_t)r->ids.n);
        AX_ASSERT(p->n + r->max_tokens <= CONTEXT);
    }
    for (size_t i = 0; i < r->ids.n; i++)
        AX_ASSERT(r->ids.ids[i] >= 0 && r->ids.ids[i] < 258);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct ax_arg_list stop = {0};
    static struct ax_text_side side;
    struct ax_serve_request r;
    if (!tokenizer) {
        make_tokenizer(source);
        side = (struct ax_text_side){.folder = (char[]){"fuzz"},
                                     .tokenizer = tokenizer,
                                     .template = template,
                                     .tokens = tokens,
                                     .stop = {1, {257}}};
    }
    static struct ax_serve_models models;
    const struct ax_serve_model m = {.name = "model",
                                     .given = "models/model",
                                     .adapter = AX_ADAPTER_NONE,
                                     .side = &side,
                                     .context = CONTEXT,
                                     .vocab_size = 258,
                                     .sampling = {.temperature = 1},
                                     .stop = &stop};
    if (models.n == 0)
        AX_ASSERT(ax_serve_models_init(&models) == AX_OK &&
                  ax_serve_models_add(&models, &m) == AX_OK && models.tools[0].format);
    if (size == 0)
        return 0;
    const struct ax_serve_body body = {
        .chat = data[0] & 1, .text = (const char *)data + 1, .len = size - 1};
    const enum ax_status st = ax_serve_request_read(&r, &models, &body);
    AX_ASSERT(st == AX_OK || st == AX_ERR_DATA || st == AX_ERR_UNSUPPORTED);
    if (st == AX_OK)
        check(&r);
    ax_serve_request_free(&r);
    return 0;
}
