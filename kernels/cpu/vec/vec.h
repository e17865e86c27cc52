/* The files of this folder are compiled once per instruction set: for x86, AX_ISA = avx2, avx512 or
 * avx512bf16, with that set's -m flags; for ARM, neon. AX_VEC(name) gives each copy its own symbol, and
 * table.c collects them into that set's op table. Nothing here runs before isa.c has selected the
 * table.
 *
 * The sets amx and amx_emulated consist of products on tiles (tiles.h): *_tiles.c and the files
 * around them that TILE_SRC in the Makefile names. table_tiles.c takes all other ops from
 * avx512bf16. */
#ifndef AX_KERNELS_CPU_VEC_VEC_H
#define AX_KERNELS_CPU_VEC_VEC_H

#define AX_VEC_PASTE2(a, b) a##_##b
#define AX_VEC_PASTE(a, b)  AX_VEC_PASTE2(a, b)
#define AX_VEC(name)        AX_VEC_PASTE(name, AX_ISA)

#endif
