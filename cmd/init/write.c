/* The YAML, with a comment for each choice. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cmd/config/build.h"
#include "cmd/init/init.h"

/* ---- the data set ---- */

static enum ax_status put_key(struct ax_buf *out, const char *key, const char *text) {
    AX_TRY(ax_buf_puts(out, key));
    AX_TRY(ax_config_put_word(out, text));
    return ax_buf_puts(out, "\n");
}

static enum ax_status put_chat(struct ax_buf *out, const struct ax_init_data *d) {
    AX_TRY(ax_buf_puts(out, "    type: chat_template\n"));
    if (strcmp(d->is.messages, "messages") != 0)
        AX_TRY(put_key(out, "    field_messages: ", d->is.messages));
    if (strcmp(d->is.role, "role") == 0)
        return AX_OK;
    AX_TRY(ax_buf_puts(out, "    message_property_mappings:\n"));
    AX_TRY(put_key(out, "      role: ", d->is.role));
    return put_key(out, "      content: ", d->is.content);
}

/* True if a block scalar ("|") can represent this text exactly. It must end in one newline, and
 * no line may begin or end with characters that YAML strips or people cannot see. */
static bool is_block(const char *text) {
    const size_t n = strlen(text);
    if (n < 2 || text[n - 1] != '\n' || text[n - 2] == '\n' || *text == '\n')
        return false;
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        const bool begins = i == 0 || text[i - 1] == '\n', ends = text[i + 1] == '\n';
        if (c != '\n' && (c < ' ' || c > '~' || (c == ' ' && (begins || ends))))
            return false;
    }
    return true;
}

static enum ax_status put_block(struct ax_buf *out, const char *key, const char *indent,
                                const char *text) {
    AX_TRY(ax_buf_puts(out, key));
    while (*text) {
        const int n = (int)strcspn(text, "\n");
        AX_TRY(ax_buf_printf(out, "%s%.*s\n", n > 0 ? indent : "", n, text));
        text += n + 1;
    }
    return AX_OK;
}

static enum ax_status put_pair(struct ax_buf *out, const struct ax_init_data *d) {
    AX_TRY(ax_buf_puts(out, "    type:\n"));
    AX_TRY(put_key(out, "      field_instruction: ", d->is.prompt));
    AX_TRY(put_key(out, "      field_output: ", d->is.answer));
    AX_TRY(ax_buf_puts(out, "      # the prompt as the model's chat template writes it, for "
                            "records without an input:\n"));
    if (is_block(d->prompt_format))
        return put_block(out, "      no_input_format: |\n", "        ", d->prompt_format);
    return put_key(out, "      no_input_format: ", d->prompt_format);
}

enum ax_status ax_init_put_entry(struct ax_buf *out, const struct ax_init_data *d) {
    AX_TRY(ax_buf_puts(out, "datasets:\n  - path: "));
    AX_TRY(ax_config_put_word(out, d->path));
    AX_TRY(ax_buf_puts(out, "\n"));
    switch (d->is.kind) {
    case AX_RECORD_CHAT:
        return put_chat(out, d);
    case AX_RECORD_PAIR:
        return put_pair(out, d);
    case AX_RECORD_ALPACA:
        return ax_buf_puts(out, "    type: alpaca\n");
    case AX_RECORD_TEXT:
        if (d->sample_by)
            AX_TRY(ax_buf_printf(out, "    sample_by: %s\n", d->sample_by));
        AX_TRY(ax_buf_puts(out, "    type: completion\n"));
        return put_key(out, "    field: ", d->is.text);
    default: /* columns that need no type */
        return AX_OK;
    }
}

/* ---- the parts ---- */

static enum ax_status put_head(struct ax_buf *out, const struct ax_init *i) {
    char parameters[32];
    AX_TRY(ax_buf_printf(out,
                         "# %s, written by `axtrain init`. A key explained: `axtrain "
                         "config help KEY`.\n"
                         "# The model has %s parameters; the data %lld records: %s.\n\n",
                         i->data.task->title,
                         ax_format_count(parameters, sizeof parameters, (double)i->parameters),
                         (long long)i->data.rows, i->data.task->what));
    AX_TRY(put_key(out, "base_model: ", i->model));
    AX_TRY(ax_buf_puts(out, i->data.task->keys));
    if (i->data.template && i->data.chat)
        AX_TRY(
            ax_buf_printf(out, "chat_template: %s # the model%s\n", i->data.template,
                          i->data.has_none ? " has none" : "'s own leaves out tools of the data"));
    if (i->data.lost && !i->data.replaced)
        AX_TRY(ax_buf_puts(out,
                           "# The chat template leaves out tools of the data: set chat_template or "
                           "chat_template_jinja to\n# one that writes them.\n"));
    AX_TRY(ax_init_put_entry(out, &i->data));
    if (i->eval_rows > 0)
        return ax_buf_printf(out, "val_set_size: %lld # records held out for evaluation\n",
                             (long long)i->eval_rows);
    return ax_buf_puts(out, "val_set_size: 0 # too few records to hold any out\n");
}

