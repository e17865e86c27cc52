/* Whether a processor's tiles compute what vec/tiles.h says: its products against those in plain C,
 * bit by bit. That decides whether AMX is used without being asked for (isa.c). */
#ifndef AX_KERNELS_CPU_TILE_CHECK_H
#define AX_KERNELS_CPU_TILE_CHECK_H

#include <stdbool.h>
#include <stdint.h>

/* c += a·b: 32 rows and columns, 16 units of two bf16 numbers (the lower half is the first). */
struct ax_tile_product {
    uint32_t a[32][16], b[16][32]; /* [row][unit], [unit][column] */
    float c[32][32];
};

/* vec/product_tiles.c: by the instructions; in plain C. Both need AVX-512 with BF16. */
void ax_cpu_tile_product_amx(struct ax_tile_product *p);
void ax_cpu_tile_product_amx_emulated(struct ax_tile_product *p);

/* True if two products give the same bits, or both NaN, for numbers around 1, denormal numbers,
 * numbers whose products are denormal or nearly so, and numbers that overflow. Takes less than a
 * millisecond. */
bool ax_tile_products_agree(void (*one)(struct ax_tile_product *p),
                            void (*other)(struct ax_tile_product *p));

#endif
