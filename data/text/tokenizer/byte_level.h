/* GPT-2's byte alphabet: each byte as a printable character (' ' is Ġ), so that a vocabulary of
 * byte strings can be written as text. */
#ifndef AX_DATA_TEXT_TOKENIZER_BYTE_LEVEL_H
#define AX_DATA_TEXT_TOKENIZER_BYTE_LEVEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The character of a byte, in UTF-8 (1 or 2 bytes); returns its length. */
size_t ax_byte_to_char(unsigned char byte, char out[2]);
/* Token text → its bytes (out has room for len); false if a character is not in the alphabet. */
bool ax_bytes_from_chars(const char *s, size_t len, char *out, size_t *n);

#endif
