/* Eight floats at a time, in clang's portable vectors: two SSE or NEON registers, one of AVX2. */
#ifndef PRIME_VECTOR_H
#define PRIME_VECTOR_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define WIDTH 8
#define RESTRICT restrict

typedef float v8 __attribute__((vector_size(32)));
typedef int32_t v8i __attribute__((vector_size(32)));

static inline v8 load8(const float *p)
{
    v8 r;
    memcpy(&r, p, sizeof r);
    return r;
}

static inline void store8(float *p, v8 x) { memcpy(p, &x, sizeof x); }

/* A loop over bins ends with a whole vector, and so runs over lanes behind the last bin. Whoever fills an array that such
   a loop reads calls this: what an earlier design on a finer grid left in those lanes would enter sums, where even a
   weight of zero does not take NaN away. */
static inline void end_with_zeros(float *bins, int n_bins) { memset(bins + n_bins, 0, (WIDTH - 1) * sizeof(float)); }

static inline v8 splat8(float x) { return (v8){x, x, x, x, x, x, x, x}; }

static inline v8 sqrt8(v8 a) { return __builtin_elementwise_sqrt(a); }

static inline v8 select8(v8i mask, v8 yes, v8 no) { return (v8)((mask & (v8i)yes) | (~mask & (v8i)no)); }

static inline float sum8(v8 a)
{
    return ((a[0] + a[4]) + (a[1] + a[5])) + ((a[2] + a[6]) + (a[3] + a[7]));
}

/* The larger of a value and a bound; NaN stays NaN, so that a failed design shows itself at its end. */
static inline v8 at_least8(v8 x, v8 bound) { return select8(bound > x, bound, x); }

/* The larger of two values, the second if one is NaN. */
static inline v8 larger8(v8 x, v8 y) { return select8(x > y, x, y); }

static inline v8 at_most8(v8 x, v8 bound) { return select8(bound < x, bound, x); }

static inline float largest8(v8 a)
{
    float largest = a[0];
    for (int lane = 1; lane < WIDTH; lane++)
        largest = a[lane] > largest ? a[lane] : largest;
    return largest;
}

/* The largest magnitude; NaN does not count. */
static float largest_of(const float *a, int n)
{
    v8 lanes[2] = {splat8(0), splat8(0)};
    int i = 0;
    for (; i + 2 * WIDTH <= n; i += 2 * WIDTH)
        for (int j = 0; j < 2; j++)
            lanes[j] = larger8(__builtin_elementwise_abs(load8(a + i + j * WIDTH)), lanes[j]);
    float largest = largest8(larger8(lanes[0], lanes[1]));
    for (; i < n; i++)
        largest = fabsf(a[i]) > largest ? fabsf(a[i]) : largest;
    return largest;
}

/* sum of a_i b_i and of a_i, in 32 partial sums. */
static float dot_product(const float *RESTRICT a, const float *RESTRICT b, int n)
{
    v8 sums[4] = {splat8(0), splat8(0), splat8(0), splat8(0)};
    int i = 0;
    for (; i + 4 * WIDTH <= n; i += 4 * WIDTH)
        for (int j = 0; j < 4; j++)
            sums[j] += load8(a + i + j * WIDTH) * load8(b + i + j * WIDTH);
    float rest = 0;
    for (; i < n; i++)
        rest += a[i] * b[i];
    return sum8((sums[0] + sums[1]) + (sums[2] + sums[3])) + rest;
}

static float sum_of(const float *a, int n)
{
    v8 sums[4] = {splat8(0), splat8(0), splat8(0), splat8(0)};
    int i = 0;
    for (; i + 4 * WIDTH <= n; i += 4 * WIDTH)
        for (int j = 0; j < 4; j++)
            sums[j] += load8(a + i + j * WIDTH);
    float rest = 0;
    for (; i < n; i++)
        rest += a[i];
    return sum8((sums[0] + sums[1]) + (sums[2] + sums[3])) + rest;
}

/* Elementary functions after Cephes (S. L. Moshier), single precision, at most 2 units in the last place off. NaN and
   infinity are what they are in C. */

static inline v8 log8(v8 x) /* for x of at least TINY */
{
    v8i bits = (v8i)x;
    v8i exponent = ((bits >> 23) & 0xff) - 126;
    v8 m = (v8)((bits & 0x007fffff) | 0x3f000000); /* 0.5 <= m < 1 */
    v8i low = m < 0.70710678f;
    v8 e = __builtin_convertvector(exponent + low, v8); /* a true comparison is -1 */
    m = m - 1.0f + select8(low, m, splat8(0.0f));
    v8 z = m * m;
    v8 y = splat8(7.0376836292e-2f);
    y = y * m - 1.1514610310e-1f;
    y = y * m + 1.1676998740e-1f;
    y = y * m - 1.2420140846e-1f;
    y = y * m + 1.4249322787e-1f;
    y = y * m - 1.6668057665e-1f;
    y = y * m + 2.0000714765e-1f;
    y = y * m - 2.4999993993e-1f;
    y = y * m + 3.3333331174e-1f;
    y = y * m * z;
    y = y - 2.12194440e-4f * e - 0.5f * z;
    return select8(x < INFINITY, m + y + 0.693359375f * e, x);
}

static inline v8 exp8(v8 given)
{
    v8 x = at_least8(at_most8(given, splat8(88.3f)), splat8(-87.3f));
    v8 n = __builtin_elementwise_floor(x * 1.44269504088896341f + 0.5f);
    x = x - n * 0.693359375f + n * 2.12194440e-4f;
    v8 y = splat8(1.9875691500e-4f);
    y = y * x + 1.3981999507e-3f;
    y = y * x + 8.3334519073e-3f;
    y = y * x + 4.1665795894e-2f;
    y = y * x + 1.6666665459e-1f;
    y = y * x + 5.0000001201e-1f;
    y = y * x * x + x + 1.0f;
    v8i scale = (__builtin_convertvector(n, v8i) + 127) << 23;
    return select8(given <= 88.3f, y * (v8)scale, given * 1e38f);
}

/* Angles up to some thousand radians: phases of minimum-phase responses stay below a hundred. */
static inline void sincos8(v8 x, v8 *sine, v8 *cosine)
{
    v8 n = __builtin_elementwise_floor(x * 0.63661977236758134f + 0.5f); /* quarter turns */
    v8i quarter = __builtin_convertvector(n, v8i);
    v8 r = ((x - n * 1.5703125f) - n * 4.83751296997e-4f) - n * 7.54978995489e-8f;
    v8 z = r * r;
    v8 s = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * r + r;
    v8 c = ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z - 0.5f * z + 1.0f;
    v8i odd = (quarter & 1) != 0;
    v8i s_sign = (quarter & 2) << 30, c_sign = ((quarter + 1) & 2) << 30;
    *sine = (v8)((v8i)select8(odd, c, s) ^ s_sign);
    *cosine = (v8)((v8i)select8(odd, s, c) ^ c_sign);
}

static inline v8 reversed8(v8 a) { return __builtin_shufflevector(a, a, 7, 6, 5, 4, 3, 2, 1, 0); }

#endif
