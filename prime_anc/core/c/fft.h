/* Complex transforms of a power of two, by Stockham's algorithm in radix 4 (Van Loan, Computational Frameworks for
   the FFT, 1992, 1.7): natural order in and out, real and imaginary parts in separate arrays.

   Included once per precision, with REAL (the type), VEC (eight of them) and NAME(x) (the suffix) defined.
   Two passes, with butterflies 1 and 4 apart, interleave within vectors; in the others every load is contiguous. */

static inline VEC NAME(load)(const REAL *p)
{
    VEC r;
    memcpy(&r, p, sizeof r);
    return r;
}

static inline void NAME(store)(REAL *p, VEC x) { memcpy(p, &x, sizeof x); }

typedef struct {
    int n;          /* complex points */
    int n_passes;   /* of radix 4 */
    REAL *twiddles; /* w, w^2, w^3 per pass, real and imaginary parts in six arrays */
} NAME(fft_plan);

static NAME(fft_plan) NAME(fft_plan_of)(int n)
{
    NAME(fft_plan) plan = {n, 0, NULL};
    int total = 0;
    for (int length = n, stride = 1; length >= 4; length /= 4, stride *= 4, plan.n_passes++)
        total += 6 * (stride == 4 ? length : length / 4);
    REAL *t = plan.twiddles = aligned_alloc(64, ((size_t)total * sizeof(REAL) + 63) / 64 * 64);
    if (!t)
        return plan;
    for (int length = n, stride = 1; length >= 4; length /= 4, stride *= 4) {
        /* In the pass with butterflies 4 apart a vector holds the four points of two butterflies. */
        int repeat = stride == 4 ? 4 : 1, m = length / 4 * repeat;
        for (int i = 0; i < m; i++)
            for (int power = 1; power <= 3; power++) {
                double angle = -2 * M_PI * power * (i / repeat) / length;
                t[(2 * power - 2) * m + i] = (REAL)cos(angle);
                t[(2 * power - 1) * m + i] = (REAL)sin(angle);
            }
        t += 6 * m;
    }
    return plan;
}

#define BUTTERFLY(ar, ai, br, bi, cr, ci, dr, di, w)                                                                   \
    VEC pr = (ar) + (cr), pi = (ai) + (ci), mr = (ar) - (cr), mi = (ai) - (ci);                                        \
    VEC qr = (br) + (dr), qi = (bi) + (di), jr = (di) - (bi), ji = (br) - (dr); /* j (b - d) */                        \
    VEC o0r = pr + qr, o0i = pi + qi, u1r = mr - jr, u1i = mi - ji;                                                    \
    VEC u2r = pr - qr, u2i = pi - qi, u3r = mr + jr, u3i = mi + ji;                                                    \
    VEC o1r = u1r * w[0] - u1i * w[1], o1i = u1r * w[1] + u1i * w[0];                                                  \
    VEC o2r = u2r * w[2] - u2i * w[3], o2i = u2r * w[3] + u2i * w[2];                                                  \
    VEC o3r = u3r * w[4] - u3i * w[5], o3i = u3r * w[5] + u3i * w[4];

#define SHUFFLE_LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define SHUFFLE_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define JOIN_LOW(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11)
#define JOIN_HIGH(a, b) __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15)

static inline __attribute__((always_inline)) void NAME(pass_1)(
    int n, half filled, const REAL *RESTRICT xr, const REAL *RESTRICT xi, REAL *RESTRICT yr, REAL *RESTRICT yi,
    const REAL *RESTRICT t)
{
    int m = n / 4;
    VEC zero = {0};
    for (int p = 0; p < m; p += 8) {
        VEC w[6];
        for (int i = 0; i < 6; i++)
            w[i] = NAME(load)(t + i * m + p);
        VEC ar = zero, ai = zero, br = zero, bi = zero, cr = zero, ci = zero, dr = zero, di = zero;
        if (filled != SECOND_HALF) {
            ar = NAME(load)(xr + p), ai = NAME(load)(xi + p);
            br = NAME(load)(xr + p + m), bi = NAME(load)(xi + p + m);
        }
        if (filled != FIRST_HALF) {
            cr = NAME(load)(xr + p + 2 * m), ci = NAME(load)(xi + p + 2 * m);
            dr = NAME(load)(xr + p + 3 * m), di = NAME(load)(xi + p + 3 * m);
        }
        BUTTERFLY(ar, ai, br, bi, cr, ci, dr, di, w)
        VEC low = SHUFFLE_LOW(o0r, o2r), high = SHUFFLE_HIGH(o0r, o2r);
        VEC low2 = SHUFFLE_LOW(o1r, o3r), high2 = SHUFFLE_HIGH(o1r, o3r);
        NAME(store)(yr + 4 * p, SHUFFLE_LOW(low, low2));
        NAME(store)(yr + 4 * p + 8, SHUFFLE_HIGH(low, low2));
        NAME(store)(yr + 4 * p + 16, SHUFFLE_LOW(high, high2));
        NAME(store)(yr + 4 * p + 24, SHUFFLE_HIGH(high, high2));
        low = SHUFFLE_LOW(o0i, o2i), high = SHUFFLE_HIGH(o0i, o2i);
        low2 = SHUFFLE_LOW(o1i, o3i), high2 = SHUFFLE_HIGH(o1i, o3i);
        NAME(store)(yi + 4 * p, SHUFFLE_LOW(low, low2));
        NAME(store)(yi + 4 * p + 8, SHUFFLE_HIGH(low, low2));
        NAME(store)(yi + 4 * p + 16, SHUFFLE_LOW(high, high2));
        NAME(store)(yi + 4 * p + 24, SHUFFLE_HIGH(high, high2));
    }
}

