/* Transforms in single precision, and in double for what is solved directly. */
#ifndef PRIME_TRANSFORMS_H
#define PRIME_TRANSFORMS_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "vector.h"

/* Which half of a transform's input is not zero, or of its output is wanted. */
typedef enum { WHOLE, FIRST_HALF, SECOND_HALF } half;

typedef double vd8 __attribute__((vector_size(64)));

#define REAL float
#define VEC v8
#define NAME(x) x##_f
#include "fft.h"

#define REAL double
#define VEC vd8
#define NAME(x) x##_d
#include "fft.h"

#endif
