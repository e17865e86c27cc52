#include "tests/cuda/mma_probe.h"

#include "kernels/cuda/mma.cuh"

__global__ void product_kernel(struct probe_product *p) {
    const int lane = threadIdx.x;
    float c[4];
    for (int i = 0; i < 4; i++)
        c[i] = p->c[lane][i];
    mma(c, p->a[lane], p->b[lane][0], p->b[lane][1]);
    for (int i = 0; i < 4; i++)
        p->out[lane][i] = c[i];
}

__global__ void rows_kernel(struct probe_rows *p) {
    AX_DYNAMIC_SHARED(uint16_t, memory);
    const int lane = threadIdx.x;
    uint16_t *row = memory + 8 * p->place[lane];
    uint32_t x[4];
    for (int i = 0; i < 8; i++)
        row[i] = p->rows[lane][i];
    __syncwarp();
    if (p->transposed)
        load_transposed(x, shared_of(row));
    else
        load_matrices(x, shared_of(row));
    for (int i = 0; i < 4; i++)
        p->out[lane][i] = x[i];
}

__global__ void copies_kernel(struct probe_copies *p) {
    AX_DYNAMIC_SHARED(uint32_t, memory);
    const int lane = threadIdx.x, next = (lane + 1) % PROBE_LANES;
    const bool there = p->there[lane] != 0;
    copy_16(shared_of(memory + 8 * lane), p->from[lane], there);
    copy_4(shared_of(memory + 8 * lane + 4), p->from[lane] + 4, there);
    if (p->waits)
        copy_wait();
    __syncthreads();
    for (int i = 0; i < 5; i++)
        p->out[lane][i] = memory[8 * next + i];
    __syncthreads();
    copy_wait();
}

__global__ void numbers_kernel(struct probe_numbers *p) {
    const int lane = threadIdx.x;
    p->pair[lane] = round_pair(p->x[lane][0], p->x[lane][1]);
    for (int i = 0; i < 2; i++)
        p->powers[lane][i] = power_of_two(p->x[lane][i]);
}

/* Runs it on a copy of *p. */
template <auto Kernel, class P> static enum ax_status run(struct ax_queue *q, P *p) {
    const cudaStream_t s = ax_cuda_stream(q);
    P *there;
    AX_CUDA_TRY(cudaMalloc((void **)&there, sizeof *p));
    AX_CUDA_TRY(cudaMemcpyAsync(there, p, sizeof *p, cudaMemcpyDefault, s));
    AX_TRY(AX_LAUNCH(q, Kernel, 1, PROBE_LANES, PROBE_SHARED, there));
    AX_CUDA_TRY(cudaMemcpyAsync(p, there, sizeof *p, cudaMemcpyDefault, s));
    AX_CUDA_TRY(cudaStreamSynchronize(s));
    return ax_cuda_check(cudaFree(there), "cudaFree");
}

extern "C" enum ax_status probe_product(struct ax_queue *q, struct probe_product *p) {
    return run<product_kernel>(q, p);
}
extern "C" enum ax_status probe_rows(struct ax_queue *q, struct probe_rows *p) {
    return run<rows_kernel>(q, p);
}
extern "C" enum ax_status probe_copies(struct ax_queue *q, struct probe_copies *p) {
    return run<copies_kernel>(q, p);
}
extern "C" enum ax_status probe_numbers(struct ax_queue *q, struct probe_numbers *p) {
    return run<numbers_kernel>(q, p);
}
