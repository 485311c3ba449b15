/* The exact step of vanilla policy gradient on independent bandits, as fast as a compiler makes it: the floor of the
   benchmark. Tables are [K][rows]; a tile of W rows keeps in the cache for all of its steps. K and W come from the
   command line, SINGLE asks for float. The accurate variant also gives dH and the remainder without cancellation. */
#include <stdint.h>
#include <string.h>

#ifdef SINGLE
typedef float real;
typedef int32_t word;
#define BITS 23
#define BIAS 127
#define SHIFTER 0x1.8p23f
#define LN2_HIGH 0x1.62e4p-1f
#define LN2_LOW 0x1.7f7d1cp-20f
#define LOWEST -87.0f
static const real TAYLOR[] = {1.f / 5040, 1.f / 720, 1.f / 120, 1.f / 24, 1.f / 6, .5f};
static const real SERIES[] = {2.f / 9, 2.f / 7, 2.f / 5, 2.f / 3};
#define HALF_ROOT 0x3f3504f3
#else
typedef double real;
typedef int64_t word;
#define BITS 52
#define BIAS 1023
#define SHIFTER 0x1.8p52
#define LN2_HIGH 0x1.62e42feep-1
#define LN2_LOW 0x1.a39ef35793c76p-33
#define LOWEST -708.0
static const real TAYLOR[] = {1. / 479001600, 1. / 39916800, 1. / 3628800, 1. / 362880, 1. / 40320, 1. / 5040,
                              1. / 720,       1. / 120,      1. / 24,      1. / 6,      .5};
static const real SERIES[] = {2. / 21, 2. / 19, 2. / 17, 2. / 15, 2. / 13, 2. / 11, 2. / 9, 2. / 7, 2. / 5, 2. / 3};
#define HALF_ROOT 0x3fe6a09e667f3bcd
#endif
#define LENGTH(x) ((int)(sizeof(x) / sizeof(*x)))
#define EACH for (int w = 0; w < W; w++)
#define ALL for (int k = 0; k < K; k++) EACH

static inline word bits(real x) { word n; memcpy(&n, &x, sizeof n); return n; }
static inline real from(word n) { real x; memcpy(&x, &n, sizeof x); return x; }

/* e^x for x <= 0 */
static inline real exponential(real x) {
    x = x > (real)LOWEST ? x : (real)LOWEST;
    real shifted = x * (real)1.4426950408889634 + SHIFTER, n = shifted - SHIFTER;
    real r = x - n * LN2_HIGH - n * LN2_LOW, y = TAYLOR[0];
    for (int i = 1; i < LENGTH(TAYLOR); i++) y = y * r + TAYLOR[i];
    return from(bits(1 + (r + r * r * y)) + (word)((uint64_t)bits(shifted) << BITS));
}

/* log(1 + s) for s >= 0 */
static inline real logarithm(real s) {
    real u = 1 + s;
    word power = (bits(u) - (word)HALF_ROOT) >> BITS;
    real f = from(bits(u) - (word)((uint64_t)power << BITS)) - 1, q = f / (2 + f), q2 = q * q, y = SERIES[0];
    for (int i = 1; i < LENGTH(SERIES); i++) y = y * q2 + SERIES[i];
    real low = (s - (u - 1)) / u + power * LN2_LOW;
    return power * LN2_HIGH + (2 * q + (q * q2 * y + low));
}

/* e^x - 1 - x for |x| < 1/2 */
static inline real rest(real x) {
    real y = TAYLOR[0];
    for (int i = 1; i < LENGTH(TAYLOR); i++) y = y * x + TAYLOR[i];
    return x * x * y;
}

#define LOAD real z[K][W], r[K][W], x[K][W], p[K][W], top[W], sum[W], mean[W], gain[W], first[W], both[W]; \
    ALL { z[k][w] = Z[k * rows + low + w]; r[k][w] = R[k * rows + low + w]; }

