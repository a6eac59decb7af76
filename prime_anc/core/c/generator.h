/* The convolutional generator for one ear (prime_anc/method/start/generator.py): theory (4). */
#ifndef PRIME_GENERATOR_H
#define PRIME_GENERATOR_H

#include "vector.h"

#define N_FEATURES 12
#define MAX_DILATIONS 32
#define NORM_EPSILON 1e-5 /* torch's default */
#define OUTPUTS_AT_ONCE 4

typedef struct {
    int n_in, n_out, kernel, dilation;
    const float *weight; /* [n_out rounded up to OUTPUTS_AT_ONCE / 4][n_in][kernel][4] */
    const float *bias;
} convolution;

typedef struct {
    const float *scale, *shift;
} group_norm;

typedef struct {
    int n_channels, n_groups, n_points, n_outputs, n_blocks;
    float bound; /* nepers */
    convolution stem, first[MAX_DILATIONS], second[MAX_DILATIONS], head, last;
    group_norm stem_norm, first_norm[MAX_DILATIONS], second_norm[MAX_DILATIONS], head_norm;
    int has_head_norm;
    int margin;  /* zeros on either side of a row, as wide as the widest kernel reaches */
    int row;     /* floats of a row */
} generator;

/* Rows of n_points values inside margins of zeros. */
typedef struct {
    float *hidden, *inner, *input;
} generator_space;

static inline float *row_of(const generator *g, float *rows, int channel)
{
    return rows + (size_t)channel * g->row + g->margin;
}

/* Computes a zero-padded, dilated convolution that keeps the length. Four outputs share a load of the input. */
static void convolve(const generator *g, const convolution *c, float *in, float *out)
{
    int reach = c->kernel / 2;
    for (int n = 0; n < g->n_points; n += 2 * WIDTH)
        for (int o = 0; o < c->n_out; o += OUTPUTS_AT_ONCE) {
            v8 sums[OUTPUTS_AT_ONCE][2];
            for (int j = 0; j < OUTPUTS_AT_ONCE; j++)
                sums[j][0] = sums[j][1] = splat8(o + j < c->n_out ? c->bias[o + j] : 0);
            const float *w = c->weight + (size_t)o * c->n_in * c->kernel;
            for (int i = 0; i < c->n_in; i++) {
                const float *x = row_of(g, in, i) + n - reach * c->dilation;
                for (int t = 0; t < c->kernel; t++, w += OUTPUTS_AT_ONCE, x += c->dilation) {
                    v8 here = load8(x), next = load8(x + WIDTH);
                    for (int j = 0; j < OUTPUTS_AT_ONCE; j++) {
                        sums[j][0] += here * w[j];
                        sums[j][1] += next * w[j];
                    }
                }
            }
            for (int j = 0; j < OUTPUTS_AT_ONCE && o + j < c->n_out; j++) {
                float *y = row_of(g, out, o + j) + n;
                store8(y, sums[j][0]), store8(y + WIDTH, sums[j][1]);
            }
        }
}

static inline v8 silu8(v8 x) { return x / (1.0f + exp8(-x)); }

/* Computes silu(norm(rows) + carried), or without carried (NULL) silu(norm(rows)), in place. Values beyond the last
   point become zero again, since the next convolution reads them. */
static void normalise(const generator *g, const group_norm *norm, float *rows, float *carried)
{
    int per_group = g->n_channels / g->n_groups, n = g->n_points, end = (n + 2 * WIDTH - 1) / (2 * WIDTH) * 2 * WIDTH;
    for (int c = 0; c < g->n_channels; c++)
        memset(row_of(g, rows, c) + n, 0, (size_t)(end - n) * sizeof(float));
    for (int group = 0; group < g->n_groups; group++) {
        double sum = 0, squares = 0;
        for (int c = 0; c < per_group; c++) {
            const float *x = row_of(g, rows, group * per_group + c);
            v8 lanes = splat8(0);
            for (int k = 0; k < end; k += WIDTH)
                lanes += load8(x + k);
            sum += sum8(lanes);
        }
        float mean = (float)(sum / ((double)per_group * n));
        for (int c = 0; c < per_group; c++) {
            const float *x = row_of(g, rows, group * per_group + c);
            v8 lanes = splat8(0);
            int k = 0;
            for (; k + WIDTH <= n; k += WIDTH) {
                v8 d = load8(x + k) - mean;
                lanes += d * d;
            }
            squares += sum8(lanes);
            for (; k < n; k++)
                squares += (double)(x[k] - mean) * (x[k] - mean);
        }
        float inverse = (float)(1 / sqrt(squares / ((double)per_group * n) + NORM_EPSILON));
        for (int c = 0; c < per_group; c++) {
            int channel = group * per_group + c;
            float scale = norm->scale[channel] * inverse, shift = norm->shift[channel] - mean * scale;
            float *x = row_of(g, rows, channel), *add = carried ? row_of(g, carried, channel) : NULL;
            for (int k = 0; k < end; k += WIDTH) {
                v8 y = load8(x + k) * scale + shift;
                store8(x + k, silu8(add ? y + load8(add + k) : y));
            }
            memset(x + n, 0, (size_t)(end - n) * sizeof(float));
        }
    }
}

/* Returns Delta [n_outputs][n_points], the first rows of the result, from the features in space->input. */
static float *generate(const generator *g, generator_space *space)
{
    for (int i = 0; i < N_FEATURES; i++) /* zeros behind the row, which the first convolution reads */
        memset(row_of(g, space->input, i) + g->n_points, 0, (size_t)(g->row - g->margin - g->n_points) * sizeof(float));
    convolve(g, &g->stem, space->input, space->hidden);
    normalise(g, &g->stem_norm, space->hidden, NULL);
    for (int b = 0; b < g->n_blocks; b++) {
        float *spare = space->input; /* the features are no longer needed */
        convolve(g, &g->first[b], space->hidden, space->inner);
        normalise(g, &g->first_norm[b], space->inner, NULL);
        convolve(g, &g->second[b], space->inner, spare);
        normalise(g, &g->second_norm[b], spare, space->hidden);
        space->input = space->hidden, space->hidden = spare;
    }
    convolve(g, &g->head, space->hidden, space->inner);
    if (g->has_head_norm) {
        normalise(g, &g->head_norm, space->inner, NULL);
    } else {
        for (int c = 0; c < g->n_channels; c++) {
            float *x = row_of(g, space->inner, c);
            for (int k = 0; k < g->n_points; k += WIDTH)
                store8(x + k, silu8(load8(x + k)));
        }
    }
    convolve(g, &g->last, space->inner, space->hidden);
    for (int c = 0; c < g->n_outputs; c++) {
        float *x = row_of(g, space->hidden, c);
        for (int k = 0; k < g->n_points; k += WIDTH) {
            v8 e = exp8(2.0f * load8(x + k)); /* tanh = 1 - 2 / (e^2g + 1) */
            store8(x + k, g->bound - 2 * g->bound / (e + 1.0f));
        }
    }
    return space->hidden;
}

#endif
