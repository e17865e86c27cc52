/* Tiles without AMX (tiles.h): registers in memory, one set per thread, and the product one fused
 * multiply-add after the other. The loops run over the columns, so that the compiler can use
 * vectors; what must be flushed to zero is rare and goes one by one. */
#include "kernels/cpu/vec/tiles.h"

#ifndef __AMX_BF16__

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/status.h"

#define ROWS AX_TILE_ROWS
#define COLS AX_TILE_UNITS

static _Thread_local struct {
    uint32_t tile[8][ROWS][COLS];
    bool exist;
} mine;

void AX_VEC(ax_tiles_begin)(void) {
    memset(mine.tile, 0, sizeof mine.tile);
    mine.exist = true;
}

void AX_VEC(ax_tiles_end)(void) {
    mine.exist = false;
}

bool AX_VEC(ax_tiles_exist)(void) {
    return mine.exist;
}

/* A tile; the instructions, too, end the process if there is none. */
static uint32_t (*tile_at(int t))[COLS] {
    AX_ASSERT(mine.exist && t >= 0 && t < 8);
    return mine.tile[t];
}

void AX_VEC(ax_tile_zero)(int t) {
    memset(tile_at(t), 0, sizeof mine.tile[t]);
}

void AX_VEC(ax_tile_load)(int t, const void *from, int64_t stride) {
    uint32_t(*tile)[COLS] = tile_at(t);
    for (int r = 0; r < ROWS; r++)
        memcpy(tile[r], (const char *)from + r * stride, sizeof tile[r]);
}

void AX_VEC(ax_tile_store)(int t, void *to, int64_t stride) {
    uint32_t(*tile)[COLS] = tile_at(t);
    for (int r = 0; r < ROWS; r++)
        memcpy((char *)to + r * stride, tile[r], sizeof tile[r]);
}

static inline float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Denormals become zeros of the same sign. */
static inline uint32_t without_denormal(uint32_t bits) {
    return (bits & 0x7f800000) == 0 ? bits & 0x80000000 : bits;
}

/* Result r of a·b + c, flushed if it is smaller than FLT_MIN when rounded to 24 bits at any
 * exponent. r was rounded as a denormal, which can round up to FLT_MIN where 24 bits do not. */
static float flushed(float r, float a, float b, float c) {
    const double least = 0x1p-126 - 0x1p-151; /* from here on, 24 bits round up to FLT_MIN */
    const bool tiny = fabsf(r) < FLT_MIN ||
                      (fabsf(r) == FLT_MIN && fabs((double)a * (double)b + (double)c) < least);
    return tiny ? copysignf(0.0f, r) : r;
}

/* sum[n] += a·b[n]. */
static inline void add_products(float *sum, float a, const float *b) {
    float r[COLS];
    uint32_t tiny = 0;
    for (int n = 0; n < COLS; n++) {
        r[n] = fmaf(a, b[n], sum[n]);
        tiny |= (uint32_t)(r[n] != 0.0f) & (uint32_t)(fabsf(r[n]) <= FLT_MIN);
    }
    for (int n = 0; tiny && n < COLS; n++)
        r[n] = flushed(r[n], a, b[n], sum[n]);
    memcpy(sum, r, sizeof r);
}

/* x[n] += y[n]; without denormals as operands a denormal sum is exact. */
static inline void add(float *x, const float *y) {
    for (int n = 0; n < COLS; n++) {
        float r = x[n] + y[n];
        x[n] = fabsf(r) < FLT_MIN ? copysignf(0.0f, r) : r;
    }
}

void AX_VEC(ax_tile_dot)(int c, int a, int b) {
    uint32_t(*to)[COLS] = tile_at(c), (*left)[COLS] = tile_at(a), (*right)[COLS] = tile_at(b);
    float first_b[ROWS][COLS], second_b[ROWS][COLS];
    for (int u = 0; u < ROWS; u++) {
        for (int n = 0; n < COLS; n++) {
            first_b[u][n] = float_of(without_denormal(right[u][n] << 16));
            second_b[u][n] = float_of(without_denormal(right[u][n] & 0xffff0000));
        }
    }
    for (int m = 0; m < ROWS; m++) {
        float first[COLS] = {0}, second[COLS] = {0}, sum[COLS];
        for (int u = 0; u < COLS; u++) {
            add_products(first, float_of(without_denormal(left[m][u] << 16)), first_b[u]);
            add_products(second, float_of(without_denormal(left[m][u] & 0xffff0000)), second_b[u]);
        }
        for (int n = 0; n < COLS; n++)
            sum[n] = float_of(without_denormal(to[m][n]));
        add(first, second);
        add(sum, first);
        memcpy(to[m], sum, sizeof sum);
    }
}

#endif
