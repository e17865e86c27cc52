/* Encoding by search; the fast kernels guess the code and check only one limit. */
#include "kernels/quant/dynamic_map.h"

uint8_t ax_dynamic_encode(const struct ax_dynamic_map *map, float x) {
    int low = 0, high = 255; /* x < above[high], and x ≥ above[low − 1] */
    while (low < high) {
        const int middle = (low + high) / 2;
        if (x < map->above[middle])
            high = middle;
        else
            low = middle + 1;
    }
    return (uint8_t)low;
}
