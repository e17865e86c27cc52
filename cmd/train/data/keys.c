/* What the keys of data ask for. */
#include "cmd/train/data/data.h"

void ax_data_keys_read(struct ax_data_keys *k, const struct ax_config *cfg) {
    *k = (struct ax_data_keys){.real_batches = true, .accumulation = 1};
    AX_FILL(cfg, "", struct ax_data_keys, k);
}

bool ax_setup_pretrains(const struct ax_config *cfg) {
    return ax_config_holds(cfg, "pretraining_dataset");
}

bool ax_setup_is_streamed(const struct ax_config *cfg) {
    return ax_config_holds(cfg, "streaming || pretraining_dataset");
}

/* Packing uses windows of each document; without it a document is cut. With concatenation documents
 * are cut and joined; with both they are joined in full and split at row ends. */
enum ax_pretrain_mode ax_setup_pretrain_mode(const struct ax_data_keys *k) {
    if (k->packs[false])
        return k->joins_documents ? AX_PRETRAIN_WHOLE : AX_PRETRAIN_WINDOWS;
    return k->joins_documents ? AX_PRETRAIN_JOIN : AX_PRETRAIN_CUT;
}
