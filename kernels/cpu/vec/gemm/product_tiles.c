/* One product that uses all eight tiles, as the micro-kernel does: two of a, two of b, 2 × 2 of sums.
 * For the check of a processor's tiles (kernels/cpu/tile_check.h). */
#include "kernels/cpu/tile_check.h"
#include "kernels/cpu/vec/tiles.h"

void AX_VEC(ax_cpu_tile_product)(struct ax_tile_product *p) {
    const int64_t wide = sizeof p->b[0], half = AX_TILE_UNITS;
    ax_tiles_begin();
    AX_TILE_LOAD(0, p->c[0], wide);
    AX_TILE_LOAD(1, p->c[0] + half, wide);
    AX_TILE_LOAD(2, p->c[half], wide);
    AX_TILE_LOAD(3, p->c[half] + half, wide);
    AX_TILE_LOAD(4, p->a[0], sizeof p->a[0]);
    AX_TILE_LOAD(5, p->a[half], sizeof p->a[0]);
    AX_TILE_LOAD(6, p->b[0], wide);
    AX_TILE_LOAD(7, p->b[0] + half, wide);
    AX_TILE_DOT(0, 4, 6);
    AX_TILE_DOT(1, 4, 7);
    AX_TILE_DOT(2, 5, 6);
    AX_TILE_DOT(3, 5, 7);
    AX_TILE_STORE(0, p->c[0], wide);
    AX_TILE_STORE(1, p->c[0] + half, wide);
    AX_TILE_STORE(2, p->c[half], wide);
    AX_TILE_STORE(3, p->c[half] + half, wide);
    ax_tiles_end();
}
