/* Rotary position embedding: the inverse frequencies of every variant, and the cos/sin tables.
 *
 * Formulas as in transformers' modeling_rope_utils: default (Su et al. 2021), linear, dynamic
 * (NTK), llama3 (Llama 3.1), yarn (Peng et al. 2023), longrope (Ding et al. 2024), proportional (Gemma 4: the
 * frequencies of a full rotation, of which only the first pairs turn). */
#ifndef AX_MODEL_ARCH_ROPE_H
#define AX_MODEL_ARCH_ROPE_H

#include "base/text/json.h"
#include "kernels/queue.h"

enum ax_rope_kind {
    AX_ROPE_DEFAULT,
    AX_ROPE_LINEAR,
    AX_ROPE_DYNAMIC,
    AX_ROPE_LLAMA3,
    AX_ROPE_YARN,
    AX_ROPE_LONGROPE,
    AX_ROPE_PROPORTIONAL,
    AX_ROPE_STILL /* no rotation, for queries that only grow; not a type of config.json */
};

#define AX_ROPE_MAX_FACTORS 128

struct ax_rope_config {
    enum ax_rope_kind kind;
    int64_t dim;      /* rotated elements per head, even */
    int64_t turning;  /* proportional: of these, the pairs that turn; the others have frequency 0 */
    bool interleaved; /* neighbors are paired instead of halves */
    int64_t max_positions;
    double theta, factor;
    double low_freq_factor, high_freq_factor; /* llama3 */
    int64_t original_max_positions;           /* llama3, yarn, longrope */
    double beta_fast, beta_slow;              /* yarn */
    double mscale;                            /* yarn; 0 = absent */
    double mscale_all_dim;                    /* types but default; 0 = absent */
    double attention_factor;                  /* yarn; 0 = derive */
    bool truncate;                            /* yarn: round the correction range to integers */
    /* what is rotated at position p becomes 1 + growth·ln(1 + ⌊(p + ahead) / period⌋) times as large; period 0:
     * it does not */
    double growth;
    int64_t period, ahead;
    float short_factor[AX_ROPE_MAX_FACTORS], long_factor[AX_ROPE_MAX_FACTORS]; /* longrope */
};

/* What holds where config.json does not say: a base (0: 10,000), and the part of each head that is rotated
 * (0: all of it, and config.json may not ask for less unless the rope is proportional). `parameters`: the
 * rope_parameters, as JSON, of a config.json that has none, as in transformers: those of the published model; NULL: no
 * scaling. */
struct ax_rope_usual {
    double theta, part;
    const char *parameters;
};
/* The object of a config.json that says what its rope is: rope_scaling unless it is missing or empty, else
 * rope_parameters, as in transformers 5. A base, or a part, that only the other object has would be lost, and what is
 * of each kind of layer, too: these are errors. */
enum ax_status ax_rope_object(struct ax_json config, struct ax_json *out);
/* Reads rope_parameters, or rope_theta + rope_scaling, of a config.json. */
enum ax_status ax_rope_parse(struct ax_rope_config *r, struct ax_json config,
                             struct ax_rope_usual usual, int64_t head_dim, int64_t max_positions);
/* The same from one object, and from config.json what it lacks. */
enum ax_status ax_rope_parse_object(struct ax_rope_config *r, struct ax_json config,
                                    struct ax_json rope, struct ax_rope_usual usual,
                                    int64_t head_dim, int64_t max_positions);
/* The sequence length whose frequencies a pass over `positions` positions uses: passes with equal
 * lengths have the same tables. */
int64_t ax_rope_length(const struct ax_rope_config *r, int64_t positions);
/* inv_freq [dim/2] for sequences of seq_len tokens (dynamic and longrope depend on it), and the
 * factor applied to cos and sin. Single precision throughout, like the models' training. */
void ax_rope_frequencies(const struct ax_rope_config *r, int64_t seq_len, float *inv_freq,
                         double *attention_scaling);
/* Fills cos, sin [positions][dim/2] (F32 or F64) from frequencies for seq_len. */
enum ax_status ax_rope_tables(const struct ax_rope_config *r, int64_t seq_len, struct ax_queue *q,
                              const struct ax_tensor *cos_table, const struct ax_tensor *sin_table);

#endif
