/* The slower implementations of CRC-32C, for the test that compares all. */
#ifndef AX_BASE_HASH_CRC32C_H
#define AX_BASE_HASH_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* By table, on any machine; same contract as ax_crc32c. */
uint32_t ax_crc32c_portable(uint32_t crc, const void *data, size_t n);
/* By the crc32 instruction, if the CPU has it. */
uint32_t ax_crc32c_instruction(uint32_t crc, const void *data, size_t n);

#endif
