/* Sources of the built-in chat templates (named_tables.c, named_gemma_tables.c,
 * named_more_tables.c), for named.c. */
#ifndef AX_DATA_TEXT_TEMPLATE_NAMED_H
#define AX_DATA_TEXT_TEMPLATE_NAMED_H

/* name, source: aya is one more name for cohere, gemma4_unified for gemma4 */
#define AX_TEMPLATES_NAMED(X)                                                                      \
    X(alpaca, alpaca)                                                                              \
    X(aya, cohere)                                                                                 \
    X(chatml, chatml)                                                                              \
    X(cohere, cohere)                                                                              \
    X(deepseek_v2, deepseek_v2)                                                                    \
    X(deepseek_v3, deepseek_v3)                                                                    \
    X(exaone, exaone)                                                                              \
    X(exaone4, exaone4)                                                                            \
    X(falcon_h1, falcon_h1)                                                                        \
    X(gemma, gemma)                                                                                \
    X(gemma3, gemma3)                                                                              \
    X(gemma3n, gemma3n)                                                                            \
    X(gemma4, gemma4)                                                                              \
    X(gemma4_unified, gemma4)                                                                      \
    X(jamba, jamba)                                                                                \
    X(llama3, llama3)                                                                              \
    X(llama3_2_vision, llama3_2_vision)                                                            \
    X(llama4, llama4)                                                                              \
    X(llava, llava)                                                                                \
    X(metharme, metharme)                                                                          \
    X(mistral_v1, mistral_v1)                                                                      \
    X(mistral_v2v3, mistral_v2v3)                                                                  \
    X(mistral_v3_tekken, mistral_v3_tekken)                                                        \
    X(mistral_v7_tekken, mistral_v7_tekken)                                                        \
    X(nemotron_h, nemotron_h)                                                                      \
    X(phi_3, phi_3)                                                                                \
    X(phi_35, phi_35)                                                                              \
    X(pixtral, pixtral)                                                                            \
    X(qwen2_vl, qwen2_vl)                                                                          \
    X(qwen3, qwen3)                                                                                \
    X(qwen3_5, qwen3_5)                                                                            \
    X(qwen_25, qwen_25)

#define AX_TEMPLATE_DECLARE(name, source) extern const char ax_template_##source[];
AX_TEMPLATES_NAMED(AX_TEMPLATE_DECLARE)
#undef AX_TEMPLATE_DECLARE

/* ---- shared by the sources ---- */

/* The text of content that may be a string or a list of parts. */
#define TEXT(of)                                                                                   \
    "(" of " if " of " is string else "                                                            \
    "(" of " | selectattr('type', 'equalto', 'text') | map(attribute='text') | join('')))"
#define M_TEXT     TEXT("m['content']")
#define FIRST_TEXT TEXT("messages[0]['content']")

#define MISTRAL_ROLES                                                                              \
    "'Only user and assistant roles are supported, with the exception of an initial optional "     \
    "system message!'"
#define MISTRAL_ALTERNATE                                                                          \
    "'After the optional system message, conversation roles must alternate "                       \
    "user/assistant/user/assistant/...'"

#endif
