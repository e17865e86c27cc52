/* The values of the codes. */
#include "kernels/quant/quant_codes.h"

/* The quantiles of a normal distribution, scaled to [-1, 1] (Dettmers et al. 2023, appendix E). */
const float ax_nf4_values[16] = {-0x1p+0F,        -0x1.647362p-1F, -0x1.0cd66p-1F,  -0x1.94654p-2F,
                                 -0x1.23449ap-2F, -0x1.7a6a7ep-3F, -0x1.74f0e2p-4F, 0x0p+0F,
                                 0x1.45f5fep-4F,  0x1.4995c6p-3F,  0x1.f809bap-3F,  0x1.5a0674p-2F,
                                 0x1.c3497p-2F,   0x1.200f56p-1F,  0x1.722766p-1F,  0x1p+0F};

/* ax_nf4_bounds[k] is the smallest float nearer to value k + 1 than to value k, both distances
 * computed in float. */
const float ax_nf4_bounds[15] = {-0x1.b239b0p-1F, -0x1.38a4e0p-1F, -0x1.d708fep-2F, -0x1.5bd4ecp-2F,
                                 -0x1.e079d8p-3F, -0x1.1a7176p-3F, -0x1.74f0e0p-5F, 0x1.45f600p-5F,
                                 0x1.ec90c6p-4F,  0x1.a0cfc2p-3F,  0x1.2b05aap-2F,  0x1.8ea7f4p-2F,
                                 0x1.00da08p-1F,  0x1.491b60p-1F,  0x1.b913b4p-1F};

const float ax_int4_values[16] = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};

/* The signed dynamic map of 8-bit optimizers (Dettmers et al. 2022): in each decade from 1e-6 to 1,
 * twice as many values as in the one below, each the midpoint of two neighbors of an even division;
 * plus 0 and 1. */