static enum ax_status put_rows(struct ax_buf *out, const struct ax_init *i) {
    const struct ax_init_shape *s = &i->shape;
    AX_TRY(ax_buf_printf(
        out, "\n# Lengths in tokens: median %lld, 99th percentile %lld, longest %lld.\n",
        (long long)s->median, (long long)s->p99, (long long)s->longest));
    if (s->too_long > 0)
        AX_TRY(ax_buf_printf(out, "# %lld of %lld are longer than sequence_len and %s.\n",
                             (long long)s->too_long, (long long)s->rows,
                             s->cut || *i->data.task->keys ? "truncated" : "skipped"));
    AX_TRY(ax_buf_printf(out, "sequence_len: %lld\n%s", (long long)s->sequence_len,
                         s->cut ? "excess_length_strategy: truncate\n" : ""));
    return ax_buf_printf(out, "sample_packing: %s\n",
                         s->packing ? "true # several examples share a sequence"
                                    : "false # each example is its own sequence");
}

static enum ax_status put_why(struct ax_buf *out, const struct ax_init_fit *f) {
    static const char *const titles[AX_INIT_METHODS] = {"Full fine-tuning", "LoRA", "QLoRA"};
    char need[32], is[32];
    AX_ASSERT(f->method < AX_INIT_METHODS);
    if (f->available == 0)
        return ax_buf_printf(out, "\n# Free memory is unknown: %s.\n", titles[f->method]);
    AX_TRY(ax_buf_printf(out, "\n# %s are free.",
                         ax_format_bytes(is, sizeof is, (double)f->available)));
    for (int m = 0; m < (int)f->method; m++)
        AX_TRY(ax_buf_printf(out, " %s would need %s.", titles[m],
                             ax_format_bytes(need, sizeof need, (double)f->need[m])));
    return ax_buf_printf(out, " %s fits: %s.\n", titles[f->method],
                         ax_format_bytes(need, sizeof need, (double)f->chosen));
}

static enum ax_status put_method(struct ax_buf *out, const struct ax_init *i) {
    const struct ax_init_fit *f = &i->fit;
    AX_TRY(put_why(out, f));
    if (f->method != AX_INIT_FULL)
        AX_TRY(ax_buf_printf(out,
                             "adapter: %s\n%slora_r: %d\nlora_alpha: %d\n"
                             "lora_target_linear: true\n",
                             ax_init_method_names[f->method],
                             f->method == AX_INIT_QLORA ? "load_in_4bit: true\n" : "",
                             AX_INIT_LORA_R, 2 * AX_INIT_LORA_R));
    AX_TRY(ax_buf_printf(out, "micro_batch_size: %lld\ngradient_accumulation_steps: %lld\n",
                         (long long)f->micro, (long long)f->accumulate));
    return ax_buf_printf(out,
                         "gradient_checkpointing: auto # as little recompute as memory allows when "
                         "training starts; now %s\nbf16: auto\n",
                         ax_recompute_name(f->recompute));
}

static enum ax_status put_course(struct ax_buf *out, const struct ax_init *i) {
    const int64_t per_step = i->fit.micro * i->fit.accumulate;
    const int64_t steps = i->rows_per_epoch / per_step > 1 ? i->rows_per_epoch / per_step : 1;
    AX_TRY(ax_buf_printf(out,
                         "\nnum_epochs: %lld # about %lld steps each\noptimizer: adamw_torch\n"
                         "learning_rate: %g\nlr_scheduler: cosine\nwarmup_ratio: 0.03\n",
                         (long long)i->epochs, (long long)steps, i->learning_rate));
    if (i->eval_rows > 0)
        AX_TRY(ax_buf_printf(out, "evals_per_epoch: %d\n", steps >= 40 ? 4 : 1));
    AX_TRY(ax_buf_puts(out, "saves_per_epoch: 1\nsave_total_limit: 2\n"));
    AX_TRY(put_key(out, "\noutput_dir: ", i->output_dir));
    return ax_buf_puts(out,
                       "resume_from_checkpoint: auto # the same command resumes after a stop\n");
}

enum ax_status ax_init_put(struct ax_buf *out, const struct ax_init *i) {
    AX_TRY(put_head(out, i));
    AX_TRY(put_rows(out, i));
    AX_TRY(put_method(out, i));
    return put_course(out, i);
}
