/* The final answer of a worked solution, as GSM8K marks it: "… so 3 + 4 = 7.\n#### 7". */
#ifndef AX_DATA_REWARD_FINAL_ANSWER_H
#define AX_DATA_REWARD_FINAL_ANSWER_H

#include <stdbool.h>
#include <stddef.h>

#define AX_FINAL_ANSWER_MAX 64

/* The first number that follows a "####" in text[n] on its line, or if there is none, what follows the first
 * one up to the end of its line. A number loses its currency and unit, commas between groups of three digits,
 * "+", redundant zeros and a final dot ("$1,250.50." → "1250.5"); other text loses surrounding blanks.
 * Stricter than lm-evaluation-harness, which takes all commas out: "1,2" is text, not 12. False if there is no mark, no text after it, or more than fits
 * `out`: then no answer matches. */
bool ax_final_answer(const char *text, size_t n, char out[AX_FINAL_ANSWER_MAX]);

#endif