const float ax_map8_values[256] = {
    -0x1.fc6666p-1F,  -0x1.f53334p-1F,  -0x1.eep-1F,      -0x1.e6ccccp-1F,  -0x1.df999ap-1F,
    -0x1.d86666p-1F,  -0x1.d13334p-1F,  -0x1.cap-1F,      -0x1.c2ccccp-1F,  -0x1.bb999ap-1F,
    -0x1.b46666p-1F,  -0x1.ad3334p-1F,  -0x1.a6p-1F,      -0x1.9eccccp-1F,  -0x1.97999ap-1F,
    -0x1.906666p-1F,  -0x1.893334p-1F,  -0x1.82p-1F,      -0x1.7accccp-1F,  -0x1.73999ap-1F,
    -0x1.6c6668p-1F,  -0x1.653334p-1F,  -0x1.5ep-1F,      -0x1.56ccccp-1F,  -0x1.4f999ap-1F,
    -0x1.486668p-1F,  -0x1.413334p-1F,  -0x1.3ap-1F,      -0x1.32ccccp-1F,  -0x1.2b999ap-1F,
    -0x1.246668p-1F,  -0x1.1d3334p-1F,  -0x1.16p-1F,      -0x1.0eccccp-1F,  -0x1.079998p-1F,
    -0x1.006666p-1F,  -0x1.f26664p-2F,  -0x1.e4p-2F,      -0x1.d59998p-2F,  -0x1.c73334p-2F,
    -0x1.b8ccccp-2F,  -0x1.aa6666p-2F,  -0x1.9cp-2F,      -0x1.8d9998p-2F,  -0x1.7f3334p-2F,
    -0x1.70ccccp-2F,  -0x1.626666p-2F,  -0x1.54p-2F,      -0x1.459998p-2F,  -0x1.373334p-2F,
    -0x1.28ccccp-2F,  -0x1.1a6668p-2F,  -0x1.0cp-2F,      -0x1.fb3332p-3F,  -0x1.de6666p-3F,
    -0x1.c1999ap-3F,  -0x1.a4ccccp-3F,  -0x1.88p-3F,      -0x1.6b3334p-3F,  -0x1.4e6666p-3F,
    -0x1.31999ap-3F,  -0x1.14ccccp-3F,  -0x1.fp-4F,       -0x1.b66668p-4F,  -0x1.93d70ap-4F,
    -0x1.8851eep-4F,  -0x1.7ccccep-4F,  -0x1.7147aep-4F,  -0x1.65c29p-4F,   -0x1.5a3d7p-4F,
    -0x1.4eb854p-4F,  -0x1.433334p-4F,  -0x1.37ae14p-4F,  -0x1.2c28f6p-4F,  -0x1.20a3d6p-4F,
    -0x1.151ebap-4F,  -0x1.09999ap-4F,  -0x1.fc28f6p-5F,  -0x1.e51ebap-5F,  -0x1.ce147ap-5F,
    -0x1.b70a3ep-5F,  -0x1.ap-5F,       -0x1.88f5c2p-5F,  -0x1.71eb86p-5F,  -0x1.5ae146p-5F,
    -0x1.43d70ap-5F,  -0x1.2ccccep-5F,  -0x1.15c29p-5F,   -0x1.fd70a4p-6F,  -0x1.cf5c2ap-6F,
    -0x1.a147aep-6F,  -0x1.733334p-6F,  -0x1.451ebap-6F,  -0x1.170a3ep-6F,  -0x1.d1eb86p-7F,
    -0x1.75c29p-7F,   -0x1.3e76c8p-7F,  -0x1.2c083p-7F,   -0x1.19999ap-7F,  -0x1.072b02p-7F,
    -0x1.e978d4p-8F,  -0x1.c49ba6p-8F,  -0x1.9fbe76p-8F,  -0x1.7ae148p-8F,  -0x1.56041ap-8F,
    -0x1.3126e8p-8F,  -0x1.0c49bap-8F,  -0x1.ced914p-9F,  -0x1.851eb8p-9F,  -0x1.3b645ap-9F,
    -0x1.e353f8p-10F, -0x1.4fdf3ap-10F, -0x1.eecbfep-11F, -0x1.b3d07cp-11F, -0x1.78d5p-11F,
    -0x1.3dd982p-11F, -0x1.02de02p-11F, -0x1.8fc506p-12F, -0x1.19ce0ap-12F, -0x1.47ae16p-13F,
    -0x1.743e96p-14F, -0x1.15df66p-14F, -0x1.6f0068p-15F, -0x1.64840cp-16F, -0x1.040bfep-17F,
    -0x1.b43528p-19F, -0x1.27476ep-21F, 0x0p+0F,          0x1.27476ep-21F,  0x1.b43528p-19F,
    0x1.040bfep-17F,  0x1.64840cp-16F,  0x1.6f0068p-15F,  0x1.15df66p-14F,  0x1.743e96p-14F,
    0x1.47ae16p-13F,  0x1.19ce0ap-12F,  0x1.8fc506p-12F,  0x1.02de02p-11F,  0x1.3dd982p-11F,
    0x1.78d5p-11F,    0x1.b3d07cp-11F,  0x1.eecbfep-11F,  0x1.4fdf3ap-10F,  0x1.e353f8p-10F,
    0x1.3b645ap-9F,   0x1.851eb8p-9F,   0x1.ced914p-9F,   0x1.0c49bap-8F,   0x1.3126e8p-8F,
    0x1.56041ap-8F,   0x1.7ae148p-8F,   0x1.9fbe76p-8F,   0x1.c49ba6p-8F,   0x1.e978d4p-8F,
    0x1.072b02p-7F,   0x1.19999ap-7F,   0x1.2c083p-7F,    0x1.3e76c8p-7F,   0x1.75c29p-7F,
    0x1.d1eb86p-7F,   0x1.170a3ep-6F,   0x1.451ebap-6F,   0x1.733334p-6F,   0x1.a147aep-6F,
    0x1.cf5c2ap-6F,   0x1.fd70a4p-6F,   0x1.15c29p-5F,    0x1.2ccccep-5F,   0x1.43d70ap-5F,
    0x1.5ae146p-5F,   0x1.71eb86p-5F,   0x1.88f5c2p-5F,   0x1.ap-5F,        0x1.b70a3ep-5F,
    0x1.ce147ap-5F,   0x1.e51ebap-5F,   0x1.fc28f6p-5F,   0x1.09999ap-4F,   0x1.151ebap-4F,
    0x1.20a3d6p-4F,   0x1.2c28f6p-4F,   0x1.37ae14p-4F,   0x1.433334p-4F,   0x1.4eb854p-4F,
    0x1.5a3d7p-4F,    0x1.65c29p-4F,    0x1.7147aep-4F,   0x1.7ccccep-4F,   0x1.8851eep-4F,
    0x1.93d70ap-4F,   0x1.b66668p-4F,   0x1.fp-4F,        0x1.14ccccp-3F,   0x1.31999ap-3F,
    0x1.4e6666p-3F,   0x1.6b3334p-3F,   0x1.88p-3F,       0x1.a4ccccp-3F,   0x1.c1999ap-3F,
    0x1.de6666p-3F,   0x1.fb3332p-3F,   0x1.0cp-2F,       0x1.1a6668p-2F,   0x1.28ccccp-2F,
    0x1.373334p-2F,   0x1.459998p-2F,   0x1.54p-2F,       0x1.626666p-2F,   0x1.70ccccp-2F,
    0x1.7f3334p-2F,   0x1.8d9998p-2F,   0x1.9cp-2F,       0x1.aa6666p-2F,   0x1.b8ccccp-2F,
    0x1.c73334p-2F,   0x1.d59998p-2F,   0x1.e4p-2F,       0x1.f26664p-2F,   0x1.006666p-1F,
    0x1.079998p-1F,   0x1.0eccccp-1F,   0x1.16p-1F,       0x1.1d3334p-1F,   0x1.246668p-1F,
    0x1.2b999ap-1F,   0x1.32ccccp-1F,   0x1.3ap-1F,       0x1.413334p-1F,   0x1.486668p-1F,
    0x1.4f999ap-1F,   0x1.56ccccp-1F,   0x1.5ep-1F,       0x1.653334p-1F,   0x1.6c6668p-1F,
    0x1.73999ap-1F,   0x1.7accccp-1F,   0x1.82p-1F,       0x1.893334p-1F,   0x1.906666p-1F,
    0x1.97999ap-1F,   0x1.9eccccp-1F,   0x1.a6p-1F,       0x1.ad3334p-1F,   0x1.b46666p-1F,
    0x1.bb999ap-1F,   0x1.c2ccccp-1F,   0x1.cap-1F,       0x1.d13334p-1F,   0x1.d86666p-1F,
    0x1.df999ap-1F,   0x1.e6ccccp-1F,   0x1.eep-1F,       0x1.f53334p-1F,   0x1.fc6666p-1F,
    0x1p+0F};