static void NAME(pass_4)(
    int n, const REAL *RESTRICT xr, const REAL *RESTRICT xi, REAL *RESTRICT yr, REAL *RESTRICT yi,
    const REAL *RESTRICT t)
{
    int m = n / 4; /* of all points */
    for (int i = 0; i < m; i += 8) {
        VEC w[6];
        for (int j = 0; j < 6; j++)
            w[j] = NAME(load)(t + j * m + i);
        VEC ar = NAME(load)(xr + i), ai = NAME(load)(xi + i);
        VEC br = NAME(load)(xr + i + m), bi = NAME(load)(xi + i + m);
        VEC cr = NAME(load)(xr + i + 2 * m), ci = NAME(load)(xi + i + 2 * m);
        VEC dr = NAME(load)(xr + i + 3 * m), di = NAME(load)(xi + i + 3 * m);
        BUTTERFLY(ar, ai, br, bi, cr, ci, dr, di, w)
        NAME(store)(yr + 4 * i, JOIN_LOW(o0r, o1r));
        NAME(store)(yr + 4 * i + 8, JOIN_LOW(o2r, o3r));
        NAME(store)(yr + 4 * i + 16, JOIN_HIGH(o0r, o1r));
        NAME(store)(yr + 4 * i + 24, JOIN_HIGH(o2r, o3r));
        NAME(store)(yi + 4 * i, JOIN_LOW(o0i, o1i));
        NAME(store)(yi + 4 * i + 8, JOIN_LOW(o2i, o3i));
        NAME(store)(yi + 4 * i + 16, JOIN_HIGH(o0i, o1i));
        NAME(store)(yi + 4 * i + 24, JOIN_HIGH(o2i, o3i));
    }
}

static void NAME(pass_wide)(
    int n, int stride, const REAL *RESTRICT xr, const REAL *RESTRICT xi, REAL *RESTRICT yr, REAL *RESTRICT yi,
    const REAL *RESTRICT t)
{
    int length = n / stride, m = length / 4, quarter = n / 4;
    for (int p = 0; p < m; p++) {
        REAL w[6];
        for (int j = 0; j < 6; j++)
            w[j] = t[j * m + p];
        const REAL *ir = xr + stride * p, *ii = xi + stride * p;
        REAL *or = yr + 4 * stride * p, *oi = yi + 4 * stride * p;
        for (int q = 0; q < stride; q += 8) {
            VEC ar = NAME(load)(ir + q), ai = NAME(load)(ii + q);
            VEC br = NAME(load)(ir + q + quarter), bi = NAME(load)(ii + q + quarter);
            VEC cr = NAME(load)(ir + q + 2 * quarter), ci = NAME(load)(ii + q + 2 * quarter);
            VEC dr = NAME(load)(ir + q + 3 * quarter), di = NAME(load)(ii + q + 3 * quarter);
            BUTTERFLY(ar, ai, br, bi, cr, ci, dr, di, w)
            NAME(store)(or + q, o0r), NAME(store)(oi + q, o0i);
            NAME(store)(or + q + stride, o1r), NAME(store)(oi + q + stride, o1i);
            NAME(store)(or + q + 2 * stride, o2r), NAME(store)(oi + q + 2 * stride, o2i);
            NAME(store)(or + q + 3 * stride, o3r), NAME(store)(oi + q + 3 * stride, o3i);
        }
    }
}

/* Transforms `in` to x; s is scratch, and `in` may be x. n >= 64. filled: the half of the input that is not zero; the
   other is not read. wanted: the half of the result that is needed; the other is left undefined. Exchange real and
   imaginary parts for n times the inverse transform. */
