/* A kernel's mistake is the branch that `Broken` takes; without it, they are as those of kernels/cuda/. */
#include "tests/cuda/broken.h"

#include "kernels/cuda/kernel.cuh"

#define THREADS 64

template <bool Broken> __global__ void sum_columns(const float *x, float *out) {
    AX_SHARED(float, parts, [2][THREADS]);
    const unsigned col = threadIdx.x;
    float sum = 0;
    for (unsigned row = threadIdx.y; row < BROKEN_ROWS && col < BROKEN_COLS; row += 2)
        sum += x[row * BROKEN_COLS + col];
    parts[threadIdx.y][col] = sum;
    if (!Broken)
        __syncthreads();
    if (threadIdx.y == 0 && col < BROKEN_COLS)
        out[col] = parts[0][col] + parts[1][col];
}

template <bool Broken> __global__ void sum_rows(const float *x, float *out) {
    float sum = 0;
    for (unsigned col = threadIdx.x; col < BROKEN_COLS; col += 32)
        sum += x[blockIdx.x * BROKEN_COLS + col];
    for (int step = 16; step > 0; step /= 2)
        sum += __shfl_xor_sync(Broken ? 0xffffu : 0xffffffffu, sum, step);
    if (threadIdx.x == 0)
        out[blockIdx.x] = sum;
}

template <bool Broken> __global__ void twice(const float *x, float *out) {
    const int64_t i = thread_number();
    if (Broken || i < BROKEN_SIZE)
        out[i] = 2 * x[i];
}

__global__ void add_one(float *out) {
    const int64_t i = thread_number();
    if (i < BROKEN_SIZE)
        out[i] += 1;
}

template <bool Broken> __global__ void sum_all(const float *x, float *out) {
    float sum = 0;
    if (threadIdx.x == 0)
        out[0] = 0;
    __syncthreads();
    for (unsigned i = threadIdx.x; i < BROKEN_SIZE; i += THREADS) {
        if (Broken)
            atomicAdd(out, x[i]);
        sum += x[i];
    }
    sum = block_sum(sum);
    if (!Broken && threadIdx.x == 0)
        out[0] = sum;
}

namespace {
struct device {
    cudaStream_t one, two; /* x comes by the first one */
    cudaEvent_t event;
    float *x, *out;
};

void launch(cudaStream_t s, dim3 grid, dim3 block, void (*kernel)(const float *, float *),
            const device &d) {
    const float *x = d.x;
    float *out = d.out;
    ax_emulated_launch(s, "broken", grid, block, 0, [=] { kernel(x, out); });
}

template <bool Broken> void start(enum broken_kernel which, const device &d) {
    const dim3 blocks(blocks_of(BROKEN_SIZE, THREADS));
    float *out = d.out;
    switch (which) {
    case BROKEN_BARRIER:
        launch(d.one, 1, dim3(THREADS, 2), sum_columns<Broken>, d);
        break;
    case BROKEN_MASK:
        launch(d.one, BROKEN_ROWS, 32, sum_rows<Broken>, d);
        break;
    case BROKEN_TAIL:
        launch(d.one, blocks, THREADS, twice<Broken>, d);
        break;
    case BROKEN_WAIT:
        launch(d.one, blocks, THREADS, twice<false>, d);
        cudaEventRecord(d.event, d.one);
        if (!Broken)
            cudaStreamWaitEvent(d.two, d.event, 0);
        ax_emulated_launch(d.two, "add_one", blocks, THREADS, 0, [=] { add_one(out); });
        break;
    default:
        launch(d.one, 1, THREADS, sum_all<Broken>, d);
        break;
    }
}
} // namespace

void broken_run(enum broken_kernel which, bool mistake, const float *x, float *out) {
    const size_t bytes = BROKEN_SIZE * sizeof(float);
    device d;
    (void)cudaSetDevice(0);
    cudaMalloc((void **)&d.x, 2 * bytes);
    cudaMalloc((void **)&d.out, bytes);
    cudaStreamCreateWithFlags(&d.one, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&d.two, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&d.event, cudaEventDisableTiming);
    cudaMemcpyAsync(d.x, x, bytes, cudaMemcpyDefault, d.one);
    if (mistake)
        start<true>(which, d);
    else
        start<false>(which, d);
    cudaStreamSynchronize(d.two);
    cudaMemcpyAsync(out, d.out, bytes, cudaMemcpyDefault, d.one);
    cudaStreamSynchronize(d.one);
    cudaEventDestroy(d.event);
    cudaStreamDestroy(d.two);
    cudaStreamDestroy(d.one);
    cudaFree(d.out);
    cudaFree(d.x);
}
