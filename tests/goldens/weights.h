/* Weights by a rule: a weights.json in place of a model.safetensors.
 *
 *   {"seed": 1234, "sha256": "…", "tensors": [{"name": "…", "shape": [512, 64], "mean": 0.0,
 *    "std": 0.05, "round": "bf16"}, …]}
 *
 * Value i of a tensor is mean + std·√3·(2u − 1), where u in [0, 1) is number i of base/rng.h's
 * stream {seed, 0, ax_hash32(name)}: uniform, because a uniform number needs no function of a math
 * library, so that this program and rule.py make the same bytes. In double precision, rounded to
 * float32 and, with "round", from there to bfloat16 (half to even), which is stored as float32. */
#ifndef TESTS_GOLDENS_WEIGHTS_H
#define TESTS_GOLDENS_WEIGHTS_H

#include "base/status.h"

/* Writes the file `to` by the rule in the file `rule`: float32 tensors sorted by name, a header
 * without spaces that is padded to a multiple of 8. AX_ERR_DATA, and no file, if its SHA-256 is not
 * the rule's. */
enum ax_status golden_make_weights(const char *rule, const char *to);

#endif
