#include "data/reward/pass_at_k.h"

/* C(n−c, k) / C(n, k) = Π (1 − k/i) over i = n−c+1 … n: no factorials, which would overflow. */
double ax_pass_at_k(int64_t n, int64_t c, int64_t k) {
    double all_wrong = 1;
    if (n - c < k)
        return 1;
    for (int64_t i = n - c + 1; i <= n; i++)
        all_wrong *= 1 - (double)k / (double)i;
    return 1 - all_wrong;
}
