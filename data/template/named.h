/* Sources of the built-in chat templates (named_tables.c), for named.c. */
#ifndef AX_DATA_TEMPLATE_NAMED_H
#define AX_DATA_TEMPLATE_NAMED_H

extern const char ax_template_alpaca[], ax_template_chatml[], ax_template_deepseek_v2[],
    ax_template_deepseek_v3[], ax_template_gemma[], ax_template_llama3[], ax_template_mistral_v1[],
    ax_template_mistral_v2v3[], ax_template_mistral_v3_tekken[], ax_template_mistral_v7_tekken[],
    ax_template_phi_3[], ax_template_phi_35[], ax_template_qwen3[], ax_template_qwen_25[];

#endif
