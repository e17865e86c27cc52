#include "tests/cuda/mma_probe.h"

#include "kernels/cuda/wgmma.cuh"

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

__global__ void batches_kernel(struct probe_batches *p) {
    AX_DYNAMIC_SHARED(uint32_t, memory);
    const int lane = threadIdx.x, next = (lane + 1) % PROBE_LANES;
    for (int half = 0; half < 2; half++) {
        copy_16(shared_of(memory + 8 * lane + 4 * half), p->from[lane] + 4 * half, true);
        copy_commit();
    }
    copy_wait_but<1>();
    __syncthreads();
    for (int i = 0; i < 8; i++)
        p->first[lane][i] = memory[8 * next + i];
    __syncthreads();
    copy_wait_but<0>();
    __syncthreads();
    for (int i = 0; i < 8; i++)
        p->out[lane][i] = memory[8 * next + i];
    copy_wait();
}

/* Copies a matrix into panels. */
template <int Cols>
__device__ static void start_panels(panels<PROBE_TILE, Cols> to,
                                    const uint16_t (&from)[PROBE_TILE][PROBE_TILE]) {
    for (int i = threadIdx.x; i < PROBE_TILE * Cols / 8; i += PROBE_THREADS) {
        const int row = i / (Cols / 8), c = i % (Cols / 8);
        copy_16(to.chunk(row, c), &from[row][8 * c], true);
    }
}

/* Right: how many columns `right` has in shared memory. */
template <int N, int Right, bool Held, bool Transposed, bool Adds>
__device__ static void multiply_tiles(struct probe_tiles *p) {
#ifdef AX_WGMMA
    AX_DYNAMIC_SHARED(uint16_t, memory);
    const panels<PROBE_TILE, PROBE_TILE> left = {shared_aligned(shared_of(memory), 1024)};
    const panels<PROBE_TILE, Right> right = {left.at + left.BYTES};
    const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16;
    const int row = warp_row + lane / 4, col = lane % 4 * 2;
    start_panels(left, p->left);
    start_panels(right, p->right);
    copy_wait();
    shared_for_wgmma();
    __syncthreads();
    float c[N / 8][4];
    uint32_t held[PROBE_TILE / 16][4];
    AX_UNROLL
    for (int i = 0; i < N / 2; i++)
        c[i / 4][i % 4] = p->c[row + i / 2 % 2 * 8][i / 4 * 8 + col + i % 2];
    AX_UNROLL
    for (int k = 0; k < PROBE_TILE / 16; k++)
        load_matrices(held[k], left.chunk(PROBE_ROWS + warp_row + lane % 16, 2 * k + lane / 16));
    const auto multiply = [&](auto adds, int k) {
        constexpr bool ADDS = decltype(adds)::value;
        const wgmma_tile b = Transposed ? right.columns(k) : right.rows(0, k);
        if constexpr (Held)
            wgmma<Transposed, ADDS>(c, held[k], b);
        else
            wgmma<Transposed, ADDS>(c, left.rows(PROBE_ROWS, k), b);
    };
    wgmma_begin();
    multiply(std::integral_constant<bool, Adds>(), 0);
    AX_UNROLL
    for (int k = 1; k < PROBE_TILE / 16; k++)
        multiply(std::true_type(), k);
    wgmma_commit();
#ifdef AX_EMULATED_MMA
    if (p->waits) /* nvcc would make every product wait for the last */
#endif
        wgmma_wait<0>();
    wgmma_done(c);
    AX_UNROLL
    for (int i = 0; i < N / 2; i++)
        p->out[row + i / 2 % 2 * 8][i / 4 * 8 + col + i % 2] = c[i / 4][i % 4];
    wgmma_wait<0>();
#endif
}

/* The forms that kernels have. */
template <int N, bool Held, bool Transposed> __global__ void tiles_kernel(struct probe_tiles *p) {
    if (p->adds)
        multiply_tiles<N, Transposed ? N : PROBE_TILE, Held, Transposed, true>(p);
    else
        multiply_tiles<N, Transposed ? N : PROBE_TILE, Held, Transposed, false>(p);
}

__global__ void numbers_kernel(struct probe_numbers *p) {
    const int lane = threadIdx.x;
    p->pair[lane] = round_pair(p->x[lane][0], p->x[lane][1]);
    for (int i = 0; i < 2; i++)
        p->powers[lane][i] = power_of_two(p->x[lane][i]);
}

/* Runs it on a copy of *p. */
template <auto Kernel, int Threads = PROBE_LANES, class P>
static enum ax_status run(struct ax_queue *q, P *p) {
    const cudaStream_t s = ax_cuda_stream(q);
    P *there;
    AX_CUDA_TRY(cudaMalloc((void **)&there, sizeof *p));
    AX_CUDA_TRY(cudaMemcpyAsync(there, p, sizeof *p, cudaMemcpyDefault, s));
    AX_TRY(AX_LAUNCH(q, Kernel, 1, Threads, PROBE_SHARED, there));
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
extern "C" enum ax_status probe_batches(struct ax_queue *q, struct probe_batches *p) {
    return run<batches_kernel>(q, p);
}
extern "C" enum ax_status probe_tiles(struct ax_queue *q, struct probe_tiles *p) {
    const auto by_columns = [&](auto columns) {
        constexpr int N = decltype(columns)::value;
        return p->transposed ? p->held ? run<tiles_kernel<N, true, true>, PROBE_THREADS>(q, p)
                                       : run<tiles_kernel<N, false, true>, PROBE_THREADS>(q, p)
               : p->held ? run<tiles_kernel<N, true, false>, PROBE_THREADS>(q, p)
                             : run<tiles_kernel<N, false, false>, PROBE_THREADS>(q, p);
    };
    return p->columns == 64 ? by_columns(std::integral_constant<int, 64>())
                            : by_columns(std::integral_constant<int, 128>());
}
extern "C" enum ax_status probe_numbers(struct ax_queue *q, struct probe_numbers *p) {
    return run<numbers_kernel>(q, p);
}
