#pragma once
#include "vector_math.h"
