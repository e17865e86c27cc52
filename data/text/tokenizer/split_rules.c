/* The split rules named by tokenizer.ggml.pre. See split_rules.h. */
#include "data/text/tokenizer/split_rules.h"

#include <string.h>

#include "data/text/tokenizer/split_patterns.h"

/* clang-format off */
static const char deepseek_llm_word[] =
    "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ"
    "-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-"
    "ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";

static const char deepseek_v3[] =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?["
    "\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

const struct ax_split_rules ax_split_rules[] = {
    {.names = {"gpt-2", "mpt", "olmo", "phi-2"},
     .rules =
         {
             AX_PATTERN_GPT2,
         }},
    {.names = {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone"},
     .rules =
         {
             "\\p{N}",
             AX_PATTERN_GPT2,
         }},
    {.names = {"llama-bpe", "llama3", "llama-v3", "falcon3", "lfm2", "pixtral"},
     .rules =
         {
             AX_PATTERN_LLAMA3,
         },
     .whole_word = true,
     .add_bos = true},
    {.names = {"dbrx", "smaug-bpe"},
     .rules =
         {
             AX_PATTERN_LLAMA3,
         },
     .whole_word = true},
    {.names = {"qwen2", "deepseek-r1-qwen", "stablelm2", "megrez"},
     .rules =
         {
             AX_PATTERN_QWEN2,
         }},
    {.names = {"qwen35"},
     .rules =
         {
             AX_PATTERN_QWEN35,
         }},
    {.names = {"deepseek-llm"},
     .rules =
         {
             "[\r\n]",
             deepseek_llm_word,
             "\\s?[!-/:-~！-／：-～‘-‟　-。]+",
             "\\s+$",
             "[一-龥ࠀ-一가-퟿]+",
             "\\p{N}+",
         }},
    {.names = {"deepseek-coder"},
     .rules =
         {
             "[\\r\\n]",
             "\\s?\\p{L}+",
             "\\s?\\p{P}+",
             "[一-龥ࠀ-一가-퟿]+",
             "\\p{N}",
         }},
    {.names = {"deepseek-v3"},
     .rules =
         {
             "\\p{N}{1,3}",
             "[一-龥぀-ゟ゠-ヿ]+",
             deepseek_v3,
         }},
    {.names = {"falcon"},
     .rules =
         {
             "[\\p{P}\\$\\+<=>\\^~\\|`]+",
             AX_PATTERN_GPT2,
             "[0-9][0-9][0-9]",
         }},
    {.names = {"gpt-4o", "llama4"},
     .rules =
         {
             AX_PATTERN_GPT4O,
         }},
    {.names = {"tekken"},
     .rules =
         {
             AX_PATTERN_TEKKEN,
         },
     .whole_word = true,
     .add_bos = true},
};
/* clang-format on */
const size_t ax_split_rules_count = sizeof ax_split_rules / sizeof ax_split_rules[0];

const struct ax_split_rules *ax_split_rules_find(const char *pre) {
    for (size_t i = 0; i < ax_split_rules_count; i++)
        for (size_t k = 0; ax_split_rules[i].names[k] != NULL; k++)
            if (strcmp(pre, ax_split_rules[i].names[k]) == 0)
                return &ax_split_rules[i];
    return NULL;
}