static void NAME(fft)(
    const NAME(fft_plan) *plan, half filled, half wanted, const REAL *in_r, const REAL *in_i, REAL *xr, REAL *xi,
    REAL *sr, REAL *si)
{
    int n = plan->n;
    const REAL *t = plan->twiddles;
    REAL *own_r = xr, *own_i = xi;
    if (filled == WHOLE)
        NAME(pass_1)(n, WHOLE, in_r, in_i, sr, si, t);
    else if (filled == FIRST_HALF)
        NAME(pass_1)(n, FIRST_HALF, in_r, in_i, sr, si, t);
    else
        NAME(pass_1)(n, SECOND_HALF, in_r, in_i, sr, si, t);
    t += 6 * (n / 4);
    NAME(pass_4)(n, sr, si, xr, xi, t);
    t += 6 * (n / 4);
    for (int pass = 2, stride = 16; pass < plan->n_passes; pass++, stride *= 4) {
        NAME(pass_wide)(n, stride, xr, xi, sr, si, t);
        t += 6 * (n / stride / 4);
        REAL *r = xr, *i = xi;
        xr = sr, xi = si, sr = r, si = i;
    }
    if (n >> (2 * plan->n_passes) == 2) { /* one pass of radix 2 is left */
        int m = n / 2;
        for (int q = 0; q < m; q += 8) {
            VEC ar = NAME(load)(xr + q), ai = NAME(load)(xi + q);
            VEC br = NAME(load)(xr + q + m), bi = NAME(load)(xi + q + m);
            if (wanted != SECOND_HALF)
                NAME(store)(own_r + q, ar + br), NAME(store)(own_i + q, ai + bi);
            if (wanted != FIRST_HALF)
                NAME(store)(own_r + q + m, ar - br), NAME(store)(own_i + q + m, ai - bi);
        }
    } else if (xr != own_r) {
        memcpy(own_r, xr, (size_t)n * sizeof(REAL));
        memcpy(own_i, xi, (size_t)n * sizeof(REAL));
    }
}

/* Transforms of n real samples to n / 2 + 1 bins and back, through half as many complex points. */
typedef struct {
    int n;
    NAME(fft_plan) half;
    REAL *cosine, *sine; /* of 2 pi k / n, k = 0 .. n / 2 */
} NAME(real_plan);

static NAME(real_plan) NAME(real_plan_of)(int n)
{
    NAME(real_plan) plan = {n, NAME(fft_plan_of)(n / 2), NULL, NULL};
    size_t bytes = ((size_t)(n / 2 + 1) * sizeof(REAL) + 63) / 64 * 64;
    plan.cosine = aligned_alloc(64, bytes);
    plan.sine = aligned_alloc(64, bytes);
    if (plan.cosine && plan.sine)
        for (int k = 0; k <= n / 2; k++) {
            plan.cosine[k] = (REAL)cos(2 * M_PI * k / n);
            plan.sine[k] = (REAL)sin(2 * M_PI * k / n);
        }
    return plan;
}

/* Scratch arrays of n / 2 elements. */
typedef struct {
    REAL *zr, *zi, *sr, *si;
} NAME(scratch);

static inline VEC NAME(backwards)(VEC a) { return __builtin_shufflevector(a, a, 7, 6, 5, 4, 3, 2, 1, 0); }

