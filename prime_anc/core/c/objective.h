/* The objective J from band powers (prime_anc/method/updates/objective.py): theory (13), (14). */
#ifndef PRIME_OBJECTIVE_H
#define PRIME_OBJECTIVE_H

#include "bands.h"

/* A number per condition and band. */
typedef double slopes[MAX_CONDITIONS][N_BANDS];

/* Computes J without the penalty on |W| in n_bands bands from the first one on, and replaces the ratios E / D by dJ/dl.
   With E / D for exp(l), it needs no exponential. share: weights of the conditions, of sum one. */
static double objective(const objective_weights *weights, int first_band, int n_bands, int n_conditions,
                        const double *share, slopes ratio)
{
    const double *in_mean = weights->band_weights + first_band;
    double largest = 0, mean = 0, sum = 0, louder = 0, amplitude[N_BANDS] = {0};
    double limit = weights->max_louder_db * log(10) / 10;
    for (int t = 0; t < n_conditions; t++)
        for (int b = 0; b < n_bands; b++) {
            amplitude[b] += share[t] * sqrt(ratio[t][b]);
            if (!(ratio[t][b] <= largest))
                largest = ratio[t][b];
        }
    for (int b = 0; b < n_bands; b++)
        if (in_mean[b] != 0 && amplitude[b] != 0)
            mean += in_mean[b] * (2 * log(amplitude[b]) / NR_COUNT);
    for (int t = 0; t < n_conditions; t++)
        for (int b = 0; b < n_bands; b++)
            sum += share[t] * (ratio[t][b] / largest);
    for (int t = 0; t < n_conditions; t++)
        for (int b = 0; b < n_bands; b++) {
            double found = ratio[t][b];
            double of_mean = in_mean[b] != 0 ? in_mean[b] * (share[t] * sqrt(found) / amplitude[b] / NR_COUNT) : 0;
            ratio[t][b] = of_mean + weights->risk_weight * share[t] * (found / largest) / sum;
            if (weights->max_louder_db < INFINITY && found > 0) {
                double above = constant.louder_sharpness * (log(found) - limit);
                louder += constant.louder_weight / constant.louder_sharpness * share[t] *
                          (log1p(exp(-fabs(above))) + fmax(above, 0));
                ratio[t][b] += constant.louder_weight * share[t] / (1 + exp(-above));
            }
        }
    double soft_maximum = sum == 0 ? 0 : log(largest) + log(sum / n_bands);
    return mean + weights->risk_weight * soft_maximum + louder;
}

#endif
