/* A model's config as keys of a GGUF file. */
#ifndef AX_MODEL_ARCH_GGUF_DESCRIBE_H
#define AX_MODEL_ARCH_GGUF_DESCRIBE_H

#include "ckpt/gguf/model.h"
#include "ckpt/gguf/outputs.h"
#include "ckpt/gguf/write.h"
#include "model/arch/arch.h"

struct ax_gguf_described {
    struct ax_gguf_model model; /* sizes and kind; ids are not set */
    int n_factors;              /* sets of divisors of the rotary frequencies */
    /* Llama 3's scaling, or the two of longrope */
    struct ax_gguf_factors factors[AX_GGUF_MAX_FACTORS];
};
/* `where` is for messages. AX_ERR_UNSUPPORTED if readers of the format would compute something
 * else. If they also differ on published files of the family, only a warning. */
enum ax_status ax_gguf_describe(struct ax_gguf_described *d, const struct ax_arch *arch,
                                const char *where);
/* Writes the sizes as keys: NAME.context_length and so on. */
enum ax_status ax_gguf_put_sizes(const struct ax_gguf_described *d, const struct ax_arch *arch,
                                 struct ax_gguf_keys *keys);

#endif