/* Computes the spectrum of n_samples <= n real samples and zeros; it ends with zeros up to a whole vector. */
static void NAME(rfft)(
    const NAME(real_plan) *plan, NAME(scratch) s, const REAL *RESTRICT x, int n_samples, REAL *RESTRICT yr,
    REAL *RESTRICT yi)
{
    int n = plan->n / 2, pairs = n_samples / 2;
    for (int k = 0; k < pairs; k++)
        s.zr[k] = x[2 * k], s.zi[k] = x[2 * k + 1];
    if (n_samples & 1)
        s.zr[pairs] = x[n_samples - 1], s.zi[pairs] = 0, pairs++;
    int kept = pairs <= n / 2 ? n / 2 : n;
    memset(s.zr + pairs, 0, (size_t)(kept - pairs) * sizeof(REAL));
    memset(s.zi + pairs, 0, (size_t)(kept - pairs) * sizeof(REAL));
    NAME(fft)(&plan->half, kept == n ? WHOLE : FIRST_HALF, WHOLE, s.zr, s.zi, s.zr, s.zi, s.sr, s.si);
    /* Even samples' spectrum E = (Z[k] + Z*[n-k]) / 2, odd ones' O = (Z[k] - Z*[n-k]) / 2i: X[k] = E + w^k O. */
    yr[0] = s.zr[0] + s.zi[0], yi[0] = 0;
    yr[n] = s.zr[0] - s.zi[0], yi[n] = 0;
    int k = 1;
    for (; k + 8 <= n / 2; k += 8) {
        VEC ar = NAME(load)(s.zr + k), ai = NAME(load)(s.zi + k);
        VEC br = NAME(backwards)(NAME(load)(s.zr + n - k - 7)), bi = NAME(backwards)(NAME(load)(s.zi + n - k - 7));
        VEC c = NAME(load)(plan->cosine + k), d = NAME(load)(plan->sine + k);
        VEC er = (ar + br) * (REAL)0.5, ei = (ai - bi) * (REAL)0.5;
        VEC or = (ai + bi) * (REAL)0.5, oi = (br - ar) * (REAL)0.5;
        VEC tr = or * c + oi * d, ti = oi * c - or * d;
        NAME(store)(yr + k, er + tr), NAME(store)(yi + k, ei + ti);
        NAME(store)(yr + n - k - 7, NAME(backwards)(er - tr)), NAME(store)(yi + n - k - 7, NAME(backwards)(ti - ei));
    }
    for (; k <= n / 2; k++) {
        REAL ar = s.zr[k], ai = s.zi[k], br = s.zr[n - k], bi = s.zi[n - k], c = plan->cosine[k], d = plan->sine[k];
        REAL er = (ar + br) / 2, ei = (ai - bi) / 2, or = (ai + bi) / 2, oi = (br - ar) / 2;
        REAL tr = or * c + oi * d, ti = oi * c - or * d;
        yr[k] = er + tr, yi[k] = ei + ti;
        yr[n - k] = er - tr, yi[n - k] = ti - ei;
    }
    memset(yr + n + 1, 0, 7 * sizeof(REAL)), memset(yi + n + 1, 0, 7 * sizeof(REAL)); /* as end_with_zeros */
}

/* Computes the first n_samples (even) of a spectrum's n real samples; xi NULL: a real spectrum. */
static void NAME(irfft)(
    const NAME(real_plan) *plan, NAME(scratch) s, const REAL *RESTRICT xr, const REAL *RESTRICT xi, REAL *RESTRICT y,
    int n_samples)
{
    int n = plan->n / 2;
    REAL scale = (REAL)1 / (REAL)plan->n;
    VEC zero = {0};
    /* Twice Z[k] = (X[k] + X*[n-k]) + i w^-k (X[k] - X*[n-k]), with the transform's 1 / n. */
    s.zr[0] = (xr[0] + xr[n]) * scale, s.zi[0] = (xr[0] - xr[n]) * scale;
    int k = 1;
    for (; k + 8 <= n / 2; k += 8) {
        VEC ar = NAME(load)(xr + k), ai = xi ? NAME(load)(xi + k) : zero;
        VEC br = NAME(backwards)(NAME(load)(xr + n - k - 7));
        VEC bi = xi ? NAME(backwards)(NAME(load)(xi + n - k - 7)) : zero;
        VEC c = NAME(load)(plan->cosine + k) * scale, d = NAME(load)(plan->sine + k) * scale;
        VEC er = (ar + br) * scale, ei = (ai - bi) * scale, fr = ar - br, fi = ai + bi;
        VEC or = fr * c - fi * d, oi = fr * d + fi * c;
        NAME(store)(s.zr + k, er - oi), NAME(store)(s.zi + k, ei + or);
        NAME(store)(s.zr + n - k - 7, NAME(backwards)(er + oi));
        NAME(store)(s.zi + n - k - 7, NAME(backwards)(or - ei));
    }
    for (; k <= n / 2; k++) {
        REAL ar = xr[k], ai = xi ? xi[k] : 0, br = xr[n - k], bi = xi ? xi[n - k] : 0;
        REAL c = plan->cosine[k] * scale, d = plan->sine[k] * scale;
        REAL er = (ar + br) * scale, ei = (ai - bi) * scale, fr = ar - br, fi = ai + bi;
        REAL or = fr * c - fi * d, oi = fr * d + fi * c;
        s.zr[k] = er - oi, s.zi[k] = ei + or;
        s.zr[n - k] = er + oi, s.zi[n - k] = or - ei;
    }
    NAME(fft)(&plan->half, WHOLE, n_samples <= plan->n / 2 ? FIRST_HALF : WHOLE, s.zi, s.zr, s.zi, s.zr, s.si, s.sr);
    for (int j = 0; j < n_samples / 2; j++)
        y[2 * j] = s.zr[j], y[2 * j + 1] = s.zi[j];
}

#undef BUTTERFLY
#undef SHUFFLE_LOW
#undef SHUFFLE_HIGH
#undef JOIN_LOW
#undef JOIN_HIGH
#undef REAL
#undef VEC
#undef NAME
