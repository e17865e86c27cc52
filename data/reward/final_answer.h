/* The final answer of a worked solution, as GSM8K marks it: "… so 3 + 4 = 7.\n#### 7". */
#ifndef AX_DATA_REWARD_FINAL_ANSWER_H
#define AX_DATA_REWARD_FINAL_ANSWER_H

#include <stdbool.h>
#include <stddef.h>

#define AX_FINAL_ANSWER_MAX 64

/* What stands behind the first "####" of text[n], up to the end of its line, in one spelling: of a
 * number without "$", "%", thousands commas, a "+", zeros that say nothing and a final dot
 * ("$1,250.50." → "1250.5"); of other text without the blanks around it. False when there is no
 * mark, nothing behind it, or more than fits `out`: no answer equals another then. */
bool ax_final_answer(const char *text, size_t n, char out[AX_FINAL_ANSWER_MAX]);

#endif
