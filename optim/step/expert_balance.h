/* How evenly the tokens of a step were spread over experts: what metrics and the report show. */
#ifndef AX_OPTIM_STEP_EXPERT_BALANCE_H
#define AX_OPTIM_STEP_EXPERT_BALANCE_H

#define AX_BALANCE_LAYERS 128 /* layers beyond these are left out */

/* Balance of the tokens that each expert got in a step, over all micro-batches and ranks, by
 * layer:
 *
 *   violation = largest load / mean load − 1     MaxVio (Wang et al. 2024): 0 = even
 *   entropy   = −Σ_e p_e·ln p_e / ln E, p_e = load of e / Σ loads: 1 = even, 0 = one expert */
struct ax_expert_balance {
    /* largest violation of all layers; mean entropy. NaN: no expert got a token */
    double violation, entropy;
    float layers[AX_BALANCE_LAYERS]; /* violation by layer; NaN: it has no experts */
};

#endif
