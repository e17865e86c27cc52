/* A vocabulary extended by the config's tokens: rows for embedding and head, and vocab_size in the
 * saved config.json. */
#include "base/log.h"
#include "cmd/train/setup.h"

static enum ax_status check_adapter(const struct ax_train_setup *s, int64_t ids) {
    if (!s->adapter || (ax_adapter_saves(s->adapter, "model.embed_tokens.weight") &&
                        (s->arch.classifier || ax_adapter_saves(s->adapter, "lm_head.weight"))))
        return AX_OK;
    return ax_config_error(
        s->cfg, "adapter",
        "the tokenizer's ids reach %lld, but the model has %lld embeddings: rows "
        "are only added and trained with lora_modules_to_save: "
        "[embed_tokens, lm_head]",
        (long long)ids - 1, (long long)s->arch.vocab_size);
}

enum ax_status ax_train_vocabulary(struct ax_train_setup *s) {
    const int64_t ids = (int64_t)ax_tokenizer_size(s->data.tok.tokenizer);
    const int64_t rows = s->rounds_rows ? (ids + 31) / 32 * 32 : ids;
    if (rows <= s->arch.vocab_size || (s->adapter && ids <= s->arch.vocab_size))
        return AX_OK;
    AX_TRY(check_adapter(s, ids));
    ax_log_info("the tokenizer has %lld tokens and the model %lld embeddings: %lld rows are added, "
                "and saved with vocab_size %lld",
                (long long)ids, (long long)s->arch.vocab_size,
                (long long)(rows - s->arch.vocab_size), (long long)rows);
    s->arch.vocab_stored = s->arch.vocab_size;
    s->arch.new_rows_mean = s->means_rows;
    s->arch.vocab_size = rows;
    if (json_object_set_new(s->config_edits, "vocab_size", json_integer((json_int_t)rows)) != 0)
        return ax_error(AX_ERR_NOMEM, "out of memory for config.json");
    return AX_OK;
}