void simple(real *restrict Z, const real *restrict R, real *restrict out, long rows, long begin, long end, long steps,
            real eta) {
    real *H = out, *C = out + steps * rows;
    for (long low = begin; low < end; low += W) {
        LOAD
        for (long t = 0; t < steps; t++) {
            EACH { top[w] = z[0][w]; sum[w] = mean[w] = gain[w] = both[w] = 0; }
            ALL top[w] = z[k][w] > top[w] ? z[k][w] : top[w];
            ALL { x[k][w] = z[k][w] - top[w]; p[k][w] = exponential(x[k][w]); sum[w] += p[k][w];
                  mean[w] += p[k][w] * x[k][w]; gain[w] += p[k][w] * r[k][w]; }
            EACH { first[w] = 1 / sum[w]; mean[w] *= first[w]; gain[w] *= first[w]; }
            ALL { real q = p[k][w] * first[w], d = eta * q * (r[k][w] - gain[w]);
                  both[w] += q * (x[k][w] - mean[w]) * d; z[k][w] += d; }
            EACH { H[t * rows + low + w] = logarithm(sum[w] - 1) - mean[w]; C[t * rows + low + w] = both[w]; }
        }
        ALL Z[k * rows + low + w] = z[k][w];
    }
}

/* Steps below 1/2. */
void accurate(real *restrict Z, const real *restrict R, real *restrict out, long rows, long begin, long end,
              long steps, real eta) {
    real *H = out, *C = out + steps * rows, *change = C + steps * rows, *remainder = change + steps * rows;
    for (long low = begin; low < end; low += W) {
        LOAD
        real d[K][W], at[W], slope[W], far[W], divergence[W];
        for (long t = 0; t < steps; t++) {
            EACH { top[w] = z[0][w]; mean[w] = gain[w] = first[w] = both[w] = slope[w] = far[w] = divergence[w] = 0;
                   sum[w] = -1; }
            ALL top[w] = z[k][w] > top[w] ? z[k][w] : top[w];
            ALL { x[k][w] = z[k][w] - top[w]; p[k][w] = exponential(x[k][w]); at[w] = x[k][w] < 0 ? p[k][w] : 0;
                  far[w] += at[w]; sum[w] += x[k][w] < 0 ? 0 : 1;
                  mean[w] += p[k][w] * x[k][w]; gain[w] += p[k][w] * r[k][w]; }
            EACH { sum[w] += far[w]; far[w] = 1 / (1 + sum[w]); mean[w] *= far[w]; gain[w] *= far[w]; }
            ALL { p[k][w] *= far[w]; d[k][w] = eta * p[k][w] * (r[k][w] - gain[w]); z[k][w] += d[k][w];
                  at[w] = x[k][w] < 0 ? at[w] : d[k][w]; }
            ALL { d[k][w] -= at[w]; first[w] += p[k][w] * d[k][w]; }
            EACH far[w] = 0;
            ALL { real g = x[k][w] - mean[w], q = p[k][w], e = d[k][w] - first[w], y = rest(e);
                  both[w] += q * e * g; far[w] += q * y; slope[w] += q * y * g; divergence[w] += q * (e * (e + y) - y); }
            EACH { real scale = 1 / (1 + far[w]), kl = scale * (divergence[w] + far[w]) - logarithm(far[w]);
                   real R = scale * (far[w] * both[w] - slope[w]) - kl;
                   long i = t * rows + low + w;
                   H[i] = logarithm(sum[w]) - mean[w]; C[i] = both[w]; change[i] = R - both[w]; remainder[i] = R; }
        }
        ALL Z[k * rows + low + w] = z[k][w];
    }
}

void exponentials(const real *restrict x, real *restrict y, long n, long repeats) {
    for (long i = 0; i < repeats; i++) { for (long j = 0; j < n; j++) y[j] = exponential(x[j]);
        __asm__ volatile("" ::: "memory"); }
}

void triad(real *restrict a, const real *restrict b, const real *restrict c, long begin, long end) {
    for (long i = begin; i < end; i++) a[i] = b[i] + (real)3 * c[i];
}
