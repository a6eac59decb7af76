/* The method's constants, which Python passes, and the smallest number. */
#ifndef PRIME_METHOD_H
#define PRIME_METHOD_H

#include "core.h"

#define TINY 1.17549435e-38f /* smallest normal float32 */

static prime_constants constant;

#endif
